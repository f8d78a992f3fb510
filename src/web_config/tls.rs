//! Section `tls_server_config` as a configuration of the TLS library.
//!
//! The library supports TLS 1.2 and 1.3, AEAD suites with forward secrecy, and three of Go's curves.
//! Other settings are errors.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature,
    verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoClientAuth, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig,
    SignatureScheme, SupportedCipherSuite, SupportedProtocolVersion,
};
use serde_saphyr::Spanned;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use super::Fault;
use super::files::Files;
use super::sections::{Text, TlsSection, set};

/// Prefix of field names in messages.
const SECTION: &str = "tls_server_config";

/// Values of `client_auth_type`: whether a client certificate is required, and whether it is verified
/// against the authorities.
///
/// Source: `ClientAuthType` of Go; `RequireClientCert` is an older name of Prometheus'.
const CLIENT_POLICIES: [(&str, bool, bool); 5] = [
    ("RequestClientCert", false, false),
    ("RequireAnyClientCert", true, false),
    ("RequireClientCert", true, false),
    ("VerifyClientCertIfGiven", false, true),
    ("RequireAndVerifyClientCert", true, true),
];

/// TLS settings of both listeners.
#[derive(Debug, Clone)]
pub(crate) struct Tls {
    /// Settings for HTTP.
    pub(crate) web: Arc<ServerConfig>,
    /// Settings for gRPC, which needs HTTP/2.
    pub(crate) grpc: Arc<ServerConfig>,
    /// Whether client certificates are verified against authorities.
    pub(crate) verifies_clients: bool,
}

/// Returns the TLS settings; `None` for an empty section.
pub(super) fn server_config(
    section: &Spanned<TlsSection>,
    has_http2: bool,
    files: &mut Files,
) -> Result<Option<Tls>, Fault> {
    let tls = &section.value;
    if tls.is_empty() {
        return Ok(None);
    }
    let provider = Arc::new(provider(tls)?);
    let key = certified_key(section, &provider, files)?;
    let verifier = client_verifier(tls, &provider, files)?;
    let versions = versions(tls)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)
        .map_err(|error| match &tls.cipher_suites {
            Some(suites) => Fault::at(suites, &field("cipher_suites"), error),
            None => Fault::at(section, SECTION, error),
        })?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
    config.ignore_client_order = tls.prefer_server_cipher_suites.as_ref().is_none_or(|p| p.value);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let grpc = Arc::new(config.clone());
    if !has_http2 {
        config.alpn_protocols.clear();
    }
    config.alpn_protocols.push(b"http/1.1".to_vec());
    let auth_type = set(&tls.client_auth_type).map(|kind| &kind.value[..]);
    let policy = CLIENT_POLICIES.iter().find(|(name, ..)| Some(*name) == auth_type);
    let verifies_clients = policy.is_some_and(|(_, _, is_verified)| *is_verified);
    Ok(Some(Tls { web: Arc::new(config), grpc, verifies_clients }))
}

fn field(name: &str) -> String {
    format!("{SECTION}.{name}")
}

impl TlsSection {
    /// Returns whether no field is set.
    fn is_empty(&self) -> bool {
        let texts = [
            &self.cert,
            &self.cert_file,
            &self.key,
            &self.key_file,
            &self.client_ca,
            &self.client_ca_file,
            &self.client_auth_type,
            &self.min_version,
            &self.max_version,
        ];
        texts.iter().all(|text| set(text).is_none())
            && self.client_allowed_sans.is_none()
            && self.cipher_suites.is_none()
            && self.prefer_server_cipher_suites.is_none()
            && self.curve_preferences.is_none()
    }
}

/// PEM text, given in the configuration or in a file that it names.
struct Pem<'a> {
    at: &'a Spanned<String>,
    field: String,
    bytes: Vec<u8>,
}

/// Returns the text of `name`, or of the file in `name_file`.
fn pem<'a>(
    name: &str,
    inline: &'a Text,
    file: &'a Text,
    files: &mut Files,
) -> Result<Option<Pem<'a>>, Fault> {
    let file_field = field(&format!("{name}_file"));
    match (set(inline), set(file)) {
        (None, None) => Ok(None),
        (Some(at), None) => {
            Ok(Some(Pem { at, field: field(name), bytes: at.value.as_bytes().to_vec() }))
        }
        (None, Some(at)) => {
            let bytes = files
                .read(&at.value)
                .map_err(|error| Fault::at(at, &file_field, format!("{}: {error}", at.value)))?;
            Ok(Some(Pem { at, field: file_field, bytes }))
        }
        (Some(_), Some(at)) => {
            Err(Fault::at(at, &file_field, format!("{name} is set, too: remove one of them")))
        }
    }
}

