//! Programs that start programs: fork and exec, `system` and `popen`.

use super::program::{self, Program};
use crate::lifecycle::{environment_for_exec, own_environment, surviving};
use crate::open::Open;
use crate::route::WeftPath;
use crate::{backend, config, errno, memory, route, sys, table};
use libc::{FILE, c_char, c_int, pid_t};
use std::ffi::{CStr, CString};

/// `fork`; moves locks of open files to their keepers first.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fork() -> pid_t {
    crate::open::before_sharing();
    real!(fork: fn() -> pid_t)()
}

/// Another name of `fork`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __fork() -> pid_t {
    fork()
}

/// `vfork` is `fork`: a child that shares memory would remove the descriptors that it closes from the parent's table.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn vfork() -> pid_t {
    fork()
}

/// Another name of `vfork`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __vfork() -> pid_t {
    fork()
}

/// Moves locks that the next program image can share to keepers, and reports those that it cannot have.
fn before_exec() {
    crate::open::before_sharing();
    crate::open::keep_inherited();
    if crate::open::has_record_locks() {
        sys::complain(
            "lock: record locks (fcntl, lockf) of this process end with exec; use flock to keep a lock over exec",
        );
    }
}

/// Executes a program with Weft's state in its environment; returns only on failure.
unsafe fn run(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
    match program::find(path) {
        Ok(program) => replace(&program, argv, envp),
        Err(number) => {
            errno::set(number);
            -1
        }
    }
}

/// Replaces this process's image by `program`.
unsafe fn replace(program: &Program, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
    let real = real!(execve: fn(*const c_char, *const *const c_char, *const *const c_char) -> c_int);
    before_exec();
    let environment = environment_for_exec(envp, &surviving());
    let arguments = program.arguments(argv);
    super::unloadable::warn(program.path(), arguments.as_ptr());
    real(program.path(), arguments.as_ptr(), environment.as_ptr())
}

hook! { [execve] (path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
    config::is_ready().then(|| run(path, argv, envp))
} }
hook! { [execv] (path: *const c_char, argv: *const *const c_char) -> c_int {
    config::is_ready().then(|| run(path, argv, own_environment()))
} }
hook! { [execvp] (file: *const c_char, argv: *const *const c_char) -> c_int {
    config::is_ready().then(|| search(file, argv, own_environment()))
} }
hook! { [execvpe] (file: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
    config::is_ready().then(|| search(file, argv, envp))
} }
hook! { [fexecve] (fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
    if !config::is_ready() {
        return real!(fexecve: fn(c_int, *const *const c_char, *const *const c_char) -> c_int)(fd, argv, envp);
    }
    let real = real!(fexecve: fn(c_int, *const *const c_char, *const *const c_char) -> c_int);
    match table::get(fd).filter(|open| !open.is_host()) {
        Some(open) => {
            let program = program::find_open(&open, name_of(&open, fd));
            drop(open);
            Some(match program {
                Ok(program) => replace(&program, argv, envp),
                Err(number) => {
                    errno::set(number);
                    -1
                }
            })
        }
        None => {
            before_exec();
            Some(real(fd, argv, environment_for_exec(envp, &surviving()).as_ptr()))
        }
    }
} }

hook! { [execveat]
    (dir: c_int, path: *const c_char, argv: *const *const c_char, envp: *const *const c_char, flags: c_int) -> c_int {
    if !config::is_ready() || !memory::is_text(path) {
        return real!(execveat: fn(
            c_int, *const c_char, *const *const c_char, *const *const c_char, c_int
        ) -> c_int)(dir, path, argv, envp, flags);
    }
    if *path == 0 && flags & libc::AT_EMPTY_PATH != 0 && table::is_weft(dir) {
        return if may_execute(dir, path, flags) { fexecve(dir, argv, envp) } else { -1 };
    }
    match route::route(dir, path) {
        route::Route::Foreign => {
            before_exec();
            let environment = environment_for_exec(envp, &surviving());
            Some(real!(execveat: fn(
                c_int, *const c_char, *const *const c_char, *const *const c_char, c_int
            ) -> c_int)(dir, path, argv, environment.as_ptr(), flags))
        }
        route::Route::Failed(number) => {
            errno::set(number);
            Some(-1)
        }
        _ if !may_execute(dir, path, flags) => Some(-1),
        route::Route::Moved(path) => Some(run(path.as_ptr(), argv, envp)),
        route::Route::Ours(weft_path) => Some(run(sys::c(&route::full(&weft_path.text)).as_ptr(), argv, envp)),
    }
} }

