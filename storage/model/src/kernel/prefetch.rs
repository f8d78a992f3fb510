//! Memory that is asked for before it is read.
//!
//! Loops over many series wait for a few lines of memory of each of them, one after the other, since
//! each line says where the next one is and counters of references are changed on the way. Asked for
//! some series ahead, the lines of several come at the same time.

#![allow(unsafe_code)]

/// The bytes that memory moves together.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// Has the memory of a value brought nearer, without waiting for it.
///
/// Does nothing where the processor is of another kind.
#[inline(always)]
pub fn prefetch<T: ?Sized>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

        let start = std::ptr::from_ref(value).cast::<i8>();
        for offset in (0..size_of_val(value)).step_by(LINE_BYTES) {
            // SAFETY: the offset is below the size of the value, so that it stays inside of it; what
            // is there is not looked at.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.add(offset)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
