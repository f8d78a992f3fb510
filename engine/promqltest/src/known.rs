//! The list of known failures, which may only shrink.
//!
//! ```text
//! # comment
//! <script>:<line of the eval> <reason>
//! ```

use std::collections::BTreeMap;

/// Evals that are known to fail, with the reason.
#[derive(Debug, Default)]
pub struct KnownFailures {
    reasons: BTreeMap<(String, usize), String>,
}

impl KnownFailures {
    /// Parses a list.
    ///
    /// Errors: a line without script, line number or reason, and a repeated one.
    pub fn parse(text: &str) -> Result<KnownFailures, String> {
        let mut reasons = BTreeMap::new();
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let error = || format!("expected `<script>:<line> <reason>`, found {line:?}");
            let (place, reason) = line.split_once(' ').ok_or_else(error)?;
            let (script, number) = place.rsplit_once(':').ok_or_else(error)?;
            let key = (script.to_owned(), number.parse().map_err(|_| error())?);
            if reasons.insert(key, reason.trim().to_owned()).is_some() {
                return Err(format!("{place} is listed twice"));
            }
        }
        Ok(KnownFailures { reasons })
    }

    /// Why an eval is known to fail, if it is.
    pub fn reason(&self, script: &str, line: usize) -> Option<&str> {
        self.reasons.get(&(script.to_owned(), line)).map(String::as_str)
    }

    /// The entries of one script, by line.
    pub fn of_script<'a>(&'a self, script: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
        self.reasons
            .iter()
            .filter(move |((name, _), _)| name == script)
            .map(|((_, line), reason)| (*line, reason.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_a_place_and_a_reason() {
        let list = "# why\n\na.test:12 native histograms\nb.test:3 x\n";
        let known = KnownFailures::parse(list).unwrap();
        assert_eq!(known.reason("a.test", 12), Some("native histograms"));
        assert_eq!(known.reason("a.test", 13), None);
        assert_eq!(known.of_script("b.test").collect::<Vec<_>>(), [(3, "x")]);
        for wrong in ["a.test:12", "a.test x", "a.test:x y", "a.test:1 x\na.test:1 y"] {
            assert!(KnownFailures::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
