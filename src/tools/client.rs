//! Client of servers for tools: one GET request, with TLS and credentials.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
    StreamOwned,
};
use rustls_platform_verifier::BuilderVerifierExt as _;

use super::ToolError;

/// Maximum time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Flags of a connection.
#[derive(Debug, Clone, clap::Args)]
pub struct ClientArgs {
    /// Connection with TLS. The certificate of the server must be signed by an authority of the
    /// system, unless a flag below, each of which implies TLS, sets another one.
    #[arg(long = "tls")]
    pub is_tls: bool,

    /// PEM file with authorities of the server's certificate.
    #[arg(long = "tls.ca-file", value_name = "PATH")]
    pub ca_file: Option<PathBuf>,

    /// Name in the server's certificate; without it, the host of the address.
    #[arg(long = "tls.server-name", value_name = "NAME")]
    pub server_name: Option<String>,

    /// Connection without verification of the server's certificate.
    #[arg(long = "tls.skip-verify", conflicts_with = "ca_file")]
    pub skip_verify: bool,

    /// PEM file with the client certificate.
    #[arg(long = "tls.cert-file", value_name = "PATH", requires = "key_file")]
    pub cert_file: Option<PathBuf>,

    /// PEM file with the key of the client certificate.
    #[arg(long = "tls.key-file", value_name = "PATH", requires = "cert_file")]
    pub key_file: Option<PathBuf>,

    /// Name of a user of the server.
    #[arg(long = "user", value_name = "NAME", requires = "password_file")]
    pub user: Option<String>,

    /// File with the password of the user.
    #[arg(long = "password-file", value_name = "PATH", requires = "user")]
    pub password_file: Option<PathBuf>,

    /// File with the bearer token.
    #[arg(long = "bearer-token-file", value_name = "PATH", conflicts_with = "user")]
    pub bearer_token_file: Option<PathBuf>,
}

/// Limits of a request.
pub(super) struct RequestLimits {
    /// Maximum time without a byte of the response.
    pub(super) timeout: Duration,
    /// Maximum bytes of the response that are read.
    pub(super) bytes_max: u64,
}

impl ClientArgs {
    /// Sends a GET request, and returns the response from its first line on.
    ///
    /// Errors: a file of the flags cannot be used; the server does not answer.
    pub(super) fn get(
        &self,
        address: &str,
        path: &str,
        limits: &RequestLimits,
    ) -> Result<Vec<u8>, ToolError> {
        let authorization = self.authorization()?;
        let request = format!(
            "GET {path} HTTP/1.0\r\nHost: {address}\r\n{authorization}Connection: close\r\n\r\n"
        );
        let tls = self.has_tls().then(|| client(self, address)).transpose()?;
        ask(address, &request, tls, limits)
            .map_err(|error| ToolError::NotReady(format!("{address} does not answer: {error}")))
    }

    fn has_tls(&self) -> bool {
        self.is_tls
            || self.skip_verify
            || self.server_name.is_some()
            || [&self.ca_file, &self.cert_file].iter().any(|file| file.is_some())
    }

    /// Returns the header with credentials; empty without.
    fn authorization(&self) -> Result<String, ToolError> {
        if let (Some(user), Some(file)) = (&self.user, &self.password_file) {
            let password = secret(file)?;
            let pair = STANDARD.encode(format!("{user}:{password}"));
            return Ok(format!("Authorization: Basic {pair}\r\n"));
        }
        let Some(file) = &self.bearer_token_file else { return Ok(String::new()) };
        Ok(format!("Authorization: Bearer {}\r\n", secret(file)?))
    }
}

/// Reads a secret from a file, without its line end.
fn secret(file: &Path) -> Result<String, ToolError> {
    let bytes = read(file)?;
    let text = String::from_utf8(bytes).unwrap_or_default();
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() || text.contains(char::is_control) {
        return Err(unusable(file, "it must hold one line of text"));
    }
    Ok(text.to_owned())
}

fn read(file: &Path) -> Result<Vec<u8>, ToolError> {
    std::fs::read(file).map_err(|error| unusable(file, error))
}

fn unusable(file: &Path, error: impl fmt::Display) -> ToolError {
    ToolError::Usage(format!("{} cannot be used: {error}", file.display()))
}

/// Returns the client side of TLS.
fn client(args: &ClientArgs, address: &str) -> Result<ClientConnection, ToolError> {
    let usage = |error: rustls::Error| ToolError::Usage(format!("TLS cannot be used: {error}"));
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(usage)?;
    let builder = match &args.ca_file {
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for authority in certificates(file)? {
                roots.add(authority).map_err(|error| unusable(file, error))?;
            }
            builder.with_root_certificates(roots)
        }
        None if args.skip_verify => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        }
        None => builder.with_platform_verifier().map_err(usage)?,
    };
    let config = match (&args.cert_file, &args.key_file) {
        (Some(cert_file), Some(key_file)) => {
            let key = PrivateKeyDer::from_pem_slice(&read(key_file)?)
                .map_err(|_| unusable(key_file, "it holds no private key in the format PEM"))?;
            builder
                .with_client_auth_cert(certificates(cert_file)?, key)
                .map_err(|error| unusable(cert_file, error))?
        }
        _ => builder.with_no_client_auth(),
    };
    let host = address.rsplit_once(':').map_or("", |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = args.server_name.as_deref().unwrap_or(host);
    let name = ServerName::try_from(name.to_owned())
        .map_err(|_| ToolError::Usage(format!("{name:?} is not the name of a server")))?;
    ClientConnection::new(Arc::new(config), name).map_err(usage)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, ToolError> {
    let bytes = read(file)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(unusable(file, "it holds no certificate in the format PEM")),
    }
}

/// Accepts any certificate whose key the server has.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn ask(
    address: &str,
    request: &str,
    tls: Option<ClientConnection>,
    limits: &RequestLimits,
) -> io::Result<Vec<u8>> {
    let mut stream = connect(address, limits.timeout)?;
    match tls {
        Some(tls) => exchange(StreamOwned::new(tls, stream), request, limits.bytes_max),
        None => exchange(&mut stream, request, limits.bytes_max),
    }
}

fn exchange(mut stream: impl Read + Write, request: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(bytes_max).read_to_end(&mut answer)?;
    Ok(answer)
}

fn connect(address: &str, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for candidate in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, CONNECT_TIMEOUT) {
            Ok(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
