//! Label sets under construction, and translated names of labels.

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;

use model::labels::{push_packed, quoted};
use model::{METRIC_NAME, RejectReason};

use super::message::{AnyValue, Attribute, Text};
use super::{Settings, naming, value};
use crate::limits::{Limits, text_bytes_max};
use crate::rejects::series_text;
use crate::slow_path::check_lengths;

/// Maximum number of translated names that a request caches.
const NAMES_KEPT_MAX: usize = 4096;

/// Reason and text of rejected labels.
pub(super) type Refusal = (RejectReason, String);

/// Cache of label names by attribute name.
#[derive(Debug)]
pub(super) struct LabelNames<'a> {
    settings: &'a Settings,
    limits: &'a Limits,
    known: HashMap<Text<'a>, Rc<str>>,
}

impl<'a> LabelNames<'a> {
    pub(super) fn new(settings: &'a Settings, limits: &'a Limits) -> LabelNames<'a> {
        LabelNames { settings, limits, known: HashMap::new() }
    }

    /// Translates the name of a promoted attribute.
    ///
    /// Errors: the result is empty, or the name is too long.
    pub(super) fn label(&mut self, name: &Text<'a>) -> Result<Rc<str>, Refusal> {
        // Without escaping, some names are invalid here that data points may have.
        if self.settings.allow_utf8 {
            self.check_len(name)?;
            return self.made(name);
        }
        self.of_attribute(name)
    }

    /// Translates the name of an attribute of a scope.
    pub(super) fn scope_label(&self, name: &str) -> Result<Rc<str>, Refusal> {
        self.check_len(name)?;
        self.made(&format!("otel_scope_{name}"))
    }

    /// Translates the name of an attribute of a data point; without escaping, any name is valid.
    pub(super) fn of_attribute(&mut self, name: &Text<'a>) -> Result<Rc<str>, Refusal> {
        if let Some(known) = self.known.get(&**name) {
            return Ok(Rc::clone(known));
        }
        self.check_len(name)?;
        let made = match self.settings.allow_utf8 && !name.is_empty() {
            true => Rc::from(&**name),
            false => self.made(name)?,
        };
        if self.known.len() < NAMES_KEPT_MAX {
            self.known.insert(name.clone(), Rc::clone(&made));
        }
        Ok(made)
    }

    /// Checks a name before its translation, which may take several times its memory.
    fn check_len(&self, name: &str) -> Result<(), Refusal> {
        check_lengths(name.len(), 0, self.limits).map_err(|text| (RejectReason::LabelLimit, text))
    }

    fn made(&self, name: &str) -> Result<Rc<str>, Refusal> {
        let made = naming::label_name(self.settings, name);
        made.map(Rc::from).map_err(|text| (RejectReason::InvalidLabels, text))
    }
}

/// Labels without the metric name. Invariant: sorted by name, unique, not empty.
#[derive(Debug, Default, Clone, Hash)]
pub(super) struct LabelSet<'a> {
    pairs: Vec<(Rc<str>, Cow<'a, str>)>,
}

impl<'a> LabelSet<'a> {
    /// Makes labels of attributes, except the keys in `left_out`. If keys translate to one name,
    /// their values are joined in the order of the keys.
    pub(super) fn of_attributes(
        attributes: &[Attribute<'a>],
        left_out: &[&str],
        names: &mut LabelNames<'a>,
        limits: &Limits,
    ) -> Result<LabelSet<'a>, Refusal> {
        check_count(attributes.len(), limits)?;
        let kept = attributes.iter().filter(|attribute| !left_out.contains(&&*attribute.key));
        let mut sorted: Vec<_> = kept.collect();
        sorted.sort_by(|a, b| a.key.cmp(&b.key));
        let mut labels = LabelSet::default();
        for Attribute { key, value } in sorted {
            let name = names.of_attribute(key)?;
            let value = value_text(key, value, limits)?;
            match labels.position(&name) {
                Ok(_) if names.settings.allow_utf8 => {
                    let text = format!("label name {} is not unique", quoted(key));
                    return Err((RejectReason::DuplicateLabel, text));
                }
                Ok(at) => {
                    let joined = labels.pairs[at].1.to_mut();
                    joined.push(';');
                    joined.push_str(&value);
                    check_value_len(key, joined.len(), limits)?;
                }
                Err(at) if !value.is_empty() => labels.pairs.insert(at, (name, value)),
                Err(_) => {}
            }
        }
        Ok(labels)
    }

    /// Number of labels.
    pub(super) fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Returns the labels from an index on.
    #[inline]
    pub(super) fn pairs_from(&self, at: usize) -> impl Iterator<Item = (&str, &str)> {
        self.pairs[at..].iter().map(|(name, value)| (&**name, &**value))
    }

    /// Returns the value at an index.
    #[inline]
    pub(super) fn value(&self, at: usize) -> &str {
        &self.pairs[at].1
    }

    /// Changes the value at an index to another one, which is not empty.
    #[inline]
    pub(super) fn change(&mut self, at: usize, value: Cow<'a, str>) {
        self.pairs[at].1 = value;
    }

