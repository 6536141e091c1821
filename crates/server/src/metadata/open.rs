//! Opening, making and closing files.

use super::attrs::later;
use super::fault::{Fault, Outcome};
use super::op::Op;
use super::opens::{Cuts, Ended, OpenEntry, Quiet};
use super::permit::{READ, WRITE, allows, owns, require, without_set_ids};
use super::tables::{change_inode, inode, known_inode, named_inode, put_inode, row};
use super::walk::{Last, Walked, walk, walk_to_name};
use weft_core::{ByteLen, FileId, Integrity, RecordedLens};
use weft_env::plants::{Plant, planted};
use weft_store::metadata::{Inode, Node, NodeKind, Snapshot, Table, Transaction, file_key};
use weft_wire::meta::{
    HandleId, LayoutSpec, MetaReply, OpenFlags, Opened, Place, ReclaimOpen, WriteSummary, WrittenLens,
};
use weft_wire::{BoundSession, Capability, Errno, Rights};

/// What an open asks for.
pub(super) struct OpenRequest<'a> {
    pub at: &'a Place,
    pub flags: OpenFlags,
    pub mode: u32,
    pub handle: HandleId,
    pub layout: &'a LayoutSpec,
    pub cache: bool,
    /// Why nothing may be made, if so.
    pub room: Outcome<()>,
}

/// Since when something is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// Now.
    New,
    /// Before the service lost sight of it.
    Before,
    /// Since another session opened it and handed it on: what that open had to cut is cut.
    Shared(BoundSession),
}

/// What must happen before a reply may be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Urgency {
    /// It must survive loss of power.
    Durable,
    /// It need not: what is lost with it does no harm.
    Lazy,
}

