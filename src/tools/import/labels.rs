//! Labels that an import sets on every series: those of `--label`, and external labels in the
//! metadata that Thanos adds to a block.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use model::hash::xxh64;
use model::{Labels, LabelsBuilder, METRIC_NAME};

use crate::tools::ToolError;

/// Label of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelArg {
    name: String,
    value: String,
}

/// Parses `name=value`.
pub(super) fn parse_label(text: &str) -> Result<LabelArg, String> {
    let (name, value) = text.split_once('=').ok_or("must have the form name=value")?;
    match name {
        "" => Err("the label name is empty".to_owned()),
        METRIC_NAME => Err(format!("{METRIC_NAME} would give all series one metric name")),
        _ => Ok(LabelArg { name: name.to_owned(), value: value.to_owned() }),
    }
}

/// Labels that replace those of the same name; an empty value removes a label.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct AddedLabels(BTreeMap<String, String>);

impl AddedLabels {
    /// Returns the labels of the command line.
    ///
    /// Errors: a duplicate name.
    pub(super) fn of_args(args: &[LabelArg]) -> Result<AddedLabels, ToolError> {
        let mut labels = BTreeMap::new();
        for LabelArg { name, value } in args {
            match labels.entry(name.clone()) {
                Entry::Vacant(entry) => drop(entry.insert(value.clone())),
                Entry::Occupied(_) => {
                    return Err(ToolError::Usage(format!("--label sets {name} twice")));
                }
            }
        }
        Ok(AddedLabels(labels))
    }

    /// Returns external labels, overridden by these labels.
    pub(super) fn over(&self, external: &BTreeMap<String, String>) -> AddedLabels {
        let mut labels = external.clone();
        labels.extend(self.0.clone());
        AddedLabels(labels)
    }

    /// Returns a text that identifies these labels; `None` without any.
    pub(super) fn digest(&self) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let mut bytes = Vec::new();
        for text in self.0.iter().flat_map(|(name, value)| [name, value]) {
            bytes.extend_from_slice(&(text.len() as u64).to_be_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        Some(format!("{:016x}", xxh64(&bytes)))
    }

    /// Returns the labels of a series with these labels set.
    pub(super) fn set_on(&self, series: &Labels) -> Labels {
        if self.0.is_empty() {
            return series.clone();
        }
        let mut builder = LabelsBuilder::default();
        for (name, value) in series.iter() {
            builder.set(name, value);
        }
        for (name, value) in &self.0 {
            builder.set(name, value);
        }
        builder.build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(texts: &[&str]) -> Vec<LabelArg> {
        texts.iter().map(|text| parse_label(text).unwrap()).collect()
    }

    #[test]
    fn labels_of_the_command_line_replace_external_ones_and_those_of_series() {
        let external = BTreeMap::from([("cluster", "a"), ("replica", "0")]);
        let external = external.into_iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        let added = AddedLabels::of_args(&args(&["cluster=b=c", "replica="])).unwrap();
        let series = Labels::from_pairs([("__name__", "up"), ("cluster", "own"), ("job", "j")]);
        assert_eq!(
            AddedLabels::default().over(&external).set_on(&series).to_string(),
            r#"{__name__="up", cluster="a", job="j", replica="0"}"#
        );
        assert_eq!(
            added.over(&external).set_on(&series).to_string(),
            r#"{__name__="up", cluster="b=c", job="j"}"#
        );
        assert_ne!(added.digest(), AddedLabels::default().over(&external).digest());
        assert_eq!(AddedLabels::default().digest(), None);
    }

    #[test]
    fn labels_that_cannot_be_are_refused() {
        for text in ["a", "=b", "__name__=x"] {
            assert!(parse_label(text).is_err(), "{text}");
        }
        assert!(AddedLabels::of_args(&args(&["a=1", "a=2"])).is_err());
    }
}
