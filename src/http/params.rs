//! Parameters of a request, from its URL and from a form in its body.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{Method, header};
use engine::parse::{MATCHERS_MAX, REGEXES_MAX, parse_selector, require_condition};
use model::Matcher;
use wire::LabelMatcher;

use super::error::ApiError;
use super::multipart::{boundary, fields};
use crate::query::LookupRequest;
use crate::query::active::Client;
use crate::state::Shared;
use crate::time::Time;
use crate::units::quoted;

/// Maximum size of a form, in bytes, as in Go's server.
const FORM_BYTES_MAX: usize = 10 << 20;
/// Maximum number of parameters, as in Go's server.
const PARAMETERS_MAX: usize = 10_000;
/// Maximum number of selectors in a request.
pub(crate) const SELECTORS_MAX: usize = 1_000;

/// Maximum number of selectors in the listed text of a lookup.
const LISTED_SELECTORS_MAX: usize = 8;

/// Parameters of a request. Those of a form precede those of the URL, so that they win; those of a
/// multipart form follow.
///
/// Source: `Request.ParseForm` of Go: malformed pairs are omitted, and only some callers check for
/// them.
#[derive(Debug, Default)]
pub(crate) struct Params {
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
    error: Option<String>,
    path: String,
    client: Client,
}

impl FromRequest<Arc<Shared>> for Params {
    type Rejection = ApiError;

    async fn from_request(request: Request, shared: &Arc<Shared>) -> Result<Params, ApiError> {
        let client = request.extensions().get().cloned().unwrap_or_default();
        let path = request.uri().path().to_owned();
        let mut params = Params { path, client, ..Params::default() };
        let address = request.uri().query().unwrap_or_default().to_owned();
        let boundary = has_body(&request).then(|| boundary(content_type(&request))).flatten();
        let mut parts = Bytes::new();
        if boundary.is_some() || has_form(&request) {
            let reading = axum::body::to_bytes(request.into_body(), FORM_BYTES_MAX);
            match tokio::time::timeout(shared.args.read_timeout, reading).await {
                Ok(Ok(body)) if boundary.is_some() => parts = body,
                Ok(Ok(body)) => params.add(&body),
                Ok(Err(error)) => params.error = Some(form_error(&error)),
                Err(_) => return Err(ApiError::slow(shared.args.read_timeout)),
            }
        }
        params.add(address.as_bytes());
        if let Some(boundary) = boundary {
            params.add_parts(fields(&parts, &boundary));
        }
        Ok(params)
    }
}

/// Returns the text of Prometheus for a form that is too large, and the error itself for any other.
fn form_error(error: &axum::Error) -> String {
    let source = std::error::Error::source(error);
    if source.is_some_and(<dyn std::error::Error>::is::<http_body_util::LengthLimitError>) {
        "http: POST too large".to_owned()
    } else {
        format!("cannot read the form: {error}")
    }
}

fn has_form(request: &Request) -> bool {
    let kind = content_type(request).split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
    has_body(request) && kind.eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
}

fn has_body(request: &Request) -> bool {
    matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH)
}

fn content_type(request: &Request) -> &[u8] {
    request.headers().get(header::CONTENT_TYPE).map_or(&b""[..], |v| v.as_bytes())
}

impl Params {
    /// Client that sent the request.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns the text that lists a lookup with these parameters.
    pub(crate) fn request(&self) -> LookupRequest {
        let selectors = self.pairs.iter().filter(|(name, _)| name == b"match[]");
        let mut text = self.path.clone();
        for (position, (_, selector)) in selectors.take(LISTED_SELECTORS_MAX).enumerate() {
            text.push_str(if position == 0 { "?match[]=" } else { "&match[]=" });
            text.push_str(&String::from_utf8_lossy(selector));
        }
        LookupRequest { text, client: self.client() }
    }

    /// Returns the first value of a parameter, empty without one.
    pub(crate) fn bytes(&self, name: &str) -> &[u8] {
        let pair = self.pairs.iter().find(|(n, _)| n == name.as_bytes());
        pair.map_or(&[], |(_, value)| value)
    }

    /// Returns the first value of a parameter as text, empty without one.
    ///
    /// Errors: bytes that are not UTF-8.
    pub(crate) fn text(&self, name: &str) -> Result<&str, ApiError> {
        utf8(name, self.bytes(name))
    }

