//! Messages of the data service. It knows datafiles, targets and extents, and never what a stripe is.
//!
//! A `Read`'s bytes come as the payload of its reply; a `Write`'s bytes are the payload of its request or lie in the
//! connection's shared area. A client sends all the requests that one call needs, to all servers, and then receives
//! the replies of each connection in the order in which it sent.

pub use crate::watch::{CHANGES_MAX, Change, WATCHED_MAX};

use crate::bounded;
use crate::capability::Capability;
use crate::error::WireError;
use serde::{Deserialize, Serialize};
use weft_core::{ByteLen, FileId, LocalOffset, Nanos, ObjectId, TargetId, Timestamp};

/// The most payload bytes in one message.
pub const PAYLOAD_LEN_MAX: u32 = 4 << 20;

/// The most targets in [`IoHints::sibling_targets`].
pub const SIBLINGS_MAX: usize = 64;

/// The most requests in one [`DataRequest::Probe`].
pub const PROBES_MAX: usize = 1024;

/// One datafile.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct DatafileId {
    /// Where it lies.
    pub target: TargetId,
    /// The file that it is a part of.
    pub file: FileId,
    /// Which part.
    pub object: ObjectId,
}

/// What the client knows of a sub-request and the server may use for placement.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct IoHints {
    /// A small piece of a parent request that spans several datafiles.
    pub fragment: bool,
    /// A small request that does not follow on its predecessor.
    pub small_random: bool,
    /// How many sub-requests the parent has, itself included; 0 for what no program asked for, which is not kept as a sample.
    pub siblings: u16,
    /// A number that all messages of the parent have in common, and no other one of the client and the file at about the
    /// same time.
    pub call: u32,
    /// For a fragment, the targets of the parent's other sub-requests: the first [`SIBLINGS_MAX`] of them. Empty where
    /// nobody wants to know.
    #[serde(deserialize_with = "bounded::vec::<_, _, SIBLINGS_MAX>")]
    pub sibling_targets: Vec<TargetId>,
}

/// Where a write's bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Place {
    /// The payload of this message.
    Payload,
    /// In the connection's shared payload area, from this byte.
    Shared(u32),
}

