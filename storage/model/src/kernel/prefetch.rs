//! Prefetching of memory into the CPU cache.
//!
//! Loops over many series wait for a few cache lines of each, one after the other: each line holds the
//! address of the next, and reference counters change in between. When they are prefetched some series
//! ahead, the lines of several series load at the same time.

#![allow(unsafe_code)]

/// Size of a cache line.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// Prefetches the memory of a value into the cache, without waiting for it.
///
/// Does nothing on other CPUs than x86-64.
#[inline(always)]
pub fn prefetch<T: ?Sized>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

        let start = std::ptr::from_ref(value).cast::<i8>();
        for offset in (0..size_of_val(value)).step_by(LINE_BYTES) {
            // SAFETY: the offset is below the size of the value, so the address is inside of it; a
            // prefetch does not read the content.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.add(offset)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
