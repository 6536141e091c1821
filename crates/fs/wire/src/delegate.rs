//! Messages of I/O delegates: the processes of a job that cache pages of files together and do the file I/O of all
//! ranks (IODC).
//!
//! A rank opens files in the underlying file system itself. A delegate gets the open file with [`DelegateRequest::Open`]
//! and serves bytes. The bytes of a list of pieces lie one after another, without gaps, in the payload or in the
//! connection's shared payload area.
//!
//! | sender | requests |
//! | --- | --- |
//! | a rank, to the owners of pages (policy `hashed`) or to its own delegate (`first-touch`) | `Read`, `Write` |
//! | a rank, to all delegates | `Open`, `Close`, `Sync`, `End`, `Hold`, `Release`, `WriteBack` |
//! | another delegate (`first-touch`) | `LockPages`, `UnlockPages`, and `Read` and `Write` with [`Grant`]s |
//! | any | `Settings`, `Status`, `AttachShared` |

use crate::bounded;
pub use crate::data::PayloadLocation;
use crate::error::WireError;
use serde::{Deserialize, Serialize};
use weft_core::delegates::ownership::{FileNumber, PageIndex, Policy};
use weft_core::delegates::page_locks::HolderId;
use weft_core::{ByteLen, Nanos};

/// Maximum number of pieces in one request.
pub const PIECES_MAX: usize = 16_384;
/// Maximum number of pages in one [`DelegateRequest::LockPages`].
pub const LOCKED_PAGES_MAX: usize = 4096;
/// Maximum length of a path or a token in a [`FileSource`], in bytes.
pub const SOURCE_LEN_MAX: usize = 8192;
/// Maximum number of files in one [`DelegateStatus`].
pub const STATUS_FILES_MAX: usize = 256;
/// Maximum length of a name in a [`FileStatus`], in bytes.
const NAME_LEN_MAX: usize = 4096;

/// Bytes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FilePiece {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u32,
}

/// How a delegate opens a file that a rank has open.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FileSource {
    /// The descriptor that travels with the message.
    Descriptor,
    /// A path of the delegate's host. The file there must have the same inode number.
    Path {
        /// Absolute path.
        #[serde(with = "serde_bytes")]
        path: Vec<u8>,
        /// Inode number.
        inode: u64,
    },
    /// A file of Weft: an encoded token of the rank's open file.
    Token(#[serde(with = "serde_bytes")] Vec<u8>),
}

/// Generation of a file at the home of a page. Pages that were cached under another generation of their home are old.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HomeGeneration(pub u64);

/// Proof of a forwarding delegate that it holds the locks of the pages of a request, and that their homes named the
/// recipient as their owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Grant {
    /// Delegate that is the home of pages.
    pub home: u32,
    /// Generation of the file there.
    pub generation: HomeGeneration,
}