    /// Returns all values of a parameter, as text.
    ///
    /// Errors: bytes that are not UTF-8.
    pub(crate) fn texts(&self, name: &str) -> Result<Vec<&str>, ApiError> {
        let values = self.pairs.iter().filter(|(n, _)| n == name.as_bytes());
        values.map(|(_, value)| utf8(name, value)).collect()
    }

    /// Returns the query.
    ///
    /// Errors: bytes that are not UTF-8, as the parser of Prometheus names them.
    pub(crate) fn query(&self) -> Result<&str, ApiError> {
        utf8("query", self.bytes("query"))
    }

    /// Parses an optional time.
    pub(crate) fn time_or(&self, name: &str, default: Time) -> Result<Time, ApiError> {
        match self.text(name)? {
            "" => Ok(default),
            text => Time::parse(text).map_err(|error| {
                let message = format!("invalid time value for '{name}': {error}");
                ApiError::invalid_parameter(name, message)
            }),
        }
    }

    /// Parses a required time.
    pub(crate) fn time(&self, name: &str) -> Result<Time, ApiError> {
        Time::parse(self.text(name)?).map_err(|error| ApiError::invalid_parameter(name, error))
    }

    /// Parses the maximum number of results; 0 for all.
    pub(crate) fn limit(&self) -> Result<usize, ApiError> {
        let text = self.text("limit")?;
        if text.is_empty() {
            return Ok(0);
        }
        let limit =
            parse_integer(text).map_err(|error| ApiError::invalid_parameter("limit", error))?;
        usize::try_from(limit)
            .map_err(|_| ApiError::invalid_parameter("limit", "limit must be non-negative"))
    }

    /// Parses a Boolean parameter, by default false.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, ApiError> {
        match self.text(name)? {
            "" | "false" => Ok(false),
            "true" => Ok(true),
            text => {
                let message = format!("neither \"true\" nor \"false\": {}", quoted(text));
                Err(ApiError::invalid_parameter(name, message))
            }
        }
    }

    /// Returns the texts of all `match[]`.
    pub(crate) fn selectors(&self) -> SelectorTexts {
        let selectors = self.pairs.iter().filter(|(name, _)| name == b"match[]");
        SelectorTexts(selectors.map(|(_, text)| text.clone()).collect())
    }

    /// Returns whether a parameter is present.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.pairs.iter().any(|(n, _)| n == name.as_bytes())
    }

    /// Returns the error of a malformed URL or form, if any.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        match &self.error {
            None => Ok(()),
            Some(error) => Err(ApiError::bad_data(format!("error parsing form values: {error}"))),
        }
    }

    fn add(&mut self, encoded: &[u8]) {
        for pair in encoded.split(|b| *b == b'&') {
            if pair.is_empty() {
                continue;
            }
            if self.pairs.len() == PARAMETERS_MAX {
                self.note("number of URL query parameters exceeded limit".to_owned());
                return;
            }
            if pair.contains(&b';') {
                self.note("invalid semicolon separator in query".to_owned());
                continue;
            }
            let (name, value) = match pair.iter().position(|b| *b == b'=') {
                Some(at) => (&pair[..at], &pair[at + 1..]),
                None => (pair, &pair[pair.len()..]),
            };
            match (unescape(name, true), unescape(value, true)) {
                (Ok(name), Ok(value)) => self.pairs.push((name, value)),
                (Err(error), _) | (_, Err(error)) => self.note(error),
            }
        }
    }

    fn add_parts(&mut self, fields: Vec<(&[u8], &[u8])>) {
        let left = PARAMETERS_MAX.saturating_sub(self.pairs.len());
        if fields.len() > left {
            self.note("number of form fields exceeded limit".to_owned());
        }
        let fields = fields.into_iter().take(left);
        self.pairs.extend(fields.map(|(name, value)| (name.to_vec(), value.to_vec())));
    }

    fn note(&mut self, error: String) {
        self.error.get_or_insert(error);
    }
}

/// Maximum number of plain selectors that are parsed inline.
const PLAIN_SELECTORS_MAX: usize = 8;

/// Unparsed selectors of a request.
#[derive(Debug)]
pub(crate) struct SelectorTexts(Vec<Vec<u8>>);

