//! A client of remote write.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Encodes a `prometheus.WriteRequest`, series by series.
#[derive(Default)]
pub struct RequestEncoder {
    message: Vec<u8>,
    series: Vec<u8>,
}

impl RequestEncoder {
    /// Removes all series.
    pub fn clear(&mut self) {
        self.message.clear();
    }

    /// Adds a series; `labels` come from [`encode_labels`].
    pub fn push(&mut self, labels: &[u8], samples: impl IntoIterator<Item = (i64, f64)>) {
        self.push_with_exemplars(labels, samples, []);
    }

    /// Adds a series with exemplars: labels, timestamp and value of each.
    pub fn push_with_exemplars(
        &mut self,
        labels: &[u8],
        samples: impl IntoIterator<Item = (i64, f64)>,
        exemplars: impl IntoIterator<Item = (Vec<u8>, i64, f64)>,
    ) {
        self.series.clear();
        self.series.extend_from_slice(labels);
        for (timestamp, value) in samples {
            let mut sample = [0; 20];
            sample[0] = 0x09;
            sample[1..9].copy_from_slice(&value.to_le_bytes());
            sample[9] = 0x10;
            let mut len = 10;
            push_varint(timestamp as u64, |byte| {
                sample[len] = byte;
                len += 1;
            });
            push_field(&mut self.series, 2, &sample[..len]);
        }
        for (mut exemplar, timestamp, value) in exemplars {
            exemplar.push(0x11);
            exemplar.extend_from_slice(&value.to_le_bytes());
            exemplar.push(0x18);
            push_varint(timestamp as u64, |byte| exemplar.push(byte));
            push_field(&mut self.series, 3, &exemplar);
        }
        push_field(&mut self.message, 1, &self.series);
    }

    /// Returns the message.
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// Compresses the message into `body`.
    pub fn compress(&self, body: &mut Vec<u8>) {
        body.resize(snap::raw::max_compress_len(self.message.len()), 0);
        let len = snap::raw::Encoder::new()
            .compress(&self.message, body)
            .expect("the buffer has the length that the encoder asks for");
        body.truncate(len);
    }
}

/// Encodes the labels of a series, which the caller has sorted by name.
pub fn encode_labels<N: AsRef<str>, V: AsRef<str>>(
    labels: impl IntoIterator<Item = (N, V)>,
) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in labels {
        let mut label = Vec::new();
        push_field(&mut label, 1, name.as_ref().as_bytes());
        push_field(&mut label, 2, value.as_ref().as_bytes());
        push_field(&mut out, 1, &label);
    }
    out
}

fn push_field(out: &mut Vec<u8>, number: u8, content: &[u8]) {
    out.push(number << 3 | 2);
    push_varint(content.len() as u64, |byte| out.push(byte));
    out.extend_from_slice(content);
}

fn push_varint(mut value: u64, mut push: impl FnMut(u8)) {
    while value >= 0x80 {
        push(value as u8 | 0x80);
        value >>= 7;
    }
    push(value as u8);
}

/// A connection that requests reuse.
pub struct Connection {
    stream: TcpStream,
    head: Vec<u8>,
    answer: Vec<u8>,
    answer_head: String,
}

impl Connection {
    /// Head of the last response, in lower case.
    pub fn answer_head(&self) -> &str {
        &self.answer_head
    }

    pub fn open(address: &str) -> Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Connection { stream, head: Vec::new(), answer: Vec::new(), answer_head: String::new() })
    }

    /// Sends a request of version 1 and returns the status and the text of the response.
    pub fn write(&mut self, body: &[u8]) -> Result<(u16, String)> {
        self.send(body, "application/x-protobuf", "0.1.0")
    }

    /// Sends a request of version 2 and returns the status and the text of the response.
    pub fn write_v2(&mut self, body: &[u8]) -> Result<(u16, String)> {
        self.send(body, "application/x-protobuf;proto=io.prometheus.write.v2.Request", "2.0.0")
    }

    fn send(&mut self, body: &[u8], kind: &str, version: &str) -> Result<(u16, String)> {
        self.head.clear();
        write!(
            self.head,
            "POST /api/v1/write HTTP/1.1\r\nHost: tessella\r\n\
             Content-Type: {kind}\r\nContent-Encoding: snappy\r\n\
             X-Prometheus-Remote-Write-Version: {version}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )?;
        self.stream.write_all(&self.head)?;
        self.stream.write_all(body)?;
        self.read_answer()
    }

    fn read_answer(&mut self) -> Result<(u16, String)> {
        self.answer.clear();
        let head_end = loop {
            if let Some(at) = self.answer.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            self.read_some()?;
        };
        let invalid = || Error::new(ErrorKind::InvalidData, "not an HTTP answer");
        let head = String::from_utf8_lossy(&self.answer[..head_end]).to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or_else(invalid)?;
        let body_len = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"))
            .map_or(Ok(0), |text| text.trim().parse::<usize>().map_err(|_| invalid()))?;
        while self.answer.len() < head_end + body_len {
            self.read_some()?;
        }
        self.answer_head = head;
        let text = String::from_utf8_lossy(&self.answer[head_end..head_end + body_len]);
        Ok((status, text.into_owned()))
    }

    fn read_some(&mut self) -> Result<()> {
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes)? {
            0 => Err(Error::from(ErrorKind::UnexpectedEof)),
            len => {
                self.answer.extend_from_slice(&bytes[..len]);
                Ok(())
            }
        }
    }
}
