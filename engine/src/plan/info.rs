//! The second argument of `info`: matchers of info series and of the labels to add.

use model::{Labels, METRIC_NAME, MatchOp, Matcher};

use crate::parse::ast::{Expr, ExprKind};

/// Default info metric.
const TARGET_INFO: &str = "target_info";

/// Selects info series, and the labels to add from them.
#[derive(Debug, Clone)]
pub struct InfoSelector {
    /// Matchers of the info metric's name.
    names: Vec<Matcher>,
    /// Matchers of other labels; if there are any, only these labels are added.
    labels: Vec<Matcher>,
}

impl InfoSelector {
    /// Reads the second argument of the call; the default is all labels of `target_info`.
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

    /// Returns the matchers of the info series to load.
    pub fn matchers(&self) -> Vec<Matcher> {
        self.labels.iter().chain(&self.names).cloned().collect()
    }

    /// Returns whether a series is one of the info series.
    pub(crate) fn is_info(&self, labels: &Labels) -> bool {
        self.names.iter().all(|matcher| matcher.matches(labels.metric_name()))
    }

    /// Returns whether the label is added.
    pub(crate) fn adds(&self, name: &str) -> bool {
        self.labels.is_empty() || self.labels.iter().any(|matcher| matcher.name() == name)
    }

    /// Returns whether series without info series stay in the result.
    pub(crate) fn allows_no_info(&self) -> bool {
        self.labels.iter().all(Matcher::matches_empty)
    }
}