/// What a client asks of a data server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum DataRequest {
    /// Reads up to `len` bytes; the reply is short where the datafile ends.
    Read {
        /// Of this datafile.
        datafile: DatafileId,
        /// With this right.
        cap: Capability,
        /// From here.
        offset: LocalOffset,
        /// At most [`PAYLOAD_LEN_MAX`].
        len: u32,
        /// For placement.
        hints: IoHints,
    },
    /// Writes `len` bytes.
    Write {
        /// To this datafile, made when missing.
        datafile: DatafileId,
        /// With this right.
        cap: Capability,
        /// From here.
        offset: LocalOffset,
        /// At most [`PAYLOAD_LEN_MAX`].
        len: u32,
        /// Where the bytes are.
        place: Place,
        /// For placement.
        hints: IoHints,
    },
    /// Lengths of datafiles of one file; a missing one has length 0.
    GetLens {
        /// With this right (any).
        cap: Capability,
        /// Of these.
        datafiles: Vec<DatafileId>,
    },
    /// Cuts or extends datafiles of one file.
    SetLens {
        /// With this right (write).
        cap: Capability,
        /// Each to its length. Zero for a missing one makes nothing.
        datafiles: Vec<(DatafileId, ByteLen)>,
    },
    /// Makes what was written to these datafiles of one file survive loss of power.
    Sync {
        /// With this right (any).
        cap: Capability,
        /// These.
        datafiles: Vec<DatafileId>,
    },
    /// Removes all datafiles of these files on the given targets. Only servers of the cluster may ask.
    Remove {
        /// Each with where it may lie.
        datafiles: Vec<DatafileId>,
    },
    /// Asks for the datafile's own descriptor under a revocable lease (see [`lease`]). Local connections only.
    Lease {
        /// Of this datafile; with write rights it is made when missing.
        datafile: DatafileId,
        /// With this right; write needs write.
        cap: Capability,
        /// Whether the descriptor must be writable.
        write: bool,
    },
    /// Gives leases back.
    Release {
        /// Slots in the lease page.
        slots: Vec<u32>,
    },
    /// Asks for the connection's shared areas: one for payloads of `payload_len` bytes, one page of leases.
    AttachShared {
        /// Wanted size of the payload area; the reply says what was given.
        payload_len: u32,
    },
    /// Takes back every lease on a target's datafiles and waits for operations in flight. Administrators only.
    RevokeLeases {
        /// Of this target.
        target: TargetId,
    },
    /// As `Read`, with the bytes into the connection's shared payload area. Reply: `ReadShared`, or `Failed`.
    ReadShared {
        /// Of this datafile.
        datafile: DatafileId,
        /// With this right.
        cap: Capability,
        /// From here.
        offset: LocalOffset,
        /// At most [`PAYLOAD_LEN_MAX`].
        len: u32,
        /// To here in the area.
        to: u32,
        /// For placement.
        hints: IoHints,
    },
    /// A page of the datafiles that lie on a target, in an order of the server's. Servers and administrators only.
    ListDatafiles {
        /// On this target.
        target: TargetId,
        /// After this one.
        after: Option<(FileId, ObjectId)>,
        /// At most this many.
        limit: u32,
    },
    /// Writes what lies on the SSD of a target alone to its disk, in the order of the server's listing from `from` on, as
    /// far as one request goes. Whoever begins at the start and goes on where each reply says has written back all that
    /// was there when he began. Administrators only. Reply: `Flushed`.
    Flush {
        /// Of this target.
        target: TargetId,
        /// From this byte of this datafile on; `None` from the start.
        from: Option<(FileId, ObjectId, LocalOffset)>,
    },
    /// From here on these datafiles of one file are changed only by capabilities that end at `before_s` or later; what is
    /// under way with others has ended when this is answered. Reply: `Done`.
    Fence {
        /// With this right (write), which itself must end so late.
        cap: Capability,
        /// In seconds since 1970.
        before_s: u64,
        /// All of the file that the server has.
        datafiles: Vec<DatafileId>,
    },
    /// The requests that the server has kept for whoever plans layouts, from `from` on. Nothing is taken away by it.
    /// Servers and administrators only. Reply: `Samples`.
    Samples {
        /// The server's run of which `from` was told; 0 when nothing is known.
        run: u64,
        /// From this one on: `next` of the reply before, of that run.
        from: u64,
        /// At most this many, itself at most [`SAMPLES_MAX`].
        limit: u32,
    },
    /// Does requests on a datafile of the session's own, which belongs to no file and goes with the connection that made
    /// it, one after another, and says how long each took on the target: past the SSD beside it, without the network.
    /// Administrators only. Reply: `Probed`.
    Probe {
        /// Of this target.
        target: TargetId,
        /// What to do.
        work: ProbeWork,
        /// Bytes of each request, at most [`PAYLOAD_LEN_MAX`].
        len: u32,
        /// Where each of them begins.
        #[serde(deserialize_with = "bounded::vec::<_, _, PROBES_MAX>")]
        offsets: Vec<LocalOffset>,
        /// None begins after this time.
        within: Nanos,
    },
    /// From here on the server notes which bytes of these datafiles of one file are changed, and lends none of them for
    /// writing, until nobody has asked for 30 s ([`DataRequest::Changes`]). Reply: `Watching`.
    Watch {
        /// With this right (move).
        cap: Capability,
        /// All of the file that the server has, at most [`WATCHED_MAX`].
        datafiles: Vec<DatafileId>,
    },
    /// What was changed since the round before. Reply: `Changes`, or `NotWatching`.
    Changes {
        /// With this right (move).
        cap: Capability,
        /// From `Watching`.
        watch: u64,
        /// One more than the round before, from 1; the same again gets the same answer.
        round: u64,
    },
    /// From here on these datafiles of one file are good for nobody whose capability ends before `before_s`, not even for
    /// reading: the file's bytes may have got other datafiles. What is under way with others and changes something has
    /// ended when this is answered, and it outlives loss of power. Refused is `EREMCHG`. Reply: `Done`.
    Seal {
        /// With this right (move), which itself must end so late.
        cap: Capability,
        /// In seconds since 1970.
        before_s: u64,
        /// All of the file that the server has.
        datafiles: Vec<DatafileId>,
    },
    /// Sets the time of change of those of these datafiles of one file that are there, for who brings bytes that were
    /// written earlier. Reply: `Done`.
    SetTimes {
        /// With this right (move and write).
        cap: Capability,
        /// The time.
        mtime: Timestamp,
        /// Of these.
        datafiles: Vec<DatafileId>,
    },
    /// Makes holes in datafiles of one file: these bytes read as zeros, as far as each datafile reaches, and lengths stay.
    /// A missing datafile stays missing. Reply: `Done`.
    Punch {
        /// With this right (write).
        cap: Capability,
        /// Each from an offset on, over a length.
        extents: Vec<(DatafileId, LocalOffset, ByteLen)>,
    },
    /// Looks for the first byte at or behind an offset that lies in a hole of its datafile, or in none. A missing datafile
    /// is a hole. Reply: `Sought`.
    Seek {
        /// With this right (any).
        cap: Capability,
        /// Each from an offset on.
        datafiles: Vec<(DatafileId, LocalOffset)>,
        /// For a hole, not for data.
        hole: bool,
    },
    /// Reads datafiles of a target that have checksums, in the order of the server's listing from `from` on, and verifies
    /// them. Servers and administrators only. Reply: `Scrubbed`.
    Scrub {
        /// On this target.
        target: TargetId,
        /// From this byte of this datafile on; `None` from the start.
        from: Option<(FileId, ObjectId, LocalOffset)>,
        /// About this many bytes, at most [`SCRUB_LEN_MAX`].
        len: u32,
    },
}

