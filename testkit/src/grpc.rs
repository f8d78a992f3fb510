//! A client of gRPC: calls of one message, over HTTP/2 on any stream.

use std::io;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Body of a request.
pub type CallBody = BoxBody<Bytes, io::Error>;

/// A connection.
#[derive(Clone)]
pub struct GrpcClient(http2::SendRequest<CallBody>);

/// Response to a call.
#[derive(Debug)]
pub struct Reply {
    /// Status of HTTP.
    pub status: u16,
    /// Code of gRPC.
    pub code: Option<u8>,
    pub message: String,
    /// Framed messages.
    pub bytes: Bytes,
}

impl GrpcClient {
    /// Connects without TLS.
    pub async fn connect(address: &str) -> GrpcClient {
        GrpcClient::with_window(address, None).await
    }

    /// Connects without TLS; with `window` 0, nothing is read of a response until it is asked for.
    pub async fn with_window(address: &str, window: Option<u32>) -> GrpcClient {
        let stream = TcpStream::connect(address).await.expect("the server accepts connections");
        // As in clients of gRPC.
        stream.set_nodelay(true).expect("the socket has options");
        GrpcClient::over(stream, window).await
    }

    /// Takes a stream.
    pub async fn over<S>(stream: S, window: Option<u32>) -> GrpcClient
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(window)
            .handshake(TokioIo::new(stream))
            .await
            .expect("the handshake succeeds");
        tokio::spawn(connection);
        GrpcClient(sender)
    }

    /// Calls a method with a message.
    pub async fn call(&mut self, method: &str, message: &[u8]) -> Reply {
        self.send(method, &[], body(framed(message))).await.expect("a response")
    }

    /// Calls a method with a body and headers. `None` if the server ends the stream.
    pub async fn send(
        &mut self,
        method: &str,
        headers: &[(&str, &str)],
        body: CallBody,
    ) -> Option<Reply> {
        let (head, body) = self.start(method, headers, body).await?.into_parts();
        let collected = body.collect().await.ok()?;
        let text = |name: &str| {
            let found = head.headers.get(name).or_else(|| collected.trailers()?.get(name));
            found.map(|value| value.to_str().expect("the header is text").to_owned())
        };
        Some(Reply {
            status: head.status.as_u16(),
            code: text("grpc-status").map(|code| code.parse().expect("the status is a number")),
            message: text("grpc-message").unwrap_or_default(),
            bytes: collected.to_bytes(),
        })
    }

    /// Sends a request and waits for the head of its response.
    pub async fn start(
        &mut self,
        method: &str,
        headers: &[(&str, &str)],
        body: CallBody,
    ) -> Option<Response<Incoming>> {
        self.0.ready().await.ok()?;
        let uri = format!("http://localhost{method}");
        let mut request = Request::post(uri).header("content-type", "application/grpc");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.0.send_request(request.body(body).expect("the stream is open")).await.ok()
    }
}

/// Returns a body of some bytes.
pub fn body(bytes: impl Into<Bytes>) -> CallBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

/// Returns a message with its prefix.
pub fn framed(message: &[u8]) -> Vec<u8> {
    [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat()
}
