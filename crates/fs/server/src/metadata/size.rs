//! Truncation, and validation of file sizes. When a size is valid: see [`super::opens`].

use super::attrs::later;
use super::compression::{datafile_settings, is_settled};
use super::fault::{Fault, Outcome};
use super::op::Op;
use super::open::Urgency;
use super::permit::{WRITE, require};
use super::tables::{inode, named_inode, put_inode};
use super::walk::walk;
use weft_core::{ByteLen, FileId, FileOffset};
use weft_store::metadata::{Inode, Node, NodeKind, Snapshot, Transaction};
use weft_wire::meta::{CollectedSize, HandleId, InodePath, MetaReply};
use weft_wire::{Capability, Errno, Rights};

impl Op<'_> {
    /// The file that is open with `handle`, or else has the path, if the caller may truncate it.
    pub(super) fn file_to_truncate(
        &self,
        s: &dyn Snapshot,
        at: &InodePath,
        handle: Option<HandleId>,
    ) -> Outcome<(FileId, Inode)> {
        if let Some(handle) = handle {
            let open = self.core.opens.lock().get(self.session, handle).ok_or(Errno::EBADF)?;
            if !open.changes() {
                return Err(Errno::EINVAL.into());
            }
            return Ok((open.file, named_inode(s, open.file)?));
        }
        self.require_open_share(None)?;
        let (file, inode) = walk(s, self, at)?.existing()?;
        match inode.kind() {
            NodeKind::Directory => return Err(Errno::EISDIR.into()),
            NodeKind::Regular => require(self.caller, &inode, WRITE)?,
            _ => return Err(Errno::EINVAL.into()),
        }
        Ok((file, inode))
    }

    pub(super) fn truncate(
        &self,
        t: &mut dyn Transaction,
        at: &InodePath,
        handle: Option<HandleId>,
        (size, has_space): (ByteLen, bool),
    ) -> Outcome<(MetaReply, Urgency)> {
        let mut outdates = Urgency::Lazy;
        let (file, mut inode) = self.file_to_truncate(t, at, handle)?;
        if handle.is_none() {
            if !self.core.opens.lock().delegates_of_others(file, self.job).is_empty() {
                return Ok((MetaReply::OpenFirst, Urgency::Lazy));
            }
            match self.truncate_replicated(t, file)? {
                None => return Ok((MetaReply::OpenFirst, Urgency::Lazy)),
                Some(urgency) => outdates = urgency,
            }
        }
        if inode.is_inline() {
            return self.truncate_inline(t, (file, inode), handle, (size, has_space));
        }
        let (data, settings) = (inode.data(file), datafile_settings(&inode));
        let charged = self.reserve_for_len(t, file, &inode, size)?;
        let limit = self.write_limit(t, file, &inode)?;
        let Node::Regular { layout, is_size_valid, touched, epoch, recorded, .. } = &mut inode.node else {
            return Err(Errno::EINVAL.into());
        };
        let urgency = self.core.mark_size_invalid(file, *is_size_valid).max(charged);
        // Durable before a datafile is truncated: if the old record came back after a crash, it would report the
        // truncation as lost bytes.
        let lowered = recorded.lower(layout, FileOffset(size.0));
        let urgency = if lowered { Urgency::Durable } else { urgency.max(outdates) };
        (*is_size_valid, *touched, *epoch) = (false, true, epoch.wrapping_add(1));
        let (layout, recorded) = (layout.clone(), recorded.clone());
        let epoch = self.core.epoch(*epoch);
        // A truncation that removes no byte of a datafile leaves the datafiles' times alone, but still changes the
        // file's.
        (inode.mtime, inode.ctime, inode.mtime_set_at) = (self.now, self.now, self.now);
        self.drop_privileges(t, file, &mut inode);
        put_inode(t, file, &inode);
        {
            let mut opens = self.core.opens.lock();
            match handle {
                Some(_) => opens.mark_incomplete(file),
                // A writer that has closed the file when the truncation ends may have written behind the new end.
                None => {
                    let alone = !self.core.unknown_writers.lock().may_write(file, self.now);
                    opens.begin_truncation(file, self.session, epoch, alone, self.caller.uid);
                }
            }
        }
        let rights = Rights::WRITE.and(Rights::LENGTH).and(Rights::VALIDATE_SIZE).and(settings);
        let cap = self.limited(self.grant(data, rights), limit);
        Ok((MetaReply::Truncate { file, layout, cap, epoch, recorded }, urgency))
    }

    /// Stores a size that a client collected, if nothing can have changed since. Returns whether that ended a
    /// truncation.
    pub(super) fn validate_size(
        &self,
        t: &mut dyn Transaction,
        file: FileId,
        epoch_collected: u64,
        cap: &Capability,
        found: &CollectedSize,
    ) -> Outcome<bool> {
        let may_validate = self.holds(cap, file, Rights::LENGTH.and(Rights::VALIDATE_SIZE));
        let (ended, busy) = {
            let mut opens = self.core.opens.lock();
            let truncation = opens.end_truncation(file, self.session, epoch_collected);
            let busy = opens.is_busy(file) || self.core.unknown_writers.lock().may_write(file, self.now);
            (truncation.is_some(), busy || truncation == Some(false))
        };
        // A truncation may outlast its capability. It has ended then, but its result does not count.
        if !may_validate {
            let detail = format!("inode {file}: only a session that may write the file validates its size");
            return if ended { Ok(true) } else { Err(Fault::new(Errno::EACCES, detail)) };
        }
        let Some(mut inode) = inode(t, file)? else { return Ok(ended) };
        let charged = self.core.charged(t, file, &inode)?;
        // Lengths of datafiles that are no longer the file's do not count.
        let busy = busy || cap.file != inode.data(file);
        let is_settled = is_settled(&inode, found.mtime, self.now);
        let Node::Regular { layout, is_size_valid, touched, epoch, recorded, .. } = &mut inode.node else {
            return Ok(ended);
        };
        if *is_size_valid || busy || self.core.epoch(*epoch) != epoch_collected {
            return Ok(ended);
        }
        // A datafile that a loss of power removed from the disk may have bytes on an SSD. It then has a length but no
        // time.
        let is_there = found.mtime.is_some() || found.size > ByteLen(0);
        (*is_size_valid, *touched) = (is_settled, *touched || is_there);
        // A collected length never lowers a record. Only a truncation does, so that a loss is noticed.
        recorded.raise(&found.lens);
        let size = found.size.max(ByteLen(recorded.file_size(layout).0));
        (inode.size, inode.blocks_512) = (size, found.blocks_512);
        if let Some(mtime) = found.mtime.filter(|mtime| *mtime > inode.mtime_set_at) {
            inode.mtime = mtime;
        }
        inode.ctime = later(inode.ctime, found.mtime.filter(|mtime| *mtime <= self.now));
        put_inode(t, file, &inode);
        self.core.recharge(t, file, charged, &inode)?;
        Ok(ended)
    }
}
