//! Sockets.

use super::{Fd, call, retry};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Maximum number of descriptors that travel with one message.
pub const ATTACHMENTS_MAX: usize = 8;

/// Socket address in the kernel's format.
#[derive(Clone, Copy)]
pub struct RawAddress {
    storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

impl RawAddress {
    fn of<T>(value: T, len: usize) -> Self {
        assert!(size_of::<T>() <= size_of::<libc::sockaddr_storage>());
        // SAFETY: zeros are a valid `sockaddr_storage`.
        let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        // SAFETY: `T` is one of the plain socket addresses and fits, as asserted.
        unsafe { std::ptr::write((&raw mut storage).cast::<T>(), value) };
        Self { storage, len: len as libc::socklen_t }
    }

    /// Returns the address of a Unix socket at `path`.
    pub fn unix(path: &Path) -> io::Result<Self> {
        // SAFETY: zeros are a valid `sockaddr_un`.
        let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        let bytes = path.as_os_str().as_bytes();
        if bytes.is_empty() || bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{}: a Unix socket's path has 1 to 107 bytes", path.display()),
            ));
        }
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, &from) in address.sun_path.iter_mut().zip(bytes) {
            *to = from as libc::c_char;
        }
        let len = std::mem::offset_of!(libc::sockaddr_un, sun_path) + bytes.len() + 1;
        Ok(Self::of(address, len))
    }

    /// Returns an internet address.
    pub fn inet(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(v4) => {
                // SAFETY: zeros are a valid `sockaddr_in`.
                let mut raw: libc::sockaddr_in = unsafe { std::mem::zeroed() };
                raw.sin_family = libc::AF_INET as libc::sa_family_t;
                raw.sin_port = v4.port().to_be();
                raw.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
                Self::of(raw, size_of::<libc::sockaddr_in>())
            }
            SocketAddr::V6(v6) => {
                // SAFETY: zeros are a valid `sockaddr_in6`.
                let mut raw: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
                raw.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                raw.sin6_port = v6.port().to_be();
                raw.sin6_addr.s6_addr = v6.ip().octets();
                raw.sin6_flowinfo = v6.flowinfo();
                raw.sin6_scope_id = v6.scope_id();
                Self::of(raw, size_of::<libc::sockaddr_in6>())
            }
        }
    }

    /// Calls `ask` with space for an address and its length, and returns the address.
    fn query_address(
        call: impl FnOnce(*mut libc::sockaddr_storage, *mut libc::socklen_t) -> io::Result<usize>,
    ) -> io::Result<Self> {
        // SAFETY: zeros are a valid `sockaddr_storage`.
        let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let mut len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        call(&raw mut storage, &raw mut len)?;
        Ok(Self { storage, len })
    }

    /// Returns the internet address, if it is one.
    pub fn to_inet(self) -> Option<SocketAddr> {
        match i32::from(self.storage.ss_family) {
            libc::AF_INET => {
                // SAFETY: the family says which structure the storage holds.
                let raw = unsafe { *(&raw const self.storage).cast::<libc::sockaddr_in>() };
                let ip = IpAddr::from(raw.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddr::new(ip, u16::from_be(raw.sin_port)))
            }
            libc::AF_INET6 => {
                // SAFETY: the family says which structure the storage holds.
                let raw = unsafe { *(&raw const self.storage).cast::<libc::sockaddr_in6>() };
                Some(SocketAddr::new(IpAddr::from(raw.sin6_addr.s6_addr), u16::from_be(raw.sin6_port)))
            }
            _ => None,
        }
    }

    fn family(&self) -> i32 {
        i32::from(self.storage.ss_family)
    }
}

/// Creates a stream socket of the family of `address`.
pub fn socket_for(address: &RawAddress) -> io::Result<Fd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: no memory is involved.
    unsafe { call!(SYS_socket, address.family(), kind, 0) }.map(Fd::from_call)
}

/// Connects; waits for at most the socket's send timeout.
pub fn connect(fd: &Fd, address: &RawAddress) -> io::Result<()> {
    // SAFETY: `address` is a valid socket address of its length.
    let result = retry(|| unsafe { call!(SYS_connect, fd.0, &raw const address.storage, address.len) });
    match result {
        // The interrupted attempt continued and had succeeded before the next one.
        Err(error) if error.raw_os_error() == Some(libc::EISCONN) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Err(io::ErrorKind::TimedOut.into()),
        result => result.map(drop).map_err(timed_out),
    }
}

