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
    if let Some(allowed) = forbid(core) {
        allow(&allowed);
    }
}

/// Forbids the calling thread a core, which it leaves at once. Returns the cores that it was allowed
/// to run on; `None`, without effect, if it may run on no other one.
#[cfg(target_os = "linux")]
fn forbid(core: usize) -> Option<libc::cpu_set_t> {
    if core >= libc::CPU_SETSIZE as usize {
        return None;
    }
    // SAFETY: a set of cores is plain bits, for which zeros are the empty set. The call writes one
    // set of the size that it is told, and `core` is a bit of it. Thread 0 is the calling one.
    unsafe {
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of_val(&allowed), &raw mut allowed) != 0 {
            return None;
        }
        let mut others = allowed;
        libc::CPU_CLR(core, &mut others);
        (libc::CPU_COUNT(&others) > 0 && allow(&others)).then_some(allowed)
    }
}

/// Sets the cores that the calling thread may run on. Returns whether the system did.
#[cfg(target_os = "linux")]
fn allow(cores: &libc::cpu_set_t) -> bool {
    // SAFETY: the call reads one set of the size that it is told. Thread 0 is the calling one.
    unsafe { libc::sched_setaffinity(0, size_of_val(cores), cores) == 0 }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    fn allowed_count() -> i32 {
        // SAFETY: as in `forbid`.
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
        assert_eq!(allowed_count(), before);
    }

    #[test]
    fn a_thread_leaves_a_core_that_it_is_forbidden() {
        let Core(Some(core)) = Core::current() else { return };
        let before = allowed_count();
        // The thread may have moved meanwhile; from here on it stays off the core.
        match forbid(core) {
            Some(allowed) => {
                assert_ne!(Core::current(), Core(Some(core)));
                assert_eq!(allowed_count(), before - 1);
                assert!(allow(&allowed));
            }
            None => assert_eq!(before, 1),
        }
        assert_eq!(allowed_count(), before);
        assert!(forbid(usize::MAX).is_none());
    }

    #[test]
    fn a_thread_on_its_only_core_stays() {
        let thread = std::thread::spawn(|| {
            let Core(Some(core)) = Core::current() else { return };
            // SAFETY: as in `forbid`.
            let mut only: libc::cpu_set_t = unsafe { std::mem::zeroed() };
            // SAFETY: the core is one of the set's.
            unsafe { libc::CPU_SET(core, &mut only) };
            assert!(allow(&only));
            let core = Core::current();
            core.leave();
            assert_eq!((Core::current(), allowed_count()), (core, 1));
        });
        thread.join().unwrap();
    }
}
