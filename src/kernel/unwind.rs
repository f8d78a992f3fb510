//! Call stacks of this process.
//!
//! A walk uses the unwind tables (`.eh_frame`) of the binary, so it needs no frame pointers. A wrong
//! address is an error instead of a fault. `profile/symbols` finds the names of functions later.
//!
//! [`walk`] reads through `/proc/self/mem`. It allocates nothing and waits for no lock, so it may run
//! in a signal handler. [`walk_here`] reads the stack of its thread directly, and may run inside the
//! Rust allocator: the first walk of a thread asks the C library for the bounds of its stack.

#![allow(unsafe_code)]

use std::arch::asm;
use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::fs::File;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
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

/// Stack of the calling thread, from a live frame on.
struct OwnStack {
    addresses: Range<u64>,
    /// Keeps the value on its thread.
    _thread: PhantomData<*const ()>,
}

thread_local! {
    /// First address of the stack of this thread, and the one after it; 0 until they are known.
    static STACK: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
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
    let registers = Registers::here();
    // SAFETY: the registers are of this frame, which outlives the value.
    let stack = unsafe { OwnStack::from(registers.stack) };
    let count = walk_with_scratch(|walker, Scratch { cache, window }| match &stack {
        Some(stack) => walker.walk(registers, cache, |address| stack.read(address), frames),
        None => walker.walk(registers, cache, window.reader(&walker.memory), frames),
    });
    // Prevents a tail call, whose frame would be the callee's.
    std::hint::black_box(count)
}

/// Walks the stack of the registers.
pub(super) fn walk(registers: Registers, frames: &mut [u64]) -> usize {
    walk_with_scratch(|walker, Scratch { cache, window }| {
        walker.walk(registers, cache, window.reader(&walker.memory), frames)
    })
}

/// Calls `walk` with a free scratch; returns 0 if there is none.
#[inline(always)]
fn walk_with_scratch(walk: impl FnOnce(&Walker, &mut Scratch) -> usize) -> usize {
    let Some(walker) = walker() else { return 0 };
    for scratch in &walker.scratches {
        match scratch.try_lock() {
            Ok(mut scratch) => return walk(walker, &mut scratch),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Poisoned(poisoned)) => {
                return walk(walker, &mut poisoned.into_inner());
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

    fn walk(
        &self,
        registers: Registers,
        cache: &mut Cache,
        mut read: impl FnMut(u64) -> Result<u64, ()>,
        frames: &mut [u64],
    ) -> usize {
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
    /// Returns a function that reads the eight bytes at an address.
    fn reader(&mut self, memory: &File) -> impl FnMut(u64) -> Result<u64, ()> {
        self.len = 0;
        |address| self.read(memory, address)
    }

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

impl OwnStack {
    /// Returns the stack of the calling thread from an address in it; `None` if it is not in the
    /// stack that the system states.
    ///
    /// # Safety
    ///
    /// The address must be the stack pointer of a live frame of this thread that outlives the value.
    unsafe fn from(start: u64) -> Option<OwnStack> {
        let mut stack = STACK.get();
        if stack.1 == 0 {
            stack = stated_stack()?;
            STACK.set(stack);
        }
        let is_inside = (stack.0..stack.1).contains(&start);
        is_inside.then_some(OwnStack { addresses: start..stack.1, _thread: PhantomData })
    }

    /// Returns the eight bytes at an address.
    fn read(&self, address: u64) -> Result<u64, ()> {
        let is_inside =
            address >= self.addresses.start && address.saturating_add(8) <= self.addresses.end;
        if !is_inside {
            return Err(());
        }
        let word: u64;
        // SAFETY: the bytes lie between a live frame of this thread and the end of its stack, all of
        // which is mapped. One instruction loads them and does nothing else.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            asm!(
                "mov {word}, qword ptr [{address}]",
                address = in(reg) address,
                word = out(reg) word,
                options(nostack, readonly, preserves_flags),
            );
            #[cfg(target_arch = "aarch64")]
            asm!(
                "ldr {word}, [{address}]",
                address = in(reg) address,
                word = out(reg) word,
                options(nostack, readonly, preserves_flags),
            );
        }
        Ok(word)
    }
}

/// Returns the first address of the stack of the calling thread, and the one after it.
fn stated_stack() -> Option<(u64, u64)> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut start, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: the first call initializes the attributes, which the others read and free, if it
    // returns 0. The second one writes to two variables of this function.
    let is_known = unsafe {
        libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) == 0 && {
            let status =
                libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut start, &raw mut bytes);
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            status == 0
        }
    };
    let start = start.addr() as u64;
    is_known.then_some((start, start + bytes as u64))
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

    /// Walks from the registers of this function, through the memory of the process.
    #[inline(never)]
    fn walk_by_file(frames: &mut [u64]) -> usize {
        let count = walk(Registers::here(), frames);
        std::hint::black_box(count)
    }

    #[test]
    fn a_stack_is_the_same_read_directly_and_through_proc() {
        assert!(prepare());
        let walks: [fn(&mut [u64]) -> usize; 2] = [walk_here, walk_by_file];
        let [own, by_file] = walks.map(|walk_once| {
            let mut frames = [0; FRAMES_MAX];
            let count = with_scratch(|| walk_once(&mut frames));
            frames[..count].to_vec()
        });
        assert!(own.len() > 5, "{}", own.len());
        // Up to this function, the frames may have other addresses.
        assert_eq!((own.len(), &own[3..]), (by_file.len(), &by_file[3..]));
    }

    #[test]
    fn a_thread_reads_its_own_stack_only() {
        let word: u64 = std::hint::black_box(0x0123_4567_89ab_cdef);
        let address = (&raw const word).expose_provenance() as u64;
        // SAFETY: of this frame.
        let stack = unsafe { OwnStack::from(Registers::here().stack) }.unwrap();
        assert_eq!(stack.read(address), Ok(word));
        let Range { start, end } = stack.addresses.clone();
        assert!(stack.read(start).is_ok() && stack.read(end - 8).is_ok());
        for wrong in [0, start - 8, start - 1, end - 7, end, u64::MAX - 7, u64::MAX] {
            assert_eq!(stack.read(wrong), Err(()), "{wrong}");
        }
        let of_another = move || {
            // SAFETY: of this frame.
            let stack = unsafe { OwnStack::from(Registers::here().stack) }.unwrap();
            stack.read(address)
        };
        std::thread::scope(|scope| assert_eq!(scope.spawn(of_another).join().unwrap(), Err(())));
        // SAFETY: it is not in the stack, so there is no value.
        assert!(unsafe { OwnStack::from(8) }.is_none());
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
