//! Writing and cutting.

use super::bridge::{Bridge, range};
use super::counters::add;
use super::{Gate, Placed, Source};
use std::sync::atomic::Ordering;
use weft_core::ibridge::{Class, Verdict};
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, LocalExtent, LocalOffset};
use weft_env::Env;
use weft_env::plants::{Plant, planted};
use weft_store::aligned::AlignedBuf;
use weft_store::datafile::DatafileKey;
use weft_store::error::DatafileError;
use weft_store::fragments::{LogError, Piece, Tag};
use weft_store::target::Target;
use weft_wire::data::IoHints;

/// The bytes of a source that belong at an extent of a datafile.
struct Bytes<'a, E: Env> {
    key: DatafileKey,
    start: u64,
    source: Source<'a, E>,
}

impl<E: Env> Bytes<'_, E> {
    /// Those of `range`, which lies inside.
    fn of(&self, range: ByteRange) -> Source<'_, E> {
        self.source.part(range.start() - self.start, range.len())
    }
}

impl<E: Env> Placed<E> {
    /// Writes all of `source`; on an error some may have been written.
    ///
    /// # Errors
    /// Of the devices.
    pub async fn write(
        &self,
        key: DatafileKey,
        offset: LocalOffset,
        source: Source<'_, E>,
        hints: &IoHints,
        gate: Gate<'_, E>,
    ) -> Result<(), DatafileError> {
        let extent = LocalExtent { offset, len: source.len() };
        let (Some(bridge), Some(all)) = (&self.bridge, range(extent)) else {
            let _permit = self.enter(gate).await;
            return source.to_disk(&self.target, key, offset).await;
        };
        let bytes = Bytes { key, start: offset.0, source };
        let _guard = bridge.ranges.change(key, all.start(), all.end()).await;
        let arrived = bridge.policies.wants_times().then(|| bridge.env.now());
        let verdict = bridge.policies.write(&bridge.env, key, extent, (gate.session, arrived), hints);
        let to_disk = match verdict {
            Verdict::Disk | Verdict::Outgrown { .. } => Some(all),
            Verdict::Ssd { class, gain } => {
                self.target.check_not_removed(key)?;
                match bridge.admit(&bytes, all, class, gain).await {
                    true => None,
                    false => Some(all),
                }
            }
            Verdict::Edges { head, tail, class, gain } => {
                self.target.check_not_removed(key)?;
                let mut middle = all;
                let edge = |start, end| ByteRange::new(start, end);
                if let Some(head) = edge(all.start(), all.start() + head)
                    && bridge.admit(&bytes, head, class, gain).await
                {
                    middle = edge(head.end(), all.end()).expect("the edges are not all of it");
                }
                if let Some(tail) = edge(all.end() - tail, all.end())
                    && bridge.admit(&bytes, tail, class, gain).await
                {
                    middle = edge(middle.start(), tail.start()).expect("the edges are not all of it");
                }
                Some(middle)
            }
        };
        match to_disk {
            Some(range) => {
                let is_told = verdict == Verdict::Disk;
                let began = arrived.map(|at| if is_told { at } else { bridge.env.now() });
                let began = began.map(|at| (at, bridge.writes_disk()));
                let extent = LocalExtent { offset: LocalOffset(range.start()), len: ByteLen(range.len()) };
                let _permit = self.enter(gate).await;
                if !is_told {
                    bridge.policies.served_by_disk(key, extent, true);
                }
                bridge.write_to_disk(&self.target, &bytes, range).await?;
                if let Some((began, writing)) = began {
                    bridge.policies.took(key, extent, (began, bridge.env.now()), writing.count());
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Cuts or extends it. Zero for a missing one makes nothing.
    ///
    /// # Errors
    /// Of the devices.
    pub async fn set_len(
        &self,
        key: DatafileKey,
        len: ByteLen,
        gate: Gate<'_, E>,
    ) -> Result<(), DatafileError> {
        let Some(bridge) = &self.bridge else {
            let _permit = self.enter(gate).await;
            return self.target.set_len(key, len).await;
        };
        let _guard = bridge.ranges.change(key, 0, u64::MAX).await;
        let _permit = self.enter(gate).await;
        let behind = ByteRange::from(len.0).expect("no datafile is so long");
        let overlap = bridge.log.overlap(key, behind);
        if !overlap.any {
            return self.target.set_len(key, len).await;
        }
        // What is dirty here may have older bytes under it on the disk, or may be all that makes the datafile so long. Should
        // power be lost when it is gone, and the disk not have the new length yet, the one would come back and the other
        // be lost.
        let on_disk = self.target.meta(key).await?.map_or(ByteLen(0), |meta| meta.len);
        if overlap.dirty && on_disk != len {
            self.target.set_len(key, len).await?;
            self.target.sync(key).await?;
            return bridge.cut(key, len).await;
        }
        bridge.cut(key, len).await?;
        self.target.set_len(key, len).await
    }

    /// Makes a hole: the bytes of `extent` read as zeros, as far as the datafile reaches. Where the log has dirty bytes it
    /// gets zeros, and these go to the disk in time: older bytes of the disk never come back, also after a loss of power.
    ///
    /// # Errors
    /// Of the devices; that the disk's file system has no holes.
    pub async fn punch(
        &self,
        key: DatafileKey,
        extent: LocalExtent,
        gate: Gate<'_, E>,
    ) -> Result<(), DatafileError> {
        let (Some(bridge), Some(all)) = (&self.bridge, range(extent)) else {
            let _permit = self.enter(gate).await;
            return self.target.punch(key, extent.offset, extent.len).await;
        };
        let bytes = Bytes { key, start: extent.offset.0, source: Source::Hole(extent.len) };
        let _guard = bridge.ranges.change(key, all.start(), all.end()).await;
        let _permit = self.enter(gate).await;
        bridge.write_to_disk(&self.target, &bytes, all).await
    }

    /// The first byte of a datafile at or behind `offset` that lies in no hole of it; `None` when there is none.
    ///
    /// # Errors
    /// Of the disk.
    pub async fn seek_data(
        &self,
        key: DatafileKey,
        offset: LocalOffset,
    ) -> Result<Option<LocalOffset>, DatafileError> {
        let logged = self.logged(key, offset);
        let on_disk = self.target.seek_data(key, offset).await?;
        Ok(logged.first().map(|piece| LocalOffset(piece.start())).into_iter().chain(on_disk).min())
    }

    /// The first byte of a datafile at or behind `offset` that lies in a hole of it, as all behind its end does.
    ///
    /// # Errors
    /// Of the disk.
    pub async fn seek_hole(
        &self,
        key: DatafileKey,
        offset: LocalOffset,
    ) -> Result<LocalOffset, DatafileError> {
        let mut at = self.target.seek_hole(key, offset).await?;
        for piece in self.logged(key, offset) {
            if at.0 < piece.start() {
                break;
            }
            if at.0 < piece.end() {
                at = self.target.seek_hole(key, LocalOffset(piece.end())).await?;
            }
        }
        Ok(at)
    }

    /// The ranges behind `offset` that lie in the log, in order.
    fn logged(&self, key: DatafileKey, offset: LocalOffset) -> Vec<ByteRange> {
        match (&self.bridge, ByteRange::from(offset.0)) {
            (Some(bridge), Some(behind)) => bridge.log.extents(key, behind),
            _ => Vec::new(),
        }
    }

    /// Removes it; a missing one is removed already.
    ///
    /// # Errors
    /// Of the devices.
    pub async fn remove(&self, key: DatafileKey, gate: Gate<'_, E>) -> Result<(), DatafileError> {
        let Some(bridge) = &self.bridge else {
            let _permit = self.enter(gate).await;
            return self.target.remove(key).await;
        };
        // The disk's first: who finds nothing of it in the log any more must not find there what the log had newer bytes for.
        {
            let _permit = self.enter(gate).await;
            self.target.remove(key).await?;
        }
        bridge.forget(key).await
    }
}

impl<E: Env> Bridge<E> {
    /// The datafile is gone for good.
    pub(super) async fn forget(&self, key: DatafileKey) -> Result<(), DatafileError> {
        let _guard = self.ranges.change(key, 0, u64::MAX).await;
        self.wishes.forget(key);
        match self.log.remove(key).await {
            Err(LogError::Failed { .. }) => Ok(self.log.give_up(key, ByteRange::ALL).await?),
            removed => Ok(removed?),
        }
    }

    /// What the log has from `len` on is gone.
    async fn cut(&self, key: DatafileKey, len: ByteLen) -> Result<(), DatafileError> {
        match (self.log.cut(key, len).await, ByteRange::from(len.0)) {
            (Err(LogError::Failed { .. }), Some(behind)) => Ok(self.log.give_up(key, behind).await?),
            (cut, _) => Ok(cut?),
        }
    }

    /// Puts the bytes of `range` on the SSD; false when the disk has to take them.
    async fn admit(&self, bytes: &Bytes<'_, E>, range: ByteRange, class: Class, gain: i64) -> bool {
        let tag = Tag { class, gain, dirty: true, mtime: self.env.wall() };
        if self.put(bytes, range, tag).await.is_err() {
            return false;
        }
        self.admitted(class, gain);
        true
    }

    async fn put(&self, bytes: &Bytes<'_, E>, range: ByteRange, tag: Tag) -> Result<(), LogError> {
        {
            let _busy = self.busy();
            self.log_requests.fetch_add(1, Ordering::Relaxed);
            let offset = LocalOffset(range.start());
            bytes.of(range).to_log(&self.log, bytes.key, offset, tag).await?;
        }
        add(&self.counters.bytes_written, range.len());
        self.has_work();
        Ok(())
    }

    /// Has the disk take the bytes of `range`, of which the log keeps what must not lie on the disk alone.
    async fn write_to_disk(
        &self,
        target: &Target<E>,
        bytes: &Bytes<'_, E>,
        range: ByteRange,
    ) -> Result<(), DatafileError> {
        let overlap = self.log.overlap(bytes.key, range);
        let is_given_up = overlap.any && self.clear_way(target, bytes, range).await?;
        // All of it, also where the log has the newest bytes: what the disk has under these does not count.
        bytes.of(range).to_disk(target, bytes.key, LocalOffset(range.start())).await?;
        if is_given_up {
            // Not before the disk has the newer ones for good: it may have no room for them, and with a loss of power the
            // note that these here count no more might stay where the newer ones do not.
            if overlap.dirty {
                if matches!(bytes.source, Source::Hole(_)) {
                    self.reach(target, bytes.key, range).await?;
                }
                target.sync(bytes.key).await?;
            }
            self.log.give_up(bytes.key, range).await?;
        }
        Ok(())
    }

    /// Makes the disk's datafile as long as the dirty bytes of `range` in the log make it: a hole on the disk does not, and
    /// these bytes are given up. The range is the caller's, and reads as zeros.
    async fn reach(
        &self,
        target: &Target<E>,
        key: DatafileKey,
        range: ByteRange,
    ) -> Result<(), DatafileError> {
        let dirty = self.log.find(key, range).into_iter().filter(Piece::is_dirty);
        let Some(end) = dirty.map(|piece| piece.extent().end()).max() else { return Ok(()) };
        let len = target.meta(key).await?.map_or(ByteLen(0), |meta| meta.len);
        if len.0 < end {
            target.write(key, LocalOffset(end - 1), &[0]).await?;
        }
        Ok(())
    }

    /// Where the log has dirty bytes it gets the newer ones; where clean ones, it forgets them. True when its SSD has failed,
    /// so that what it has here is to be given up once the disk has the newer bytes.
    async fn clear_way(
        &self,
        target: &Target<E>,
        bytes: &Bytes<'_, E>,
        range: ByteRange,
    ) -> Result<bool, DatafileError> {
        target.check_not_removed(bytes.key)?;
        match self.try_clear_way(target, bytes, range).await {
            Err(DatafileError::Log(LogError::Failed { .. })) => Ok(true),
            other => other.map(|()| false),
        }
    }

    async fn try_clear_way(
        &self,
        target: &Target<E>,
        bytes: &Bytes<'_, E>,
        range: ByteRange,
    ) -> Result<(), DatafileError> {
        let is_dirty = |piece: &Piece| piece.is_dirty() && !planted(Plant::HiddenBytes);
        for piece in self.log.find(bytes.key, range).into_iter().filter(is_dirty) {
            let tag = Tag { class: Class::Random, gain: 0, dirty: true, mtime: self.env.wall() };
            match self.put(bytes, piece.extent(), tag).await {
                Err(LogError::Full) => self.settle(target, piece).await?,
                other => other?,
            }
        }
        if planted(Plant::UnforgottenCopy) {
            return Ok(());
        }
        Ok(self.log.forget(bytes.key, range).await?)
    }

    /// Makes a dirty piece clean at once. Its range is the caller's.
    async fn settle(&self, target: &Target<E>, piece: Piece) -> Result<(), DatafileError> {
        let (key, extent) = (piece.key(), piece.extent());
        let mut dirty = vec![piece];
        while let Some(piece) = dirty.pop() {
            if piece.is_lost() {
                continue; // `forget` takes it away
            }
            let mut buf = AlignedBuf::zeroed(piece.extent().len() as usize);
            self.log.read(&piece, &mut buf).await?;
            target.write(key, LocalOffset(piece.extent().start()), &buf).await?;
            target.sync(key).await?;
            self.log.written_back(&[piece]).await?;
            if dirty.is_empty() && !planted(Plant::MissedMove) {
                // Cleaning may have moved some of it meanwhile, which then is dirty still.
                dirty = self.log.find(key, extent);
                dirty.retain(|piece| piece.is_dirty() && !piece.is_lost());
            }
        }
        Ok(())
    }
}
