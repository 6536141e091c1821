//! Small files, whose bytes are in the database: reads, writes, and growth beyond the limit.
//!
//! | state | bytes | size | requests of a client |
//! | --- | --- | --- | --- |
//! | inline | table `inline` | in the inode, always valid | `ReadInline`, `WriteInline`, `Truncate` |
//! | being copied | table `inline` | in the inode | the same; writes wait, and a truncation ends the copy |
//! | grown | datafiles | as of any file | `EREMCHG` to the above, after which the client renews its capability |
//!
//! A file never becomes inline again. It grows like a file that moves:
//!
//! ```text
//! client                          metadata service
//! Grow ─────────────────────────▶ next generation of datafiles; writes of others wait
//!      ◀───────────────────────── bytes, layout, capability for this generation
//! writes the bytes, and syncs them if the file was synced
//! Grown ────────────────────────▶ one transaction: generation in use, row of bytes removed
//! ```
//!
//! If the client dies or is slow, another one begins again with the next generation, so delayed writes of the first one reach
//! datafiles that are never used. An empty file needs no copy, and `Grow` does all.
//!
//! # After a loss of power
//!
//! The reply to a change leaves before its sync if the client ends with this host. Then the change may be undone, but datafiles
//! on other hosts stay. A generation that was used must not be used again, because its datafiles may have bytes:
//!
//! | generation | when it is used | durable before its use |
//! | --- | --- | --- |
//! | 1 | by the first growth of a file that this start of the service created | as its client needs |
//! | 2 | by the first growth of an older file: generation 1 may have been used, and forgotten | always |
//! | later ones | when a copy was not completed | always |

use super::Service;
use super::attrs::blocks_of;
use super::compression::datafile_settings;
use super::fault::{Fault, Outcome};
use super::op::{Core, Op};
use super::open::{OpenRequest, Urgency};
use super::opens::{Mark, OpenEntry};
use super::serve::Call;
use super::tables::{named_inode, put_inode, put_row, row};
use std::collections::BTreeMap;
use weft_core::{ByteLen, FileId, FileOffset, Layout, Nanos};
use weft_env::mutants::{Mutant, is_seeded};
use weft_env::{Env, Notify};
use weft_store::metadata::{
    Engine, InlineRow, Inode, Node, Point, ReapRow, Snapshot, Table, Transaction, file_key,
};
use weft_wire::meta::{GROWTH_WAIT, Growing, HandleId, LayoutSpec, MetaReply, OpenFlags, WrittenLens};
use weft_wire::{BoundSession, Errno, Rights};

/// Inline files that clients copy to datafiles.
#[derive(Default, Debug)]
pub(super) struct Growths {
    by_file: BTreeMap<FileId, Growth>,
    /// Whether a copy has ended that others may wait for.
    has_ended: bool,
}

/// Changes of inline files that a loss of power could undo. Clients on other hosts must not see them.
#[derive(Default, Debug)]
pub(super) struct UnsyncedBytes(BTreeMap<FileId, UnsyncedFile>);

#[derive(Clone, Copy, Default, Debug)]
struct UnsyncedFile {
    /// Number of changes that have not been answered.
    in_progress: u32,
    /// Point of the latest answered change.
    written: Option<Point>,
}

impl UnsyncedBytes {
    fn begin(&mut self, file: FileId) {
        self.0.entry(file).or_default().in_progress += 1;
    }

    /// Ends a change that did not happen.
    pub(super) fn refused(&mut self, file: FileId) {
        if let Some(entry) = self.0.get_mut(&file) {
            entry.in_progress -= 1;
            if entry.in_progress == 0 && entry.written.is_none() {
                self.0.remove(&file);
            }
        }
    }

    /// Ends a change that happened at `point`. Forgets what is durable with `durable`: this change, or if there are many, all.
    pub(super) fn written(&mut self, file: FileId, point: Point, durable: Point) {
        const KEPT_MAX: usize = 4096;
        if let Some(entry) = self.0.get_mut(&file) {
            entry.in_progress -= 1;
            entry.written = entry.written.max(Some(point));
        }
        let is_kept = |entry: &UnsyncedFile| entry.in_progress > 0 || entry.written > Some(durable);
        if self.0.get(&file).is_some_and(|entry| !is_kept(entry)) {
            self.0.remove(&file);
        }
        if self.0.len() >= KEPT_MAX {
            self.0.retain(|_, entry| is_kept(entry));
        }
    }

