//! `openapi.yaml`: machine-readable description of the API.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use json::text::push_text;

use crate::flags::Args;
use crate::http::error::ApiError;
use crate::http::params::Params;
use crate::state::Shared;

/// Description in OpenAPI 3.1.
const DESCRIPTION: &str = include_str!("openapi.yaml");
const VERSION: &str = "openapi: 3.1.0\n";
const LATER_VERSION: &str = "openapi: 3.2.0\n";

/// `/api/v1/openapi.yaml`; versions of OpenAPI differ only in their number.
///
/// Source: `ServeOpenAPI` of Prometheus.
pub(crate) async fn describe(
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

/// Returns the base URL of paths; without one, that of the description.
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