    /// Returns the index of a name, or the index at which to insert it.
    pub(super) fn position(&self, name: &str) -> Result<usize, usize> {
        // Names mostly come in order.
        match self.pairs.last() {
            Some((last, _)) if **last >= *name => {
                self.pairs.binary_search_by(|(known, _)| (**known).cmp(name))
            }
            _ => Err(self.pairs.len()),
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.position(name).is_ok()
    }

    /// Sets a label; an empty value removes it.
    pub(super) fn set(
        &mut self,
        name: Rc<str>,
        value: Cow<'a, str>,
        limits: &Limits,
    ) -> Result<(), Refusal> {
        match self.position(&name) {
            Ok(at) if value.is_empty() => drop(self.pairs.remove(at)),
            Ok(at) => self.pairs[at].1 = value,
            Err(_) if value.is_empty() => {}
            Err(at) => {
                self.pairs.insert(at, (name, value));
                check_count(self.pairs.len(), limits)?;
            }
        }
        Ok(())
    }

    /// Adds labels whose names are absent.
    pub(super) fn add(&mut self, others: &LabelSet<'a>, limits: &Limits) -> Result<(), Refusal> {
        for (name, value) in &others.pairs {
            if let Err(at) = self.position(name) {
                self.pairs.insert(at, (Rc::clone(name), value.clone()));
                check_count(self.pairs.len(), limits)?;
            }
        }
        Ok(())
    }

    /// Sets all labels of another set.
    pub(super) fn set_all(
        &mut self,
        others: &LabelSet<'a>,
        limits: &Limits,
    ) -> Result<(), Refusal> {
        for (name, value) in &others.pairs {
            self.set(Rc::clone(name), value.clone(), limits)?;
        }
        Ok(())
    }

    /// Appends the packed labels, with a metric name and an optional label, which replace others of
    /// these names.
    ///
    /// Errors: the text for the sender; the arena is unchanged.
    pub(super) fn pack(
        &self,
        metric: &str,
        more: Option<(&str, &str)>,
        limits: &Limits,
        arena: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let fits = limits.fits_label();
        let (start, mut count, mut too_long) = (arena.len(), 0, None);
        self.each_with(metric, more, |name, value| {
            count += 1;
            if fits(name, value) {
                push_packed(arena, name.as_bytes(), value.as_bytes());
            } else {
                too_long.get_or_insert((name.len(), value.len()));
            }
        });
        if metric.is_empty() || too_long.is_some() || count > limits.labels_per_series_max {
            arena.truncate(start);
            return Err(self.refusal(metric, more, too_long, count, limits));
        }
        Ok(())
    }

    /// Returns why labels are not packed: their number is `count`, and the lengths of the first
    /// label over a limit are `too_long`.
    #[cold]
    fn refusal(
        &self,
        metric: &str,
        more: Option<(&str, &str)>,
        too_long: Option<(usize, usize)>,
        count: usize,
        limits: &Limits,
    ) -> Refusal {
        let lengths = too_long.map(|(name, value)| check_lengths(name, value, limits));
        let (reason, text) = match lengths {
            _ if metric.is_empty() => {
                (RejectReason::InvalidLabels, "invalid metric name".to_owned())
            }
            Some(Err(text)) => (RejectReason::LabelLimit, text),
            _ => (RejectReason::LabelLimit, count_text(count, limits)),
        };
        let mut pairs = Vec::new();
        self.each_with(metric, more, |name, value| {
            pairs.push((name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        });
        let pairs = pairs.iter().map(|(name, value)| (&name[..], &value[..]));
        (reason, format!("{text} for series {}", series_text(pairs)))
    }

    /// Passes the labels in order, with those of `pack`.
    #[inline]
    fn each_with(
        &self,
        metric: &str,
        more: Option<(&str, &str)>,
        mut take: impl FnMut(&str, &str),
    ) {
        // The metric name comes before all labels that can be added.
        let mut added = [Some((METRIC_NAME, metric)), more].into_iter().flatten().peekable();
        for (name, value) in &self.pairs {
            let mut is_replaced = false;
            while let Some((other, other_value)) = added.next_if(|(other, _)| *other <= &**name) {
                take(other, other_value);
                is_replaced = *other == **name;
            }
            if !is_replaced {
                take(name, value);
            }
        }
        added.for_each(|(name, value)| take(name, value));
    }

    /// Approximate size of the packed labels, in bytes.
    pub(super) fn packed_bytes(&self) -> usize {
        self.pairs.iter().map(|(name, value)| name.len() + value.len() + 2).sum()
    }
}

/// Returns the value of an attribute as the value of a label.
pub(super) fn value_text<'a>(
    key: &str,
    value: &AnyValue<'a>,
    limits: &Limits,
) -> Result<Cow<'a, str>, Refusal> {
    let limit = text_bytes_max(limits.label_value_bytes_max);
    value::text(value, limit).map_err(|_| too_long(key, limit, limits))
}

/// Checks the length of the value of a label.
pub(super) fn check_value_len(key: &str, length: usize, limits: &Limits) -> Result<(), Refusal> {
    let limit = text_bytes_max(limits.label_value_bytes_max);
    if length <= limit { Ok(()) } else { Err(too_long(key, limit, limits)) }
}

#[cold]
fn too_long(key: &str, limit: usize, limits: &Limits) -> Refusal {
    let name = limits.names.label_value_bytes_max;
    let key = &key[..key.floor_char_boundary(256)];
    let key = quoted(key);
    let text =
        format!("label value of attribute {key} is over the limit of {limit} bytes ({name})");
    (RejectReason::LabelLimit, text)
}

fn check_count(count: usize, limits: &Limits) -> Result<(), Refusal> {
    if count <= limits.labels_per_series_max {
        return Ok(());
    }
    Err((RejectReason::LabelLimit, count_text(count, limits)))
}

#[cold]
fn count_text(count: usize, limits: &Limits) -> String {
    let (limit, name) = (limits.labels_per_series_max, limits.names.labels_per_series_max);
    format!("{count} labels are over the limit of {limit} ({name})")
}
