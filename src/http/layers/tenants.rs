//! Tenants of HTTP requests, by the kind of endpoint.

use axum::extract::Request;
use axum::http::Method;
use axum::response::{IntoResponse, Response};

use crate::http::error::ApiError;
use crate::query::active::Client;
use crate::tenancy::{Scope, Tenancy, TenantError};

/// Tenants of the requests of an endpoint, if tenants are on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TenantRule {
    /// Required: the endpoint returns or changes data of tenants.
    Required,
    /// Refused: it describes or changes the whole server.
    Refused,
    /// Ignored: it knows no data.
    Ignored,
}

impl TenantRule {
    /// Adds the tenants of a request to its client, or returns the response that rejects it.
    pub(crate) fn admit(
        self,
        tenancy: Option<&Tenancy>,
        request: &mut Request,
    ) -> Option<Response> {
        let tenancy = tenancy?;
        match self {
            TenantRule::Ignored => return None,
            // Preflight requests have no headers of their own.
            TenantRule::Required if request.method() == Method::OPTIONS => return None,
            TenantRule::Required | TenantRule::Refused => {}
        }
        let error = match (self, tenancy.tenants(request.headers())) {
            (_, Err(error)) => ApiError::from(error),
            (TenantRule::Required, Ok(None)) => {
                ApiError::from(TenantError::Missing(tenancy.header().clone()))
            }
            (TenantRule::Required, Ok(Some(tenants))) => {
                let client: Client = request.extensions().get().cloned().unwrap_or_default();
                request.extensions_mut().insert(client.with_scope(Scope::Tenants(tenants)));
                return None;
            }
            (_, Ok(None)) => return None,
            (_, Ok(Some(tenants))) => {
                let path = request.uri().path();
                ApiError::forbidden(format!(
                    "{path} is for the operator of all tenants, and not for the tenant {tenants}"
                ))
            }
        };
        Some(error.into_response())
    }
}
