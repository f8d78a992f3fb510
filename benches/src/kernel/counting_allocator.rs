//! System allocator that counts allocated bytes.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// System allocator that counts; a bench sets it as the global allocator.
#[derive(Debug, Clone, Copy, Default)]
pub struct CountingAllocator;

/// Memory before an operation, and its peak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryAccount {
    /// Allocated bytes at its start.
    pub held_before: usize,
    /// Maximum of allocated bytes, including those at its start.
    pub peak: usize,
}

impl MemoryAccount {
    /// Returns the peak memory of the operation itself.
    pub fn peak_of_work(&self) -> usize {
        self.peak - self.held_before
    }
}

/// Runs an operation and counts its memory; all zero unless [`CountingAllocator`] is global. Only one
/// operation at a time, because the peak is that of the process.
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

// SAFETY: every call is forwarded to `System` with its arguments, so the guarantees are those of
// `System`; the counters do not access the memory.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract of `alloc`, which is that of `System`.
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
        // SAFETY: the block was allocated by `System` with this layout, like all blocks.
        unsafe { System.dealloc(block, layout) };
        subtract(layout.size());
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as for `dealloc`; the caller ensures a valid size.
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
    fn blocks_keep_their_bytes_and_are_counted() {
        let layout = Layout::from_size_align(64, 8).unwrap();
        let held = HELD.load(Ordering::Relaxed);
        // SAFETY: the layouts are not empty, and each block is freed once with its own.
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
