//! The private mount: a mount without a place in any directory, for programs of `weft run`.
//!
//! The preload library gets a descriptor of its root, and hands it files that the kernel must serve. For that it looks up
//! `.weft:` and the hexadecimal token of an open file in the root. The mount opens the file in its own session, and the next
//! open of the inode uses it. So files need no name, and permissions are those of the open.
//!
//! All programs with a mapping of the file share the kernel's pages. Writes beside them follow the rules of every mount
//! (see `file_pages`).

mod create;
mod serve;

use crate::convert::{SHOWN_OWNER, open_flags};
use crate::filesystem::{TRANSFER_LEN_MAX, WeftFilesystem};
use crate::handles::Handles;
use crate::open::OpenHandle;
use crate::splice::Splicer;
use crate::{MountOptions, default_threads, is_colocated, turns};
use create::{Created, Kind};
use fuser::{BackgroundSession, Config, FileHandle, FopenFlags, INodeNo, Request, Session, SessionACL};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use weft_client::{Client, Error, HandleToken, OpenFile};
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::{Attr, ROOT};

/// Begin of names that hand over a file.
const PREFIX: &[u8] = b".weft:";
/// Error of a name that describes no open file.
const GONE: Error = Error::Misuse { errno: weft_wire::Errno::ESTALE, why: "the name describes no open file" };
/// Maximum number of files that were handed over and not opened yet. The oldest is closed first.
const WAITING_MAX: usize = 64;

/// Files that were handed over and are not open in the kernel yet.
#[derive(Default)]
pub struct HandedFiles {
    waiting: Mutex<VecDeque<OpenFile<RealEnv>>>,
}

impl WeftFilesystem {
    /// Returns the token in a name that hands over a file.
    pub fn handed_name(&self, parent: INodeNo, name: &OsStr) -> Option<Vec<u8>> {
        let digits = name.as_bytes().strip_prefix(PREFIX)?;
        if self.handed.is_none() || parent.0 != ROOT.0 || digits.len() % 2 != 0 {
            return None;
        }
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        digits.chunks(2).map(byte).collect()
    }

    /// Opens a file that a program has open, in the session of the mount.
    pub fn take_over(&self, request: &Request, token: &[u8]) -> Result<Attr, Error> {
        let token = HandleToken::decode(token).ok_or(GONE)?;
        let file = block_on(self.client(request).adopt(&token))?;
        let mut found = file.attr_at_open().clone();
        // The kernel lets no program touch a mapping beyond the size that it knows.
        found.size = block_on(file.size())?;
        if let Some(handed) = &self.handed {
            let mut waiting = handed.waiting.lock();
            if waiting.len() >= WAITING_MAX {
                waiting.pop_front();
            }
            waiting.push_back(file);
        }
        Ok(found)
    }

    /// Opens a file that was handed over for this access.
    pub fn open_handed(&self, ino: INodeNo, flags: i32) -> Option<(FileHandle, FopenFlags)> {
        let wanted = open_flags(flags);
        if flags & libc::O_APPEND != 0 {
            return None;
        }
        let mut waiting = self.handed.as_ref()?.waiting.lock();
        let fits = |file: &OpenFile<RealEnv>| {
            let flags = file.token().flags;
            file.file().0 == ino.0 && (flags.read || !wanted.read) && (flags.write || !wanted.write)
        };
        let file = waiting.iter().position(fits).and_then(|at| waiting.remove(at))?;
        drop(waiting);
        Some(self.keep(file, flags))
    }
}

/// Private mount, served in the background until the process ends.
pub struct PrivateMount {
    root: OwnedFd,
    files: Arc<Handles<OpenHandle>>,
    _session: BackgroundSession,
}

impl PrivateMount {
    /// Hands the root to programs of this user that connect to `listener`, until no program is connected and the kernel has
    /// no file open.
    ///
    /// # Errors
    /// If the listener cannot be used.
    pub fn serve(&self, listener: &UnixListener) -> io::Result<()> {
        serve::serve(listener, self)
    }

    /// Returns the root directory.
    fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Whether the kernel has no file open, which mappings and running programs have, too.
    fn is_unused(&self) -> bool {
        self.files.is_empty()
    }
}

/// Mounts the namespace of `client` without a place, and serves it in the background.
///
/// # Errors
/// If the kernel, or fusermount3, rejects the mount, with the reason.
pub fn mount_private(client: Client<RealEnv>) -> io::Result<PrivateMount> {
    let colocated = is_colocated(&client);
    let splicer = Arc::new(if colocated { Splicer::new(TRANSFER_LEN_MAX) } else { Splicer::off() });
    let max_read = splicer.read_len_max(TRANSFER_LEN_MAX);
    let Created { device, root, kind } = create::create(&client.map().name, max_read)?;
    // SAFETY: the calls take no pointers.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    if kind == Kind::OwnNamespace {
        // The namespace knows no other users, and the kernel changes no files of unknown users.
        let _ = SHOWN_OWNER.set((uid, gid));
    }
    let options = MountOptions { allow_other: uid == 0, ..MountOptions::default() };
    let mut config = Config::default();
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    let threads = default_threads(colocated);
    config.n_threads = Some(threads + turns::SPARE_THREADS);
    weft_client::set_server_wait(turns::begin_wait);
    config.clone_fd = !colocated;
    let mut filesystem = WeftFilesystem::new(client, options, colocated, Arc::clone(&splicer), threads);
    filesystem.handed = Some(HandedFiles::default());
    let (pages, files) = (Arc::clone(&filesystem.pages), Arc::clone(&filesystem.files));
    let acl = config.acl;
    let session = Session::from_fd(filesystem, device, acl, config)?;
    splicer.begin(session.as_fd())?;
    pages.names.begin(session.as_fd())?;
    let session = session.spawn()?;
    pages.serve(session.notifier())?;
    Ok(PrivateMount { root, files, _session: session })
}