/// Refuses what `execveat` refuses before it opens the file: unknown flags, and with `AT_SYMLINK_NOFOLLOW` a link.
unsafe fn may_execute(dir: c_int, path: *const c_char, flags: c_int) -> bool {
    if flags & !(libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW) != 0 {
        errno::set(libc::EINVAL);
        return false;
    }
    if *path == 0 || flags & libc::AT_SYMLINK_NOFOLLOW == 0 {
        return true;
    }
    let mut named = std::mem::zeroed::<libc::stat>();
    let there = super::attrs::fstatat(dir, path, (&raw mut named).cast(), libc::AT_SYMLINK_NOFOLLOW) == 0;
    if there && named.st_mode & libc::S_IFMT == libc::S_IFLNK {
        errno::set(libc::ELOOP);
        return false;
    }
    there
}

/// Returns the path by which the next program image can open an executed file: that of its open, or that of the descriptor
/// if the file has no name or another one by now.
fn name_of(open: &Open, fd: c_int) -> CString {
    let path = route::full(&open.path());
    let is_there = crate::serve::inside(|| {
        let there = backend::backend()?.stat(&WeftPath::at(open.path()), true)?;
        Ok(there.st_ino == open.stat()?.st_ino)
    });
    if is_there.unwrap_or(false) { sys::c(&path) } else { sys::c(format!("/dev/fd/{fd}").as_bytes()) }
}

/// Returns the paths that `execvp` tries for `file`.
fn candidates(file: &[u8]) -> Vec<CString> {
    if file.contains(&b'/') {
        return vec![sys::c(file)];
    }
    let path = config::variable("PATH").unwrap_or(b"/bin:/usr/bin");
    let below = |dir: &[u8]| sys::c(&crate::pathname::join(if dir.is_empty() { b"." } else { dir }, file));
    path.split(|&byte| byte == b':').map(below).collect()
}

/// Finds `file` along PATH like `execvp`.
pub fn find_program(file: &[u8]) -> Option<CString> {
    let may_run = |path: &CString| {
        // SAFETY: a valid C string; the hook sees paths of ours.
        unsafe { super::attrs::access(path.as_ptr(), libc::X_OK) == 0 }
    };
    let is_path = file.contains(&b'/');
    candidates(file).into_iter().find(|path| is_path || may_run(path))
}

/// Implements `execvp`: searches PATH, and runs a file of unknown format with the shell.
unsafe fn search(file: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
    if !memory::is_text(file) {
        errno::set(libc::EFAULT);
        return -1;
    }
    let file = CStr::from_ptr(file).to_bytes();
    if file.is_empty() {
        errno::set(libc::ENOENT);
        return -1;
    }
    let mut is_denied = false;
    for path in candidates(file) {
        if super::attrs::access(path.as_ptr(), libc::F_OK) == 0 {
            run(path.as_ptr(), argv, envp);
        }
        match errno::get() {
            libc::ENOEXEC => return by_shell(&path, argv, envp),
            libc::EACCES => is_denied = true,
            libc::ENOENT | libc::ESTALE | libc::ENOTDIR | libc::ENODEV | libc::ETIMEDOUT => {}
            _ => return -1,
        }
    }
    if is_denied {
        errno::set(libc::EACCES);
    }
    -1
}

/// Runs a file of unknown format with the shell.
unsafe fn by_shell(path: &CStr, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
    let mut with_shell = vec![c"/bin/sh".as_ptr(), path.as_ptr()];
    let mut at = argv.add(usize::from(!(*argv).is_null()));
    while !(*at).is_null() {
        with_shell.push(*at);
        at = at.add(1);
    }
    with_shell.push(std::ptr::null());
    run(c"/bin/sh".as_ptr(), with_shell.as_ptr(), envp)
}

// The list forms are variadic, which Rust cannot define: a few instructions store the arguments after the first that
// came in registers, and pass their address and that of the arguments on the stack.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(test)))]
mod list_forms {
    use super::*;

