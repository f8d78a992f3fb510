//! Call stacks of this process.
//!
//! A walk uses the unwind tables (`.eh_frame`) of the binary, so it needs no frame pointers. It
//! allocates nothing, waits for no lock, and reads the stack through `/proc/self/mem`, where a wrong
//! address is an error instead of a fault. So it may run inside the allocator and in a signal
//! handler. `profile/symbols` finds the names of functions later.

#![allow(unsafe_code)]

use std::arch::asm;
use std::ffi::{CStr, c_int, c_void};
use std::fs::File;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, TryLockError};

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, MustNotAllocateDuringUnwind, UnwindRegsNative,
    Unwinder as _, UnwinderNative,
};

/// Maximum number of frames of a stack, the innermost first.
pub(crate) const FRAMES_MAX: usize = 128;

/// Bytes of the stack that are read at once.
const WINDOW_BYTES: usize = 8 << 10;

/// Encoding of the address of `.eh_frame` in `.eh_frame_hdr` that all linkers write: four signed
/// bytes, relative to their own address.
const RELATIVE_SIGNED_4: u8 = 0x1b;

type Cache = CacheNative<MustNotAllocateDuringUnwind>;
type Unwinder = UnwinderNative<&'static [u8], MustNotAllocateDuringUnwind>;

/// Program or library in memory.
#[derive(Debug)]
pub(crate) struct Module {
    /// Path of the file; a name for the kernel's vDSO.
    pub(crate) path: PathBuf,
    /// Addresses in memory.
    pub(crate) addresses: Range<u64>,
    /// Difference between addresses in memory and in the file.
    pub(crate) bias: u64,
}

/// Registers at the start of a walk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Registers {
    pub(super) instruction: u64,
    pub(super) stack: u64,
    pub(super) frame: u64,
    /// Return address before the function has stored it.
    #[cfg(target_arch = "aarch64")]
    pub(super) link: u64,
}

/// Prepared state of walks.
struct Walker {
    modules: Vec<Module>,
    unwinder: Unwinder,
    /// Memory of this process.
    memory: File,
    /// One per concurrent walk.
    scratches: Vec<Mutex<Scratch>>,
}

struct Scratch {
    cache: Cache,
    window: Window,
}

/// Part of the stack.
struct Window {
    start: u64,
    len: usize,
    bytes: Box<[u8; WINDOW_BYTES]>,
}

static WALKER: OnceLock<Option<Walker>> = OnceLock::new();

/// Prepares walks. Returns `false` without `/proc`, where stacks cannot be walked.
pub(crate) fn prepare() -> bool {
    WALKER.get_or_init(Walker::new).is_some()
}

/// Returns the modules in memory; none before `prepare`.
pub(crate) fn modules() -> &'static [Module] {
    walker().map_or(&[], |walker| &walker.modules)
}

/// Walks the stack of the caller, and returns the number of frames. Each is an address inside the
/// current or calling instruction.
///
/// Returns 0 before `prepare`, and while too many threads walk.
#[inline(never)]
pub(crate) fn walk_here(frames: &mut [u64]) -> usize {
    let count = walk(Registers::here(), frames);
    // Prevents a tail call, whose frame would be the callee's.
    std::hint::black_box(count)
}

/// Walks the stack of the registers.
pub(super) fn walk(registers: Registers, frames: &mut [u64]) -> usize {
    let Some(walker) = walker() else { return 0 };
    for scratch in &walker.scratches {
        match scratch.try_lock() {
            Ok(mut scratch) => return walker.walk(registers, &mut scratch, frames),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Poisoned(poisoned)) => {
                return walker.walk(registers, &mut poisoned.into_inner(), frames);
            }
        }
    }
    0
}

fn walker() -> Option<&'static Walker> {
    WALKER.get().and_then(Option::as_ref)
}

impl Walker {
    fn new() -> Option<Walker> {
        let memory = File::open("/proc/self/mem").ok()?;
        let mut found = FoundModules { modules: Vec::new(), unwinder: Unwinder::new() };
        // SAFETY: the callback has the type that is asked for, and is given the address of `found`,
        // which outlives the call and is used by nothing else meanwhile.
        unsafe { libc::dl_iterate_phdr(Some(add_module), (&raw mut found).cast::<c_void>()) };
        // A walk in the allocator may be interrupted by one of the timer.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let scratches = (0..2 * cores + 2).map(|_| Mutex::new(Scratch::new())).collect();
        let FoundModules { modules, unwinder } = found;
        Some(Walker { modules, unwinder, memory, scratches })
    }

