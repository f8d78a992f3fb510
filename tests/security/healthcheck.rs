//! `tessella healthcheck` against a server that wants TLS, a certificate and a password.

use std::process::Command;

use crate::{Fixture, TLS, hash};

#[test]
fn a_server_is_asked_by_tls_with_a_certificate_and_a_password() {
    let fixture = Fixture::new("healthcheck");
    let path = |name: &str| fixture.path().join(name).display().to_string();
    let write = |name: &str, text: &str| std::fs::write(path(name), text).unwrap();
    fixture.authority.client("probe").write(fixture.path(), "probe");
    for (name, text) in
        [("password", "secret\n"), ("wrong", "wronk"), ("token", "t0ken-t0ken-t0ken\n")]
    {
        write(name, text);
    }
    let config = format!(
        "{TLS}  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.crt\n\
         basic_auth_users: {{probe: \"{}\"}}\ntessella: {{bearer_tokens: {{t: {{file: token}}}}}}\n",
        hash("secret")
    );
    let server = fixture.start(&config, &[]);
    let ca = format!("--tls.ca-file={}", path("ca.crt"));
    let certificate = [
        format!("--tls.cert-file={}", path("probe.crt")),
        format!("--tls.key-file={}", path("probe.key")),
    ];
    let user = |file: &str| ["--user=probe".to_owned(), format!("--password-file={}", path(file))];
    let name = |name: &str| vec![format!("--tls.server-name={name}")];
    let token = vec![format!("--bearer-token-file={}", path("token"))];
    let skip = vec!["--tls.skip-verify".to_owned()];
    let (ca, certificate) = (vec![ca], certificate.to_vec());
    let (right, wrong) = (user("password").to_vec(), user("wrong").to_vec());
    let (localhost, elsewhere) = (name("localhost"), name("elsewhere"));
    let nowhere = user("nowhere").to_vec();
    let no_ca = vec![format!("--tls.ca-file={}", path("token"))];
    let cases = [
        (vec![&ca, &certificate, &right], 0, ""),
        (vec![&ca, &certificate, &token], 0, ""),
        (vec![&skip, &certificate, &token], 0, ""),
        (vec![&ca, &certificate, &right, &localhost], 0, ""),
        (vec![&ca, &certificate, &wrong], 1, "is not ready: \"HTTP/1.0 401 Unauthorized\""),
        (vec![&ca, &certificate], 1, "is not ready: \"HTTP/1.0 401 Unauthorized\""),
        (vec![&ca, &right], 1, "does not answer"),
        (vec![&ca, &certificate, &right, &elsewhere], 1, "does not answer"),
        (vec![&certificate, &right], 1, "does not answer"),
        (vec![&right], 1, "is not ready: \"HTTP/1.0 400 Bad Request\""),
        (vec![&skip, &ca], 2, "cannot be used with"),
        (vec![&ca, &nowhere], 2, "nowhere cannot be used"),
        (vec![&no_ca], 2, "no certificate"),
    ];
    for (flags, status, message) in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tessella"));
        command.args(["healthcheck", "--web.listen-address", &server.address]);
        let output = command.args(flags.iter().copied().flatten()).output().unwrap();
        let log = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{flags:?}: {log}");
        assert!(log.contains(message) && log.is_empty() == message.is_empty(), "{flags:?}: {log}");
        assert!(!log.contains("secret") && !log.contains("wronk"), "{log}");
    }
}
