//! Core of a thread.
//!
//! On a virtual machine, Linux often wakes a thread on the core of the thread that wakes it, though
//! another core is idle: an idle core looks like one that the host runs something else on. Both
//! threads then share a core until the kernel balances the load, which takes up to 20 ms.

#![allow(unsafe_code)]

/// Core that a thread runs on; `None` if it is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Core(Option<usize>);

impl Core {
    /// Returns the core of the calling thread.
    #[inline]
    pub(super) fn current() -> Core {
        #[cfg(target_os = "linux")]
        // SAFETY: the call takes nothing and returns a number.
        let core = usize::try_from(unsafe { libc::sched_getcpu() }).ok();
        #[cfg(not(target_os = "linux"))]
        let core = None;
        Core(core)
    }

    /// Moves the calling thread to another core if it runs on this one and may run on others.
    /// Later, the kernel may move it to any core that it was allowed to run on.
    pub(super) fn leave(self) {
        #[cfg(target_os = "linux")]
        if let Some(core) = self.0
            && Core::current() == self
        {
            move_from(core);
        }
    }
}

/// Moves the calling thread from a core. Errors are ignored: a thread that stays is only slower.
#[cfg(target_os = "linux")]
fn move_from(core: usize) {
    const BYTES: usize = size_of::<libc::cpu_set_t>();
    if core >= libc::CPU_SETSIZE as usize {
        return;
    }
    // SAFETY: a set of cores is plain bits, for which zeros are the empty set. The calls read or
    // write one set of the size that they are told, and `core` is a bit of it. Thread 0 is the
    // calling one.
    unsafe {
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, BYTES, &raw mut allowed) != 0 {
            return;
        }
        let mut others = allowed;
        libc::CPU_CLR(core, &mut others);
        if libc::CPU_COUNT(&others) > 0 && libc::sched_setaffinity(0, BYTES, &raw const others) == 0
        {
            libc::sched_setaffinity(0, BYTES, &raw const allowed);
        }
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    fn allowed_count() -> i32 {
        // SAFETY: as in `move_from`.
        unsafe {
            let mut allowed: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut allowed);
            libc::CPU_COUNT(&allowed)
        }
    }

    #[test]
    fn a_thread_that_moved_may_run_on_all_cores_as_before() {
        let before = allowed_count();
        for _ in 0..10 {
            Core::current().leave();
            assert_eq!(allowed_count(), before);
        }
        Core(None).leave();
        Core(Some(usize::MAX)).leave();
        move_from(usize::MAX);
        assert_eq!(allowed_count(), before);
    }

    #[test]
    fn a_thread_on_its_only_core_stays() {
        let thread = std::thread::spawn(|| {
            let Core(Some(core)) = Core::current() else { return };
            // SAFETY: as in `move_from`.
            unsafe {
                let mut only: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(core, &mut only);
                libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const only);
            }
            let core = Core::current();
            core.leave();
            assert_eq!((Core::current(), allowed_count()), (core, 1));
        });
        thread.join().unwrap();
    }
}
