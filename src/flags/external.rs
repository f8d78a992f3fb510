//! `--web.external-url` and `--web.route-prefix`: the path under which the server is reached.
//!
//! Source: `computeExternalURL` in `cmd/prometheus/main.go` of Prometheus 3.14.

use axum::http::Uri;

/// URL under which clients reach the server, for instance through a proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExternalUrl {
    text: String,
    path: String,
}

impl ExternalUrl {
    /// URL without a trailing slash; empty without the flag.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Path of the URL without a trailing slash; empty for the root.
    pub fn path(&self) -> &str {
        &self.path
    }
}

/// Parses a URL or a path.
pub(super) fn parse_external_url(text: &str) -> Result<ExternalUrl, String> {
    if text.starts_with(['"', '\'']) || text.ends_with(['"', '\'']) {
        return Err("URL must not begin or end with quotes".to_owned());
    }
    let wrong = |reason: &str| {
        format!("{text:?} is not a URL such as https://example.com/metrics: {reason}")
    };
    let trimmed = text.trim_end_matches('/');
    let (origin, path) = match trimmed.split_once("://") {
        Some((scheme, rest)) => {
            let host_end = rest.find('/').unwrap_or(rest.len());
            trimmed.split_at(scheme.len() + "://".len() + host_end)
        }
        None => ("", trimmed),
    };
    if !origin.is_empty() {
        let origin: Uri = origin.parse().map_err(|_| wrong("scheme or host is invalid"))?;
        if !matches!(origin.scheme_str(), Some("http" | "https")) {
            return Err(wrong("the scheme is neither http nor https"));
        }
    }
    let path = parse_path(path).map_err(|reason| wrong(&reason))?;
    Ok(ExternalUrl { text: format!("{origin}{path}"), path })
}

/// Parses a path. The result has a leading slash and no trailing one, and is empty for the root.
pub(crate) fn parse_path(text: &str) -> Result<String, String> {
    let trimmed = text.trim_matches('/');
    if trimmed.is_empty() {
        return Ok(String::new());
    }
    let path = format!("/{trimmed}");
    let is_path = path.parse::<Uri>().is_ok_and(|uri| uri.path() == path);
    let is_segment = |segment: &str| !matches!(segment, "" | "." | "..");
    if is_path && trimmed.split('/').all(is_segment) {
        Ok(path)
    } else {
        Err(format!("{text:?} is not a path such as /metrics"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_paths_are_read_as_in_prometheus() {
        let cases = [
            ("", "", ""),
            ("http://host:9090/", "http://host:9090", ""),
            ("https://example.com/metrics/", "https://example.com/metrics", "/metrics"),
            ("https://example.com/a/b", "https://example.com/a/b", "/a/b"),
            ("http://[::1]:9090/a", "http://[::1]:9090/a", "/a"),
            ("/metrics", "/metrics", "/metrics"),
            ("metrics/", "/metrics", "/metrics"),
        ];
        for (text, url, path) in cases {
            let read = parse_external_url(text).unwrap();
            assert_eq!((read.as_str(), read.path()), (url, path), "{text}");
        }
    }

    #[test]
    fn wrong_urls_are_named() {
        let cases = [
            ("\"http://a\"", "must not begin or end with quotes"),
            ("ftp://a/b", "neither http nor https"),
            ("http://a b/c", "scheme or host is invalid"),
            ("http://a/b?c", "is not a path"),
            ("http://a/b c", "is not a path"),
            ("http://a/b/../c", "is not a path"),
        ];
        for (text, message) in cases {
            let error = parse_external_url(text).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
