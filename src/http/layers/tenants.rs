//! Tenants of HTTP requests: reads their header, and admits them by the kind of endpoint.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::http::error::ApiError;
use crate::query::active::Client;
use crate::state::Shared;
use crate::tenancy::{Scope, TenantError, Tenants};

/// Tenants of a request, if tenants are on.
#[derive(Clone)]
struct Named(Result<Tenants, TenantError>);

/// Reads the header of a request, if tenants are on.
pub(crate) async fn read_header(
    State(shared): State<Arc<Shared>>,
    mut request: Request,
    next: Next,
) -> Response {
    if let Some(tenancy) = &shared.tenancy {
        let missing = || TenantError::Missing(tenancy.header().clone());
        let named = tenancy.tenants(request.headers());
        request.extensions_mut().insert(Named(named.and_then(|named| named.ok_or_else(missing))));
    }
    next.run(request).await
}

/// Admits requests that name their tenants, to endpoints that return data of tenants.
pub(crate) async fn only_tenants(mut request: Request, next: Next) -> Response {
    // Preflight requests have no headers of their own.
    if request.method() == Method::OPTIONS {
        return next.run(request).await;
    }
    match request.extensions_mut().remove() {
        None => next.run(request).await,
        Some(Named(Ok(tenants))) => {
            let client: Client = request.extensions().get().cloned().unwrap_or_default();
            request.extensions_mut().insert(client.with_scope(Scope::Tenants(tenants)));
            next.run(request).await
        }
        Some(Named(Err(error))) => ApiError::from(error).into_response(),
    }
}

/// Admits requests without a tenant, to endpoints that describe or change the whole server.
pub(crate) async fn only_operator(request: Request, next: Next) -> Response {
    match request.extensions().get() {
        None | Some(Named(Err(TenantError::Missing(_)))) => next.run(request).await,
        Some(Named(Err(error))) => ApiError::from(error.clone()).into_response(),
        Some(Named(Ok(tenants))) => {
            let path = request.uri().path();
            let message = format!(
                "{path} is for the operator of all tenants, and not for the tenant {tenants}"
            );
            ApiError::forbidden(message).into_response()
        }
    }
}
