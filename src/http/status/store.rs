//! `status/tsdb` and `status/storage`: contents of the store.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use json::pieces::Ready;
use json::text::push_text;
use model::{SourceError, TimeRange};
use storage::{Cardinality, Counted, DayBlocks, DayStats, StoreStats};

use crate::http::api::labels::in_time;
use crate::http::body::success;
use crate::http::error::ApiError;
use crate::http::params::Params;
use crate::http::router::{store_of, tenant_matchers};
use crate::retention_status::RetentionStatus;
use crate::state::Shared;

/// Default number of entries of each list.
const LIMIT: usize = 10;
/// Maximum number of entries of each list.
const LIMIT_MAX: usize = 10_000;

/// `/api/v1/status/tsdb`: metrics, labels and values of the head with the most series.
///
/// Source: `serveTSDBStatus` of Prometheus.
pub(crate) async fn tsdb(
    State(shared): State<Arc<Shared>>,
    params: Params,
) -> Result<Response, ApiError> {
    let limit = limit(params.text("limit")?)?;
    let store = store_of(&shared)?;
    let lookup = shared.queries.begin_lookup(params.request()).await?;
    let matchers = tenant_matchers(&shared, &params.client())?;
    let budget = lookup.budget.clone();
    let counting = move || store.cardinality(&matchers, limit, &budget);
    let found = shared.queries.compute_blocking(counting).await?.map_err(SourceError::from)?;
    Ok(success(Ready(tsdb_json(&found)), &[], &[]))
}

/// Parses the maximum number of entries of each list.
pub(super) fn limit(text: &str) -> Result<usize, ApiError> {
    if text.is_empty() {
        return Ok(LIMIT);
    }
    match text.parse::<i64>().ok().and_then(|limit| usize::try_from(limit).ok()) {
        None | Some(0) => Err(ApiError::bad_data("limit must be a positive number")),
        Some(limit) if limit > LIMIT_MAX => {
            Err(ApiError::bad_data(format!("limit must not exceed {LIMIT_MAX}")))
        }
        Some(limit) => Ok(limit),
    }
}

fn tsdb_json(found: &Cardinality) -> Vec<u8> {
    // Without samples, Prometheus shows the initial values of its comparisons.
    let none = TimeRange::new(i64::MAX, i64::MIN);
    let TimeRange { start_ms: min_ms, end_ms: max_ms } = found.times_ms.unwrap_or(none);
    let mut json = format!(
        "{{\"headStats\":{{\"numSeries\":{},\"numLabelPairs\":{},\"chunkCount\":{},\
         \"minTime\":{min_ms},\"maxTime\":{max_ms}}}",
        found.series, found.label_pairs, found.chunks
    )
    .into_bytes();
    for (name, list) in [
        ("seriesCountByMetricName", &found.series_by_metric),
        ("labelValueCountByLabelName", &found.values_by_label),
        ("memoryInBytesByLabelName", &found.bytes_by_label),
        ("seriesCountByLabelValuePair", &found.series_by_pair),
    ] {
        json.extend_from_slice(format!(",\"{name}\":").as_bytes());
        push_counted(&mut json, list);
    }
    json.push(b'}');
    json
}

pub(super) fn push_counted(json: &mut Vec<u8>, list: &Counted) {
    json.push(b'[');
    for (position, (name, count)) in list.iter().enumerate() {
        let opening: &[u8] = if position == 0 { b"{\"name\":" } else { b",{\"name\":" };
        json.extend_from_slice(opening);
        push_text(json, name);
        json.extend_from_slice(format!(",\"value\":{count}}}").as_bytes());
    }
    json.push(b']');
}

/// `/api/v1/status/tsdb/blocks`: days with sealed samples stand for blocks.
///
/// Source: `serveTSDBBlocks` of Prometheus.
pub(crate) async fn blocks(State(shared): State<Arc<Shared>>) -> Result<Response, ApiError> {
    let mut json = b"{\"blocks\":[".to_vec();
    for (position, day) in store_of(&shared)?.days().iter().enumerate() {
        let (comma, id) = (if position > 0 { "," } else { "" }, block_id(day.start_ms));
        json.extend_from_slice(
            format!(
                "{comma}{{\"ulid\":\"{id}\",\"minTime\":{},\"maxTime\":{},\"stats\":{{\"numSeries\":{}}},\
                 \"compaction\":{{\"level\":1,\"sources\":[\"{id}\"]}},\"version\":1}}",
                day.start_ms, day.end_ms, day.series
            )
            .as_bytes(),
        );
    }
    json.extend_from_slice(b"]}");
    Ok(success(Ready(json), &[], &[]))
}

/// Returns the ULID of the start of a day without random bits, so that it is stable.
fn block_id(start_ms: i64) -> String {
    const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let digit =
        |position: u32| char::from(DIGITS[(start_ms.max(0) >> (5 * position) & 31) as usize]);
    (0..10).rev().map(digit).chain(std::iter::repeat_n('0', 16)).collect()
}

/// `/api/v1/status/storage`: figures of the store. Prometheus has no such endpoint.
pub(crate) async fn storage(State(shared): State<Arc<Shared>>) -> Result<Response, ApiError> {
    let store = store_of(&shared)?;
    let (stats, days) = (store.stats(), store.days());
    let retention = RetentionStatus::of(&shared, &store, store.now_ms()).await;
    let mut json = storage_json(&stats, &days);
    let role = if store.is_writer() { "writer" } else { shared.args.mode.name() };
    json.extend_from_slice(format!(",\"role\":\"{role}\"").as_bytes());
    json.extend_from_slice(format!(",\"retention\":{}", retention.json()).as_bytes());
    json.extend_from_slice(b",\"caches\":[");
    for (position, cache) in caches(&shared, &stats).iter().enumerate() {
        if position > 0 {
            json.push(b',');
        }
        json.extend_from_slice(cache.json().as_bytes());
    }
    json.extend_from_slice(b"]}");
    Ok(success(Ready(json), &[], &[]))
}

