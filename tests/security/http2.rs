//! HTTP/2, which TLS has unless the file disables it.

use std::sync::Arc;

use axum::body::Body;
use futures::future::join_all;
use hyper::client::conn::http2;
use hyper::{Request, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::{Fixture, PATIENCE, Server, TLS, hash};

/// Flags of a server without a timeout for clients that do not read.
const PATIENT: [&str; 2] = ["--web.write-stall-timeout=1h", "--web.write-timeout=1h"];

/// An encrypted connection that offers HTTP/2 before HTTP/1.1.
async fn connect(fixture: &Fixture, server: &Server) -> TlsStream<TcpStream> {
    let mut config = Arc::unwrap_or_clone(fixture.client().tls.unwrap());
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let stream = TcpStream::connect(&server.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

#[tokio::test]
async fn many_requests_share_a_connection() {
    let fixture = Fixture::new("http2");
    let config = format!(
        "{TLS}basic_auth_users: {{alice: \"{}\"}}\nhttp_server_config: {{headers: \
         {{X-Frame-Options: deny}}}}\n",
        hash("x")
    );
    // Fewer permits than concurrent requests, so requests wait.
    let server = fixture.start(&config, &["--web.max-connections=3"]);
    let stream = connect(&fixture, &server).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = |path: &str, credentials: &str| {
        let uri = format!("https://localhost{path}");
        let request = Request::get(uri).header("authorization", format!("Basic {credentials}"));
        let mut sender = sender.clone();
        async move {
            let answer = sender.send_request(request.body(Body::empty()).unwrap()).await.unwrap();
            let (head, body) = answer.into_parts();
            (head, axum::body::to_bytes(Body::new(body), 1 << 20).await.unwrap())
        }
    };
    let range = "/api/v1/query_range?query=vector(1)&start=0&end=10999&step=1";
    let answers = join_all((0..50).map(|_| request(range, "YWxpY2U6eA=="))).await;
    for (head, body) in answers {
        assert_eq!((head.status, head.version), (StatusCode::OK, Version::HTTP_2));
        assert_eq!(head.headers["x-frame-options"], "deny");
        assert!(body.len() > 100_000 && body.ends_with(b"}"), "{}", body.len());
    }
    let (refused, _) = request("/-/ready", "YWxpY2U6eQ==").await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    assert_eq!(refused.headers["www-authenticate"], "Basic");
    connection.abort();
}

#[tokio::test]
async fn rejected_clients_take_no_slot_even_if_they_do_not_read() {
    let fixture = Fixture::new("http2-places");
    let config = format!("{TLS}basic_auth_users: {{alice: \"{}\"}}\n", hash("x"));
    let args = [&PATIENT[..], &["--web.max-connections=3"]].concat();
    let server = fixture.start(&config, &args);
    let stream = connect(&fixture, &server).await;
    // A client with a flow-control window of zero.
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(0)
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let refused = (0..10).map(|_| {
        let mut sender = sender.clone();
        async move {
            let request = Request::get("https://localhost/").body(Body::empty()).unwrap();
            sender.send_request(request).await.unwrap()
        }
    });
    let refused = tokio::time::timeout(PATIENCE, join_all(refused)).await;
    // The server holds all of them, and the client reads none.
    let refused = refused.expect("ten are answered where there are three places");
    assert!(refused.iter().all(|answer| answer.status() == StatusCode::UNAUTHORIZED));
    connection.abort();
}

#[tokio::test]
async fn unread_streams_block_no_queries() {
    let fixture = Fixture::new("http2-readers");
    let args = ["--query.max-concurrency=2", "--web.max-connections=40"];
    let server = fixture.start(TLS, &[&PATIENT[..], &args].concat());
    let stream = connect(&fixture, &server).await;
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(0)
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let range = "/api/v1/query_range?query=vector(1)&start=0&end=10999&step=1";
    let unread = (0..60).map(|_| {
        let mut sender = sender.clone();
        async move {
            let uri = format!("https://localhost{range}");
            let request = Request::get(uri).body(Body::empty()).unwrap();
            sender.send_request(request).await.unwrap()
        }
    });
    // All get a response, although there are few permits and no byte is read.
    let unread = tokio::time::timeout(PATIENCE, join_all(unread)).await.expect("60 answers");
    assert!(unread.iter().all(|answer| answer.status() == StatusCode::OK));
    let (client, address) = (fixture.client(), server.address.clone());
    let asking = tokio::task::spawn_blocking(move || {
        let listed = client.get(&address, "/api/v1/status/active_queries").body;
        assert_eq!(listed.matches("\"state\":\"sending\"").count(), 60, "{listed}");
        assert_eq!(client.get(&address, "/api/v1/query?query=1%2B1").status, 200);
        assert_eq!(client.get(&address, range).status, 200);
    });
    asking.await.unwrap();
    drop(unread);
    connection.abort();
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let fixture = Fixture::new("http2-head");
    let server = fixture.start(TLS, &[]);
    let stream = connect(&fixture, &server).await;
    let (mut sender, connection) =
        http2::Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::get("https://localhost/-/ready").header("x", "a".repeat(1 << 20));
    let answer = sender.send_request(request.body(Body::empty()).unwrap()).await;
    let status = answer.map(|answer| answer.status());
    assert!(
        status.as_ref().map_or(true, |s| *s == StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
        "{status:?}"
    );
    drop(sender);
    // The server continues after any end of the connection.
    let _ = tokio::time::timeout(PATIENCE, connection).await.expect("the connection stays");
    assert_eq!(fixture.client().get(&server.address, "/-/ready").status, 200);
}

#[tokio::test]
async fn large_heads_that_wait_are_few() {
    let fixture = Fixture::new("http2-heads");
    let server = fixture.start(TLS, &PATIENT);
    let stream = connect(&fixture, &server).await;
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(0)
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let send = |head_bytes: usize| {
        let request = Request::get("https://localhost/api/v1/status/flags");
        let request = request.header("x", "a".repeat(head_bytes)).body(Body::empty()).unwrap();
        let mut sender = sender.clone();
        async move { sender.send_request(request).await.unwrap() }
    };
    // As many as may be unread, so that further ones wait.
    let unread = tokio::time::timeout(PATIENCE, join_all((0..32).map(|_| send(1)))).await.unwrap();
    assert!(unread.iter().all(|answer| answer.status() == StatusCode::OK));
    let mut waiting: futures::stream::FuturesUnordered<_> =
        (0..40).map(|_| Box::pin(send(300 << 10))).collect();
    // The server holds 4 MiB, and rejects the others.
    for _ in 0..40 - (4 << 10) / 301 {
        let answer = tokio::time::timeout(PATIENCE, futures::StreamExt::next(&mut waiting)).await;
        let status = answer.expect("there is no room for it").unwrap().status();
        assert_eq!(status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    }
    assert_eq!(fixture.client().get(&server.address, "/-/ready").status, 200);
    drop((unread, waiting));
    connection.abort();
}

#[tokio::test]
async fn it_is_turned_off_by_the_file() {
    let fixture = Fixture::new("http1");
    let server = fixture.start(&format!("{TLS}http_server_config: {{http2: false}}\n"), &[]);
    let stream = connect(&fixture, &server).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
}
