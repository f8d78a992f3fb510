//! `label_replace` and `label_join`: functions that change only labels.

use model::labels::{LABEL_BYTES_MAX, METRIC_NAME};
use model::re2::compile_wrapped;
use model::{MatcherError, Reservation};
use regex::{Captures, Regex, RegexBuilder};

use crate::catalog::LabelFunction;
use crate::error::QueryError;
use crate::exec::adapter::rearranged::Rearranged;
use crate::exec::adapter::unique::{Meeting, settle_names, unique};
use crate::exec::operator::{Context, Operand, SeriesMeta, TileReader, VectorOperator};
use crate::steps::Steps;

/// Maximum bytes of a label value that these functions create.
pub const LABEL_VALUE_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of label values that one call creates, over all series. A chain of calls that each
/// double a label reaches this limit before the query's memory limit.
pub const LABEL_VALUES_BYTES_MAX: usize = 64 << 20;
/// Maximum product of the bytes of a label value and the bytes of the compiled expression.
const MATCH_COST_MAX: usize = 1 << 33;
/// Maximum bytes of a compiled expression.
const PATTERN_COMPILED_BYTES: usize = 4 << 20;
const _: () = assert!(LABEL_VALUE_BYTES_MAX <= LABEL_BYTES_MAX);

/// `label_replace`: if the whole source label matches, sets the target label to the expanded
/// replacement.
///
/// Errors: an invalid expression or label name, with Prometheus' messages; labels that exceed
/// [`LABEL_VALUE_BYTES_MAX`], [`LABEL_VALUES_BYTES_MAX`] or the query's memory.
pub(super) fn replace(
    ctx: &Context,
    input: Box<dyn VectorOperator>,
    [target, replacement, source, pattern]: [&str; 4],
) -> Result<Operand, QueryError> {
    let regex = compiled(pattern)?;
    check_name("label_replace", "destination", target)?;
    let template = Template::parse(replacement, &regex);
    let mut checked_bytes = MATCH_COST_MAX / PATTERN_COMPILED_BYTES;
    relabel(ctx, input, target, |meta, value| {
        let text = meta.labels.get(source);
        if text.len() > checked_bytes {
            check_match_cost(&regex, text.len())?;
            checked_bytes = text.len();
        }
        let captures = regex.captures(text);
        if let Some(captures) = &captures {
            template.pieces(captures).for_each(|piece| value.push(piece));
        }
        Ok(captures.is_some())
    })
}

/// Compiles the expression, anchored at both ends.
///
/// Source: `evalLabelReplace` of Prometheus.
fn compiled(pattern: &str) -> Result<Regex, QueryError> {
    compile_wrapped(pattern).map_err(|error| {
        QueryError::Execution(match error {
            MatcherError::Syntax(_) => {
                format!("invalid regular expression in label_replace(): {pattern}")
            }
            error @ MatcherError::TooLarge { .. } => error.to_string(),
        })
    })
}

/// Checks the string arguments of [`replace`] and [`join`]; called before the vector is evaluated,
/// because Prometheus reports these errors first.
pub(super) fn check(function: LabelFunction, texts: &[&str]) -> Result<(), QueryError> {
    match (function, texts) {
        (LabelFunction::Replace, [target, _, _, pattern]) => {
            compiled(pattern)?;
            check_name("label_replace", "destination", target)
        }
        (LabelFunction::Join, [target, _, sources @ ..]) => {
            check_names(target, sources.iter().copied())
        }
        (LabelFunction::Replace | LabelFunction::Join, _) => Ok(()),
    }
}

/// Rejects an expression that is too large for a text of `text_bytes`: a match cannot be stopped,
/// and its time is proportional to the product of their lengths.
fn check_match_cost(regex: &Regex, text_bytes: usize) -> Result<(), QueryError> {
    let limit = MATCH_COST_MAX / text_bytes;
    let compiled = RegexBuilder::new(regex.as_str()).size_limit(limit).build();
    compiled.map(|_| ()).map_err(|_| {
        QueryError::Execution(format!(
            "regular expression in label_replace() compiles to more than {limit} bytes, the limit \
             is that for a label of {text_bytes} bytes"
        ))
    })
}

