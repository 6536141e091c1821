//! The sandbox of the process that reads a Darshan log.
//!
//! Darshan's library is C code that parses a file from elsewhere. Once the library is loaded, the process can read the log,
//! write to the descriptors that it has, and take memory. It cannot get privileges by exec, open other files, write to any
//! path, open sockets, start processes or programs, or map new code.
//!
//! | layer | what it refuses | from |
//! | --- | --- | --- |
//! | no-new-privs | privileges by set-uid programs | Linux 3.5 |
//! | Landlock | every file but the log, for reading; TCP; signals and abstract sockets beyond the sandbox | Linux 5.13, 6.7, 6.12 |
//! | seccomp | every system call that is not in `calls`, `EPERM` | Linux 3.17 |

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

/// Access rights that the sandbox knows; an older kernel enforces those that it has.
const KNOWN: ABI = ABI::V6;

/// Most bytes of a log that is copied into memory.
const COPY_MAX: u64 = 1 << 30;

/// A log that can be opened inside the sandbox.
pub struct Log {
    path: PathBuf,
    /// Holds the copy of a log that the kernel does not know.
    copy: Option<File>,
}

impl Log {
    /// The log at `path`. Where a preloaded library serves file operations of this process, as Weft's does, the log is copied
    /// into memory: the library may need sockets and shared memory to read it.
    ///
    /// # Errors
    /// When it cannot be read, or is too long to be copied.
    pub fn at(path: &Path) -> io::Result<Self> {
        let found = std::fs::metadata(path)?;
        if !is_interposed() {
            return Ok(Self { path: path.to_owned(), copy: None });
        }
        if found.len() > COPY_MAX {
            let why = "it is longer than 1 GiB, which is not read under `weft run`: read it without";
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        // SAFETY: the name ends with zero.
        let fd = unsafe { libc::memfd_create(c"darshan-log".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and belongs to nobody else.
        let mut copy = unsafe { File::from_raw_fd(fd) };
        io::copy(&mut File::open(path)?.take(COPY_MAX), &mut copy)?;
        Ok(Self { path: format!("/proc/self/fd/{}", copy.as_raw_fd()).into(), copy: Some(copy) })
    }

    /// Where to open it.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Whether another library than the C library opens files for this process.
fn is_interposed() -> bool {
    // SAFETY: the name ends with zero; the structure is plain data, and its name, if there is one, is a C string that lives as
    // long as the library.
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

/// Closes the sandbox around this process, which may open `log` for reading afterwards; sentences about layers that the
/// kernel does not have.
pub fn enter(log: &Log) -> Vec<String> {
    let mut missing = Vec::new();
    // SAFETY: a call with plain numbers; no privileges are needed to give the right up.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1 as libc::c_ulong, 0_u64, 0_u64, 0_u64) } != 0 {
        let why = std::io::Error::last_os_error();
        missing.push(format!("it could gain privileges, because the kernel refuses no-new-privs ({why})"));
    }
    match restrict_files(log) {
        Ok(RulesetStatus::FullyEnforced) => {}
        Ok(RulesetStatus::PartiallyEnforced) => {} // an old Landlock: seccomp refuses sockets and signals as well
        Ok(RulesetStatus::NotEnforced) => {
            let why = "it could read other files of this user, because the kernel has no Landlock (Linux 5.13 and newer, where \
                       the boot parameter lsm= does not leave it out)";
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
    let told = |error: RulesetError| error.to_string();
    // A copy is a file of memory, which Landlock does not know.
    let rule = match log.copy {
        Some(_) => None,
        None => {
            let log = PathFd::new(&log.path).map_err(|error| error.to_string())?;
            Some(Ok::<_, RulesetError>(PathBeneath::new(log, AccessFs::ReadFile)))
        }
    };
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(KNOWN))
        .and_then(|ruleset| ruleset.handle_access(AccessNet::from_all(KNOWN)))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(KNOWN)))
        .and_then(Ruleset::create)
        .and_then(|ruleset| ruleset.add_rules(rule))
        .and_then(|ruleset| ruleset.restrict_self());
    ruleset.map(|status| status.ruleset).map_err(told)
}

/// System calls that are allowed, each with the bits of an argument that must be zero.
fn calls() -> Vec<(i64, Option<(u8, u64)>)> {
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
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let rule = |argument, width, op, value| {
        let condition = SeccompCondition::new(argument, width, op, value).map_err(|error| told(&error))?;
        SeccompRule::new(vec![condition]).map_err(|error| told(&error))
    };
    for (call, zero) in calls() {
        let conditions = match zero {
            None => Vec::new(),
            Some((argument, bits)) => {
                vec![rule(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bits), 0)?]
            }
        };
        rules.insert(call, conditions);
    }
    // abort() sends its signal to this process, and to no other.
    let own = SeccompCmpOp::Eq;
    rules.insert(libc::SYS_tgkill, vec![rule(0, SeccompCmpArgLen::Dword, own, std::process::id().into())?]);
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| told(&error))?;
    let refusal = SeccompAction::Errno(libc::EPERM as u32);
    let filter =
        SeccompFilter::new(rules, refusal, SeccompAction::Allow, arch).map_err(|error| told(&error))?;
    let program: BpfProgram = filter.try_into().map_err(|error: seccompiler::BackendError| told(&error))?;
    seccompiler::apply_filter(&program).map_err(|error| told(&error))
}
