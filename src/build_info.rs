//! Version, revision and date of the build, from `build.rs`.

use std::sync::LazyLock;
use std::time::{Duration, UNIX_EPOCH};

use crate::time::format_rfc3339;

/// Version of the package.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Commit of the build; empty without a git repository.
pub const REVISION: &str = env!("TESSELLA_REVISION");

/// Seconds from the epoch to the build.
const BUILD_SECONDS: &str = env!("TESSELLA_BUILD_SECONDS");

/// Time of the build, such as `2026-01-31T12:00:00Z`.
pub static BUILD_DATE: LazyLock<String> = LazyLock::new(|| {
    let seconds = BUILD_SECONDS.parse().unwrap_or_default();
    let with_millis = format_rfc3339(UNIX_EPOCH + Duration::from_secs(seconds));
    format!("{}Z", with_millis.trim_end_matches(".000Z"))
});

/// Version, revision and date in one line, as `--version` prints them.
pub static LONG_VERSION: LazyLock<String> = LazyLock::new(|| {
    let revision = if REVISION.is_empty() { "unknown" } else { REVISION };
    format!("{VERSION} (revision {revision}, built {})", *BUILD_DATE)
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_long_version_has_version_revision_and_date() {
        assert!(LONG_VERSION.starts_with(VERSION), "{}", *LONG_VERSION);
        let is_revision = REVISION.len() >= 40 && REVISION.bytes().all(|b| b.is_ascii_hexdigit());
        assert!(REVISION.is_empty() || is_revision, "{REVISION}");
        let date = &*BUILD_DATE;
        assert!(date.len() == 20 && date.starts_with("20") && date.ends_with('Z'), "{date}");
        assert!(LONG_VERSION.ends_with(&format!("built {date})")), "{}", *LONG_VERSION);
    }
}
