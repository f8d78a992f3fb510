//! Labels of consecutive data points.
//!
//! Data points of a scope mostly have the same attribute names, in the same order, and differ in a
//! few values. Then only these values are decoded and changed.

use std::borrow::Cow;

use super::labels::{LabelNames, LabelSet, Refusal, value_text};
use super::message::{Attribute, Point, Text};
use super::packed_labels::PackedLabels;
use super::protobuf::{EncodedAttributes, attribute, plain_attribute};
use super::resource::{ResourceLabels, ScopeLabels};
use crate::DecodeError;
use crate::decode_budget::DecodeBudget;
use crate::limits::Limits;

/// Labels of a resource and a scope, which all data points of the scope have.
#[derive(Clone, Copy)]
pub(super) struct CommonLabels<'c, 'a> {
    pub(super) resource: &'c ResourceLabels<'a>,
    pub(super) scope: &'c ScopeLabels<'a>,
}

/// Labels of the last data point, without the metric name.
#[derive(Default)]
pub(super) struct PointLabels<'a> {
    set: LabelSet<'a>,
    packed: PackedLabels,
    /// Attributes of the last data point; `None` if the next one cannot follow it.
    followed: Option<Vec<FollowedAttribute<'a>>>,
}

/// An attribute of the last data point.
struct FollowedAttribute<'a> {
    key: Text<'a>,
    /// Index of its label; `None` if a label of the resource or the scope has replaced it.
    label: Option<usize>,
    /// Its message, to skip an equal one; `None` until the first data point that follows.
    message: Option<&'a [u8]>,
}

impl<'a> PointLabels<'a> {
    /// Begins a scope, which has other common labels.
    pub(super) fn begin_scope(&mut self) {
        self.followed = None;
    }

    /// Size of the packed labels, in bytes.
    #[inline]
    pub(super) fn packed_bytes(&self) -> usize {
        self.packed.len(&self.set)
    }

    /// Appends the packed labels, as [`LabelSet::pack`] does.
    #[inline]
    pub(super) fn pack(
        &self,
        metric: &str,
        more: Option<(&str, &str)>,
        limits: &Limits,
        arena: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        self.packed.pack(&self.set, metric, more, limits, arena)
    }

    /// Sets the labels of a data point.
    ///
    /// Errors: the message is malformed; or the reason to reject the data point.
    pub(super) fn read(
        &mut self,
        point: &Point<'a>,
        common: CommonLabels<'_, 'a>,
        names: &mut LabelNames<'a>,
        limits: &Limits,
        budget: &mut DecodeBudget<'_>,
    ) -> Result<Result<(), Refusal>, DecodeError> {
        let built = match &point.encoded {
            None => self.build(&point.attributes, common, names, limits),
            Some(encoded) if self.follow(encoded, limits, budget)? => Ok(()),
            Some(encoded) => self.build(&encoded.decode(budget)?, common, names, limits),
        };
        if built.is_ok() {
            self.packed.complete(&self.set, limits);
        }
        Ok(built)
    }

    /// Changes the values to those of a data point with the same attribute names, in the same
    /// order. Returns false if it has others, or an empty value, which is no label.
    fn follow(
        &mut self,
        encoded: &EncodedAttributes<'a>,
        limits: &Limits,
        budget: &mut DecodeBudget<'_>,
    ) -> Result<bool, DecodeError> {
        let Some(followed) = &mut self.followed else { return Ok(false) };
        let mut rest = followed.iter_mut();
        let mut is_followed = true;
        encoded.each(|message| {
            let Some(last) = rest.next() else {
                is_followed = false;
                return Ok(false);
            };
            let bytes = message.rest();
            if last.message == Some(bytes) {
                return Ok(true);
            }
            let text = match plain_attribute(bytes) {
                Some([key, text]) if *key == *last.key.as_bytes() => {
                    std::str::from_utf8(text).ok().map(Cow::Borrowed)
                }
                _ => {
                    let Attribute { key, value } = attribute(message, 0, budget)?;
                    value_text(&key, &value, limits).ok().filter(|_| key == last.key)
                }
            };
            match text {
                Some(text) if !text.is_empty() => {
                    last.message = Some(bytes);
                    if let Some(at) = last.label {
                        self.packed.change(at, [self.set.value(at), &text]);
                        self.set.change(at, text);
                    }
                }
                _ => is_followed = false,
            }
            Ok(is_followed)
        })?;
        Ok(is_followed && rest.next().is_none())
    }

    /// Builds the labels from decoded attributes.
    fn build(
        &mut self,
        attributes: &[Attribute<'a>],
        common: CommonLabels<'_, 'a>,
        names: &mut LabelNames<'a>,
        limits: &Limits,
    ) -> Result<(), Refusal> {
        self.followed = None;
        self.packed.clear();
        let CommonLabels { resource, scope } = common;
        let left_out = [model::METRIC_NAME];
        self.set = LabelSet::of_attributes(attributes, &left_out, names, limits)?;
        // Otherwise two attributes are one label, or one has no label.
        let is_one_to_one = self.set.len() == attributes.len();
        resource.add_to(&mut self.set, limits)?;
        scope.set_in(&mut self.set, limits)?;
        if !is_one_to_one {
            return Ok(());
        }
        let mut followed = Vec::with_capacity(attributes.len());
        for Attribute { key, .. } in attributes {
            let name = names.of_attribute(key)?;
            let is_replaced = resource.sets(&name) || scope.sets(&name);
            let label = self.set.position(&name).ok().filter(|_| !is_replaced);
            followed.push(FollowedAttribute { key: key.clone(), label, message: None });
        }
        self.followed = Some(followed);
        Ok(())
    }
}
