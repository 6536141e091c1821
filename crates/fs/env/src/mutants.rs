//! Mutants: seeded bugs that the fault search must find. Without them, a search that reports nothing proves nothing.
//!
//! Mutants exist only in a build with the feature `mutants`, which only the tests of the search enable. Without it
//! [`is_seeded`] is a constant `false`, and the compiler removes the mutated code. The command refuses to build with
//! the feature unless it is requested explicitly.

/// Seeded bug. A variant marked "found in Weft" is a bug that Weft once had.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mutant {
    /// A data server replies to a sync before it has synced.
    UnsyncedReply,
    /// The metadata service replies before its log is synced.
    EarlyCommit,
    /// A restart accepts a metadata commit of which only a part reached the disk.
    TornCommit,
    /// A read that is repeated after a lost connection returns the contents of an earlier read of the range.
    StaleRead,
    /// Bytes that a truncation removed reappear when the file grows.
    ResurrectedBytes,
    /// The last close of a file records too small a size.
    ShrinkingSize,
    /// A repeated change of the namespace is executed twice.
    ChangeTwice,
    /// Locks survive the end of their session.
    StuckLock,
    /// A sync does not detect that the machine has lost power since the writes. Found in Weft.
    ForgottenBoot,
    /// After a crash, file ids that clients may hold are assigned again. Found in Weft.
    ReusedIds,
    /// Data servers forget removed datafiles. Found in Weft.
    ForgottenRemovals,
    /// Of several requests that probe a recovered server, only one is served. Found in Weft.
    OneProbe,
    /// A disk gets newer bytes than the SSD beside it, and the stale copy on the SSD stays.
    UnforgottenCopy,
    /// The cache keeps its copy of bytes while the disk gets newer ones.
    KeptCacheCopy,
    /// Bytes of the SSD count as written back before the disk is synced.
    UnsyncedWriteBack,
    /// A datafile counts as durable on the disk after a request has changed it there.
    ForgottenChange,
    /// Segments of the SSD log are reused before their release is durable.
    EarlyReuse,
    /// A record that the SSD log moves during its write-back survives and hides newer bytes. Found in Weft.
    MissedMove,
    /// The log of a failed SSD is abandoned when the disk rejects its fallback journal once. Found in Weft.
    NoSecondTry,
    /// Newer bytes go to the disk alone although the SSD holds older ones that are not written back.
    HiddenBytes,
    /// Data servers do not record changes of files that are being moved.
    UnnotedChange,
    /// Sealed datafiles can still be read.
    ReadableSeal,
    /// A read that found its datafile removed does not notice that a move sealed it meanwhile.
    ReadAfterSeal,
    /// A mover misses changes past the end of its copy. Found in Weft.
    ForgottenCut,
    /// After a restart, the metadata service ignores the rules of directories for new files.
    UnloadedRules,
    /// The reserved space of removed or moved files is not released.
    KeptReservation,
    /// The charge of removed files stays in the accounts of their quotas.
    KeptCharge,
    /// The metadata service admits bytes above a quota.
    UncheckedQuota,
    /// A resumed move trusts the earlier copy although the file has changed since. Found in Weft.
    TrustedCopy,
    /// A repeated move releases space that the first one had reserved. Found in Weft.
    ReducedReservation,
    /// An open for writing is answered before the mark that another writer set on the file is durable. Found in Weft.
    EarlyMark,
    /// The row of an inline file stays when the file gets datafiles.
    BytesInTwoPlaces,
    /// A client that grows an inline file does not copy its bytes.
    ForgottenHead,
    /// An inline file that is older than the last restart grows to datafiles that an earlier growth, lost with the power, filled.
    ReusedCopy,
    /// The bytes of an inline file change while another client uses a lease of them.
    IgnoredByteLease,
    /// A mount learns of no change of the names that it has leased.
    KeptName,
    /// A partial write of a block leaves the block's checksum unchanged.
    StaleChecksum,
    /// A datafile that is missing or shorter than recorded reads as a hole.
    LossAsHole,
    /// When a disk is given up, datafiles of unknown length are not marked as lost.
    ForgottenRecord,
    /// A target attaches whatever its tokens are, so that older copies are accepted.
    UncheckedIdentity,
    /// The metadata service claims file ids of other incarnations, so that their datafiles are removed.
    ForgottenLineage,
    /// After a loss of power, a map of compressed chunks counts records whose bytes are not on the disk.
    TornMapEntry,
    /// Reads of compressed datafiles ignore bytes that are not folded yet.
    LostOverlay,
    /// Space of replaced chunks is reused before their replacement is durable.
    EarlyChunkReuse,
    /// Bytes that a truncation cut off within a compressed chunk reappear when the datafile grows.
    StaleChunk,
    /// The directory of pages names the delegate that asks as the owner, so that several delegates cache the page.
    PageCachedTwice,
    /// A delegate drops dirty bytes when it needs room, without writing them.
    DroppedDirtyRange,
    /// Delegates with odd numbers lock pages in descending order.
    ReversedLocks,
    /// Requests do not wait for a session that holds their range.
    UnawaitedHold,
    /// A failed write of dirty bytes is not reported to the sessions that have the file open.
    SwallowedWriteError,
    /// A rank releases a held range before it changes the underlying file.
    EarlyRelease,
    /// Regions of a replica are marked after they are written.
    LateReplicaMark,
    /// An open decides about the replica although other clients have the file open.
    LooseReplica,
    /// A client that does not use a replica opens the file for writing, and the replica stays valid.
    KeptReplica,
    /// A replica is valid before its bytes are durable.
    EarlyReplica,
    /// A synchronization of a replica leaves out its last written region.
    ForgottenRegion,
    /// A replica keeps bytes that a truncation of its file has cut.
    ReplicaAfterCut,
    /// A server serves requests of a connection after the client has repeated them on another one.
    StaleRepetition,
}

