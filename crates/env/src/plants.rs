//! Bugs for the fault search to find: a search that finds none of them proves nothing by finding no others.
//!
//! Only a build with the feature `plants` has them, which nothing turns on but the tests of the search: without it
//! [`planted`] is a constant `false`, so that the compiler leaves nothing of what asks it. The command refuses to be
//! built with the feature unless it is asked for by name.

/// A bug to plant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Plant {
    /// A data server answers a sync before it has synced.
    UnsyncedReply,
    /// The metadata service answers before its log is synced.
    EarlyCommit,
    /// A start takes a metadata commit of which only a part reached the disk.
    TornCommit,
    /// A read that was sent again after a lost connection gives what was read there before.
    StaleRead,
    /// Bytes that a cut took away are there again when the file grows.
    ResurrectedBytes,
    /// The last close of a file records less than it is long.
    ShrinkingSize,
    /// A change of names that is asked for again is done again.
    ChangeTwice,
    /// Locks stay when their session ends.
    StuckLock,
    /// A sync does not notice that the machine lost power since the writes. Was real.
    ForgottenBoot,
    /// After a crash file ids are given again that somebody may hold. Was real.
    ReusedIds,
    /// Data servers forget what was removed. Was real.
    ForgottenRemovals,
    /// Of those who ask a server that is well again, one is served. Was real.
    OneProbe,
    /// A disk gets newer bytes than a copy on the SSD beside it, and the copy stays.
    UnforgottenCopy,
    /// What an SSD had for a disk counts as written back before the disk is synced.
    UnsyncedWriteBack,
    /// Segments of an SSD's log are filled again before it survives loss of power that they are empty.
    EarlyReuse,
    /// What an SSD's log moved while it was brought to the disk stays, and hides the newer bytes. Was real.
    MissedMove,
    /// The log of a failed SSD is given up when the disk does not take its journal at once. Was real.
    NoSecondTry,
    /// Newer bytes go to the disk alone, though the SSD has older ones that have not been written back.
    HiddenBytes,
    /// Data servers do not note what is changed in files that are being moved.
    UnnotedChange,
    /// Datafiles that a file was moved away from can be read still.
    ReadableSeal,
    /// Who moves a file forgets what was changed behind its end. Was real.
    ForgottenCut,
    /// After a restart the metadata service makes files as if directories had no rules.
    UnloadedRules,
    /// Room of files that were removed or moved away stays promised.
    KeptRoom,
    /// Who goes on with a move that was stopped trusts what was copied, though the file was changed since. Was real.
    TrustedCopy,
    /// A second move by the same wish takes away room that the file got by the first. Was real.
    LessRoom,
    /// Who opens a file for writing that somebody else has marked as open is answered before the mark is durable. Was real.
    EarlyMark,
    /// A write of a part of a block leaves the checksum of the block as it was.
    StaleChecksum,
    /// A datafile that is missing, or shorter than recorded, is read as a hole.
    LossAsHole,
    /// A target attaches whatever its tokens say: older copies are taken.
    UncheckedIdentity,
    /// The metadata service takes file ids of other incarnations for its own, so that their datafiles are removed.
    ForgottenLineage,
}

impl Plant {
    /// All of them.
    pub const ALL: [Self; 30] = [
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
        Self::UnsyncedWriteBack,
        Self::EarlyReuse,
        Self::MissedMove,
        Self::NoSecondTry,
        Self::HiddenBytes,
        Self::UnnotedChange,
        Self::ReadableSeal,
        Self::ForgottenCut,
        Self::UnloadedRules,
        Self::KeptRoom,
        Self::TrustedCopy,
        Self::LessRoom,
        Self::EarlyMark,
        Self::StaleChecksum,
        Self::LossAsHole,
        Self::UncheckedIdentity,
        Self::ForgottenLineage,
    ];

    /// Its name on the command line.
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

/// Whether this build has the bugs.
pub const AVAILABLE: bool = cfg!(feature = "plants");

#[cfg(not(feature = "plants"))]
mod switch {
    use super::Plant;

    /// Whether a bug is planted: never in this build.
    #[inline(always)]
    pub const fn planted(_: Plant) -> bool {
        false
    }

    /// Keeps nothing in this build.
    pub fn keep(_: (u64, u64), _: u64, _: &[u8]) {}

    /// Gives nothing in this build.
    pub fn kept(_: (u64, u64), _: u64, _: &mut [u8]) {}

    /// Nothing in this build.
    pub fn flag(_: bool) {}

    /// Never in this build.
    pub const fn is_flagged() -> bool {
        false
    }
}

#[cfg(feature = "plants")]
mod switch {
    use super::Plant;
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeMap;

    thread_local! {
        static PLANTED: Cell<Option<Plant>> = const { Cell::new(None) };
        static FLAG: Cell<bool> = const { Cell::new(false) };
        static KEPT: RefCell<BTreeMap<(u64, u64), BTreeMap<u64, u8>>> = const { RefCell::new(BTreeMap::new()) };
    }

    /// Whether a bug is planted for what this thread simulates.
    pub fn planted(plant: Plant) -> bool {
        PLANTED.get() == Some(plant)
    }

    /// Plants a bug for what this thread simulates from here on.
    pub fn plant(plant: Option<Plant>) {
        PLANTED.set(plant);
        FLAG.set(false);
        KEPT.take();
    }

    /// Keeps bytes for a planted bug.
    pub fn keep(of: (u64, u64), offset: u64, bytes: &[u8]) {
        KEPT.with_borrow_mut(|all| all.entry(of).or_default().extend((offset..).zip(bytes.iter().copied())));
    }

    /// Puts what was kept over `out`.
    pub fn kept(of: (u64, u64), offset: u64, out: &mut [u8]) {
        KEPT.with_borrow(|all| {
            for (at, byte) in all.get(&of).into_iter().flat_map(|kept| kept.range(offset..)) {
                match out.get_mut((at - offset) as usize) {
                    Some(place) => *place = *byte,
                    None => break,
                }
            }
        });
    }

    /// Remembers something for a planted bug.
    pub fn flag(is_set: bool) {
        FLAG.set(is_set);
    }

    /// It.
    pub fn is_flagged() -> bool {
        FLAG.get()
    }
}

pub use switch::*;
