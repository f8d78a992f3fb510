//! Router in process, over a scripted source.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use clap::Parser as _;
use model::Source;
use tower::ServiceExt as _;

mod admin;
mod admission;
mod api;
mod pages;
mod params;
mod prefix;
mod routes;
pub(crate) mod scripted_source;
mod sending;
mod status;
mod tenants;

use super::router::router;
use crate::config::Config;
use crate::flags::Args;
use crate::state::Shared;
use crate::web_config::ActiveWebConfig;
use scripted_source::ScriptedSource;

fn source() -> Arc<dyn Source> {
    Arc::new(ScriptedSource::default())
}

pub(crate) fn shared_with(args: &[&str]) -> Arc<Shared> {
    Shared::new(parse_args(args), Config::default(), ActiveWebConfig::default())
}

fn parse_args(args: &[&str]) -> Args {
    Args::try_parse_from(std::iter::once(&"tessella").chain(args)).unwrap()
}

fn ready(args: &[&str]) -> Router {
    let shared = shared_with(args);
    shared.set_ready(source());
    router(shared)
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

async fn send(router: &Router, request: Request<Body>) -> Answer {
    let response = router.clone().oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let text = String::from_utf8_lossy(&body).into_owned();
    Answer { status: head.status, headers: head.headers, text }
}

async fn ask(router: &Router, method: &str, path: &str) -> Answer {
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    send(router, request).await
}

async fn post_form(router: &Router, path: &str, form: &str) -> Answer {
    let request = Request::post(path)
        .header("content-type", "application/x-www-form-urlencoded; charset=utf-8")
        .body(Body::from(form.to_owned()))
        .unwrap();
    send(router, request).await
}

/// Checks status and body of requests, which are `GET` unless a method precedes the path.
async fn check(router: &Router, cases: &[(&str, u16, &str)]) {
    for (request, status, body) in cases {
        let (method, path) = request.split_once(' ').unwrap_or(("GET", request));
        let answer = ask(router, method, path).await;
        assert_eq!((answer.status.as_u16(), &answer.text[..]), (*status, *body), "{request}");
    }
}

fn scalar(time: &str, value: &str) -> String {
    format!(
        r#"{{"status":"success","data":{{"resultType":"scalar","result":[{time},"{value}"]}}}}"#
    )
}

fn error(error_type: &str, message: &str) -> String {
    format!(r#"{{"status":"error","errorType":"{error_type}","error":"{message}"}}"#)
}