    fn walk(&self, registers: Registers, scratch: &mut Scratch, frames: &mut [u64]) -> usize {
        let Scratch { cache, window } = scratch;
        window.len = 0;
        let mut read = |address| window.read(&self.memory, address);
        let start = registers.instruction;
        let mut walk = self.unwinder.iter_frames(start, registers.native(), cache, &mut read);
        let mut count = 0;
        while let Some(frame) = frames.get_mut(count) {
            let Ok(Some(address)) = walk.next() else { break };
            // An address outside of code is a wrong guess.
            if !self.is_code(address.address_for_lookup()) {
                break;
            }
            *frame = address.address_for_lookup();
            count += 1;
        }
        count
    }

    fn is_code(&self, address: u64) -> bool {
        self.modules.iter().any(|module| module.addresses.contains(&address))
    }
}

impl Scratch {
    fn new() -> Scratch {
        let window = Window { start: 0, len: 0, bytes: Box::new([0; WINDOW_BYTES]) };
        Scratch { cache: Cache::new_in(), window }
    }
}

impl Window {
    /// Returns the eight bytes at an address.
    fn read(&mut self, memory: &File, address: u64) -> Result<u64, ()> {
        if let Some(word) = self.word(address) {
            return Ok(word);
        }
        self.start = address;
        self.len = memory.read_at(&mut self.bytes[..], address).map_err(|_| ())?;
        self.word(address).ok_or(())
    }

    fn word(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let word = self.bytes[..self.len].get(at..)?.first_chunk()?;
        Some(u64::from_ne_bytes(*word))
    }
}

impl Registers {
    /// Returns the registers at the call; the calling function must not return while they are used.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn here() -> Registers {
        let (instruction, stack, frame): (u64, u64, u64);
        // SAFETY: three registers are copied, and nothing else is read or written.
        unsafe {
            asm!(
                "lea {instruction}, [rip]",
                "mov {stack}, rsp",
                "mov {frame}, rbp",
                instruction = out(reg) instruction,
                stack = out(reg) stack,
                frame = out(reg) frame,
                options(nomem, nostack, preserves_flags),
            );
        }
        Registers { instruction, stack, frame }
    }

    /// Returns the registers at the call; the calling function must not return while they are used.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    fn here() -> Registers {
        let (instruction, stack, frame, link): (u64, u64, u64, u64);
        // SAFETY: four registers are copied, and nothing else is read or written.
        unsafe {
            asm!(
                "adr {instruction}, .",
                "mov {stack}, sp",
                "mov {frame}, x29",
                "mov {link}, x30",
                instruction = out(reg) instruction,
                stack = out(reg) stack,
                frame = out(reg) frame,
                link = out(reg) link,
                options(nomem, nostack, preserves_flags),
            );
        }
        Registers { instruction, stack, frame, link }
    }

    #[cfg(target_arch = "x86_64")]
    fn native(self) -> UnwindRegsNative {
        UnwindRegsNative::new(self.instruction, self.stack, self.frame)
    }

    #[cfg(target_arch = "aarch64")]
    fn native(self) -> UnwindRegsNative {
        UnwindRegsNative::new(self.link, self.stack, self.frame)
    }
}

/// Modules found so far.
struct FoundModules {
    modules: Vec<Module>,
    unwinder: Unwinder,
}

/// Adds a module to the `FoundModules` at `data`.
unsafe extern "C" fn add_module(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    data: *mut c_void,
) -> c_int {
    // SAFETY: `dl_iterate_phdr` hands over what it was given, which is a `FoundModules` that nothing else
    // uses, and a description that holds until this returns.
    let (found, info) = unsafe { (&mut *data.cast::<FoundModules>(), &*info) };
    // SAFETY: the description says where the program headers are, and how many.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let name = if info.dlpi_name.is_null() {
        &[]
    } else {
        // SAFETY: the name ends with a zero, and holds until this returns.
        unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes()
    };
    let path = match name {
        // The program itself has no name.
        [] => PathBuf::from("/proc/self/exe"),
        name => PathBuf::from(std::ffi::OsStr::from_bytes(name)),
    };
    let bias = info.dlpi_addr;
    let segments: Vec<Range<u64>> =
        headers.iter().filter(|header| header.p_type == libc::PT_LOAD).map(stated).collect();
    let (Some(start), Some(end)) =
        (segments.iter().map(|s| s.start).min(), segments.iter().map(|s| s.end).max())
    else {
        return 0;
    };
    let addresses = bias + start..bias + end;
    let index = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME).map(stated);
    // SAFETY: the segments are those of the module.
    if let Some(sections) = index.and_then(|index| unsafe { tables(bias, index, &segments) }) {
        let name = path.display().to_string();
        found.unwinder.add_module(framehop::Module::new(name, addresses.clone(), bias, sections));
    }
    found.modules.push(Module { path, addresses, bias });
    0
}

