//! Multipart forms (`multipart/form-data`) with parameters of the API.
//!
//! Source: RFC 7578, and `FormValue` of Go's `http.Request`: a malformed part ends the form without an
//! error, and files are not parameters.

/// Returns the boundary of a content type, if it has one.
pub(super) fn boundary(content_type: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(content_type).ok()?;
    let (kind, parameters) = text.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let boundary = parameter(parameters, "boundary")?;
    (!boundary.is_empty() && boundary.len() <= 70).then(|| boundary.as_bytes().to_vec())
}

/// Returns names and values of all parts except files, in order.
pub(super) fn fields<'a>(body: &'a [u8], boundary: &[u8]) -> Vec<(&'a [u8], &'a [u8])> {
    let between = [b"\r\n--", boundary].concat();
    let mut fields = Vec::new();
    // The first boundary may be at the start.
    let mut rest = match body.strip_prefix(&between[2..]) {
        Some(rest) => rest,
        None => match split(body, &between) {
            Some((_, rest)) => rest,
            None => return fields,
        },
    };
    while let Some(part) = rest.strip_prefix(b"\r\n") {
        let Some((part, behind)) = split(part, &between) else { break };
        rest = behind;
        // Without a header there is no name.
        let Some((headers, value)) = split(part, b"\r\n\r\n") else { continue };
        if let Some(name) = field_name(headers) {
            fields.push((name, value));
        }
    }
    fields
}

/// Splits bytes at the first occurrence of a separator that starts with a line end.
fn split<'a>(bytes: &'a [u8], at: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let mut from = 0;
    loop {
        from += bytes[from..].iter().position(|byte| *byte == b'\r')?;
        if let Some(behind) = bytes[from..].strip_prefix(at) {
            return Some((&bytes[..from], behind));
        }
        from += 1;
    }
}

/// Returns the name of a part, unless it is a file.
fn field_name(headers: &[u8]) -> Option<&[u8]> {
    let headers = std::str::from_utf8(headers).ok()?;
    let disposition = headers.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
    })?;
    let (kind, parameters) = disposition.split_once(';')?;
    if kind.trim() != "form-data" || parameter(parameters, "filename").is_some() {
        return None;
    }
    parameter(parameters, "name").map(str::as_bytes)
}

/// Returns a parameter of a header, without quotes.
fn parameter<'a>(parameters: &'a str, name_wanted: &str) -> Option<&'a str> {
    parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let value = value.trim();
        let unquoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        name.trim().eq_ignore_ascii_case(name_wanted).then(|| unquoted.unwrap_or(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_up_to_where_they_are_malformed() {
        let part = |disposition: &str, value: &str| {
            format!("--b\r\nContent-Disposition: form-data; {disposition}\r\n\r\n{value}\r\n")
        };
        let query = part("name=\"query\"", "a\r\n--\r\nb");
        let file = part("name=\"file\"; filename=\"x\"", "data");
        let bare = part("name=time", "5");
        let cases = [
            (
                format!("{query}{file}{bare}--b--\r\n"),
                vec![("query", "a\r\n--\r\nb"), ("time", "5")],
            ),
            (format!("preamble\r\n{bare}--b--"), vec![("time", "5")]),
            // Truncated.
            (format!("{query}{bare}"), vec![("query", "a\r\n--\r\nb")]),
            (format!("{query}--b junk"), vec![("query", "a\r\n--\r\nb")]),
            ("junk".to_owned(), vec![]),
            ("--b\r\nno header\r\n--b--".to_owned(), vec![]),
            (String::new(), vec![]),
        ];
        for (body, expected) in cases {
            let expected: Vec<_> =
                expected.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())).collect();
            assert_eq!(fields(body.as_bytes(), b"b"), expected, "{body}");
        }
    }

    #[test]
    fn boundaries_stand_in_the_content_type() {
        for (content_type, expected) in [
            ("multipart/form-data; boundary=b", Some("b")),
            ("Multipart/Form-Data; charset=utf-8; boundary=\"b c\"", Some("b c")),
            ("multipart/form-data", None),
            ("multipart/form-data; boundary=", None),
            ("multipart/mixed; boundary=b", None),
        ] {
            let expected = expected.map(|text| text.as_bytes().to_vec());
            assert_eq!(boundary(content_type.as_bytes()), expected, "{content_type}");
        }
    }
}
