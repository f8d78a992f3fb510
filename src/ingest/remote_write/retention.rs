//! Texts of rejections because of the retention.

use std::time::{Duration, UNIX_EPOCH};

use storage::{RetentionFloor, RetentionLimit};

use crate::time::format_rfc3339;
use crate::units::format_duration;

/// Names the retention floor that a sample is older than, and its setting.
pub(super) fn floor_text(timestamp_ms: i64, floor: &RetentionFloor) -> String {
    let (sample, floor_time) = (time_text(timestamp_ms), time_text(floor.floor_ms));
    let setting = match &floor.limit {
        RetentionLimit::Time(time_ms) => {
            format!("--storage.retention.time={}", duration_text(*time_ms))
        }
        RetentionLimit::Samples(time_ms) => format!(
            "samples: {} of storage.retention in the configuration file",
            duration_text(*time_ms)
        ),
        RetentionLimit::Rule(selector, time_ms) => format!(
            "rule {selector} with time {} of storage.retention in the configuration file",
            duration_text(*time_ms)
        ),
        RetentionLimit::Deleted => {
            "the days before were deleted or summarized, see --storage.retention.size, \
             --storage.retention.time and storage.retention in the configuration file"
                .to_owned()
        }
    };
    format!(": sample time {sample} is before the retention floor {floor_time} ({setting})")
}

fn duration_text(time_ms: i64) -> String {
    format_duration(Duration::from_millis(time_ms.max(0).unsigned_abs()))
}

fn time_text(time_ms: i64) -> String {
    let since = u64::try_from(time_ms).ok().map(Duration::from_millis);
    let time = since.and_then(|since| UNIX_EPOCH.checked_add(since));
    time.map_or_else(|| format!("{time_ms} ms"), format_rfc3339)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_names_the_sample_the_floor_and_the_setting() {
        let text = |limit| floor_text(1, &RetentionFloor { floor_ms: 86_400_000, limit });
        let times = ": sample time 1970-01-01T00:00:00.001Z is before the retention floor \
                     1970-01-02T00:00:00.000Z";
        let day_ms = 86_400_000;
        assert_eq!(
            text(RetentionLimit::Time(15 * day_ms)),
            format!("{times} (--storage.retention.time=15d)")
        );
        assert_eq!(
            text(RetentionLimit::Samples(30 * day_ms)),
            format!("{times} (samples: 30d of storage.retention in the configuration file)")
        );
        let rule = RetentionLimit::Rule("{a=\"b\"}".to_owned(), day_ms / 4);
        let setting = "rule {a=\"b\"} with time 6h of storage.retention in the configuration file";
        assert_eq!(text(rule), format!("{times} ({setting})"));
        assert!(text(RetentionLimit::Deleted).contains("--storage.retention.size"));
        let limit = RetentionLimit::Deleted;
        let before_epoch = floor_text(-1, &RetentionFloor { floor_ms: 0, limit });
        assert!(before_epoch.starts_with(": sample time -1 ms is before"), "{before_epoch}");
    }
}
