//! Messages of the data service, which addresses targets, datafiles and extents and knows nothing of stripes.
//!
//! The bytes of a `Read` are the payload of its reply. The bytes of a `Write` are the payload of its request, or they
//! lie in the connection's shared payload area. For one call, a client first sends its requests to all servers. It then
//! receives the replies of each connection in the order of the requests.

pub use crate::watch::{CHANGES_MAX, Change, WATCHED_MAX};

use crate::bounded;
use crate::capability::Capability;
use crate::error::WireError;
use serde::{Deserialize, Serialize};
use weft_core::{ByteLen, FileId, LocalOffset, Nanos, ObjectId, TargetId, Timestamp};

/// Maximum length of a message's payload, in bytes.
pub const PAYLOAD_LEN_MAX: u32 = 4 << 20;

/// Maximum number of targets in [`IoHints::sibling_targets`].
pub const SIBLINGS_MAX: usize = 64;

/// Maximum number of requests in one [`DataRequest::Probe`].
pub const PROBES_MAX: usize = 1024;

/// Names one datafile.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct DatafileId {
    /// Target that stores the datafile.
    pub target: TargetId,
    /// File that the datafile belongs to.
    pub file: FileId,
    /// Component and column of the layout that the datafile holds.
    pub object: ObjectId,
}

/// Properties of a sub-request that the server may use to choose between SSD and disk.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct IoHints {
    /// Whether this is a small piece of a parent request that spans several datafiles.
    pub fragment: bool,
    /// Whether this is a small request that does not start where the previous one ended.
    pub small_random: bool,
    /// Number of sub-requests of the parent request, this one included. 0 marks requests that no program made; the
    /// server does not sample them.
    pub siblings: u16,
    /// Number that the messages of one parent request share. It differs from those of other recent requests of the
    /// client on the file.
    pub call: u32,
    /// For a fragment, the targets of the parent's other sub-requests, cut at [`SIBLINGS_MAX`]. Empty if no policy uses
    /// them.
    #[serde(deserialize_with = "bounded::vec::<_, _, SIBLINGS_MAX>")]
    pub sibling_targets: Vec<TargetId>,
}

/// Location of a write's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PayloadLocation {
    /// In the payload of this message.
    Payload,
    /// In the connection's shared payload area, starting at this byte.
    Shared(u32),
}

