//! The system's allocator with an account of the bytes that are held.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, counting; a bench makes it the global one.
#[derive(Debug, Clone, Copy, Default)]
pub struct CountingAllocator;

/// Bytes held before, and the most held during, a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryAccount {
    /// Bytes held when it began.
    pub held_before: usize,
    /// The most bytes held at once, those before it included.
    pub peak: usize,
}

impl MemoryAccount {
    /// The most bytes that the work itself held at once.
    pub fn peak_of_work(&self) -> usize {
        self.peak - self.held_before
    }
}

/// Runs some work and counts its memory; all zero unless [`CountingAllocator`] is global.
/// One piece of work at a time: the peak is the whole process'.
pub fn account<T>(work: impl FnOnce() -> T) -> (T, MemoryAccount) {
    let held_before = HELD.load(Ordering::Relaxed);
    PEAK.store(held_before, Ordering::Relaxed);
    let result = work();
    let peak = PEAK.load(Ordering::Relaxed).max(held_before);
    (result, MemoryAccount { held_before, peak })
}

fn add(bytes: usize) {
    let held = HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(held, Ordering::Relaxed);
}

fn subtract(bytes: usize) {
    HELD.fetch_sub(bytes, Ordering::Relaxed);
}

// SAFETY: every call is handed on to `System` with the arguments that it came with, so its
// guarantees are `System`'s; the counters never touch the memory.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract of `alloc`, which is `System`'s.
        let block = unsafe { System.alloc(layout) };
        if !block.is_null() {
            add(layout.size());
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for `alloc`.
        let block = unsafe { System.alloc_zeroed(layout) };
        if !block.is_null() {
            add(layout.size());
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block came from `System` with this layout, because all do.
        unsafe { System.dealloc(block, layout) };
        subtract(layout.size());
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as for `dealloc`; the caller vouches for the size.
        let moved = unsafe { System.realloc(block, layout, size) };
        if !moved.is_null() {
            add(size);
            subtract(layout.size());
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_keep_their_bytes_and_leave_the_account_even() {
        let layout = Layout::from_size_align(64, 8).unwrap();
        let held = HELD.load(Ordering::Relaxed);
        // SAFETY: the layouts have a size, each block is given back once with its own.
        unsafe {
            let block = CountingAllocator.alloc_zeroed(layout);
            assert_eq!(*block.add(63), 0);
            *block = 7;
            let block = CountingAllocator.realloc(block, layout, 128);
            assert_eq!(*block, 7);
            assert_eq!(HELD.load(Ordering::Relaxed), held + 128);
            CountingAllocator.dealloc(block, Layout::from_size_align(128, 8).unwrap());
        }
        assert_eq!(HELD.load(Ordering::Relaxed), held);
    }
}
