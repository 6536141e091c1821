//! Creating, synchronizing, comparing and dropping replicas of Weft's own files.

use super::format;
use super::transfer::{Bytes, Difference, Pace, Side, compare, copy, runs_after, windows};
use crate::append::AppendGrant;
use crate::call::Effect;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::file::OpenFile;
use crate::gather::total;
use crate::idle::{Pauses, targets_of};
use crate::session::Session;
use std::io::{IoSlice, IoSliceMut};
use weft_core::replicas::{DirtyRegions, Mapping, Phase};
use weft_core::{ByteLen, Extent, FileId, FileOffset, Nanos};
use weft_env::Env;
use weft_env::mutants::{self, Mutant};
use weft_wire::Errno;
use weft_wire::meta::{InodePath, LayoutSpec, MetaReply, MetaRequest, OpenFlags, ReplicaInfo, ReplicaSpec};
use xxhash_rust::xxh3::xxh3_64;

/// Longest wait for the closes of programs that have ended.
const CLOSE_WAIT: Nanos = Nanos::from_s(5);
/// Pause between two looks at the file.
const CLOSE_PAUSE: Nanos = Nanos::from_ms(50);
/// Attempts to copy a file that changes meanwhile.
const COPIES_MAX: u32 = 5;

/// Fails if a write has stopped before its end.
fn require_whole(written: usize, slices: &[IoSlice<'_>], why: &'static str) -> Result<()> {
    if written < total(slices) { Err(Error::misuse(Errno::ENOSPC, why)) } else { Ok(()) }
}

/// The file's own bytes in a transfer.
struct Original<'a, E: Env> {
    file: &'a OpenFile<E>,
    /// Capability under which alone it is written, so that a fence ends the transfer.
    grant: Option<AppendGrant>,
}

impl<E: Env> Bytes for Original<'_, E> {
    async fn read(&self, buffer: &mut [u8], at: u64) -> Result<()> {
        let version = self.file.state.layout_version()?;
        let got = self.file.read_original(version, &mut [IoSliceMut::new(buffer)], FileOffset(at)).await?;
        buffer[got..].fill(0);
        Ok(())
    }

    async fn write(&self, slices: &[IoSlice<'_>], at: u64) -> Result<()> {
        let version = self.file.state.layout_version()?;
        let written = self.file.write_original(version, slices, FileOffset(at), self.grant.as_ref()).await?;
        require_whole(written, slices, "the file's targets are full")
    }
}

/// The data of a replica in a transfer.
struct Data<'a, E: Env>(&'a OpenFile<E>);

impl<E: Env> Bytes for Data<'_, E> {
    async fn read(&self, buffer: &mut [u8], at: u64) -> Result<()> {
        let got = self.0.read_at(&mut [IoSliceMut::new(buffer)], FileOffset(at)).await?;
        buffer[got..].fill(0);
        Ok(())
    }

    async fn write(&self, slices: &[IoSlice<'_>], at: u64) -> Result<()> {
        let written = self.0.write_at(slices, FileOffset(at)).await?;
        require_whole(written, slices, "the replica's targets are full")
    }
}

/// Programs that a replica serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Purpose {
    /// Number of processes; 0 for any number.
    pub ranks: u32,
    /// Time that it saves in each run; zero if unknown. When a target fills up, replicas that save little for each byte are
    /// dropped first.
    pub gain: Nanos,
}

impl From<u32> for Purpose {
    fn from(ranks: u32) -> Self {
        Self { ranks, gain: Nanos::ZERO }
    }
}

impl<E: Env> Session<E> {
    /// Returns the replica of a file; `None` if it has none.
    pub(crate) async fn replica(&self, at: &InodePath) -> Result<Option<ReplicaInfo>> {
        match self.call_at(at, Effect::Repeatable, MetaRequest::Replica { at: at.clone() }).await? {
            MetaReply::Replicas { replicas, .. } => Ok(replicas.into_iter().next()),
            _ => Err(Error::unexpected_reply()),
        }
    }
}