impl Mutant {
    /// All mutants.
    pub const ALL: [Self; 58] = [
        Self::UnsyncedReply,
        Self::EarlyCommit,
        Self::TornCommit,
        Self::StaleRead,
        Self::ResurrectedBytes,
        Self::ShrinkingSize,
        Self::ChangeTwice,
        Self::StuckLock,
        Self::ForgottenBoot,
        Self::ReusedIds,
        Self::ForgottenRemovals,
        Self::OneProbe,
        Self::UnforgottenCopy,
        Self::KeptCacheCopy,
        Self::UnsyncedWriteBack,
        Self::ForgottenChange,
        Self::EarlyReuse,
        Self::MissedMove,
        Self::NoSecondTry,
        Self::HiddenBytes,
        Self::UnnotedChange,
        Self::ReadableSeal,
        Self::ReadAfterSeal,
        Self::ForgottenCut,
        Self::UnloadedRules,
        Self::KeptReservation,
        Self::KeptCharge,
        Self::UncheckedQuota,
        Self::TrustedCopy,
        Self::ReducedReservation,
        Self::EarlyMark,
        Self::BytesInTwoPlaces,
        Self::ForgottenHead,
        Self::ReusedCopy,
        Self::IgnoredByteLease,
        Self::KeptName,
        Self::StaleChecksum,
        Self::LossAsHole,
        Self::ForgottenRecord,
        Self::UncheckedIdentity,
        Self::ForgottenLineage,
        Self::TornMapEntry,
        Self::LostOverlay,
        Self::EarlyChunkReuse,
        Self::StaleChunk,
        Self::PageCachedTwice,
        Self::DroppedDirtyRange,
        Self::ReversedLocks,
        Self::UnawaitedHold,
        Self::SwallowedWriteError,
        Self::EarlyRelease,
        Self::LateReplicaMark,
        Self::LooseReplica,
        Self::KeptReplica,
        Self::EarlyReplica,
        Self::ForgottenRegion,
        Self::ReplicaAfterCut,
        Self::StaleRepetition,
    ];

    /// Returns the name on the command line.
    pub fn name(self) -> String {
        let mut name = String::new();
        for letter in format!("{self:?}").chars() {
            if letter.is_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.extend(letter.to_lowercase());
        }
        name
    }
}

/// Whether this build contains the mutants.
pub const AVAILABLE: bool = cfg!(feature = "mutants");

#[cfg(not(feature = "mutants"))]
mod switch {
    use super::Mutant;

    /// Whether a mutant is seeded: never in this build.
    #[inline(always)]
    pub const fn is_seeded(_: Mutant) -> bool {
        false
    }

    /// Does nothing in this build.
    pub fn save(_: (u64, u64), _: u64, _: &[u8]) {}

    /// Does nothing in this build.
    pub fn restore(_: (u64, u64), _: u64, _: &mut [u8]) {}

    /// Does nothing in this build.
    pub fn set_flag(_: bool) {}

    /// Always false in this build.
    pub const fn is_flag_set() -> bool {
        false
    }
}

#[cfg(feature = "mutants")]
mod switch {
    use super::Mutant;
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeMap;

    thread_local! {
        static SEEDED: Cell<Option<Mutant>> = const { Cell::new(None) };
        static FLAG: Cell<bool> = const { Cell::new(false) };
        static SAVED: RefCell<BTreeMap<(u64, u64), BTreeMap<u64, u8>>> = const { RefCell::new(BTreeMap::new()) };
    }

    /// Whether a mutant is seeded in the simulation of this thread.
    pub fn is_seeded(mutant: Mutant) -> bool {
        SEEDED.get() == Some(mutant)
    }

    /// Seeds a mutant into the simulation of this thread, or removes it.
    pub fn seed(mutant: Option<Mutant>) {
        SEEDED.set(mutant);
        FLAG.set(false);
        SAVED.take();
    }

    /// Saves bytes for a mutant.
    pub fn save(of: (u64, u64), offset: u64, bytes: &[u8]) {
        SAVED.with_borrow_mut(|all| all.entry(of).or_default().extend((offset..).zip(bytes.iter().copied())));
    }

    /// Overwrites `out` with saved bytes.
    pub fn restore(of: (u64, u64), offset: u64, out: &mut [u8]) {
        SAVED.with_borrow(|all| {
            for (at, byte) in all.get(&of).into_iter().flat_map(|saved| saved.range(offset..)) {
                match out.get_mut((at - offset) as usize) {
                    Some(slot) => *slot = *byte,
                    None => break,
                }
            }
        });
    }

    /// Sets the flag that a mutant uses as its state.
    pub fn set_flag(is_set: bool) {
        FLAG.set(is_set);
    }

    /// Whether the flag is set.
    pub fn is_flag_set() -> bool {
        FLAG.get()
    }
}

pub use switch::*;