impl SelectorTexts {
    /// Returns whether there are no selectors.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the selectors are few, short and without regular expressions, so that they are
    /// parsed inline.
    pub(crate) fn are_plain(&self) -> bool {
        let is_plain =
            |text: &Vec<u8>| std::str::from_utf8(text).is_ok_and(engine::parse::is_plain);
        self.0.len() <= PLAIN_SELECTORS_MAX && self.0.iter().all(is_plain)
    }

    /// Parses the matchers of each selector. Many regular expressions take long to compile.
    ///
    /// Errors: those of [`SelectorTexts::parse_any`], and a selector that would match every series.
    pub(crate) fn parse(self) -> Result<Vec<Vec<Matcher>>, String> {
        let selectors = self.parse_any()?;
        for selector in &selectors {
            require_condition(selector).map_err(|error| error.to_string())?;
        }
        Ok(selectors)
    }

    /// Parses the matchers of each selector, of which `{}` selects all series.
    ///
    /// Errors: those of the parser, or too many selectors, matchers or regular expressions.
    pub(crate) fn parse_any(self) -> Result<Vec<Vec<Matcher>>, String> {
        if self.0.len() > SELECTORS_MAX {
            return Err(format!(
                "request has more than {SELECTORS_MAX} selectors, which is the limit"
            ));
        }
        let (mut matcher_count, mut regex_count) = (0, 0);
        let mut selectors = Vec::new();
        for bytes in &self.0 {
            let text = std::str::from_utf8(bytes).map_err(|_| invalid_utf8().to_owned())?;
            let selector = parse_selector(text).map_err(|error| error.to_string())?;
            matcher_count += selector.len();
            regex_count += selector.iter().filter(|m| m.is_compiled()).count();
            for (what, count, limit) in [
                ("matchers", matcher_count, MATCHERS_MAX),
                ("regular expressions", regex_count, REGEXES_MAX),
            ] {
                if count > limit {
                    return Err(format!(
                        "request has more than {limit} {what}, which is the limit"
                    ));
                }
            }
            selectors.push(selector);
        }
        Ok(selectors)
    }
}

fn utf8<'a>(name: &str, bytes: &'a [u8]) -> Result<&'a str, ApiError> {
    std::str::from_utf8(bytes).map_err(|_| ApiError::invalid_parameter(name, invalid_utf8()))
}

fn invalid_utf8() -> &'static str {
    "1:1: parse error: invalid UTF-8 rune"
}

/// Compiles matchers. `regex_count` counts the regular expressions of a request.
///
/// Errors: more regular expressions than a query may have, or an invalid one.
pub(crate) fn compile_matchers(
    matchers: Vec<LabelMatcher>,
    regex_count: &mut usize,
) -> Result<Vec<Matcher>, String> {
    let mut compiled = Vec::with_capacity(matchers.len());
    for LabelMatcher { op, name, value } in matchers {
        let matcher = Matcher::new(op, name, value).map_err(|error| error.to_string())?;
        *regex_count += usize::from(matcher.is_compiled());
        if *regex_count > REGEXES_MAX {
            return Err(format!(
                "request has more than {REGEXES_MAX} regular expressions, which is the limit"
            ));
        }
        compiled.push(matcher);
    }
    Ok(compiled)
}

/// Parses an integer.
///
/// Errors: those of Go's `strconv.Atoi`.
pub(crate) fn parse_integer(text: &str) -> Result<i64, String> {
    text.parse().map_err(|error: std::num::ParseIntError| {
        use std::num::IntErrorKind::{NegOverflow, PosOverflow};
        let reason = match error.kind() {
            PosOverflow | NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        format!("strconv.Atoi: parsing {}: {reason}", quoted(text))
    })
}

/// Parses a Boolean like `strconv.ParseBool` of Go, with its error.
pub(crate) fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!("strconv.ParseBool: parsing {}: invalid syntax", quoted(text))),
    }
}

