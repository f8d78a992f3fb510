//! HTTP/1.1 client that keeps its connection, so that measurements do not include connecting.

use std::io::{self, BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Size of the read buffer.
const BUFFER_BYTES: usize = 256 << 10;

/// Timeout of a read.
const READ_TIMEOUT: Duration = Duration::from_secs(300);

/// Client of one server.
pub struct Client {
    address: String,
    stream: Option<BufReader<TcpStream>>,
    body: Vec<u8>,
}

impl Client {
    /// Returns a client that connects with its first request.
    pub fn new(address: &str) -> Client {
        Client { address: address.to_owned(), stream: None, body: Vec::new() }
    }

    /// Sends a GET request and returns status and body.
    ///
    /// Errors: the server is not reachable, closes the connection, or does not speak HTTP/1.1.
    pub fn get(&mut self, path: &str) -> io::Result<(u16, &[u8])> {
        self.request("GET", path, "", &[])
    }

    /// Sends a POST request; `headers` are complete lines.
    ///
    /// Errors: as those of [`Self::get`].
    pub fn post(&mut self, path: &str, headers: &str, body: &[u8]) -> io::Result<(u16, &[u8])> {
        self.request("POST", path, headers, body)
    }

    /// Sends a GET request and returns the text of a response with a status of 200 to 299.
    ///
    /// Errors: as those of [`Self::get`], and any other status.
    pub fn text(&mut self, path: &str) -> io::Result<String> {
        match self.get(path)? {
            (200..300, body) => Ok(String::from_utf8_lossy(body).into_owned()),
            (status, body) => Err(Error::other(format!(
                "{path}: status {status}: {:.300}",
                String::from_utf8_lossy(body)
            ))),
        }
    }

    fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> io::Result<(u16, &[u8])> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\n{headers}Content-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        let is_reused = self.stream.is_some();
        let status = match self.exchange(head.as_bytes(), body) {
            // The server may have closed an idle connection.
            Err(_) if is_reused => self.exchange(head.as_bytes(), body)?,
            result => result?,
        };
        Ok((status, &self.body))
    }

    fn exchange(&mut self, head: &[u8], body: &[u8]) -> io::Result<u16> {
        // A failed connection is not reused.
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(&self.address)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(READ_TIMEOUT))?;
                BufReader::with_capacity(BUFFER_BYTES, stream)
            }
        };
        stream.get_mut().write_all(head)?;
        stream.get_mut().write_all(body)?;
        let (status, is_kept) = read_response(&mut stream, &mut self.body)?;
        self.stream = is_kept.then_some(stream);
        Ok(status)
    }
}

/// Reads a response; returns its status, and whether the connection can be reused.
fn read_response(stream: &mut impl BufRead, body: &mut Vec<u8>) -> io::Result<(u16, bool)> {
    let mut line = String::new();
    read_line(stream, &mut line)?;
    let status = line.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or_else(invalid)?;
    let (mut len, mut is_chunked, mut is_kept) = (None, false, true);
    loop {
        read_line(stream, &mut line)?;
        let Some((name, value)) = line.split_once(':') else { break };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => len = Some(value.parse::<u64>().map_err(|_| invalid())?),
            "transfer-encoding" => is_chunked = value.eq_ignore_ascii_case("chunked"),
            "connection" => is_kept = !value.eq_ignore_ascii_case("close"),
            _ => {}
        }
    }
    body.clear();
    match len {
        _ if is_chunked => read_chunks(stream, body, &mut line)?,
        Some(len) => read_exactly(stream, len, body)?,
        None if status == 204 || status == 304 => {}
        None => {
            is_kept = false;
            stream.read_to_end(body)?;
        }
    }
    Ok((status, is_kept))
}

fn read_chunks(stream: &mut impl BufRead, body: &mut Vec<u8>, line: &mut String) -> io::Result<()> {
    loop {
        read_line(stream, line)?;
        let digits = line.split(';').next().unwrap_or_default();
        let len = u64::from_str_radix(digits.trim(), 16).map_err(|_| invalid())?;
        read_exactly(stream, len, body)?;
        // The end of the chunk; after the last one, the end of the trailers.
        read_line(stream, line)?;
        if len == 0 {
            return Ok(());
        }
    }
}

fn read_exactly(stream: &mut impl BufRead, len: u64, body: &mut Vec<u8>) -> io::Result<()> {
    let found = stream.by_ref().take(len).read_to_end(body)?;
    if found as u64 == len { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) }
}

/// Reads a line without its line end.
fn read_line(stream: &mut impl BufRead, line: &mut String) -> io::Result<()> {
    line.clear();
    if stream.read_line(line)? == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    line.truncate(line.trim_end().len());
    Ok(())
}

fn invalid() -> Error {
    Error::new(ErrorKind::InvalidData, "not an HTTP response")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(response: &str) -> io::Result<(u16, bool, String)> {
        let mut body = Vec::new();
        let (status, is_kept) = read_response(&mut response.as_bytes(), &mut body)?;
        Ok((status, is_kept, String::from_utf8_lossy(&body).into_owned()))
    }

    #[test]
    fn bodies_end_as_framed() {
        let cases = [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhello", (200, true, "he")),
            ("HTTP/1.1 204 No Content\r\n\r\nnext", (204, true, "")),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n",
                (200, true, "abc0123456789"),
            ),
            ("HTTP/1.1 400 Bad\r\nConnection: close\r\n\r\nall of it", (400, false, "all of it")),
        ];
        for (response, (status, is_kept, body)) in cases {
            assert_eq!(read(response).unwrap(), (status, is_kept, body.to_owned()), "{response}");
        }
    }

    #[test]
    fn malformed_responses_are_errors() {
        for response in [
            "",
            "SSH-2.0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        ] {
            read(response).unwrap_err();
        }
    }
}
