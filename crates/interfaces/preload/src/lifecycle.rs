//! Process lifecycle: state inherited at the start, and state environment_for_exec over fork and exec.
//!
//! A new program image finds the working directory and the open files of Weft in its environment (`WEFT_CWD`,
//! `WEFT_INHERIT`, `WEFT_TURNS`). They are recreated at each exec and are visible to the program.

use crate::config::{environ, variable};
use crate::open::{self, Open};
use crate::route::Cwd;
use crate::{backend, guard, hooks, pathname, placeholder, route, table};
use std::ffi::{CStr, CString, c_char};
use std::sync::Arc;
use std::sync::{Once, OnceLock};
use weft_config::job::{DELEGATE_KEY_VARIABLE, DELEGATES_VARIABLE, OVER_VARIABLE};
use weft_config::replicas::REPLICAS_VARIABLE;

const CWD: &str = "WEFT_CWD";
const CWD_TOKEN: &str = "WEFT_CWD_TOKEN";
const INHERIT: &str = "WEFT_INHERIT";
const TURNS: &str = "WEFT_TURNS";
/// Maximum length of a value in the environment: the kernel limits a string to 128 KiB.
const INHERIT_LEN_MAX: usize = 120 * 1024;

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: unsafe extern "C" fn() = at_start;

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: unsafe extern "C" fn() = at_end;

unsafe extern "C" fn at_end() {
    crate::trace::streams::at_end();
    close_replicated();
}

/// Closes the files with replicas that the program has left open, because the last user of a replica synchronizes it.
fn close_replicated() {
    if crate::config::ready().is_none_or(|config| config.replicas.is_empty()) {
        return;
    }
    let replicated = |fd: &i32| table::get(*fd).is_some_and(|open| open.has_replica());
    let open: Vec<i32> = table::all(0, u32::MAX).into_iter().filter(replicated).collect();
    if open.is_empty() {
        return;
    }
    // The C library writes what its streams hold after this function.
    // SAFETY: a null pointer stands for all streams.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    let _inside = guard::enter();
    for fd in open {
        // The error of the replica is on standard error already.
        let _ = crate::serve::inside(|| crate::open::close(fd));
    }
}

/// Settings as the process found them: programs like `env -i` empty their own environment first.
static SETTINGS: OnceLock<Vec<CString>> = OnceLock::new();

fn keep_settings() {
    let names =
        ["WEFT_MOUNT", "WEFT_CLUSTER", "WEFT_KEY", "WEFT_TRANSPORT", "WEFT_SYSCALLS", "WEFT_MMAP_SHARED"];
    let names = names.into_iter().chain(crate::trace::VARIABLES);
    let names = names.chain([DELEGATES_VARIABLE, DELEGATE_KEY_VARIABLE, OVER_VARIABLE, REPLICAS_VARIABLE]);
    let keep = |name: &str| {
        Some(CString::new([name.as_bytes(), b"=", variable(name)?].concat()).unwrap_or_default())
    };
    let _ = SETTINGS.set(names.filter_map(keep).collect());
}

/// Takes over the state of the previous image of this process. Without such state, this only reads a few environment
/// variables.
unsafe extern "C" fn at_start() {
    let _inside = guard::enter();
    // The first allocation initializes the program's allocator, whose calls reach hooks that do not serve anything yet.
    // SAFETY: the memory belongs to this function.
    unsafe { libc::free(std::hint::black_box(libc::malloc(1))) };
    crate::config::read();
    keep_settings();
    crate::trace::at_start();
    hooks::mpi::at_start();
    if let Some(text) = variable(CWD)
        && let Some(rest) = pathname::below(&crate::config::config().mount, text)
        && let Some(text) = pathname::tidy(rest)
    {
        let token = variable(CWD_TOKEN).and_then(|hex| from_hex(std::str::from_utf8(hex).ok()?));
        route::set_cwd(Some(Cwd::new(Open::inherited_place(token, text.clone()), text)));
    }
    if let Some(text) = variable(INHERIT) {
        let mut known = Vec::new();
        for item in text.split(|&byte| byte == b',') {
            let _ = inherit(item, &mut known);
        }
    }
    if let Some(fd) = variable(TURNS).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok()) {
        placeholder::inherit_turns(fd);
    }
    crate::over::register_inherited();
    hooks::dispatch::at_start();
}

/// Takes over one inherited descriptor: `fd:flags:directory:token in hex:path in hex:byte of its locks`.
///
/// Descriptors of one description get one [`Open`]; `known` contains those so far, with their token and byte.
fn inherit(item: &[u8], known: &mut Vec<(Vec<u8>, u64, Arc<Open>)>) -> Option<()> {
    let mut parts = std::str::from_utf8(item).ok()?.split(':');
    let fd: i32 = parts.next()?.parse().ok()?;
    let flags: i32 = parts.next()?.parse().ok()?;
    let directory = parts.next()? == "1";
    let token = from_hex(parts.next()?)?;
    let text = from_hex(parts.next()?)?;
    let lock_byte = parts.next()?.parse().ok()?;
    // An intermediate program without this library may have closed or moved it.
    if !placeholder::is_one(fd) {
        return None;
    }
    let open = match known.iter().find(|(other, byte, _)| *byte == lock_byte && *other == token) {
        Some((_, _, open)) => Arc::clone(open),
        None => {
            let open = Arc::new(Open::inherited(token.clone(), text, flags, directory, lock_byte));
            known.push((token, lock_byte, Arc::clone(&open)));
            open
        }
    };
    table::set(fd, open);
    let _ = crate::libio::prepare();
    Some(())
}

