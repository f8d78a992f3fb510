//! `labels`, `label/<name>/values` and `series`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use json::pieces::ListPieces;
use model::{Matcher, MetadataQuery, SourceError, TimeRange};

use crate::http::body::answer;
use crate::http::error::ApiError;
use crate::http::params::{Params, unescape};
use crate::http::router::source_of;
use crate::query::Lookup;
use crate::state::Shared;
use crate::time::{MAX, MIN};

/// `/api/v1/labels`.
pub(crate) async fn names(
    State(shared): State<Arc<Shared>>,
    params: Params,
) -> Result<Response, ApiError> {
    let (query, limit) = parse_lookup(&shared, &params).await?;
    let lookup = shared.queries.begin_lookup(params.request()).await?;
    let mut names =
        in_time(&lookup, source_of(&shared, &params.client())?.label_names(&query, &lookup.budget))
            .await?;
    let warnings = truncate(&mut names, limit);
    Ok(answer(ListPieces::new(names), lookup, &warnings, &[]))
}

/// `/api/v1/label/<name>/values`.
pub(crate) async fn values(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    params: Params,
) -> Result<Response, ApiError> {
    let name = label_name(uri.path())?;
    let (query, limit) = parse_lookup(&shared, &params).await?;
    let lookup = shared.queries.begin_lookup(params.request()).await?;
    let source = source_of(&shared, &params.client())?;
    let mut values = in_time(&lookup, source.label_values(&name, &query, &lookup.budget)).await?;
    let warnings = truncate(&mut values, limit);
    Ok(answer(ListPieces::new(values), lookup, &warnings, &[]))
}

/// `/api/v1/series`.
pub(crate) async fn series(
    State(shared): State<Arc<Shared>>,
    params: Params,
) -> Result<Response, ApiError> {
    params.check()?;
    if !params.has("match[]") {
        return Err(ApiError::bad_data("no match[] parameter provided"));
    }
    let limit = params.limit()?;
    let times = times(&params)?;
    let selectors = selectors(&shared, &params)
        .await?
        .map_err(|error| ApiError::invalid_parameter("match[]", error))?;
    let query = MetadataQuery { selectors, times, limit: one_more(limit) };
    let lookup = shared.queries.begin_lookup(params.request()).await?;
    let mut series =
        in_time(&lookup, source_of(&shared, &params.client())?.series(&query, &lookup.budget))
            .await?;
    let warnings = truncate(&mut series, limit);
    Ok(answer(ListPieces::new(series), lookup, &warnings, &[]))
}

/// Bounds the waits of a lookup; its budget bounds its computation.
pub(crate) async fn in_time<T>(
    lookup: &Lookup,
    finding: impl Future<Output = Result<T, SourceError>>,
) -> Result<T, ApiError> {
    match tokio::time::timeout(lookup.timeout, finding).await {
        Ok(found) => Ok(found?),
        Err(_) => Err(ApiError::timed_out("series lookup")),
    }
}

/// Parses the query of a lookup, and its limit.
async fn parse_lookup(
    shared: &Shared,
    params: &Params,
) -> Result<(MetadataQuery, usize), ApiError> {
    let limit = params.limit()?;
    let times = times(params)?;
    let selectors = selectors(shared, params).await?.map_err(ApiError::bad_data)?;
    Ok((MetadataQuery { selectors, times, limit: one_more(limit) }, limit))
}

/// Parses the selectors of a request, or returns the error of the parser.
pub(crate) async fn selectors(
    shared: &Shared,
    params: &Params,
) -> Result<Result<Vec<Vec<Matcher>>, String>, ApiError> {
    let texts = params.selectors();
    if texts.is_empty() {
        return Ok(Ok(Vec::new()));
    }
    if texts.are_plain() {
        return Ok(texts.parse());
    }
    Ok(shared.queries.compute_blocking(move || texts.parse()).await?)
}

/// Parses the time range of a request.
pub(crate) fn times(params: &Params) -> Result<TimeRange, ApiError> {
    let start = params.time_or("start", MIN)?;
    let end = params.time_or("end", MAX)?;
    Ok(TimeRange::new(start.lookup_ms(), end.lookup_ms()))
}

/// Returns one more than the limit, to detect further results; 0 stays 0.
fn one_more(limit: usize) -> usize {
    if limit == 0 { 0 } else { limit.saturating_add(1) }
}

fn truncate<T>(items: &mut Vec<T>, limit: usize) -> Vec<String> {
    if limit == 0 || items.len() <= limit {
        return Vec::new();
    }
    items.truncate(limit);
    vec!["results truncated due to limit".to_owned()]
}

/// Parses the label name in `/api/v1/label/<name>/values`.
fn label_name(path: &str) -> Result<String, ApiError> {
    let encoded = path
        .strip_prefix("/api/v1/label/")
        .and_then(|rest| rest.strip_suffix("/values"))
        .unwrap_or_default();
    let invalid =
        |name: &[u8]| ApiError::bad_data(format!("invalid label name: {}", quoted_bytes(name)));
    let bytes = unescape(encoded.as_bytes(), false).map_err(ApiError::bad_data)?;
    let Ok(name) = String::from_utf8(bytes.clone()) else {
        return Err(invalid(&bytes));
    };
    let name = unescape_name(&name).unwrap_or(name);
    if name.is_empty() { Err(invalid(&[])) } else { Ok(name) }
}

/// Unescapes a name that starts with `U__`: `_hex_` is a character, `__` an underscore. Returns
/// `None` for other names.
///
/// Source: `UnescapeName` of Prometheus' common model.
fn unescape_name(name: &str) -> Option<String> {
    let mut rest = name.strip_prefix("U__")?;
    let mut unescaped = String::with_capacity(rest.len());
    while let Some(at) = rest.find('_') {
        unescaped.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('_') {
            unescaped.push('_');
            rest = after;
            continue;
        }
        let (digits, after) = rest.split_once('_')?;
        // Prometheus rejects a sixth digit, though the last characters need it.
        let is_code = (1..=5).contains(&digits.len());
        if !is_code || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        unescaped.push(char::from_u32(u32::from_str_radix(digits, 16).ok()?)?);
        rest = after;
    }
    unescaped.push_str(rest);
    Some(unescaped)
}

/// Returns bytes in Go's quotes, with invalid UTF-8 as `\x..`.
fn quoted_bytes(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        let valid = crate::units::quoted(chunk.valid());
        text.push_str(&valid[1..valid.len() - 1]);
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_labels_are_unescaped() {
        let cases = [
            ("job", Ok("job")),
            ("U__a_2e_b", Ok("a.b")),
            ("U____name__", Ok("_name_")),
            ("U__a_1F600_", Ok("a😀")),
            ("U__a_2e", Ok("U__a_2e")),
            ("U__a_zz_", Ok("U__a_zz_")),
            ("U__a_d800_", Ok("U__a_d800_")),
            ("U__a_", Ok("U__a_")),
            ("U__a_10ffff_", Ok("U__a_10ffff_")),
            ("a%2Eb", Ok("a.b")),
            ("a+b", Ok("a+b")),
            ("U__", Err("invalid label name: \"\"")),
            ("a%ff%22", Err("invalid label name: \"a\\xff\\\"\"")),
        ];
        for (escaped, expected) in cases {
            let name = label_name(&format!("/api/v1/label/{escaped}/values"));
            assert_eq!(name, expected.map(str::to_owned).map_err(ApiError::bad_data), "{escaped}");
        }
    }
}
