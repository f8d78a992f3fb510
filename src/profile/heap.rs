//! Samples of allocations with their stacks, about one per 512 KiB.
//!
//! Points are distributed at random over the bytes of all allocations, and an allocation with a point
//! is sampled; its weight is the inverse of that probability. Between two points, an allocation costs
//! a subtraction, and a `free` the check of a bit. Allocations of C libraries and mapped memory are
//! not sampled.
//!
//! Source: the sampling of Go's `runtime.MemProfileRate`, and of tcmalloc.

use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::address_set::AddressSet;
use crate::kernel::unwind;
use crate::kernel::watched_allocator::AllocationWatch;

/// Mean distance of two points.
pub(crate) const INTERVAL_BYTES: u64 = 512 << 10;
/// Number of samples in use at which the distance doubles again, so that 64 GiB have 20,000.
const LIVE_DOUBLING: usize = 4_096;
/// Maximum number of distinct stacks; further ones are counted together.
const STACKS_MAX: usize = 8_192;
/// Maximum number of frames of a stack.
const FRAMES_MAX: usize = 64;

/// Observer of the program's allocator.
#[derive(Debug)]
pub struct HeapSampler;

impl AllocationWatch for HeapSampler {
    #[inline(always)]
    fn allocated(&self, address: usize, bytes: usize) {
        THREAD.with(|thread| {
            // No allocation has more than `isize::MAX` bytes.
            let left = thread.left.get().wrapping_sub(bytes as i64);
            thread.left.set(left);
            if left < 0 {
                thread.point_reached(address, bytes);
            }
        });
    }

    #[inline(always)]
    fn freed(&self, address: usize) {
        if SAMPLED.may_contain(address) {
            freed_maybe(address);
        }
    }
}

/// Prepares sampling; before that, nothing is sampled.
pub fn start() {
    // Without support, profiles state the reason.
    let _ = unwind::prepare();
}

/// Estimates of allocated and in-use memory of one stack.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct Totals {
    pub(crate) allocated: Amount,
    pub(crate) in_use: Amount,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct Amount {
    pub(crate) objects: f64,
    pub(crate) bytes: f64,
}

/// Returns estimates by stack; the empty stack stands for those beyond the limit.
pub(crate) fn snapshot() -> Vec<(Vec<u64>, Totals)> {
    with_table(|table| {
        let stacks = table.stacks.iter();
        stacks.map(|(stack, id)| (stack.to_vec(), table.totals[*id])).collect()
    })
    .unwrap_or_default()
}

/// Sampling countdown of a thread.
struct Thread {
    /// Bytes until the next point.
    left: Cell<i64>,
    /// State of the random numbers; 0 until the first.
    random: Cell<u64>,
    /// True while this module runs, whose own allocations are not sampled.
    is_inside: Cell<bool>,
}

thread_local! {
    static THREAD: Thread = const {
        Thread { left: Cell::new(0), random: Cell::new(0), is_inside: Cell::new(false) }
    };
}

/// Addresses of samples in use.
static SAMPLED: AddressSet = AddressSet::new();
/// Mean distance of the next points.
static INTERVAL: AtomicU64 = AtomicU64::new(INTERVAL_BYTES);
static TABLE: Mutex<Table> = Mutex::new(Table {
    stacks: HashMap::with_hasher(BuildHasherDefault::new()),
    totals: Vec::new(),
    live: HashMap::with_hasher(BuildHasherDefault::new()),
});

struct Table {
    /// Positions in `totals`.
    stacks: HashMap<Box<[u64]>, usize, BuildHasherDefault<DefaultHasher>>,
    totals: Vec<Totals>,
    /// Samples in use by address: position in `totals`, and weight.
    live: HashMap<usize, (usize, Amount), BuildHasherDefault<DefaultHasher>>,
}

