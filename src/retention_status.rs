//! Active retention, growth of the store, and the time at which its disk is full.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use storage::{DayStats, Store};
use tracing::info;

use crate::kernel::disk;
use crate::state::Shared;
use crate::time::format_rfc3339;
use crate::units::{format_bytes, format_duration};

const DAY_MS: i64 = 86_400_000;
/// Maximum number of complete days that the growth is estimated from.
const DAYS_MAX: i64 = 7;
/// Minimum number of complete days for an estimate.
const DAYS_MIN: i64 = 2;
/// Maximum number of days until the disk is full; later dates are not reported.
const FULL_WITHIN_DAYS: f64 = 36_500.0;
/// Text for a retention without limits.
pub(crate) const UNLIMITED: &str = "unlimited";

/// Growth of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Growth {
    pub(crate) bytes_per_day: u64,
    /// Complete days of the mean.
    pub(crate) days: i64,
}

impl Growth {
    /// Returns the mean size of recent complete days, from the first one with samples. Days without
    /// samples between them count, older days and today do not.
    ///
    /// Returns `None` for fewer than two such days.
    pub(crate) fn of(days: &[DayStats], now_ms: i64) -> Option<Growth> {
        let today_ms = now_ms.div_euclid(DAY_MS) * DAY_MS;
        let begin_ms = today_ms - DAYS_MAX * DAY_MS;
        let is_recent = |day: &&DayStats| day.start_ms >= begin_ms && day.end_ms <= today_ms;
        let recent: Vec<&DayStats> = days.iter().filter(is_recent).collect();
        let first_ms = recent.iter().map(|day| day.start_ms).min()?;
        let count = (today_ms - first_ms) / DAY_MS;
        if (recent.len() as i64) < DAYS_MIN {
            return None;
        }
        let bytes: u64 = recent.iter().map(|day| day.bytes).sum();
        Some(Growth { bytes_per_day: bytes / count.unsigned_abs().max(1), days: count })
    }

    /// Returns the time at which the free bytes are used, in ms since the epoch.
    ///
    /// Returns `None` for a store that does not grow, or that has room for a century.
    pub(crate) fn full_at_ms(self, free_bytes: u64, now_ms: i64) -> Option<i64> {
        let days = free_bytes as f64 / self.bytes_per_day as f64;
        (days <= FULL_WITHIN_DAYS).then(|| now_ms.saturating_add((days * DAY_MS as f64) as i64))
    }
}

/// Active retention, growth and free bytes.
#[derive(Debug)]
pub(crate) struct RetentionStatus {
    /// Limits of all samples in the form of Prometheus; `None` without any.
    pub(crate) limit: Option<String>,
    /// Time for which samples are kept, as `30d`, if summaries are kept for longer.
    pub(crate) samples: Option<String>,
    /// Number of rules for some series.
    pub(crate) rule_count: usize,
    pub(crate) growth: Option<Growth>,
    /// Free bytes of the disk; `None` for a store that is not on a local disk.
    pub(crate) free_bytes: Option<u64>,
    /// Time at which the disk is full without deletions.
    pub(crate) full_at_ms: Option<i64>,
}

/// Returns the free bytes of the store's disk; `None` for a store that is not on a local disk.
pub(crate) async fn free_bytes(shared: &Shared) -> Option<u64> {
    let folder = storage::local_folder(&shared.args.storage_url)?;
    // A network disk may block.
    tokio::task::spawn_blocking(move || disk::free_bytes(&folder).ok()).await.ok().flatten()
}

impl RetentionStatus {
    /// Returns the status at a time.
    pub(crate) async fn of(shared: &Shared, store: &Arc<Store>, now_ms: i64) -> RetentionStatus {
        let retention = &shared.config().storage.retention;
        RetentionStatus::new(
            retention.limit(&shared.args),
            retention.of_samples().map(format_duration),
            retention.rule_count(),
            Growth::of(&store.days(), now_ms),
            free_bytes(shared).await,
            now_ms,
        )
    }

    fn new(
        limit: Option<String>,
        samples: Option<String>,
        rule_count: usize,
        growth: Option<Growth>,
        free_bytes: Option<u64>,
        now_ms: i64,
    ) -> RetentionStatus {
        let full_at_ms = match (&limit, growth, free_bytes) {
            (None, Some(growth), Some(free_bytes)) => growth.full_at_ms(free_bytes, now_ms),
            _ => None,
        };
        RetentionStatus { limit, samples, rule_count, growth, free_bytes, full_at_ms }
    }

    /// Logs the status at the start of a server.
    pub(crate) fn log(&self) {
        let rules = self.rule_count;
        if let Some(samples) = &self.samples {
            info!(samples, "older samples are replaced by their summaries");
        }
        let kept = if self.samples.is_some() { "summaries" } else { "samples" };
        let Some(limit) = &self.limit else {
            info!(
                rules,
                growth_per_day = self.growth_text(),
                disk_free = self.free_text(),
                disk_full = self.full_text(),
                "retention is unlimited: {kept} are kept until --storage.retention.time or \
                 --storage.retention.size is set"
            );
            return;
        };
        info!(
            retention = limit,
            rules,
            growth_per_day = self.growth_text(),
            "retention is limited"
        );
    }

