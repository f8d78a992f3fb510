//! Score of a name for search terms: above 0 and up to 1, or no match.
//!
//! Source: `web/api/v1/search_filters.go` and `util/strutil/{subsequence,jarowinkler}.go` of
//! Prometheus, for matches and scores; sums are added in the same order, so that scores are
//! identical to the bit.

/// Algorithm that compares terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    /// The name has all characters of the term, in order.
    Subsequence,
    /// The name contains the term, or is similar.
    JaroWinkler,
}

/// Search terms, of which one has to match.
#[derive(Debug)]
pub(super) struct Search {
    terms: Vec<Term>,
    algorithm: Algorithm,
    /// Minimum score of a match, 0 to 1.
    threshold: f64,
    is_case_sensitive: bool,
}

#[derive(Debug)]
struct Term {
    text: String,
    characters: Vec<char>,
}

/// Factor for matches that are not exact.
const INEXACT_SHARE: f64 = 0.999;

impl Search {
    /// Returns a search for the terms that are not empty; `None` without any.
    pub(super) fn new(
        terms: &[&str],
        algorithm: Algorithm,
        threshold: f64,
        is_case_sensitive: bool,
    ) -> Option<Search> {
        let term = |text: &&str| {
            let text = if is_case_sensitive { (*text).to_owned() } else { lower(text) };
            Term { characters: text.chars().collect(), text }
        };
        let terms: Vec<_> = terms.iter().filter(|term| !term.is_empty()).map(term).collect();
        (!terms.is_empty()).then_some(Search { terms, algorithm, threshold, is_case_sensitive })
    }

    /// Returns the score of a name; `None` without a match.
    pub(super) fn score(&self, name: &str) -> Option<f64> {
        let lowered;
        let name = if self.is_case_sensitive {
            name
        } else {
            lowered = lower(name);
            &lowered
        };
        let mut best: Option<f64> = None;
        for term in &self.terms {
            if let Some(score) = self.score_term(term, name) {
                best = Some(best.map_or(score, |best| best.max(score)));
                if score >= 1.0 {
                    break;
                }
            }
        }
        best
    }

    fn score_term(&self, term: &Term, name: &str) -> Option<f64> {
        let reaches = |score: &f64| *score >= self.threshold;
        match self.algorithm {
            Algorithm::Subsequence if name.starts_with(&term.text) => Some(1.0),
            Algorithm::Subsequence => {
                let name: Vec<char> = name.chars().collect();
                Some(subsequence(&term.characters, &name)).filter(|s| *s > 0.0).filter(reaches)
            }
            Algorithm::JaroWinkler => substring(term, name).or_else(|| {
                if self.threshold == 0.0 {
                    return None;
                }
                let name: Vec<char> = name.chars().collect();
                Some(jaro_winkler(&term.characters, &name)).filter(reaches)
            }),
        }
    }
}

/// Converts each character to one lower-case character.
fn lower(text: &str) -> String {
    text.chars().map(|character| character.to_lowercase().next().unwrap_or(character)).collect()
}

/// Returns 1 for a match at the start, and less for later ones, down to 0.1 at the end.
fn substring(term: &Term, name: &str) -> Option<f64> {
    let at = name.find(&term.text)?;
    if at == 0 {
        return Some(1.0);
    }
    let index = name[..at].chars().count();
    let index_max = name.chars().count() - term.characters.len();
    Some(1.0 - 0.9 * index as f64 / index_max as f64)
}

/// Returns the best score over all starts of the term; 0 without a match.
fn subsequence(term: &[char], name: &[char]) -> f64 {
    let mut best = -1.0_f64;
    for start in 0..(name.len() + 1).saturating_sub(term.len()) {
        if name[start] != term[0] {
            continue;
        }
        // Without a match from here, later starts have none.
        let Some(score) = subsequence_from(start, term, name) else { break };
        best = best.max(score);
    }
    if best < 0.0 {
        return 0.0;
    }
    best / (term.len() * term.len()) as f64 * INEXACT_SHARE
}

