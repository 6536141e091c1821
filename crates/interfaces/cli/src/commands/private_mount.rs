//! `weft private-mount`: serves the private mount of `weft run`, for the programs of one user.
//!
//! The preload library starts this process when a program first needs the kernel to serve a file. Programs connect to an
//! abstract socket, which has no file, and receive a descriptor of the mount's root. When no program is connected and the
//! kernel has no file open, the process ends, and with it the mount.

use super::mount::detach_output;
use super::session::{Weft, why};
use crate::failure::Failure;
use clap::Args;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use weft_env::real::block_on;

/// Serves the private mount. Only the preload library starts this command.
#[derive(Args)]
pub struct PrivateMount {
    /// Name of the abstract socket
    socket: String,
}

impl PrivateMount {
    /// Runs the command.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let failed = |error: io::Error| Failure::new("private mount", error);
        define_process();
        let address = SocketAddr::from_abstract_name(&self.socket).map_err(failed)?;
        let listener = match UnixListener::bind_addr(&address) {
            // Another process began to serve meanwhile.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                println!("ready");
                return Ok(0);
            }
            listener => listener.map_err(failed)?,
        };
        let weft = Weft::for_mount(super::load(file)?, true)?;
        let mounted = weft_fuse::mount_private(weft.client.clone()).map_err(|error| {
            let remedy = weft_fuse::device::remedy(&error);
            failed(error).remedy(remedy)
        })?;
        block_on(weft.client.fetch_map()).map_err(|error| Failure::new("private mount", why(&error)))?;
        println!("ready");
        detach_output();
        mounted.serve(&listener).map_err(failed)?;
        // The threads that serve the kernel end with the process, and with it the mount.
        std::process::exit(0);
    }
}

/// Gives this process limits and attributes that do not depend on the program that started it, because it serves others
/// too. An ordinary user cannot exceed hard limits, nor change groups.
fn define_process() {
    let raised = [
        libc::RLIMIT_AS,
        libc::RLIMIT_CPU,
        libc::RLIMIT_DATA,
        libc::RLIMIT_FSIZE,
        libc::RLIMIT_MEMLOCK,
        libc::RLIMIT_NOFILE,
        libc::RLIMIT_NPROC,
    ];
    let all = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the structs are plain data, and the pointers are to locals; this process has one thread.
    unsafe {
        for limit in raised {
            let mut own = all;
            // The number of open files is never unlimited.
            let is_done = limit != libc::RLIMIT_NOFILE && libc::setrlimit(limit, &raw const all) == 0;
            if !is_done && libc::getrlimit(limit, &raw mut own) == 0 {
                own.rlim_cur = own.rlim_max;
                libc::setrlimit(limit, &raw const own);
            }
        }
        // A write beyond a hard limit of file lengths fails instead of ending this process.
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        libc::umask(0o022);
        let mut processors: libc::cpu_set_t = std::mem::zeroed();
        (0..libc::CPU_SETSIZE as usize).for_each(|number| libc::CPU_SET(number, &mut processors));
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const processors);
        libc::setpriority(libc::PRIO_PROCESS, 0, 0);
        if libc::geteuid() == 0 {
            libc::setgroups(0, std::ptr::null());
        }
    }
}
