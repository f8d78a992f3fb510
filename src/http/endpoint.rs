//! Endpoints: methods, and rules that are checked before a handler, as one layer.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter};

use super::layers::access::Readers;
use super::layers::tenants::TenantRule;
use super::router::plain;
use crate::state::{Readiness, Shared};

/// Header of rejected requests, `true` if the server is stopping.
const STOPPING: HeaderName = HeaderName::from_static("x-prometheus-stopping");
/// Prefix of all paths of the API.
const API: &str = "/api/v1";

/// Methods of an endpoint, and the requests that it admits.
#[derive(Clone, Copy)]
pub(super) struct Methods {
    filter: MethodFilter,
    /// Value of the header `Allow`.
    allow: &'static str,
    admission: Admission,
}

/// Clients that an endpoint admits.
#[derive(Clone, Copy)]
pub(super) struct Admission {
    /// Access of read-only users.
    readers: Readers,
    tenants: TenantRule,
}

impl Admission {
    /// Admits all clients.
    pub(super) const ALL: Admission =
        Admission { readers: Readers::All, tenants: TenantRule::Ignored };
}

const fn methods(filter: MethodFilter, allow: &'static str) -> Methods {
    let admission = Admission { readers: Readers::Safe, tenants: TenantRule::Required };
    Methods { filter, allow, admission }
}

impl Methods {
    /// Returns the methods of an endpoint for the operator of all tenants.
    pub(super) const fn of_operator(self) -> Methods {
        self.with_tenants(TenantRule::Refused)
    }

    /// Returns the methods of an endpoint without data.
    pub(super) const fn without_data(self) -> Methods {
        self.with_tenants(TenantRule::Ignored)
    }

    const fn with_tenants(self, tenants: TenantRule) -> Methods {
        Methods { admission: Admission { tenants, ..self.admission }, ..self }
    }

    const fn with_readers(self, readers: Readers) -> Methods {
        Methods { admission: Admission { readers, ..self.admission }, ..self }
    }
}

pub(super) const GET: Methods = methods(MethodFilter::GET, "GET, OPTIONS");
pub(super) const GET_HEAD: Methods = methods(MethodFilter::GET, "GET, HEAD, OPTIONS");
pub(super) const DELETE: Methods = methods(MethodFilter::DELETE, "DELETE, OPTIONS");
pub(super) const POST: Methods = methods(MethodFilter::POST, "OPTIONS, POST");
pub(super) const POST_PUT: Methods =
    methods(MethodFilter::POST.or(MethodFilter::PUT), "OPTIONS, POST, PUT");
pub(super) const GET_POST_PUT: Methods = methods(
    MethodFilter::GET.or(MethodFilter::POST).or(MethodFilter::PUT),
    "GET, OPTIONS, POST, PUT",
);
/// Endpoints that read, with parameters in the URL or in a form.
pub(super) const READ: Methods =
    methods(MethodFilter::GET.or(MethodFilter::POST), "GET, OPTIONS, POST")
        .with_readers(Readers::All);
/// Endpoints that read, with parameters in the body.
pub(super) const READ_POST: Methods = POST.with_readers(Readers::All);
/// Expensive endpoints that reveal internals.
pub(super) const INSPECT: Methods = READ.with_readers(Readers::None);

/// Properties of a group of endpoints.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndpointGroup {
    /// True if requests are rejected until the log is replayed, and while the server stops.
    pub(super) needs_data: bool,
    /// True if responses have CORS headers.
    pub(super) has_cors: bool,
}

/// Routes, and the group of those that are added next.
pub(super) struct Routes {
    router: Router<Arc<Shared>>,
    shared: Arc<Shared>,
    group: EndpointGroup,
}

impl Routes {
    /// Returns no routes; the first endpoints will be in `group`.
    pub(super) fn new(shared: &Arc<Shared>, group: EndpointGroup) -> Routes {
        Routes { router: Router::new(), shared: Arc::clone(shared), group }
    }

    /// Sets the group of the endpoints that are added next.
    pub(super) fn in_group(self, group: EndpointGroup) -> Routes {
        Routes { group, ..self }
    }

