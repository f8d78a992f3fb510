//! Certificates of one test, new and valid for long.

use std::path::Path;

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, SanType,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

impl Identity {
    pub fn der(&self) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap();
        (certificate, PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap())
    }

    /// Writes both into a folder, as `name.crt` and `name.key`.
    pub fn write(&self, folder: &Path, name: &str) {
        std::fs::write(folder.join(format!("{name}.crt")), &self.certificate).unwrap();
        std::fs::write(folder.join(format!("{name}.key")), &self.key).unwrap();
    }
}

/// A certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Authority(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    pub fn der(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    /// Signs a certificate of the server: `localhost` and `127.0.0.1`.
    pub fn server(&self) -> Identity {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let params = CertificateParams::new(names).unwrap();
        self.sign(params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// Signs a certificate of a client with names of each kind.
    pub fn client(&self, name: &str) -> Identity {
        let text = |text: String| Ia5String::try_from(text).unwrap();
        let mut params = CertificateParams::new([format!("{name}.example")]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names.push(SanType::Rfc822Name(text(format!("{name}@mail.example"))));
        params.subject_alt_names.push(SanType::URI(text(format!("spiffe://example/{name}"))));
        params.subject_alt_names.push(SanType::IpAddress("192.0.2.7".parse().unwrap()));
        params.subject_alt_names.push(SanType::IpAddress("2001:db8::7".parse().unwrap()));
        self.sign(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn sign(&self, mut params: CertificateParams, usage: ExtendedKeyUsagePurpose) -> Identity {
        params.extended_key_usages.push(usage);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Identity { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}
