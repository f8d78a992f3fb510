//! Labels of exemplars: trace and span ids, and attributes.

use std::borrow::Cow;

use model::Labels;

use super::message::{Attribute, Exemplar};
use super::value;
use crate::slow_path::{EXEMPLAR_CHARS_MAX, exemplar_labels};

/// Returns the labels of an exemplar; its attributes are dropped if they are too long. `None` if a
/// name is empty or repeated.
pub(super) fn labels(exemplar: &Exemplar<'_>) -> Option<Labels> {
    let ids = [("trace_id", &exemplar.trace_id[..]), ("span_id", &exemplar.span_id[..])];
    let ids = ids.into_iter().filter(|(_, id)| id.iter().any(|byte| *byte != 0));
    let mut pairs: Vec<(Cow<'_, str>, Cow<'_, str>)> =
        ids.map(|(name, id)| (name.into(), hex(id).into())).collect();
    let ids_count = pairs.len();
    let chars =
        |(name, value): &(Cow<'_, str>, Cow<'_, str>)| name.chars().count() + value.chars().count();
    let mut room = EXEMPLAR_CHARS_MAX - pairs.iter().map(chars).sum::<usize>();
    for Attribute { key, value } in &exemplar.attributes {
        // A character has at most four bytes.
        let text = value::text(value, 4 * EXEMPLAR_CHARS_MAX).ok();
        let pair = text.map(|text| (Cow::Borrowed(&**key), text));
        match pair.and_then(|pair| Some((room.checked_sub(chars(&pair))?, pair))) {
            Some((left, pair)) => {
                room = left;
                pairs.push(pair);
            }
            None => {
                pairs.truncate(ids_count);
                break;
            }
        }
    }
    exemplar_labels(pairs)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
