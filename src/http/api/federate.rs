//! `/federate`: the newest sample of each selected series, for another server to scrape.
//!
//! Source: `web/federate.go` of Prometheus, and `Negotiate` in `expfmt/encode.go` of its common
//! library.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use model::{
    Advance, Budget, Labels, Matcher, SampleBatch, Selection, SeriesSet, Source, SourceError,
    TimeRange, is_stale,
};
use wire::exposition::{Escaping, ExposedValue, ExpositionEncoder, ExpositionFormat};

use crate::http::body::{whole, with_type};
use crate::http::error::ApiError;
use crate::http::params::Params;
use crate::http::router::external_source_of;
use crate::query::Lookup;
use crate::state::Shared;
use crate::time::Time;
use crate::units::millis;

const PROTOBUF: &str = "application/vnd.google.protobuf";
const FAMILY: &str = "io.prometheus.client.MetricFamily";

/// Approximate bytes of a sample without its labels.
const SAMPLE_BYTES: u64 = 128;

/// Newest sample of a series.
struct Newest {
    labels: Labels,
    time_ms: i64,
    value: ExposedValue,
}

/// `/federate`.
pub(crate) async fn federate(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    params: Params,
) -> Response {
    match answer(&shared, &headers, &params).await {
        Ok(response) => response,
        Err(error) => error.into_text(),
    }
}

async fn answer(
    shared: &Shared,
    headers: &HeaderMap,
    params: &Params,
) -> Result<Response, ApiError> {
    params.check()?;
    let texts = params.selectors();
    let selectors = shared.queries.compute_blocking(move || texts.parse_any()).await?;
    let selectors = selectors.map_err(ApiError::bad_data)?;
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let (format, escaping) = negotiate(accept.unwrap_or_default());
    let source = external_source_of(shared, &params.client())?;
    let end_ms = Time::now().lookup_ms();
    let start_ms = end_ms.saturating_sub(millis(shared.args.lookback_delta));
    let lookup = shared.queries.begin_lookup(params.request()).await?;
    let sets = find(&source, selectors, TimeRange::new(start_ms, end_ms), &lookup);
    let sets = match tokio::time::timeout(lookup.timeout, sets).await {
        Ok(sets) => sets?,
        Err(_) => return Err(ApiError::timed_out("series lookup")),
    };
    let budget = lookup.budget.clone();
    let encode = move || encode(&sets, end_ms, ExpositionEncoder::new(format, escaping), &budget);
    let body = shared.queries.compute_blocking(encode).await??;
    let content_type = match format {
        ExpositionFormat::Text => "text/plain; version=0.0.4; charset=utf-8".to_owned(),
        ExpositionFormat::Protobuf => protobuf_type("delimited"),
        ExpositionFormat::ProtobufText => protobuf_type("text"),
        ExpositionFormat::ProtobufCompactText => protobuf_type("compact-text"),
    };
    let content_type = format!("{content_type}; escaping={}", escaping.name());
    let content_type = HeaderValue::from_str(&content_type).expect("it is ASCII");
    Ok(with_type(whole(body, lookup), content_type))
}

fn protobuf_type(encoding: &str) -> String {
    format!("{PROTOBUF}; proto={FAMILY}; encoding={encoding}")
}

async fn find(
    source: &Arc<dyn Source>,
    selectors: Vec<Vec<Matcher>>,
    times: TimeRange,
    lookup: &Lookup,
) -> Result<Vec<Arc<dyn SeriesSet>>, SourceError> {
    let mut sets = Vec::new();
    // A selector without matchers selects nothing here.
    for matchers in selectors.into_iter().filter(|matchers| !matchers.is_empty()) {
        let selection = Selection { matchers, times, only_newest: true, windows: None };
        sets.push(source.select(&selection, &lookup.budget).await?);
    }
    Ok(sets)
}

fn encode(
    sets: &[Arc<dyn SeriesSet>],
    end_ms: i64,
    mut encoder: ExpositionEncoder,
    budget: &Budget,
) -> Result<Vec<u8>, SourceError> {
    let mut all = Vec::new();
    let mut batch = SampleBatch::new();
    for set in sets {
        for index in 0..set.len() {
            let found = newest(&**set, index, end_ms, budget, &mut batch)?;
            let Some((time_ms, value)) = found else { continue };
            let labels = set.labels(index).clone();
            // The line of the response; the series itself is charged already.
            budget.charge_memory(2 * labels.as_bytes().len() as u64 + SAMPLE_BYTES)?;
            all.push(Newest { labels, time_ms, value });
        }
    }
    all.sort_by(|a, b| {
        let names = a.labels.metric_name().cmp(b.labels.metric_name());
        names.then_with(|| a.labels.cmp(&b.labels))
    });
    // Several selectors may select a series.
    all.dedup_by(|a, b| a.labels == b.labels);
    let mut charged = 0;
    for sample in &all {
        encoder.push(&sample.labels, sample.time_ms, &sample.value);
        let bytes = encoder.bytes();
        if bytes - charged >= 64 << 10 {
            budget.check()?;
            budget.charge_memory((bytes - charged) as u64)?;
            charged = bytes;
        }
    }
    Ok(encoder.finish())
}

