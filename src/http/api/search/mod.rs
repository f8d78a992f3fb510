//! `search/metric_names`, `search/label_names` and `search/label_values`: names that match terms,
//! in batches of one JSON line each, and a last line that states whether there are more.
//!
//! Source: `web/api/v1/search.go` of Prometheus. There the endpoints need the feature `search-api`.

mod score;

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderValue;
use axum::response::Response;
use json::number::push_number;
use json::pieces::Pieces;
use json::text::push_text;
use model::{BudgetError, METRIC_NAME, MetadataQuery, SmolStr, Source, SourceError, TimeRange};

use super::labels::{in_time, selectors};
use crate::http::body::{streamed, with_type};
use crate::http::error::ApiError;
use crate::http::params::{Params, parse_bool, parse_integer};
use crate::http::router::source_of;
use crate::query::LookupRequest;
use crate::state::Shared;
use crate::time::Time;
use crate::units::quoted;
use score::{Algorithm, Search};

/// Default number of names in a response, and in a batch.
const NAMES: usize = 100;
/// Maximum number of terms in a request.
const TERMS_MAX: usize = 32;
/// Maximum length of a term, in bytes: that of a label value.
const TERM_BYTES_MAX: usize = 4096;
/// Default time range before now, in seconds.
const LOOK_BACK_SECONDS: i64 = 3600;

/// Search endpoint.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Endpoint {
    MetricNames,
    LabelNames,
    LabelValues,
}

impl Endpoint {
    /// Name in paths and errors.
    fn name(self) -> &'static str {
        match self {
            Endpoint::MetricNames => "metric_names",
            Endpoint::LabelNames => "label_names",
            Endpoint::LabelValues => "label_values",
        }
    }
}

/// Kind of names that are searched.
#[derive(Clone, Copy)]
enum SearchedNames<'a> {
    MetricNames,
    LabelNames,
    LabelValues(&'a str),
}

impl SearchedNames<'_> {
    /// Key of a name in the response.
    fn key(self) -> &'static str {
        match self {
            SearchedNames::MetricNames | SearchedNames::LabelNames => "name",
            SearchedNames::LabelValues(_) => "value",
        }
    }
}

/// Order of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Ascending,
    Descending,
    /// By descending score, equal ones ascending.
    Score,
}

/// Parameters of all three endpoints.
struct SearchParams {
    request: LookupRequest,
    query: MetadataQuery,
    search: Option<Search>,
    order: Order,
    has_scores: bool,
    limit: usize,
    batch_len: usize,
}

/// Matching name.
struct ScoredName {
    name: SmolStr,
    score: f64,
}

/// `/api/v1/search/…`.
pub(crate) async fn answer(
    endpoint: Endpoint,
    State(shared): State<Arc<Shared>>,
    params: Params,
) -> Result<Response, ApiError> {
    let search_params = parse_search_params(&shared, &params, endpoint.name()).await?;
    let (searched, described) = match endpoint {
        Endpoint::MetricNames => {
            let described = boolean(&params, "include_metadata", false)?;
            let source = described.then(|| source_of(&shared, &params.client())).transpose()?;
            (SearchedNames::MetricNames, source)
        }
        Endpoint::LabelNames => (SearchedNames::LabelNames, None),
        Endpoint::LabelValues => match params.text("label")? {
            "" => return Err(ApiError::bad_data("missing required parameter \"label\"")),
            label => (SearchedNames::LabelValues(label), None),
        },
    };
    search(&shared, search_params, searched, described).await
}

/// Parses the common parameters in Prometheus' order.
async fn parse_search_params(
    shared: &Shared,
    params: &Params,
    endpoint: &str,
) -> Result<SearchParams, ApiError> {
    params.check()?;
    let now = Time::now();
    let start_ms = time(params, "start", now.seconds_before(LOOK_BACK_SECONDS))?.lookup_ms();
    let end_ms = time(params, "end", now)?.lookup_ms();
    if end_ms < start_ms {
        return Err(ApiError::bad_data("end timestamp must not be before start timestamp"));
    }
    let selectors = selectors(shared, params).await?.map_err(ApiError::bad_data)?;
    let terms = terms(params)?;
    let threshold = threshold(params)?;
    let algorithm = match params.text("fuzz_alg")? {
        "" | "subsequence" => Algorithm::Subsequence,
        "jarowinkler" => Algorithm::JaroWinkler,
        other => {
            let other = quoted(other);
            return Err(ApiError::bad_data(format!(
                "unsupported fuzz_alg {other}: must be one of [subsequence jarowinkler]"
            )));
        }
    };
    let is_case_sensitive = boolean(params, "case_sensitive", true)?;
    let has_scores = boolean(params, "include_score", false)?;
    let order = order(params, terms.is_empty(), endpoint)?;
    let (limit, batch_len) = limits(params, shared.args.search_limit_max as usize)?;
    let search = Search::new(&terms, algorithm, threshold, is_case_sensitive);
    // Sources sort ascending, so a limit applies to the source, with one more to detect a rest.
    let is_first_ones = search.is_none() && order != Order::Descending;
    let query_limit = if is_first_ones { limit.saturating_add(1) } else { 0 };
    let query =
        MetadataQuery { selectors, times: TimeRange::new(start_ms, end_ms), limit: query_limit };
    Ok(SearchParams {
        request: params.request(),
        query,
        search,
        order,
        has_scores,
        limit,
        batch_len,
    })
}

