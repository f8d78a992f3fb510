//! `features`: parts of Prometheus that exist here, and their state.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use engine::parse::ast::BinaryOp;
use json::pieces::Ready;
use json::text::push_text;
use model::MatchOp;

use crate::flags::Args;
use crate::http::body::success;
use crate::state::Shared;

type Category = BTreeMap<&'static str, bool>;

/// `/api/v1/features`: by category, in the order of their names.
///
/// Source: the calls of `features.Enable` and `features.Set` in Prometheus. The
/// categories rules, scraping, discovery and templates do not exist here.
pub(crate) async fn list(State(shared): State<Arc<Shared>>) -> Response {
    let mut json = vec![b'{'];
    for (position, (category, features)) in features(&shared.args).into_iter().enumerate() {
        if position > 0 {
            json.push(b',');
        }
        push_text(&mut json, category);
        json.push(b':');
        for (position, (name, is_on)) in features.into_iter().enumerate() {
            json.push(if position == 0 { b'{' } else { b',' });
            push_text(&mut json, name);
            json.extend_from_slice(format!(":{is_on}").as_bytes());
        }
        json.push(b'}');
    }
    json.push(b'}');
    success(Ready(json), &[], &[])
}

fn features(args: &Args) -> [(&'static str, Category); 7] {
    let api = [
        ("admin", args.enable_admin_api),
        ("exclude_alerts", true),
        ("label_values_match", true),
        ("lifecycle", args.enable_lifecycle),
        ("openapi_3.1", true),
        ("openapi_3.2", true),
        ("otlp_write_receiver", args.enable_otlp_receiver),
        ("query_stats", true),
        ("query_warnings", true),
        ("remote_write_receiver", true),
        ("search", true),
        ("search_fuzz_alg_jarowinkler", true),
        ("search_fuzz_alg_subsequence", true),
        ("time_range_labels", true),
        ("time_range_series", true),
    ];
    let otlp = [("delta_conversion", false), ("native_delta_ingestion", args.otlp_native_delta)];
    let server = [("agent_mode", false), ("auto_reload_config", false), ("server_mode", true)];
    let stable = [
        "at_modifier",
        "bool",
        "by",
        "duration_expr",
        "group_left",
        "group_right",
        "ignoring",
        "negative_offset",
        "offset",
        "on",
        "per_query_lookback_delta",
        "per_step_stats",
        "subqueries",
        "without",
    ];
    let experimental = ["anchored", "fill", "fill_left", "fill_right", "smoothed"];
    let mut language: Category = stable.into_iter().map(|name| (name, true)).collect();
    language.extend(experimental.map(|name| (name, args.experimental)));
    language.insert("delayed_name_removal", args.delayed_name_removal);
    language.insert("type_and_unit_labels", false);
    let functions = engine::catalog::all().iter();
    let functions = functions.map(|f| (f.name, args.experimental || !f.is_experimental)).collect();
    let storage = [
        ("exemplar_storage", args.exemplars_max > 0),
        ("isolation", true),
        ("native_histograms", true),
        ("st_storage", true),
    ];
    [
        ("api", api.into_iter().collect()),
        ("otlp_receiver", otlp.into_iter().collect()),
        ("prometheus", server.into_iter().collect()),
        ("promql", language),
        ("promql_functions", functions),
        ("promql_operators", operators(args)),
        ("tsdb", storage.into_iter().collect()),
    ]
}

/// Operators, aggregations, and the matchers that Prometheus lists with them.
fn operators(args: &Args) -> Category {
    let binary = BinaryOp::ALL.map(BinaryOp::as_str);
    let others = [MatchOp::Regex.as_str(), MatchOp::NotRegex.as_str(), "@"];
    let mut operators: Category = binary.into_iter().chain(others).map(|op| (op, true)).collect();
    for aggregation in engine::catalog::AGGREGATIONS {
        let is_stable = !matches!(aggregation.name, "limitk" | "limit_ratio");
        operators.insert(aggregation.name, is_stable || args.experimental);
    }
    operators
}