/// Binds a socket.
pub fn bind_only(fd: &Fd, address: &RawAddress) -> io::Result<()> {
    // SAFETY: `address` is a valid socket address of its length.
    unsafe { call!(SYS_bind, fd.0, &raw const address.storage, address.len) }.map(drop)
}

/// Binds a socket and listens.
pub fn bind(fd: &Fd, address: &RawAddress) -> io::Result<()> {
    bind_only(fd, address)?;
    // SAFETY: no memory is involved. The kernel limits the length of the queue.
    unsafe { call!(SYS_listen, fd.0, 4096) }.map(drop)
}

/// Waits for the next connection. Returns it with the peer's address.
pub fn accept(fd: &Fd) -> io::Result<(Fd, RawAddress)> {
    loop {
        // SAFETY: zeros are a valid `sockaddr_storage`.
        let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let mut len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes to `storage`, and the length to `len`.
        let result =
            retry(|| unsafe { call!(SYS_accept4, fd.0, &raw mut storage, &raw mut len, libc::SOCK_CLOEXEC) });
        match result {
            // The peer gave up while the connection waited.
            Err(error) if error.raw_os_error() == Some(libc::ECONNABORTED) => {}
            result => return result.map(|number| (Fd::from_call(number), RawAddress { storage, len })),
        }
    }
}

/// Returns the address that a socket is bound to.
pub fn local_address(fd: &Fd) -> io::Result<RawAddress> {
    // SAFETY: the kernel writes at most `len` bytes.
    RawAddress::query_address(|storage, len| unsafe { call!(SYS_getsockname, fd.0, storage, len) })
}

/// Returns the address that a socket is connected to.
pub fn peer_address(fd: &Fd) -> io::Result<RawAddress> {
    // SAFETY: the kernel writes at most `len` bytes.
    RawAddress::query_address(|storage, len| unsafe { call!(SYS_getpeername, fd.0, storage, len) })
}

/// Shuts down both directions of a connection, or ends the wait on a listener.
pub fn shutdown(fd: &Fd) {
    // SAFETY: no memory is involved.
    let _ = unsafe { call!(SYS_shutdown, fd.0, libc::SHUT_RDWR) };
}

/// Sets one socket option to a plain value.
pub fn set_option<T: Copy>(fd: &Fd, level: i32, option: i32, value: T) -> io::Result<()> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes of `value`.
    unsafe { call!(SYS_setsockopt, fd.0, level, option, &raw const value, size_of::<T>()) }.map(drop)
}

/// Returns the credentials of the process at the other end of a Unix socket.
pub fn peer_credentials(fd: &Fd) -> io::Result<libc::ucred> {
    let mut value = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `value`, and the length to `len`.
    unsafe {
        call!(SYS_getsockopt, fd.0, libc::SOL_SOCKET, libc::SO_PEERCRED, &raw mut value, &raw mut len)
    }?;
    Ok(value)
}

/// Returns the supplementary groups of the process at the other end of a Unix socket.
pub fn peer_groups(fd: &Fd) -> io::Result<Vec<u32>> {
    const SO_PEERGROUPS: i32 = 59;
    let mut groups = vec![0_u32; 32];
    loop {
        let mut len = (groups.len() * 4) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes to `groups`, and the length to `len`.
        let result = unsafe {
            call!(SYS_getsockopt, fd.0, libc::SOL_SOCKET, SO_PEERGROUPS, groups.as_mut_ptr(), &raw mut len)
        };
        let count = len as usize / 4;
        match result {
            Ok(_) => {
                groups.truncate(count);
                return Ok(groups);
            }
            Err(error) if error.raw_os_error() == Some(libc::ERANGE) && count > groups.len() => {
                groups.resize(count, 0);
            }
            // Kernels before 4.13 do not report groups: use only the primary one.
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        }
    }
}

/// Buffer for the control message of [`ATTACHMENTS_MAX`] descriptors, aligned for its header.
#[repr(C, align(8))]
struct Control([u8; 64]);