fn time(params: &Params, name: &str, default: Time) -> Result<Time, ApiError> {
    match params.text(name)? {
        "" => Ok(default),
        text => Time::parse(text).map_err(|error| {
            ApiError::bad_data(format!("invalid time value for '{name}': {error}"))
        }),
    }
}

fn terms(params: &Params) -> Result<Vec<&str>, ApiError> {
    let terms = params.texts("search[]")?;
    if terms.len() > TERMS_MAX {
        let count = terms.len();
        return Err(ApiError::bad_data(format!(
            "too many search[] terms: got {count}, maximum is {TERMS_MAX}"
        )));
    }
    if let Some(term) = terms.iter().find(|term| term.len() > TERM_BYTES_MAX) {
        let bytes = term.len();
        return Err(ApiError::bad_data(format!(
            "search[] term has {bytes} bytes, the limit is {TERM_BYTES_MAX}"
        )));
    }
    Ok(terms)
}

fn threshold(params: &Params) -> Result<f64, ApiError> {
    match params.text("fuzz_threshold")? {
        "" => Ok(0.0),
        text => match parse_integer(text) {
            Ok(percent @ 0..=100) => Ok(percent as f64 / 100.0),
            _ => {
                let text = quoted(text);
                Err(ApiError::bad_data(format!("invalid fuzz_threshold {text}: must be 0-100")))
            }
        },
    }
}

fn order(params: &Params, has_no_terms: bool, endpoint: &str) -> Result<Order, ApiError> {
    let (by, direction) = (params.text("sort_by")?, params.text("sort_dir")?);
    let error = |text: String| Err(ApiError::bad_data(text));
    if !direction.is_empty() && by.is_empty() {
        return error("sort_dir is only valid when sort_by is set".to_owned());
    }
    if !direction.is_empty() && by == "score" {
        return error("sort_dir is not supported for sort_by=score".to_owned());
    }
    if !matches!(direction, "" | "asc" | "dsc") {
        let direction = quoted(direction);
        return error(format!("invalid sort_dir {direction}: must be \"asc\" or \"dsc\""));
    }
    match by {
        "score" if has_no_terms => error("sort_by=score requires search[] to be set".to_owned()),
        "score" => Ok(Order::Score),
        "" | "alpha" if direction == "dsc" => Ok(Order::Descending),
        "" | "alpha" => Ok(Order::Ascending),
        _ => {
            let by = quoted(by);
            error(format!("invalid sort_by {by} for {endpoint}: must be \"alpha\" or \"score\""))
        }
    }
}

/// Returns the maximum number of names, in all and in a batch.
fn limits(params: &Params, limit_max: usize) -> Result<(usize, usize), ApiError> {
    let positive = |name: &str| match params.text(name)? {
        "" => Ok(None),
        text => match parse_integer(text).map(usize::try_from) {
            Ok(Ok(number)) if number > 0 => Ok(Some(number)),
            _ => {
                let text = quoted(text);
                Err(ApiError::bad_data(format!(
                    "invalid {name} {text}: must be a positive integer"
                )))
            }
        },
    };
    let limit_max = if limit_max == 0 { usize::MAX } else { limit_max };
    let limit = positive("limit")?.unwrap_or(NAMES.min(limit_max));
    if limit > limit_max {
        return Err(ApiError::bad_data(format!(
            "limit {limit} exceeds the configured maximum ({limit_max}, see --web.search.max-limit)"
        )));
    }
    Ok((limit, positive("batch_size")?.unwrap_or(NAMES)))
}

