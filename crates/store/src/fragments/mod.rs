//! The log on the SSD beside a target's disk: small pieces of datafiles, dirty or clean, and the mapping to them.
//!
//! ```text
//! weft-fragments    whose log this is, and the sizes of its parts
//! lock              locked while a server uses the log
//! segments/data     payloads, one after the other, in segments
//! map.0, map.1      journals of the mapping: a checkpoint, and what changed since
//! ```
//! Who uses it (the data server's placement) keeps these rules, and the log keeps what it promises:
//!
//! * Operations on overlapping ranges of a datafile are not under way at once, but for reads.
//! * The newest bytes of a range are the log's where it has any, else the disk's.
//! * Before the disk gets bytes over clean ones they are [forgotten](FragmentLog::forget); it never gets any over dirty
//!   ones ([`FragmentLog::overlap`]): those are [put](FragmentLog::put) here.
//! * Dirty bytes are [written back](FragmentLog::written_back) when the disk has them *and has been synced*.
//! * A sync of a datafile syncs both, the disk and the [log](FragmentLog::sync_datafile).

mod error;
mod piece;
mod spec;

pub use error::{LogError, OpenLogError};
pub use piece::{Cached, ClassStats, LogStats, Overlap, Piece, Tag};
pub use spec::{LogSpec, Lost, Recovered};

use crate::datafile::DatafileKey;
use weft_core::ibridge::Class;
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, LocalOffset};
use weft_env::Env;

/// The folder of the payloads: in simulations of lengths only, its files keep these.
pub const SEGMENTS: &str = "segments";

/// A log that this process has for itself. Clones share it.
#[derive(Clone)]
pub struct FragmentLog<E: Env> {
    _env: E,
    spec: LogSpec,
}

impl<E: Env> FragmentLog<E> {
    /// Opens the log, making it when its directory is empty, and starts its task (cleaning, checkpoints).
    ///
    /// # Errors
    /// See [`OpenLogError`].
    pub async fn open(env: &E, spec: &LogSpec) -> Result<(Self, Recovered), OpenLogError> {
        let io = |source| OpenLogError::Io { path: spec.path.clone(), doing: "open the log", source };
        env.dir(&spec.path).await.map_err(io)?;
        Ok((Self { _env: env.clone(), spec: spec.clone() }, Recovered::default()))
    }

    /// What of `extent` lies here. Near free when nothing of the datafile does.
    pub fn overlap(&self, _key: DatafileKey, _extent: ByteRange) -> Overlap {
        Overlap::default()
    }

    /// The pieces of `extent` that lie here, sorted and disjoint; they count as used. Near free when nothing of the
    /// datafile does.
    pub fn find(&self, _key: DatafileKey, _extent: ByteRange) -> Vec<Piece> {
        Vec::new()
    }

    /// Reads a piece and checks it. `buf` is as long as its extent.
    ///
    /// # Errors
    /// [`LogError::Lost`] for dirty bytes that cannot be read; [`LogError::BadCopy`] for clean ones, which are dropped:
    /// the disk has them.
    pub async fn read(&self, piece: &Piece, buf: &mut [u8]) -> Result<(), LogError> {
        assert_eq!(piece.extent.len(), buf.len() as u64, "as long as the piece");
        Ok(())
    }

    /// Takes bytes. From here on they are the newest of their range, and survive the end of the process; the loss of
    /// power after a sync. Clean ones ([`Tag::dirty`]) are taken only where no dirty ones lie.
    ///
    /// # Errors
    /// [`LogError::Full`] and [`LogError::Failed`]: nothing has changed, and the disk has to take them.
    pub async fn put(
        &self,
        _key: DatafileKey,
        _offset: LocalOffset,
        _bytes: &[u8],
        _tag: Tag,
    ) -> Result<(), LogError> {
        Err(LogError::Full)
    }

    /// The same from shared memory.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// # Panics
    /// Outside `shared`: the caller checks.
    pub async fn put_shared(
        &self,
        _key: DatafileKey,
        _offset: LocalOffset,
        _shared: &E::Shared,
        _from: usize,
        _len: usize,
        _tag: Tag,
    ) -> Result<(), LogError> {
        Err(LogError::Full)
    }

