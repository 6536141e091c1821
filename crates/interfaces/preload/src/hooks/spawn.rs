//! `posix_spawn`: no hook sees the calls inside the C library's implementation, so a process that uses Weft spawns by
//! fork.

use super::process::{find_program, must_carry};
use crate::lifecycle::{environment_for_exec, own_environment, surviving};
use crate::{errno, sys};
use libc::{c_char, c_int, c_short, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};
use std::ffi::CStr;

/// The C library's record of one file action (glibc 2.29 and later).
#[repr(C)]
struct Action {
    tag: c_int,
    what: ActionData,
}

#[repr(C)]
union ActionData {
    close: c_int,
    dup2: [c_int; 2],
    open: ActionOpen,
    chdir: *const c_char,
    fchdir: c_int,
    from: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct ActionOpen {
    fd: c_int,
    path: *const c_char,
    flags: c_int,
    mode: libc::mode_t,
}

/// Start of `posix_spawn_file_actions_t`.
#[repr(C)]
struct Actions {
    _allocated: c_int,
    used: c_int,
    actions: *const Action,
}

unsafe fn actions<'a>(of: *const posix_spawn_file_actions_t) -> &'a [Action] {
    match of.cast::<Actions>().as_ref() {
        Some(head) if head.used > 0 => std::slice::from_raw_parts(head.actions, head.used as usize),
        _ => &[],
    }
}

/// Whether any action opens or enters a Weft path, or may cut a file that delegates serve.
unsafe fn names_ours(list: &[Action]) -> bool {
    list.iter().any(|action| {
        let path = match action.tag {
            // Delegates cut files, and the C library would leave that to the kernel.
            2 if crate::over::is_on() && action.what.open.flags & libc::O_TRUNC != 0 => return true,
            2 => action.what.open.path,
            3 => action.what.chdir,
            _ => return false,
        };
        !matches!(crate::route::route(libc::AT_FDCWD, path), crate::route::Route::Foreign)
    })
}

/// Executes one action in the child, through the hooks.
unsafe fn act(action: &Action) -> Result<(), c_int> {
    let done = match action.tag {
        0 => {
            super::descriptors::close(action.what.close);
            0
        }
        1 => {
            let [from, to] = action.what.dup2;
            if from == to {
                // Equal numbers: the descriptor must be inherited.
                sys::fcntl(from, libc::F_SETFD, 0).map_or_else(
                    |number| {
                        errno::set(number);
                        -1
                    },
                    |_| 0,
                )
            } else {
                super::descriptors::dup2(from, to)
            }
        }
        2 => {
            let wanted = action.what.open;
            super::descriptors::close(wanted.fd);
            let fd = super::names::open(wanted.path, wanted.flags, wanted.mode);
            if fd >= 0 && fd != wanted.fd {
                let moved = super::descriptors::dup2(fd, wanted.fd);
                super::descriptors::close(fd);
                moved
            } else {
                fd
            }
        }
        3 => super::cwd::chdir(action.what.chdir),
        4 => super::cwd::fchdir(action.what.fchdir),
        5 => {
            super::descriptors::closefrom(action.what.from);
            0
        }
        // tcsetpgrp
        6 => libc::tcsetpgrp(action.what.fchdir, libc::getpgrp()),
        _ => 0,
    };
    if done < 0 { Err(errno::get()) } else { Ok(()) }
}

/// Applies the attributes, in the order of the C library.
unsafe fn attributes(of: *const posix_spawnattr_t) -> Result<(), c_int> {
    let check = |result: c_int| if result < 0 { Err(errno::get()) } else { Ok(()) };
    let mut flags: c_short = 0;
    if of.is_null() || libc::posix_spawnattr_getflags(of, &mut flags) != 0 {
        return Ok(());
    }
    let has = |flag: c_int| c_int::from(flags) & flag != 0;
    if has(libc::POSIX_SPAWN_SETSIGDEF) {
        let mut set = std::mem::zeroed();
        libc::posix_spawnattr_getsigdefault(of, &mut set);
        for signal in 1..=64 {
            if libc::sigismember(&set, signal) == 1 {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
    if has(libc::POSIX_SPAWN_SETSCHEDULER) || has(libc::POSIX_SPAWN_SETSCHEDPARAM) {
        let mut parameter: libc::sched_param = std::mem::zeroed();
        libc::posix_spawnattr_getschedparam(of, &mut parameter);
        if has(libc::POSIX_SPAWN_SETSCHEDULER) {
            let mut policy = 0;
            libc::posix_spawnattr_getschedpolicy(of, &mut policy);
            check(libc::sched_setscheduler(0, policy, &parameter))?;
        } else {
            check(libc::sched_setparam(0, &parameter))?;
        }
    }
    // POSIX_SPAWN_SETSID
    if has(0x80) {
        check(libc::setsid())?;
    }
    if has(libc::POSIX_SPAWN_SETPGROUP) {
        let mut group = 0;
        libc::posix_spawnattr_getpgroup(of, &mut group);
        check(libc::setpgid(0, group))?;
    }
    if has(libc::POSIX_SPAWN_RESETIDS) {
        check(libc::seteuid(libc::getuid()))?;
        check(libc::setegid(libc::getgid()))?;
    }
    if has(libc::POSIX_SPAWN_SETSIGMASK) {
        let mut set = std::mem::zeroed();
        libc::posix_spawnattr_getsigmask(of, &mut set);
        check(libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut()))?;
    }
    Ok(())
}

type Arguments = *const *const c_char;

/// Spawns by fork. A pipe returns the error of a failed step in the child.
unsafe fn by_fork(
    pid: *mut pid_t,
    path: *const c_char,
    list: &[Action],
    attr: *const posix_spawnattr_t,
    argv: Arguments,
    envp: Arguments,
    along_path: bool,
) -> c_int {
    let mut pipe = [0; 2];
    if libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
        return errno::get();
    }
    // Above the numbers that actions use.
    let report = sys::fcntl(pipe[1], libc::F_DUPFD_CLOEXEC, 200).unwrap_or(pipe[1]);
    let child = super::process::fork();
    if child == 0 {
        let prepared = attributes(attr).and_then(|()| list.iter().try_for_each(|action| act(action)));
        let number = match prepared {
            Err(number) => number,
            Ok(()) => {
                if along_path {
                    super::process::execvpe(path, argv, envp);
                } else {
                    super::process::execve(path, argv, envp);
                }
                errno::get()
            }
        };
        let _ = sys::write(report, &number.to_ne_bytes());
        libc::_exit(127);
    }
    let failed_fork = errno::get();
    sys::close(report);
    if report != pipe[1] {
        sys::close(pipe[1]);
    }
    let mut number = [0u8; 4];
    let report_len = if child < 0 { Ok(0) } else { sys::read(pipe[0], &mut number) };
    sys::close(pipe[0]);
    if child < 0 {
        return failed_fork;
    }
    if report_len == Ok(4) {
        libc::waitpid(child, std::ptr::null_mut(), 0);
        return i32::from_ne_bytes(number);
    }
    if !pid.is_null() {
        *pid = child;
    }
    0
}

macro_rules! spawn {
    ($name:ident, $along_path:literal) => {
        #[doc = concat!("`", stringify!($name), "`.")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(
            pid: *mut pid_t,
            path: *const c_char,
            file_actions: *const posix_spawn_file_actions_t,
            attr: *const posix_spawnattr_t,
            argv: Arguments,
            envp: Arguments,
        ) -> c_int {
            if !crate::config::is_ready() {
                return real!($name: fn(
                    *mut pid_t, *const c_char, *const posix_spawn_file_actions_t, *const posix_spawnattr_t,
                    Arguments, Arguments,
                ) -> c_int)(pid, path, file_actions, attr, argv, envp);
            }
            let list = actions(file_actions);
            let envp = if envp.is_null() { own_environment() } else { envp };
            let ours = must_carry() || names_ours(list) || program_is_ours(path, argv, $along_path);
            if ours && !crate::guard::inside() {
                return by_fork(pid, path, list, attr, argv, envp, $along_path);
            }
            crate::open::before_sharing();
            let environment = environment_for_exec(envp, &surviving());
            real!($name: fn(
                *mut pid_t, *const c_char, *const posix_spawn_file_actions_t, *const posix_spawnattr_t, Arguments,
                Arguments,
            ) -> c_int)(pid, path, file_actions, attr, argv, environment.as_ptr())
        }
    };
}
spawn!(posix_spawn, false);
spawn!(posix_spawnp, true);

/// Whether executing the program needs this library. Warns of a program that cannot load it.
unsafe fn program_is_ours(path: *const c_char, argv: Arguments, along_path: bool) -> bool {
    if !crate::memory::is_text(path) {
        return false;
    }
    let found;
    let path = if along_path {
        found = find_program(CStr::from_ptr(path).to_bytes());
        found.as_ref().map_or(path, |found| found.as_ptr())
    } else {
        path
    };
    let is_ours = super::program::needs_library(path);
    if !is_ours {
        super::unloadable::warn(path, argv);
    }
    is_ours
}
