//! Sections of the web configuration file as they are written.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use regex::Regex;
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::Fault;
use super::files::Files;
use crate::access::rate::RateLimit;
use crate::access::{Access, TOKEN_BYTES_MIN, TokenDigest, User};
use crate::config::{ConfigError, invalid};
use crate::units::parse_go_duration;

/// Pattern of values in messages of the parser, which may be secrets.
static REPEATED: LazyLock<Regex> = LazyLock::new(|| {
    let pattern =
        r#"(string "(?:[^"\\]|\\.)*"|(?:integer|floating point|boolean|character) `[^`]*`)"#;
    Regex::new(pattern).expect("the pattern is right")
});

/// Text with its position; an empty text counts as absent.
pub(super) type Text = Option<Spanned<String>>;

/// Whole file. Unknown keys are errors.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct FileText {
    pub(super) tls_server_config: Option<Spanned<TlsSection>>,
    pub(super) http_server_config: Option<HttpSection>,
    basic_auth_users: Option<BTreeMap<String, Spanned<String>>>,
    pub(super) rate_limit: Option<Spanned<RateSection>>,
    tessella: Option<OwnSection>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TlsSection {
    pub(super) cert: Text,
    pub(super) cert_file: Text,
    pub(super) key: Text,
    pub(super) key_file: Text,
    pub(super) client_ca: Text,
    pub(super) client_ca_file: Text,
    pub(super) client_auth_type: Text,
    pub(super) client_allowed_sans: Option<Spanned<Vec<String>>>,
    pub(super) min_version: Text,
    pub(super) max_version: Text,
    pub(super) cipher_suites: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) prefer_server_cipher_suites: Option<Spanned<bool>>,
    pub(super) curve_preferences: Option<Vec<Spanned<String>>>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct HttpSection {
    pub(super) http2: Option<bool>,
    pub(super) headers: Option<BTreeMap<String, Spanned<String>>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RateSection {
    interval: Text,
    burst: Option<Spanned<u32>>,
}

/// Section `tessella`, which Prometheus does not have.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct OwnSection {
    bearer_tokens: Option<BTreeMap<String, Spanned<TokenSection>>>,
    read_only: Option<Vec<Spanned<String>>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TokenSection {
    sha256: Text,
    file: Text,
}

/// Returns a text unless it is empty.
pub(super) fn set(text: &Text) -> Option<&Spanned<String>> {
    text.as_ref().filter(|text| !text.value.is_empty())
}

impl FileText {
    /// Parses the sections of a file, which may be empty.
    ///
    /// Errors: the syntax error, without values, which may be secrets.
    pub(super) fn parse(path: &str, text: &str) -> Result<FileText, ConfigError> {
        let file: Result<Option<FileText>, _> = serde_saphyr::from_str(text);
        file.map(Option::unwrap_or_default).map_err(|error| {
            let mut error = invalid(path, &error);
            if let ConfigError::Invalid { line, message, .. } = &mut error {
                *message = named(text, *line, &REPEATED.replace_all(message, "another value"));
            }
            error
        })
    }

    /// Returns the users and tokens.
    pub(super) fn access(&self, files: &mut Files) -> Result<Access, Fault> {
        let own = self.tessella.as_ref();
        let users = self.basic_auth_users.iter().flatten();
        let tokens = || own.iter().flat_map(|own| own.bearer_tokens.iter().flatten());
        let read_only: Vec<_> = own.iter().flat_map(|own| own.read_only.iter().flatten()).collect();
        for name in &read_only {
            let is_user = self.basic_auth_users.iter().any(|users| users.contains_key(&name.value));
            if !(is_user || tokens().any(|(token, _)| *token == name.value)) {
                let message = "neither a user of basic_auth_users nor a token of bearer_tokens";
                return Err(Fault::at(name, "tessella.read_only", message));
            }
        }
        let user = |name: &str| User {
            name: Arc::from(name),
            is_read_only: read_only.iter().any(|other| other.value == name),
        };
        let mut access = Access::new();
        for (name, hash) in users {
            let field = format!("basic_auth_users.{name}");
            access
                .add_user(user(name), &hash.value)
                .map_err(|message| Fault::at(hash, &field, message))?;
        }
        for (name, token) in tokens() {
            let field = format!("tessella.bearer_tokens.{name}");
            if self.basic_auth_users.iter().any(|users| users.contains_key(name)) {
                return Err(Fault::at(token, &field, "a user of basic_auth_users has this name"));
            }
            access.add_token(user(name), digest(token, &field, files)?);
        }
        Ok(access)
    }
}

/// Prefixes a message with the key of its line, unless the message names it.
fn named(text: &str, line: u64, message: &str) -> String {
    let line = usize::try_from(line).ok().and_then(|line| text.lines().nth(line.max(1) - 1));
    let key = line.and_then(|line| line.split_once(':')).map(|(key, _)| key.trim());
    let is_name = |key: &&str| {
        !key.is_empty()
            && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
    };
    match key.filter(is_name).filter(|key| !message.contains(*key)) {
        Some(key) => format!("{key}: {message}"),
        None => message.to_owned(),
    }
}

/// Returns the digest of a token.
fn digest(
    token: &Spanned<TokenSection>,
    field: &str,
    files: &mut Files,
) -> Result<TokenDigest, Fault> {
    match (set(&token.value.sha256), set(&token.value.file)) {
        (Some(sha256), None) => TokenDigest::parse(&sha256.value)
            .map_err(|message| Fault::at(sha256, &format!("{field}.sha256"), message)),
        (None, Some(file)) => {
            let fault = |message: &str| {
                Fault::at(file, &format!("{field}.file"), format!("{}: {message}", file.value))
            };
            let bytes = files.read(&file.value).map_err(|error| fault(&error.to_string()))?;
            let token = bytes.trim_ascii();
            if token.len() < TOKEN_BYTES_MIN || !token.iter().all(u8::is_ascii_graphic) {
                let message = format!(
                    "has to hold a token of at least {TOKEN_BYTES_MIN} characters without spaces"
                );
                return Err(fault(&message));
            }
            Ok(TokenDigest::of(token))
        }
        _ => Err(Fault::at(token, field, "has to have one of sha256 and file")),
    }
}

impl RateSection {
    /// Returns the limit; `None` for an interval of 0.
    pub(super) fn rate_limit(&self, at: &Spanned<RateSection>) -> Result<Option<RateLimit>, Fault> {
        let interval = match set(&self.interval) {
            Some(text) => parse_go_duration(&text.value)
                .map_err(|message| Fault::at(text, "rate_limit.interval", message))?,
            None => Duration::ZERO,
        };
        let burst = self.burst.as_ref().map_or(0, |burst| burst.value);
        match (interval, burst) {
            (Duration::ZERO, _) => Ok(None),
            (_, 0) => Err(Fault::at(at, "rate_limit", "a burst of 0 rejects every request")),
            (interval, burst) => Ok(Some(RateLimit::new(interval, burst))),
        }
    }
}