pub fn to_hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

/// Environment of a program image, in the format of `execve`.
pub struct Environment {
    _own: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Environment {
    pub fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

/// Returns the environment `given` with the variables that carry Weft's state over an exec. `inherited` lists the Weft
/// descriptors that stay open.
///
/// # Safety
/// `given` is null or a null-terminated array of C strings.
pub unsafe fn environment_for_exec(
    given: *const *const c_char,
    inherited: &[(i32, Arc<Open>)],
) -> Environment {
    let mut own = Vec::new();
    let mut pointers = Vec::new();
    let mut preloaded = false;
    let mut configured = Vec::new();
    let mut at = given;
    while !at.is_null() && !(*at).is_null() {
        let entry = CStr::from_ptr(*at).to_bytes();
        let name = entry.split(|&byte| byte == b'=').next().unwrap_or(entry);
        configured.push(name.to_vec());
        if name == b"LD_PRELOAD" {
            preloaded |= own_path().is_some_and(|path| contains(entry, &path));
        }
        let is_state = [CWD, CWD_TOKEN, INHERIT, TURNS].iter().any(|own| name == own.as_bytes());
        if !is_state && name != b"LD_PRELOAD" {
            pointers.push(*at);
        }
        if name == b"LD_PRELOAD" && preloaded {
            pointers.push(*at);
        } else if name == b"LD_PRELOAD" {
            own.push(
                CString::new([entry, b":", &own_path().unwrap_or_default()].concat()).unwrap_or_default(),
            );
            preloaded = true;
        }
        at = at.add(1);
    }
    if !preloaded && let Some(path) = own_path() {
        own.push(CString::new([b"LD_PRELOAD=", &path[..]].concat()).unwrap_or_default());
    }
    // A program with an emptied environment must not send its child to another cluster.
    for entry in SETTINGS.get().into_iter().flatten() {
        let name = entry.as_bytes().split(|&byte| byte == b'=').next().unwrap_or_default();
        if !configured.iter().any(|have| have == name) {
            pointers.push(entry.as_ptr());
        }
    }
    if let Some(cwd) = route::cwd() {
        own.push(
            CString::new([CWD.as_bytes(), b"=", &route::full(&cwd.text())].concat()).unwrap_or_default(),
        );
        if let Some(token) = cwd.open.token() {
            own.push(CString::new(format!("{CWD_TOKEN}={}", to_hex(&token))).unwrap_or_default());
        }
    }
    let mut list = String::new();
    for (fd, open) in inherited {
        let Some(token) = open.token() else { continue };
        let (flags, directory) = (open.flags(), u8::from(open.is_directory()));
        let (token, path, lock_byte) = (to_hex(&token), to_hex(&open.path()), open.lock_byte());
        let item = format!("{fd}:{flags}:{directory}:{token}:{path}:{lock_byte}");
        if list.len() + item.len() > INHERIT_LEN_MAX {
            break;
        }
        list.push_str(if list.is_empty() { "" } else { "," });
        list.push_str(&item);
    }
    if let Some(fd) = placeholder::turns_for_exec() {
        own.push(CString::new(format!("{TURNS}={fd}")).unwrap_or_default());
    }
    if !list.is_empty() {
        own.push(CString::new(format!("{INHERIT}={list}")).unwrap_or_default());
    }
    pointers.extend(own.iter().map(|text| text.as_ptr()));
    pointers.push(std::ptr::null());
    Environment { _own: own, pointers }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Returns the file from which this library was loaded.
pub fn own_path() -> Option<Vec<u8>> {
    // SAFETY: `dladdr` fills the struct and the name lives as long as the library.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(at_start as *const std::ffi::c_void, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        Some(CStr::from_ptr(info.dli_fname).to_bytes().to_vec())
    }
}

/// Returns the process's own environment.
pub fn own_environment() -> *const *const c_char {
    // SAFETY: reads a pointer.
    unsafe { environ.cast_const().cast() }
}

/// Returns the Weft descriptors that survive an exec.
pub fn surviving() -> Vec<(i32, Arc<Open>)> {
    let all = table::all(0, u32::MAX).into_iter();
    all.filter(|&fd| crate::sys::fcntl(fd, libc::F_GETFD, 0).is_ok_and(|flags| flags & libc::FD_CLOEXEC == 0))
        .filter_map(|fd| table::get(fd).map(|open| (fd, Arc::clone(&open))))
        .collect()
}

/// Registers the fork handler, at the first use of the client.
pub fn watch_forks() {
    static WATCH: Once = Once::new();
    // SAFETY: registers functions of this library, which is never unloaded.
    WATCH.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    });
}

/// Prepares a forked child, in which only the forking thread exists: resets locks of other threads, and replaces the
/// parent's connections.
unsafe extern "C" fn in_child() {
    let _inside = guard::enter();
    route::after_fork_in_child();
    table::after_fork_in_child();
    open::after_fork_in_child();
    hooks::aio::after_fork_in_child();
    hooks::fts::after_fork_in_child();
    for fd in table::all(0, u32::MAX) {
        if let Some(open) = table::get(fd) {
            open.after_fork_in_child();
        }
    }
    crate::private::after_fork_in_child();
    backend::after_fork_in_child();
}
