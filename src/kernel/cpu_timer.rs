//! Timer that samples stacks of threads by CPU time.
//!
//! The kernel sends `SIGPROF` to a running thread for each interval of CPU time of the process. The
//! handler walks the stack and writes a record to a pipe; the reader does the rest. The handler
//! waits for no lock, and allocates nothing:
//!
//! ```text
//! record, in native order:  generation:4 │ frames:4 │ address:8 × frames
//! ```
//!
//! A record is shorter than `PIPE_BUF`, so the kernel writes it whole or not at all. Pipe and
//! handler stay after the first use, because a signal may arrive after the end of its profile.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::unwind::{self, FRAMES_MAX, Registers};

/// Size of the pipe: at least the records of 30 cores within a second.
const PIPE_BYTES: c_int = 1 << 20;
const RECORD_BYTES_MAX: usize = 8 * (1 + FRAMES_MAX);
const _: () = assert!(RECORD_BYTES_MAX <= libc::PIPE_BUF);

struct Pipe {
    reader: OwnedFd,
    writer: File,
}

static PIPE: OnceLock<Pipe> = OnceLock::new();
/// Id of the current profile; 0 without one.
static GENERATION: AtomicU32 = AtomicU32::new(0);
static GENERATION_LAST: AtomicU32 = AtomicU32::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

/// Running timer, stopped when it is dropped.
#[derive(Debug)]
pub(crate) struct CpuTimer {
    generation: u32,
}

impl CpuTimer {
    /// Starts the timer of the process.
    ///
    /// Errors: it runs already (`ResourceBusy`), stacks cannot be walked (`Unsupported`), or the system
    /// fails.
    pub(crate) fn start(interval: Duration) -> io::Result<CpuTimer> {
        if !unwind::prepare() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "/proc/self/mem is not readable",
            ));
        }
        if IS_RUNNING.swap(true, Ordering::AcqRel) {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "it is running"));
        }
        let last = GENERATION_LAST.fetch_add(1, Ordering::AcqRel);
        let timer = CpuTimer { generation: last.wrapping_add(1).max(1) };
        let pipe = pipe()?;
        discard(&pipe.reader)?;
        LOST.store(0, Ordering::Release);
        handle_signals()?;
        GENERATION.store(timer.generation, Ordering::Release);
        set_interval(interval)?;
        Ok(timer)
    }

    /// Returns another handle of the pipe of records.
    ///
    /// Errors: the system has no handle left.
    pub(crate) fn records(&self) -> io::Result<OwnedFd> {
        pipe()?.reader.try_clone()
    }

    /// Number in the records of this timer; late records of earlier timers have others.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// Number of samples lost because the pipe was full.
    pub(crate) fn lost(&self) -> u64 {
        LOST.load(Ordering::Acquire)
    }
}

impl Drop for CpuTimer {
    fn drop(&mut self) {
        // Stopping needs no memory or permission, so it cannot fail.
        let _ = set_interval(Duration::ZERO);
        GENERATION.store(0, Ordering::Release);
        IS_RUNNING.store(false, Ordering::Release);
    }
}

/// Returns the pipe of the process.
fn pipe() -> io::Result<&'static Pipe> {
    if let Some(pipe) = PIPE.get() {
        return Ok(pipe);
    }
    let (reader, writer) = io::pipe()?;
    let (reader, writer) = (OwnedFd::from(reader), OwnedFd::from(writer));
    for end in [&reader, &writer] {
        // SAFETY: the descriptor is open, and the call takes numbers alone.
        if unsafe { libc::fcntl(end.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } == -1 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: the descriptor is open, and the call takes numbers alone. If it fails, the
    // pipe has its default size.
    unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES) };
    Ok(PIPE.get_or_init(|| Pipe { reader, writer: File::from(writer) }))
}

/// Discards old bytes, so that the next byte starts a record.
fn discard(reader: &OwnedFd) -> io::Result<()> {
    use std::io::Read as _;
    let mut reader = File::from(reader.try_clone()?);
    let mut bytes = [0; RECORD_BYTES_MAX];
    loop {
        match reader.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn handle_signals() -> io::Result<()> {
    // SAFETY: all of it are numbers and pointers, for which zeros are a value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_signal;
    action.sa_sigaction = handler as libc::sighandler_t;
    // Uses the stack of the thread: the signal stack of the standard library has room for little more
    // than the registers.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: the action is a valid one, whose handler has the type that its flags promise, and
    // lives as long as the program.
    if unsafe { libc::sigaction(libc::SIGPROF, &raw const action, std::ptr::null_mut()) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Sets the CPU time between signals; zero disables them.
fn set_interval(interval: Duration) -> io::Result<()> {
    let time = libc::timeval {
        tv_sec: interval.as_secs() as libc::time_t,
        tv_usec: libc::suseconds_t::from(interval.subsec_micros()),
    };
    let timer = libc::itimerval { it_interval: time, it_value: time };
    // SAFETY: the call reads one value, which outlives it.
    if unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, std::ptr::null_mut()) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Samples the interrupted thread.
extern "C" fn on_signal(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    let generation = GENERATION.load(Ordering::Acquire);
    let Some(pipe) = PIPE.get().filter(|_| generation != 0) else { return };
    // SAFETY: each thread has an `errno` of its own.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel hands over the state of the thread, which nothing else uses meanwhile.
    let registers = unsafe { registers_of(&*context.cast::<libc::ucontext_t>()) };
    let mut frames = [0; FRAMES_MAX];
    let count = unwind::walk(registers, &mut frames);
    let mut record = [0; RECORD_BYTES_MAX];
    record[..4].copy_from_slice(&generation.to_ne_bytes());
    record[4..8].copy_from_slice(&(count as u32).to_ne_bytes());
    for (bytes, frame) in record[8..].chunks_exact_mut(8).zip(&frames[..count]) {
        bytes.copy_from_slice(&frame.to_ne_bytes());
    }
    let record = &record[..8 * (1 + count)];
    if (&pipe.writer).write(record).is_err() {
        LOST.fetch_add(1, Ordering::AcqRel);
    }
    // SAFETY: as above. The interrupted code may be about to read it.
    unsafe { *libc::__errno_location() = errno };
}

#[cfg(target_arch = "x86_64")]
fn registers_of(context: &libc::ucontext_t) -> Registers {
    let register = |number: c_int| context.uc_mcontext.gregs[number as usize] as u64;
    Registers {
        instruction: register(libc::REG_RIP),
        stack: register(libc::REG_RSP),
        frame: register(libc::REG_RBP),
    }
}

#[cfg(target_arch = "aarch64")]
fn registers_of(context: &libc::ucontext_t) -> Registers {
    let machine = &context.uc_mcontext;
    Registers {
        instruction: machine.pc,
        stack: machine.sp,
        frame: machine.regs[29],
        link: machine.regs[30],
    }
}
