//! The end of a move, while the file's users wait: the last bytes, and other datafiles for the old ones.

use super::Mover;
use crate::call::Effect;
use crate::control::{odd_reply, recorded, settlement};
use crate::error::Result;
use crate::file::another_home;
use crate::lost::short;
use weft_core::{ByteLen, ByteRange, FileOffset, LocalExtent, Nanos, Timestamp};
use weft_env::Env;
use weft_wire::data::{DataRequest, DatafileMeta};
use weft_wire::meta::{LockKind, LockOwner, LockRange, LockSpace, MetaReply, MetaRequest};

const WHOLE: LockRange = LockRange { start: 0, end: u64::MAX };

impl<E: Env> Mover<'_, E> {
    /// Does it: the size of the file, and how long others had to wait. On an error the file is as it was, unless the very
    /// last answer was not heard, and may be moved still.
    pub(super) async fn finish(&mut self) -> Result<(ByteLen, Nanos)> {
        // An append takes several exchanges that all have to see the same datafiles.
        self.go_on(ByteLen::ZERO).await?;
        let owner = LockOwner::Handle(self.client.core.new_handle());
        self.keep_appends_away(owner).await?;
        let began = self.client.core.env.now();
        let result = self.finish_alone().await;
        if result.is_err() {
            let back = MetaRequest::MoveBack { handle: self.record.handle };
            let _ = self.client.call(Effect::Repeatable, back).await;
            // The capabilities of the last part are not for what comes now.
            let _ = self.go_on(ByteLen::ZERO).await;
        }
        let handle = self.record.handle;
        let unlock = MetaRequest::Unlock { handle, space: LockSpace::Append, owner, range: WHOLE };
        // Should it not be heard, the file's being closed ends it.
        let _ = self.client.call(Effect::Repeatable, unlock).await;
        let paused = self.client.core.env.now().saturating_sub(began);
        result.map(|size| (size, paused))
    }

    async fn keep_appends_away(&self, owner: LockOwner) -> Result<()> {
        let (handle, pid) = (self.record.handle, self.client.options().pid);
        let (space, kind, range, wait) = (LockSpace::Append, LockKind::Exclusive, WHOLE, true);
        let mut ticket = 0;
        loop {
            let request = MetaRequest::Lock { handle, space, owner, kind, range, wait, ticket, pid };
            match self.client.call(Effect::Repeatable, request).await? {
                // Whoever is late is refused by the seal.
                MetaReply::Locked | MetaReply::LockedFenced { .. } => return Ok(()),
                MetaReply::LockWait(next) => ticket = next,
                _ => return Err(odd_reply()),
            }
        }
    }

    async fn finish_alone(&mut self) -> Result<ByteLen> {
        let handle = self.record.handle;
        let moving = self.moving(MetaRequest::MoveOver { handle }).await?;
        let (seal_s, Some(last)) = (moving.seal_s, moving.last) else { return Err(odd_reply()) };
        self.take(&moving);
        self.seal(seal_s).await?;
        // From here on nothing of the file changes. What was changed before has been noted.
        self.poll().await?;
        let metas = self.client.core.all_lens(self.from.cap, &self.from.layout).await?;
        self.check_for_loss(&metas).await?;
        let found = settlement(&self.from.layout, &metas);
        self.copy_the_rest(found.size).await?;
        let (core, to) = (&self.client.core, &self.to);
        let boots = core.set_lens(to.data(), to.cap, &to.layout, FileOffset(found.size.0)).await?;
        self.unsynced.note_all(&boots);
        if let Some(mtime) = found.mtime {
            self.set_times(mtime).await?;
        }
        // Nothing of all this may come late, over what others write.
        core.fence(self.to.data(), last, &self.to.layout, last.expires_s).await?;
        self.sync(last).await?;
        let lens = recorded(&self.client.core.all_lens(last, &self.to.layout).await?);
        let moved = MetaRequest::Moved { handle, seal_s, size: found.size, lens };
        match self.client.call(Effect::Once, moved).await? {
            MetaReply::Done => Ok(found.size),
            _ => Err(odd_reply()),
        }
    }

    /// Bytes that are lost must not become a hole of the new datafiles. `found` are the old ones, which are sealed: what was
    /// recorded of them later than that, they had.
    async fn check_for_loss(&self, found: &[DatafileMeta]) -> Result<()> {
        let (core, layout, data) = (&self.client.core, &self.from.layout, self.from.data());
        let handle = self.record.handle;
        let reply = self.client.call(Effect::Repeatable, MetaRequest::Recorded { handle }).await?;
        let MetaReply::Recorded { data: of, lens, .. } = reply else { return Err(odd_reply()) };
        if of != data {
            return Err(another_home());
        }
        let found: Vec<_> = layout.objects().map(|(object, _)| object).zip(found.iter().copied()).collect();
        match short(layout, &lens, &found).first() {
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
        self.client.core.have_all(self.from.data(), &self.from.layout, request).await.map(drop)
    }

    async fn set_times(&self, mtime: Timestamp) -> Result<()> {
        let cap = self.to.cap;
        let request = |datafiles| DataRequest::SetTimes { cap, mtime, datafiles };
        self.client.core.have_all(self.to.data(), &self.to.layout, request).await.map(drop)
    }

    /// Copies what a file of this size has of what was changed.
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