    /// Whether all changes of the file survive a loss of power, given that all changes up to `durable` do.
    pub(super) fn are_durable(&self, file: FileId, durable: Point) -> bool {
        self.0.get(&file).is_none_or(|entry| entry.in_progress == 0 && entry.written <= Some(durable))
    }
}

/// A copy in progress.
#[derive(Clone, Copy, Debug)]
struct Growth {
    session: BoundSession,
    handle: HandleId,
    /// Datafiles of the copy.
    data: FileId,
    /// Time after which others need not wait for it.
    until: Nanos,
    /// Whether the client was asked to sync the copy.
    must_sync: bool,
}

impl Growths {
    /// Ends the copies of a session, or of one of its open files. Returns whether there were any.
    pub(super) fn closed(&mut self, session: BoundSession, handle: Option<HandleId>) -> bool {
        let before = self.by_file.len();
        self.by_file.retain(|_, growth| {
            growth.session != session || handle.is_some_and(|handle| growth.handle != handle)
        });
        self.by_file.len() < before
    }

    /// Fails while a client other than `own` copies the file.
    fn require_none_but(&self, file: FileId, own: (BoundSession, HandleId), now: Nanos) -> Outcome<()> {
        match self.by_file.get(&file) {
            Some(growth) if (growth.session, growth.handle) != own && growth.until > now => {
                Err(Fault::Growing(growth.until))
            }
            _ => Ok(()),
        }
    }

    /// Whether a client copies the file.
    pub(super) fn is_growing(&self, file: FileId) -> bool {
        self.by_file.contains_key(&file)
    }

    /// Ends the copy of a file that changes: it is no longer complete.
    fn end(&mut self, file: FileId) {
        self.has_ended |= self.by_file.remove(&file).is_some();
    }

    /// Whether a copy has ended since the last call.
    pub(super) fn take_ended(&mut self) -> bool {
        std::mem::take(&mut self.has_ended)
    }
}

/// Bytes of an inline file.
///
/// # Errors
/// `EIO` if they are lost.
pub(super) fn bytes_of(s: &dyn Snapshot, file: FileId, inode: &Inode) -> Outcome<Vec<u8>> {
    let bytes = row::<InlineRow>(s, Table::Inline, &file_key(file))?.unwrap_or_default().bytes;
    let held = ByteLen(bytes.len() as u64);
    if held != inode.size {
        return Err(Fault::new(Errno::EIO, lost_bytes(file, inode.size, held, "run `weft fsck`")));
    }
    Ok(bytes)
}

/// Says that the database lacks bytes of an inline file.
pub(super) fn lost_bytes(file: FileId, size: ByteLen, held: ByteLen, remedy: &str) -> String {
    format!("inode {file} has {size} bytes, of which the metadata hold {held}: {remedy}")
}

fn put_bytes(t: &mut dyn Transaction, file: FileId, bytes: Vec<u8>) {
    match bytes.is_empty() {
        true => t.delete(Table::Inline, &file_key(file)),
        false => put_row(t, Table::Inline, &file_key(file), &InlineRow { bytes }),
    }
}

fn set_size(inode: &mut Inode, size: usize) {
    inode.size = ByteLen(size as u64);
    inode.blocks_512 = blocks_of(inode.size);
}

fn grown() -> Fault {
    Fault::new(Errno::EREMCHG, "the file has datafiles now")
}

impl Core {
    /// Schedules the removal of datafiles that an unfinished copy of an inline file may have. The caller stores the inode.
    pub(super) fn forget_copy(
        &self,
        t: &mut dyn Transaction,
        file: FileId,
        inode: &mut Inode,
    ) -> Outcome<()> {
        self.growths.lock().end(file);
        let Some((copy, layout)) = inode.unfinished_copy(file) else { return Ok(()) };
        // The row of datafiles to remove releases space, and the file keeps its own.
        self.reservations.reserve_beyond(t, layout)?;
        put_row(t, Table::Reap, &file_key(copy), &ReapRow { layout: layout.clone() });
        self.count_reap_row();
        if let Node::Regular { touched, .. } = &mut inode.node {
            *touched = false;
        }
        Ok(())
    }
}