/// `label_join`: sets the target label to the source labels, joined by a separator.
///
/// Errors: as for [`replace`].
pub(super) fn join(
    ctx: &Context,
    input: Box<dyn VectorOperator>,
    target: &str,
    separator: &str,
    sources: &[String],
) -> Result<Operand, QueryError> {
    check_names(target, sources.iter().map(String::as_str))?;
    relabel(ctx, input, target, |meta, value| {
        for (position, source) in sources.iter().enumerate() {
            if position > 0 {
                value.push(separator);
            }
            value.push(meta.labels.get(source));
        }
        Ok(true)
    })
}

/// A label value under construction; above the limit only its length is tracked.
#[derive(Default)]
struct LabelValue {
    text: String,
    bytes: usize,
}

impl LabelValue {
    fn push(&mut self, piece: &str) {
        self.bytes = self.bytes.saturating_add(piece.len());
        if self.bytes <= LABEL_VALUE_BYTES_MAX {
            self.text.push_str(piece);
        }
    }
}

/// Sets a label of every series to the output of `write`; if `write` returns false, the series
/// is unchanged.
fn relabel(
    ctx: &Context,
    input: Box<dyn VectorOperator>,
    target: &str,
    mut write: impl FnMut(&SeriesMeta, &mut LabelValue) -> Result<bool, QueryError>,
) -> Result<Operand, QueryError> {
    let mut reservation = Reservation::new(&ctx.budget, 0)?;
    let mut values_bytes = 0;
    let mut series = Vec::with_capacity(input.series().len());
    for meta in input.series() {
        ctx.budget.check()?;
        let mut value = LabelValue::default();
        if !write(meta, &mut value)? {
            series.push(meta.clone());
            continue;
        }
        if value.bytes > LABEL_VALUE_BYTES_MAX {
            return Err(QueryError::Execution(format!(
                "label {target:?} would be {} bytes long, the limit is {LABEL_VALUE_BYTES_MAX}",
                value.bytes
            )));
        }
        values_bytes += value.bytes;
        if values_bytes > LABEL_VALUES_BYTES_MAX {
            return Err(QueryError::Execution(format!(
                "values of label {target:?} would be more than {LABEL_VALUES_BYTES_MAX} bytes in \
                 all, which is the limit"
            )));
        }
        let bytes = meta.labels.as_bytes().len() + value.bytes + size_of::<SeriesMeta>();
        reservation.grow(bytes as u64)?;
        let labels = meta.labels.to_builder().set(target, &value.text).build();
        let drop_name = meta.drop_name && target != METRIC_NAME;
        series.push(SeriesMeta { labels, drop_name });
    }
    let relabeled =
        Relabeled { rows: Rearranged::relabeled(input, series), _reservation: reservation };
    Ok(Operand::Vector(match settle_names(ctx, &relabeled)? {
        Some(settled) => unique(ctx, Box::new(settled), Meeting::Merged)?,
        None => unique(ctx, Box::new(relabeled), Meeting::Merged)?,
    }))
}

fn check_names<'a>(
    target: &str,
    mut sources: impl Iterator<Item = &'a str>,
) -> Result<(), QueryError> {
    sources.try_for_each(|source| check_name("label_join", "source", source))?;
    check_name("label_join", "destination", target)
}

fn check_name(function: &str, role: &str, name: &str) -> Result<(), QueryError> {
    if !model::labels::is_valid_label_name(name) {
        let message = format!("invalid {role} label name in {function}(): {name}");
        return Err(QueryError::Execution(message));
    }
    Ok(())
}

/// Series with new labels, whose bytes are charged while they exist.
struct Relabeled {
    rows: Rearranged,
    _reservation: Reservation,
}

impl VectorOperator for Relabeled {
    fn series(&self) -> &[SeriesMeta] {
        self.rows.series()
    }

    fn steps(&self) -> Steps {
        self.rows.steps()
    }

    fn has_effects(&self) -> bool {
        self.rows.has_effects()
    }

    fn has_histograms(&self) -> bool {
        self.rows.has_histograms()
    }

