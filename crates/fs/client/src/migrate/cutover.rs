//! The last step of a move, while the file's users wait: the last bytes, and the swap of the datafiles.

use super::Mover;
use crate::call::Effect;
use crate::control::{recorded, summarize};
use crate::error::{Error, Result};
use crate::short_datafiles::find_short;
use weft_core::{ByteLen, ByteRange, FileOffset, LocalExtent, Nanos, Timestamp};
use weft_env::Env;
use weft_wire::data::{DataRequest, DatafileMeta};
use weft_wire::meta::{LockKind, LockOwner, LockRange, LockSpace, MetaReply, MetaRequest};

const WHOLE_FILE: LockRange = LockRange { start: 0, end: u64::MAX };

impl<E: Env> Mover<'_, E> {
    /// Performs the last step, and returns the size of the file and how long its users waited.
    ///
    /// On an error the file is unchanged, unless the answer to the commit was lost: then the move may still take
    /// effect.
    pub(super) async fn finish(&mut self) -> Result<(ByteLen, Nanos)> {
        // An append consists of several exchanges that must all see the same datafiles.
        self.renew_capabilities(ByteLen::ZERO).await?;
        let owner = LockOwner::Handle(self.session.core.new_handle());
        self.acquire_append_lock(owner).await?;
        let began = self.session.core.env.now();
        let result = self.cut_over().await;
        if result.is_err() {
            let back = MetaRequest::CancelCutover { handle: self.record.handle };
            let _ = self.session.call(Effect::Repeatable, back).await;
            // The capabilities of the last step are not valid afterwards.
            let _ = self.renew_capabilities(ByteLen::ZERO).await;
        }
        let handle = self.record.handle;
        let unlock = MetaRequest::Unlock { handle, space: LockSpace::Append, owner, range: WHOLE_FILE };
        // If this message is lost, the close of the file releases the lock.
        let _ = self.session.call(Effect::Repeatable, unlock).await;
        let paused = self.session.core.env.now().saturating_sub(began);
        result.map(|size| (size, paused))
    }

    async fn acquire_append_lock(&self, owner: LockOwner) -> Result<()> {
        let (handle, pid) = (self.record.handle, self.session.core.options.pid);
        let (space, kind, range, wait) = (LockSpace::Append, LockKind::Exclusive, WHOLE_FILE, true);
        let mut ticket = 0;
        loop {
            let request = MetaRequest::Lock { handle, space, owner, kind, range, wait, ticket, pid };
            match self.session.call(Effect::Repeatable, request).await? {
                // The seal rejects delayed appends, so no fence is needed.
                MetaReply::Locked | MetaReply::LockedFenced { .. } => return Ok(()),
                MetaReply::LockWait(next) => ticket = next,
                _ => return Err(Error::unexpected_reply()),
            }
        }
    }

    async fn cut_over(&mut self) -> Result<ByteLen> {
        let handle = self.record.handle;
        let moving = self.send_move_request(MetaRequest::BeginCutover { handle }).await?;
        let (seal_s, Some(last)) = (moving.seal_s, moving.last) else {
            return Err(Error::unexpected_reply());
        };
        self.install_capabilities(&moving);
        self.seal(seal_s).await?;
        // From here on the old datafiles do not change, and all earlier changes have been noted.
        self.poll().await?;
        let metas = self.session.core.all_datafile_metas(self.from.cap, &self.from.layout).await?;
        self.check_for_loss(&metas).await?;
        let found = summarize(&self.from.layout, &metas);
        self.copy_the_rest(found.size).await?;
        let (core, to) = (&self.session.core, &self.to);
        let boots = core.set_lens(to.data(), to.cap, &to.layout, FileOffset(found.size.0)).await?;
        self.unsynced.note_all(&boots);
        if let Some(mtime) = found.mtime {
            self.set_times(mtime).await?;
        }
        // No delayed write of this mover may arrive later, over other clients' writes.
        core.fence(self.to.data(), last, &self.to.layout, last.expires_s).await?;
        self.sync(last).await?;
        let lens = recorded(&self.session.core.all_datafile_metas(last, &self.to.layout).await?);
        let moved = MetaRequest::CommitMove { handle, seal_s, size: found.size, lens, copied: self.copied };
        match self.session.call(Effect::Once, moved).await? {
            MetaReply::Done => Ok(found.size),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Fails if the file has lost bytes, which would become holes in the new datafiles.
    ///
    /// `found` are the old datafiles after the seal. Lengths that were recorded later than that are covered.
    async fn check_for_loss(&self, found: &[DatafileMeta]) -> Result<()> {
        let (core, layout, data) = (&self.session.core, &self.from.layout, self.from.data());
        let handle = self.record.handle;
        let reply = self.session.call(Effect::Repeatable, MetaRequest::Recorded { handle }).await?;
        let MetaReply::Recorded { data: of, lens, .. } = reply else { return Err(Error::unexpected_reply()) };
        if of != data {
            return Err(Error::stale_layout());
        }
        let found: Vec<_> = layout.objects().map(|(object, _)| object).zip(found.iter().copied()).collect();
        match find_short(layout, &lens, &found).first() {
            Some(lost) => {
                let start = layout.file_pieces(lost.object, LocalExtent::new(lost.held.0, 1)).next();
                let start = start.map_or(FileOffset::ZERO, |piece| piece.offset);
                Err(core.missing(data, layout, start, lost))
            }
            None => Ok(()),
        }
    }

    async fn seal(&self, before_s: u64) -> Result<()> {
        let cap = self.from.cap;
        let request = |datafiles| DataRequest::Seal { cap, before_s, datafiles };
        self.session.core.apply_to_all(self.from.data(), &self.from.layout, request).await.map(drop)
    }

    async fn set_times(&self, mtime: Timestamp) -> Result<()> {
        let cap = self.to.cap;
        let request = |datafiles| DataRequest::SetTimes { cap, mtime, datafiles };
        self.session.core.apply_to_all(self.to.data(), &self.to.layout, request).await.map(drop)
    }

    /// Copies the changed ranges within the size of the file.
    async fn copy_the_rest(&mut self, size: ByteLen) -> Result<()> {
        let changed = self.changed.take();
        let Some(all) = ByteRange::new(0, size.0) else { return Ok(()) };
        let (piece, mut result) = (self.piece(), Ok(()));
        for range in changed.iter() {
            let mut rest = range.intersection(all);
            while let (Some(range), Ok(())) = (rest, &result) {
                let chunk = ByteRange::new(range.start(), range.end().min(range.start() + piece));
                result = self.copy(chunk.expect("not at the end")).await;
                rest = ByteRange::new(range.start().saturating_add(piece), range.end());
            }
        }
        if result.is_err() {
            changed.iter().for_each(|range| self.changed.add(range));
        }
        result
    }
}
