//! Formats of write requests, by their headers.
//!
//! Source: `ParseProtoMsg` and `SnappyDecodeMiddleware` of Prometheus' client library, and
//! `DecodeOTLPWriteRequest` in `storage/remote` of Prometheus.

use axum::http::{HeaderMap, HeaderName, header};
use wire::Version;
use wire::otlp::Encoding;

use crate::ingest::OtlpFormat;

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";
const VERSION_1: &str = "prometheus.WriteRequest";
const VERSION_2: &str = "io.prometheus.write.v2.Request";

/// Returns the protocol version of a remote write request; both headers may be absent.
///
/// Errors: the text for the sender.
pub(super) fn version(headers: &HeaderMap) -> Result<Version, String> {
    match header_text(headers, &header::CONTENT_ENCODING) {
        "" | "snappy" => {}
        other => {
            return Err(format!(
                "{other} encoding (compression) is not accepted by this server; only snappy is \
                 acceptable"
            ));
        }
    }
    let content_type = match header_text(headers, &header::CONTENT_TYPE).trim() {
        "" => PROTOBUF,
        content_type => content_type,
    };
    message_type(content_type)
}

/// Returns the format of an OTLP request.
///
/// Errors: the text for the sender.
pub(super) fn otlp_format(headers: &HeaderMap) -> Result<OtlpFormat, String> {
    let content_type = header_text(headers, &header::CONTENT_TYPE);
    let encoding = match content_type.split(';').next().unwrap_or_default().trim() {
        PROTOBUF => Encoding::Protobuf,
        JSON => Encoding::Json,
        _ => {
            return Err(format!(
                "unsupported content type: {content_type}, supported: [{JSON}, {PROTOBUF}]"
            ));
        }
    };
    match header_text(headers, &header::CONTENT_ENCODING) {
        "" => Ok(OtlpFormat { encoding, is_compressed: false }),
        "gzip" => Ok(OtlpFormat { encoding, is_compressed: true }),
        other => Err(format!(
            "unsupported compression: {other}. Only \"gzip\" or no compression supported"
        )),
    }
}

fn header_text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    headers.get(name).map_or("", |value| value.to_str().unwrap_or("?"))
}

fn message_type(content_type: &str) -> Result<Version, String> {
    let mut parts = content_type.split(';');
    if parts.next() != Some(PROTOBUF) {
        return Err(format!(
            "expected {PROTOBUF} as the first (media) part, got {content_type} content-type"
        ));
    }
    for parameter in parts {
        let Some((name, value)) = parameter.split_once('=').filter(|(_, v)| !v.contains('='))
        else {
            return Err(format!(
                "as per https://www.rfc-editor.org/rfc/rfc9110#parameter expected parameters to \
                 be key-values, got {parameter} in {content_type} content-type"
            ));
        };
        if name.trim() == "proto" {
            return match value {
                VERSION_1 => Ok(Version::V1),
                VERSION_2 => Ok(Version::V2),
                _ => Err(format!(
                    "got {content_type} content type; unknown type for remote write protobuf \
                     message {value}, supported: {VERSION_1}, {VERSION_2}"
                )),
            };
        }
    }
    // Senders of the first protocol omit the parameter.
    Ok(Version::V1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn check_pair(content_type: &str, encoding: &str) -> Result<Version, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in
            [(header::CONTENT_TYPE, content_type), (header::CONTENT_ENCODING, encoding)]
        {
            if !value.is_empty() {
                headers.insert(name, HeaderValue::from_str(value).unwrap());
            }
        }
        version(&headers)
    }

    #[test]
    fn snappy_protobuf_is_understood() {
        for (content_type, encoding) in [
            ("", ""),
            ("application/x-protobuf", "snappy"),
            ("application/x-protobuf;proto=prometheus.WriteRequest", "snappy"),
            ("application/x-protobuf; proto=prometheus.WriteRequest", "snappy"),
            ("application/x-protobuf;charset=utf-8", ""),
        ] {
            let version = check_pair(content_type, encoding);
            assert_eq!(version, Ok(Version::V1), "{content_type} {encoding}");
        }
        for content_type in [
            "application/x-protobuf;proto=io.prometheus.write.v2.Request",
            "application/x-protobuf; proto=io.prometheus.write.v2.Request",
            "application/x-protobuf;charset=utf-8;proto=io.prometheus.write.v2.Request",
        ] {
            assert_eq!(check_pair(content_type, "snappy"), Ok(Version::V2), "{content_type}");
        }
    }

    #[test]
    fn anything_else_is_refused_in_the_words_of_prometheus() {
        for (content_type, encoding, expected) in [
            (
                "",
                "gzip",
                "gzip encoding (compression) is not accepted by this server; only snappy is \
                 acceptable",
            ),
            (
                "application/json",
                "snappy",
                "expected application/x-protobuf as the first (media) part, got \
                 application/json content-type",
            ),
            (
                "application/x-protobuf;proto=x",
                "snappy",
                "got application/x-protobuf;proto=x content type; unknown type for remote write \
                 protobuf message x, supported: prometheus.WriteRequest, \
                 io.prometheus.write.v2.Request",
            ),
            (
                "application/x-protobuf;proto",
                "",
                "as per https://www.rfc-editor.org/rfc/rfc9110#parameter expected parameters to \
                 be key-values, got proto in application/x-protobuf;proto content-type",
            ),
        ] {
            assert_eq!(check_pair(content_type, encoding), Err(expected.to_owned()));
        }
    }
}
