//! Measures the cost of the library: nanoseconds per call with and without it.
//!
//! `cargo run --release -p weft-preload --example overhead [DIR-ON-THE-MOUNT]` runs itself twice for each row, the
//! second time with `LD_PRELOAD` (`target/release/libweft_preload.so` must exist). With a directory of the mount and
//! `WEFT_CLUSTER` set (or under `weft run`), it also compares a served `pread` with a native one.

use std::ffi::CString;
use std::process::Command;
use std::time::Instant;

/// Calls per measurement, and number of measurements, of which the fastest counts: other load only adds time.
const CALLS: u32 = 100_000;
const ROUNDS: u32 = 15;

fn best_ns(mut call: impl FnMut()) -> f64 {
    (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            (0..CALLS).for_each(|_| call());
            start.elapsed().as_nanos() as f64 / f64::from(CALLS)
        })
        .fold(f64::INFINITY, f64::min)
}

fn measure(what: &str, dir: &str) -> f64 {
    let path = CString::new(format!("{dir}/overhead")).expect("no zero in it");
    // SAFETY: plain libc calls on own buffers.
    unsafe {
        match what {
            // The cheapest system call on a descriptor and on a path.
            "lseek" => {
                let fd = libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY);
                best_ns(|| {
                    libc::lseek(fd, 0, libc::SEEK_CUR);
                })
            }
            "bad descriptor" => best_ns(|| {
                libc::read(-1, std::ptr::null_mut(), 0);
            }),
            "access" => best_ns(|| {
                libc::access(c"/tmp".as_ptr(), libc::F_OK);
            }),
            "access long" => best_ns(|| {
                libc::access(c"/usr/lib/x86_64-linux-gnu/libc.so.6".as_ptr(), libc::F_OK);
            }),
            "access missing" => best_ns(|| {
                libc::access(c"/usr/lib/there-is-no-such-file".as_ptr(), libc::F_OK);
            }),
            "pread 4 KiB" | "pread 64 KiB" => {
                let len = if what.contains("64") { 65536 } else { 4096 };
                let mut buf = vec![7u8; 1 << 16];
                let fd = libc::open(path.as_ptr(), libc::O_CREAT | libc::O_RDWR | libc::O_TRUNC, 0o600);
                assert!(fd >= 0, "{}: {}", dir, std::io::Error::last_os_error());
                assert_eq!(libc::write(fd, buf.as_ptr().cast(), 1 << 16), 1 << 16);
                let ns = best_ns(|| {
                    assert_eq!(libc::pread(fd, buf.as_mut_ptr().cast(), len, 0), len as isize);
                });
                libc::close(fd);
                libc::unlink(path.as_ptr());
                ns
            }
            _ => unreachable!("a row of the table"),
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, flag, what, dir] = &args[..]
        && flag == "--measure"
    {
        println!("{}", measure(what, dir));
        return;
    }
    let own = std::env::current_exe().expect("a program has a path");
    let library = own.parent().expect("examples").parent().expect("profile").join("libweft_preload.so");
    assert!(library.exists(), "build {} first: cargo build --release -p weft-preload", library.display());
    let child = |what: &str, dir: &str, preload: bool| -> f64 {
        let mut command = Command::new(&own);
        command.args(["--measure", what, dir]).env_remove("LD_PRELOAD");
        if preload {
            command.env("LD_PRELOAD", &library);
        }
        let output = command.output().expect("this program runs");
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        text.parse().unwrap_or_else(|_| panic!("{what}: {}", String::from_utf8_lossy(&output.stderr)))
    };
    println!("{:<28} {:>10} {:>10} {:>10} {:>8}", "call", "without ns", "with ns", "more ns", "ratio");
    let row = |name: &str, without: f64, with: f64| {
        println!("{name:<28} {without:>10.1} {with:>10.1} {:>10.1} {:>8.3}", with - without, with / without);
    };
    let temporary = std::env::temp_dir();
    let plain = temporary.to_str().expect("plain text");
    for what in ["bad descriptor", "lseek", "access", "access long", "access missing", "pread 4 KiB"] {
        row(&format!("foreign {what}"), child(what, plain, false), child(what, plain, true));
    }
    if let Some(dir) = args.get(1) {
        for what in ["pread 4 KiB", "pread 64 KiB"] {
            row(&format!("served {what}"), child(what, plain, false), child(what, dir, true));
        }
    }
}