/// Decodes percent escapes of a URL.
///
/// Errors: a malformed escape.
pub(crate) fn unescape(encoded: &[u8], plus_is_space: bool) -> Result<Vec<u8>, String> {
    let mut decoded = Vec::with_capacity(encoded.len());
    let mut at = 0;
    while let Some(byte) = encoded.get(at) {
        match byte {
            b'%' => {
                let digit = |at: usize| {
                    encoded.get(at).and_then(|b| char::from(*b).to_digit(16)).map(|d| d as u8)
                };
                let (Some(high), Some(low)) = (digit(at + 1), digit(at + 2)) else {
                    let escape = &encoded[at..(at + 3).min(encoded.len())];
                    let escape = quoted(&String::from_utf8_lossy(escape));
                    return Err(format!("invalid URL escape {escape}"));
                };
                decoded.push(high << 4 | low);
                at += 2;
            }
            b'+' if plus_is_space => decoded.push(b' '),
            byte => decoded.push(*byte),
        }
        at += 1;
    }
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(encoded: &str) -> Params {
        let mut params = Params::default();
        params.add(encoded.as_bytes());
        params
    }

    #[test]
    fn pairs_are_unescaped_and_the_first_wins() {
        let params = params("query=a%2Bb+c&query=x&&flag&match%5B%5D=up");
        assert_eq!(params.query(), Ok("a+b c"));
        assert_eq!(params.bytes("absent"), b"");
        assert!(params.has("flag") && !params.has("absent"));
        assert!(params.has("match[]"));
        assert!(params.check().is_ok());
    }

    #[test]
    fn malformed_pairs_are_left_out_and_noted() {
        let cases = [
            ("a=1&query=%zz&b=2", "invalid URL escape \"%zz\""),
            ("a=1&query=%1&b=2", "invalid URL escape \"%1\""),
            ("a=1&query=1;x&b=2", "invalid semicolon separator in query"),
        ];
        for (encoded, message) in cases {
            let params = params(encoded);
            assert_eq!((params.bytes("a"), params.bytes("b")), (&b"1"[..], &b"2"[..]));
            assert!(!params.has("query"));
            let error = ApiError::bad_data(format!("error parsing form values: {message}"));
            assert_eq!(params.check(), Err(error));
        }
    }

    #[test]
    fn the_number_of_parameters_is_bounded() {
        let params = params(&"a=1&".repeat(PARAMETERS_MAX + 1));
        assert_eq!(params.pairs.len(), PARAMETERS_MAX);
        assert!(params.check().is_err());
    }

    #[test]
    fn the_limits_of_a_query_hold_for_all_selectors_of_a_request() {
        let selectors = |count: usize, selector: fn(usize) -> String| {
            let pairs: Vec<_> = (0..count).map(|i| format!("match[]={}", selector(i))).collect();
            params(&pairs.join("&")).selectors().parse().map(|selectors| selectors.len())
        };
        let plain = |i| format!("up_{i}");
        let regex = |i| format!("{{a%3D~\"b.{i}\"}}");
        let wide = |_| format!("{{a=\"b\"{}}}", ",c!=\"d\"".repeat(99));
        let refused = |limit: usize, what: &str| {
            Err(format!("request has more than {limit} {what}, which is the limit"))
        };
        assert_eq!(selectors(SELECTORS_MAX, plain), Ok(SELECTORS_MAX));
        assert_eq!(selectors(SELECTORS_MAX + 1, plain), refused(SELECTORS_MAX, "selectors"));
        assert_eq!(selectors(REGEXES_MAX, regex), Ok(REGEXES_MAX));
        assert_eq!(selectors(REGEXES_MAX + 1, regex), refused(REGEXES_MAX, "regular expressions"));
        assert_eq!(selectors(MATCHERS_MAX / 100, wide), Ok(MATCHERS_MAX / 100));
        assert_eq!(selectors(MATCHERS_MAX / 100 + 1, wide), refused(MATCHERS_MAX, "matchers"));
    }

    #[test]
    fn limits_are_whole_and_not_negative() {
        assert_eq!(params("").limit(), Ok(0));
        assert_eq!(params("limit=5").limit(), Ok(5));
        let cases = [
            ("x", "strconv.Atoi: parsing \"x\": invalid syntax"),
            ("1.5", "strconv.Atoi: parsing \"1.5\": invalid syntax"),
            (
                "99999999999999999999",
                "strconv.Atoi: parsing \"99999999999999999999\": value out of range",
            ),
            ("-1", "limit must be non-negative"),
        ];
        for (text, message) in cases {
            let error = ApiError::invalid_parameter("limit", message);
            assert_eq!(params(&format!("limit={text}")).limit(), Err(error));
        }
    }
}
