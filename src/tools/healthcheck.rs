//! Readiness check of a running server, for supervisors in images without other tools.

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
use crate::flags::{ListenAddress, parse_address, parse_path};

/// Maximum time to connect, and to wait for the response.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum bytes of the response that are read: enough for its first line.
const ANSWER_BYTES_MAX: u64 = 64;

/// Flags of `healthcheck`.
#[derive(Debug, Clone, clap::Args)]
pub struct HealthcheckArgs {
    /// Address and port of the server.
    #[arg(long = "web.listen-address", value_name = "ADDRESS", default_value = "127.0.0.1:9090", value_parser = parse_address)]
    pub listen_address: ListenAddress,

    /// Path of the server's --web.route-prefix, or the path of its --web.external-url.
    #[arg(long = "web.route-prefix", value_name = "PATH", default_value = "/", value_parser = parse_path)]
    pub route_prefix: String,

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

/// Returns once a server has responded that it is ready.
pub(super) fn run(args: &HealthcheckArgs) -> Result<(), ToolError> {
    let address = &args.listen_address.0;
    let request = request(args)?;
    let tls = args.has_tls().then(|| client(args)).transpose()?;
    let answer = ask(address, &request, tls)
        .map_err(|error| ToolError::NotReady(format!("{address} does not answer: {error}")))?;
    let line = answer.lines().next().unwrap_or_default();
    match line.split(' ').nth(1) {
        Some("200") => Ok(()),
        _ => Err(ToolError::NotReady(format!("{address} is not ready: {line:?}"))),
    }
}

impl HealthcheckArgs {
    fn has_tls(&self) -> bool {
        self.is_tls
            || self.skip_verify
            || self.server_name.is_some()
            || [&self.ca_file, &self.cert_file].iter().any(|file| file.is_some())
    }
}

/// Returns the request.
fn request(args: &HealthcheckArgs) -> Result<String, ToolError> {
    let mut authorization = String::new();
    if let (Some(user), Some(file)) = (&args.user, &args.password_file) {
        let password = secret(file)?;
        let pair = STANDARD.encode(format!("{user}:{password}"));
        authorization = format!("Authorization: Basic {pair}\r\n");
    } else if let Some(file) = &args.bearer_token_file {
        authorization = format!("Authorization: Bearer {}\r\n", secret(file)?);
    }
    let (address, prefix) = (&args.listen_address.0, &args.route_prefix);
    Ok(format!(
        "GET {prefix}/-/ready HTTP/1.1\r\nHost: {address}\r\n{authorization}Connection: close\r\n\r\n"
    ))
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
fn client(args: &HealthcheckArgs) -> Result<ClientConnection, ToolError> {
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
    let host = args.listen_address.0.rsplit_once(':').map_or("", |(host, _)| host);
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

/// Returns the start of the response.
fn ask(address: &str, request: &str, tls: Option<ClientConnection>) -> io::Result<String> {
    let mut stream = connect(address)?;
    let mut answer = Vec::new();
    match tls {
        Some(tls) => exchange(StreamOwned::new(tls, stream), request, &mut answer)?,
        None => exchange(&mut stream, request, &mut answer)?,
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn exchange(mut stream: impl Read + Write, request: &str, answer: &mut Vec<u8>) -> io::Result<()> {
    stream.write_all(request.as_bytes())?;
    stream.take(ANSWER_BYTES_MAX).read_to_end(answer)?;
    Ok(())
}

fn connect(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for candidate in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, TIMEOUT) {
            Ok(stream) => {
                stream.set_read_timeout(Some(TIMEOUT))?;
                stream.set_write_timeout(Some(TIMEOUT))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
