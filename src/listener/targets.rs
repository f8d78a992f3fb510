//! Escapes request targets such as `/api/v1/query?query=up{job="a"} > 0`, with quotes and angle
//! brackets as curl sends them and Go's server accepts them. hyper rejects such targets before any
//! handler. Prometheus documents requests of this form: the curl command of "Delete Series" in its
//! API documentation has an unescaped `match[]=…{job="prometheus"}`.
//!
//! ```text
//! head of a request ──▶ Target ──▶ Header* ──▶ Body(n) ──▶ next head
//!                                     └──▶ Through, if the length of the body is not declared
//! ```
//!
//! hyper alone decides on the framing of requests. This module only finds the next target; a mistake
//! only changes the escapes of bytes in requests of the same connection.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of a head that are read at once.
const HEAD_BYTES: usize = 4 << 10;
/// Bytes of a header line that are parsed: enough for the length of a body.
const LINE_BYTES: usize = 64;

/// Stream that escapes request targets as they are read.
pub(super) struct EscapedTargets<S> {
    stream: S,
    tracker: Tracker,
    /// Escaped bytes that are not read yet, from `taken` on.
    escaped: Vec<u8>,
    taken: usize,
}

impl<S> EscapedTargets<S> {
    pub(super) fn new(stream: S) -> EscapedTargets<S> {
        EscapedTargets { stream, tracker: Tracker::default(), escaped: Vec::new(), taken: 0 }
    }

    fn take_escaped(&mut self, buffer: &mut ReadBuf<'_>) {
        let rest = &self.escaped[self.taken..];
        let count = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..count]);
        self.taken += count;
        if self.taken == self.escaped.len() {
            self.escaped.clear();
            self.taken = 0;
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for EscapedTargets<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.escaped.is_empty() {
            if let Some(plain_bytes) = this.tracker.plain_bytes() {
                let start = buffer.filled().len();
                ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
                let read = buffer.filled().len() - start;
                let plain = usize::try_from(plain_bytes).map_or(read, |plain| plain.min(read));
                this.tracker.skip(plain as u64);
                let rest = &buffer.filled()[start + plain..];
                this.tracker.escape(rest, &mut this.escaped);
                buffer.set_filled(start + plain);
                return Poll::Ready(Ok(()));
            }
            let mut head = [MaybeUninit::uninit(); HEAD_BYTES];
            let mut head = ReadBuf::uninit(&mut head);
            ready!(Pin::new(&mut this.stream).poll_read(context, &mut head))?;
            this.tracker.escape(head.filled(), &mut this.escaped);
        }
        this.take_escaped(buffer);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for EscapedTargets<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Position of the stream in a request.
#[derive(Debug, Default)]
struct Tracker {
    state: State,
    /// Start of the current line, in lower case, without its end.
    line: Vec<u8>,
    body_bytes: u64,
    /// True if the head does not declare the length of the body.
    is_open: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Target,
    Header,
    Body(u64),
    Through,
}

impl Tracker {
    /// Bytes that need no escape; `None` within a head.
    fn plain_bytes(&self) -> Option<u64> {
        match self.state {
            State::Target | State::Header => None,
            State::Body(left) => Some(left),
            State::Through => Some(u64::MAX),
        }
    }

    /// Skips bytes that need no escape.
    fn skip(&mut self, count: u64) {
        if let State::Body(left) = self.state {
            self.state = if count < left { State::Body(left - count) } else { State::Target };
        }
    }

    /// Appends bytes with escaped targets.
    fn escape(&mut self, mut read: &[u8], out: &mut Vec<u8>) {
        while !read.is_empty() {
            if let Some(plain_bytes) = self.plain_bytes() {
                let plain = usize::try_from(plain_bytes).unwrap_or(usize::MAX).min(read.len());
                out.extend_from_slice(&read[..plain]);
                self.skip(plain as u64);
                read = &read[plain..];
                continue;
            }
            let end = read.iter().position(|byte| *byte == b'\n').unwrap_or(read.len());
            let (part, rest) = read.split_at(end);
            if self.state == State::Target {
                push_escaped(out, part);
            } else {
                out.extend_from_slice(part);
            }
            self.push_line(part);
            read = rest;
            if let Some(rest) = read.strip_prefix(b"\n") {
                out.push(b'\n');
                self.end_line();
                read = rest;
            }
        }
    }

    /// Appends a part of the current line to its start.
    fn push_line(&mut self, part: &[u8]) {
        let free = LINE_BYTES - self.line.len();
        let kept = part.iter().filter(|byte| **byte != b'\r').take(free);
        self.line.extend(kept.map(u8::to_ascii_lowercase));
    }

    fn end_line(&mut self) {
        match self.state {
            // Empty lines before a request are skipped.
            State::Target if self.line.is_empty() => {}
            State::Target => self.state = State::Header,
            _ if self.line.is_empty() => {
                self.state = match self.body_bytes {
                    _ if self.is_open => State::Through,
                    0 => State::Target,
                    left => State::Body(left),
                };
                (self.body_bytes, self.is_open) = (0, false);
            }
            _ => self.read_header(),
        }
        self.line.clear();
    }

    fn read_header(&mut self) {
        let line = &self.line;
        if let Some(value) = line.strip_prefix(b"content-length:") {
            let length = std::str::from_utf8(value).ok().and_then(|v| v.trim().parse().ok());
            self.body_bytes = length.unwrap_or(0);
            self.is_open |= length.is_none();
        }
        self.is_open |= line.starts_with(b"transfer-encoding:") || line.starts_with(b"upgrade:");
    }
}

/// Returns whether hyper rejects a byte that users leave unescaped.
fn is_escaped(byte: u8) -> bool {
    matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | 0x80..)
}