/// Request of a client to a data server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum DataRequest {
    /// Reads up to `len` bytes. The reply is short where the datafile ends.
    Read {
        /// Datafile to read.
        datafile: DatafileId,
        /// Capability with the right to read.
        cap: Capability,
        /// First byte to read.
        offset: LocalOffset,
        /// Number of bytes, at most [`PAYLOAD_LEN_MAX`].
        len: u32,
        /// Hints for the SSD tier.
        hints: IoHints,
    },
    /// Writes `len` bytes.
    Write {
        /// Datafile to write; the server creates it if it is missing.
        datafile: DatafileId,
        /// Capability with the right to write.
        cap: Capability,
        /// First byte to write.
        offset: LocalOffset,
        /// Number of bytes, at most [`PAYLOAD_LEN_MAX`].
        len: u32,
        /// Location of the bytes to write.
        place: PayloadLocation,
        /// Hints for the SSD tier.
        hints: IoHints,
    },
    /// Returns the lengths of datafiles of one file; a missing one has length 0.
    GetLens {
        /// Capability with any right.
        cap: Capability,
        /// Datafiles to measure.
        datafiles: Vec<DatafileId>,
    },
    /// Cuts or extends datafiles of one file.
    SetLens {
        /// Capability with the right to write.
        cap: Capability,
        /// Datafiles with their new lengths. Length zero does not create a missing datafile.
        datafiles: Vec<(DatafileId, ByteLen)>,
    },
    /// Makes previous writes to datafiles of one file durable.
    Sync {
        /// Capability with any right.
        cap: Capability,
        /// Datafiles to sync.
        datafiles: Vec<DatafileId>,
    },
    /// Removes datafiles. Reserved for servers of the cluster.
    Remove {
        /// Datafiles to remove, each on the target that may store it.
        datafiles: Vec<DatafileId>,
    },
    /// Requests the datafile's descriptor under a revocable lease (see [`lease`]). Local connections only.
    Lease {
        /// Datafile to lease; with write rights, the server creates it if it is missing.
        datafile: DatafileId,
        /// Capability; a writable descriptor needs the right to write.
        cap: Capability,
        /// Whether the descriptor must be writable.
        write: bool,
    },
    /// Returns leases to the server.
    Release {
        /// Slots in the lease page.
        slots: Vec<u32>,
    },
    /// Requests the connection's shared memory: an area of `payload_len` bytes for payloads, and one lease page.
    AttachShared {
        /// Requested length of the payload area; the reply contains the granted length.
        payload_len: u32,
    },
    /// Revokes every lease on a target's datafiles and waits for operations in flight. Reserved for administrators.
    RevokeLeases {
        /// Target whose leases end.
        target: TargetId,
    },
    /// Reads bytes into the connection's shared payload area. Reply: `ReadShared`, or `Failed`.
    ReadShared {
        /// Datafile to read.
        datafile: DatafileId,
        /// Capability with the right to read.
        cap: Capability,
        /// First byte to read.
        offset: LocalOffset,
        /// Number of bytes, at most [`PAYLOAD_LEN_MAX`].
        len: u32,
        /// Position in the payload area at which the bytes are stored.
        to: u32,
        /// Hints for the SSD tier.
        hints: IoHints,
    },
    /// Lists one page of a target's datafiles, in an order that the server chooses. Reserved for servers and
    /// administrators.
    ListDatafiles {
        /// Target to list.
        target: TargetId,
        /// Last datafile of the previous page; `None` starts from the beginning.
        after: Option<(FileId, ObjectId)>,
        /// Maximum number of datafiles in the page.
        limit: u32,
    },
    /// Writes bytes that lie only on a target's SSD to its disk, in the server's listing order, until the limit of one
    /// request. A caller that starts at `None` and follows `next` until it is `None` has written back everything that
    /// was dirty at the start. Reserved for administrators. Reply: `Flushed`.
    Flush {
        /// Target to flush.
        target: TargetId,
        /// Position at which to start; `None` starts from the beginning.
        from: Option<(FileId, ObjectId, LocalOffset)>,
    },
    /// Fences datafiles of one file: from now on the server rejects changes under capabilities that expire before
    /// `before_s`. Before it replies, it waits for changes under such capabilities that are in flight. Reply: `Done`.
    Fence {
        /// Capability with the right to write; it must itself expire at `before_s` or later.
        cap: Capability,
        /// Earliest accepted expiry, in seconds since 1970.
        before_s: u64,
        /// All datafiles of the file on this server.
        datafiles: Vec<DatafileId>,
    },
    /// Returns the requests that the server has sampled for the planner, from number `from` on. The server keeps them.
    /// Reserved for servers and administrators. Reply: `Samples`.
    Samples {
        /// Run of the server in which `from` was assigned; 0 if unknown.
        run: u64,
        /// First sample to return: `next` of the previous reply, in the same run.
        from: u64,
        /// Maximum number of samples, at most [`SAMPLES_MAX`].
        limit: u32,
    },
    /// Measures requests on a scratch datafile, one after another, and returns the time of each on the target. The
    /// times include neither the SSD beside the target nor the network. The scratch datafile belongs to the session and
    /// to no file; it disappears with the connection that created it. Reserved for administrators. Reply: `Probed`.
    Probe {
        /// Target to measure.
        target: TargetId,
        /// Operation to measure.
        work: ProbeWork,
        /// Length of each request in bytes, at most [`PAYLOAD_LEN_MAX`].
        len: u32,
        /// Offset of each request.
        #[serde(deserialize_with = "bounded::vec::<_, _, PROBES_MAX>")]
        offsets: Vec<LocalOffset>,
        /// Time limit after which no further request starts.
        within: Nanos,
    },
    /// Starts recording which bytes of datafiles of one file change. Until the watch has not been polled
    /// ([`DataRequest::Changes`]) for 30 s, the server grants no write leases on these datafiles. Reply: `Watching`.
    Watch {
        /// Capability with the right to move.
        cap: Capability,
        /// All datafiles of the file on this server, at most [`WATCHED_MAX`].
        datafiles: Vec<DatafileId>,
    },
    /// Returns the changes since the previous round. Reply: `Changes`, or `NotWatching`.
    Changes {
        /// Capability with the right to move.
        cap: Capability,
        /// Number of the watch, from `Watching`.
        watch: u64,
        /// Number of the round, from 1. A repeated round gets the same reply; the next number starts the next round.
        round: u64,
    },
    /// Seals datafiles of one file: from now on the server rejects every request, reads included, under capabilities
    /// that expire before `before_s`, because the file may have new datafiles. Such a request fails with `EREMCHG`.
    /// Before it replies, the server waits for changes in flight and makes the seal durable. Reply: `Done`.
    Seal {
        /// Capability with the right to move; it must itself expire at `before_s` or later.
        cap: Capability,
        /// Earliest accepted expiry, in seconds since 1970.
        before_s: u64,
        /// All datafiles of the file on this server.
        datafiles: Vec<DatafileId>,
    },
    /// Sets the modification time of those datafiles that exist. A mover uses it to keep the time of copied bytes.
    /// Reply: `Done`.
    SetTimes {
        /// Capability with the rights to move and to write.
        cap: Capability,
        /// New modification time.
        mtime: Timestamp,
        /// Datafiles to change.
        datafiles: Vec<DatafileId>,
    },
    /// Punches holes in datafiles of one file. The bytes read as zeros, lengths stay, and a missing datafile stays
    /// missing. Reply: `Done`.
    Punch {
        /// Capability with the right to write.
        cap: Capability,
        /// Datafile, first byte and length of each hole.
        extents: Vec<(DatafileId, LocalOffset, ByteLen)>,
    },
    /// Finds the first byte at or after an offset that lies in a hole, or in data. A missing datafile is a hole. Reply:
    /// `Sought`.
    Seek {
        /// Capability with any right.
        cap: Capability,
        /// Datafiles, each with the offset at which its search starts.
        datafiles: Vec<(DatafileId, LocalOffset)>,
        /// Whether to search for a hole instead of data.
        hole: bool,
    },
    /// Reads and verifies those datafiles of a target that have checksums, in the server's listing order. Reserved for
    /// servers and administrators. Reply: `Scrubbed`.
    Scrub {
        /// Target to verify.
        target: TargetId,
        /// Position at which to start; `None` starts from the beginning.
        from: Option<(FileId, ObjectId, LocalOffset)>,
        /// Approximate number of bytes to verify, at most [`SCRUB_LEN_MAX`].
        len: u32,
    },
}

