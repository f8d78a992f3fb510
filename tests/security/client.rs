//! A client of HTTP/1.1 with and without TLS, which returns all parts of the response.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};

use crate::certificates::{Authority, Identity};

/// Access to a server.
#[derive(Clone)]
pub struct Client {
    pub tls: Option<Arc<ClientConfig>>,
    /// Lines that go with each request.
    pub headers: String,
}

/// A response.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    /// In lower case, but for values.
    pub headers: Vec<(String, String)>,
    pub body: String,
    /// Of the connection, where it is encrypted: version, suite and group.
    pub agreed: String,
    pub certificate: Option<CertificateDer<'static>>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Vec<&str> {
        let found = self.headers.iter().filter(|(n, _)| n == name);
        found.map(|(_, value)| value.as_str()).collect()
    }
}

/// The client's side of TLS: whom it trusts, and whom it claims to be.
pub fn tls(
    authority: &Authority,
    identity: Option<&Identity>,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    Arc::new(match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let (certificate, key) = identity.der();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    })
}

impl Client {
    pub fn plain() -> Client {
        Client { tls: None, headers: String::new() }
    }

    pub fn trusting(authority: &Authority) -> Client {
        let tls = tls(authority, None, rustls::ALL_VERSIONS);
        Client { tls: Some(tls), headers: String::new() }
    }

    /// Adds a header.
    pub fn with(&self, header: &str) -> Client {
        let mut client = self.clone();
        client.headers.push_str(header);
        client.headers.push_str("\r\n");
        client
    }

    /// Adds the name and password of a user.
    pub fn user(&self, name: &str, password: &str) -> Client {
        use base64::Engine as _;
        let pair = format!("{name}:{password}");
        let pair = base64::engine::general_purpose::STANDARD.encode(pair);
        self.with(&format!("Authorization: Basic {pair}"))
    }

    pub fn get(&self, address: &str, path: &str) -> Answer {
        self.ask(address, "GET", path, "").unwrap()
    }

    /// Errors: no response.
    pub fn ask(
        &self,
        address: &str,
        method: &str,
        path: &str,
        form: &str,
    ) -> std::io::Result<Answer> {
        let (headers, length) = (&self.headers, form.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\n{headers}Connection: close\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\r\n\
             {form}"
        );
        self.send(address, request.as_bytes())
    }

    pub fn send(&self, address: &str, request: &[u8]) -> std::io::Result<Answer> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let (mut agreed, mut certificate) = (String::new(), None);
        let mut bytes = Vec::new();
        let Some(tls) = &self.tls else {
            stream.write_all(request)?;
            stream.read_to_end(&mut bytes)?;
            return answer(&bytes, agreed, certificate);
        };
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::clone(tls), name).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        stream.write_all(request)?;
        stream.read_to_end(&mut bytes)?;
        let suite = stream.conn.negotiated_cipher_suite().unwrap().suite();
        let version = stream.conn.protocol_version().unwrap();
        let group =
            stream.conn.negotiated_key_exchange_group().map(rustls::crypto::SupportedKxGroup::name);
        agreed.push_str(&format!("{version:?} {suite:?} {group:?}"));
        if let Some([first, ..]) = stream.conn.peer_certificates() {
            certificate = Some(first.clone().into_owned());
        }
        answer(&bytes, agreed, certificate)
    }
}

fn answer(
    bytes: &[u8],
    agreed: String,
    certificate: Option<CertificateDer<'static>>,
) -> std::io::Result<Answer> {
    let text = String::from_utf8_lossy(bytes);
    let invalid = || std::io::Error::new(std::io::ErrorKind::InvalidData, format!("{text:?}"));
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(invalid)?;
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|s| s.parse().ok());
    let headers = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let status = status.ok_or_else(invalid)?;
    Ok(Answer { status, headers, body: body.to_owned(), agreed, certificate })
}
