//! Listening sockets.

use super::RealConn;
use super::conn::SocketCloser;
use super::sys::{self, Fd, RawAddress};
use crate::{Address, Closer, Listener};
use std::ffi::CString;
use std::io;
use std::net::ToSocketAddrs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Accepts connections. Dropping it removes the name of a Unix socket.
#[derive(Debug)]
pub struct RealListener {
    fd: Arc<Fd>,
    address: Address,
    _name: Option<SocketName>,
    fd_floor: i32,
}

/// Name of a Unix socket that this process bound. It is removed unless another process has replaced it.
#[derive(Debug)]
struct SocketName {
    path: PathBuf,
    identity: (u32, u32, u64),
}

impl RealListener {
    pub(super) fn bind(address: &Address, fd_floor: i32) -> io::Result<Self> {
        match address {
            Address::Unix(path) => Self::bind_unix(path, fd_floor),
            Address::Tcp(host, port) => Self::bind_tcp(host, *port, fd_floor),
        }
    }

    fn bind_unix(path: &Path, fd_floor: i32) -> io::Result<Self> {
        let raw = RawAddress::unix(path)?;
        let fd = sys::socket_for(&raw)?.lifted(fd_floor);
        // Two processes that find the same stale name must not remove each other's new socket.
        let _guard = lock_folder(path)?;
        match sys::bind(&fd, &raw) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale(path, &raw)? => {
                sys::unlink_at(libc::AT_FDCWD, &c_path(path)?)?;
                sys::bind(&fd, &raw)?;
            }
            result => result?,
        }
        // Every user who can reach the directory may connect, as over the network; the kernel reports who it is.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
        let name = SocketName { path: path.to_owned(), identity: identity(path)? };
        Ok(Self { fd: Arc::new(fd), address: Address::Unix(path.to_owned()), _name: Some(name), fd_floor })
    }

    fn bind_tcp(host: &str, port: u16, fd_floor: i32) -> io::Result<Self> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"));
        for at in (bare, port).to_socket_addrs()? {
            let raw = RawAddress::inet(at);
            let fd = sys::socket_for(&raw)?.lifted(fd_floor);
            sys::set_option(&fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1_i32)?;
            match sys::bind(&fd, &raw) {
                Ok(()) => {
                    let port = sys::local_address(&fd)?.to_inet().map_or(port, |bound| bound.port());
                    let address = Address::Tcp(host.to_owned(), port);
                    return Ok(Self { fd: Arc::new(fd), address, _name: None, fd_floor });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// Locks the folder of a socket until the result is dropped.
fn lock_folder(path: &Path) -> io::Result<Fd> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let fd = sys::open(libc::AT_FDCWD, &c_path(folder)?, libc::O_RDONLY | libc::O_DIRECTORY)?;
    sys::flock(&fd, libc::LOCK_EX)?;
    Ok(fd)
}

/// Whether an existing name is a socket on which no process listens.
fn is_stale(path: &Path, raw: &RawAddress) -> io::Result<bool> {
    // A plain file also refuses connections, but does not belong to Weft.
    let mode = sys::statx_at(libc::AT_FDCWD, &c_path(path)?, false)?.stx_mode;
    if u32::from(mode) & libc::S_IFMT != libc::S_IFSOCK {
        return Ok(false);
    }
    let probe = sys::socket_for(raw)?;
    Ok(sys::connect(&probe, raw).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused))
}

fn identity(path: &Path) -> io::Result<(u32, u32, u64)> {
    let meta = sys::statx_at(libc::AT_FDCWD, &c_path(path)?, false)?;
    Ok((meta.stx_dev_major, meta.stx_dev_minor, meta.stx_ino))
}

impl Drop for SocketName {
    fn drop(&mut self) {
        let Ok(_guard) = lock_folder(&self.path) else { return };
        if identity(&self.path).is_ok_and(|now| now == self.identity)
            && let Ok(path) = c_path(&self.path)
        {
            let _ = sys::unlink_at(libc::AT_FDCWD, &path);
        }
    }
}

impl Listener for RealListener {
    type Conn = RealConn;

    async fn accept(&mut self) -> io::Result<RealConn> {
        let (fd, from) = sys::accept(&self.fd)?;
        let fd = fd.lifted(self.fd_floor);
        match from.to_inet() {
            Some(from) => RealConn::remote(fd, from.to_string(), None, self.fd_floor),
            None => RealConn::local(fd, None, self.fd_floor),
        }
    }

    fn address(&self) -> Address {
        self.address.clone()
    }

    fn closer(&self) -> Box<dyn Closer> {
        Box::new(SocketCloser(Arc::clone(&self.fd)))
    }
}