/// Maximum number of bytes that one [`DataRequest::Scrub`] verifies.
pub const SCRUB_LEN_MAX: u32 = 16 << 20;

/// Maximum number of damaged ranges in one [`DataReply::Scrubbed`]: every other block of one request.
pub const SCRUB_DAMAGES_MAX: usize = (SCRUB_LEN_MAX / 4096) as usize + 1024;

/// Maximum number of datafiles without checksums in one [`DataReply::Scrubbed`].
pub const SCRUB_UNCHECKED_MAX: usize = 1024;

/// Range of a datafile that does not match its checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Damage {
    /// File that the datafile belongs to.
    pub file: FileId,
    /// Component and column of the layout.
    pub object: ObjectId,
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

/// Result of a [`DataRequest::Scrub`].
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Scrubbed {
    /// Position at which the next request continues; `None` at the end.
    pub next: Option<(FileId, ObjectId, LocalOffset)>,
    /// Bytes verified.
    pub verified: ByteLen,
    /// Number of datafiles with checksums that were read to their end.
    pub checked: u64,
    /// Datafiles that hold bytes without checksums, which were skipped.
    #[serde(deserialize_with = "bounded::vec::<_, _, SCRUB_UNCHECKED_MAX>")]
    pub unchecked: Vec<(FileId, ObjectId)>,
    /// Damaged ranges.
    #[serde(deserialize_with = "bounded::vec::<_, _, SCRUB_DAMAGES_MAX>")]
    pub damaged: Vec<Damage>,
}