    fn holds_histograms(&self) -> bool {
        self.rows.holds_histograms()
    }

    fn become_answer(&mut self) {
        self.rows.become_answer();
    }

    fn open<'a>(&'a self, series: &[u32]) -> Box<dyn TileReader + 'a> {
        self.rows.open(series)
    }
}

/// A replacement text, split into literals and references to groups.
///
/// Source: `Regexp.Expand` of Go: `$1`, `$name`, `${name}`, `$$`. A name is as long as possible;
/// any other dollar sign is a literal; references to unknown groups are empty.
struct Template<'t> {
    parts: Vec<TemplatePart<'t>>,
}

enum TemplatePart<'t> {
    Literal(&'t str),
    /// The first of these groups that participated in the match.
    Groups(Vec<usize>),
}

impl<'t> Template<'t> {
    fn parse(text: &'t str, regex: &Regex) -> Template<'t> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            parts.push(TemplatePart::Literal(&rest[..at]));
            let after = &rest[at + 1..];
            if let Some(beyond) = after.strip_prefix('$') {
                parts.push(TemplatePart::Literal(&after[..1]));
                rest = beyond;
            } else if let Some((name, beyond)) = reference(after) {
                parts.push(TemplatePart::Groups(groups(name, regex)));
                rest = beyond;
            } else {
                parts.push(TemplatePart::Literal(&rest[at..at + 1]));
                rest = after;
            }
        }
        parts.push(TemplatePart::Literal(rest));
        Template { parts }
    }

    fn pieces<'c>(&'c self, captures: &'c Captures<'_>) -> impl Iterator<Item = &'c str> {
        self.parts.iter().map(|part| match part {
            TemplatePart::Literal(text) => *text,
            TemplatePart::Groups(groups) => groups
                .iter()
                .find_map(|group| captures.get(*group))
                .map_or("", |found| found.as_str()),
        })
    }
}

/// Splits the text after a dollar sign into the name and the rest.
fn reference(text: &str) -> Option<(&str, &str)> {
    let (braced, body) = match text.strip_prefix('{') {
        Some(body) => (true, body),
        None => (false, text),
    };
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let len = body.find(|c| !is_part(c)).unwrap_or(body.len());
    let (name, after) = body.split_at(len);
    if name.is_empty() {
        return None;
    }
    if braced { after.strip_prefix('}').map(|after| (name, after)) } else { Some((name, after)) }
}

/// Returns the groups with this number (without leading zeros) or this name.
fn groups(name: &str, regex: &Regex) -> Vec<usize> {
    let is_number =
        name.bytes().all(|b| b.is_ascii_digit()) && (name.len() == 1 || !name.starts_with('0'));
    if is_number && let Ok(group) = name.parse::<u32>() {
        return vec![group as usize];
    }
    let names = regex.capture_names().enumerate();
    names.filter(|(_, candidate)| *candidate == Some(name)).map(|(group, _)| group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(pattern: &str, text: &str, replacement: &str) -> String {
        let regex = compile_wrapped(pattern).unwrap();
        let captures = regex.captures(text).unwrap();
        Template::parse(replacement, &regex).pieces(&captures).collect()
    }

    #[test]
    fn replacements_expand_as_in_go() {
        let cases = [
            ("(.*)-(.*)", "a-b", "$2-$1", "b-a"),
            ("(.*)", "a", "$1x", ""),
            ("(.*)", "a", "${1}x", "ax"),
            ("(?P<n>.*)", "a", "$n ${n}", "a a"),
            ("(.*)", "a", "$$1", "$1"),
            ("(.*)", "a", "$", "$"),
            ("(.*)", "a", "${1", "${1"),
            ("(.*)", "a", "${}", "${}"),
            ("(.*)", "a", "$2$nope", ""),
            ("(.*)", "a", "$01", ""),
            ("(a)|(b)", "b", "[$1][$2]", "[][b]"),
            ("(.*)", "ä", "$1é", ""),
            ("(.*)", "ä", "${1}é$-", "äé$-"),
        ];
        for (pattern, text, replacement, expected) in cases {
            assert_eq!(expand(pattern, text, replacement), expected, "{replacement}");
        }
    }
}
