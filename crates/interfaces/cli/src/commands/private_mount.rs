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
use weft_core::ServerId;
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
        let metadata: ServerId = weft.cluster.map().metadata;
        let mounted = weft_fuse::mount_private(weft.client.clone()).map_err(failed)?;
        block_on(weft.client.status(metadata)).map_err(|error| Failure::new("private mount", why(&error)))?;
        println!("ready");
        detach_output();
        mounted.serve(&listener).map_err(failed)?;
        // The threads that serve the kernel end with the process, and with it the mount.
        std::process::exit(0);
    }
}