/// Returns the newest sample of a series; `None` for a staleness marker.
fn newest(
    set: &dyn SeriesSet,
    series_index: usize,
    end_ms: i64,
    budget: &Budget,
    batch: &mut SampleBatch,
) -> Result<Option<(i64, ExposedValue)>, SourceError> {
    let mut cursor = set.cursor(series_index);
    let mut newest = None;
    loop {
        batch.clear();
        let advance = cursor.next_batch(end_ms, batch)?;
        budget.check()?;
        budget.charge_samples(batch.sample_count() as u64)?;
        let (times, values) = batch.samples();
        if let (Some(time_ms), Some(value)) = (times.last(), values.last()) {
            newest = Some((*time_ms, ExposedValue::Float(*value)));
        }
        if let Some(sample) = batch.histograms.last()
            && times.last().is_none_or(|time_ms| *time_ms < sample.timestamp_ms)
        {
            let value = ExposedValue::Histogram(Box::new((*sample.histogram).clone()));
            newest = Some((sample.timestamp_ms, value));
        }
        if advance != Advance::Full {
            break;
        }
    }
    Ok(newest.filter(|(_, value)| match value {
        ExposedValue::Float(value) => !is_stale(*value),
        ExposedValue::Histogram(histogram) => !histogram.is_stale(),
    }))
}

/// Returns the first supported format that a client accepts; else the text format.
fn negotiate(accept: &str) -> (ExpositionFormat, Escaping) {
    let mut escaping = Escaping::Underscores;
    for clause in by_quality(accept) {
        let mut parts = clause.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let parameters: Vec<_> = parts
            .filter_map(|part| part.split_once('='))
            .map(|(name, value)| (name.trim(), value.trim().trim_matches('"')))
            .collect();
        let parameter = |name_wanted: &str| {
            let found = parameters.iter().find(|(name, _)| *name == name_wanted);
            found.map_or("", |(_, value)| value)
        };
        escaping = Escaping::from_name(parameter("escaping")).unwrap_or(escaping);
        match (kind, parameter("proto"), parameter("encoding"), parameter("version")) {
            (PROTOBUF, FAMILY, "delimited", _) => return (ExpositionFormat::Protobuf, escaping),
            (PROTOBUF, FAMILY, "text", _) => return (ExpositionFormat::ProtobufText, escaping),
            (PROTOBUF, FAMILY, "compact-text", _) => {
                return (ExpositionFormat::ProtobufCompactText, escaping);
            }
            ("text/plain", _, _, "" | "0.0.4") => return (ExpositionFormat::Text, escaping),
            _ => {}
        }
    }
    (ExpositionFormat::Text, escaping)
}

/// Returns the clauses of a header by descending quality, equal ones in order.
fn by_quality(accept: &str) -> Vec<&str> {
    let quality = |clause: &&str| {
        let q = clause.split(';').skip(1).find_map(|part| part.trim().strip_prefix("q="));
        q.map_or(1.0, |q| q.trim().parse::<f64>().unwrap_or(1.0))
    };
    let mut clauses: Vec<_> = accept.split(',').map(str::trim).filter(|c| !c.is_empty()).collect();
    clauses.sort_by(|a, b| quality(b).total_cmp(&quality(a)));
    clauses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_format_that_there_is_is_taken() {
        use ExpositionFormat::{Protobuf, ProtobufCompactText, ProtobufText, Text};
        let proto = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily";
        let delimited = format!("{proto};encoding=delimited");
        let cases = [
            (String::new(), (Text, Escaping::Underscores)),
            ("*/*".to_owned(), (Text, Escaping::Underscores)),
            (delimited.clone(), (Protobuf, Escaping::Underscores)),
            (format!("{proto};encoding=text"), (ProtobufText, Escaping::Underscores)),
            (
                format!("{proto};encoding=compact-text;escaping=dots"),
                (ProtobufCompactText, Escaping::Dots),
            ),
            (format!("{proto};encoding=other"), (Text, Escaping::Underscores)),
            (
                format!("{delimited};q=0.4, text/plain;version=0.0.4;q=0.5"),
                (Text, Escaping::Underscores),
            ),
            (
                format!("text/plain;version=1.0.0, {delimited};q=0.1"),
                (Protobuf, Escaping::Underscores),
            ),
            // Request of Prometheus 3.
            (
                format!(
                    "{delimited};q=0.6,application/openmetrics-text;version=1.0.0;\
                     escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
                ),
                (Protobuf, Escaping::Underscores),
            ),
            (
                "text/plain; version=1.0.0; escaping=dots;q=0.9, text/plain".to_owned(),
                (Text, Escaping::Underscores),
            ),
            ("text/plain;escaping=allow-utf-8".to_owned(), (Text, Escaping::AllowUtf8)),
            ("text/plain;escaping=values".to_owned(), (Text, Escaping::Values)),
            ("text/plain;escaping=other".to_owned(), (Text, Escaping::Underscores)),
        ];
        for (accept, expected) in cases {
            assert_eq!(negotiate(&accept), expected, "{accept}");
        }
    }
}