    fn growth_text(&self) -> String {
        match self.growth {
            Some(growth) => format_bytes(growth.bytes_per_day),
            None => format!("unknown, fewer than {DAYS_MIN} complete days in the last {DAYS_MAX}"),
        }
    }

    fn free_text(&self) -> String {
        self.free_bytes.map_or_else(|| "not a local disk".to_owned(), format_bytes)
    }

    fn full_text(&self) -> String {
        let since = self.full_at_ms.and_then(|ms| u64::try_from(ms).ok());
        match since.and_then(|ms| UNIX_EPOCH.checked_add(Duration::from_millis(ms))) {
            Some(time) => format_rfc3339(time).chars().take_while(|c| *c != 'T').collect(),
            None => "unknown".to_owned(),
        }
    }

    /// Encodes the status as JSON.
    pub(crate) fn json(&self) -> String {
        let limit = self.limit.as_ref().map(|limit| format!("\"{limit}\""));
        let samples = self.samples.as_ref().map(|samples| format!("\"{samples}\""));
        let growth = self.growth.map(|growth| growth.bytes_per_day);
        format!(
            "{{\"limit\":{},\"samples\":{},\"rules\":{},\"growthBytesPerDay\":{},\"growthDays\":{},\
             \"freeBytes\":{},\"fullTime\":{}}}",
            or_null(limit),
            or_null(samples),
            self.rule_count,
            or_null(growth),
            self.growth.map_or(0, |growth| growth.days),
            or_null(self.free_bytes),
            or_null(self.full_at_ms),
        )
    }
}

fn or_null(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "null".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 20_000 * DAY_MS + DAY_MS / 3;

    /// Days by their distance from today, and their bytes.
    fn days(days: &[(i64, u64)]) -> Vec<DayStats> {
        let day = |(ago, bytes): &(i64, u64)| {
            let start_ms = (20_000 - ago) * DAY_MS;
            DayStats { start_ms, end_ms: start_ms + DAY_MS, series: 1, bytes: *bytes }
        };
        days.iter().map(day).collect()
    }

    #[test]
    fn growth_is_the_mean_of_recent_complete_days() {
        let growth = |bytes_per_day, days| Some(Growth { bytes_per_day, days });
        let cases: [(&[(i64, u64)], _); 8] = [
            (&[], None),
            (&[(0, 900)], None),
            (&[(1, 100), (0, 900)], None),
            (&[(2, 100), (1, 300), (0, 900)], growth(200, 2)),
            // A day without samples counts.
            (&[(3, 300), (1, 300)], growth(200, 3)),
            // A backfill of old days, and samples from the future, do not.
            (&[(400, 1 << 40), (8, 1 << 40), (2, 10), (1, 10), (-9, 1 << 40)], growth(10, 2)),
            (&[(7, 70), (6, 0), (1, 0)], growth(10, 7)),
            (&[(400, 10), (399, 10)], None),
        ];
        for (given, expected) in cases {
            assert_eq!(Growth::of(&days(given), NOW_MS), expected, "{given:?}");
        }
    }

    #[test]
    fn a_disk_is_full_once_growth_has_used_its_free_bytes() {
        let full = |bytes_per_day, free_bytes| {
            let at_ms = Growth { bytes_per_day, days: 2 }.full_at_ms(free_bytes, NOW_MS);
            at_ms.map(|ms| (ms - NOW_MS) as f64 / DAY_MS as f64)
        };
        assert_eq!(full(100, 1000), Some(10.0));
        assert_eq!(full(100, 50), Some(0.5));
        assert_eq!(full(100, 0), Some(0.0));
        assert_eq!(full(0, 1000), None, "it does not grow");
        assert_eq!(full(0, 0), None);
        assert_eq!(full(1, u64::MAX), None);
    }

    #[test]
    fn a_date_is_told_only_where_nothing_limits_the_store_and_all_is_known() {
        let growth = Some(Growth { bytes_per_day: 1 << 20, days: 7 });
        let status = |limit: Option<&str>, growth, free_bytes| {
            RetentionStatus::new(
                limit.map(str::to_owned),
                Some("5d".to_owned()),
                2,
                growth,
                free_bytes,
                NOW_MS,
            )
        };
        let unlimited = status(None, growth, Some(30 << 20));
        assert_eq!(unlimited.full_text(), "2024-11-03");
        assert_eq!(unlimited.growth_text(), "1MiB");
        let full_ms = NOW_MS + 30 * DAY_MS;
        assert_eq!(
            unlimited.json(),
            format!(
                "{{\"limit\":null,\"samples\":\"5d\",\"rules\":2,\"growthBytesPerDay\":1048576,\"growthDays\":7,\
                 \"freeBytes\":31457280,\"fullTime\":{full_ms}}}"
            )
        );
        let limited = status(Some("15d or 10GB"), growth, Some(30 << 20));
        assert_eq!(limited.full_at_ms, None);
        assert!(
            limited
                .json()
                .starts_with("{\"limit\":\"15d or 10GB\",\"samples\":\"5d\",\"rules\":2,")
        );
        let young = status(None, None, Some(30 << 20));
        assert_eq!((young.full_at_ms, young.full_text()), (None, "unknown".to_owned()));
        assert!(young.growth_text().starts_with("unknown, fewer than 2 complete days"));
        let remote = status(None, growth, None);
        assert_eq!((remote.full_at_ms, remote.free_text()), (None, "not a local disk".to_owned()));
    }
}
