//! System allocator with an observer of each allocation.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};

/// Observer of allocations.
///
/// Its methods run inside the allocator: they must not panic, and their allocations call them again.
pub trait AllocationWatch: Sync {
    /// Records that `bytes` at `address` are allocated; `address` is 0 after a failure.
    fn allocated(&self, address: usize, bytes: usize);

    /// Records that `address` is about to be freed.
    fn freed(&self, address: usize);
}

/// Observed system allocator.
///
/// Every pointer is the system's own, with the requested layout.
#[derive(Debug)]
pub struct WatchedAllocator<W>(pub W);

// SAFETY: each method is the system's method of that name, with the same arguments and result. The
// observer is given addresses as numbers, and dereferences none of them.
unsafe impl<W: AllocationWatch> GlobalAlloc for WatchedAllocator<W> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract is the system's.
        let pointer = unsafe { System.alloc(layout) };
        self.0.allocated(pointer.addr(), layout.size());
        pointer
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract is the system's.
        let pointer = unsafe { System.alloc_zeroed(layout) };
        self.0.allocated(pointer.addr(), layout.size());
        pointer
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        self.0.freed(pointer.addr());
        // SAFETY: the caller's contract is the system's.
        unsafe { System.dealloc(pointer, layout) };
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Before the call, because another thread may own the old address after it.
        self.0.freed(pointer.addr());
        // SAFETY: the caller's contract is the system's.
        let pointer = unsafe { System.realloc(pointer, layout, size) };
        self.0.allocated(pointer.addr(), size);
        pointer
    }
}
