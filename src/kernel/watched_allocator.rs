//! The system's allocator, with an observer that is told of each allocation.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};

/// An observer of allocations.
///
/// Its methods run inside the allocator: they must not panic, and what they allocate comes back to
/// them.
pub trait AllocationWatch: Sync {
    /// Notes that `bytes` at `address` have been allocated; at 0 where the allocation has failed.
    fn allocated(&self, address: usize, bytes: usize);

    /// Notes that what is at `address` is about to be freed.
    fn freed(&self, address: usize);
}

/// The system's allocator, observed.
///
/// Every pointer is the system's own, with the layout that was asked for.
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
        // Before the call, after which another thread may own the old address.
        self.0.freed(pointer.addr());
        // SAFETY: the caller's contract is the system's.
        let pointer = unsafe { System.realloc(pointer, layout, size) };
        self.0.allocated(pointer.addr(), size);
        pointer
    }
}
