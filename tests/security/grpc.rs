//! gRPC with TLS: users, and certificates of clients in their place.

use std::sync::Arc;

use rustls::pki_types::ServerName;
use testkit::free_port;
use testkit::grpc::{GrpcClient, body, framed};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::certificates::Identity;
use crate::{Fixture, TLS, client, hash};

async fn connect(fixture: &Fixture, address: &str, identity: Option<&Identity>) -> GrpcClient {
    let tls = client::tls(&fixture.authority, identity, rustls::ALL_VERSIONS);
    let mut config = Arc::unwrap_or_clone(tls);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    GrpcClient::over(stream, None).await
}

#[tokio::test]
async fn a_verified_certificate_stands_for_a_user() {
    let fixture = Fixture::new("grpc");
    // HTTP/2 is off for HTTP alone.
    let config = format!(
        "{TLS}  client_ca_file: ca.crt\n  client_auth_type: VerifyClientCertIfGiven\n\
         http_server_config: {{http2: false}}\nbasic_auth_users: {{alice: \"{}\"}}\n",
        hash("x")
    );
    let address = format!("127.0.0.1:{}", free_port());
    let listen = format!("--grpc.listen-address={address}");
    let server = fixture.start(&config, &[&listen]);
    let identity = fixture.authority.client("root");
    let info = "/thanos.info.Info/Info";
    let reply = connect(&fixture, &address, Some(&identity)).await.call(info, &[]).await;
    assert_eq!((reply.status, reply.code), (200, Some(0)), "{}", reply.message);
    let mut without = connect(&fixture, &address, None).await;
    let reply = without.call(info, &[]).await;
    assert_eq!((reply.status, reply.code), (401, None));
    let headers = [("authorization", "Basic YWxpY2U6eA==")];
    let reply = without.send(info, &headers, body(framed(&[]))).await.unwrap();
    assert_eq!((reply.status, reply.code), (200, Some(0)), "{}", reply.message);
    // Not so for HTTP.
    let web = client::Client {
        tls: Some(client::tls(&fixture.authority, Some(&identity), rustls::ALL_VERSIONS)),
        headers: String::new(),
    };
    assert_eq!(web.get(&server.address, "/-/ready").status, 401);
}
