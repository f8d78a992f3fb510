//! Authentication and rate limit of all requests, including health, metrics and the page, as in
//! Prometheus.
//!
//! Source: `webHandler` of Prometheus' exporter toolkit: the rate, then headers, then users.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use crate::access::{Refusal, User};
use crate::http::router::plain;
use crate::listener::VerifiedClient;
use crate::metrics::DenialReason;
use crate::query::active::Client;
use crate::state::Shared;
use crate::web_config::WebConfig;

/// Admits requests that the web configuration allows.
pub(crate) async fn check_access(
    State(shared): State<Arc<Shared>>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(config) = shared.web.config() else {
        return next.run(request).await;
    };
    if config.rate.as_ref().is_some_and(|rate| !rate.takes(Instant::now())) {
        shared.metrics.count_denied(DenialReason::Rate);
        return plain(StatusCode::TOO_MANY_REQUESTS, "Too Many Requests\n");
    }
    let user = match request.extensions().get::<VerifiedClient>() {
        Some(VerifiedClient) => Ok(None),
        None => config.access.authenticate(request.headers(), shared.web.checks()).await,
    };
    let mut response = match user {
        Ok(None) => next.run(request).await,
        Ok(Some(user)) => {
            if let Some(client) = request.extensions().get::<Client>() {
                client.set_user(&user.name);
            }
            request.extensions_mut().insert(user);
            next.run(request).await
        }
        Err(refusal) => {
            shared.metrics.count_denied(match refusal {
                Refusal::Unauthenticated => DenialReason::Credentials,
                Refusal::Busy => DenialReason::Busy,
            });
            refused(refusal, &config)
        }
    };
    for (name, value) in &config.headers {
        if !response.headers().contains_key(name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response
}

fn refused(refusal: Refusal, config: &WebConfig) -> Response {
    match refusal {
        Refusal::Unauthenticated => {
            let mut response = plain(StatusCode::UNAUTHORIZED, "Unauthorized\n");
            for scheme in config.access.schemes() {
                let value = HeaderValue::from_static(scheme);
                response.headers_mut().append(header::WWW_AUTHENTICATE, value);
            }
            response
        }
        Refusal::Busy => {
            let message = "too many passwords wait to be checked\n";
            let mut response = plain(StatusCode::SERVICE_UNAVAILABLE, message);
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            response
        }
    }
}

/// Requests of an endpoint that read-only users may send.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Readers {
    /// All: the endpoint only reads, with any method, as parameters may come as a form.
    All,
    /// Requests with methods that change nothing.
    Safe,
    /// None.
    None,
}

impl Readers {
    /// Returns the response that rejects a request of a read-only user.
    pub(crate) fn refusal(self, request: &Request) -> Option<Response> {
        let is_safe = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        let is_admitted = match self {
            Readers::All => true,
            Readers::Safe => is_safe,
            Readers::None => false,
        };
        if is_admitted {
            return None;
        }
        let user = request.extensions().get::<User>().filter(|user| user.is_read_only)?;
        let message = format!("the user {:?} is read-only\n", user.name);
        Some(plain(StatusCode::FORBIDDEN, message))
    }
}
