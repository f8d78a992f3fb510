//! `openapi.yaml`: what the API takes and gives, for programs.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};

use super::error::ApiError;
use super::json::text::push_text;
use super::params::Params;
use crate::flags::Args;
use crate::state::Shared;

/// The description, in version 3.1 of OpenAPI.
const DESCRIPTION: &str = include_str!("openapi.yaml");
const VERSION: &str = "openapi: 3.1.0\n";
const LATER_VERSION: &str = "openapi: 3.2.0\n";

/// `/api/v1/openapi.yaml`; nothing in it is told apart by version but the version.
///
/// Source: `ServeOpenAPI` of Prometheus.
pub(super) async fn describe(
    State(shared): State<Arc<Shared>>,
    params: Params,
) -> Result<Response, ApiError> {
    let version = match params.text("openapi_version")? {
        "3.2" | "3.2.0" => LATER_VERSION,
        _ => VERSION,
    };
    let rest = DESCRIPTION.strip_prefix(VERSION).unwrap_or(DESCRIPTION);
    let headers = [
        (CONTENT_TYPE, "application/yaml; charset=utf-8"),
        (CACHE_CONTROL, "no-cache, no-store, must-revalidate"),
    ];
    Ok((headers, format!("{version}{rest}{}", servers(&shared.args))).into_response())
}

/// The address that paths are relative to; without one, that of the description itself.
fn servers(args: &Args) -> String {
    let address = match args.external_url.as_str() {
        "" => args.route_prefix(),
        address => address,
    };
    if address.is_empty() {
        return String::new();
    }
    let mut quoted = Vec::new();
    push_text(&mut quoted, address);
    format!("servers:\n  - url: {}\n", String::from_utf8_lossy(&quoted))
}
