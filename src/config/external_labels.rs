//! `global.external_labels` of the configuration file.

use std::collections::BTreeMap;

use model::Labels;
use model::labels::quoted;
use serde::Deserialize;

use crate::external_labels::check_label;

/// Labels by name. A reload applies them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>")]
pub struct ConfiguredLabels(BTreeMap<String, String>);

impl TryFrom<BTreeMap<String, String>> for ConfiguredLabels {
    type Error = String;

    fn try_from(labels: BTreeMap<String, String>) -> Result<ConfiguredLabels, String> {
        for (name, value) in &labels {
            check_label(name, value)?;
        }
        Ok(ConfiguredLabels(labels))
    }
}

impl ConfiguredLabels {
    /// Returns the labels.
    pub(crate) fn to_labels(&self) -> Labels {
        Labels::from_pairs(&self.0)
    }

    /// Returns the section as YAML; empty without labels.
    pub(super) fn to_yaml(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let pairs = self.0.iter();
        let lines = pairs.map(|(name, value)| format!("    {}: {}\n", quoted(name), quoted(value)));
        format!("  external_labels:\n{}", lines.collect::<String>())
    }
}
