//! Progress bar of a tool on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Unit of progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Bytes of a file.
    Bytes,
    /// Series.
    Series,
}

/// Returns a bar on standard error, if that is a terminal.
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
