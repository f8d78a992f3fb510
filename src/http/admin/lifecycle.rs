//! `/-/ready`, `/-/healthy`, `/-/reload`, `/-/promote` and `/-/quit`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use storage::Store;

use crate::flags::Mode;
use crate::http::params::Params;
use crate::http::router::plain;
use crate::state::Shared;
use crate::units::format_duration;

/// `/-/ready`; until the server is ready, the layer around it responds.
///
/// A reader that lags, and a writer that rejects all writes, are not ready, but answer queries. A
/// writer that has lost its store stops. With `for=writes`, only a writer is ready.
pub(crate) async fn ready(State(shared): State<Arc<Shared>>, params: Params) -> Response {
    let is_for_writes = match params.text("for") {
        Ok("") => false,
        Ok("writes") => true,
        _ => return plain(StatusCode::BAD_REQUEST, "the parameter for can only be writes\n"),
    };
    if let Some(error) = shared.store().and_then(|store| store.lost()) {
        return plain(StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n"));
    }
    if let Some(reason) = shared.unwritable() {
        let message =
            format!("No writes are accepted: the store cannot be opened for writes: {reason}\n");
        return plain(StatusCode::SERVICE_UNAVAILABLE, message);
    }
    let is_reader = shared.args.mode == Mode::Reader;
    let may_refuse = |store: &Arc<Store>| is_for_writes || (!is_reader && store.is_writer());
    let store = shared.store().filter(may_refuse);
    if let Some(refusal) = store.and_then(|store| store.write_refusal()) {
        let message = format!("No writes are accepted: {refusal}\n");
        return plain(StatusCode::SERVICE_UNAVAILABLE, message);
    }
    let behind = shared.store().and_then(|store| store.behind());
    match behind.filter(|behind| !behind.keeps_up()) {
        None => "Tessella is Ready.\n".into_response(),
        Some(behind) => {
            let cause = behind.error.map(|error| format!(": {error}")).unwrap_or_default();
            let (seconds, lag) = (behind.behind.as_secs(), format_duration(behind.lag));
            let message = format!(
                "This reader is {seconds} s behind its store, more than --reader.lag={lag}{cause}\n"
            );
            plain(StatusCode::SERVICE_UNAVAILABLE, message)
        }
    }
}

/// `/-/healthy`.
pub(crate) async fn healthy() -> &'static str {
    "Tessella is Healthy.\n"
}

/// `/-/reload`.
pub(crate) async fn reload(State(shared): State<Arc<Shared>>, method: Method) -> Response {
    if let Some(refusal) = refusal(&shared, &method) {
        return refusal;
    }
    match shared.reload() {
        Ok(()) => StatusCode::OK.into_response(),
        Err(error) => {
            let message = format!("failed to reload config: {error}\n");
            plain(StatusCode::INTERNAL_SERVER_ERROR, message)
        }
    }
}

/// `/-/promote`: makes a standby the writer, even if another process is. Responds once it is.
pub(crate) async fn promote(State(shared): State<Arc<Shared>>, method: Method) -> Response {
    if let Some(refusal) = refusal(&shared, &method) {
        return refusal;
    }
    let promoted = match shared.store() {
        // Only once it accepts writes, not at the fence.
        Some(_) if shared.is_writer() => Ok(()),
        _ if shared.args.mode != Mode::Standby => {
            let text = "this server is not a standby (--mode=standby)\n";
            return plain(StatusCode::CONFLICT, text);
        }
        None => Err("the store is not open yet".to_owned()),
        // Before the command: a standby that cannot follow must not end a working writer.
        Some(store) => match store.catch_up().await {
            Ok(()) => shared.promotion.command(|| shared.is_writer()).await,
            Err(error) => Err(error.to_string()),
        },
    };
    match promoted {
        Ok(()) => "This server is the writer.\n".into_response(),
        Err(error) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("not promoted: {error}\n")),
    }
}

/// `/-/quit`.
pub(crate) async fn quit(State(shared): State<Arc<Shared>>, method: Method) -> Response {
    if let Some(refusal) = refusal(&shared, &method) {
        return refusal;
    }
    if shared.request_stop() {
        "Requesting termination... Goodbye!".into_response()
    } else {
        "Termination already in progress.".into_response()
    }
}

fn refusal(shared: &Shared, method: &Method) -> Option<Response> {
    if *method == Method::GET {
        let text = "Only POST or PUT requests allowed";
        return Some((StatusCode::METHOD_NOT_ALLOWED, text).into_response());
    }
    let text = "Lifecycle API is not enabled.";
    (!shared.args.enable_lifecycle).then(|| (StatusCode::FORBIDDEN, text).into_response())
}
