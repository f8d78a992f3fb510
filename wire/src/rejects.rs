//! Rejected series and samples of a request, with bounded texts.

use std::fmt::Write as _;

use model::RejectReason;
use model::labels::{is_legacy_label_name, write_quoted};

/// Maximum size of a label set in a response, in bytes.
const SERIES_TEXT_BYTES_MAX: usize = 1024;

/// Numbers of samples and exemplars.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Samples that are floats.
    pub floats: u64,
    /// Samples that are native histograms.
    pub histograms: u64,
    /// Exemplars.
    pub exemplars: u64,
}

impl std::ops::Add for Counts {
    type Output = Counts;

    fn add(self, other: Counts) -> Counts {
        Counts {
            floats: self.floats + other.floats,
            histograms: self.histograms + other.histograms,
            exemplars: self.exemplars + other.exemplars,
        }
    }
}

/// Rejects of one request: counts by reason, and the first texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rejects {
    counts: [Counts; RejectReason::ALL.len()],
    named: Vec<String>,
    unnamed: u64,
    /// First reject of each reason.
    examples: Vec<(RejectReason, String)>,
}

impl Rejects {
    /// Maximum number of rejects in a response; further ones are counted.
    pub const NAMED_MAX: usize = 10;

    /// Adds one reject with its counts; the text is made only if it is shown.
    pub fn add(&mut self, reason: RejectReason, counts: Counts, text: impl FnOnce() -> String) {
        self.count(reason, counts);
        let is_first = !self.examples.iter().any(|(known, _)| *known == reason);
        let is_named = self.named.len() < Self::NAMED_MAX;
        self.unnamed += u64::from(!is_named);
        if !is_first && !is_named {
            return;
        }
        let text = text();
        if is_first {
            self.examples.push((reason, text.clone()));
        }
        if is_named {
            self.named.push(text);
        }
    }

    /// Adds rejects of one sample or exemplar each, without texts.
    pub fn add_unnamed(&mut self, reason: RejectReason, counts: Counts) {
        self.count(reason, counts);
        self.unnamed += counts.floats + counts.histograms + counts.exemplars;
    }

    fn count(&mut self, reason: RejectReason, counts: Counts) {
        let known = &mut self.counts[reason as usize];
        *known = *known + counts;
    }

    /// Returns whether nothing was rejected.
    pub fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// Returns whether a reject has a reason that may not hold later, such as a limit of the store.
    pub fn is_for_want_of_room(&self) -> bool {
        self.counts()
            .any(|(reason, counts)| reason.is_for_want_of_room() && counts != Counts::default())
    }

    /// Returns the counts of a reason.
    pub fn counts_of(&self, reason: RejectReason) -> Counts {
        self.counts[reason as usize]
    }

    /// Returns the counts of each reason.
    pub fn counts(&self) -> impl Iterator<Item = (RejectReason, Counts)> {
        RejectReason::ALL.into_iter().zip(self.counts)
    }

    /// Returns each reason that occurred with its first text.
    pub fn examples(&self) -> impl Iterator<Item = (RejectReason, &str)> {
        self.examples.iter().map(|(reason, text)| (*reason, text.as_str()))
    }

    /// Returns the texts, one per line, as Prometheus joins them.
    pub fn to_text(&self) -> String {
        let mut text = self.named.join("\n");
        if self.unnamed > 0 {
            let _ = write!(text, "\nand {} more of this kind", self.unnamed);
        }
        text
    }
}

/// Formats label pairs of any bytes as Prometheus prints a label set, truncated after about 1 KiB.
pub fn series_text<'a>(labels: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> String {
    let mut text = String::from("{");
    for (position, (name, value)) in labels.enumerate() {
        if position > 0 {
            text.push_str(", ");
        }
        if text.len() > SERIES_TEXT_BYTES_MAX {
            text.push_str("...");
            break;
        }
        match std::str::from_utf8(name) {
            Ok(name) if is_legacy_label_name(name) => push_cut(&mut text, name),
            _ => push_quoted(&mut text, name),
        }
        text.push('=');
        push_quoted(&mut text, value);
    }
    text.push('}');
    text
}

fn push_cut(text: &mut String, part: &str) {
    let end = part.floor_char_boundary(SERIES_TEXT_BYTES_MAX);
    text.push_str(&part[..end]);
    if end < part.len() {
        text.push_str("...");
    }
}

/// Source: `strconv.Quote` of Go, which writes bytes that are not UTF-8 as `\xff`.
fn push_quoted(text: &mut String, part: &[u8]) {
    let shown = &part[..part.len().min(SERIES_TEXT_BYTES_MAX)];
    text.push('"');
    for chunk in shown.utf8_chunks() {
        let start = text.len();
        let _ = write_quoted(text, chunk.valid());
        text.pop();
        text.remove(start);
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    if shown.len() < part.len() {
        text.push_str("...");
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(labels: &[(&[u8], &[u8])]) -> String {
        series_text(labels.iter().copied())
    }

    #[test]
    fn series_are_printed_as_prometheus_prints_them() {
        assert_eq!(
            text(&[(b"__name__", b"up"), (b"job", b"a\"b")]),
            r#"{__name__="up", job="a\"b"}"#
        );
        assert_eq!(text(&[(b"a.b", b"\xff\x00")]), r#"{"a.b"="\xff\x00"}"#);
        assert_eq!(text(&[("ü\u{fffd}".as_bytes(), b"")]), "{\"ü\u{fffd}\"=\"\"}");
        assert_eq!(text(&[]), "{}");
    }

    #[test]
    fn texts_are_bounded() {
        let long = vec![b'x'; 100_000];
        let pairs: Vec<(&[u8], &[u8])> = vec![(&long, &long); 100];
        assert!(text(&pairs).len() < 4 * SERIES_TEXT_BYTES_MAX);
        let mut rejects = Rejects::default();
        for index in 0..1_000 {
            let counts = Counts { floats: 2, ..Counts::default() };
            rejects.add(RejectReason::OutOfOrder, counts, || format!("refusal {index}"));
        }
        assert_eq!(rejects.to_text().lines().count(), Rejects::NAMED_MAX + 1);
        assert!(rejects.to_text().ends_with("\nand 990 more of this kind"));
        let counts = Counts { floats: 2_000, ..Counts::default() };
        assert!(rejects.counts().any(|pair| pair == (RejectReason::OutOfOrder, counts)));
    }
}
