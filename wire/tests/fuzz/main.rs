//! The fuzz targets in a seeded loop: messages of known fields, then damaged.
//!
//! The environment variables `FUZZ_SEED` and `FUZZ_COUNT` set the seed and the number of messages.

mod targets;

use prost::Message as _;
use wire::Version;
use wire::otlp::Encoding;

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// Generator of pseudorandom numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }

    fn varint(&mut self, out: &mut Vec<u8>) {
        let mut value = match self.below(8) {
            0 => self.0,
            1 => self.0 >> 20,
            _ => self.below(9),
        };
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    }

    fn text(&mut self) -> Vec<u8> {
        match self.below(6) {
            0 => Vec::new(),
            1 => b"__name__".to_vec(),
            2 => vec![b'a' + self.below(4) as u8; 1 + self.below(300) as usize],
            3 => vec![self.below(256) as u8],
            _ => vec![b'a' + self.below(26) as u8, b'b'],
        }
    }

    /// Returns a message of any fields, mostly small numbers, with nested messages up to a depth.
    fn message(&mut self, depth: u64) -> Vec<u8> {
        let mut out = Vec::new();
        for _ in 0..self.below(6) {
            let number_max = if self.below(9) == 0 { 20 } else { 5 };
            let number = 1 + self.below(number_max) as u8;
            match self.below(8) {
                0 => {
                    out.push(number << 3);
                    self.varint(&mut out);
                }
                1 => {
                    out.push(number << 3 | 1);
                    out.extend(self.below(1 << 30).to_le_bytes());
                }
                kind => {
                    let content = match kind {
                        2 => self.text(),
                        3 => {
                            let mut packed = Vec::new();
                            (0..self.below(5)).for_each(|_| self.varint(&mut packed));
                            packed
                        }
                        _ if depth == 0 => Vec::new(),
                        _ => self.message(depth - 1),
                    };
                    out.extend([number << 3 | 2]);
                    push_len(&mut out, content.len());
                    out.extend(content);
                }
            }
        }
        out
    }
}

fn push_len(out: &mut Vec<u8>, len: usize) {
    assert!(len < 1 << 14, "the length has at most two bytes");
    if len >= 0x80 {
        out.push(len as u8 | 0x80);
        out.push((len >> 7) as u8);
    } else {
        out.push(len as u8);
    }
}

/// Returns a symbol table and valid series with random fields added.
fn request(random: &mut Random) -> Vec<u8> {
    let mut out = vec![0x22, 0, 0x22, 8];
    out.extend(b"__name__");
    for text in [&b"up"[..], b"a", b"b"] {
        out.extend([0x22, text.len() as u8]);
        out.extend(text);
    }
    for _ in 0..1 + random.below(3) {
        let mut series = vec![0x0a, 4, 1, 2, 3, 1 + random.below(5) as u8];
        series.extend([0x12, 11, 0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0x10, 5]);
        series.extend(random.message(2));
        out.push(0x2a);
        push_len(&mut out, series.len());
        out.extend(series);
    }
    out
}

#[test]
fn messages_decode_to_consistent_batches() {
    let mut random = Random(setting("FUZZ_SEED", 1));
    for _ in 0..setting("FUZZ_COUNT", 30_000) {
        let mut bytes = match random.below(3) {
            0 => random.message(4),
            1 => request(&mut random),
            _ => {
                let mut bytes = request(&mut random);
                for _ in 0..=random.below(3) {
                    let at = random.below(bytes.len() as u64) as usize;
                    bytes[at] = random.below(256) as u8;
                }
                bytes
            }
        };
        if random.below(4) == 0 {
            bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
        }
        for version in [Version::V1, Version::V2] {
            targets::decode_bytes(version, &bytes);
        }
    }
}

#[test]
fn messages_of_otlp_decode_to_consistent_batches() {
    let mut random = Random(setting("FUZZ_SEED", 1));
    let mut generator =
        testkit::otlppb::Generator::new(setting("FUZZ_SEED", 1), 1_700_000_000_000_000_000);
    for _ in 0..setting("FUZZ_COUNT", 300) {
        let request = generator.request();
        let protobuf = match random.below(4) {
            0 => random.message(8),
            _ => request.encode_to_vec(),
        };
        let json = request.to_json().to_string().into_bytes();
        for (encoding, mut bytes) in [(Encoding::Protobuf, protobuf), (Encoding::Json, json)] {
            for _ in 0..random.below(4) {
                let at = random.below(bytes.len() as u64 + 1) as usize;
                match random.below(3) {
                    0 => bytes.truncate(at),
                    1 => bytes.insert(at, b"\"{[0:,\\\xff"[random.below(8) as usize]),
                    _ if at < bytes.len() => bytes[at] = random.below(256) as u8,
                    _ => {}
                }
            }
            targets::decode_otlp(encoding, &bytes);
        }
    }
}
