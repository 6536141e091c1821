//! Finds objects with machine instructions for system calls by path.

use crate::sys;
use std::ffi::{CStr, c_int, c_void};

/// Number of code bytes of an object beyond which it is not examined.
const CODE_LEN_MAX: usize = 64 << 20;
/// Number of bytes before the instruction among which its number is looked for.
const BEFORE_LEN: usize = 64;
/// Numbers of calls by path: open, stat, lstat, access, rename to symlink, readlink, chmod, openat to faccessat, renameat2,
/// statx, openat2, faccessat2.
const BY_PATH: [std::ops::RangeInclusive<u32>; 12] = [
    2..=2,
    4..=4,
    6..=6,
    21..=21,
    82..=90,
    257..=257,
    258..=269,
    316..=316,
    332..=332,
    437..=437,
    439..=439,
    452..=452,
];

/// Begin of the build information in programs of Go, whose threads have stacks that are too small for a signal handler.
const GO: &[u8] = b"\xff Go buildinf:";

/// Calls `visit` for each executable or other readable segment, with the index of its object, until it returns true.
/// Returns whether it did.
fn each<F: FnMut(usize, &[u8]) -> bool>(executable: bool, mut visit: F) -> bool {
    struct State<'a, F> {
        index: usize,
        executable: bool,
        visit: &'a mut F,
    }
    unsafe extern "C" fn one<F: FnMut(usize, &[u8]) -> bool>(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        state: *mut c_void,
    ) -> c_int {
        let (info, state) = (&*info, &mut *state.cast::<State<'_, F>>());
        let index = state.index;
        state.index += 1;
        for header in std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) {
            if header.p_type == libc::PT_LOAD
                && (header.p_flags & libc::PF_X != 0) == state.executable
                && header.p_flags & libc::PF_R != 0
            {
                let start = (info.dlpi_addr + header.p_vaddr) as *const u8;
                let code = std::slice::from_raw_parts(start, header.p_memsz as usize);
                if (state.visit)(index, code) {
                    return 1;
                }
            }
        }
        0
    }
    let mut state = State { index: 0, executable, visit: &mut visit };
    // SAFETY: the callback has the type of `state`.
    unsafe { libc::dl_iterate_phdr(Some(one::<F>), (&raw mut state).cast()) == 1 }
}

/// Returns begin and length of the C library's code.
pub fn code_of_libc() -> Option<(usize, usize)> {
    let inside = libc::getppid as *const () as usize;
    let mut found = None;
    each(true, |_, code| {
        let start = code.as_ptr() as usize;
        let is_it = (start..start + code.len()).contains(&inside);
        if is_it {
            found = Some((start, code.len()));
        }
        is_it
    });
    found
}

/// Whether the program's own code has such instructions.
pub fn in_program() -> bool {
    let mut found = false;
    // The program is the first object.
    each(true, |index, code| {
        found |= index == 0 && has_calls(code);
        index > 0
    });
    found && !each(false, |index, data| index == 0 && position(data, GO).is_some())
}

/// Whether the file at `path` has such instructions. They may be in its data, too.
pub fn in_file(path: &CStr) -> bool {
    let Ok(fd) = sys::open(path, libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK, 0) else {
        return false;
    };
    let stat = sys::fstatat(fd, c"", libc::AT_EMPTY_PATH);
    let len = stat
        .map_or(0, |stat| if stat.st_mode & libc::S_IFMT == libc::S_IFREG { stat.st_size } else { 0 })
        as usize;
    let mut found = false;
    if (1..=CODE_LEN_MAX).contains(&len) {
        // SAFETY: maps memory at a place that the kernel chooses, and unmaps it. A file that is cut meanwhile could not be
        // loaded either.
        unsafe {
            let request = [0, len, libc::PROT_READ as usize, libc::MAP_PRIVATE as usize, fd as usize, 0];
            let at = sys::syscall(libc::SYS_mmap, request);
            if at > 0 {
                let file = std::slice::from_raw_parts(at as *const u8, len);
                found = has_calls(file) && position(file, GO).is_none();
                sys::syscall(libc::SYS_munmap, [at as usize, len, 0, 0, 0, 0]);
            }
        }
    }
    sys::close(fd);
    found
}