/// Parses a Boolean parameter like Go.
fn boolean(params: &Params, name: &str, default: bool) -> Result<bool, ApiError> {
    match params.text(name)? {
        "" => Ok(default),
        text => parse_bool(text).map_err(|_| {
            let text = quoted(text);
            ApiError::bad_data(format!("invalid {name} {text}: must be boolean"))
        }),
    }
}

async fn search(
    shared: &Shared,
    search_params: SearchParams,
    searched: SearchedNames<'_>,
    described: Option<Arc<dyn Source>>,
) -> Result<Response, ApiError> {
    let SearchParams { request, query, search, order, has_scores, limit, batch_len } =
        search_params;
    let source = source_of(shared, &request.client)?;
    let lookup = shared.queries.begin_lookup(request).await?;
    let values = |label| source.label_values(label, &query, &lookup.budget);
    let names = match searched {
        SearchedNames::LabelNames => {
            in_time(&lookup, source.label_names(&query, &lookup.budget)).await?
        }
        SearchedNames::MetricNames => in_time(&lookup, values(METRIC_NAME)).await?,
        SearchedNames::LabelValues(label) => in_time(&lookup, values(label)).await?,
    };
    let budget = lookup.budget.clone();
    let find_matches = move || {
        let mut matches = Vec::new();
        for name in names {
            let score = match &search {
                Some(search) => {
                    budget.check()?;
                    search.score(&name)
                }
                None => Some(1.0),
            };
            matches.extend(score.map(|score| ScoredName { name, score }));
        }
        match order {
            Order::Ascending => {}
            Order::Descending => matches.reverse(),
            Order::Score => {
                matches
                    .sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.name.cmp(&b.name)));
            }
        }
        let has_more = matches.len() > limit;
        matches.truncate(limit);
        Ok::<_, BudgetError>((matches, has_more))
    };
    let matching = shared.queries.compute_blocking(find_matches).await?;
    let (matches, has_more) = matching.map_err(|error| ApiError::from(SourceError::from(error)))?;
    let key = searched.key();
    let matches = matches.into_iter();
    let lines = Lines { matches, key, has_scores, described, batch_len, has_more, in_batch: 0 };
    let response = streamed(Vec::new(), lines, Vec::new(), lookup);
    Ok(with_type(response, HeaderValue::from_static("application/x-ndjson; charset=utf-8")))
}

/// Lines of a response.
struct Lines {
    matches: std::vec::IntoIter<ScoredName>,
    key: &'static str,
    has_scores: bool,
    /// Source of metadata, if requested.
    described: Option<Arc<dyn Source>>,
    batch_len: usize,
    has_more: bool,
    /// Names in the current line.
    in_batch: usize,
}

impl Pieces for Lines {
    fn bytes(&self) -> u64 {
        let bytes =
            |name_match: &ScoredName| (size_of::<ScoredName>() + name_match.name.len()) as u64;
        self.matches.as_slice().iter().map(bytes).sum()
    }

    fn push_next(&mut self, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(if self.in_batch == 0 { b"{\"results\":[" } else { b"," });
        if let Some(name_match) = self.matches.next() {
            self.push_match(out, &name_match);
            self.in_batch += 1;
        }
        let is_last = self.matches.len() == 0;
        if is_last || self.in_batch == self.batch_len {
            out.extend_from_slice(b"]}\n");
            self.in_batch = 0;
        }
        if is_last {
            let has_more = self.has_more;
            let line = format!("{{\"status\":\"success\",\"has_more\":{has_more}}}\n");
            out.extend_from_slice(line.as_bytes());
        }
        !is_last
    }
}

impl Lines {
    fn push_match(&self, out: &mut Vec<u8>, name_match: &ScoredName) {
        out.extend_from_slice(format!("{{\"{}\":", self.key).as_bytes());
        push_text(out, &name_match.name);
        if self.has_scores {
            out.extend_from_slice(b",\"score\":");
            push_number(out, name_match.score);
        }
        let known =
            self.described.as_ref().map(|source| source.metadata(Some(&name_match.name), 1));
        let known = known.as_ref().and_then(|answer| answer.found.first()?.entries.last());
        if let Some(known) = known {
            let fields =
                [("type", known.kind.as_str()), ("help", &known.help), ("unit", &known.unit)];
            for (name, text) in fields.into_iter().filter(|(_, text)| !text.is_empty()) {
                out.extend_from_slice(format!(",\"{name}\":").as_bytes());
                push_text(out, text);
            }
        }
        out.push(b'}');
    }
}
