//! Format of profiles for `pprof`.
//!
//! Source: `proto/profile.proto` of google/pprof, whose fields have these numbers.

use std::collections::HashMap;
use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;
use wire::fields::{push_bytes, push_integer, push_integers};

use super::symbols::Symbols;
use crate::kernel::unwind::Module;

/// Name of stacks beyond the limit.
const OTHERS: &str = "[stacks beyond the limit]";

/// Fields of `Profile`.
mod profile {
    pub(super) const SAMPLE_TYPE: u32 = 1;
    pub(super) const SAMPLE: u32 = 2;
    pub(super) const MAPPING: u32 = 3;
    pub(super) const LOCATION: u32 = 4;
    pub(super) const FUNCTION: u32 = 5;
    pub(super) const STRING_TABLE: u32 = 6;
    pub(super) const TIME_NANOS: u32 = 9;
    pub(super) const DURATION_NANOS: u32 = 10;
    pub(super) const PERIOD_TYPE: u32 = 11;
    pub(super) const PERIOD: u32 = 12;
    pub(super) const COMMENT: u32 = 13;
    pub(super) const DEFAULT_SAMPLE_TYPE: u32 = 14;
}

/// Type and unit of a value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ValueType(pub(crate) &'static str, pub(crate) &'static str);

/// Profile before it is encoded.
#[derive(Debug)]
pub(crate) struct Profile {
    /// Types of the values of each sample.
    pub(crate) sample_types: Vec<ValueType>,
    /// Type that is shown first.
    pub(crate) default_sample_type: &'static str,
    /// Stacks, the innermost frame first, with their values.
    pub(crate) samples: Vec<(Vec<u64>, Vec<u64>)>,
    /// Type of the sampling period.
    pub(crate) period_type: ValueType,
    pub(crate) period: u64,
    /// End of sampling.
    pub(crate) time: SystemTime,
    /// Duration of sampling.
    pub(crate) duration: Duration,
    pub(crate) comments: Vec<String>,
}

/// String table; the first text is empty.
struct Strings {
    positions: HashMap<String, u64>,
    texts: Vec<String>,
}

/// Locations and functions by id, from 1 on.
#[derive(Default)]
struct Locations {
    /// Ids of locations by address; `None` is that of other stacks.
    locations: HashMap<Option<u64>, u64>,
    functions: HashMap<u64, u64>,
}

impl Profile {
    /// Encodes the profile, compressed with gzip.
    pub(crate) fn encode(&self, symbols: &Symbols, modules: &[Module]) -> Vec<u8> {
        let message = self.message(symbols, modules);
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        // Writing to a `Vec` cannot fail.
        packed.write_all(&message).and_then(|()| packed.finish()).expect("writing to memory")
    }

    fn message(&self, symbols: &Symbols, modules: &[Module]) -> Vec<u8> {
        let mut out = Vec::new();
        let (mut strings, mut locations) = (Strings::new(), Locations::default());
        for value_type in &self.sample_types {
            push_bytes(&mut out, profile::SAMPLE_TYPE, &value_type.message(&mut strings));
        }
        for (stack, values) in &self.samples {
            let stack = stack.iter().copied().map(Some);
            let locations: Vec<u64> = if stack.len() == 0 {
                vec![locations.location(&mut out, None, symbols, modules, &mut strings)]
            } else {
                stack
                    .map(|at| locations.location(&mut out, at, symbols, modules, &mut strings))
                    .collect()
            };
            let mut sample = Vec::new();
            push_integers(&mut sample, 1, &locations);
            push_integers(&mut sample, 2, values);
            push_bytes(&mut out, profile::SAMPLE, &sample);
        }
        for (position, module) in modules.iter().enumerate() {
            let path = module.path.to_string_lossy();
            let mut mapping = Vec::new();
            push_integer(&mut mapping, 1, position as u64 + 1);
            push_integer(&mut mapping, 2, module.addresses.start);
            push_integer(&mut mapping, 3, module.addresses.end);
            push_integer(&mut mapping, 5, strings.position(&path));
            // The functions are named here, so readers do not need the file.
            push_integer(&mut mapping, 7, 1);
            push_bytes(&mut out, profile::MAPPING, &mapping);
        }
        self.push_rest(&mut out, &mut strings);
        out
    }

    fn push_rest(&self, out: &mut Vec<u8>, strings: &mut Strings) {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let time = self.time.duration_since(UNIX_EPOCH).unwrap_or_default();
        push_integer(out, profile::TIME_NANOS, nanos(time));
        push_integer(out, profile::DURATION_NANOS, nanos(self.duration));
        push_bytes(out, profile::PERIOD_TYPE, &self.period_type.message(strings));
        push_integer(out, profile::PERIOD, self.period);
        let comments: Vec<u64> = self.comments.iter().map(|text| strings.position(text)).collect();
        push_integers(out, profile::COMMENT, &comments);
        let default = strings.position(self.default_sample_type);
        push_integer(out, profile::DEFAULT_SAMPLE_TYPE, default);
        for text in &strings.texts {
            push_bytes(out, profile::STRING_TABLE, text.as_bytes());
        }
    }
}

impl ValueType {
    fn message(self, strings: &mut Strings) -> Vec<u8> {
        let mut out = Vec::new();
        push_integer(&mut out, 1, strings.position(self.0));
        push_integer(&mut out, 2, strings.position(self.1));
        out
    }
}

impl Strings {
    fn new() -> Strings {
        Strings { positions: HashMap::from([(String::new(), 0)]), texts: vec![String::new()] }
    }

    fn position(&mut self, text: &str) -> u64 {
        if let Some(position) = self.positions.get(text) {
            return *position;
        }
        let position = self.texts.len() as u64;
        self.texts.push(text.to_owned());
        self.positions.insert(text.to_owned(), position);
        position
    }
}

impl Locations {
    /// Returns the id of the location of an address, which is written at the first use.
    fn location(
        &mut self,
        out: &mut Vec<u8>,
        address: Option<u64>,
        symbols: &Symbols,
        modules: &[Module],
        strings: &mut Strings,
    ) -> u64 {
        if let Some(number) = self.locations.get(&address) {
            return *number;
        }
        let number = self.locations.len() as u64 + 1;
        self.locations.insert(address, number);
        let mut location = Vec::new();
        push_integer(&mut location, 1, number);
        if let Some(address) = address {
            let module = modules.iter().position(|m| m.addresses.contains(&address));
            push_integer(&mut location, 2, module.map_or(0, |position| position as u64 + 1));
            push_integer(&mut location, 3, address);
        }
        if let Some(name) = address.map_or(Some(OTHERS), |address| symbols.name(address)) {
            let mut line = Vec::new();
            push_integer(&mut line, 1, self.function(out, name, strings));
            push_bytes(&mut location, 4, &line);
        }
        push_bytes(out, profile::LOCATION, &location);
        number
    }

    fn function(&mut self, out: &mut Vec<u8>, name: &str, strings: &mut Strings) -> u64 {
        let name = strings.position(name);
        let number = self.functions.len() as u64 + 1;
        *self.functions.entry(name).or_insert_with(|| {
            let mut function = Vec::new();
            push_integer(&mut function, 1, number);
            // Without the system name, because pprof would take it for C++ and shorten it.
            push_integer(&mut function, 2, name);
            push_bytes(out, profile::FUNCTION, &function);
            number
        })
    }
}