/// Maximum number of samples in one [`DataReply::Samples`].
pub const SAMPLES_MAX: usize = 8192;

/// Request that a data server sampled: one message, which may be a part of a program's request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Datafile of the request.
    pub datafile: DatafileId,
    /// Anonymous number of the client process. It is the same on every server and cannot be traced back.
    pub client: u64,
    /// First byte in the datafile.
    pub offset: LocalOffset,
    /// Length in bytes.
    pub len: u32,
    /// Whether the request writes.
    pub write: bool,
    /// Number of sub-requests of the parent request, this one included, as the client reported it.
    pub siblings: u16,
    /// Number that the messages of the parent request share, as the client reported it.
    pub call: u32,
    /// Arrival, by the server's clock.
    pub start: Timestamp,
    /// Time from arrival to reply.
    pub took: Nanos,
}

/// Page of samples.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Samples {
    /// Run of the server, never 0. Sample numbers restart with it.
    pub run: u64,
    /// Number of the next sample to request.
    pub next: u64,
    /// Samples from the requested number on that the server has already dropped.
    pub lost: u64,
    /// Sampling interval: the server samples one in this many time slices of each client. 0 if it samples none.
    pub one_in: u32,
    /// Samples in the order of their replies, at most [`SAMPLES_MAX`]. A page shorter than the limit is the last one.
    #[serde(deserialize_with = "bounded::vec::<_, _, SAMPLES_MAX>")]
    pub samples: Vec<Sample>,
}

/// Operation that a [`DataRequest::Probe`] measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ProbeWork {
    /// Creates the scratch datafile with this length, for this connection. Ignores `len` and `offsets`, as do the
    /// operations without offsets below.
    Make(ByteLen),
    /// Reads at each offset.
    Read,
    /// Writes at each offset.
    Write,
    /// Flushes written bytes to the medium.
    Sync,
    /// Drops the datafile from the page cache of the server's operating system.
    Forget,
    /// Removes the scratch datafile.
    Remove,
    /// Writes at each offset with direct I/O, whatever the target's I/O module is.
    WritePast,
}

/// Length, allocated space and modification time of one datafile.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct DatafileMeta {
    /// Length; 0 if the datafile is missing.
    pub len: ByteLen,
    /// Allocated space, in units of 512 bytes.
    pub blocks_512: u64,
    /// Last change of contents; `None` if the datafile is missing.
    pub mtime: Option<Timestamp>,
    /// Bytes that lie only on the target's SSD and still have to be written to its disk.
    pub ssd_dirty: ByteLen,
    /// Bytes of which the target's SSD holds a copy.
    pub ssd_clean: ByteLen,
    /// Whether the target discards bytes (module `null`), so that its datafiles are shorter after a restart.
    pub keeps_nothing: bool,
}

