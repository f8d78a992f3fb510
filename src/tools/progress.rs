//! A bar that shows on a terminal how far a tool has come.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Bytes of a file.
    Bytes,
    /// Series.
    Series,
}

/// A bar on standard error, where that is a terminal.
pub(super) fn bar(unit: Unit, total: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    let counts = match unit {
        Unit::Bytes => "{bytes} of {total_bytes}",
        Unit::Series => "{pos} of {len} series",
    };
    let template = format!("{{msg}} [{{bar:30}}] {counts}, {{eta}} left");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(what.to_owned());
    bar
}