/// The most bytes that one [`DataRequest::Scrub`] verifies.
pub const SCRUB_LEN_MAX: u32 = 16 << 20;

/// The most damaged ranges in one [`DataReply::Scrubbed`]: every other block of what one request verifies.
pub const SCRUB_DAMAGES_MAX: usize = (SCRUB_LEN_MAX / 4096) as usize + 1024;

/// The most datafiles without checksums in one [`DataReply::Scrubbed`].
pub const SCRUB_UNCHECKED_MAX: usize = 1024;

/// Bytes of a datafile that do not match their checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Damage {
    /// The file that the datafile is a part of.
    pub file: FileId,
    /// Which part.
    pub object: ObjectId,
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

/// Result of a [`DataRequest::Scrub`].
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Scrubbed {
    /// Where to go on; `None` at the end.
    pub next: Option<(FileId, ObjectId, LocalOffset)>,
    /// Bytes that were verified.
    pub verified: ByteLen,
    /// Datafiles with checksums that were read to their end.
    pub checked: u64,
    /// Datafiles that hold bytes without checksums, which were passed over.
    #[serde(deserialize_with = "bounded::vec::<_, _, SCRUB_UNCHECKED_MAX>")]
    pub unchecked: Vec<(FileId, ObjectId)>,
    /// Damaged ranges.
    #[serde(deserialize_with = "bounded::vec::<_, _, SCRUB_DAMAGES_MAX>")]
    pub damaged: Vec<Damage>,
}

/// The most requests in one [`DataReply::Samples`].
pub const SAMPLES_MAX: usize = 8192;

/// A request that a data server keeps as a sample: one message, which may be a part of what a program asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// To which datafile.
    pub datafile: DatafileId,
    /// Who: the same number for the same client process on every server, and no way back from it.
    pub client: u64,
    /// First byte in the datafile.
    pub offset: LocalOffset,
    /// Bytes.
    pub len: u32,
    /// Whether it writes.
    pub write: bool,
    /// Sub-requests of the request that it is a part of, itself included, as the client says.
    pub siblings: u16,
    /// What all messages of that request have in common, as the client says.
    pub call: u32,
    /// When it came, by the server's clock.
    pub start: Timestamp,
    /// Until it was answered.
    pub took: Nanos,
}

/// Requests that a data server has kept.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Samples {
    /// The server's run, never 0: numbers begin anew with it.
    pub run: u64,
    /// Where to go on.
    pub next: u64,
    /// Samples from where was asked for on that are not there any more.
    pub lost: u64,
    /// Of so many stretches of a client's time one is kept; 0 when the server keeps none.
    pub one_in: u32,
    /// In the order in which they were answered, at most [`SAMPLES_MAX`]; fewer than asked for when there are no more.
    #[serde(deserialize_with = "bounded::vec::<_, _, SAMPLES_MAX>")]
    pub samples: Vec<Sample>,
}

/// What a [`DataRequest::Probe`] does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ProbeWork {
    /// Makes the datafile, with this length; of no matter are `len` and `offsets`, as below. This connection has it.
    Make(ByteLen),
    /// Reads at each offset.
    Read,
    /// Writes at each offset.
    Write,
    /// Brings to the medium what was written.
    Sync,
    /// The server's system forgets what it holds of the datafile in memory.
    Forget,
    /// Removes it.
    Remove,
    /// Writes at each offset past memory, whatever the target's module is.
    WritePast,
}