impl Pem<'_> {
    fn fault(&self, message: impl std::fmt::Display) -> Fault {
        Fault::at(self.at, &self.field, message)
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, Fault> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        match read {
            Ok(certificates) if !certificates.is_empty() => Ok(certificates),
            _ => Err(self.fault("holds no certificate in the format PEM")),
        }
    }

    /// The message does not repeat the text, which may be a secret.
    fn private_key(&self) -> Result<PrivateKeyDer<'static>, Fault> {
        PrivateKeyDer::from_pem_slice(&self.bytes)
            .map_err(|_| self.fault("holds no private key in the format PEM, not encrypted"))
    }
}

fn certified_key(
    section: &Spanned<TlsSection>,
    provider: &CryptoProvider,
    files: &mut Files,
) -> Result<CertifiedKey, Fault> {
    let tls = &section.value;
    let missing =
        |name: &str| Fault::at(section, SECTION, format!("{name} or {name}_file is missing"));
    let certificate =
        pem("cert", &tls.cert, &tls.cert_file, files)?.ok_or_else(|| missing("cert"))?;
    let key = pem("key", &tls.key, &tls.key_file, files)?.ok_or_else(|| missing("key"))?;
    let chain = certificate.certificates()?;
    CertifiedKey::from_der(chain, key.private_key()?, provider).map_err(|error| match error {
        Error::InconsistentKeys(_) => key.fault("the key is not that of the certificate"),
        Error::InvalidCertificate(error) => certificate.fault(error),
        error => key.fault(error),
    })
}

/// Returns the selected suites and curves. As in Go, suites of TLS 1.3 are always enabled:
/// `cipher_suites` selects those of TLS 1.2, and orders both.
fn provider(tls: &TlsSection) -> Result<CryptoProvider, Fault> {
    let mut provider = aws_lc_rs::default_provider();
    if let Some(suites) = tls.cipher_suites.as_ref().filter(|suites| !suites.value.is_empty()) {
        let known = provider.cipher_suites;
        let mut chosen = Vec::new();
        for name in &suites.value {
            let suite = known.iter().find(|suite| suite_name(suite) == name.value);
            chosen.push(*suite.ok_or_else(|| {
                let names: Vec<_> = known.iter().map(suite_name).collect();
                let message = format!(
                    "unsupported cipher suite {:?}; supported: {}",
                    name.value,
                    names.join(", ")
                );
                Fault::at(name, &field("cipher_suites"), message)
            })?);
        }
        chosen.extend(known.into_iter().filter(|suite| suite.tls13().is_some()));
        provider.cipher_suites = without_repeats(chosen);
    }
    if let Some(curves) = tls.curve_preferences.as_ref().filter(|curves| !curves.is_empty()) {
        let known = [
            ("X25519", aws_lc_rs::kx_group::X25519),
            ("CurveP256", aws_lc_rs::kx_group::SECP256R1),
            ("CurveP384", aws_lc_rs::kx_group::SECP384R1),
        ];
        provider.kx_groups.clear();
        for name in curves {
            let curve = known.iter().find(|(known, _)| *known == name.value);
            let (_, group) = curve.ok_or_else(|| {
                let names = known.map(|(name, _)| name).join(", ");
                let message = format!("{:?} is not among the curves: {names}", name.value);
                Fault::at(name, &field("curve_preferences"), message)
            })?;
            provider.kx_groups.push(*group);
        }
    }
    Ok(provider)
}

/// Returns Go's name of a suite.
fn suite_name(suite: &SupportedCipherSuite) -> String {
    suite.suite().as_str().unwrap_or_default().replace("TLS13_", "TLS_")
}

fn without_repeats(suites: Vec<SupportedCipherSuite>) -> Vec<SupportedCipherSuite> {
    let mut kept: Vec<SupportedCipherSuite> = Vec::new();
    for suite in suites {
        if !kept.contains(&suite) {
            kept.push(suite);
        }
    }
    kept
}

fn versions(tls: &TlsSection) -> Result<Vec<&'static SupportedProtocolVersion>, Fault> {
    let known = [("TLS12", &rustls::version::TLS12), ("TLS13", &rustls::version::TLS13)];
    let index = |text: &Text, name: &str, default: usize| {
        let Some(text) = set(text) else { return Ok(default) };
        known.iter().position(|(known, _)| *known == text.value).ok_or_else(|| {
            let message = format!("{:?} is not among the versions: TLS12, TLS13", text.value);
            Fault::at(text, &field(name), message)
        })
    };
    let newest = index(&tls.max_version, "max_version", 1)?;
    let oldest = index(&tls.min_version, "min_version", 0)?;
    if let Some(text) = set(&tls.min_version).filter(|_| oldest > newest) {
        return Err(Fault::at(text, &field("min_version"), "is above max_version"));
    }
    Ok(known[oldest..=newest].iter().map(|(_, version)| *version).collect())
}