/// Appends bytes of a target, with escapes.
fn push_escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in bytes {
        if is_escaped(byte) {
            let (high, low) = (HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]);
            out.extend_from_slice(&[b'%', high, low]);
        } else {
            out.push(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use proptest::prelude::*;

    /// Reader that returns a fixed number of bytes at a time.
    struct Pieces<'a>(&'a [u8], usize);

    impl AsyncRead for Pieces<'_> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let count = self.0.len().min(self.1).min(buffer.remaining());
            let (piece, rest) = self.0.split_at(count);
            buffer.put_slice(piece);
            self.0 = rest;
            Poll::Ready(Ok(()))
        }
    }

    /// Returns the output for `given` bytes per inner read, and `asked` per read.
    fn through(bytes: &[u8], given: usize, asked: usize) -> Vec<u8> {
        let mut stream = EscapedTargets::new(Pieces(bytes, given));
        let mut context = Context::from_waker(Waker::noop());
        let mut whole = Vec::new();
        loop {
            let mut bytes = vec![0; asked];
            let mut buffer = ReadBuf::new(&mut bytes);
            let read = Pin::new(&mut stream).poll_read(&mut context, &mut buffer);
            assert!(matches!(read, Poll::Ready(Ok(()))));
            if buffer.filled().is_empty() {
                return whole;
            }
            whole.extend_from_slice(buffer.filled());
        }
    }

    /// Consecutive requests, as pairs of input and output.
    const REQUESTS: [(&str, &str); 6] = [
        (
            "GET /q?query=up{a=\"b\"}>0 HTTP/1.1\r\nHost: \"h\"\r\n\r\n",
            "GET /q?query=up%7Ba=%22b%22%7D%3E0 HTTP/1.1\r\nHost: \"h\"\r\n\r\n",
        ),
        (
            "POST /w HTTP/1.1\r\ncontent-LENGTH:  13\r\nX: {}\r\n\r\n{\"a\"}\n\nGET <>",
            "POST /w HTTP/1.1\r\ncontent-LENGTH:  13\r\nX: {}\r\n\r\n{\"a\"}\n\nGET <>",
        ),
        ("\r\nGET /a|b HTTP/1.1\nHost: h\n\n", "\r\nGET /a%7Cb HTTP/1.1\nHost: h\n\n"),
        ("GET /é HTTP/1.1\r\n\r\n", "GET /%C3%A9 HTTP/1.1\r\n\r\n"),
        (
            "POST /w HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n\r\n",
            "POST /w HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n\r\n",
        ),
        ("GET /after{ HTTP/1.1\r\n\r\n", "GET /after{ HTTP/1.1\r\n\r\n"),
    ];

    #[test]
    fn targets_are_escaped_and_bodies_left_alone() {
        let given: String = REQUESTS.iter().map(|(given, _)| *given).collect();
        let expected: String = REQUESTS.iter().map(|(_, expected)| *expected).collect();
        for read in [1, 2, 3, 7, 64, 10_000] {
            for asked in [1, 5, 10_000] {
                assert_eq!(through(given.as_bytes(), read, asked), expected.as_bytes());
            }
        }
    }

    #[test]
    fn a_length_that_is_none_ends_the_search_for_targets() {
        let text = "POST /w HTTP/1.1\r\nContent-Length: 1x\r\n\r\nGET /{ HTTP/1.1\r\n\r\n";
        assert_eq!(through(text.as_bytes(), 10_000, 10_000), text.as_bytes());
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(
            text in "((GET|POST) /[a-z{\"<]{0,9} HTTP/1\r?\n(Content-Length: [0-9]{1,2}\r?\n)?\r?\n[a-z{\"\r\n]{0,9}){1,4}",
            given in 1_usize..20,
            asked in 1_usize..20,
        ) {
            let whole = through(text.as_bytes(), 100_000, 100_000);
            prop_assert_eq!(through(text.as_bytes(), given, asked), whole);
        }

        #[test]
        fn what_needs_no_escape_is_unchanged(text in "[ !#-;=?-Z_a-z~\r\n]{0,99}") {
            prop_assert_eq!(through(text.as_bytes(), 7, 11), text.as_bytes());
        }
    }
}
