//! Settings of the C library's allocator, and release of free memory.
//!
//! By default, once a large buffer is freed, buffers of that size come from the heaps, which release
//! only memory at their ends, so the process would keep the peak of a seal or query. Free memory of
//! the heaps is released when no query runs.
//!
//! New threads take heaps in turn, and threads with the same heap wait for each other. With one heap
//! per core, a query often has the heap of its worker. More heaps keep more free memory: with four
//! per core, a quarter more is resident after a load of a million series.

#![allow(unsafe_code)]

/// Minimum size of buffers that are mapped, and unmapped when they are freed. A query over thousands
/// of series has buffers of a MiB: a mapping per query would cost a fault for each of their pages.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES_MIN: libc::c_int = 4 << 20;

/// Maximum free bytes at the end of a heap, which are released beyond it.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const FREE_BYTES_MAX: libc::c_int = 16 << 20;

/// Number of heaps per core.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const HEAPS_PER_CORE: usize = 2;

/// Maps large buffers, and limits the number of heaps. Call it once, before threads are started. The
/// environment (`MALLOC_ARENA_MAX`, `MALLOC_MMAP_THRESHOLD_`, `MALLOC_TRIM_THRESHOLD_`) has
/// precedence.
///
/// Does nothing for other C libraries.
pub fn set_up() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let heaps = libc::c_int::try_from(HEAPS_PER_CORE * cores).unwrap_or(libc::c_int::MAX);
        set("MALLOC_ARENA_MAX", libc::M_ARENA_MAX, heaps);
        set("MALLOC_MMAP_THRESHOLD_", libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
        set("MALLOC_TRIM_THRESHOLD_", libc::M_TRIM_THRESHOLD, FREE_BYTES_MAX);
    }
}

/// Releases free memory of all heaps to the system, within a few milliseconds.
///
/// Does nothing for other C libraries.
pub fn release() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the call takes a number, locks each heap, and only unmaps pages that are free.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn set(variable: &str, parameter: libc::c_int, value: libc::c_int) {
    if std::env::var_os(variable).is_none() {
        // SAFETY: the call takes two numbers, and locks what it changes. It refuses a value that
        // it does not know, which then stays as it was.
        unsafe { libc::mallopt(parameter, value) };
    }
}
