//! Valid and invalid settings, and detection of changes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;

/// Folder that is removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tessella-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Folder with a certificate `a.crt` of the key `a.key`, and another key.
fn with_certificate(name: &str) -> Folder {
    let folder = Folder::new(name);
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    folder.write("a.crt", &params.self_signed(&key).unwrap().pem());
    folder.write("a.key", &key.serialize_pem());
    folder.write("b.key", &rcgen::KeyPair::generate().unwrap().serialize_pem());
    folder.write("nothing", "nothing\n");
    folder.write("short", "short\n");
    folder
}

fn load(folder: &Folder, text: &str) -> Result<WebConfig, String> {
    let path = folder.write("web.yml", text);
    WebConfig::load(&path, &mut Files::new()).map_err(|error| error.to_string())
}

const HASH: &str = "$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG";

#[test]
fn all_that_prometheus_knows_and_we_can_is_taken() {
    let folder = with_certificate("web-config");
    for empty in ["", "# nothing\n", "{}", "tls_server_config:\nbasic_auth_users:\n"] {
        let config = load(&folder, empty).unwrap();
        assert!(config.tls.is_none() && config.rate.is_none() && config.headers.is_empty());
        assert!(config.access.is_open());
    }
    let config = load(
        &folder,
        &format!(
            "tls_server_config:\n  cert_file: a.crt\n  key_file: a.key\n  client_auth_type: \
             RequireAndVerifyClientCert\n  client_ca_file: a.crt\n  client_allowed_sans: [a, b]\n  \
             min_version: TLS12\n  max_version: TLS13\n  cipher_suites:\n  - \
             TLS_AES_128_GCM_SHA256\n  - TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\n  \
             prefer_server_cipher_suites: false\n  curve_preferences: [CurveP256, X25519]\n\
             http_server_config:\n  http2: false\n  headers:\n    X-Frame-Options: sameorigin\n    \
             X-XSS-Protection: ''\nrate_limit: {{interval: 1m30s, burst: 7}}\n\
             basic_auth_users:\n  alice: {HASH}\n"
        ),
    );
    let config = config.unwrap();
    let tls = config.tls.unwrap().web;
    assert!(!tls.ignore_client_order);
    assert_eq!(tls.alpn_protocols, [b"http/1.1"]);
    let provider = tls.crypto_provider();
    let suites: Vec<_> =
        provider.cipher_suites.iter().map(|suite| suite.suite().as_str().unwrap()).collect();
    let expected = [
        "TLS13_AES_128_GCM_SHA256",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "TLS13_AES_256_GCM_SHA384",
        "TLS13_CHACHA20_POLY1305_SHA256",
    ];
    assert_eq!(suites, expected);
    let groups: Vec<_> = provider.kx_groups.iter().map(|group| group.name()).collect();
    assert_eq!(groups, [rustls::NamedGroup::secp256r1, rustls::NamedGroup::X25519]);
    assert!(config.rate.is_some() && !config.access.is_open());
    assert_eq!(config.headers.len(), 1);
    assert_eq!(
        config.headers[0],
        (HeaderName::from_static("x-frame-options"), HeaderValue::from_static("sameorigin"))
    );

    let read = |name: &str| std::fs::read_to_string(folder.0.join(name)).unwrap();
    let indented = |name: &str| read(name).replace('\n', "\n    ");
    let inline = format!(
        "tls_server_config:\n  cert: |\n    {}\n  key: |\n    {}\n",
        indented("a.crt"),
        indented("a.key")
    );
    let tls = load(&folder, &inline).unwrap().tls.unwrap().web;
    assert!(tls.ignore_client_order);
    assert_eq!(tls.alpn_protocols, [&b"h2"[..], &b"http/1.1"[..]]);
}

