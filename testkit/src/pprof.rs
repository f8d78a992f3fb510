//! Messages of profiles for prost, the twin of our encoder.

use std::io::Read;

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub struct Profile {
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    pub period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    pub period: i64,
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct ValueType {
    #[prost(int64, tag = "1")]
    pub kind: i64,
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Mapping {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub memory_start: u64,
    #[prost(uint64, tag = "3")]
    pub memory_limit: u64,
    #[prost(int64, tag = "5")]
    pub filename: i64,
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Location {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    #[prost(uint64, tag = "3")]
    pub address: u64,
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Line {
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Function {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(int64, tag = "2")]
    pub name: i64,
}

impl Profile {
    /// Decodes a profile compressed with gzip.
    pub fn unpack(bytes: &[u8]) -> Profile {
        let mut message = Vec::new();
        flate2::read::GzDecoder::new(bytes).read_to_end(&mut message).expect("the profile is gzip");
        Profile::read(&message)
    }

    pub fn read(message: &[u8]) -> Profile {
        let profile = Profile::decode(message).expect("the profile is valid protobuf");
        profile.check();
        profile
    }

    pub fn text(&self, position: i64) -> &str {
        &self.string_table[usize::try_from(position).expect("positions are positive")]
    }

    /// Returns types and units of the values.
    pub fn types(&self) -> Vec<String> {
        let types = self.sample_type.iter();
        types.map(|t| format!("{}/{}", self.text(t.kind), self.text(t.unit))).collect()
    }

    pub fn comments(&self) -> Vec<&str> {
        self.comment.iter().map(|position| self.text(*position)).collect()
    }

    /// Returns the functions of a sample, the innermost first; `?` has no name.
    pub fn stack(&self, sample: &Sample) -> Vec<&str> {
        let name_of = |id: &u64| {
            let location = self
                .location
                .iter()
                .find(|location| location.id == *id)
                .expect("each location is listed");
            let line = location.line.first();
            let function = line.and_then(|l| self.function.iter().find(|f| f.id == l.function_id));
            function.map_or("?", |function| self.text(function.name))
        };
        sample.location_id.iter().map(name_of).collect()
    }

    /// Returns whether a sample has a function whose name contains `part`.
    pub fn has_function(&self, part: &str) -> bool {
        self.function.iter().any(|function| self.text(function.name).contains(part))
    }

    /// Returns the sum of a value over all samples with a function whose name contains `part`.
    pub fn sum(&self, value: usize, part: &str) -> i64 {
        let with_part =
            |sample: &&Sample| self.stack(sample).iter().any(|name| name.contains(part));
        self.sample.iter().filter(with_part).map(|sample| sample.value[value]).sum()
    }

    /// Checks the rules of `CheckValid` of google/pprof, and that the first text is empty.
    fn check(&self) {
        assert_eq!(self.string_table.first().map(String::as_str), Some(""));
        let ids = |ids: Vec<u64>| {
            for (position, id) in ids.iter().enumerate() {
                assert!(*id != 0 && !ids[..position].contains(id), "{id}");
            }
            ids
        };
        let mappings = ids(self.mapping.iter().map(|mapping| mapping.id).collect());
        let functions = ids(self.function.iter().map(|function| function.id).collect());
        let locations = ids(self.location.iter().map(|location| location.id).collect());
        for sample in &self.sample {
            assert_eq!(sample.value.len(), self.sample_type.len());
            assert!(!sample.location_id.is_empty());
            assert!(sample.location_id.iter().all(|id| locations.contains(id)));
        }
        for location in &self.location {
            assert!(location.mapping_id == 0 || mappings.contains(&location.mapping_id));
            assert!(location.line.iter().all(|line| functions.contains(&line.function_id)));
        }
    }
}