    /// Drops what is clean or lost of `extent`, because the disk is about to get newer bytes there. Dirty bytes stay.
    /// When this returns a killed process does not bring them back.
    ///
    /// # Errors
    /// [`LogError::Failed`]: then the disk must not be written there.
    pub async fn forget(&self, _key: DatafileKey, _extent: ByteRange) -> Result<(), LogError> {
        Ok(())
    }

    /// Drops everything of `extent`, dirty bytes too: after the log has failed, when the disk gets newer ones there.
    ///
    /// # Errors
    /// [`LogError::Failed`] when not even the disk takes the note: then it must not be written there.
    pub async fn give_up(&self, _key: DatafileKey, _extent: ByteRange) -> Result<(), LogError> {
        Ok(())
    }

    /// The datafile is cut to `len` (or made longer, which changes nothing here): bytes behind are gone. To be said before the
    /// disk is told.
    ///
    /// # Errors
    /// [`LogError::Failed`]: then the disk must not be told.
    pub async fn cut(&self, _key: DatafileKey, _len: ByteLen) -> Result<(), LogError> {
        Ok(())
    }

    /// The datafile is removed.
    ///
    /// # Errors
    /// As [`cut`](Self::cut).
    pub async fn remove(&self, _key: DatafileKey) -> Result<(), LogError> {
        Ok(())
    }

    /// What of a datafile lies here; `None` for nothing, which is near free.
    pub fn cached(&self, _key: DatafileKey) -> Option<Cached> {
        None
    }

    /// At most `limit` datafiles after `after` with anything here, in the order of their keys.
    pub fn list(&self, _after: Option<DatafileKey>, _limit: usize) -> Vec<(DatafileKey, Cached)> {
        Vec::new()
    }

    /// Dirty pieces behind `after`, in the order of datafile and offset, until there are `len_max` bytes of them (and
    /// one at least); empty at the end. They do not count as used.
    pub fn dirty_runs(&self, _after: Option<(DatafileKey, LocalOffset)>, _len_max: ByteLen) -> Vec<Piece> {
        Vec::new()
    }

    /// The disk has these pieces and has been synced since: they are clean, where they have not changed meanwhile.
    ///
    /// # Errors
    /// [`LogError::Failed`]: then they stay dirty.
    pub async fn written_back(&self, _pieces: &[Piece]) -> Result<(), LogError> {
        Ok(())
    }

    /// How many bytes of each class ([`Class::index`]) may lie here. Clean ones that were not used for longest go when a
    /// class has more; dirty ones stay, but no more are taken.
    pub fn set_quotas(&self, _quotas: [ByteLen; Class::ALL.len()]) {}

    /// Makes everything so far survive loss of power.
    ///
    /// # Errors
    /// [`LogError::Failed`].
    pub async fn sync(&self) -> Result<(), LogError> {
        Ok(())
    }

    /// The same for what was done with one datafile; nothing when nothing was since the last sync.
    ///
    /// # Errors
    /// [`LogError::Failed`].
    pub async fn sync_datafile(&self, _key: DatafileKey) -> Result<(), LogError> {
        Ok(())
    }

    /// Why the log has failed, if it has.
    pub fn failure(&self) -> Option<LogError> {
        None
    }

    /// What is lost, at most `limit` of it.
    pub fn lost(&self, _limit: usize) -> Vec<Lost> {
        Vec::new()
    }

    /// What lies here.
    pub fn stats(&self) -> LogStats {
        LogStats::default()
    }

    /// What it was opened with.
    pub fn spec(&self) -> &LogSpec {
        &self.spec
    }

    /// An orderly end: syncs everything, ends the task and lets another process have the log. What was clean stays over
    /// the next boot of the machine. Nothing may be done with it from here on.
    ///
    /// # Errors
    /// [`LogError::Failed`].
    pub async fn close(&self) -> Result<(), LogError> {
        Ok(())
    }
}
