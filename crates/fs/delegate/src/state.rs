//! State of a delegate: files, sessions, holds and waiting requests.

use crate::pages::Pages;
use crate::write_failures::WriteFailures;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use weft_client::FileHandle;
use weft_core::delegates::ownership::{FileNumber, PageDirectory, PageId};
use weft_core::delegates::page_locks::{HolderId, PageLocks};
use weft_core::{ByteRange, Nanos};
use weft_env::Env;
use weft_wire::delegate::HomeGeneration;
use weft_wire::hello::SessionId;
use weft_wire::{Errno, WireError};

/// State of a delegate, behind one lock that is never held over an `await`.
pub(crate) struct State<E: Env, F: FileHandle> {
    pub(crate) files: BTreeMap<FileNumber, OpenFile<F>>,
    pub(crate) pages: Pages<E>,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    /// Files that a request is opening in the underlying file system.
    pub(crate) opening: BTreeSet<FileNumber>,
    /// Files in `opening` that were recalled before they were open.
    pub(crate) recalled: BTreeSet<FileNumber>,
    /// Connections by session and number within it.
    pub(crate) slots: BTreeMap<(SessionId, u32), Slot>,
    pub(crate) write_failures: WriteFailures,
    /// Pages that a request or read-ahead is fetching.
    pub(crate) fetching: BTreeSet<PageId>,
    /// Pages to fetch ahead.
    pub(crate) read_ahead: VecDeque<PageId>,
    /// Locks of the pages whose home is this delegate, under `first-touch`.
    pub(crate) locks: PageLocks,
    /// Sessions of the holders of these locks.
    pub(crate) lock_holders: BTreeMap<HolderId, SessionId>,
    /// Owners of the pages whose home is this delegate, under `first-touch`.
    pub(crate) directory: PageDirectory,
    /// Time of the last request, by the coarse clock.
    pub(crate) last_request: Nanos,
    /// Number of requests that wait for a change of the state.
    pub(crate) waiting: u32,
    /// Number of tasks of write-behind that wait.
    pub(crate) idle_writers: u32,
    /// Number of those that wait without an end, because nothing was dirty.
    pub(crate) untimed_writers: u32,
    /// Number of tasks of read-ahead that wait.
    pub(crate) idle_readers: u32,
    /// Last generation of a file.
    pub(crate) last_generation: u64,
    pub(crate) counters: Counters,
}

/// Counters since the start.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) requests: u64,
    pub(crate) pieces: u64,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) read_ahead: u64,
    pub(crate) file_reads: u64,
    pub(crate) file_writes: u64,
    pub(crate) file_bytes_written: u64,
    pub(crate) forwarded: u64,
    pub(crate) write_errors: u64,
}

/// A connection number of a session. A client that loses a connection repeats its requests over another one with the same
/// number.
pub(crate) struct Slot {
    /// Newest connection. Earlier ones serve no further request.
    pub(crate) current: u64,
    /// Connection whose request is being served. A repetition waits for it: otherwise, the first copy of a write could
    /// take effect after later writes.
    pub(crate) serving: Option<u64>,
}

/// A session: a rank, or another delegate.
#[derive(Default)]
pub(crate) struct Session {
    pub(crate) connections: u32,
    pub(crate) files: BTreeSet<FileNumber>,
}

/// A file that sessions have open.
pub(crate) struct OpenFile<F> {
    pub(crate) name: Vec<u8>,
    pub(crate) page_len: u64,
    pub(crate) opens: BTreeMap<SessionId, Registration>,
    /// The underlying file, opened for reading at least.
    pub(crate) reader: Option<Arc<F>>,
    /// The underlying file, opened for writing.
    pub(crate) writer: Option<Arc<F>>,
    /// Whether a program outside of the job has opened the file: its pages are not cached any more.
    pub(crate) is_shared_outside: bool,
    /// Ranges that sessions change in the underlying file.
    pub(crate) holds: Vec<HeldRange>,
    /// Generation of the file at this home.
    pub(crate) generation: HomeGeneration,
    /// Generations at other homes under which pages were cached here.
    pub(crate) home_generations: BTreeMap<u32, HomeGeneration>,
}

/// Registration of a session.
pub(crate) struct Registration {
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// Open files of the session.
    pub(crate) handles: BTreeSet<u64>,
    /// Last page that the session read, and the distance to the one before.
    pub(crate) last_page: Option<u64>,
    pub(crate) last_stride: i64,
}

/// A range that a session holds.
pub(crate) struct HeldRange {
    pub(crate) session: SessionId,
    /// Number of the connection within the session, by which a repeated request is recognized.
    pub(crate) slot: u32,
    pub(crate) range: ByteRange,
}

/// Reason why a request cannot go on at once.
pub(crate) enum Stop {
    /// Another session holds the range, or a page is being fetched.
    Wait,
    /// All pages have unwritten bytes.
    NoRoom,
    /// Pages of the file are not cached: the rest of the request goes to the underlying file.
    Uncached,
    /// The session has not registered the file.
    NotOpen,
    /// The request is refused.
    Refused(WireError),
}

impl Slot {
    /// Number with its first connection.
    pub(crate) const fn of(connection: u64) -> Self {
        Self { current: connection, serving: None }
    }
}

impl<E: Env, F: FileHandle> State<E, F> {
    /// Removes the connection numbers of a session without connections.
    pub(crate) fn forget_slots(&mut self, session: SessionId) {
        self.slots.retain(|(of, _), _| *of != session);
    }

    /// Returns a file that `session` may use; peers use what ranks have open.
    pub(crate) fn checked(
        &mut self,
        file: FileNumber,
        session: Option<SessionId>,
        is_write: bool,
    ) -> Result<&mut OpenFile<F>, Stop> {
        let open = self.files.get_mut(&file).ok_or(Stop::NotOpen)?;
        if let Some(session) = session {
            let registration = open.opens.get(&session).ok_or(Stop::NotOpen)?;
            if !(if is_write { registration.write } else { registration.read }) {
                let detail = "the rank has not opened the file for this access".to_owned();
                return Err(Stop::Refused(WireError::new(Errno::EBADF, detail)));
            }
        }
        Ok(open)
    }
}

impl<F> OpenFile<F> {
    /// Whether a session holds a part of the range.
    pub(crate) fn is_held(&self, range: ByteRange) -> bool {
        self.holds.iter().any(|held| held.range.overlaps(range))
    }
}
