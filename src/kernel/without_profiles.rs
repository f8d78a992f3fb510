//! Stubs for systems where stacks cannot be walked: there are no samples.

/// See `unwind.rs`.
pub(crate) mod unwind {
    use std::ops::Range;
    use std::path::PathBuf;

    pub(crate) const FRAMES_MAX: usize = 0;

    /// Program or library in memory; none exists.
    #[derive(Debug)]
    pub(crate) struct Module {
        pub(crate) path: PathBuf,
        pub(crate) addresses: Range<u64>,
        pub(crate) bias: u64,
    }

    /// Returns false: stacks cannot be walked.
    pub(crate) fn prepare() -> bool {
        false
    }

    pub(crate) fn modules() -> &'static [Module] {
        &[]
    }

    pub(crate) fn walk_here(_: &mut [u64]) -> usize {
        0
    }
}

/// See `cpu_timer.rs`.
pub(crate) mod cpu_timer {
    use std::io;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    /// Running timer; none exists.
    #[derive(Debug)]
    pub(crate) struct CpuTimer;

    impl CpuTimer {
        pub(crate) fn start(_: Duration) -> io::Result<CpuTimer> {
            Err(io::Error::new(io::ErrorKind::Unsupported, "not on this system"))
        }

        pub(crate) fn records(&self) -> io::Result<OwnedFd> {
            Err(io::Error::new(io::ErrorKind::Unsupported, "not on this system"))
        }

        pub(crate) fn generation(&self) -> u32 {
            0
        }

        pub(crate) fn lost(&self) -> u64 {
            0
        }
    }
}
