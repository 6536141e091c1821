//! Helper processes of this crate, for its tests.
//!
//! The `weft` command has the same subcommands: `weft darshan-reader` and `weft replay-worker`.

use std::path::Path;
use std::process::ExitCode;
use weft_trace::darshan::{Mode, serve};
use weft_trace::prepared::{self, Prepared, Timing};
use weft_trace::replay;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().collect();
    let arg = |at: usize| args.get(at).and_then(|arg| arg.to_str());
    match (arg(1), arg(2), args.get(3)) {
        (Some("darshan-reader"), Some(mode), Some(path)) => match Mode::from_name(mode) {
            Some(mode) => ExitCode::from(serve(mode, Path::new(path))),
            None => ExitCode::from(2),
        },
        (Some("sandbox"), Some(log), Some(other)) => sandboxed(Path::new(log), Path::new(other)),
        (Some("replay-worker"), Some(spec), None) => match weft_trace::replay::serve(spec) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("replay-worker: {error}");
                ExitCode::FAILURE
            }
        },
        (Some("replay"), Some(trace), Some(parent_dir)) => replay(Path::new(trace), Path::new(parent_dir)),
        _ => ExitCode::from(2),
    }
}

/// Enters the sandbox of the Darshan reader and attempts what a malicious log must not achieve.
///
/// Prints one line per attempt with its `errno`, 0 if it succeeded.
fn sandboxed(log: &Path, other: &Path) -> ExitCode {
    use std::os::unix::ffi::OsStrExt;
    use weft_trace::darshan::sandbox;
    let path = |path: &Path| std::ffi::CString::new(path.as_os_str().as_bytes()).expect("no zero byte");
    let (log_path, other_path) = (path(log), path(other));
    let new_path = path(&other.with_extension("new"));
    let missing = sandbox::enter(&sandbox::Log::at(log).expect("a log"));
    println!("missing {}", missing.join(" / "));
    let tried = |what: &str, result: i64| {
        let errno = if result < 0 { std::io::Error::last_os_error().raw_os_error().unwrap_or(-1) } else { 0 };
        println!("{what} {errno}");
    };
    let args = [c"true".as_ptr(), std::ptr::null()];
    // SAFETY: all strings are zero-terminated and outlive the calls. The opened and mapped objects are unused. If
    // `fork` succeeds, the child exits at once.
    unsafe {
        tried("read-log", libc::open(log_path.as_ptr(), libc::O_RDONLY).into());
        tried("write-log", libc::open(log_path.as_ptr(), libc::O_WRONLY).into());
        tried("read-other", libc::open(other_path.as_ptr(), libc::O_RDONLY).into());
        tried("read-passwd", libc::open(c"/etc/passwd".as_ptr(), libc::O_RDONLY).into());
        tried("list", libc::open(c"/".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY).into());
        tried("create", libc::open(new_path.as_ptr(), libc::O_WRONLY | libc::O_CREAT, 0o600).into());
        tried("remove", libc::unlink(other_path.as_ptr()).into());
        tried("rename", libc::rename(other_path.as_ptr(), new_path.as_ptr()).into());
        tried("tcp-socket", libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0).into());
        tried("unix-socket", libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0).into());
        tried("exec", libc::execv(c"/bin/true".as_ptr(), args.as_ptr()).into());
        let child = libc::fork();
        if child == 0 {
            libc::_exit(0);
        }
        tried("fork", child.into());
        tried("signal", libc::kill(libc::getppid(), 0).into());
        tried("trace", libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0));
        let (none, flags) = (std::ptr::null_mut(), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let code = libc::mmap(none, 4096, libc::PROT_READ | libc::PROT_EXEC, flags, -1, 0);
        tried("map-code", if code == libc::MAP_FAILED { -1 } else { 0 });
        let memory = libc::mmap(none, 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        tried("map-memory", if memory == libc::MAP_FAILED { -1 } else { 0 });
    }
    ExitCode::SUCCESS
}

/// Replays a trace with its pauses, for tests that end the replay early.
fn replay(trace: &Path, parent_dir: &Path) -> ExitCode {
    let mut stream = weft_trace::open(trace, &weft_trace::OpenOptions::default()).expect("a trace");
    let prepared = Prepared::new(trace, &mut *stream, &prepared::Options::default(), |_| {}).expect("sound");
    let options = replay::Options {
        dir: parent_dir.join("replay"),
        processes: 2,
        threads: 1,
        timing: Timing::Speed(1.0),
        verify: false,
        space_limit: Some(u64::MAX),
        unlink_early: true,
        keep: false,
        sync: false,
        is_ended: || false,
        worker: vec![std::env::current_exe().expect("this program").into(), "replay-worker".into()],
        environment: Vec::new(),
    };
    match replay::run(&prepared, &options, |_| {}) {
        Ok(_) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
