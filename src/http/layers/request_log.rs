//! Log line for each request, once its response is sent or dropped.
//!
//! Queries and headers may hold secrets, so only the path and the user agent are logged. The user is
//! logged after authentication; an unverified name may be anything.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tracing::info;

use crate::query::active::Client;

/// Maximum number of logged characters of a path or user agent.
const CHARS_MAX: usize = 512;

/// Logs a request once it is finished.
pub(crate) async fn log(request: Request, next: Next) -> Response {
    let user_agent = request.headers().get(header::USER_AGENT);
    let user_agent = String::from_utf8_lossy(user_agent.map_or(&[], |value| value.as_bytes()));
    let mut line = RequestLogLine {
        started: Instant::now(),
        method: request.method().clone(),
        path: request.uri().path().chars().take(CHARS_MAX).collect(),
        client: request.extensions().get().cloned().unwrap_or_default(),
        user_agent: user_agent.chars().take(CHARS_MAX).collect(),
        status: None,
        bytes: 0,
        is_complete: false,
    };
    let response = next.run(request).await;
    line.status = Some(response.status());
    let (head, body) = response.into_parts();
    line.is_complete = hyper::body::Body::is_end_stream(&body);
    Response::from_parts(head, Body::new(Watched { body, line }))
}

/// Log line of a request, written when it is dropped.
struct RequestLogLine {
    started: Instant,
    method: Method,
    path: String,
    client: Client,
    user_agent: String,
    status: Option<StatusCode>,
    bytes: u64,
    is_complete: bool,
}

impl Drop for RequestLogLine {
    fn drop(&mut self) {
        let client = self.client.to_string();
        info!(
            method = self.method.as_str(),
            path = self.path,
            // As for a canceled query: the client has closed the request.
            status = self.status.map_or(499, |status| status.as_u16()),
            bytes = self.bytes,
            seconds = self.started.elapsed().as_secs_f64(),
            client,
            user = self.client.user(),
            user_agent = self.user_agent,
            complete = self.is_complete,
            "request"
        );
    }
}

/// Body that counts its sent bytes.
struct Watched {
    body: Body,
    line: RequestLogLine,
}

impl hyper::body::Body for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                this.line.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                // The sender may not poll for a known end.
                this.line.is_complete = this.body.is_end_stream();
            }
            Poll::Ready(None) => this.line.is_complete = true,
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
