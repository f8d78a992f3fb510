//! Profiles of samples: values, units and names.

use std::time::{Duration, SystemTime};

use super::cpu::{self, CpuSamples};
use super::heap::{self, Amount};
use super::proto::{Profile, ValueType};
use super::symbols::Symbols;
use crate::kernel::unwind;

/// Parts of the names of the functions that take a sample of the heap.
const SAMPLING: [&str; 5] = [
    "::profile::heap::",
    "::kernel::watched_allocator::",
    "::kernel::unwind::",
    "__rust_alloc",
    "__rust_realloc",
];
/// Maximum number of these frames, including calls that only an unoptimized build has.
const SAMPLING_FRAMES_MAX: usize = 20;

/// Writes a profile of CPU time.
pub(crate) fn of_cpu(samples: CpuSamples) -> Vec<u8> {
    let interval_ns = cpu::INTERVAL.as_nanos() as u64;
    let mut comments = Vec::new();
    if samples.lost > 0 {
        comments.push(format!("{} samples were lost", samples.lost));
    }
    let value_of = |(stack, count)| (stack, vec![count, count * interval_ns]);
    encode(&Profile {
        sample_types: vec![ValueType("samples", "count"), ValueType("cpu", "nanoseconds")],
        default_sample_type: "cpu",
        samples: samples.stacks.into_iter().map(value_of).collect(),
        period_type: ValueType("cpu", "nanoseconds"),
        period: interval_ns,
        time: SystemTime::now(),
        duration: samples.duration,
        comments,
    })
}

/// Writes a profile of memory in use, and of all allocations since the start; `allocated_first` shows
/// the latter first.
pub(crate) fn of_heap(allocated_first: bool) -> Vec<u8> {
    let snapshot = heap::snapshot();
    let symbols = Symbols::of(snapshot.iter().flat_map(|(stack, _)| stack).copied());
    let mut samples = Vec::new();
    for (stack, totals) in snapshot {
        let stack = without_sampling(&stack, &symbols);
        let amounts = [totals.allocated, totals.in_use];
        let values = amounts.iter().flat_map(|Amount { objects, bytes }| [*objects, *bytes]);
        samples.push((stack.to_vec(), values.map(|value| value.round() as u64).collect()));
    }
    let profile = Profile {
        sample_types: vec![
            ValueType("alloc_objects", "count"),
            ValueType("alloc_space", "bytes"),
            ValueType("inuse_objects", "count"),
            ValueType("inuse_space", "bytes"),
        ],
        default_sample_type: if allocated_first { "alloc_space" } else { "inuse_space" },
        samples,
        period_type: ValueType("space", "bytes"),
        period: heap::INTERVAL_BYTES,
        time: SystemTime::now(),
        duration: Duration::ZERO,
        comments: Vec::new(),
    };
    profile.encode(&symbols, unwind::modules())
}

/// Writes a profile without samples, with the reason.
pub(crate) fn empty(reason: &str) -> Vec<u8> {
    encode(&Profile {
        sample_types: vec![ValueType("samples", "count")],
        default_sample_type: "samples",
        samples: Vec::new(),
        period_type: ValueType("samples", "count"),
        period: 1,
        time: SystemTime::now(),
        duration: Duration::ZERO,
        comments: vec![reason.to_owned()],
    })
}

fn encode(profile: &Profile) -> Vec<u8> {
    let symbols = Symbols::of(profile.samples.iter().flat_map(|(stack, _)| stack).copied());
    profile.encode(&symbols, unwind::modules())
}

/// Returns the stack from the allocating function on.
fn without_sampling<'a>(stack: &'a [u64], symbols: &Symbols) -> &'a [u64] {
    let is_sampling = |address: &u64| {
        let name = symbols.name(*address).unwrap_or_default();
        SAMPLING.iter().any(|part| name.contains(part))
    };
    let first = &stack[..stack.len().min(SAMPLING_FRAMES_MAX)];
    first.iter().rposition(is_sampling).map_or(stack, |last| &stack[last + 1..])
}