/// Begins a new epoch of a file that is opened for writing or truncated.
pub(super) fn begin_epoch(inode: &mut Inode) {
    if let Node::Regular { epoch, .. } = &mut inode.node {
        *epoch = epoch.wrapping_add(1);
    }
}

impl Op<'_> {
    /// Records that this request changes the bytes of an inline file. Clients on other hosts see them when they are durable.
    fn note_bytes(&self, file: FileId) {
        self.core.unsynced_bytes.lock().begin(file);
        self.changed_bytes.set(Some(file));
    }

    /// Whether the bytes of a new file are in the database at first. Those of a file for which a layout is requested, or whose
    /// bytes go to I/O delegates, would not stay there.
    pub(super) fn is_new_inline(&self, layout: &LayoutSpec) -> bool {
        self.core.inline_max > ByteLen(0) && self.job.is_none() && *layout == LayoutSpec::default()
    }

    /// Changes the layout that an inline file will grow to. The caller stores the inode.
    pub(super) fn set_inline_layout(
        &self,
        t: &mut dyn Transaction,
        file: FileId,
        inode: &mut Inode,
        to: Layout,
    ) -> Outcome<()> {
        self.core.forget_copy(t, file, inode)?;
        let Node::Regular { layout, .. } = &mut inode.node else { return Err(Errno::EINVAL.into()) };
        self.core.reservations.release(t, layout)?;
        *layout = to;
        self.core.reservations.reserve(t, layout)
    }

    /// Truncates or extends an inline file, at most to the limit. The caller stores the inode.
    fn resize_inline(
        &self,
        t: &mut dyn Transaction,
        file: FileId,
        inode: &mut Inode,
        size: ByteLen,
    ) -> Outcome<()> {
        self.note_bytes(file);
        self.core.growths.lock().end(file);
        if inode.size != size {
            // A file that has lost its bytes can still be emptied.
            let mut bytes = if size == ByteLen(0) { Vec::new() } else { bytes_of(t, file, inode)? };
            bytes.resize(size.0 as usize, 0);
            set_size(inode, bytes.len());
            put_bytes(t, file, bytes);
        }
        (inode.mtime, inode.ctime, inode.mtime_set_at) = (self.now, self.now, self.now);
        Ok(())
    }

    /// Opens an inline file that exists; `O_TRUNC` needs no further message.
    pub(super) fn open_inline(
        &self,
        t: &mut dyn Transaction,
        request: &OpenRequest<'_>,
        (file, mut inode): (FileId, Inode),
    ) -> Outcome<(MetaReply, Urgency)> {
        let OpenFlags { write, truncate, .. } = request.flags;
        let mut urgency = Urgency::Lazy;
        if write || truncate {
            let charged = self.core.charged(t, file, &inode)?;
            if truncate {
                self.require_no_byte_lease(file, None)?;
                self.resize_inline(t, file, &mut inode, ByteLen(0))?;
                urgency = Urgency::Name;
            }
            if truncate || !self.caller.is_root() {
                self.drop_privileges(t, file, &mut inode);
            }
            begin_epoch(&mut inode);
            put_inode(t, file, &inode);
            self.core.recharge(t, file, charged, &inode)?;
        }
        let open = self.entry(file, request);
        let opened = self.opened(t, file, &inode, request.handle, open, false, false, true)?;
        Ok((MetaReply::Opened(Box::new(opened)), urgency))
    }

    /// Truncates or extends an inline file. A file that becomes too large must be opened, and grow, first.
    pub(super) fn truncate_inline(
        &self,
        t: &mut dyn Transaction,
        (file, mut inode): (FileId, Inode),
        handle: Option<HandleId>,
        (size, has_space): (ByteLen, bool),
    ) -> Outcome<(MetaReply, Urgency)> {
        let size_max = if has_space { self.core.inline_max.max(inode.size) } else { inode.size };
        if size > size_max {
            return match handle {
                Some(_) => Err(Errno::EFBIG.into()),
                None => Ok((MetaReply::OpenFirst, Urgency::Lazy)),
            };
        }
        self.require_no_byte_lease(file, handle)?;
        // The charge is as durable as the size.
        self.reserve_for_len(t, file, &inode, size)?;
        let charged = self.core.charged(t, file, &inode)?;
        self.resize_inline(t, file, &mut inode, size)?;
        self.drop_privileges(t, file, &mut inode);
        begin_epoch(&mut inode);
        put_inode(t, file, &inode);
        self.core.recharge(t, file, charged, &inode)?;
        Ok((MetaReply::Done, Urgency::Name))
    }

    /// The inline file of a handle, if that is open for this purpose.
    ///
    /// # Errors
    /// `EBADF`; `EREMCHG` if the file has datafiles.
    fn inline_file(
        &self,
        s: &dyn Snapshot,
        handle: HandleId,
        allows: impl Fn(&OpenEntry) -> bool,
    ) -> Outcome<(FileId, Inode)> {
        let open = self.core.opens.lock().get(self.session, handle).filter(allows).ok_or(Errno::EBADF)?;
        let inode = named_inode(s, open.file)?;
        if inode.is_inline() { Ok((open.file, inode)) } else { Err(grown()) }
    }

    fn read_inline(
        &self,
        s: &dyn Snapshot,
        handle: HandleId,
        offset: FileOffset,
        len: ByteLen,
    ) -> Outcome<(FileId, MetaReply)> {
        // Anybody who has it open may ask for the size.
        let (file, inode) = self.inline_file(s, handle, |open| open.read || len == ByteLen(0))?;
        let mut bytes = Vec::new();
        if len > ByteLen(0) {
            bytes = bytes_of(s, file, &inode)?;
            bytes.truncate(offset.0.saturating_add(len.0).min(bytes.len() as u64) as usize);
            bytes.drain(..offset.0.min(bytes.len() as u64) as usize);
        }
        Ok((file, MetaReply::InlineBytes { size: inode.size, bytes }))
    }

    /// Writes to an inline file, at its end if there is no `offset`.
    fn write_inline(
        &self,
        t: &mut dyn Transaction,
        handle: HandleId,
        offset: Option<FileOffset>,
        written: &[u8],
        has_space: bool,
    ) -> Outcome<(MetaReply, Urgency)> {
        let (file, mut inode) = self.inline_file(t, handle, |open| open.write)?;
        self.require_no_byte_lease(file, Some(handle))?;
        // A copy in progress lacks these bytes. It ends if it takes too long.
        {
            let mut growths = self.core.growths.lock();
            growths.require_none_but(file, (self.session, handle), self.clock)?;
            growths.end(file);
        }
        let offset = offset.unwrap_or(FileOffset(inode.size.0));
        let end = offset.0.checked_add(written.len() as u64).ok_or(Errno::EFBIG)?;
        // On a full device the file grows, and its bytes go to the targets.
        if end > self.core.inline_max.0 || !has_space {
            return Err(Errno::EFBIG.into());
        }
        // The charge is as durable as the bytes.
        self.reserve_for_len(t, file, &inode, ByteLen(end))?;
        let charged = self.core.charged(t, file, &inode)?;
        self.note_bytes(file);
        let mut bytes = bytes_of(t, file, &inode)?;
        let (from, to) = (offset.0 as usize, end as usize);
        if bytes.len() < to {
            bytes.resize(to, 0);
        }
        bytes[from..to].copy_from_slice(written);
        set_size(&mut inode, bytes.len());
        put_bytes(t, file, bytes);
        (inode.mtime, inode.ctime) = (self.now, self.now);
        self.drop_privileges(t, file, &mut inode);
        put_inode(t, file, &inode);
        self.core.recharge(t, file, charged, &inode)?;
        Ok((MetaReply::InlineWritten { offset }, Urgency::Name))
    }

    /// Begins to give a file datafiles; an empty one has them at once. `durable` is the point up to which all changes survive a
    /// loss of power.
    fn grow(
        &self,
        t: &mut dyn Transaction,
        handle: HandleId,
        durable: Point,
    ) -> Outcome<(MetaReply, Urgency)> {
        let (file, mut inode) = self.inline_file(t, handle, |open| open.write)?;
        self.core.growths.lock().require_none_but(file, (self.session, handle), self.clock)?;
        let (data, urgency) = self.next_generation(t, file, &mut inode)?;
        if inode.size == ByteLen(0) {
            return Ok((self.switch(t, (file, inode), handle, None)?, urgency));
        }
        let Node::Regular { layout, touched, .. } = &mut inode.node else { return Err(Errno::EINVAL.into()) };
        *touched = true;
        let layout = layout.clone();
        put_inode(t, file, &inode);
        let until = self.clock.saturating_add(GROWTH_WAIT);
        let must_sync = self.must_sync_copy(file, handle, durable);
        let growth = Growth { session: self.session, handle, data, until, must_sync };
        self.core.growths.lock().by_file.insert(file, growth);
        let rights = Rights::WRITE.and(Rights::LENGTH).and(datafile_settings(&inode));
        let bytes = bytes_of(t, file, &inode)?;
        let growing = Growing { cap: self.grant(data, rights), layout, bytes, must_sync };
        Ok((MetaReply::Growing(Box::new(growing)), urgency))
    }

    /// Whether a copy of the file must survive a loss of power before it is used, because its bytes may. They do not while the
    /// creation of the file is not durable: then nobody has synced them, and no client on another host has seen them. Other open
    /// files could not tell at their sync that a data server lost the copy.
    fn must_sync_copy(&self, file: FileId, handle: HandleId, durable: Point) -> bool {
        let opens = self.core.opens.lock();
        let is_new = matches!(opens.mark_of(file), Some(Mark::Written(created)) if created > durable);
        !is_new || opens.is_open_except(file, (self.session, handle))
    }

    /// Ends the growth of a file whose bytes the client has copied.
    fn grown(
        &self,
        t: &mut dyn Transaction,
        handle: HandleId,
        copied: &WrittenLens,
        durable: Point,
    ) -> Outcome<(MetaReply, Urgency)> {
        let (file, inode) = self.inline_file(t, handle, |open| open.write)?;
        // A sync may have come meanwhile.
        let must_sync = self.must_sync_copy(file, handle, durable);
        let is_present = |growth: &Growth| {
            (growth.session, growth.handle, growth.data) == (self.session, handle, copied.data)
                && (growth.must_sync || !must_sync)
        };
        if !self.core.growths.lock().by_file.get(&file).is_some_and(is_present) {
            return Err(Fault::new(Errno::ESTALE, "the file has changed since its bytes were copied"));
        }
        self.require_no_byte_lease(file, Some(handle))?;
        Ok((self.switch(t, (file, inode), handle, Some(copied))?, Urgency::Name))
    }

    /// Gives the file the next generation of datafiles, and returns how durable that must be before the reply; see the module.
    fn next_generation(
        &self,
        t: &mut dyn Transaction,
        file: FileId,
        inode: &mut Inode,
    ) -> Outcome<(FileId, Urgency)> {
        self.core.forget_copy(t, file, inode)?;
        let is_new = file >= self.core.first_of_start;
        let Node::Regular { generations, .. } = &mut inode.node else { return Err(Errno::EINVAL.into()) };
        let (step, urgency) = match generations.last {
            0 if is_new => (1, Urgency::Name),
            0 if is_seeded(Mutant::ReusedCopy) => (1, Urgency::Name),
            0 => (2, Urgency::Durable),
            _ => (1, Urgency::Durable),
        };
        const OFTEN: &str = "the file began to grow too often: copy it to a new one";
        let last = generations.last.checked_add(step).ok_or_else(|| Fault::new(Errno::EMLINK, OFTEN))?;
        generations.last = last;
        Ok((file.of_generation(last), urgency))
    }

    /// Uses the latest datafiles of the file, and removes its bytes from the database.
    fn switch(
        &self,
        t: &mut dyn Transaction,
        (file, mut inode): (FileId, Inode),
        handle: HandleId,
        copied: Option<&WrittenLens>,
    ) -> Outcome<MetaReply> {
        let Node::Regular { is_size_valid, epoch, generations, recorded, is_inline, .. } = &mut inode.node
        else {
            return Err(Errno::EINVAL.into());
        };
        generations.now = generations.last;
        // The caller has the file open for writing.
        (*is_inline, *is_size_valid, *epoch) = (false, false, epoch.wrapping_add(1));
        if let Some(copied) = copied {
            recorded.raise(&copied.lens);
        }
        if !is_seeded(Mutant::BytesInTwoPlaces) {
            put_bytes(t, file, Vec::new());
        }
        put_inode(t, file, &inode);
        self.core.growths.lock().end(file);
        let mut opens = self.core.opens.lock();
        opens.set_inline(file, false);
        // Until the switch is as durable as its readers need.
        opens.await_durability(file);
        drop(opens);
        self.renew(t, handle)
    }
}

