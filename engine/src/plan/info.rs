//! The second argument of `info`: which info series are loaded, and which of their labels added.

use model::{Labels, METRIC_NAME, MatchOp, Matcher};

use crate::parse::ast::{Expr, ExprKind};

/// The info metric where none is named.
const TARGET_INFO: &str = "target_info";

/// Which info series are asked for, and which of their labels are added.
#[derive(Debug, Clone)]
pub struct InfoSelector {
    /// Conditions on the info metric's name.
    names: Vec<Matcher>,
    /// Conditions on the labels to be added; where there are any, no other label is.
    labels: Vec<Matcher>,
}

impl InfoSelector {
    /// Reads the second argument of the call; without one, all labels of `target_info`.
    pub fn of(argument: Option<&Expr>) -> InfoSelector {
        let matchers = match argument.map(|expr| &expr.kind) {
            Some(ExprKind::Selector(selector)) => &selector.matchers[..],
            Some(ExprKind::Paren(inner)) => return InfoSelector::of(Some(inner)),
            _ => &[],
        };
        let (mut names, labels): (Vec<Matcher>, Vec<Matcher>) =
            matchers.iter().cloned().partition(|matcher| matcher.name() == METRIC_NAME);
        let is_positive = |m: &Matcher| matches!(m.op(), MatchOp::Equal | MatchOp::Regex);
        if names.is_empty() {
            names.push(Matcher::equal(METRIC_NAME, TARGET_INFO));
        } else if !names.iter().any(is_positive) {
            let any_info = Matcher::new(MatchOp::Regex, METRIC_NAME, ".+_info");
            names.insert(0, any_info.expect("a constant expression that is valid"));
        }
        InfoSelector { names, labels }
    }

    /// The conditions on the info series to be loaded.
    pub fn matchers(&self) -> Vec<Matcher> {
        self.labels.iter().chain(&self.names).cloned().collect()
    }

    /// Returns whether a series is one of the info series.
    pub(crate) fn is_info(&self, labels: &Labels) -> bool {
        self.names.iter().all(|matcher| matcher.matches(labels.metric_name()))
    }

    /// Returns whether a label is added.
    pub(crate) fn adds(&self, name: &str) -> bool {
        self.labels.is_empty() || self.labels.iter().any(|matcher| matcher.name() == name)
    }

    /// Returns whether a series without info series stays.
    pub(crate) fn allows_no_info(&self) -> bool {
        self.labels.iter().all(Matcher::matches_empty)
    }
}
