//! Labels of a resource and of a scope.

use std::borrow::Cow;
use std::rc::Rc;

use super::labels::{LabelNames, LabelSet, Refusal, check_value_len, value_text};
use super::message::{Attribute, ScopeMetrics};
use super::{Promoted, Settings};
use crate::limits::Limits;

/// Identifying attributes of a resource.
const SERVICE_NAME: &str = "service.name";
const SERVICE_NAMESPACE: &str = "service.namespace";
const SERVICE_INSTANCE: &str = "service.instance.id";

/// Labels of all series of a resource.
pub(super) struct ResourceLabels<'t> {
    promoted: LabelSet<'t>,
    /// `job` and `instance`, unless they are empty.
    target: Vec<(Rc<str>, Cow<'t, str>)>,
}

impl<'t> ResourceLabels<'t> {
    pub(super) fn of(
        attributes: &'t [Attribute<'t>],
        settings: &Settings,
        names: &mut LabelNames<'t>,
        limits: &Limits,
    ) -> Result<ResourceLabels<'t>, Refusal> {
        let mut promoted = LabelSet::default();
        for Attribute { key, value } in attributes {
            let is_promoted = match &settings.promoted {
                Promoted::Listed(listed) => listed.contains(&**key),
                Promoted::AllBut(ignored) => !ignored.contains(&**key),
            };
            if is_promoted {
                let name = names.label(key)?;
                promoted.set(name, value_text(key, value, limits)?, limits)?;
            }
        }
        let text = |name: &str| {
            let found = attributes.iter().find(|attribute| attribute.key == name);
            found.map(|found| value_text(name, &found.value, limits)).transpose()
        };
        let job = match (text(SERVICE_NAMESPACE)?, text(SERVICE_NAME)?) {
            (Some(namespace), Some(name)) => Cow::Owned(format!("{namespace}/{name}")),
            (None, Some(name)) => name,
            (_, None) => Cow::Borrowed(""),
        };
        let instance = text(SERVICE_INSTANCE)?.unwrap_or_default();
        // Each data point copies them.
        check_value_len(SERVICE_NAME, job.len(), limits)?;
        check_value_len(SERVICE_INSTANCE, instance.len(), limits)?;
        let target = [("job", job), ("instance", instance)].into_iter();
        let target = target.filter(|(_, value)| !value.is_empty());
        Ok(ResourceLabels { promoted, target: target.map(|(n, v)| (Rc::from(n), v)).collect() })
    }

    /// Adds promoted attributes to the labels of a data point, which take precedence, then `job`
    /// and `instance`.
    pub(super) fn add_to(&self, labels: &mut LabelSet<'t>, limits: &Limits) -> Result<(), Refusal> {
        labels.add(&self.promoted, limits)?;
        self.set_target(labels, limits)
    }

    fn set_target(&self, labels: &mut LabelSet<'t>, limits: &Limits) -> Result<(), Refusal> {
        self.target
            .iter()
            .try_for_each(|(name, value)| labels.set(Rc::clone(name), value.clone(), limits))
    }

    /// Returns whether a label of data points is replaced.
    pub(super) fn sets(&self, name: &str) -> bool {
        self.target.iter().any(|(target, _)| **target == *name)
    }

    /// Returns the labels of `target_info`; `None` without other attributes, or without `job` and
    /// `instance`.
    pub(super) fn target_info(
        &self,
        attributes: &'t [Attribute<'t>],
        settings: &Settings,
        names: &mut LabelNames<'t>,
        limits: &Limits,
    ) -> Result<Option<LabelSet<'t>>, Refusal> {
        let identifying = [SERVICE_NAMESPACE, SERVICE_NAME, SERVICE_INSTANCE];
        let named = identifying.iter().filter(|name| attributes.iter().any(|a| a.key == **name));
        if attributes.len() == named.count() {
            return Ok(None);
        }
        let left_out = if settings.keep_identifying { &[][..] } else { &identifying[..] };
        let mut labels = LabelSet::of_attributes(attributes, left_out, names, limits)?;
        self.set_target(&mut labels, limits)?;
        Ok(Some(labels).filter(|labels| labels.has("job") || labels.has("instance")))
    }
}

/// Labels of all series of a scope.
#[derive(Default)]
pub(super) struct ScopeLabels<'t> {
    attributes: LabelSet<'t>,
    /// Labels that are set even if empty, which removes those of the data point.
    fixed: Vec<(Rc<str>, &'t str)>,
}

impl<'t> ScopeLabels<'t> {
    pub(super) fn of(
        metrics: &'t ScopeMetrics<'t>,
        settings: &Settings,
        names: &LabelNames<'t>,
        limits: &Limits,
    ) -> Result<ScopeLabels<'t>, Refusal> {
        let ScopeMetrics { scope, schema_url, .. } = metrics;
        if !settings.promote_scope || scope.name.is_empty() {
            return Ok(ScopeLabels::default());
        }
        let mut attributes = LabelSet::default();
        for Attribute { key, value } in &scope.attributes {
            let name = names.scope_label(key)?;
            attributes.set(name, value_text(key, value, limits)?, limits)?;
        }
        let fixed = [
            ("otel_scope_name", &scope.name),
            ("otel_scope_version", &scope.version),
            ("otel_scope_schema_url", schema_url),
        ];
        let fixed = fixed.map(|(name, value)| (Rc::from(name), &**value));
        Ok(ScopeLabels { attributes, fixed: fixed.into() })
    }

    /// Returns whether a label of data points is replaced.
    pub(super) fn sets(&self, name: &str) -> bool {
        self.attributes.has(name) || self.fixed.iter().any(|(fixed, _)| **fixed == *name)
    }

    /// Sets the labels of the scope, which take precedence over those of a data point.
    pub(super) fn set_in(&self, labels: &mut LabelSet<'t>, limits: &Limits) -> Result<(), Refusal> {
        labels.set_all(&self.attributes, limits)?;
        for (name, value) in &self.fixed {
            labels.set(Rc::clone(name), Cow::Borrowed(value), limits)?;
        }
        Ok(())
    }
}

/// First and last timestamp of the data points of a resource, in ns.
#[derive(Debug, Clone, Copy)]
pub(super) struct PointTimes {
    pub(super) first_ns: i64,
    pub(super) last_ns: i64,
}

impl PointTimes {
    /// Adds a timestamp of at most 63 bits.
    pub(super) fn add(times: &mut Option<PointTimes>, time_ns: u64) {
        let time_ns = time_ns as i64;
        let PointTimes { first_ns, last_ns } =
            times.unwrap_or(PointTimes { first_ns: time_ns, last_ns: time_ns });
        *times =
            Some(PointTimes { first_ns: first_ns.min(time_ns), last_ns: last_ns.max(time_ns) });
    }
}
