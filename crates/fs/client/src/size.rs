//! The size of a file: truncating, computing the size from the datafiles, and validating it at the metadata server.

use crate::backoff::Backoff;
use crate::call::Effect;
use crate::client::Client;
use crate::control::Boots;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::last_sizes::EMPTY;
use crate::session::Session;
use crate::short_datafiles::ShortDatafile;
use weft_core::{ByteLen, FileId, FileOffset, Layout, LocalExtent, RecordedLens};
use weft_env::Env;
use weft_wire::meta::{
    Attr, CollectedSize, HandleId, InodePath, InvalidSize, LayoutSpec, MetaReply, MetaRequest, NO_EPOCH,
    OpenFlags,
};
use weft_wire::{Capability, Errno};

/// Largest offset in a file.
pub(crate) const OFFSET_MAX: u64 = i64::MAX as u64;

/// Most attempts to truncate a file that seems to have lost bytes.
const TRUNCATE_ATTEMPTS_MAX: u32 = 5;

/// Reaction to lost bytes while a file is truncated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LossPolicy {
    /// Fail.
    Fail,
    /// Truncate and leave a hole.
    Accept,
}

/// How long to wait for data servers that know the size of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SizeWait {
    /// As long as for any request: the caller needs the exact size.
    Exact,
    /// Briefly: the caller then uses the last known size.
    LastKnownWillDo,
}

/// Attributes of a file, as far as they are known.
#[derive(Clone, Debug)]
pub struct LastKnown {
    /// The attributes. If `error` is set, size, space and modification time are the last known ones, at least those of
    /// the data servers that answer, and [`Attr::invalid_size`] is set.
    pub attr: Attr,
    /// Reason why a data server with a part of the file could not be asked.
    pub error: Option<Error>,
    /// Device number of the host's file system, which tells inode numbers apart; 0 on Weft.
    pub device: u64,
}

impl LastKnown {
    /// Returns the attributes if all of them are exact.
    ///
    /// # Errors
    /// The reason why they are not.
    pub fn exact(self) -> Result<Attr> {
        self.error.map_or(Ok(self.attr), Err)
    }
}

impl<E: Env> Session<E> {
    pub(crate) async fn attr_reply(
        &self,
        at: &InodePath,
        effect: Effect,
        request: MetaRequest,
        wait: SizeWait,
    ) -> Result<LastKnown> {
        self.leased_attr_reply(at, effect, request, wait).await.map(|(known, _)| known)
    }

    /// Returns the attributes of a reply, and whether the name is leased.
    pub(crate) async fn leased_attr_reply(
        &self,
        at: &InodePath,
        effect: Effect,
        request: MetaRequest,
        wait: SizeWait,
    ) -> Result<(LastKnown, bool)> {
        let (attr, leased) = match self.call_at(at, effect, request).await? {
            MetaReply::Attr(attr) => (attr, false),
            MetaReply::LookedUp { attr, leased } => (attr, leased),
            _ => return Err(Error::unexpected_reply()),
        };
        let mut known = self.resolve(attr, wait).await.map_err(|error| error.about(&at.path))?;
        known.error = known.error.map(|error| error.about(&at.path));
        Ok((known, leased))
    }

    /// Returns the attributes after a change. The change is done even if a data server cannot be asked for the size.
    pub(crate) async fn changed_attr(&self, at: &InodePath, request: MetaRequest) -> Result<Attr> {
        Ok(self.attr_reply(at, Effect::Once, request, SizeWait::LastKnownWillDo).await?.attr)
    }

