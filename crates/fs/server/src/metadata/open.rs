//! Opening, creating and closing files.

use super::attrs::{blocks_of, later};
use super::compression::datafile_settings;
use super::fault::{Fault, Outcome};
use super::inline::begin_epoch;
use super::op::Op;
use super::opens::{ClosedOpen, LastWriterClose, OpenEntry, Opens, TruncationState};
use super::permit::{EXECUTE, READ, WRITE, allows, owns, require, without_set_ids};
use super::tables::{inode, named_inode, put_inode, row};
use super::walk::{LastComponent, Walked, walk, walk_to_create};
use super::xattr::drop_capabilities;
use weft_core::{ByteLen, FileId, RecordedLens};
use weft_env::mutants::{Mutant, is_seeded};
use weft_store::metadata::{Inode, Node, NodeKind, Snapshot, Table, Transaction, file_key};
use weft_wire::meta::{
    HandleId, InodePath, LayoutSpec, MetaReply, OpenFlags, Opened, ReclaimOpen, Redirected, WriteSummary,
    WrittenLens,
};
use weft_wire::{BoundSession, Capability, Errno, Rights, WriteLimit};

/// A request to open a file.
pub(super) struct OpenRequest<'a> {
    pub at: &'a InodePath,
    pub flags: OpenFlags,
    pub mode: u32,
    pub handle: HandleId,
    pub layout: &'a LayoutSpec,
    pub cache: bool,
    /// Number of processes of the parallel program.
    pub ranks: Option<u32>,
    /// Reason why no file may be created, if there is one.
    pub space: Outcome<()>,
}

impl OpenRequest<'_> {
    /// Whether the request is for a new file without a name in the directory `at` (`O_TMPFILE`). Other opens do not
    /// have these flags together: no open creates a directory or writes to one.
    fn is_unnamed(&self) -> bool {
        let OpenFlags { write, create, directory, .. } = self.flags;
        write && create && directory
    }
}

/// Origin of an open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OpenOrigin {
    /// A new open.
    New,
    /// Opened before the service lost track of it.
    Reclaimed,
    /// Opened by another session that passed it on. Its `O_TRUNC` is done.
    Adopted(BoundSession),
}

/// Durability that a change needs before its reply may be sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Urgency {
    /// May be lost without harm.
    Lazy,
    /// A change of names or attributes: must survive this process, and a loss of power too unless its client ends with
    /// this host.
    Name,
    /// Must survive a loss of power.
    Durable,
}