impl Thread {
    /// Samples an allocation that has a point, and draws the next one.
    #[cold]
    #[inline(never)]
    fn point_reached(&self, address: usize, bytes: usize) {
        if self.is_inside.get() {
            return;
        }
        let interval = INTERVAL.load(Ordering::Relaxed);
        if self.random.get() == 0 {
            self.random.set(seed());
            let left = self.distance(interval).wrapping_sub(bytes as i64);
            self.left.set(left);
            if left >= 0 {
                return;
            }
        }
        self.left.set(self.distance(interval));
        // A failed allocation has no address.
        if address != 0 {
            record(address, weigh(bytes, interval));
        }
    }

    /// Draws the distance to the next point: exponential, as points are independent.
    fn distance(&self, interval: u64) -> i64 {
        let random = next_random(self.random.get());
        self.random.set(random);
        let scrambled = random.wrapping_mul(0x2545_f491_4f6c_dd1d);
        // In (0, 1].
        let uniform = ((scrambled >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        (-uniform.ln() * interval as f64) as i64
    }
}

/// Returns the number of allocations of this size that one sample represents.
fn weigh(bytes: usize, interval: u64) -> Amount {
    let bytes = bytes as f64;
    let probability = -(-bytes / interval as f64).exp_m1();
    Amount { objects: 1.0 / probability, bytes: bytes / probability }
}

/// Returns a seed that is not 0, and differs between threads.
fn seed() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(0);
    let number = THREADS.fetch_add(1, Ordering::Relaxed) + 1;
    next_random(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).max(1)
}

/// Returns the next state of xorshift64*, never 0 after another number.
fn next_random(mut state: u64) -> u64 {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    state
}

#[inline(never)]
fn record(address: usize, amount: Amount) {
    let mut frames = [0; FRAMES_MAX];
    let count = unwind::walk_here(&mut frames);
    if count == 0 {
        return;
    }
    with_table(|table| table.add(address, &frames[..count], amount));
}

/// Removes the sample at an address, if there is one.
#[cold]
#[inline(never)]
fn freed_maybe(address: usize) {
    if SAMPLED.contains(address) {
        with_table(|table| table.remove(address));
    }
}

/// Calls a function with the table. Returns `None` if this thread uses it already: allocations during
/// that use are not sampled.
fn with_table<T>(use_table: impl FnOnce(&mut Table) -> T) -> Option<T> {
    THREAD.with(|thread| {
        if thread.is_inside.replace(true) {
            return None;
        }
        let mut table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
        let used = use_table(&mut table);
        drop(table);
        thread.is_inside.set(false);
        Some(used)
    })
}

impl Table {
    fn add(&mut self, address: usize, stack: &[u64], amount: Amount) {
        let id = self.id_of(stack);
        let totals = &mut self.totals[id];
        totals.allocated.add(amount, 1.0);
        if SAMPLED.insert(address) {
            totals.in_use.add(amount, 1.0);
            self.live.insert(address, (id, amount));
            self.set_interval();
        }
    }

    fn remove(&mut self, address: usize) {
        if let Some((id, amount)) = self.live.remove(&address) {
            SAMPLED.remove(address);
            self.totals[id].in_use.add(amount, -1.0);
            self.set_interval();
        }
    }

    fn id_of(&mut self, stack: &[u64]) -> usize {
        // The last one stands for all others.
        let is_full = self.stacks.len() + 1 >= STACKS_MAX;
        let stack = if is_full && !self.stacks.contains_key(stack) { &[] } else { stack };
        if let Some(id) = self.stacks.get(stack) {
            return *id;
        }
        let id = self.totals.len();
        self.totals.push(Totals::default());
        self.stacks.insert(stack.into(), id);
        id
    }

    fn set_interval(&self) {
        let doublings = (self.live.len() / LIVE_DOUBLING).min(20);
        INTERVAL.store(INTERVAL_BYTES << doublings, Ordering::Relaxed);
    }
}

impl Amount {
    fn add(&mut self, other: Amount, factor: f64) {
        self.objects += factor * other.objects;
        self.bytes += factor * other.bytes;
    }
}