const RIGHTS_BYTES: usize = ATTACHMENTS_MAX * size_of::<i32>();
// SAFETY: the macro only computes a length.
const _: () = assert!(unsafe { libc::CMSG_SPACE(RIGHTS_BYTES as u32) } as usize <= size_of::<Control>());

fn message(parts: &[libc::iovec]) -> libc::msghdr {
    // SAFETY: zeros are a valid `msghdr`.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_ptr().cast_mut();
    message.msg_iovlen = parts.len() as _;
    message
}

/// Sends some of `parts`; `more` says that the rest of the message follows immediately.
pub fn send(fd: &Fd, parts: &[libc::iovec], more: bool) -> io::Result<usize> {
    let flags = libc::MSG_NOSIGNAL | if more { libc::MSG_MORE } else { 0 };
    // SAFETY: the caller keeps the memory of `parts` readable during the call.
    unsafe {
        match parts {
            [one] => call!(SYS_sendto, fd.0, one.iov_base, one.iov_len, flags, 0, 0),
            many => {
                let message = message(many);
                call!(SYS_sendmsg, fd.0, &raw const message, flags)
            }
        }
    }
    .map_err(timed_out)
}

/// Sends some of `bytes` with the descriptors `fds`, all of which travel with the first byte.
pub fn send_with(fd: &Fd, bytes: &[u8], fds: &[i32]) -> io::Result<usize> {
    assert!(!bytes.is_empty() && fds.len() <= ATTACHMENTS_MAX, "1 byte and at most 8 descriptors");
    let part = [libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }];
    let mut message = message(&part);
    let mut control = Control([0; 64]);
    if !fds.is_empty() {
        let len = size_of_val(fds) as u32;
        message.msg_control = (&raw mut control).cast();
        // SAFETY: `control` has space for the header and 8 descriptors, and there are at most 8.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(len) as _;
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(len) as _;
            std::ptr::copy_nonoverlapping(fds.as_ptr().cast::<u8>(), libc::CMSG_DATA(header), len as usize);
        }
    }
    // SAFETY: everything that `message` points to lives until the call returns.
    unsafe { call!(SYS_sendmsg, fd.0, &raw const message, libc::MSG_NOSIGNAL) }.map_err(timed_out)
}

/// Receives into `parts`; with `all` the kernel waits until they are full where it can.
pub fn recv(fd: &Fd, parts: &[libc::iovec], all: bool) -> io::Result<usize> {
    let flags = if all { libc::MSG_WAITALL } else { 0 };
    // SAFETY: the caller has borrowed the memory of `parts` for writing during the call.
    unsafe {
        match parts {
            [one] => call!(SYS_recvfrom, fd.0, one.iov_base, one.iov_len, flags, 0, 0),
            many => {
                let mut message = message(many);
                call!(SYS_recvmsg, fd.0, &raw mut message, flags)
            }
        }
    }
    .map_err(timed_out)
}

/// Gives the processor up to another task that is ready to run on it.
pub fn yield_processor() {
    // SAFETY: without arguments.
    let _ = unsafe { call!(SYS_sched_yield) };
}

/// Receives into `parts` and passes every attached descriptor to `attached`. Fails with kind `TimedOut` after the
/// socket's timeout or, without `waits`, at once if nothing has arrived.
pub fn recv_with(
    fd: &Fd,
    parts: &[libc::iovec],
    all: bool,
    waits: bool,
    mut attached: impl FnMut(Fd),
) -> io::Result<usize> {
    let mut message = message(parts);
    let mut control = Control([0; 64]);
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>() as _;
    let flags = libc::MSG_CMSG_CLOEXEC
        | if all { libc::MSG_WAITALL } else { 0 }
        | if waits { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: everything that `message` points to lives until the call returns, and the caller has borrowed the memory
    // of `parts` for writing.
    let count = unsafe { call!(SYS_recvmsg, fd.0, &raw mut message, flags) }.map_err(timed_out)?;
    // SAFETY: the kernel wrote well-formed control messages of `msg_controllen` bytes; this process owns the new
    // descriptors in them.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(header).cast::<i32>();
                let len = (*header).cmsg_len as usize - (data as usize - header as usize);
                for index in 0..len / size_of::<i32>() {
                    attached(Fd::from_raw(data.add(index).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(&message, header);
        }
    }
    Ok(count)
}

/// Converts an error: a blocking socket returns EAGAIN only when its timeout has expired.
pub fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}