/// Returns the addresses of a header.
fn stated(header: &libc::Elf64_Phdr) -> Range<u64> {
    header.p_vaddr..header.p_vaddr + header.p_memsz
}

/// Finds the unwind tables of a module by their index (`.eh_frame_hdr`).
///
/// # Safety
///
/// The segments must be those that are mapped of a module with this bias.
unsafe fn tables(
    bias: u64,
    index: Range<u64>,
    segments: &[Range<u64>],
) -> Option<ExplicitModuleSectionInfo<&'static [u8]>> {
    let holding = |at: u64| segments.iter().find(|segment| segment.contains(&at));
    if holding(index.start)?.end < index.end {
        return None;
    }
    // SAFETY: the index lies in a segment, so it is mapped. A linker maps these tables to be read
    // alone, and what is loaded with the program is never unmapped.
    let index_bytes: &'static [u8] = unsafe { mapped(bias, &index) };
    let &[1, RELATIVE_SIGNED_4, _, _, a, b, c, d, ..] = index_bytes else { return None };
    let distance = i64::from(i32::from_le_bytes([a, b, c, d]));
    let start = (index.start + 4).checked_add_signed(distance)?;
    // Its length is unknown: the index points inside.
    let table = start..holding(start)?.end;
    Some(ExplicitModuleSectionInfo {
        base_svma: 0,
        // SAFETY: the table lies in a segment, as the index does.
        eh_frame: Some(unsafe { mapped(bias, &table) }),
        eh_frame_svma: Some(table),
        eh_frame_hdr: Some(index_bytes),
        eh_frame_hdr_svma: Some(index),
        ..ExplicitModuleSectionInfo::default()
    })
}

/// Returns the bytes at addresses of a header.
///
/// # Safety
///
/// They must be mapped, and neither written nor unmapped from now on.
unsafe fn mapped(bias: u64, stated: &Range<u64>) -> &'static [u8] {
    let start = std::ptr::with_exposed_provenance::<u8>((bias + stated.start) as usize);
    // SAFETY: of the caller.
    unsafe { std::slice::from_raw_parts(start, (stated.end - stated.start) as usize) }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;
    use std::time::{Duration, Instant};

    use super::*;

    /// Time in which a scratch becomes free, on a machine that is busy with other tests.
    const SCRATCH_MAX: Duration = Duration::from_secs(300);

    /// Repeats a walk until it has a scratch: tests that run at the same time may hold all of them.
    pub(crate) fn with_scratch(mut walk: impl FnMut() -> usize) -> usize {
        let started = Instant::now();
        loop {
            let count = walk();
            if count > 0 {
                return count;
            }
            assert!(started.elapsed() < SCRATCH_MAX, "no scratch is free");
            std::thread::yield_now();
        }
    }

    #[inline(never)]
    fn descend(levels: usize, frames: &mut [u64]) -> usize {
        let count = if levels == 0 { walk_here(frames) } else { descend(levels - 1, frames) };
        std::hint::black_box(count)
    }

    #[inline(never)]
    fn descend_with_scratch(levels: usize, frames: &mut [u64]) -> usize {
        let count = with_scratch(|| descend(levels, frames));
        std::hint::black_box(count)
    }

    #[test]
    fn each_call_is_a_frame() {
        assert!(prepare());
        let (mut shallow, mut deep) = ([0; FRAMES_MAX], [0; FRAMES_MAX]);
        let count = descend_with_scratch(0, &mut shallow);
        // It ends where the thread begins.
        assert!((7..FRAMES_MAX).contains(&count), "{count}");
        assert_eq!(descend_with_scratch(10, &mut deep), count + 10);
        // The frames outside of this function are the same.
        assert_eq!(shallow[6..count], deep[16..count + 10]);
        assert_eq!(descend_with_scratch(1_000, &mut deep), FRAMES_MAX);
        assert!(deep.iter().all(|address| modules()[0].addresses.contains(address)));
    }

    #[test]
    fn threads_walk_at_once() {
        assert!(prepare());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut frames = [0; FRAMES_MAX];
                    let counts: BTreeSet<usize> =
                        (0..1_000).map(|_| descend_with_scratch(5, &mut frames)).collect();
                    assert_eq!(counts.len(), 1, "{counts:?}");
                });
            }
        });
    }

    #[test]
    fn a_wrong_stack_ends_the_walk() {
        assert!(prepare());
        let here = Registers::here();
        for stack in [0, 1, 7, 1 << 46, u64::MAX - 8, u64::MAX] {
            let mut frames = [0; FRAMES_MAX];
            let registers = Registers { stack, frame: stack, ..here };
            let count = with_scratch(|| walk(registers, &mut frames));
            assert_eq!(count, 1, "{stack}");
        }
    }
}