/// Length, room and time of one datafile.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct DatafileMeta {
    /// Length; 0 when it is missing.
    pub len: ByteLen,
    /// Room taken, in units of 512 bytes.
    pub blocks_512: u64,
    /// Last change of contents; `None` when it is missing.
    pub mtime: Option<Timestamp>,
    /// Bytes that lie on the target's SSD alone and have to be written to its disk still.
    pub ssd_dirty: ByteLen,
    /// Bytes of which the target's SSD has a copy.
    pub ssd_clean: ByteLen,
    /// The target keeps no bytes (module `null`), so that its datafiles are shorter after a restart.
    pub keeps_nothing: bool,
}

/// What a data server answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum DataReply {
    /// To `Read`: the bytes are the payload; `datafile_len` is the length of the datafile at the time.
    Read {
        /// Tells a hole from the end of the file.
        datafile_len: ByteLen,
    },
    /// To `ReadShared`: so many bytes lie in the shared area.
    ReadShared {
        /// Fewer than asked where the datafile ends.
        len: u32,
        /// The length of the datafile at the time, when the read met its end.
        datafile_len: Option<ByteLen>,
    },
    /// To `Write`: all bytes were written.
    Written,
    /// To `GetLens`: in the order asked.
    Lens(Vec<DatafileMeta>),
    /// To `SetLens`, `Sync`, `Remove`, `Release`, `RevokeLeases`, `Fence`, `Seal`, `SetTimes`, `Punch`.
    Done,
    /// To `Lease`: one file is attached.
    Leased {
        /// Slot in the connection's lease page.
        slot: u32,
    },
    /// To `Lease`: not by descriptor (class, module, policy, full lease page); use messages.
    NotLeased,
    /// To `AttachShared`: two shared areas are attached, payload first, then leases.
    Attached {
        /// Size of the payload area; 0 when there is none (then only the lease page is attached).
        payload_len: u32,
    },
    /// To `ListDatafiles`: empty when there are no more.
    Datafiles(Vec<(FileId, ObjectId, ByteLen)>),
    /// To anything.
    Failed(WireError),
    /// To `Flush`.
    Flushed {
        /// Where to go on; `None` when all is done.
        next: Option<(FileId, ObjectId, LocalOffset)>,
        /// Bytes written back by this request.
        written: ByteLen,
        /// Bytes on the SSD alone now.
        dirty: ByteLen,
    },
    /// To `Samples`.
    Samples(Samples),
    /// To `Probe`.
    Probed {
        /// What each request took, in their order; fewer than were asked for when the time was over.
        #[serde(deserialize_with = "bounded::vec::<_, _, PROBES_MAX>")]
        times: Vec<Nanos>,
        /// From the begin of the first to the end of the last.
        elapsed: Nanos,
    },
    /// To `Watch`.
    Watching {
        /// Names it; no two are alike, also over restarts of the server.
        watch: u64,
    },
    /// To `Changes`: of each datafile of which something was changed.
    Changes(#[serde(deserialize_with = "bounded::vec::<_, _, WATCHED_MAX>")] Vec<Change>),
    /// To `Changes`: the server knows of no such watch (any more): anything may have changed.
    NotWatching,
    /// To `Lease`: nobody gets this one for writing at the moment; use messages.
    LentToNobody,
    /// To `Seek`: in the order asked; `None` where no data follows.
    Sought(Vec<Option<LocalOffset>>),
    /// To `Scrub`.
    Scrubbed(Scrubbed),
    /// To a read of bytes that do not match their checksums.
    Damaged {
        /// First damaged byte of the datafile.
        start: u64,
        /// One past the last one.
        end: u64,
        /// As in `Failed`.
        error: WireError,
    },
}

/// The lease page: shared memory in which a server tells a client which descriptors it may still use.
///
/// ```text
/// word 0        valid_until: CLOCK_BOOTTIME in nanoseconds up to which any lease of this page may be used
/// word 1        reserved
/// word 2 + 2 s  state of slot s: 0 free, 1 granted, 2 revoked
/// word 3 + 2 s  in_flight of slot s: operations that the client is in the middle of
/// ```
/// A client adds 1 to `in_flight`, then looks at `state` and `valid_until`, does the operation when both allow it,
/// and takes the 1 away. A server that revokes sets `state` first and then waits for `in_flight` to become 0, or for
/// the client's last connection to end.
pub mod lease {
    /// Slots in a page.
    pub const SLOTS: usize = 1023;
    /// Bytes in a page.
    pub const PAGE_LEN: usize = (2 + 2 * SLOTS) * 8;
    /// Index of the word that says until when.
    pub const VALID_UNTIL: usize = 0;
    /// State: nobody has it.
    pub const FREE: u64 = 0;
    /// State: the client may use the descriptor.
    pub const GRANTED: u64 = 1;
    /// State: the client must not begin another operation.
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
