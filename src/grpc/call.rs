//! Messages in HTTP/2: requests of one message, and responses of any number.
//!
//! ```text
//! compressed: 1 │ length: 4 BE │ message     in DATA frames, then grpc-status in trailers
//! ```
//!
//! The framing is written here and not taken from a library: responses pass through the outbox, which
//! accounts their memory and bounds their time, and bodies of writes through the receiver.
//!
//! Source: <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use futures::{Stream, StreamExt, stream};
use hyper::body::Frame;

use super::status::{CONTENT_TYPE, Code, Status, success};
use crate::http::error::ApiError;
use crate::query::QueryFailure;
use crate::query::active::Client;
use crate::query::sending::{Answered, IsLong, Sending, SentBody};
use crate::state::Shared;

/// Size of the prefix of a message, in bytes.
pub(super) const PREFIX_BYTES: usize = 5;
/// Maximum time for a request to arrive, or for the start of a write: meanwhile it has a slot.
pub(super) const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a request, in bytes. A query comes with its plan.
const REQUEST_BYTES_MAX: usize = 4 << 20;
/// Maximum size of a response that is not streamed, in bytes.
const SMALL_BYTES_MAX: usize = 64 << 10;

/// Request of one message.
pub(super) struct Call {
    pub(super) message: Bytes,
    pub(super) client: Client,
}

impl FromRequest<Arc<Shared>> for Call {
    type Rejection = Status;

    async fn from_request(request: Request, shared: &Arc<Shared>) -> Result<Call, Status> {
        let client = client_of(shared, &request)?;
        let reading = axum::body::to_bytes(request.into_body(), REQUEST_BYTES_MAX + PREFIX_BYTES);
        let timeout = shared.args.read_timeout.min(ARRIVAL_TIMEOUT);
        let body = match tokio::time::timeout(timeout, reading).await {
            Ok(Ok(body)) => body,
            Ok(Err(error)) => {
                let message = format!("cannot read the request: {error}");
                return Err(Status::new(Code::InvalidArgument, message));
            }
            Err(_) => {
                return Err(Status::new(Code::DeadlineExceeded, "request took too long to arrive"));
            }
        };
        let prefix = body.first_chunk().ok_or_else(incomplete)?;
        let (is_compressed, length) = parse_prefix(*prefix);
        if is_compressed {
            let message = "compressed messages are not supported by this method";
            return Err(Status::new(Code::Unimplemented, message));
        }
        let message = body.slice(PREFIX_BYTES..);
        if message.len() < length {
            return Err(incomplete());
        }
        if message.len() > length {
            return Err(Status::new(Code::InvalidArgument, "request has more than one message"));
        }
        Ok(Call { message, client })
    }
}

/// Returns the client of a request with its tenants, if they are on and the request names some.
///
/// Errors: invalid tenants.
pub(super) fn client_of(shared: &Shared, request: &Request) -> Result<Client, Status> {
    let client: Client = request.extensions().get().cloned().unwrap_or_default();
    let Some(tenancy) = &shared.tenancy else { return Ok(client) };
    let scope = tenancy.call_scope(request.headers()).map_err(ApiError::from)?;
    Ok(match scope {
        Some(scope) => client.with_scope(scope),
        None => client,
    })
}

/// Returns whether a message is compressed, and its length.
pub(super) fn parse_prefix(prefix: [u8; PREFIX_BYTES]) -> (bool, usize) {
    let [flag, length @ ..] = prefix;
    (flag != 0, u32::from_be_bytes(length) as usize)
}

pub(super) fn incomplete() -> Status {
    Status::new(Code::InvalidArgument, "the message is incomplete")
}

/// Returns a message with its prefix.
pub(super) fn framed(message: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(PREFIX_BYTES + message.len());
    // Streams have small messages; the memory of queries bounds all others.
    let length = u32::try_from(message.len()).expect("a message has less than 4 GiB");
    frame.push(0);
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(message);
    frame
}

/// Responds with one message.
pub(super) fn respond_with(work: impl Answered, message: Vec<u8>) -> Response {
    let bytes = message.len() as u64;
    respond(work.into_sending(bytes), std::iter::once(message))
}

/// Responds with messages, which are encoded while they are sent.
pub(super) fn respond(
    sending: Sending,
    messages: impl Iterator<Item = Vec<u8>> + Send + 'static,
) -> Response {
    let mut messages = messages.map(|message| framed(&message));
    let mut first = Vec::new();
    while first.len() <= SMALL_BYTES_MAX {
        match messages.next() {
            Some(frame) => first.extend_from_slice(&frame),
            None => {
                let body = sending.finish(first);
                return response(stream::iter([Ok(body)]).boxed());
            }
        }
    }
    let frames = std::iter::once(first).chain(messages);
    streamed(sending.start(stream::iter(frames.map(|frame| Ok(Bytes::from(frame)))).boxed()))
}

/// Responds with the framed messages of a stream.
pub(super) fn streamed(body: SentBody) -> Response {
    let mut response = response(body.boxed());
    response.extensions_mut().insert(IsLong::EncodedByPolls);
    response
}

type Frames = stream::BoxStream<'static, io::Result<Bytes>>;

fn response(frames: Frames) -> Response {
    let mut response = Response::new(Body::new(CallBody { frames: Some(frames) }));
    let content_type = HeaderValue::from_static(CONTENT_TYPE);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

/// Framed messages, then the status as trailers.
struct CallBody {
    /// `None` after the trailers.
    frames: Option<Frames>,
}

impl hyper::body::Body for CallBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Some(frames) = &mut self.frames else { return Poll::Ready(None) };
        let trailers = match ready!(Pin::new(frames).poll_next(context)) {
            Some(Ok(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Some(Err(error)) => trailers_of(error),
            None => success(),
        };
        self.frames = None;
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_none()
    }
}

/// Returns the trailers of a stream that failed after its first message: clients do not retry it.
fn trailers_of(error: io::Error) -> HeaderMap {
    let message = error.to_string();
    match error.downcast::<QueryFailure>() {
        Ok(failure) => Status::from(failure).trailers(),
        Err(_) => Status::new(Code::Aborted, message).trailers(),
    }
}