fn client_verifier(
    tls: &TlsSection,
    provider: &Arc<CryptoProvider>,
    files: &mut Files,
) -> Result<Arc<dyn ClientCertVerifier>, Fault> {
    let authorities = pem("client_ca", &tls.client_ca, &tls.client_ca_file, files)?;
    let sans = tls.client_allowed_sans.as_ref();
    let auth_type = set(&tls.client_auth_type).filter(|kind| kind.value != "NoClientCert");
    let Some(auth_type) = auth_type else {
        let message = "client_auth_type asks for no certificates";
        return match (&authorities, sans) {
            (Some(authorities), _) => Err(authorities.fault(message)),
            (None, Some(sans)) => Err(Fault::at(sans, &field("client_allowed_sans"), message)),
            (None, None) => Ok(Arc::new(NoClientAuth)),
        };
    };
    let wrong = |message: String| Fault::at(auth_type, &field("client_auth_type"), message);
    let policy = CLIENT_POLICIES.iter().find(|(name, ..)| *name == auth_type.value);
    let (_, is_mandatory, is_verified) = policy.ok_or_else(|| {
        let names = CLIENT_POLICIES.map(|(name, ..)| name).join(", ");
        wrong(format!("{:?} is not among: NoClientCert, {names}", auth_type.value))
    })?;
    let mut roots = RootCertStore::empty();
    if let Some(authorities) = &authorities {
        for certificate in authorities.certificates()? {
            roots.add(certificate).map_err(|error| authorities.fault(error))?;
        }
    }
    let hints = roots.subjects();
    let chain = match is_verified {
        false => None,
        true if roots.is_empty() => {
            // Go would use the authorities of the system, so any client with a public certificate
            // would be accepted.
            return Err(wrong("client_ca or client_ca_file is missing".to_owned()));
        }
        true => {
            let builder =
                WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(provider));
            Some(builder.build().map_err(|error| wrong(error.to_string()))?)
        }
    };
    let allowed_sans = sans.map(|sans| sans.value.clone());
    Ok(Arc::new(ClientPolicy {
        // A client without a certificate has no allowed name.
        is_mandatory: *is_mandatory || allowed_sans.is_some(),
        chain,
        allowed_sans,
        hints,
        algorithms: provider.signature_verification_algorithms,
    }))
}

/// Verification of client certificates.
#[derive(Debug)]
struct ClientPolicy {
    is_mandatory: bool,
    /// Verifies the chain up to an authority, if required.
    chain: Option<Arc<dyn ClientCertVerifier>>,
    /// Allowed names, of which a certificate must have one.
    allowed_sans: Option<Vec<String>>,
    /// Authorities that are sent to clients.
    hints: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for ClientPolicy {
    fn client_auth_mandatory(&self) -> bool {
        self.is_mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if let Some(chain) = &self.chain {
            chain.verify_client_cert(end_entity, intermediates, now)?;
        }
        if let Some(allowed) = &self.allowed_sans {
            let names = names_of(end_entity)
                .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
            if !names.iter().any(|name| allowed.contains(name)) {
                let refused = CertificateError::ApplicationVerificationFailure;
                return Err(Error::InvalidCertificate(refused));
            }
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Returns the alternative names of a certificate: hosts, IP and mail addresses, and URIs.
fn names_of(certificate: &CertificateDer<'_>) -> Result<Vec<String>, x509_cert::der::Error> {
    let certificate = Certificate::from_der(certificate)?;
    let extension = certificate.tbs_certificate().get_extension::<SubjectAltName>()?;
    let names = extension.map(|(_, names)| names.0).unwrap_or_default();
    Ok(names
        .iter()
        .filter_map(|name| match name {
            GeneralName::DnsName(name) => Some(name.to_string()),
            GeneralName::Rfc822Name(address) => Some(address.to_string()),
            GeneralName::UniformResourceIdentifier(uri) => Some(uri.to_string()),
            GeneralName::IpAddress(bytes) => address(bytes.as_bytes()),
            _ => None,
        })
        .collect())
}

fn address(bytes: &[u8]) -> Option<String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(|bytes| std::net::Ipv4Addr::from(bytes).to_string());
    let v6 = <[u8; 16]>::try_from(bytes).map(|bytes| std::net::Ipv6Addr::from(bytes).to_string());
    v4.or(v6).ok()
}