/// Request to a delegate.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum DelegateRequest {
    /// Requests the connection's shared payload area. Reply: `Attached`.
    AttachShared {
        /// Requested length; the reply contains the granted one.
        payload_len: u32,
    },
    /// Returns the settings of the job. Reply: `Settings`.
    Settings,
    /// Registers a file that the session has open. Repeated registrations add rights. Reply: `Opened`.
    Open {
        /// Number of the file in the job.
        file: FileNumber,
        /// Number of the open file within the session. It is registered once, also by a repeated request.
        handle: u64,
        /// How the delegate opens the file.
        source: FileSource,
        /// Whether the session may read.
        read: bool,
        /// Whether the session may write.
        write: bool,
        /// Length of a page, for a file that is not open at the delegate yet.
        page_len: u64,
        /// Name for messages and status.
        #[serde(with = "serde_bytes")]
        name: Vec<u8>,
    },
    /// Writes the dirty bytes of a file to the underlying file and ends the registration. Reply: as for `Sync`.
    Close {
        /// File to close.
        file: FileNumber,
        /// Open file within the session.
        handle: u64,
        /// Last failed write that the open file knows of.
        failures_seen: u64,
    },
    /// Reads pieces. Reply: `Read`.
    Read {
        /// File to read.
        file: FileNumber,
        /// Pieces in any order, at most [`PIECES_MAX`].
        #[serde(deserialize_with = "bounded::vec::<_, _, PIECES_MAX>")]
        pieces: Vec<FilePiece>,
        /// Destination of the bytes.
        place: PayloadLocation,
        /// From a delegate that forwards: grants of the homes.
        #[serde(deserialize_with = "bounded::vec::<_, _, 4096>")]
        grants: Vec<Grant>,
    },
    /// Writes pieces, in their order. Reply: `Done`.
    Write {
        /// File to write.
        file: FileNumber,
        /// Pieces in any order, at most [`PIECES_MAX`].
        #[serde(deserialize_with = "bounded::vec::<_, _, PIECES_MAX>")]
        pieces: Vec<FilePiece>,
        /// Location of the bytes.
        place: PayloadLocation,
        /// From a delegate that forwards: grants of the homes.
        #[serde(deserialize_with = "bounded::vec::<_, _, 4096>")]
        grants: Vec<Grant>,
    },
    /// Writes the dirty bytes of a file to the underlying file and syncs it. Reply: `Done`, or `WriteFailed` with a failed
    /// write after `failures_seen`.
    Sync {
        /// File to sync.
        file: FileNumber,
        /// Last failed write that the open file knows of; the largest number for one that the session has not registered.
        failures_seen: u64,
    },
    /// Returns one past the last byte of a file that is not in the underlying file yet. The file need not be open.
    /// Reply: `End`.
    End {
        /// File to measure.
        file: FileNumber,
    },
    /// Writes back the dirty bytes of a range that are in the cache now. Reply: `Done`.
    WriteBack {
        /// File.
        file: FileNumber,
        /// First byte.
        start: u64,
        /// One past the last byte.
        end: u64,
    },
    /// Writes back a range, drops its pages and holds up all requests for it until `Release`. The holder may change the
    /// range in the underlying file. A session that waits holds several delegates in ascending order. Reply: `Done`, or
    /// `Busy`.
    Hold {
        /// File.
        file: FileNumber,
        /// First byte.
        start: u64,
        /// One past the last byte.
        end: u64,
        /// Whether to wait while another session holds a part of the range.
        wait: bool,
    },
    /// Ends the oldest `Hold` of the session on the same range. Reply: `Done`; `NotOpen` if it has ended with the
    /// connections of the session.
    Release {
        /// File.
        file: FileNumber,
        /// First byte.
        start: u64,
        /// One past the last byte.
        end: u64,
    },
    /// Locks pages of a home in ascending order, waits for each, and returns their owners; a page without an owner gets
    /// `requester`. Reply: `Locked`, or `Busy` while the operation still waits: it keeps its place, and repeats the request.
    LockPages {
        /// Operation that locks.
        holder: HolderId,
        /// Delegate of the operation.
        requester: u32,
        /// File of the pages.
        file: FileNumber,
        /// Pages of this home, in ascending order.
        #[serde(deserialize_with = "bounded::vec::<_, _, LOCKED_PAGES_MAX>")]
        pages: Vec<PageIndex>,
        /// Whether the locks are exclusive.
        exclusive: bool,
    },
    /// Releases all locks of an operation. Reply: `Done`.
    UnlockPages {
        /// Operation that ends.
        holder: HolderId,
    },
    /// Returns state and counters. Reply: `Status`.
    Status,
}

