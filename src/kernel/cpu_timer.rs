//! A timer that samples the stacks of threads as they spend CPU time.
//!
//! The kernel sends `SIGPROF` to the thread that runs when the process has spent another interval
//! of CPU time. The handler walks the stack and writes a record to a pipe, whose reader does all
//! else. It takes no lock that anything waits for, and allocates nothing:
//!
//! ```text
//! record, in native order:  generation:4 │ frames:4 │ address:8 × frames
//! ```
//!
//! A record is shorter than `PIPE_BUF`, so the kernel writes it whole or not at all. Pipe and
//! handler stay from the first use on: a signal may arrive after the end of what it was sent for.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::unwind::{self, FRAMES_MAX, Registers};

/// Bytes of records that may wait to be read: those of a second of 30 cores at least.
const PIPE_BYTES: c_int = 1 << 20;
const RECORD_BYTES_MAX: usize = 8 * (1 + FRAMES_MAX);
const _: () = assert!(RECORD_BYTES_MAX <= libc::PIPE_BUF);

struct Pipe {
    reader: OwnedFd,
    writer: File,
}

static PIPE: OnceLock<Pipe> = OnceLock::new();
/// Id of the profile under way; 0 if there is none.
static GENERATION: AtomicU32 = AtomicU32::new(0);
static GENERATION_LAST: AtomicU32 = AtomicU32::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

/// The timer while it runs. It stops when this is dropped.
#[derive(Debug)]
pub(crate) struct CpuTimer {
    generation: u32,
}

impl CpuTimer {
    /// Starts the timer, of which a process has one.
    ///
    /// Errors: it runs already (`ResourceBusy`); stacks cannot be walked here (`Unsupported`);
    /// whatever the system says.
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

    /// Another handle of the pipe that the records come from.
    ///
    /// Errors: of the system, which may have none left.
    pub(crate) fn records(&self) -> io::Result<OwnedFd> {
        pipe()?.reader.try_clone()
    }

    /// What records of this timer begin with; others are late ones of those before.
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
        // To stop it needs no memory and no right, so it cannot fail.
        let _ = set_interval(Duration::ZERO);
        GENERATION.store(0, Ordering::Release);
        IS_RUNNING.store(false, Ordering::Release);
    }
}

/// The pipe of the process.
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
    // SAFETY: the descriptor is open, and the call takes numbers alone. Where it is refused, the
    // pipe is as large as pipes are.
    unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES) };
    Ok(PIPE.get_or_init(|| Pipe { reader, writer: File::from(writer) }))
}

/// Reads what was left, so that the next byte begins a record.
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
    // On the stack of the thread: the one that the standard library sets aside for signals has room
    // for little more than the registers.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: the action is a valid one, whose handler has the type that its flags promise, and
    // lives as long as the program.
    if unsafe { libc::sigaction(libc::SIGPROF, &raw const action, std::ptr::null_mut()) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Has the timer fire each time the process has spent so much CPU time; never for zero.
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

/// Takes a sample of the thread that is interrupted.
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