impl Op<'_> {
    /// Opens a file if that needs no change of the database; else `None`.
    pub(super) fn open_unchanged(
        &self,
        s: &dyn Snapshot,
        request: &OpenRequest<'_>,
    ) -> Outcome<Option<MetaReply>> {
        if request.is_unnamed() {
            return Ok(None);
        }
        let (file, inode) = match self.find(s, request)?.found {
            None => return Ok(None),
            Some(found) => found,
        };
        self.require_openable(&inode, request)?;
        self.require_handle(request.handle, Some(file))?;
        self.require_open_share(Some(request.handle))?;
        if matches!(inode.node, Node::Regular { .. }) && (request.flags.write || request.flags.truncate) {
            return Ok(None);
        }
        let open = self.entry(file, request);
        let opened = self.opened(s, file, &inode, request.handle, open, false, false, true)?;
        // Checked afterwards: a replica that is created later meets this open.
        let mut opens = self.core.opens.lock();
        if opens.is_replicated(file) {
            opens.remove(self.session, request.handle, None);
            return Ok(None);
        }
        Ok(Some(MetaReply::Opened(Box::new(opened))))
    }

    /// Opens a file, and creates it or invalidates its size as needed.
    pub(super) fn open(
        &self,
        t: &mut dyn Transaction,
        request: &OpenRequest<'_>,
    ) -> Outcome<(MetaReply, Urgency)> {
        if request.is_unnamed() {
            return self.open_unnamed(t, request);
        }
        let walked = self.find(t, request)?;
        let open = |file| self.entry(file, request);
        let opened = |s: &dyn Snapshot, file, inode: &Inode, created, truncates, known, is_replica_used| {
            let opened = self.opened(s, file, inode, request.handle, open(file), created, truncates, known);
            opened.map(|opened| MetaReply::Opened(Box::new(Opened { is_replica_used, ..opened })))
        };
        let Some((file, mut inode)) = walked.found.clone() else {
            self.require_handle(request.handle, None)?;
            self.require_open_share(Some(request.handle))?;
            let is_size_valid = !request.flags.write;
            let is_inline = self.is_new_inline(request.layout);
            let (file, inode) =
                self.make_regular(t, &walked, request.mode, request.layout, is_size_valid, is_inline)?;
            if request.flags.write && !is_inline {
                self.reserve_for_new(t, file, &inode)?;
            }
            return Ok((opened(t, file, &inode, true, false, true, false)?, Urgency::Name));
        };
        self.require_openable(&inode, request)?;
        self.require_handle(request.handle, Some(file))?;
        self.require_open_share(Some(request.handle))?;
        if inode.is_inline() {
            return self.open_inline(t, request, (file, inode));
        }
        let changes = request.flags.write || request.flags.truncate;
        let replica = self.begin_use(t, file, (request.handle, changes), request.ranks)?;
        let charged = if changes { self.core.charged(t, file, &inode)? } else { None };
        // After this, the client may write without another message to this service.
        if request.flags.truncate || request.flags.write && !self.caller.is_root() {
            self.drop_privileges(t, file, &mut inode);
        }
        let Inode { size, blocks_512, mtime, ctime, mtime_set_at, node, .. } = &mut inode;
        let Node::Regular { is_size_valid, touched, epoch, recorded, .. } = node else {
            return Ok((opened(t, file, &inode, false, false, true, false)?, Urgency::Lazy));
        };
        let known = *is_size_valid;
        let (mut truncates, mut lowered) = (false, false);
        if request.flags.truncate {
            lowered = !recorded.is_empty();
            *recorded = RecordedLens::NONE;
            truncates = !*is_size_valid || *size > ByteLen(0);
            (*size, *blocks_512) = (ByteLen(0), 0);
            (*mtime, *ctime, *mtime_set_at) = (self.now, self.now, self.now);
            *touched |= truncates;
        }
        if request.flags.write || truncates {
            *is_size_valid = false;
            *epoch = epoch.wrapping_add(1);
        }
        if changes {
            put_inode(t, file, &inode);
            self.core.recharge(t, file, charged, &inode)?;
        }
        let marks = request.flags.write || truncates;
        let urgency = match (marks, changes) {
            (true, _) => self.core.mark_size_invalid(file, known),
            (false, true) => Urgency::Durable,
            (false, false) => Urgency::Lazy,
        };
        // Durable before a datafile is truncated: if the old record came back after a crash, it would report the
        // truncation as lost bytes.
        let urgency = if lowered { Urgency::Durable } else { urgency.max(replica.urgency) };
        Ok((opened(t, file, &inode, false, truncates, known, replica.is_used)?, urgency))
    }

    /// Creates a file without a name in a directory, and opens it.
    fn open_unnamed(
        &self,
        t: &mut dyn Transaction,
        request: &OpenRequest<'_>,
    ) -> Outcome<(MetaReply, Urgency)> {
        let (dir, dir_inode) = walk(t, self, request.at)?.existing()?;
        if !dir_inode.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        request.space.clone()?;
        self.require_handle(request.handle, None)?;
        self.require_open_share(Some(request.handle))?;
        let (file, inode) = self.make_unnamed(t, (dir, dir_inode), request.mode, request.layout)?;
        self.reserve_for_new(t, file, &inode)?;
        let open = self.entry(file, request);
        let opened = self.opened(t, file, &inode, request.handle, open, true, false, true)?;
        Ok((MetaReply::Opened(Box::new(opened)), Urgency::Durable))
    }

    /// Repeats the stored reply of an open, and registers the open again.
    pub(super) fn open_again(
        &self,
        t: &mut dyn Transaction,
        request: &OpenRequest<'_>,
        mut reply: MetaReply,
    ) -> Outcome<MetaReply> {
        let MetaReply::Opened(opened) = &mut reply else { return Ok(reply) };
        let file = opened.attr.file;
        let Some(mut inode) = inode(t, file)? else {
            if request.is_unnamed() {
                // It ended with the session, which has returned without ever learning of it.
                return Ok(self.open_unnamed(t, request)?.0);
            }
            return Err(Errno::ESTALE.into());
        };
        let there = self.core.opens.lock().get(self.session, request.handle).is_some();
        let mut known = false;
        if let Node::Regular { is_size_valid, epoch, is_inline: false, .. } = &mut inode.node
            && request.flags.write
            && !there
        {
            known = *is_size_valid;
            self.core.mark_size_invalid(file, known);
            (*is_size_valid, *epoch) = (false, epoch.wrapping_add(1));
            put_inode(t, file, &inode);
        }
        if opened.must_truncate
            && let Node::Regular { epoch, recorded, is_inline: false, .. } = &mut inode.node
        {
            // A move may have recorded lengths since. Its client now truncates the new datafiles.
            (*recorded, *epoch) = (RecordedLens::NONE, epoch.wrapping_add(1));
            put_inode(t, file, &inode);
        }
        let open = OpenEntry { caching: false, truncate: opened.must_truncate, ..self.entry(file, request) };
        let replica = self.begin_use(t, file, (request.handle, open.changes()), request.ranks)?;
        let limit = self.write_limit(t, file, &inode)?;
        let lost = !known && self.core.unknown_writers.lock().may_truncate(file, self.now);
        let truncations = TruncationState { begins: open.truncate, lost };
        let mut opens = self.core.opens.lock();
        opens.add(self.session, request.handle, open, known, inode.nlink == 0, truncations);
        opens.set_inline(file, inode.is_inline());
        opened.inline_max = self.inline_max_of(&inode);
        opened.may_cache = false;
        opened.cached_elsewhere =
            self.core.is_cautious(self.now) || !opens.caching_elsewhere(file, self.session).is_empty();
        opened.must_recall = self.must_recall(&opens, file, !opened.created);
        opened.cap = opened.cap.map(|cap| self.limited(self.grant(inode.data(file), cap.rights), limit));
        if let Node::Regular { layout, recorded, .. } = &inode.node {
            opened.layout = Some(layout.clone());
            opened.recorded = recorded.clone();
        }
        opened.epoch = self.core.epoch_of(&inode);
        drop(opens);
        opened.is_replica_used = replica.is_used;
        Ok(reply)
    }

    fn find(&self, s: &dyn Snapshot, request: &OpenRequest<'_>) -> Outcome<Walked> {
        let exclusive = request.flags.create && request.flags.exclusive;
        let walked = match request.flags.create {
            true => walk_to_create(s, self, request.at, exclusive)?,
            false => walk(s, self, request.at)?,
        };
        if exclusive && walked.found.is_some() {
            return Err(Errno::EEXIST.into());
        }
        if walked.found.is_none() {
            if !request.flags.create {
                return Err(Errno::ENOENT.into());
            }
            if request.flags.directory {
                return Err(Errno::EINVAL.into());
            }
            debug_assert_eq!(walked.last, LastComponent::Name, "only a name can be missing");
            request.space.clone()?;
        }
        Ok(walked)
    }

    /// Checks that the client's handle is free or has this same file open, which means that the request is repeated. If
    /// a repeated path leads to another file, the client closes the first one, of which it has not heard.
    fn require_handle(&self, handle: HandleId, file: Option<FileId>) -> Outcome<()> {
        match self.core.opens.lock().get(self.session, handle) {
            Some(open) if Some(open.file) != file => {
                let detail = format!("handle {} has inode {} open already", handle.0, open.file);
                Err(Fault::new(Errno::EALREADY, detail))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the user may open or truncate one more file. A repeated open does not count.
    ///
    /// # Errors
    /// `ENFILE`.
    pub(super) fn require_open_share(&self, handle: Option<HandleId>) -> Outcome<()> {
        let Some(bounds) = self.bounds() else { return Ok(()) };
        let (uid, opens) = (self.caller.uid, self.core.opens.lock());
        let held = opens.of_user(uid);
        if held < bounds.opens || handle.is_some_and(|handle| opens.get(self.session, handle).is_some()) {
            return Ok(());
        }
        let detail = format!(
            "user {uid} has {held} files open, of at most {}: close some, or raise user_opens under [limits] in the \
             cluster file and restart the metadata server",
            bounds.opens
        );
        Err(Fault::new(Errno::ENFILE, detail))
    }

    fn require_openable(&self, inode: &Inode, request: &OpenRequest<'_>) -> Outcome<()> {
        let OpenFlags { read, write, create, truncate, directory, .. } = request.flags;
        // Such an open only names the inode (`O_PATH`).
        let only_names = !(read || write || create || truncate);
        match inode.kind() {
            NodeKind::Directory if write || create || truncate => return Err(Errno::EISDIR.into()),
            NodeKind::Directory => {}
            _ if directory => return Err(Errno::ENOTDIR.into()),
            _ if only_names => {}
            NodeKind::Symlink => return Err(Errno::ELOOP.into()),
            NodeKind::Socket | NodeKind::CharDevice | NodeKind::BlockDevice => {
                return Err(Errno::ENXIO.into());
            }
            NodeKind::Regular | NodeKind::Fifo => {}
        }
        let read = if read { self.read_permission(inode, request.flags) } else { 0 };
        require(self.caller, inode, read | if write || truncate { WRITE } else { 0 })
    }

    /// Permission that an open for reading needs. The kernel of a mount reads a program for a user who may only execute it. Of
    /// others the owner alone may do so, who could also permit the reading.
    fn read_permission(&self, inode: &Inode, flags: OpenFlags) -> u32 {
        let executes = flags.execute && inode.kind() == NodeKind::Regular;
        if executes && (self.acts_for_users || owns(self.caller, inode)) { EXECUTE } else { READ }
    }

    /// Limit of a file whose bytes are in the database.
    fn inline_max_of(&self, inode: &Inode) -> Option<ByteLen> {
        inode.is_inline().then_some(self.core.inline_max)
    }

    pub(super) fn entry(&self, file: FileId, request: &OpenRequest<'_>) -> OpenEntry {
        let OpenFlags { read, write, truncate, .. } = request.flags;
        let (uid, caching) = (self.caller.uid, request.cache);
        let job = self.job;
        OpenEntry { file, uid, read, write, readable: read, truncate, caching, job, truncations_before: None }
    }

    #[expect(clippy::too_many_arguments, reason = "what the three ways to an open file know")]
    pub(super) fn opened(
        &self,
        s: &dyn Snapshot,
        file: FileId,
        inode: &Inode,
        handle: HandleId,
        open: OpenEntry,
        created: bool,
        must_truncate: bool,
        size_known: bool,
    ) -> Outcome<Opened> {
        self.opened_as(OpenOrigin::New, s, file, inode, handle, open, created, must_truncate, size_known)
    }

    /// Registers the open and makes its reply. It comes last, because earlier steps may fail.
    #[expect(clippy::too_many_arguments, reason = "what the three ways to an open file know")]
    pub(super) fn opened_as(
        &self,
        origin: OpenOrigin,
        s: &dyn Snapshot,
        file: FileId,
        inode: &Inode,
        handle: HandleId,
        mut open: OpenEntry,
        created: bool,
        must_truncate: bool,
        size_known: bool,
    ) -> Outcome<Opened> {
        let limit = if open.changes() { self.write_limit(s, file, inode)? } else { None };
        let regular = matches!(inode.node, Node::Regular { .. });
        // A reclaimed open may have written before a truncation, even its own, that is no longer known. A known size has no
        // truncation behind it.
        let lost = origin == OpenOrigin::Reclaimed
            || !size_known && self.core.unknown_writers.lock().may_truncate(file, self.now);
        let mut opens = self.core.opens.lock();
        // Soon after a restart, some writers and mounts that keep pages have not reported yet. So no new mount may keep
        // pages, and every writer must report its writes.
        let cautious = self.core.is_cautious(self.now);
        let allowed = match (open.job, origin) {
            // An I/O delegate that has not reported yet may return, but a program from outside may have come first.
            (Some(job), OpenOrigin::Reclaimed) => !opens.is_open_outside(file, job),
            (Some(job), _) => !cautious && !opens.is_open_outside(file, job),
            (None, OpenOrigin::Reclaimed | OpenOrigin::Adopted(_)) if cautious => true,
            (None, OpenOrigin::New) if cautious => false,
            (None, _) => !opens.busy_elsewhere(file, self.session),
        };
        open.caching &= regular && allowed && (open.job.is_none() || allows(self.caller, inode, WRITE));
        open.write &= regular;
        open.readable |= allows(self.caller, inode, READ);
        open.truncate &= must_truncate || origin != OpenOrigin::New;
        let begins = open.truncate && !matches!(origin, OpenOrigin::Adopted(_));
        let truncations = TruncationState { begins, lost };
        opens.add(self.session, handle, open, size_known, inode.nlink == 0, truncations);
        opens.set_inline(file, inode.is_inline());
        let cached_elsewhere =
            open.write && cautious || !opens.caching_elsewhere(file, self.session).is_empty();
        let must_recall = self.must_recall(&opens, file, regular && !created);
        drop(opens);
        let (layout, recorded) = match &inode.node {
            Node::Regular { layout, recorded, .. } => (Some(layout.clone()), recorded.clone()),
            _ => (None, RecordedLens::NONE),
        };
        Ok(Opened {
            attr: self.attr(file, inode),
            cap: layout.is_some().then(|| self.capability(inode, &open, limit)),
            layout,
            created,
            must_truncate,
            cached_elsewhere,
            mapped_elsewhere: false,
            may_cache: open.caching,
            must_recall,
            epoch: self.core.epoch_of(inode),
            recorded,
            is_replica_used: false,
            inline_max: self.inline_max_of(inode),
            bytes: None,
        })
    }

    /// Whether I/O delegates of another job may cache pages of an existing file, known or not reported yet after a
    /// restart.
    fn must_recall(&self, opens: &Opens, file: FileId, has_bytes: bool) -> bool {
        let is_cached =
            || self.core.is_cautious(self.now) || !opens.delegates_of_others(file, self.job).is_empty();
        has_bytes && is_cached()
    }

    /// Issues a capability for the datafiles of an open file, up to the limit of its quotas.
    pub(super) fn capability(
        &self,
        inode: &Inode,
        open: &OpenEntry,
        limit: Option<WriteLimit>,
    ) -> Capability {
        let mut rights = Rights::LENGTH.and(datafile_settings(inode));
        if open.readable {
            rights = rights.and(Rights::READ);
        }
        if open.write || open.truncate {
            rights = rights.and(Rights::WRITE);
        }
        self.limited(self.grant(inode.data(open.file), rights), limit)
    }

    pub(super) fn renew(&self, s: &dyn Snapshot, handle: HandleId) -> Outcome<MetaReply> {
        let open = self.core.opens.lock().get(self.session, handle).ok_or(Errno::EBADF)?;
        // The data of a replica may be dropped while it is open.
        let inode = named_inode(s, open.file)?;
        let data = inode.data(open.file);
        let cap = self.capability(&inode, &open, self.write_limit(s, open.file, &inode)?);
        match inode.node {
            Node::Regular { layout, .. } if data.generation() > 0 => Ok(MetaReply::Relocated { cap, layout }),
            _ => Ok(MetaReply::Capability(cap)),
        }
    }

    /// Registers an open of another session of the same owner, or an open that this session had before the service lost
    /// track of it.
    pub(super) fn adopt(
        &self,
        t: &mut dyn Transaction,
        origin: OpenOrigin,
        open: &ReclaimOpen,
    ) -> Outcome<(MetaReply, Urgency)> {
        let ReclaimOpen { handle, file, flags, caching, .. } = open;
        self.require_handle(*handle, Some(*file))?;
        // An open that existed before that loss is exempt.
        if matches!(origin, OpenOrigin::Adopted(_)) {
            self.require_open_share(Some(*handle))?;
        }
        let may_truncate = self.require_adoptable(t, origin, open)?;
        let mut inode = named_inode(t, *file)?;
        // Its `O_TRUNC` was one transaction.
        let truncations = may_truncate && !inode.is_inline();
        let mut urgency;
        let mut known = true;
        let changes = flags.write || truncations;
        let mut is_replica_used = matches!(open.redirected, Redirected::Yes(_));
        match origin {
            OpenOrigin::Reclaimed => urgency = self.resume_use(t, *file, open.redirected, changes)?,
            OpenOrigin::New | OpenOrigin::Adopted(_) => {
                let replica = self.begin_use(t, *file, (*handle, changes), None)?;
                (is_replica_used, urgency) = (replica.is_used, replica.urgency);
            }
        }
        // Pipes have no bytes here.
        let changes_bytes = changes && inode.kind() == NodeKind::Regular;
        if changes_bytes && !self.caller.is_root() {
            self.drop_privileges(t, *file, &mut inode);
        }
        if inode.is_inline() && changes {
            begin_epoch(&mut inode);
            put_inode(t, *file, &inode);
        } else if let Node::Regular { is_size_valid, epoch, .. } = &mut inode.node
            && changes
        {
            // Its close will summarize all its writes, but another client may have truncated the file meanwhile. So the
            // size stays invalid.
            known = false;
            urgency = urgency.max(self.core.mark_size_invalid(*file, *is_size_valid));
            *is_size_valid = false;
            *epoch = epoch.wrapping_add(1);
            put_inode(t, *file, &inode);
        }
        let entry = OpenEntry {
            file: *file,
            uid: self.caller.uid,
            read: flags.read,
            write: flags.write,
            readable: flags.read,
            truncate: truncations,
            caching: *caching,
            job: self.job,
            truncations_before: None,
        };
        let opened = self.opened_as(origin, t, *file, &inode, *handle, entry, false, false, known)?;
        Ok((MetaReply::Opened(Box::new(Opened { is_replica_used, ..opened })), urgency))
    }

    /// Checks that the caller may have `open` again. Returns whether its `O_TRUNC` may still be in progress.
    ///
    /// A returning session has the file open already, or soon after a start shows the capability it was given. Any
    /// other session must have reached the file, and permissions are checked again. Exceptions are those of the
    /// directories above it and those of an owner, who could grant them.
    fn require_adoptable(&self, s: &dyn Snapshot, origin: OpenOrigin, open: &ReclaimOpen) -> Outcome<bool> {
        let ReclaimOpen { handle, file, flags, proof, cap, .. } = open;
        let rights = |read, write| {
            let read = if read { Rights::READ } else { Rights(0) };
            read.and(if write { Rights::WRITE } else { Rights(0) })
        };
        let session = match origin {
            OpenOrigin::Adopted(parent) => parent,
            OpenOrigin::New | OpenOrigin::Reclaimed => {
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
        let may_write = self.trusted || owns(self.caller, &inode) || allows(self.caller, &inode, WRITE);
        if !self.trusted && !owns(self.caller, &inode) {
            let read = if flags.read { self.read_permission(&inode, *flags) } else { 0 };
            require(self.caller, &inode, read | if flags.write { WRITE } else { 0 })?;
        }
        Ok(flags.truncate && may_write && matches!(inode.node, Node::Regular { .. }))
    }

    /// Closes an open file when that changes the database; see [`super::opens::Opens::close_matters`].
    pub(super) fn close(
        &self,
        t: &mut dyn Transaction,
        handle: HandleId,
        summary: Option<WriteSummary>,
    ) -> Outcome<Option<ClosedOpen>> {
        let reported = summary.as_ref().map(|summary| (summary, self.caller.is_root()));
        let ended = self.core.opens.lock().remove(self.session, handle, reported);
        let Some(ended) = ended else { return Ok(None) };
        let file = ended.open.file;
        let until = self.core.granted_until(self.now);
        if reported.is_none() && self.core.opens.lock().is_replicated(file) {
            self.core.unknown_holders.lock().add(file, ended.open.uid, self.now, until, false);
        }
        if reported.is_none() && ended.open.changes() {
            let uid = ended.open.uid;
            self.core.unknown_writers.lock().add(file, uid, self.now, until, ended.was_truncated);
        }
        if let Some(close) = &ended.last_writer_close {
            self.on_last_writer_close(t, file, close, &ended.written)?;
        }
        if ended.is_orphaned {
            self.end_orphan(t, file)?;
        }
        Ok(Some(ended))
    }

    /// Updates the inode after the last writer has closed the file.
    pub(super) fn on_last_writer_close(
        &self,
        t: &mut dyn Transaction,
        file: FileId,
        close: &LastWriterClose,
        written: &WrittenLens,
    ) -> Outcome<()> {
        let Some(mut inode) = inode(t, file)?.filter(|inode| !inode.is_inline()) else { return Ok(()) };
        let charged = self.core.charged(t, file, &inode)?;
        record(&mut inode, file, written);
        if apply_last_writer_close(&mut inode, close) {
            drop_capabilities(t, file, &mut inode);
        }
        put_inode(t, file, &inode);
        self.core.recharge(t, file, charged, &inode)
    }

    /// Records where synced writes of an open file end, unless a truncation has begun since it was opened.
    pub(super) fn record(
        &self,
        t: &mut dyn Transaction,
        handle: HandleId,
        written: &WrittenLens,
    ) -> Outcome<()> {
        let (open, is_trusted) = {
            let opens = self.core.opens.lock();
            (
                opens.get(self.session, handle).ok_or(Errno::EBADF)?,
                opens.trusts_reported_ends(self.session, handle),
            )
        };
        if !is_trusted {
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
        let inode = named_inode(s, open.file)?;
        let (data, epoch) = (inode.data(open.file), self.core.epoch_of(&inode));
        match inode.node {
            Node::Regular { recorded: lens, .. } => Ok(MetaReply::Recorded { data, epoch, lens }),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// Removes an inode without names that is no longer open.
    pub(super) fn end_orphan(&self, t: &mut dyn Transaction, file: FileId) -> Outcome<()> {
        let key = file_key(file);
        // Since its last close it may have got a name, or may have been opened again by its inode.
        if row::<()>(t, Table::Orphans, &key)?.is_none() || self.core.opens.lock().is_open(file) {
            return Ok(());
        }
        t.delete(Table::Orphans, &key);
        match inode(t, file)? {
            Some(inode) => self.core.destroy(t, file, &inode),
            None => Ok(()),
        }
    }
}

/// Raises recorded lengths, if `written` is about the file's present datafiles. Returns whether one was raised.
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

/// Applies the last-writer close to the inode. If the summaries are incomplete, the size stays invalid, and a new epoch
/// rejects lengths that were collected while the file was written. The same holds for a compressed file that was
/// written, because only its datafiles know the stored bytes. Returns whether the file may have been written.
fn apply_last_writer_close(inode: &mut Inode, close: &LastWriterClose) -> bool {
    let is_compressed = inode.compression().is_some();
    let Node::Regular { is_size_valid, touched, epoch, .. } = &mut inode.node else { return false };
    let reported = match close {
        LastWriterClose::Complete(reported) => reported,
        LastWriterClose::Incomplete(end) => {
            *epoch = epoch.wrapping_add(1);
            // Shown only while a data server cannot be reached.
            inode.size = inode.size.max(*end);
            return true;
        }
    };
    *is_size_valid = !(is_compressed && reported.wrote);
    if !reported.wrote {
        return false;
    }
    *touched = true;
    if is_compressed {
        *epoch = epoch.wrapping_add(1);
    }
    inode.size = if is_seeded(Mutant::ShrinkingSize) { reported.end } else { inode.size.max(reported.end) };
    // The estimate adds the written bytes, up to the length of a file without holes.
    let all = blocks_of(inode.size);
    inode.blocks_512 = inode.blocks_512.saturating_add(blocks_of(reported.bytes)).min(all);
    if let Some(mtime) = reported.mtime.filter(|mtime| *mtime > inode.mtime_set_at) {
        inode.mtime = mtime;
    }
    inode.ctime = later(inode.ctime, reported.mtime);
    if reported.drop_set_ids {
        inode.mode = without_set_ids(inode.mode);
    }
    true
}
