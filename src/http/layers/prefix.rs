//! `--web.route-prefix`: all endpoints under a path.
//!
//! Source: `New` in `web/web.go` of Prometheus: `/` leads to the prefix, and the prefix to the page.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};

use crate::flags::Args;
use crate::http::endpoint::other_method;
use crate::http::router::not_found;

/// Prefix of requests, and target of redirects.
struct Prefix {
    /// Prefix of all paths, without a trailing slash.
    prefix: String,
    /// URL path of the page; `None` if the page is also served at the root.
    page: Option<HeaderValue>,
}

/// Moves all routes under the prefix, if there is one.
pub(crate) fn with_prefix(routes: Router, args: &Args) -> Router {
    let page = Some(args.external_url.path()).filter(|path| !path.is_empty());
    let page = page.and_then(|path| HeaderValue::try_from(format!("{path}/query")).ok());
    let prefix = Prefix { prefix: args.route_prefix().to_owned(), page };
    if prefix.prefix.is_empty() && prefix.page.is_none() {
        return routes;
    }
    // Layers run after the choice of a route, so a router without routes strips the path first.
    Router::new().fallback_service(routes).layer(from_fn_with_state(Arc::new(prefix), strip))
}

async fn strip(State(prefix): State<Arc<Prefix>>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let Some(inner) = path.strip_prefix(&prefix.prefix) else {
        return match path {
            "/" => redirect(request.method(), request.uri(), prefix.prefix.as_str(), false),
            _ => not_found().await,
        };
    };
    match inner {
        "" => {
            let slash = format!("{}/", prefix.prefix);
            return redirect(request.method(), request.uri(), &slash, true);
        }
        "/" if let Some(page) = &prefix.page => {
            let page = page.to_str().unwrap_or_default();
            return redirect(request.method(), request.uri(), page, false);
        }
        inner if !inner.starts_with('/') => return not_found().await,
        _ => {}
    }
    match without_prefix(request.uri(), prefix.prefix.len()) {
        Some(uri) => *request.uri_mut() = uri,
        None => return not_found().await,
    }
    next.run(request).await
}

/// Returns the URL without the first bytes of its path.
fn without_prefix(uri: &Uri, bytes: usize) -> Option<Uri> {
    let mut parts = uri.clone().into_parts();
    let inner = parts.path_and_query.as_ref()?.as_str().get(bytes..)?;
    parts.path_and_query = Some(PathAndQuery::try_from(inner).ok()?);
    Uri::from_parts(parts).ok()
}

/// Redirects a browser.
fn redirect(method: &Method, uri: &Uri, to: &str, is_permanent: bool) -> Response {
    if !matches!(*method, Method::GET) {
        return other_method(method, uri, "GET, OPTIONS");
    }
    let status = if is_permanent { StatusCode::MOVED_PERMANENTLY } else { StatusCode::FOUND };
    match HeaderValue::try_from(to) {
        Ok(to) => (status, [(header::LOCATION, to)]).into_response(),
        Err(_) => StatusCode::NOT_FOUND.into_response(),
    }
}