    /// Truncates or extends a file, by its open `handle` if there is one.
    pub(crate) async fn truncate_by(
        &self,
        at: InodePath,
        handle: Option<HandleId>,
        size: ByteLen,
        on_loss: LossPolicy,
    ) -> Result<Boots> {
        if size.0 > OFFSET_MAX {
            return Err(Error::misuse(Errno::EFBIG, "a length beyond 2^63 - 1"));
        }
        let (mut backoff, mut attempts) = (Backoff::default(), 0);
        loop {
            let request = MetaRequest::Truncate { at: at.clone(), handle, size };
            let (file, layout, cap, epoch, recorded) = match self.call(Effect::Once, request).await? {
                MetaReply::Truncate { file, layout, cap, epoch, recorded } => {
                    (file, layout, cap, epoch, recorded)
                }
                // An inline file.
                MetaReply::Done => return Ok(Boots::new()),
                MetaReply::OpenFirst if handle.is_none() => {
                    return self.open_and_truncate(at, size, on_loss).await;
                }
                _ => return Err(Error::unexpected_reply()),
            };
            // Extending a datafile that has lost bytes would turn them into a hole.
            let short = match on_loss {
                LossPolicy::Fail => self.core.seemingly_short_datafiles(cap, &layout, &recorded).await,
                LossPolicy::Accept => Ok(Vec::new()),
            };
            let is_short = short.as_ref().is_ok_and(|short| !short.is_empty());
            if is_short && attempts < TRUNCATE_ATTEMPTS_MAX && backoff.wait(&self.core.env).await {
                // Another client may have truncated the file in the meantime: then the records are lower by now.
                attempts += 1;
                if handle.is_none() {
                    self.validate_size(file, NO_EPOCH, cap, EMPTY).await?;
                }
                continue;
            }
            let truncated = match short {
                Ok(short) => self.truncate_except(cap, &layout, FileOffset(size.0), &recorded, &short).await,
                Err(error) => Err(error),
            };
            // A move, or the fence of an append, was faster: the metadata server has newer information.
            let overtaken =
                truncated.as_ref().is_err_and(|error| error.is_stale_layout() || error.is_expired());
            if overtaken && backoff.wait(&self.core.env).await {
                if handle.is_none() {
                    self.validate_size(file, NO_EPOCH, cap, EMPTY).await?;
                }
                continue;
            }
            if handle.is_some() {
                // The closes of the writers validate the size, or the next `stat` after them.
                return truncated;
            }
            let found = match (&truncated, size) {
                (Err(_), _) => Err(()),
                (Ok(_), ByteLen(0)) => Ok(EMPTY),
                (Ok(_), _) => self.core.survey(cap, &layout).await.map_err(drop),
            };
            // The metadata server waits for the end of the truncation, and ignores a size from another epoch.
            let (epoch, found) = found.map_or((NO_EPOCH, EMPTY), |found| (epoch, found));
            let validated = self.validate_size(file, epoch, cap, found).await;
            return truncated.and_then(|boots| validated.map(|()| boots));
        }
    }

    /// Truncates or extends a file that must be opened first: I/O delegates of another job cache it, and its open ends that; or
    /// it is inline and has to grow.
    async fn open_and_truncate(&self, at: InodePath, size: ByteLen, on_loss: LossPolicy) -> Result<Boots> {
        let flags = OpenFlags { read: false, write: true, ..OpenFlags::READ };
        let client = Client { session: self.clone() };
        let file = client.open(&at, flags, 0, &LayoutSpec::default()).await?;
        if file.state.replica().is_some() {
            let truncated = Box::pin(file.truncate(size)).await;
            let closed = file.close().await;
            return truncated.and(closed).map(|()| Boots::new());
        }
        let truncated = Box::pin(file.resize(size, on_loss)).await;
        let closed = file.close().await;
        truncated.and_then(|boots| closed.map(|()| boots))
    }

    /// Truncates or extends all datafiles except those in `short`, which stay shorter than `recorded`.
    ///
    /// # Errors
    /// `Missing`, if one of them would have to become longer than it ever was, or would have the last byte: a client
    /// that does not know the record would see the file end earlier.
    async fn truncate_except(
        &self,
        cap: Capability,
        layout: &Layout,
        size: FileOffset,
        recorded: &RecordedLens,
        short: &[ShortDatafile],
    ) -> Result<Boots> {
        let lacks = |short: &&ShortDatafile| short.recorded < layout.local_len(short.object, size);
        let missing = |short: &ShortDatafile| {
            let start = layout.file_pieces(short.object, LocalExtent::new(short.held.0, 1)).next();
            let start = start.map_or(FileOffset::ZERO, |piece| piece.offset);
            self.core.missing(cap.file, layout, start, short)
        };
        let last = size.0.checked_sub(1).map(|last| layout.locate(FileOffset(last)).object);
        if let Some(short) = short.iter().find(|short| Some(short.object) == last) {
            return Err(missing(short));
        }
        match short.iter().find(lacks).map(missing) {
            // Nothing is truncated: the file stays unchanged.
            Some(missing) if size >= recorded.file_size(layout) => Err(missing),
            missing => {
                let boots = self.core.truncate(cap.file, cap, layout, size, short).await?;
                missing.map_or(Ok(boots), Err)
            }
        }
    }

