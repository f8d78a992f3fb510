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

use super::router::{not_found, other_method};
use crate::flags::Args;

/// Paths on the way in, and where browsers are sent.
struct Prefix {
    /// Precedes every path; has no slash at its end.
    prefix: String,
    /// The page as browsers reach it; absent where the page is served at the root, too.
    page: Option<HeaderValue>,
}

/// Puts all routes under the prefix, if there is one.
pub(super) fn with_prefix(routes: Router, args: &Args) -> Router {
    let page = Some(args.external_url.path()).filter(|path| !path.is_empty());
    let page = page.and_then(|path| HeaderValue::try_from(format!("{path}/query")).ok());
    let prefix = Prefix { prefix: args.route_prefix().to_owned(), page };
    if prefix.prefix.is_empty() && prefix.page.is_none() {
        return routes;
    }
    // Layers of a router run after it has chosen a route: one that has none gets the path first.
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

/// The address without the first bytes of its path.
fn without_prefix(uri: &Uri, bytes: usize) -> Option<Uri> {
    let mut parts = uri.clone().into_parts();
    let inner = parts.path_and_query.as_ref()?.as_str().get(bytes..)?;
    parts.path_and_query = Some(PathAndQuery::try_from(inner).ok()?);
    Uri::from_parts(parts).ok()
}

/// Sends a browser elsewhere.
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