/// Adds squared lengths of runs, and subtracts gaps before and between them, and half of the rest,
/// relative to the length of the name.
fn subsequence_from(start: usize, term: &[char], name: &[char]) -> Option<f64> {
    let share = 1.0 / name.len() as f64;
    let (mut score, mut at, mut passed, mut term_at) = (0.0, start, start, 0);
    while term_at < term.len() {
        let found = name[at..].iter().position(|character| *character == term[term_at])?;
        passed += found;
        at += found;
        if passed > 0 {
            score -= passed as f64 * share;
        }
        let run = name[at..].iter().zip(&term[term_at..]).take_while(|(a, b)| a == b).count();
        score += (run * run) as f64;
        at += run;
        term_at += run;
        passed = 0;
    }
    if at < name.len() {
        score -= (name.len() - at) as f64 * share * 0.5;
    }
    Some(score)
}

/// Returns the Jaro similarity, raised for up to four common leading characters.
fn jaro_winkler(term: &[char], name: &[char]) -> f64 {
    if term == name {
        return 1.0;
    }
    let (short, long) = if term.len() > name.len() { (name, term) } else { (term, name) };
    if short.is_empty() {
        return 0.0;
    }
    let reach = (long.len() / 2).saturating_sub(1);
    let mut is_taken = vec![false; long.len()];
    let mut matched = Vec::new();
    for (at, character) in short.iter().enumerate() {
        let candidates = at.saturating_sub(reach)..(at + reach + 1).min(long.len());
        let free =
            candidates.into_iter().find(|index| !is_taken[*index] && long[*index] == *character);
        if let Some(index) = free {
            is_taken[index] = true;
            matched.push(*character);
        }
    }
    if matched.is_empty() {
        return 0.0;
    }
    let taken = long.iter().zip(&is_taken).filter(|(_, is_taken)| **is_taken);
    let moved = taken.zip(&matched).filter(|((a, _), b)| a != b).count() as f64;
    let matches = matched.len() as f64;
    let shares = [1.0 / short.len() as f64, 1.0 / long.len() as f64];
    let jaro =
        (matches * shares[0] + matches * shares[1] + (matches - moved * 0.5) / matches) / 3.0;
    let prefix = short.iter().zip(long).take(4).take_while(|(a, b)| a == b).count();
    jaro + prefix as f64 * 0.1 * (1.0 - jaro)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The scores are those of Prometheus 3.14.
    #[test]
    fn names_are_scored_as_prometheus_does() {
        use Algorithm::{JaroWinkler, Subsequence};
        let cases = [
            ("met", Subsequence, 0, "prometheus", Some(0.9435)),
            ("prom", Subsequence, 0, "prometheus", Some(1.0)),
            ("hnd", Subsequence, 0, "promhttp_metric_handler_requests_in_flight", Some(0.481)),
            (
                "hnd",
                Subsequence,
                0,
                "prometheus_remote_read_handler_queries",
                Some(0.468_828_947_368_421_07),
            ),
            ("hnd", Subsequence, 60, "promhttp_metric_handler_requests_in_flight", None),
            ("xyz", Subsequence, 0, "prometheus", None),
            ("goroutnies", JaroWinkler, 70, "go_goroutines", Some(0.885_128_205_128_205_1)),
            ("goroutnies", JaroWinkler, 70, "go_info", Some(0.737_142_857_142_857_1)),
            ("goroutnies", JaroWinkler, 90, "go_goroutines", None),
            ("goroutnies", JaroWinkler, 0, "go_goroutines", None),
            ("eth", JaroWinkler, 0, "prometheus", Some(1.0 - 0.9 * 4.0 / 7.0)),
            ("prometheus", JaroWinkler, 100, "prometheus", Some(1.0)),
        ];
        for (term, algorithm, threshold, name, expected) in cases {
            let search = Search::new(&[term], algorithm, f64::from(threshold) / 100.0, true);
            assert_eq!(search.unwrap().score(name), expected, "{term} in {name}");
        }
    }

    #[test]
    fn one_of_several_terms_is_enough_and_cases_can_be_the_same() {
        let search = |terms: &[&str], is_case_sensitive| {
            Search::new(terms, Algorithm::Subsequence, 0.0, is_case_sensitive)
        };
        assert!(search(&[], true).is_none() && search(&["", ""], true).is_none());
        let both = search(&["zz", "up"], true).unwrap();
        assert_eq!(both.score("up"), Some(1.0));
        assert_eq!(both.score("UP"), None);
        assert_eq!(search(&["Up"], false).unwrap().score("uP"), Some(1.0));
        assert_eq!(search(&["ä"], false).unwrap().score("Ä"), Some(1.0));
        assert_eq!(search(&["long"], true).unwrap().score("lo"), None);
    }
}
