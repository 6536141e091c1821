//! The sandbox of the process that reads a Darshan log.
//!
//! Darshan's library is C code that parses untrusted files. Once the library is loaded, the process can read the log,
//! write to the descriptors that it has, and allocate memory. It cannot gain privileges, open other files, write to any
//! path, open sockets, start processes or programs, or map new code.
//!
//! | layer | denies | since |
//! | --- | --- | --- |
//! | no-new-privs | privileges of set-user-ID programs | Linux 3.5 |
//! | Landlock | other files; TCP; signals and abstract sockets outside the sandbox | Linux 5.13, 6.7, 6.12 |
//! | seccomp | every system call that is not in `allowed_calls`, with `EPERM` | Linux 3.17 |

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::{Path, PathBuf};

/// Newest Landlock version used. An older kernel enforces the rights that it supports.
const LANDLOCK_ABI: ABI = ABI::V6;

/// Maximum length in bytes of a log that is copied into memory.
const COPY_BYTES_MAX: u64 = 1 << 30;

/// A log that can be opened inside the sandbox.
pub struct Log {
    path: PathBuf,
    /// In-memory copy of a log that exists only in an interposed file system.
    copy: Option<File>,
}

impl Log {
    /// Prepares the log at `path`.
    ///
    /// If a preloaded library such as Weft's serves this process's file operations, the log is copied into memory: that
    /// library may need sockets and shared memory to read it.
    ///
    /// # Errors
    /// Fails if the log cannot be read or is too long to be copied.
    pub fn at(path: &Path) -> io::Result<Self> {
        let found = std::fs::metadata(path)?;
        if !is_interposed() {
            return Ok(Self { path: path.to_owned(), copy: None });
        }
        if found.len() > COPY_BYTES_MAX {
            let why = "logs longer than 1 GiB cannot be read under `weft run`; read this log without it";
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        // SAFETY: the name is zero-terminated.
        let fd = unsafe { libc::memfd_create(c"darshan-log".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and owned by nothing else.
        let mut copy = unsafe { File::from_raw_fd(fd) };
        io::copy(&mut File::open(path)?.take(COPY_BYTES_MAX), &mut copy)?;
        Ok(Self { path: format!("/proc/self/fd/{}", copy.as_raw_fd()).into(), copy: Some(copy) })
    }

    /// Path at which the log can be opened inside the sandbox.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Whether a library other than the C library opens files for this process.
fn is_interposed() -> bool {
    // SAFETY: the name is zero-terminated. The structure is plain data, and its name, if any, is a C string that lives
    // as long as the library.
    unsafe {
        let open = libc::dlsym(libc::RTLD_DEFAULT, c"open64".as_ptr());
        let mut info: libc::Dl_info = std::mem::zeroed();
        if open.is_null() || libc::dladdr(open, &raw mut info) == 0 || info.dli_fname.is_null() {
            return false;
        }
        let library = CStr::from_ptr(info.dli_fname).to_bytes();
        let name = library.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        !name.starts_with(b"libc.") && !name.starts_with(b"libc-") && !name.starts_with(b"ld-")
    }
}

/// Confines this process, which can still open `log` for reading.
///
/// Returns a sentence for each layer that the kernel does not support.
pub fn enter(log: &Log) -> Vec<String> {
    let mut missing = Vec::new();
    // SAFETY: a call with integer arguments.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1 as libc::c_ulong, 0_u64, 0_u64, 0_u64) } != 0 {
        let why = std::io::Error::last_os_error();
        missing.push(format!("it could gain privileges, because the kernel refuses no-new-privs ({why})"));
    }
    match restrict_files(log) {
        Ok(RulesetStatus::FullyEnforced) => {}
        Ok(RulesetStatus::PartiallyEnforced) => {} // an older Landlock: seccomp denies sockets and signals as well
        Ok(RulesetStatus::NotEnforced) => {
            let why = "it could read other files of this user, because the kernel has no Landlock (Linux 5.13 or \
                       newer, unless the boot parameter lsm= leaves it out)";
            missing.push(why.to_owned());
        }
        Err(why) => {
            missing.push(format!("it could read other files of this user, because Landlock failed ({why})"))
        }
    }
    if let Err(why) = restrict_calls() {
        missing.push(format!("it could make every system call, because seccomp failed ({why})"));
    }
    missing
}

fn restrict_files(log: &Log) -> Result<RulesetStatus, String> {
    let as_text = |error: RulesetError| error.to_string();
    // The in-memory copy is not on a file system that Landlock restricts.
    let rule = match log.copy {
        Some(_) => None,
        None => {
            let log = PathFd::new(&log.path).map_err(|error| error.to_string())?;
            Some(Ok::<_, RulesetError>(PathBeneath::new(log, AccessFs::ReadFile)))
        }
    };
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(LANDLOCK_ABI))
        .and_then(|ruleset| ruleset.handle_access(AccessNet::from_all(LANDLOCK_ABI)))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(LANDLOCK_ABI)))
        .and_then(Ruleset::create)
        .and_then(|ruleset| ruleset.add_rules(rule))
        .and_then(|ruleset| ruleset.restrict_self());
    ruleset.map(|status| status.ruleset).map_err(as_text)
}