/// Reply of a delegate.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum DelegateReply {
    /// Success.
    Done,
    /// The request failed.
    Failed(WireError),
    /// The file is not registered at a delegate that the request needs. The rank registers it there and repeats the
    /// request.
    NotOpen {
        /// Delegate.
        delegate: u32,
    },
    /// Dirty bytes could not be written, or the underlying file could not be synced.
    WriteFailed {
        /// Number of the failed write at this delegate.
        failure: u64,
        /// Its error.
        error: WireError,
    },
    /// Another session holds a part of the range, or locks of pages.
    Busy,
    /// A grant is old: the forwarding delegate asks the homes again.
    OldGrant,
    /// Length of the shared payload area that travels with the message; 0 without one.
    Attached {
        /// Length in bytes.
        payload_len: u32,
    },
    /// Settings of the job.
    Settings(JobSettings),
    /// The file is registered.
    Opened {
        /// Length of the file's pages.
        page_len: u64,
        /// Number of the last failed write at this delegate.
        failures: u64,
    },
    /// Bytes of a read. Bytes between known ones that the delegate does not have are zeros.
    Read {
        /// For each piece, one past the last byte that the delegate or the underlying file has; empty if that is the
        /// end of each piece.
        #[serde(deserialize_with = "bounded::vec::<_, _, PIECES_MAX>")]
        known: Vec<u32>,
    },
    /// End of the bytes that are not in the underlying file; `None` if all are.
    End(Option<u64>),
    /// Locked pages.
    Locked {
        /// Owner of each page.
        #[serde(deserialize_with = "bounded::vec::<_, _, LOCKED_PAGES_MAX>")]
        owners: Vec<u32>,
        /// Generation of the file at this home.
        generation: HomeGeneration,
    },
    /// State and counters.
    Status(Box<DelegateStatus>),
}

/// Settings that all processes of a job share.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobSettings {
    /// Number of delegates.
    pub delegates: u32,
    /// Index of the delegate that answered.
    pub index: u32,
    /// Rule by which a page gets its owner.
    pub policy: Policy,
    /// Consecutive pages with the same owner, for `hashed`.
    pub group_pages: u64,
    /// Length of pages of all files; `None` to follow the underlying file system.
    pub page_len: Option<u64>,
    /// Memory of each delegate for pages.
    pub memory: ByteLen,
    /// Whether dirty bytes are written before a sync or close.
    pub write_behind: bool,
    /// Length of a read or write of whole pages from which a rank on the delegate's host uses the underlying file
    /// itself; `None` for never.
    pub direct_min: Option<u64>,
}

/// State and counters of one delegate.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct DelegateStatus {
    /// Index in the job.
    pub index: u32,
    /// Process id.
    pub pid: u32,
    /// Host.
    pub host: String,
    /// Number of connected sessions, which are ranks or other delegates.
    pub sessions: u32,
    /// Time since the start.
    pub uptime: Nanos,
    /// Limit of memory for pages.
    pub memory_max: ByteLen,
    /// Memory of pages in use.
    pub memory: ByteLen,
    /// Number of pages in memory.
    pub pages: u64,
    /// Bytes that are not in the underlying files.
    pub dirty: ByteLen,
    /// Number of read and write requests.
    pub requests: u64,
    /// Number of pieces in them.
    pub pieces: u64,
    /// Bytes read by ranks.
    pub bytes_read: ByteLen,
    /// Bytes written by ranks.
    pub bytes_written: ByteLen,
    /// Parts of pages read from memory.
    pub hits: u64,
    /// Parts of pages that had to be fetched.
    pub misses: u64,
    /// Pages fetched ahead of a request.
    pub read_ahead: u64,
    /// Reads of underlying files.
    pub file_reads: u64,
    /// Writes to underlying files.
    pub file_writes: u64,
    /// Bytes written to underlying files.
    pub file_bytes_written: ByteLen,
    /// Requests forwarded to other delegates.
    pub forwarded: u64,
    /// Failed writes to underlying files.
    pub write_errors: u64,
    /// Open files, at most [`STATUS_FILES_MAX`].
    #[serde(deserialize_with = "bounded::vec::<_, _, STATUS_FILES_MAX>")]
    pub files: Vec<FileStatus>,
}

/// State of one file at a delegate.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct FileStatus {
    /// Name.
    #[serde(deserialize_with = "bounded::vec::<_, _, NAME_LEN_MAX>")]
    pub name: Vec<u8>,
    /// Number of sessions that have it open.
    pub sessions: u32,
    /// Length of its pages.
    pub page_len: u64,
    /// Number of pages in memory.
    pub pages: u64,
    /// Bytes that are not in the underlying file.
    pub dirty: ByteLen,
}