#[test]
fn what_cannot_be_honoured_is_refused_with_field_and_line() {
    let folder = with_certificate("web-faults");
    let tls = "tls_server_config:\n  cert_file: a.crt\n  key_file: a.key\n";
    let own = format!("basic_auth_users:\n  alice: {HASH}\ntessella:\n");
    let cases = [
        // Syntax.
        ("\nfoo: 1\n".to_owned(), "2:1: ", "unknown field `foo`"),
        ("http_server_config:\n  http2: maybe\n".to_owned(), "2:10: ", "http2: "),
        ("rate_limit:\n  burst: -1\n".to_owned(), "2:10: ", "burst: "),
        (format!("{tls}  cert_file: b\n"), "4:3: ", "cert_file"),
        ("tls_server_config: [".to_owned(), "1:", ""),
        // Certificate.
        (
            "tls_server_config:\n  min_version: TLS13\n".to_owned(),
            "2:3: ",
            "cert or cert_file is missing",
        ),
        (
            "tls_server_config:\n  cert_file: a.crt\n".to_owned(),
            "2:3: ",
            "key or key_file is missing",
        ),
        (
            "tls_server_config: {key_file: a.key}\n".to_owned(),
            "1:20: ",
            "cert or cert_file is missing",
        ),
        (format!("{tls}  cert: x\n"), "2:14: ", "cert_file: cert is set, too: remove one"),
        (
            tls.replace("a.crt", "none.crt"),
            "2:14: ",
            "tls_server_config.cert_file: none.crt: No such file",
        ),
        (tls.replace("a.crt", "nothing"), "2:14: ", "cert_file: holds no certificate"),
        (tls.replace("a.key", "nothing"), "3:13: ", "key_file: holds no private key"),
        (
            tls.replace("a.key", "b.key"),
            "3:13: ",
            "key_file: the key is not that of the certificate",
        ),
        // Versions, suites and curves.
        (
            format!("{tls}  min_version: TLS10\n"),
            "4:16: ",
            "min_version: \"TLS10\" is not among the versions: TLS12, TLS13",
        ),
        (format!("{tls}  max_version: TLS11\n"), "4:16: ", "max_version: \"TLS11\" is not"),
        (
            format!("{tls}  max_version: TLS12\n  min_version: TLS13\n"),
            "5:16: ",
            "min_version: is above max_version",
        ),
        (
            format!(
                "{tls}  cipher_suites:\n  - TLS_AES_128_GCM_SHA256\n  - TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA\n"
            ),
            "6:5: ",
            "cipher_suites: unsupported cipher suite \"TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA\"",
        ),
        (
            format!("{tls}  max_version: TLS12\n  cipher_suites: [TLS_AES_128_GCM_SHA256]\n"),
            "5:18: ",
            "cipher_suites: ",
        ),
        (
            format!("{tls}  curve_preferences: [X25519, CurveP521]\n"),
            "4:31: ",
            "curve_preferences: \"CurveP521\" is not among the curves",
        ),
        // Certificates of clients.
        (
            format!("{tls}  client_auth_type: Maybe\n"),
            "4:21: ",
            "client_auth_type: \"Maybe\" is not among: NoClientCert, ",
        ),
        (
            format!("{tls}  client_ca_file: a.crt\n"),
            "4:19: ",
            "client_ca_file: client_auth_type asks for no certificates",
        ),
        (
            format!("{tls}  client_allowed_sans: [a]\n"),
            "4:24: ",
            "client_allowed_sans: client_auth_type asks for no certificates",
        ),
        (
            format!("{tls}  client_auth_type: RequireAndVerifyClientCert\n"),
            "4:21: ",
            "client_ca or client_ca_file is missing",
        ),
        (
            format!("{tls}  client_auth_type: RequestClientCert\n  client_ca: x\n"),
            "5:14: ",
            "client_ca: holds no certificate",
        ),
        // Headers.
        (
            "http_server_config:\n  headers:\n    Server: x\n".to_owned(),
            "3:13: ",
            "headers.Server: this header cannot be set",
        ),
        (
            "http_server_config:\n  headers:\n    x-frame-options: deny\n".to_owned(),
            "3:22: ",
            "cannot be set",
        ),
        (
            "http_server_config:\n  headers:\n    X-Frame-Options: never\n".to_owned(),
            "3:22: ",
            "has to be one of: deny, sameorigin",
        ),
        (
            "http_server_config:\n  headers:\n    X-XSS-Protection: \"a\\nb\"\n".to_owned(),
            "3:23: ",
            "not the value of a header",
        ),
        // Rate limit.
        (
            "rate_limit:\n  interval: 5\n  burst: 1\n".to_owned(),
            "2:13: ",
            "rate_limit.interval: not a duration",
        ),
        (
            "rate_limit:\n  interval: 1d\n  burst: 1\n".to_owned(),
            "2:13: ",
            "rate_limit.interval: not a duration",
        ),
        ("rate_limit:\n  interval: 1s\n".to_owned(), "2:3: ", "a burst of 0 rejects every request"),
        // Users and tokens.
        (
            "basic_auth_users:\n  alice: hush\n".to_owned(),
            "2:10: ",
            "basic_auth_users.alice: not a bcrypt hash",
        ),
        (
            format!("basic_auth_users:\n  alice: {}\n", HASH.replace("$10$", "$03$")),
            "2:10: ",
            "basic_auth_users.alice: cost 3 of the bcrypt hash is below 4",
        ),
        (
            format!("basic_auth_users:\n  alice: {}\n", HASH.replace("$10$", "$16$")),
            "2:10: ",
            "basic_auth_users.alice: cost 16 of the bcrypt hash exceeds the limit of 15",
        ),
        (format!("basic_auth_users:\n  'a:b': {HASH}\n"), "2:10: ", "a name with a colon"),
        (format!("{own}  read_only: [bob]\n"), "4:15: ", "tessella.read_only: neither a user"),
        (
            format!("{own}  bearer_tokens:\n    t: {{}}\n"),
            "5:8: ",
            "bearer_tokens.t: has to have one of sha256 and file",
        ),
        (
            format!("{own}  bearer_tokens:\n    t: {{sha256: x, file: y}}\n"),
            "5:8: ",
            "one of sha256 and file",
        ),
        (
            format!("{own}  bearer_tokens:\n    t: {{sha256: hush}}\n"),
            "5:17: ",
            "bearer_tokens.t.sha256: has to be the SHA-256 digest",
        ),
        (
            format!("{own}  bearer_tokens:\n    t: {{file: none}}\n"),
            "5:15: ",
            "bearer_tokens.t.file: none: No such file",
        ),
        (
            format!("{own}  bearer_tokens:\n    t: {{file: short}}\n"),
            "5:15: ",
            "at least 16 characters",
        ),
        (
            format!("{own}  bearer_tokens:\n    alice: {{file: a.key}}\n"),
            "5:12: ",
            "a user of basic_auth_users has this name",
        ),
    ];
    for (text, location, message) in cases {
        let error = load(&folder, &text).err().unwrap_or_else(|| panic!("no fault: {text}"));
        let (_, error) = error.split_once("web.yml:").unwrap_or_else(|| panic!("{error}"));
        assert!(error.starts_with(location) && error.contains(message), "{text}\n{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(!error.contains("hush"), "{error}");
    }
    let large = format!("# {}\n", "x".repeat(1 << 20));
    assert!(load(&folder, &large).unwrap_err().contains("more than 1048576 bytes"));
}

#[test]
fn bcrypt_costs_up_to_the_limit_are_taken() {
    let folder = Folder::new("web-cost");
    for cost in ["04", "15"] {
        let hash = HASH.replace("$10$", &format!("${cost}$"));
        assert!(load(&folder, &format!("basic_auth_users:\n  alice: {hash}\n")).is_ok(), "{cost}");
    }
}

#[test]
fn a_bcrypt_cost_above_the_limit_is_refused_by_a_reload() {
    let folder = Folder::new("web-cost-reload");
    let users =
        |hash: &str| folder.write("web.yml", &format!("basic_auth_users:\n  alice: {hash}\n"));
    let web = ActiveWebConfig::load(Some(&users(HASH))).unwrap();
    let before = web.config().unwrap();
    users(&HASH.replace("$10$", "$31$"));
    let error = web.reload().unwrap_err().to_string();
    assert!(error.contains("alice: cost 31 of the bcrypt hash exceeds the limit of 15"), "{error}");
    assert!(Arc::ptr_eq(&before, &web.config().unwrap()));
}

#[test]
fn a_rate_is_off_with_an_interval_of_0_and_takes_durations_of_go() {
    let folder = Folder::new("web-rate");
    for (text, is_set) in [
        ("{interval: 0, burst: 5}", false),
        ("{interval: 0s}", false),
        ("{burst: 5}", false),
        ("{interval: 1.5h, burst: 5}", true),
        ("{interval: 20µs, burst: 5}", true),
    ] {
        let config = load(&folder, &format!("rate_limit: {text}\n")).unwrap();
        assert_eq!(config.rate.is_some(), is_set, "{text}");
    }
    let config = load(&folder, "rate_limit: {interval: 1m, burst: 1}\n").unwrap();
    let (rate, now) = (config.rate.unwrap(), Instant::now());
    assert!(rate.takes(now) && !rate.takes(now + Duration::from_secs(59)));
    assert!(rate.takes(now + Duration::from_secs(60)));
}

#[test]
fn a_change_is_noticed_whatever_the_clock_of_the_files_says() {
    let folder = Folder::new("web-changes");
    let path = folder.write("web.yml", "http_server_config: {headers: {X-Frame-Options: deny}}\n");
    let web = ActiveWebConfig::load(Some(&path)).unwrap();
    let first = web.config().unwrap();
    // Unchanged files keep the configuration with its state.
    assert!(Arc::ptr_eq(&first, &web.config().unwrap()));
    web.reload().unwrap();
    assert!(Arc::ptr_eq(&first, &web.config().unwrap()));
    // Same length, and possibly the same time.
    for frame in ["sameorigin", "deny"].repeat(20) {
        let text = format!("http_server_config: {{headers: {{X-Frame-Options: {frame}}}}}\n");
        std::fs::write(&path, format!("{text:80}")).unwrap();
        assert_eq!(web.config().unwrap().headers[0].1, frame);
    }
    std::fs::write(&path, "tls_server_config: {cert_file: x, key_file: y}\n").unwrap();
    assert_eq!(web.config().unwrap().headers[0].1, "deny");
    assert!(web.reload().is_err());
    assert!(ActiveWebConfig::load(None).unwrap().config().is_none());
}