    /// Number of variadic arguments that the calling convention passes in registers.
    const IN_REGISTERS: usize = if cfg!(target_arch = "x86_64") { 5 } else { 7 };

    #[cfg(target_arch = "aarch64")]
    macro_rules! list_form {
        ($name:ident, $number:literal) => {
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() -> c_int {
                core::arch::naked_asm!(
                    "stp x29, x30, [sp, #-80]!",
                    "mov x29, sp",
                    "stp x1, x2, [sp, #16]",
                    "stp x3, x4, [sp, #32]",
                    "stp x5, x6, [sp, #48]",
                    "str x7, [sp, #64]",
                    "add x1, sp, #16",
                    "add x2, sp, #80",
                    "mov w3, #{number}",
                    "bl {inner}",
                    "ldp x29, x30, [sp], #80",
                    "ret",
                    number = const $number,
                    inner = sym list_inner,
                )
            }
        };
    }

    #[cfg(target_arch = "x86_64")]
    macro_rules! list_form {
        ($name:ident, $number:literal) => {
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() -> c_int {
                core::arch::naked_asm!(
                    "push r9",
                    "push r8",
                    "push rcx",
                    "push rdx",
                    "push rsi",
                    "mov rsi, rsp",
                    "lea rdx, [rsp + 48]",
                    "mov ecx, {number}",
                    "call {inner}",
                    "add rsp, 40",
                    "ret",
                    number = const $number,
                    inner = sym list_inner,
                )
            }
        };
    }
    list_form!(execl, 0);
    list_form!(execlp, 1);
    list_form!(execle, 2);

    unsafe extern "C" fn list_inner(
        path: *const c_char,
        registers: *const *const c_char,
        stack: *const *const c_char,
        form: u32,
    ) -> c_int {
        let nth = |n: usize| if n < IN_REGISTERS { *registers.add(n) } else { *stack.add(n - IN_REGISTERS) };
        let mut argv = Vec::new();
        loop {
            let argument = nth(argv.len());
            argv.push(argument);
            if argument.is_null() {
                break;
            }
        }
        match form {
            0 => run(path, argv.as_ptr(), own_environment()),
            1 => search(path, argv.as_ptr(), own_environment()),
            _ => run(path, argv.as_ptr(), nth(argv.len()).cast()),
        }
    }
}

/// Whether a child needs Weft's state in its environment. It finds inherited files of the host by itself.
pub fn must_carry() -> bool {
    route::cwd().is_some()
        || (backend::in_use() || !table::all(0, 2).is_empty())
            && table::all(0, u32::MAX).into_iter().any(table::is_weft)
}

/// Runs `work` while the process's environment is that of a child, for functions of the C library that start programs
/// internally.
unsafe fn with_environment<T>(work: impl FnOnce() -> T) -> T {
    crate::open::before_sharing();
    if !must_carry() {
        return work();
    }
    let before = config::environ;
    let environment = environment_for_exec(before.cast_const().cast(), &surviving());
    config::environ = environment.as_ptr().cast_mut().cast();
    let result = work();
    config::environ = before;
    result
}

// The limit on file sizes is cached: see `limits`.
macro_rules! limit_hook {
    ($name:ident ($($arg:ident: $ty:ty),*)) => {
        #[doc = concat!("`", stringify!($name), "`.")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
            let done = real!($name: fn($($ty),*) -> c_int)($($arg),*);
            crate::limits::changed();
            done
        }
    };
}
limit_hook!(setrlimit(resource: c_int, limit: *const libc::rlimit));
limit_hook!(setrlimit64(resource: c_int, limit: *const libc::rlimit64));
limit_hook!(prlimit(process: pid_t, resource: c_int, new: *const libc::rlimit, old: *mut libc::rlimit));
limit_hook!(prlimit64(process: pid_t, resource: c_int, new: *const libc::rlimit64, old: *mut libc::rlimit64));

hook! { [system] (command: *const c_char) -> c_int {
    Some(with_environment(|| real!(system: fn(*const c_char) -> c_int)(command)))
} }
hook! { [popen] (command: *const c_char, mode: *const c_char) -> *mut FILE {
    Some(with_environment(|| real!(popen: fn(*const c_char, *const c_char) -> *mut FILE)(command, mode)))
} }