impl<E: Env> Service<E> {
    pub(super) async fn write_inline(
        &self,
        call: &Call<'_>,
        handle: HandleId,
        offset: Option<FileOffset>,
        bytes: &[u8],
    ) -> Outcome<MetaReply> {
        let has_space = !self.journal.is_low();
        self.when_not_held(async || {
            let write =
                |t: &mut dyn Transaction, op: &Op<'_>| op.write_inline(t, handle, offset, bytes, has_space);
            self.change_once(call, write, |_, _, reply| Ok(reply)).await
        })
        .await
    }

    pub(super) async fn read_inline(
        &self,
        call: &Call<'_>,
        handle: HandleId,
        offset: FileOffset,
        len: ByteLen,
    ) -> Outcome<MetaReply> {
        let (file, reply) = self.read(call, |s, op| op.read_inline(s, handle, offset, len))?;
        self.wait_for_seen(call, [file]).await?;
        Ok(reply)
    }

    pub(super) async fn grow(&self, call: &Call<'_>, handle: HandleId) -> Outcome<MetaReply> {
        let reply = self
            .when_not_held(async || {
                self.commit(call, |t, op| op.grow(t, handle, self.journal.durable_point())).await
            })
            .await?;
        if matches!(reply, MetaReply::Relocated { .. }) {
            self.note_switch(call, handle).await?;
        }
        Ok(reply)
    }

