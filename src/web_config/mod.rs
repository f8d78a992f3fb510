//! Web configuration file (`--web.config.file`): TLS, headers, users, tokens and rate limit.
//!
//! The format is that of Prometheus and its exporters, with the additional section `tessella`.
//! Unsupported settings are errors with a line, never ignored.
//!
//! Source: the "Web configuration" page of Prometheus' exporter toolkit, version 0.17.

mod active;
mod files;
mod sections;
#[cfg(test)]
mod tests;
mod tls;

use std::path::Path;

use axum::http::{HeaderName, HeaderValue};
use serde_saphyr::{Location, Spanned};

use self::files::Files;
use self::sections::{FileText, HttpSection};
use self::tls::Tls;
use crate::access::Access;
use crate::access::rate::RateLimit;
use crate::config::ConfigError;
pub(crate) use active::ActiveWebConfig;

/// Headers that may be set, with their allowed values, if these are restricted.
const HEADERS: [(&str, &[&str]); 5] = [
    ("Content-Security-Policy", &[]),
    ("Strict-Transport-Security", &[]),
    ("X-Content-Type-Options", &["nosniff"]),
    ("X-Frame-Options", &["deny", "sameorigin"]),
    ("X-XSS-Protection", &[]),
];

/// Parsed and validated file.
#[derive(Debug)]
pub(crate) struct WebConfig {
    /// TLS settings; `None` for plain connections.
    pub(crate) tls: Option<Tls>,
    /// Headers that are added to responses that lack them.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// Rate limit of all requests together.
    pub(crate) rate: Option<RateLimit>,
    /// Users with their credentials.
    pub(crate) access: Access,
}

impl WebConfig {
    /// Takes over verified passwords and the state of the rate limit, so that a new certificate does
    /// not repeat the password checks.
    fn inherit(&mut self, before: &WebConfig) {
        self.access.inherit(&before.access);
        if let (Some(rate), Some(before)) = (&mut self.rate, &before.rate) {
            rate.inherit(before);
        }
    }
}

/// Error at a position of the file.
#[derive(Debug)]
struct Fault {
    location: Location,
    message: String,
}

impl Fault {
    /// Returns an error of a field at the position of its value.
    fn at<T>(value: &Spanned<T>, field: &str, message: impl std::fmt::Display) -> Fault {
        Fault { location: value.referenced, message: format!("{field}: {message}") }
    }
}

impl WebConfig {
    /// Loads the file and those that it names, and adds all of them to `files`.
    fn load(path: &Path, files: &mut Files) -> Result<WebConfig, ConfigError> {
        let name = path.display().to_string();
        let bytes =
            files.read(path).map_err(|source| ConfigError::Read { path: name.clone(), source })?;
        let text = String::from_utf8(bytes).map_err(|_| ConfigError::Conflict {
            path: name.clone(),
            message: "the file is not UTF-8".to_owned(),
        })?;
        let sections = FileText::parse(&name, &text)?;
        files.set_folder(path);
        WebConfig::build(&sections, files).map_err(|fault| ConfigError::Invalid {
            path: name,
            line: fault.location.line().max(1),
            column: fault.location.column().max(1),
            message: fault.message,
        })
    }

    fn build(file: &FileText, files: &mut Files) -> Result<WebConfig, Fault> {
        let http = file.http_server_config.clone().unwrap_or_default();
        let tls = match &file.tls_server_config {
            Some(section) => tls::server_config(section, http.http2.unwrap_or(true), files)?,
            None => None,
        };
        let rate = match &file.rate_limit {
            Some(section) => section.value.rate_limit(section)?,
            None => None,
        };
        Ok(WebConfig { tls, headers: headers(&http)?, rate, access: file.access(files)? })
    }
}

fn headers(http: &HttpSection) -> Result<Vec<(HeaderName, HeaderValue)>, Fault> {
    let mut headers = Vec::new();
    for (name, value) in http.headers.iter().flatten() {
        let field = format!("http_server_config.headers.{name}");
        let allowed = HEADERS.iter().find(|(allowed, _)| allowed == name);
        let Some((_, values)) = allowed else {
            let names = HEADERS.map(|(name, _)| name).join(", ");
            let message = format!("this header cannot be set; allowed headers are {names}");
            return Err(Fault::at(value, &field, message));
        };
        if !(values.is_empty() || values.contains(&value.value.as_str())) {
            let message = format!("has to be one of: {}", values.join(", "));
            return Err(Fault::at(value, &field, message));
        }
        if value.value.is_empty() {
            continue;
        }
        let name =
            HeaderName::from_bytes(name.as_bytes()).expect("all names in the table are valid");
        match HeaderValue::from_str(&value.value) {
            Ok(header) => headers.push((name, header)),
            Err(_) => return Err(Fault::at(value, &field, "not the value of a header")),
        }
    }
    Ok(headers)
}