impl<E: Env> Client<E> {
    /// Creates a replica of the file `at` for the programs of `purpose`, with its data in `layout`, and copies the file's
    /// bytes to it. Later opens use it. An outdated replica is replaced. Returns the number of copied bytes.
    ///
    /// # Errors
    /// `EPERM` when the caller neither owns the file nor is root; `EEXIST` if it has a valid replica; `EBUSY` when
    /// programs have it open for writing; `EAGAIN` when they change it during each of several attempts; errors of the
    /// servers. There is no replica then.
    pub async fn create_replica(
        &self,
        at: &InodePath,
        mapping: &Mapping,
        purpose: impl Into<Purpose>,
        layout: &LayoutSpec,
        pace: &mut impl Pace,
    ) -> Result<u64> {
        let Purpose { ranks, gain } = purpose.into();
        let file = self.open(at, OpenFlags::READ, 0, &LayoutSpec::default()).await?;
        let encoded = format::encode_mapping(mapping);
        let spec = ReplicaSpec {
            ranks,
            len: ByteLen(mapping.replica_len()),
            mapping_len: u32::try_from(encoded.len())
                .map_err(|_| Error::misuse(Errno::EFBIG, "the mapping is too long").about(&at.path))?,
            mapping_hash: xxh3_64(&encoded),
            gain_us: gain.0 / 1000,
        };
        let core = &self.session.core;
        let (data_handle, before) = (core.new_handle(), core.before_open());
        let request =
            MetaRequest::CreateReplica { handle: file.handle(), data_handle, spec, layout: layout.clone() };
        let MetaReply::Opened(opened) = self.session.call_at(at, Effect::Once, request).await? else {
            return Err(Error::unexpected_reply());
        };
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::READ };
        let data =
            OpenFile::from_opened(&self.session, (data_handle, flags), before, &at.path, *opened).await?;
        let copied = self.fill_replica(&file, &data, mapping, &encoded, pace).await;
        let closed = data.close().await;
        if copied.is_err() {
            // It is not valid, so that nobody uses what is left if this fails.
            let request = MetaRequest::AbandonReplica { handle: file.handle() };
            let _ = self.session.done_at(&file.place(), Effect::Once, request).await;
        }
        let copied = copied?;
        closed?;
        file.close().await?;
        Ok(copied)
    }

    async fn fill_replica(
        &self,
        file: &OpenFile<E>,
        data: &OpenFile<E>,
        mapping: &Mapping,
        encoded: &[u8],
        pace: &mut impl Pace,
    ) -> Result<u64> {
        let place = file.place();
        let about = |error: Error| error.about(file.path());
        data.truncate(ByteLen(mapping.replica_len() + encoded.len() as u64)).await?;
        Data(data).write(&[IoSlice::new(encoded)], mapping.replica_len()).await?;
        let mut attempts = 0;
        loop {
            self.begin_copy(file).await.map_err(about)?;
            // The file's servers may lose power later. They must not lose bytes that the replica has got from them.
            file.sync().await?;
            let size = file.size().await?;
            let mut copied = 0;
            for window in windows(mapping, size, None) {
                self.wait_until_idle(file, data, pace).await?;
                let original = Original { file, grant: None };
                copied +=
                    copy((&original, Side::Original), (&Data(data), Side::Replica), &window, pace).await?;
            }
            if attempts > 0 {
                for (at, len) in runs_after(mapping, size) {
                    data.punch(Extent::new(at, len)).await?;
                }
            }
            if !mutants::is_seeded(Mutant::EarlyReplica) {
                data.sync().await?;
            }
            attempts += 1;
            let request = MetaRequest::PublishReplica { handle: file.handle() };
            match self.session.done_at(&place, Effect::Once, request).await {
                Ok(()) => return Ok(copied),
                Err(error) if error.errno() == Errno::EAGAIN.0 && attempts < COPIES_MAX => {}
                Err(error) => return Err(about(error)),
            }
        }
    }

    /// Waits until the disks of file and replica are idle, if `pace` wants that.
    async fn wait_until_idle(
        &self,
        file: &OpenFile<E>,
        data: &OpenFile<E>,
        pace: &mut impl Pace,
    ) -> Result<()> {
        if !pace.only_while_idle() {
            return Ok(());
        }
        let core = &self.session.core;
        let targets = targets_of([file, data].into_iter().filter_map(OpenFile::layout));
        let mut pauses = Pauses::default();
        loop {
            // The disks would still write the bytes of this copy.
            data.sync().await?;
            if core.are_idle(&targets).await {
                return Ok(());
            }
            pace.waiting().await?;
            core.env.sleep(pauses.next_pause()).await;
        }
    }

    /// Begins a copy when no program can change the file. The close of a program that has just ended may still be on its way.
    async fn begin_copy(&self, file: &OpenFile<E>) -> Result<()> {
        let env = self.env();
        let until = env.now().saturating_add(CLOSE_WAIT);
        loop {
            // Also readers that were lost before there was a replica.
            let sealed_s = self.end_lost_opens(file, None).await?;
            let request = MetaRequest::CopyReplica { handle: file.handle(), sealed_s };
            match self.session.done_at(&file.place(), Effect::Once, request).await {
                Err(error) if error.errno() == Errno::EBUSY.0 && env.now() < until => {
                    env.sleep(CLOSE_PAUSE).await;
                }
                result => return result,
            }
        }
    }

    /// Has the data servers reject delayed requests of programs that ended without closing the file. Returns the seal; 0 if
    /// the caller may not end them, or not now.
    async fn end_lost_opens(&self, file: &OpenFile<E>, data: Option<&OpenFile<E>>) -> Result<u64> {
        let sealed = match data {
            None => file.seal().await,
            // An append consists of several exchanges, and would end half done.
            Some(data) => {
                file.without_appends(async {
                    let sealed_s = file.seal().await?;
                    data.seal().await?;
                    Ok(sealed_s)
                })
                .await
            }
        };
        match sealed {
            Err(error) if matches!(Errno(error.errno()), Errno::EPERM | Errno::EBUSY) => Ok(0),
            result => result,
        }
    }

    /// Copies bytes that only the replica of a file has to the file. Returns their number; `None` if the file has no
    /// valid replica.
    ///
    /// # Errors
    /// `EAGAIN` when other programs have the file open for writing; errors of the servers. The next attempt copies all
    /// of them again.
    pub async fn synchronize_replica(&self, at: &InodePath, pace: &mut impl Pace) -> Result<Option<u64>> {
        let ends_lost_opens = match self.replica(at).await? {
            Some(info) if info.phase == Phase::Valid && !info.dirty.is_empty() => {
                info.has_lost_opens && info.writers == 0
            }
            Some(info) if info.phase == Phase::Valid => return Ok(Some(0)),
            _ => return Ok(None),
        };
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::READ };
        let file = self.open(at, flags, 0, &LayoutSpec::default()).await?;
        let synchronized = self.synchronize_open(&file, ends_lost_opens, pace).await;
        let closed = file.close().await;
        synchronized.and_then(|copied| closed.map(|()| copied))
    }

    async fn synchronize_open(
        &self,
        file: &OpenFile<E>,
        ends_lost_opens: bool,
        pace: &mut impl Pace,
    ) -> Result<Option<u64>> {
        let Some(replica) = file.state.replica() else { return Ok(None) };
        // Programs that open the file for writing meanwhile make the copy fail, so it does not pause later.
        self.wait_until_idle(file, replica.data(), pace).await?;
        let sealed_s = match ends_lost_opens {
            true => self.end_lost_opens(file, Some(replica.data())).await?,
            false => 0,
        };
        // Before anything is asked: a truncation that this does not see fences this capability.
        let grant = AppendGrant::without_lock(file.state.cap().await?);
        let Some(info) = self.session.replica(&file.place()).await? else { return Ok(None) };
        // From now on, a change needs an open for writing, which changes the epoch.
        if info.writers > 1 {
            const WHY: &str =
                "other programs have the file open for writing: repeat the command when they have ended";
            return Err(Error::misuse(Errno::EAGAIN, WHY).about(file.path()));
        }
        let mut dirty = DirtyRegions::from_bitmap(info.spec.len.0, &info.dirty);
        if mutants::is_seeded(Mutant::ForgottenRegion) {
            dirty.remove_last();
        }
        // The replica's servers may lose power later. They must not lose bytes that are no longer marked.
        replica.data().sync().await?;
        let size = file.size().await?;
        let original = Original { file, grant: Some(grant) };
        let mut copied = 0;
        for window in windows(replica.mapping(), size, Some(&dirty)) {
            let from = (&Data(replica.data()), Side::Replica);
            let done = copy(from, (&original, Side::Original), &window, pace).await;
            copied += done.map_err(|error| match error.is_expired() || error.is_stale_layout() {
                true => Error::misuse(Errno::EAGAIN, "another program truncated or moved the file meanwhile"),
                false => error,
            })?;
        }
        file.sync_original().await?;
        let request = MetaRequest::SynchronizedReplica { handle: file.handle(), epoch: info.epoch, sealed_s };
        let done = self.session.done_at(&file.place(), Effect::Once, request).await;
        done.map_err(|error| error.about(file.path()))?;
        Ok(Some(copied))
    }

    /// Compares a file and its replica, except for regions that only the replica has. Returns `None` if the file has no
    /// valid replica.
    ///
    /// # Errors
    /// `EPERM` when the caller neither owns the file nor is root and no program uses the replica; errors of the servers.
    pub async fn verify_replica(&self, at: &InodePath, pace: &mut impl Pace) -> Result<Option<Difference>> {
        let file = self.open(at, OpenFlags::READ, 0, &LayoutSpec::default()).await?;
        let Some(info) = self.session.replica(&file.place()).await? else { return Ok(None) };
        if info.phase != Phase::Valid {
            return Ok(None);
        }
        let replica = file.open_replica(false).await?;
        let dirty = DirtyRegions::from_bitmap(info.spec.len.0, &info.dirty);
        let size = file.size().await?;
        let sides = (&Original { file: &file, grant: None }, &Data(replica.data()));
        compare(replica.mapping(), sides, size, &dirty, pace).await.map(Some)
    }

    /// Removes the replica of a file. `force` gives up bytes that only the replica has.
    ///
    /// # Errors
    /// `ENOENT` if it has none; `EPERM` when the caller neither owns the file nor is root; `EBUSY` while programs use it,
    /// or without `force` if it has bytes that the file does not have.
    pub async fn drop_replica(&self, at: &InodePath, force: bool) -> Result<()> {
        self.session.done_at(at, Effect::Once, MetaRequest::DropReplica { at: at.clone(), force }).await
    }

    /// Returns the replica of a file; `None` if it has none.
    ///
    /// # Errors
    /// Errors of [`Client::stat`].
    pub async fn replica(&self, at: &InodePath) -> Result<Option<ReplicaInfo>> {
        self.session.replica(at).await
    }

    /// Returns the mapping of a file's valid replica.
    ///
    /// # Errors
    /// `ENOENT` without a valid replica; `EPERM` as for [`Client::verify_replica`]; `EIO` if it is damaged.
    pub async fn replica_mapping(&self, at: &InodePath) -> Result<Mapping> {
        let file = self.open(at, OpenFlags::READ, 0, &LayoutSpec::default()).await?;
        Ok(file.open_replica(false).await?.into_mapping())
    }

    /// Returns the replicas of the caller's files or, for root, of all files.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn replicas(&self) -> Result<Vec<ReplicaInfo>> {
        let (mut all, mut after) = (Vec::new(), FileId(0));
        loop {
            match self.session.call(Effect::Repeatable, MetaRequest::Replicas { after }).await? {
                MetaReply::Replicas { replicas, more } => {
                    all.extend(replicas);
                    match more {
                        Some(last) => after = last,
                        None => return Ok(all),
                    }
                }
                _ => return Err(Error::unexpected_reply()),
            }
        }
    }
}
