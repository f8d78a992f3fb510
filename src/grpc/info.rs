//! `thanos.info.Info` and `grpc.health.v1.Health`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;

use super::SERVICES;
use super::call::{Call, respond_with};
use super::node::check_ready;
use super::status::{Code, Status};
use crate::query::LookupRequest;
use crate::state::Shared;

/// `thanos.info.Info/Info`: external labels, and all times. A root cuts queries to the times of a
/// node, so a young node must not report the time of its first sample.
pub(super) async fn info(
    State(shared): State<Arc<Shared>>,
    call: Call,
) -> Result<Response, Status> {
    check_ready(&shared)?;
    let message = wire::thanos::info(&shared.external_labels());
    let request = LookupRequest { text: "thanos.info.Info/Info".to_owned(), client: call.client };
    Ok(respond_with(shared.queries.work(request), message))
}

/// Field 1 of a `HealthCheckResponse`.
const STATUS_KEY: u8 = 1 << 3;
const SERVING: u8 = 1;
const NOT_SERVING: u8 = 2;

/// `grpc.health.v1.Health/Check`, of the server or one of its services.
pub(super) async fn health(
    State(shared): State<Arc<Shared>>,
    call: Call,
) -> Result<Response, Status> {
    let service = wire::thanos::health_service(&call.message)?;
    if !service.is_empty() && !SERVICES.contains(&service.as_str()) {
        return Err(Status::new(Code::NotFound, format!("unknown service {service:?}")));
    }
    let status = if check_ready(&shared).is_ok() { SERVING } else { NOT_SERVING };
    let text = "grpc.health.v1.Health/Check".to_owned();
    let request = LookupRequest { text, client: call.client };
    Ok(respond_with(shared.queries.work(request), vec![STATUS_KEY, status]))
}
