//! How the allocator of the C library gives memory back.
//!
//! By default it has eight heaps for each core, and once a large buffer has been freed it takes
//! buffers of that size from the heaps, of which only the ends go back to the system. What a seal
//! or a query has needed for a moment would stay with the process. More heaps than cores are hardly
//! faster, and keep half as much again. What they keep free is given back once queries have come to
//! rest.

#![allow(unsafe_code)]

/// Buffers from this size on are mapped, and unmapped when they are freed. A query over some
/// thousands of series takes some of a MiB each: mapping these anew for every query would cost a
/// fault for each of their pages.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES_MIN: libc::c_int = 4 << 20;

/// So much may be free at the end of a heap before it goes back to the system.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const FREE_BYTES_MAX: libc::c_int = 16 << 20;

/// Has large buffers mapped and one heap for each core. To be called once, before threads are
/// started. What the environment sets (`MALLOC_ARENA_MAX`, `MALLOC_MMAP_THRESHOLD_`,
/// `MALLOC_TRIM_THRESHOLD_`) stays.
///
/// Does nothing where the C library is another one.
pub fn set_up() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let heaps = libc::c_int::try_from(cores.max(2)).unwrap_or(libc::c_int::MAX);
        set("MALLOC_ARENA_MAX", libc::M_ARENA_MAX, heaps);
        set("MALLOC_MMAP_THRESHOLD_", libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
        set("MALLOC_TRIM_THRESHOLD_", libc::M_TRIM_THRESHOLD, FREE_BYTES_MAX);
    }
}

/// Gives what is free in all heaps back to the system. It takes a millisecond or a few.
///
/// Does nothing where the C library is another one.
pub fn give_back() {
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