/// Whether code loads the number of a call by path shortly before a `syscall` instruction.
fn has_calls(code: &[u8]) -> bool {
    if code.len() > CODE_LEN_MAX {
        return false;
    }
    let mut start = 0;
    while let Some(found) = position(&code[start..], &[0x0f, 0x05]) {
        let at = start + found;
        let before = &code[at.saturating_sub(BEFORE_LEN)..at];
        if !is_displacement(before) && is_by_path(before) {
            return true;
        }
        start = at + 1;
    }
    false
}

/// Returns the index of `wanted` in `bytes`.
fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let (start, len) = (bytes.as_ptr(), bytes.len());
    // SAFETY: two slices. The C library's search is fast in every build.
    let at = unsafe { libc::memmem(start.cast(), len, wanted.as_ptr().cast(), wanted.len()) as usize };
    (at != 0).then(|| at - start as usize)
}

/// Whether the bytes after `before` belong to the distance of a `call` or `jmp`: these have four bytes after their code,
/// which may also be the operand of an instruction between registers.
fn is_displacement(before: &[u8]) -> bool {
    let end = before.len();
    (1..=3).filter(|back| *back <= end).any(|back| {
        let is_operand =
            end > back && matches!(before[end - back - 1], 0x01 | 0x29 | 0x31 | 0x39 | 0x85 | 0x89 | 0x8b);
        matches!(before[end - back], 0xe8 | 0xe9) && !is_operand
    })
}

/// Whether `before` loads the number of a call by path into `eax`: by `mov` to it or to `rax`, or by `push` and `pop`.
fn is_by_path(before: &[u8]) -> bool {
    let is_call = |number: u32| BY_PATH.iter().any(|range| range.contains(&number));
    let long = before.windows(7).filter_map(|code| code.strip_prefix(&[0x48, 0xc7, 0xc0]));
    let mut long = long.filter_map(|number| number.first_chunk().copied()).map(u32::from_le_bytes);
    // The operand of this `push` is extended with its sign.
    let is_push =
        |code: &[u8]| code[0] == 0x6a && code[1] < 0x80 && code[2] == 0x58 && is_call(code[1].into());
    if long.any(is_call) || before.windows(3).any(is_push) {
        return true;
    }
    let is_load = |at: usize| {
        // With this prefix, the register is `r8d`.
        let is_other_register = at > 0 && before[at - 1] & 0xf1 == 0x41;
        before[at] == 0xb8 && !is_other_register
    };
    let loads = (0..before.len().saturating_sub(4)).filter(|at| is_load(*at));
    let mut numbers =
        loads.map(|at| u32::from_le_bytes([before[at + 1], before[at + 2], before[at + 3], before[at + 4]]));
    numbers.any(is_call)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_calls_by_path_are_found() {
        let open = [&[0x90; 50][..], &[0xb8, 1, 1, 0, 0, 0x48, 0x89, 0xfe, 0x0f, 0x05]].concat();
        assert!(has_calls(&open), "openat");
        let futex = [&[0x90; 50][..], &[0xb8, 202, 0, 0, 0, 0x0f, 0x05]].concat();
        assert!(!has_calls(&futex), "futex");
        // `mov $2,%r8d`, and a call whose distance contains the code of `syscall`.
        let register = [&[0x90; 50][..], &[0x41, 0xb8, 2, 0, 0, 0, 0x0f, 0x05]].concat();
        assert!(!has_calls(&register), "another register");
        let call = [&[0x90; 50][..], &[0xb8, 2, 0, 0, 0, 0xe8, 0x67, 0x0f, 0x05, 0]].concat();
        assert!(!has_calls(&call), "a distance");
        let operand = [&[0x90; 50][..], &[0xb8, 0x3c, 1, 0, 0, 0x4d, 0x89, 0xe8, 0x0f, 0x05]].concat();
        assert!(has_calls(&operand), "renameat2 after mov %r13,%r8");
        let long = [&[0x90; 50][..], &[0x48, 0xc7, 0xc0, 2, 0, 0, 0, 0x0f, 0x05]].concat();
        assert!(has_calls(&long), "mov $2,%rax");
        let stack = |number| [&[0x90; 50][..], &[0x6a, number, 0x58, 0x0f, 0x05]].concat();
        assert!(has_calls(&stack(87)) && !has_calls(&stack(1)), "push and pop: unlink, write");
        assert!(!has_calls(&[0x0f, 0x05]) && !has_calls(&[]) && !has_calls(&[0x0f]));
    }
}