/// Reply of a data server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum DataReply {
    /// Reply to `Read`; the bytes are the payload.
    Read {
        /// Length of the datafile at the time of the read. It distinguishes a hole from the end of the file.
        datafile_len: ByteLen,
    },
    /// Reply to `ReadShared`.
    ReadShared {
        /// Number of bytes in the shared area; less than requested where the datafile ends.
        len: u32,
        /// Length of the datafile at the time of the read, if the read reached its end.
        datafile_len: Option<ByteLen>,
    },
    /// Reply to `Write`: all bytes were written.
    Written,
    /// Reply to `GetLens`, in the order of the request.
    Lens(Vec<DatafileMeta>),
    /// Reply to `SetLens`, `Sync`, `Remove`, `Release`, `RevokeLeases`, `Fence`, `Seal`, `SetTimes` and `Punch`.
    Done,
    /// Reply to `Lease`: one descriptor is attached.
    Leased {
        /// Slot in the connection's lease page.
        slot: u32,
    },
    /// Reply to `Lease`: the datafile cannot be leased (because of its class, I/O module, SSD policy or a full lease
    /// page); use messages.
    NotLeased,
    /// Reply to `AttachShared`: two shared areas are attached, first the payload area, then the lease page.
    Attached {
        /// Length of the payload area; 0 if only the lease page is attached.
        payload_len: u32,
    },
    /// Reply to `ListDatafiles`; empty at the end. A datafile whose map is lost has the length [`ByteLen::UNKNOWN`].
    Datafiles(Vec<(FileId, ObjectId, ByteLen)>),
    /// Reply to any request that failed.
    Failed(WireError),
    /// Reply to `Flush`.
    Flushed {
        /// Position at which the next request continues; `None` when everything is written back.
        next: Option<(FileId, ObjectId, LocalOffset)>,
        /// Bytes written back by this request.
        written: ByteLen,
        /// Bytes that lie only on the SSD now.
        dirty: ByteLen,
    },
    /// Reply to `Samples`.
    Samples(Samples),
    /// Reply to `Probe`.
    Probed {
        /// Time of each request, in order; fewer than requested if the time limit was reached.
        #[serde(deserialize_with = "bounded::vec::<_, _, PROBES_MAX>")]
        times: Vec<Nanos>,
        /// Time from the start of the first request to the end of the last.
        elapsed: Nanos,
    },
    /// Reply to `Watch`.
    Watching {
        /// Number of the watch, unique across restarts of the server.
        watch: u64,
    },
    /// Reply to `Changes`: the datafiles with changes.
    Changes(#[serde(deserialize_with = "bounded::vec::<_, _, WATCHED_MAX>")] Vec<Change>),
    /// Reply to `Changes`: the server does not know the watch, so anything may have changed.
    NotWatching,
    /// Reply to `Lease`: write leases on this datafile are suspended; use messages.
    WriteLeasesSuspended,
    /// Reply to `Seek`, in the order of the request; `None` if no data follows.
    Sought(Vec<Option<LocalOffset>>),
    /// Reply to `Scrub`.
    Scrubbed(Scrubbed),
    /// Reply to a read of bytes that do not match their checksums.
    Damaged {
        /// First damaged byte of the datafile.
        start: u64,
        /// One past the last damaged byte.
        end: u64,
        /// Error, as in `Failed`.
        error: WireError,
    },
}

/// The lease page: shared memory in which a server publishes which descriptors a client may use.
///
/// ```text
/// word 0        valid_until: time on CLOCK_BOOTTIME, in nanoseconds, until which the leases of this page are valid
/// word 1        reserved
/// word 2 + 2 s  state of slot s: 0 free, 1 granted, 2 revoked
/// word 3 + 2 s  in_flight of slot s: operations that the client is executing
/// ```
/// The client increments `in_flight` before it looks at `state` and `valid_until`. If both allow the operation, it
/// executes it. It then decrements `in_flight`. A server that revokes a lease sets `state` first. It then waits until
/// `in_flight` is 0 or the client's last connection has ended.
pub mod lease {
    /// Number of slots in a page.
    pub const SLOTS: usize = 1023;
    /// Length of a page in bytes.
    pub const PAGE_LEN: usize = (2 + 2 * SLOTS) * 8;
    /// Index of the word that holds the end of validity.
    pub const VALID_UNTIL: usize = 0;
    /// Slot state: not in use.
    pub const FREE: u64 = 0;
    /// Slot state: the client may use the descriptor.
    pub const GRANTED: u64 = 1;
    /// Slot state: the client must not start another operation.
    pub const REVOKED: u64 = 2;

    /// Index of the state word of a slot.
    pub const fn state(slot: usize) -> usize {
        2 + 2 * slot
    }

    /// Index of the in-flight word of a slot.
    pub const fn in_flight(slot: usize) -> usize {
        3 + 2 * slot
    }
}