    /// Fills in the attributes that only the datafiles know, and validates them at the metadata server for the next
    /// caller.
    ///
    /// If a data server cannot be asked, size, space and time are the last known ones, and `invalid_size` stays set to
    /// mark that.
    pub(crate) async fn resolve(&self, mut attr: Attr, wait: SizeWait) -> Result<LastKnown> {
        let mut backoff = Backoff::default();
        let (invalid_size, found) = loop {
            let Some(invalid_size) = attr.invalid_size.take() else {
                return Ok(LastKnown { attr, error: None, device: 0 });
            };
            let deadline = match wait {
                SizeWait::Exact => Deadline::of_request(&self.core),
                SizeWait::LastKnownWillDo => Deadline::brief(&self.core),
            };
            match self.core.survey_known(invalid_size.cap, &invalid_size.layout, deadline).await {
                // The file is moving. The metadata server knows its place, or will soon.
                Err(error) if error.is_stale_layout() && backoff.wait(&self.core.env).await => {
                    attr = self.stat_again(attr).await?;
                }
                Ok((mut found, error)) => {
                    let least = ByteLen(invalid_size.recorded.file_size(&invalid_size.layout).0);
                    let is_unknown = invalid_size.recorded.any_unknown();
                    if found.size >= least && !is_unknown || error.is_some() {
                        break (invalid_size, (found, error));
                    }
                    // The end of the file is lost, unless another client truncated the file in the meantime.
                    attr = self.stat_again(attr).await?;
                    if attr.invalid_size.as_ref().is_some_and(|again| again.epoch == invalid_size.epoch) {
                        found.size = found.size.max(least);
                        // Programs that read as many bytes as the file seems to have must not succeed.
                        let missing = is_unknown.then(|| self.unknown_end(&invalid_size, &found));
                        match (missing, wait) {
                            (Some(missing), SizeWait::Exact) => return Err(missing),
                            (missing, _) => break (invalid_size, (found, missing)),
                        }
                    }
                    if !backoff.wait(&self.core.env).await {
                        const WHY: &str = "other clients keep truncating the file: ask for its size later";
                        return Err(Error::misuse(Errno::EIO, WHY));
                    }
                }
                Err(error) => return Err(error),
            }
        };
        let (mut found, error) = found;
        match &error {
            None => self.core.sizes.keep(attr.file, found.clone()),
            Some(_) => {
                // The datafiles that answer give a lower bound of the length.
                let before = self.core.sizes.last(attr.file);
                let at_least = |a: u64, b: u64, c: u64| a.max(b).max(c);
                let recorded = ByteLen(invalid_size.recorded.file_size(&invalid_size.layout).0);
                found.size = ByteLen(at_least(attr.size.0, found.size.0, before.size.0)).max(recorded);
                found.blocks_512 = at_least(attr.blocks_512, found.blocks_512, before.blocks_512);
                found.mtime = found.mtime.max(before.mtime);
            }
        }
        attr.invalid_size = None;
        attr.size = found.size;
        attr.blocks_512 = found.blocks_512;
        if let Some(mtime) = found.mtime.filter(|mtime| *mtime > invalid_size.mtime_set_at) {
            attr.mtime = mtime;
            attr.ctime = attr.ctime.max(mtime);
        }
        if error.is_some() {
            attr.invalid_size = Some(invalid_size);
            return Ok(LastKnown { attr, error, device: 0 });
        }
        if invalid_size.may_validate_size {
            // The answer is correct even if this fails.
            let _ = self.validate_size(attr.file, invalid_size.epoch, invalid_size.cap, found).await;
        }
        Ok(LastKnown { attr, error: None, device: 0 })
    }

    /// Error for the end of a file that lost a datafile of unknown length.
    fn unknown_end(&self, invalid_size: &InvalidSize, found: &CollectedSize) -> Error {
        let layout = &invalid_size.layout;
        let mut lens = invalid_size.recorded.of(layout);
        let (object, target, recorded) =
            lens.find(|(_, _, len)| *len == ByteLen::UNKNOWN).expect("some length is unknown");
        let short = ShortDatafile { object, target, held: found.lens.len_of(layout, object), recorded };
        self.core.missing(invalid_size.cap.file, layout, FileOffset(found.size.0), &short)
    }

    /// Asks again for the attributes that depend on the bytes. The others remain those of the first answer.
    async fn stat_again(&self, attr: Attr) -> Result<Attr> {
        let at = InodePath::at_inode(attr.file, attr.proof);
        match self.call(Effect::Repeatable, MetaRequest::Stat { at }).await? {
            MetaReply::Attr(Attr { size, blocks_512, mtime, ctime, invalid_size, .. }) => {
                Ok(Attr { size, blocks_512, mtime, ctime, invalid_size, ..attr })
            }
            _ => Err(Error::unexpected_reply()),
        }
    }

    async fn validate_size(
        &self,
        file: FileId,
        epoch: u64,
        cap: Capability,
        found: CollectedSize,
    ) -> Result<()> {
        self.core.send_one_way(self.identity(), MetaRequest::ValidateSize { file, epoch, cap, found }).await
    }
}