/// `/api/v1/status/days`: `limit`; the newest sealed days with their blocks. Prometheus has no such
/// endpoint.
pub(crate) async fn days(
    State(shared): State<Arc<Shared>>,
    params: Params,
) -> Result<Response, ApiError> {
    params.check()?;
    let limit = limit(params.text("limit")?)?;
    let store = store_of(&shared)?;
    let lookup = shared.queries.begin_lookup(params.request()).await?;
    let blocks = in_time(&lookup, store.day_blocks(limit, &lookup.budget)).await?;
    Ok(success(Ready(days_json(&store.days(), &blocks)), &[], &[]))
}

/// Encodes the days that have both figures: one may have been deleted in between.
fn days_json(days: &[DayStats], blocks: &[DayBlocks]) -> Vec<u8> {
    let mut json = format!("{{\"count\":{},\"days\":[", days.len());
    let mut comma = "";
    for of_day in blocks {
        let Ok(at) = days.binary_search_by_key(&of_day.start_ms, |day| day.start_ms) else {
            continue;
        };
        let day = &days[at];
        json.push_str(&format!(
            "{comma}{{\"start\":{},\"end\":{},\"series\":{},\"blocks\":{},\"blockBytes\":{},\
             \"blocksSummarized\":{},\"bytes\":{}}}",
            day.start_ms,
            day.end_ms,
            day.series,
            of_day.blocks,
            of_day.block_bytes,
            of_day.blocks_summarized,
            day.bytes
        ));
        comma = ",";
    }
    json.push_str("]}");
    json.into_bytes()
}

/// Encodes all but the end; times are in ms since the epoch.
fn storage_json(stats: &StoreStats, days: &[DayStats]) -> Vec<u8> {
    let newest = stats.newest_ms.map_or_else(|| "null".to_owned(), |ms| ms.to_string());
    let mut json = format!(
        "{{\"headSeries\":{},\"samplesAppended\":{},\"samplesRejected\":{},\"fileBytes\":{},\
         \"logBytes\":{},\"newestTime\":{newest},\"partitions\":[",
        stats.head_series,
        stats.samples_appended,
        stats.samples_rejected,
        stats.file_bytes,
        stats.log_bytes
    );
    for (position, day) in days.iter().enumerate() {
        let comma = if position > 0 { "," } else { "" };
        json.push_str(&format!(
            "{comma}{{\"start\":{},\"end\":{},\"series\":{},\"bytes\":{}}}",
            day.start_ms, day.end_ms, day.series, day.bytes
        ));
    }
    json.push(']');
    json.into_bytes()
}

/// Figures of a cache.
struct CacheFigures {
    name: &'static str,
    bytes: u64,
    bytes_max: u64,
    hits: u64,
    misses: u64,
}

impl CacheFigures {
    fn json(&self) -> String {
        let CacheFigures { name, bytes, bytes_max, hits, misses } = self;
        format!(
            "{{\"name\":\"{name}\",\"bytes\":{bytes},\"bytesMax\":{bytes_max},\
             \"hits\":{hits},\"misses\":{misses}}}"
        )
    }
}

fn caches(shared: &Shared, stats: &StoreStats) -> Vec<CacheFigures> {
    let args = &shared.args;
    let results = shared.queries.result_cache().map(|results| results.stats()).unwrap_or_default();
    let disk_bytes_max = args.disk_cache_folder.as_ref().map_or(0, |_| args.disk_cache_bytes_max);
    vec![
        CacheFigures {
            name: "answers",
            bytes: results.bytes,
            bytes_max: results.bytes_max,
            hits: results.hits + results.partial_hits,
            misses: results.misses,
        },
        CacheFigures {
            name: "decoded samples",
            bytes: stats.columns_bytes as u64,
            bytes_max: stats.columns_bytes_max as u64,
            hits: stats.columns_hits,
            misses: stats.columns_misses,
        },
        CacheFigures {
            name: "index",
            bytes: stats.index_cache_bytes as u64,
            bytes_max: stats.index_cache_bytes_max as u64,
            hits: stats.index_cache_hits,
            misses: stats.index_cache_misses,
        },
        CacheFigures {
            name: "lists of days",
            bytes: stats.kept_lists_bytes as u64,
            bytes_max: stats.kept_lists_bytes_max as u64,
            hits: stats.kept_lists_hits,
            misses: stats.kept_lists_misses,
        },
        CacheFigures {
            name: "blocks of files",
            bytes: stats.block_cache_bytes as u64,
            bytes_max: args.cache_bytes_max,
            hits: stats.block_cache_hits,
            misses: stats.block_cache_misses,
        },
        CacheFigures {
            name: "files on disk",
            bytes: stats.disk_cache_bytes,
            bytes_max: disk_bytes_max,
            hits: stats.disk_cache_hits,
            misses: stats.disk_cache_misses,
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_prometheus() {
        let positive = "limit must be a positive number";
        let cases = [
            ("", Ok(10)),
            ("1", Ok(1)),
            ("10000", Ok(10_000)),
            ("10001", Err("limit must not exceed 10000")),
            ("0", Err(positive)),
            ("-1", Err(positive)),
            ("x", Err(positive)),
            ("1.5", Err(positive)),
        ];
        for (text, expected) in cases {
            assert_eq!(limit(text), expected.map_err(ApiError::bad_data), "{text}");
        }
    }
}
