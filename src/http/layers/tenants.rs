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
    /// Returns the response that rejects a request, or adds its tenants to its client.
    pub(crate) fn refusal(
        self,
        tenancy: Option<&Tenancy>,
        request: &mut Request,
    ) -> Option<Response> {
        let tenancy = tenancy?;
        let error = match (self, request.method()) {
            // Preflight requests have no headers of their own.
            (TenantRule::Ignored, _) | (TenantRule::Required, &Method::OPTIONS) => return None,
            (TenantRule::Required, _) => match tenancy.tenants(request.headers()) {
                Ok(Some(tenants)) => {
                    let client: Client = request.extensions().get().cloned().unwrap_or_default();
                    request.extensions_mut().insert(client.with_scope(Scope::Tenants(tenants)));
                    return None;
                }
                Ok(None) => ApiError::from(TenantError::Missing(tenancy.header().clone())),
                Err(error) => ApiError::from(error),
            },
            (TenantRule::Refused, _) => match tenancy.tenants(request.headers()) {
                Ok(None) => return None,
                Ok(Some(tenants)) => {
                    let path = request.uri().path();
                    ApiError::forbidden(format!(
                        "{path} is for the operator of all tenants, and not for the tenant {tenants}"
                    ))
                }
                Err(error) => ApiError::from(error),
            },
        };
        Some(error.into_response())
    }
}
