//! Lengths of files: what the service believes about them, and when.

use super::attrs::later;
use super::fault::{Fault, Outcome};
use super::op::Op;
use super::open::Urgency;
use super::permit::{WRITE, require, without_set_ids};
use super::tables::{inode, named_inode, put_inode};
use super::walk::walk;
use weft_core::{ByteLen, FileId, FileOffset};
use weft_store::metadata::{Node, NodeKind, Transaction};
use weft_wire::meta::{HandleId, MetaReply, Place, Settlement};
use weft_wire::{Capability, Errno, Rights};

impl Op<'_> {
    pub(super) fn truncate(
        &self,
        t: &mut dyn Transaction,
        at: &Place,
        handle: Option<HandleId>,
        size: ByteLen,
    ) -> Outcome<(MetaReply, Urgency)> {
        let (file, mut inode) = match handle {
            Some(handle) => {
                let open = self.core.opens.lock().get(self.session, handle).ok_or(Errno::EBADF)?;
                if !open.write {
                    return Err(Errno::EINVAL.into());
                }
                (open.file, named_inode(t, open.file)?)
            }
            None => {
                self.require_open_share(None)?;
                let (file, inode) = walk(t, self, at)?.existing()?;
                match inode.kind() {
                    NodeKind::Directory => return Err(Errno::EISDIR.into()),
                    NodeKind::Regular => require(self.who, &inode, WRITE)?,
                    _ => return Err(Errno::EINVAL.into()),
                }
                (file, inode)
            }
        };
        let (data, integrity) = (inode.data(file), inode.integrity());
        let Node::Regular { layout, settled, touched, epoch, recorded, .. } = &mut inode.node else {
            return Err(Errno::EINVAL.into());
        };
        let urgency = self.core.mark(file, *settled);
        // Before a datafile is cut: a record that came back after a crash would call the cut a loss.
        let lowered = recorded.lower(layout, FileOffset(size.0));
        let urgency = if lowered { Urgency::Durable } else { urgency };
        (*settled, *touched, *epoch) = (false, true, epoch.wrapping_add(1));
        let (layout, recorded) = (layout.clone(), recorded.clone());
        let epoch = self.core.epoch(*epoch);
        // A cut that takes away no byte of any datafile leaves their times alone, and is a change all the same.
        (inode.mtime, inode.ctime, inode.mtime_set_at) = (self.now, self.now, self.now);
        if !self.who.is_root() {
            inode.mode = without_set_ids(inode.mode);
        }
        put_inode(t, file, &inode);
        {
            let mut opens = self.core.opens.lock();
            match handle {
                Some(_) => opens.unsure(file),
                // Who wrote before, and has gone when the cut is over, may have written behind it.
                None => {
                    let alone = !self.core.ghosts.lock().haunt(file, self.now);
                    opens.begin_truncation(file, self.session, epoch, alone, self.who.uid);
                }
            }
        }
        let rights =
            Rights::WRITE.and(Rights::LENGTH).and(Rights::SETTLE).and(Rights::of_integrity(integrity));
        let cap = self.grant(data, rights);
        Ok((MetaReply::Truncate { file, layout, cap, epoch, recorded }, urgency))
    }

    /// Takes what a client found out about an unsettled file, if nothing can have changed since it asked. Whether the
    /// client has thereby ended a truncation.
    pub(super) fn settle(
        &self,
        t: &mut dyn Transaction,
        file: FileId,
        told_epoch: u64,
        cap: &Capability,
        found: &Settlement,
    ) -> Outcome<bool> {
        let may_settle = self.holds(cap, file, Rights::LENGTH.and(Rights::SETTLE));
        let (ended, busy) = {
            let mut opens = self.core.opens.lock();
            let cut = opens.end_truncation(file, self.session, told_epoch);
            let busy = opens.is_busy(file) || self.core.ghosts.lock().haunt(file, self.now);
            (cut.is_some(), busy || cut == Some(false))
        };
        // A cut may take longer than its capability holds: it has ended then, and its result is not believed.
        if !may_settle {
            let detail = format!("inode {file}: only a session that may write the file settles its size");
            return if ended { Ok(true) } else { Err(Fault::new(Errno::EACCES, detail)) };
        }
        let Some(mut inode) = inode(t, file)? else { return Ok(ended) };
        // What was found about datafiles that are not the file's any more is not believed.
        let busy = busy || cap.file != inode.data(file);
        let Node::Regular { layout, settled, touched, epoch, recorded, .. } = &mut inode.node else {
            return Ok(ended);
        };
        if *settled || busy || self.core.epoch(*epoch) != told_epoch {
            return Ok(ended);
        }
        // What an SSD alone has, of a datafile that loss of power took from the disk, has bytes and no time.
        let is_there = found.mtime.is_some() || found.size > ByteLen(0);
        (*settled, *touched) = (true, *touched || is_there);
        // A length that was found never lowers a record: only a cut does, and a loss is to be noticed.
        recorded.raise(&found.lens);
        let size = found.size.max(ByteLen(recorded.file_size(layout).0));
        (inode.size, inode.blocks_512) = (size, found.blocks_512);
        if let Some(mtime) = found.mtime.filter(|mtime| *mtime > inode.mtime_set_at) {
            inode.mtime = mtime;
        }
        inode.ctime = later(inode.ctime, found.mtime.filter(|mtime| *mtime <= self.now));
        put_inode(t, file, &inode);
        Ok(ended)
    }
}
