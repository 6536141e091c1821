//! What a log is opened with, and what opening it gives.

use crate::datafile::DatafileKey;
use crate::emulate::Emulation;
use std::path::PathBuf;
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, TargetId};

/// Which log to open.
#[derive(Clone, Debug)]
pub struct LogSpec {
    /// Its directory on the SSD, which must exist.
    pub path: PathBuf,
    /// The target beside which it stands.
    pub target: TargetId,
    /// The name of the target's cluster.
    pub cluster: String,
    /// The target's own directory: there is noted on the disk that a log has failed.
    pub target_path: PathBuf,
    /// Room for payloads, in bytes; whole segments of it are used, at least [`LogSpec::SEGMENTS_MIN`]. A log that is there
    /// keeps its sizes as long as it has anything that the disk does not have.
    pub size: ByteLen,
    /// Length of a segment.
    pub segment_len: ByteLen,
    /// There may be one entry of the mapping for each so many bytes of payloads: it bounds the mapping's memory. Usually
    /// [`LogSpec::ENTRY_LEN`].
    pub entry_len: ByteLen,
    /// The SSD whose time requests take; `None` the one below.
    pub emulate: Option<Emulation>,
}

impl LogSpec {
    /// The usual length of a segment.
    pub const SEGMENT_LEN: ByteLen = ByteLen::from_mib(4);
    /// The shortest segment.
    pub const SEGMENT_LEN_MIN: u32 = 16 << 10;
    /// So many segments a log has at least.
    pub const SEGMENTS_MIN: u64 = 8;
    /// How long an entry of the mapping is on average when memory for entries and room for payloads end together, unless
    /// said otherwise: 262,144 entries for each GiB.
    pub const ENTRY_LEN: ByteLen = ByteLen::from_kib(4);
}

/// Bytes that were acknowledged and are gone with a log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Lost {
    /// Of this datafile.
    pub key: DatafileKey,
    /// These bytes. Reading them fails until they are written anew.
    pub extent: ByteRange,
}

/// What opening a log found.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Recovered {
    /// The log was made just now.
    pub is_new: bool,
    /// The machine lost its memory since the log was used last, without an orderly end: clean entries were dropped.
    pub after_power_loss: bool,
    /// Entries of the mapping.
    pub entries: u64,
    /// Bytes not on the disk yet.
    pub dirty: ByteLen,
    /// Bytes that are on the disk too.
    pub clean: ByteLen,
    /// Unsynced entries whose payload had not reached the device: as if never written.
    pub torn: u64,
    /// What is lost for good; also what an earlier start found, until it is written anew.
    pub lost: Vec<Lost>,
}