    pub(super) async fn grown(
        &self,
        call: &Call<'_>,
        handle: HandleId,
        copied: &WrittenLens,
    ) -> Outcome<MetaReply> {
        let grown =
            |t: &mut dyn Transaction, op: &Op<'_>| op.grown(t, handle, copied, self.journal.durable_point());
        let reply = self.when_not_held(async || self.commit(call, grown).await).await?;
        self.note_switch(call, handle).await?;
        Ok(reply)
    }

    /// Records how durable the switch of an open file to its datafiles is, and wakes clients that wait for its end.
    async fn note_switch(&self, call: &Call<'_>, handle: HandleId) -> Outcome<()> {
        self.hold_ended.notify_all();
        let open = self.core.opens.lock().get(call.ctx.session, handle);
        match open {
            Some(open) => self.wait_for_mark(call, open.file, true).await,
            None => Ok(()),
        }
    }

    /// Ends copies of a session or of one of its open files.
    pub(super) fn end_growths(&self, session: BoundSession, handle: Option<HandleId>) {
        if self.core.growths.lock().closed(session, handle) {
            self.hold_ended.notify_all();
        }
    }

    /// Runs a change of an inline file, again whenever it has met a copy by another client, or a lease of the bytes.
    pub(super) async fn when_not_held(
        &self,
        change: impl AsyncFn() -> Outcome<MetaReply>,
    ) -> Outcome<MetaReply> {
        loop {
            let epoch = self.hold_ended.epoch();
            let until = match change().await {
                Err(Fault::Growing(until)) if !self.is_stopping() => until,
                // Not even a stop of the service ends this short wait, because programs do not expect its error.
                Err(Fault::Leased(until)) => until,
                reply => return reply,
            };
            let left = until.saturating_sub(self.env.now());
            self.hold_ended.wait(epoch, Some(left)).await;
        }
    }
}