/// Allowed system calls. Where a pair (argument index, bits) is given, these bits of the argument must be zero.
fn allowed_calls() -> Vec<(i64, Option<(u8, u64)>)> {
    const CHANGES: u64 = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND | libc::O_TMPFILE)
        as u64
        & !(libc::O_DIRECTORY as u64);
    const EXECUTABLE: u64 = libc::PROT_EXEC as u64;
    let free = [
        libc::SYS_read,
        libc::SYS_readv,
        libc::SYS_pread64,
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_lseek,
        libc::SYS_close,
        libc::SYS_fstat,
        libc::SYS_newfstatat,
        libc::SYS_statx,
        libc::SYS_fcntl,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_brk,
        libc::SYS_madvise,
        libc::SYS_futex,
        libc::SYS_getrandom,
        libc::SYS_clock_gettime,
        libc::SYS_gettimeofday,
        libc::SYS_getpid,
        libc::SYS_gettid,
        libc::SYS_getuid,
        libc::SYS_geteuid,
        libc::SYS_getgid,
        libc::SYS_getegid,
        libc::SYS_uname,
        libc::SYS_sched_yield,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_sigaltstack,
        libc::SYS_exit,
        libc::SYS_exit_group,
    ];
    let mut calls: Vec<_> = free.into_iter().map(|call| (call, None)).collect();
    calls.push((libc::SYS_openat, Some((2, CHANGES))));
    calls.push((libc::SYS_mmap, Some((2, EXECUTABLE))));
    calls.push((libc::SYS_mprotect, Some((2, EXECUTABLE))));
    #[cfg(target_arch = "x86_64")]
    {
        calls.push((libc::SYS_open, Some((1, CHANGES))));
        calls.extend([libc::SYS_stat, libc::SYS_lstat, libc::SYS_time].map(|call| (call, None)));
    }
    calls
}

fn restrict_calls() -> Result<(), String> {
    let as_text = |error: &dyn std::fmt::Display| error.to_string();
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let rule = |argument, width, op, value| {
        let condition = SeccompCondition::new(argument, width, op, value).map_err(|error| as_text(&error))?;
        SeccompRule::new(vec![condition]).map_err(|error| as_text(&error))
    };
    for (call, zero) in allowed_calls() {
        let conditions = match zero {
            None => Vec::new(),
            Some((argument, bits)) => {
                vec![rule(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bits), 0)?]
            }
        };
        rules.insert(call, conditions);
    }
    // abort() sends SIGABRT to this process. Signals to other processes stay denied.
    let own = SeccompCmpOp::Eq;
    rules.insert(libc::SYS_tgkill, vec![rule(0, SeccompCmpArgLen::Dword, own, std::process::id().into())?]);
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| as_text(&error))?;
    let refusal = SeccompAction::Errno(libc::EPERM as u32);
    let filter =
        SeccompFilter::new(rules, refusal, SeccompAction::Allow, arch).map_err(|error| as_text(&error))?;
    let program: BpfProgram =
        filter.try_into().map_err(|error: seccompiler::BackendError| as_text(&error))?;
    seccompiler::apply_filter(&program).map_err(|error| as_text(&error))
}