    /// Adds an endpoint whose requests pass its rules before its handlers.
    pub(super) fn route(
        self,
        path: &str,
        admission: Admission,
        handlers: MethodRouter<Arc<Shared>>,
    ) -> Routes {
        let Routes { router, shared, group } = self;
        let path_label = Arc::from(path);
        let rules =
            EndpointRules { path: path_label, admission, group, shared: Arc::clone(&shared) };
        let handlers = handlers.layer(from_fn_with_state(Arc::new(rules), answer));
        Routes { router: router.route(path, handlers), shared, group }
    }

    /// Returns the router of the routes.
    pub(super) fn into_router(self) -> Router<Arc<Shared>> {
        self.router
    }
}

/// Adds an endpoint that rejects other methods like Prometheus, where GET does not imply HEAD.
pub(super) fn add<H, T>(routes: Routes, path: &str, methods: Methods, handler: H) -> Routes
where
    H: Handler<T, Arc<Shared>>,
    T: 'static,
{
    let Methods { filter, allow, admission } = methods;
    let other = move |method: Method, uri: Uri| async move { other_method(&method, &uri, allow) };
    let mut handlers = MethodRouter::new().on(filter, handler).fallback(other);
    if allow.contains("GET") && !allow.contains("HEAD") {
        handlers = handlers.on(MethodFilter::HEAD, other);
    }
    routes.route(path, admission, handlers)
}

/// Returns the response to a method without a handler.
pub(super) fn other_method(method: &Method, uri: &Uri, allow: &'static str) -> Response {
    let mut response = match *method {
        Method::OPTIONS if uri.path().starts_with(API) => {
            return StatusCode::NO_CONTENT.into_response();
        }
        Method::OPTIONS => StatusCode::OK.into_response(),
        _ => plain(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n"),
    };
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

/// Rules of an endpoint.
struct EndpointRules {
    /// Path with placeholders, a label of metrics.
    path: Arc<str>,
    admission: Admission,
    group: EndpointGroup,
    shared: Arc<Shared>,
}

impl EndpointRules {
    /// Adds the tenants of a request to its client, or returns the response that rejects it.
    fn admit(&self, request: &mut Request) -> Option<Response> {
        let Admission { readers, tenants } = self.admission;
        let tenancy = self.shared.tenancy.as_ref();
        tenants.admit(tenancy, request).or_else(|| readers.refusal(request))
    }
}

/// Answers a request that passes the rules of its endpoint, and counts it.
async fn answer(
    State(rules): State<Arc<EndpointRules>>,
    mut request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let EndpointRules { path, group, shared, .. } = &*rules;
    let response = if group.needs_data
        && let Some(refusal) = unready(shared)
    {
        refusal
    } else {
        let origin = request.headers().get(header::ORIGIN).filter(|_| group.has_cors).cloned();
        let mut response = match rules.admit(&mut request) {
            Some(refusal) => refusal,
            None => next.run(request).await,
        };
        if group.has_cors {
            add_cors(shared, origin, response.headers_mut());
        }
        response
    };
    shared.metrics.request(path, response.status().as_u16(), started.elapsed());
    response
}

/// Returns the response that rejects requests for data, before the log is replayed and while the
/// server stops.
fn unready(shared: &Shared) -> Option<Response> {
    let stopping = match shared.readiness() {
        Readiness::Reading | Readiness::Ready => return None,
        Readiness::Starting => HeaderValue::from_static("false"),
        Readiness::Stopping => HeaderValue::from_static("true"),
    };
    let mut text = "Service Unavailable".to_owned();
    if let Some(reason) = shared.unwritable() {
        text.push_str(": the store cannot be opened for writes: ");
        text.push_str(&reason);
    }
    let mut response = (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    response.headers_mut().insert(STOPPING, stopping);
    Some(response)
}

/// Adds CORS headers for origins that the flag allows.
///
/// Source: `SetCORS` of Prometheus.
fn add_cors(shared: &Shared, origin: Option<HeaderValue>, headers: &mut HeaderMap) {
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    let Some(origin) = origin else { return };
    let fixed = [
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "Accept, Authorization, Content-Type, Origin"),
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, OPTIONS"),
        (header::ACCESS_CONTROL_EXPOSE_HEADERS, "Date"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if origin.to_str().is_ok_and(|origin| shared.args.cors_origin.is_match(origin)) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
}
