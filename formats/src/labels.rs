//! Label sets of texts.

use model::Labels;
use model::labels::LABEL_BYTES_MAX;

/// Maximum number of labels of a series or an exemplar.
pub(crate) const LABELS_MAX: usize = 10_000;

/// Makes a label set; labels with an empty value are dropped.
///
/// Errors: an empty name, a name that occurs twice, a label that is too long.
pub(crate) fn labels_of(mut pairs: Vec<(String, String)>) -> Result<Labels, String> {
    pairs.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    if let Some(pair) = pairs.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(format!("the label {:?} occurs twice", pair[0].0));
    }
    if pairs.iter().any(|(name, _)| name.is_empty()) {
        return Err("a label with an empty name".to_owned());
    }
    let len = |(name, value): &(String, String)| name.len().max(value.len());
    if pairs.iter().map(len).max().is_some_and(|len| len > LABEL_BYTES_MAX) {
        return Err(format!("a label of more than {LABEL_BYTES_MAX} bytes"));
    }
    Ok(Labels::from_pairs(pairs))
}