impl Op<'_> {
    /// Opens what needs no change of the database; `None` when a change is needed.
    pub(super) fn open_unchanged(
        &self,
        s: &dyn Snapshot,
        ask: &OpenRequest<'_>,
    ) -> Outcome<Option<MetaReply>> {
        let (file, inode) = match self.find(s, ask)?.found {
            None => return Ok(None),
            Some(found) => found,
        };
        self.require_openable(&inode, ask)?;
        self.require_handle(ask.handle, Some(file))?;
        self.require_open_share(Some(ask.handle))?;
        if matches!(inode.node, Node::Regular { .. }) && (ask.flags.write || ask.flags.truncate) {
            return Ok(None);
        }
        let open = self.entry(file, ask);
        Ok(Some(MetaReply::Opened(Box::new(self.opened(file, &inode, ask.handle, open, false, false, true)))))
    }

    /// Opens, making or marking what is to be written.
    pub(super) fn open(
        &self,
        t: &mut dyn Transaction,
        ask: &OpenRequest<'_>,
    ) -> Outcome<(MetaReply, Urgency)> {
        let walked = self.find(t, ask)?;
        let open = |file| self.entry(file, ask);
        let opened = |file, inode: &Inode, created, cut, known| {
            let opened = self.opened(file, inode, ask.handle, open(file), created, cut, known);
            MetaReply::Opened(Box::new(opened))
        };
        let Some((file, mut inode)) = walked.found.clone() else {
            if walked.slash {
                return Err(Errno::EISDIR.into());
            }
            self.require_handle(ask.handle, None)?;
            self.require_open_share(Some(ask.handle))?;
            let settled = !ask.flags.write;
            let (file, inode) = self.make_regular(t, &walked, ask.mode, ask.layout, settled)?;
            return Ok((opened(file, &inode, true, false, true), Urgency::Durable));
        };
        self.require_openable(&inode, ask)?;
        self.require_handle(ask.handle, Some(file))?;
        self.require_open_share(Some(ask.handle))?;
        let privileged = self.who.is_root();
        let Inode { mode, size, blocks_512, mtime, ctime, mtime_set_at, node, .. } = &mut inode;
        let Node::Regular { settled, touched, epoch, recorded, .. } = node else {
            return Ok((opened(file, &inode, false, false, true), Urgency::Lazy));
        };
        let known = *settled;
        let (mut cut, mut lowered) = (false, false);
        if ask.flags.truncate {
            lowered = !recorded.is_empty();
            *recorded = RecordedLens::NONE;
            cut = !*settled || *size > ByteLen(0);
            (*size, *blocks_512) = (ByteLen(0), 0);
            (*mtime, *ctime, *mtime_set_at) = (self.now, self.now, self.now);
            *touched |= cut;
        }
        // From here on the client may write without another word to this service.
        if (ask.flags.write || ask.flags.truncate) && !privileged && without_set_ids(*mode) != *mode {
            *mode = without_set_ids(*mode);
            *ctime = self.now;
        }
        if ask.flags.write || cut {
            *settled = false;
            *epoch = epoch.wrapping_add(1);
        }
        put_inode(t, file, &inode);
        let marks = ask.flags.write || cut;
        let urgency = if marks { self.core.mark(file, known) } else { Urgency::Durable };
        // Before a datafile is cut: a record that came back after a crash would call the cut a loss.
        let urgency = if lowered { Urgency::Durable } else { urgency };
        Ok((opened(file, &inode, false, cut, known), urgency))
    }

    /// Gives the stored reply of an open again: the client has it open then as if for the first time.
    pub(super) fn open_again(
        &self,
        t: &mut dyn Transaction,
        ask: &OpenRequest<'_>,
        mut reply: MetaReply,
    ) -> Outcome<MetaReply> {
        let MetaReply::Opened(opened) = &mut reply else { return Ok(reply) };
        let file = opened.attr.file;
        let Some(mut inode) = inode(t, file)? else { return Err(Errno::ESTALE.into()) };
        let there = self.core.opens.lock().get(self.session, ask.handle).is_some();
        let mut known = false;
        if let Node::Regular { settled, epoch, .. } = &mut inode.node
            && ask.flags.write
            && !there
        {
            known = *settled;
            self.core.mark(file, known);
            (*settled, *epoch) = (false, epoch.wrapping_add(1));
            put_inode(t, file, &inode);
        }
        let open = OpenEntry { caching: false, truncate: opened.must_truncate, ..self.entry(file, ask) };
        let cuts = Cuts { begins: open.truncate, lost: self.core.ghosts.lock().may_cut(file, self.now) };
        let mut opens = self.core.opens.lock();
        opens.add(self.session, ask.handle, open, known, inode.nlink == 0, cuts);
        opened.may_cache = false;
        opened.cached_elsewhere =
            self.core.is_cautious(self.now) || !opens.caching_elsewhere(file, self.session).is_empty();
        opened.cap = opened.cap.map(|cap| self.grant(inode.data(file), cap.rights));
        if let Node::Regular { layout, recorded, .. } = &inode.node {
            opened.layout = Some(layout.clone());
            opened.recorded = recorded.clone();
        }
        opened.epoch = self.core.epoch_of(&inode);
        drop(opens);
        Ok(reply)
    }

    fn find(&self, s: &dyn Snapshot, ask: &OpenRequest<'_>) -> Outcome<Walked> {
        let exclusive = ask.flags.create && ask.flags.exclusive;
        let walked = if exclusive { walk_to_name(s, self, ask.at)? } else { walk(s, self, ask.at)? };
        if exclusive && walked.found.is_some() {
            return Err(Errno::EEXIST.into());
        }
        if walked.found.is_none() {
            if !ask.flags.create {
                return Err(Errno::ENOENT.into());
            }
            if ask.flags.directory {
                return Err(Errno::EINVAL.into());
            }
            debug_assert_eq!(walked.last, Last::Name, "only a name can be missing");
            ask.room.clone()?;
        }
        Ok(walked)
    }

    /// That the client's number is free, or has this file open already (the request is repeated). A path may lead to another
    /// file when it is asked for again: then the client, which has not heard of the first one, gives that up.
    fn require_handle(&self, handle: HandleId, file: Option<FileId>) -> Outcome<()> {
        match self.core.opens.lock().get(self.session, handle) {
            Some(open) if Some(open.file) != file => {
                let detail = format!("handle {} has inode {} open already", handle.0, open.file);
                Err(Fault::new(Errno::EALREADY, detail))
            }
            _ => Ok(()),
        }
    }

    /// That the user may open or cut one file more; the same open again is none.
    ///
    /// # Errors
    /// `ENFILE`.
    pub(super) fn require_open_share(&self, handle: Option<HandleId>) -> Outcome<()> {
        let Some(bounds) = self.bounds() else { return Ok(()) };
        let (uid, opens) = (self.who.uid, self.core.opens.lock());
        let held = opens.of_user(uid);
        if held < bounds.opens || handle.is_some_and(|handle| opens.get(self.session, handle).is_some()) {
            return Ok(());
        }
        let detail = format!(
            "user {uid} has {held} files open, of at most {}: close some, or raise user_opens under [limits] in the cluster \
             file and restart the metadata server",
            bounds.opens
        );
        Err(Fault::new(Errno::ENFILE, detail))
    }

    fn require_openable(&self, inode: &Inode, ask: &OpenRequest<'_>) -> Outcome<()> {
        let OpenFlags { read, write, create, truncate, directory, .. } = ask.flags;
        match inode.kind() {
            NodeKind::Symlink => return Err(Errno::ELOOP.into()),
            NodeKind::Directory if write || create || truncate => return Err(Errno::EISDIR.into()),
            NodeKind::Directory => {}
            _ if directory => return Err(Errno::ENOTDIR.into()),
            NodeKind::Socket | NodeKind::CharDevice | NodeKind::BlockDevice => {
                return Err(Errno::ENXIO.into());
            }
            NodeKind::Regular | NodeKind::Fifo => {}
        }
        let mask = if read { READ } else { 0 } | if write || truncate { WRITE } else { 0 };
        require(self.who, inode, mask)
    }

    fn entry(&self, file: FileId, ask: &OpenRequest<'_>) -> OpenEntry {
        let OpenFlags { read, write, truncate, .. } = ask.flags;
        let (uid, caching) = (self.who.uid, ask.cache);
        OpenEntry { file, uid, read, write, readable: read, truncate, caching, cuts_before: None }
    }

    #[expect(clippy::too_many_arguments, reason = "what the three ways to an open file know")]
    fn opened(
        &self,
        file: FileId,
        inode: &Inode,
        handle: HandleId,
        open: OpenEntry,
        created: bool,
        must_truncate: bool,
        size_known: bool,
    ) -> Opened {
        self.opened_as(Standing::New, file, inode, handle, open, created, must_truncate, size_known)
    }

    /// Registers the open and makes its reply. The last step of an operation: what is before it may fail.
    #[expect(clippy::too_many_arguments, reason = "what the three ways to an open file know")]
    fn opened_as(
        &self,
        standing: Standing,
        file: FileId,
        inode: &Inode,
        handle: HandleId,
        mut open: OpenEntry,
        created: bool,
        must_truncate: bool,
        size_known: bool,
    ) -> Opened {
        let regular = matches!(inode.node, Node::Regular { .. });
        // An open that is told again may have written before a cut, its own among them, that nobody remembers.
        let lost = standing == Standing::Before || self.core.ghosts.lock().may_cut(file, self.now);
        let mut opens = self.core.opens.lock();
        // Soon after a restart a writer or a mount that keeps pages may not have told of itself yet: nobody is allowed
        // to keep pages who did not before, and every writer must tell of its writes.
        let cautious = self.core.is_cautious(self.now);
        let allowed = match standing {
            Standing::Before | Standing::Shared(_) if cautious => true,
            Standing::New if cautious => false,
            _ => !opens.busy_elsewhere(file, self.session),
        };
        open.caching &= regular && allowed;
        open.write &= regular;
        open.readable |= allows(self.who, inode, READ);
        open.truncate &= must_truncate || standing != Standing::New;
        let begins = open.truncate && !matches!(standing, Standing::Shared(_));
        let cuts = Cuts { begins, lost };
        opens.add(self.session, handle, open, size_known, inode.nlink == 0, cuts);
        let cached_elsewhere =
            open.write && cautious || !opens.caching_elsewhere(file, self.session).is_empty();
        drop(opens);
        let (layout, recorded) = match &inode.node {
            Node::Regular { layout, recorded, .. } => (Some(layout.clone()), recorded.clone()),
            _ => (None, RecordedLens::NONE),
        };
        Opened {
            attr: self.attr(file, inode),
            cap: layout.is_some().then(|| self.capability(inode.data(file), inode.integrity(), &open)),
            layout,
            created,
            must_truncate,
            cached_elsewhere,
            may_cache: open.caching,
            epoch: self.core.epoch_of(inode),
            recorded,
        }
    }

    pub(super) fn capability(
        &self,
        data: FileId,
        integrity: Option<Integrity>,
        open: &OpenEntry,
    ) -> Capability {
        let mut rights = Rights::LENGTH.and(Rights::of_integrity(integrity));
        if open.readable {
            rights = rights.and(Rights::READ);
        }
        if open.write || open.truncate {
            rights = rights.and(Rights::WRITE);
        }
        self.grant(data, rights)
    }

    pub(super) fn renew(&self, s: &dyn Snapshot, handle: HandleId) -> Outcome<MetaReply> {
        let open = self.core.opens.lock().get(self.session, handle).ok_or(Errno::EBADF)?;
        let inode = known_inode(s, open.file)?;
        let data = inode.data(open.file);
        let cap = self.capability(data, inode.integrity(), &open);
        match inode.node {
            Node::Regular { layout, .. } if data.generation() > 0 => Ok(MetaReply::Relocated { cap, layout }),
            _ => Ok(MetaReply::Capability(cap)),
        }
    }

    /// Opens what another session of the same owner, or this one before the service lost it, had open.
    pub(super) fn adopt(
        &self,
        t: &mut dyn Transaction,
        standing: Standing,
        open: &ReclaimOpen,
    ) -> Outcome<(MetaReply, Urgency)> {
        let ReclaimOpen { handle, file, flags, caching, .. } = open;
        self.require_handle(*handle, Some(*file))?;
        // What was open before the service was lost sight of goes on.
        if matches!(standing, Standing::Shared(_)) {
            self.require_open_share(Some(*handle))?;
        }
        let cuts = self.require_adoptable(t, standing, open)?;
        let mut inode = named_inode(t, *file)?;
        let mut urgency = Urgency::Lazy;
        let mut known = true;
        let changes = flags.write || cuts;
        if let Node::Regular { settled, epoch, .. } = &mut inode.node
            && changes
        {
            // What it will tell at its close is about all that it ever wrote, and others may have cut the file while it was
            // cut off: the datafiles keep the word.
            known = false;
            urgency = self.core.mark(*file, *settled);
            *settled = false;
            *epoch = epoch.wrapping_add(1);
            if !self.who.is_root() {
                inode.mode = without_set_ids(inode.mode);
            }
            put_inode(t, *file, &inode);
        }
        let entry = OpenEntry {
            file: *file,
            uid: self.who.uid,
            read: flags.read,
            write: flags.write,
            readable: flags.read,
            truncate: cuts,
            caching: *caching,
            cuts_before: None,
        };
        let opened = self.opened_as(standing, *file, &inode, *handle, entry, false, false, known);
        Ok((MetaReply::Opened(Box::new(opened)), urgency))
    }

    /// That the caller may have `open` again, and whether it may be cutting the file at its open still, though perhaps it
    /// never writes.
    ///
    /// A session that comes back has it open still, or shows soon after a start of the service the capability that it was
    /// given. Any other has reached the file, and permission is checked again: not that of the directories above, nor that
    /// of an owner, who could give it to himself.
    fn require_adoptable(&self, s: &dyn Snapshot, standing: Standing, open: &ReclaimOpen) -> Outcome<bool> {
        let ReclaimOpen { handle, file, flags, proof, cap, .. } = open;
        let rights = |read, write| {
            let read = if read { Rights::READ } else { Rights(0) };
            read.and(if write { Rights::WRITE } else { Rights(0) })
        };
        let session = match standing {
            Standing::Shared(parent) => parent,
            Standing::New | Standing::Before => {
                let there = self.core.opens.lock().get(self.session, *handle);
                if let Some(there) = there
                    && (there.read || !flags.read)
                    && (there.write || !flags.write)
                {
                    return Ok(flags.truncate && there.truncate);
                }
                if let Some(cap) = cap
                    && self.core.is_cautious(self.now)
                    && self.holds(cap, *file, rights(flags.read, flags.write))
                {
                    return Ok(flags.truncate && cap.rights.allow(Rights::WRITE));
                }
                self.session
            }
        };
        self.require_reached(session, *file, proof.as_ref())?;
        let inode = named_inode(s, *file)?;
        let may_write = self.trusted || owns(self.who, &inode) || allows(self.who, &inode, WRITE);
        if !self.trusted && !owns(self.who, &inode) {
            let mask = if flags.read { READ } else { 0 } | if flags.write { WRITE } else { 0 };
            require(self.who, &inode, mask)?;
        }
        Ok(flags.truncate && may_write && matches!(inode.node, Node::Regular { .. }))
    }

    /// Ends an open whose end changes the database; see [`super::opens::Opens::close_matters`].
    pub(super) fn close(
        &self,
        t: &mut dyn Transaction,
        handle: HandleId,
        summary: Option<WriteSummary>,
    ) -> Outcome<Option<Ended>> {
        let told = summary.as_ref().map(|summary| (summary, self.who.is_root()));
        let ended = self.core.opens.lock().remove(self.session, handle, told);
        let Some(ended) = ended else { return Ok(None) };
        let file = ended.open.file;
        if told.is_none() && ended.open.changes() {
            self.core.ghosts.lock().lose(file, self.now, self.core.granted_until(self.now), ended.cut);
        }
        if let Some(quiet) = &ended.quiet {
            self.quiet(t, file, quiet, &ended.written)?;
        }
        if ended.forsaken {
            self.end_orphan(t, file)?;
        }
        Ok(Some(ended))
    }

    /// The last writer of a file has gone: its inode knows its size again if all was told.
    pub(super) fn quiet(
        &self,
        t: &mut dyn Transaction,
        file: FileId,
        quiet: &Quiet,
        written: &WrittenLens,
    ) -> Outcome<()> {
        if inode(t, file)?.is_none() {
            return Ok(());
        }
        change_inode(t, file, |inode| {
            record(inode, file, written);
            settle(inode, quiet);
        })?;
        Ok(())
    }

    /// Records where synced writes of an open file end, if nobody has begun to cut the file since it was opened.
    pub(super) fn record(
        &self,
        t: &mut dyn Transaction,
        handle: HandleId,
        written: &WrittenLens,
    ) -> Outcome<()> {
        let (open, believed) = {
            let opens = self.core.opens.lock();
            (opens.get(self.session, handle).ok_or(Errno::EBADF)?, opens.believes(self.session, handle))
        };
        if !believed {
            return Ok(());
        }
        if let Some(mut inode) = inode(t, open.file)?
            && record(&mut inode, open.file, written)
        {
            put_inode(t, open.file, &inode);
        }
        Ok(())
    }

    /// Recorded lengths of the datafiles of an open file.
    pub(super) fn recorded(&self, s: &dyn Snapshot, handle: HandleId) -> Outcome<MetaReply> {
        let open = self.core.opens.lock().get(self.session, handle).ok_or(Errno::EBADF)?;
        let inode = known_inode(s, open.file)?;
        let (data, epoch) = (inode.data(open.file), self.core.epoch_of(&inode));
        match inode.node {
            Node::Regular { recorded: lens, .. } => Ok(MetaReply::Recorded { data, epoch, lens }),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// Ends an inode without names that nobody has open any more.
    pub(super) fn end_orphan(&self, t: &mut dyn Transaction, file: FileId) -> Outcome<()> {
        let key = file_key(file);
        if row::<()>(t, Table::Orphans, &key)?.is_none() {
            return Ok(());
        }
        t.delete(Table::Orphans, &key);
        match inode(t, file)? {
            Some(inode) => self.core.destroy(t, file, &inode),
            None => Ok(()),
        }
    }
}

/// Raises recorded lengths to where writes ended, if that is about the datafiles that the file has. Whether any was raised.
fn record(inode: &mut Inode, file: FileId, written: &WrittenLens) -> bool {
    let data = inode.data(file);
    match &mut inode.node {
        Node::Regular { layout, touched, recorded, .. }
            if data == written.data && written.lens.of(layout).count() > 0 =>
        {
            *touched = true;
            recorded.raise(&written.lens)
        }
        _ => false,
    }
}

/// Takes what the writers told into an inode; without it the datafiles keep the word, under a new epoch so that what
/// anybody measured while they wrote is not believed.
fn settle(inode: &mut Inode, quiet: &Quiet) {
    let Node::Regular { settled, touched, epoch, .. } = &mut inode.node else { return };
    let told = match quiet {
        Quiet::Sure(told) => told,
        Quiet::Unsure(end) => {
            *epoch = epoch.wrapping_add(1);
            // Shown only while a data server cannot be asked.
            inode.size = inode.size.max(*end);
            return;
        }
    };
    *settled = true;
    if !told.wrote {
        return;
    }
    *touched = true;
    inode.size = if planted(Plant::ShrinkingSize) { told.end } else { inode.size.max(told.end) };
    // Room is taken in pages, by what was there and what was written, and a file without holes takes its length.
    let blocks = |bytes: ByteLen| bytes.0.div_ceil(4096).saturating_mul(8);
    inode.blocks_512 = inode.blocks_512.saturating_add(blocks(told.bytes)).min(blocks(inode.size));
    if let Some(mtime) = told.mtime.filter(|mtime| *mtime > inode.mtime_set_at) {
        inode.mtime = mtime;
    }
    inode.ctime = later(inode.ctime, told.mtime);
    if told.drop_set_ids {
        inode.mode = without_set_ids(inode.mode);
    }
}
