//! The size of a file: cutting it, finding it out from the datafiles, and telling the metadata service.

use crate::call::Effect;
use crate::client::Client;
use crate::control::{Boots, odd_reply};
use crate::error::{Error, Result};
use crate::file::{Patience, moved};
use crate::lost::Short;
use crate::write::expired;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use weft_core::{ByteLen, FileId, FileOffset, Layout, LocalExtent, RecordedLens};
use weft_env::Env;
use weft_wire::meta::{Attr, HandleId, MetaReply, MetaRequest, NO_EPOCH, Place, Settlement};
use weft_wire::{Capability, Errno};

/// The finding about a file that was just cut to nothing.
const EMPTY: Settlement =
    Settlement { size: ByteLen(0), blocks_512: 0, mtime: None, lens: RecordedLens::NONE };

/// How often a file is cut anew that seems to have lost bytes.
const TRIES_MAX: u32 = 5;

/// What becomes of a cut of a file that has lost bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loss {
    /// It fails.
    IsError,
    /// It is done, and leaves a hole.
    IsAccepted,
}

/// Attributes as far as they are known.
#[derive(Clone, Debug)]
pub struct LastKnown {
    /// The attributes. With an error, size, room and time of change are the last known ones, at least what the data
    /// servers that answer have, and [`Attr::unsettled`] is set.
    pub attr: Attr,
    /// Why a data server that has a part of the file could not be asked.
    pub error: Option<Error>,
}

impl LastKnown {
    /// The attributes where all of them are known.
    ///
    /// # Errors
    /// Why they are not.
    pub fn exact(self) -> Result<Attr> {
        self.error.map_or(Ok(self.attr), Err)
    }
}

/// Most files whose last found size a client remembers.
const SIZES_MAX: usize = 1024;

/// Sizes of unsettled files as this client found them last: what it shows while a data server cannot be asked.
#[derive(Default)]
pub(crate) struct LastSizes(Mutex<BTreeMap<FileId, Settlement>>);

impl LastSizes {
    fn keep(&self, file: FileId, found: Settlement) {
        let mut sizes = self.0.lock();
        sizes.insert(file, found);
        if sizes.len() > SIZES_MAX {
            // Older files have lower numbers.
            sizes.pop_first();
        }
    }

    fn last(&self, file: FileId) -> Settlement {
        self.0.lock().get(&file).cloned().unwrap_or(EMPTY)
    }
}

impl<E: Env> Client<E> {
    /// Cuts or extends a file.
    ///
    /// # Errors
    /// Those of truncate(2).
    pub async fn truncate(&self, at: &Place, size: ByteLen) -> Result<()> {
        self.truncate_by(at.clone(), None, size, Loss::IsError)
            .await
            .map(drop)
            .map_err(|error| error.about(&at.path))
    }

    /// Gives up the bytes that a file has lost: it gets the length `size`, and a hole where bytes are missing.
    ///
    /// # Errors
    /// Those of truncate(2).
    pub async fn accept_loss(&self, at: &Place, size: ByteLen) -> Result<()> {
        let cut = self.truncate_by(at.clone(), None, size, Loss::IsAccepted).await;
        cut.map(drop).map_err(|error| error.about(&at.path))
    }

    pub(crate) async fn truncate_by(
        &self,
        at: Place,
        handle: Option<HandleId>,
        size: ByteLen,
        loss: Loss,
    ) -> Result<Boots> {
        if size.0 > crate::read::OFFSET_MAX {
            return Err(Error::misuse(Errno::EFBIG, "a length beyond 2^63 - 1"));
        }
        let (mut patience, mut tries) = (Patience::default(), 0);
        loop {
            let request = MetaRequest::Truncate { at: at.clone(), handle, size };
            let MetaReply::Truncate { file, layout, cap, epoch, recorded } =
                self.call(Effect::Once, request).await?
            else {
                return Err(odd_reply());
            };
            // A datafile that has lost bytes must not get its length back: that would be a hole.
            let short = match loss {
                Loss::IsError => self.core.seems_short(cap, &layout, &recorded).await,
                Loss::IsAccepted => Ok(Vec::new()),
            };
            let is_short = short.as_ref().is_ok_and(|short| !short.is_empty());
            if is_short && tries < TRIES_MAX && patience.wait(&self.core.env).await {
                // Somebody else may have cut it meanwhile: then less is recorded by now.
                tries += 1;
                if handle.is_none() {
                    self.settle(file, NO_EPOCH, cap, EMPTY).await?;
                }
                continue;
            }
            let cut = match short {
                Ok(short) => self.cut_but(cap, &layout, FileOffset(size.0), &recorded, &short).await,
                Err(error) => Err(error),
            };
            // Whoever moves the file, or appends after somebody who is late, was faster: the service knows more by now.
            let overtaken = cut.as_ref().is_err_and(|error| moved(error) || expired(error));
            if overtaken && patience.wait(&self.core.env).await {
                if handle.is_none() {
                    self.settle(file, NO_EPOCH, cap, EMPTY).await?;
                }
                continue;
            }
            if handle.is_some() {
                // The writers' closes settle the size, or whoever asks after them.
                return cut;
            }
            let found = match (&cut, size) {
                (Err(_), _) => Err(()),
                (Ok(_), ByteLen(0)) => Ok(EMPTY),
                (Ok(_), _) => self.core.survey(cap, &layout).await.map_err(drop),
            };
            // The service waits to hear that the cut is over; it believes no finding under another epoch.
            let (epoch, found) = found.map_or((NO_EPOCH, EMPTY), |found| (epoch, found));
            let settled = self.settle(file, epoch, cap, found).await;
            return cut.and_then(|boots| settled.map(|()| boots));
        }
    }

    /// Cuts or extends all datafiles but those in `short`, which stay shorter than `recorded`.
    ///
    /// # Errors
    /// `Missing`, when one of them would have to be longer than it ever was.
    async fn cut_but(
        &self,
        cap: Capability,
        layout: &Layout,
        size: FileOffset,
        recorded: &RecordedLens,
        short: &[Short],
    ) -> Result<Boots> {
        let lacks = |short: &&Short| short.recorded < layout.local_len(short.object, size);
        let missing = short.iter().find(lacks).map(|short| {
            let start = layout.file_pieces(short.object, LocalExtent::new(short.held.0, 1)).next();
            let start = start.map_or(FileOffset::ZERO, |piece| piece.offset);
            self.core.missing(cap.file, layout, start, short)
        });
        match missing {
            // Nothing is taken away: the file stays as it is.
            Some(missing) if size >= recorded.file_size(layout) => Err(missing),
            missing => {
                let boots = self.core.cut(cap.file, cap, layout, size, short).await?;
                missing.map_or(Ok(boots), Err)
            }
        }
    }

    /// Fills in what only the datafiles know, and tells the metadata service so that the next one need not ask. Where a
    /// data server cannot be asked, size, room and time are the last known ones; `unsettled` stays as a mark of that.
    pub(crate) async fn resolve(&self, mut attr: Attr) -> Result<LastKnown> {
        let mut patience = Patience::default();
        let (unsettled, found) = loop {
            let Some(unsettled) = attr.unsettled.take() else { return Ok(LastKnown { attr, error: None }) };
            match self.core.survey_known(unsettled.cap, &unsettled.layout).await {
                // The file is on its way to another layout: the service knows where it is by now, or will.
                Err(error) if moved(&error) && patience.wait(&self.core.env).await => {
                    attr = self.stat_again(attr).await?;
                }
                Ok((mut found, error)) => {
                    let least = ByteLen(unsettled.recorded.file_size(&unsettled.layout).0);
                    if found.size >= least || error.is_some() {
                        break (unsettled, (found, error));
                    }
                    // The end of the file is lost, unless it was cut meanwhile.
                    attr = self.stat_again(attr).await?;
                    if attr.unsettled.as_ref().is_some_and(|again| again.epoch == unsettled.epoch) {
                        found.size = least;
                        break (unsettled, (found, None));
                    }
                    if !patience.wait(&self.core.env).await {
                        const WHY: &str = "the file is cut again and again: ask for its size later";
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
                // Datafiles that answer say how long the file is at least.
                let before = self.core.sizes.last(attr.file);
                let at_least = |a: u64, b: u64, c: u64| a.max(b).max(c);
                let recorded = ByteLen(unsettled.recorded.file_size(&unsettled.layout).0);
                found.size = ByteLen(at_least(attr.size.0, found.size.0, before.size.0)).max(recorded);
                found.blocks_512 = at_least(attr.blocks_512, found.blocks_512, before.blocks_512);
                found.mtime = found.mtime.max(before.mtime);
            }
        }
        attr.unsettled = None;
        attr.size = found.size;
        attr.blocks_512 = found.blocks_512;
        if let Some(mtime) = found.mtime.filter(|mtime| *mtime > unsettled.mtime_set_at) {
            attr.mtime = mtime;
            attr.ctime = attr.ctime.max(mtime);
        }
        if error.is_some() {
            attr.unsettled = Some(unsettled);
            return Ok(LastKnown { attr, error });
        }
        if unsettled.may_settle {
            // The answer is right without it.
            let _ = self.settle(attr.file, unsettled.epoch, unsettled.cap, found).await;
        }
        Ok(LastKnown { attr, error: None })
    }

    /// Asks for those attributes again that change with the bytes. The rest is of the moment of the first answer.
    async fn stat_again(&self, attr: Attr) -> Result<Attr> {
        let at = Place::at_inode(attr.file, attr.proof);
        match self.call(Effect::Repeatable, MetaRequest::Stat { at }).await? {
            MetaReply::Attr(Attr { size, blocks_512, mtime, ctime, unsettled, .. }) => {
                Ok(Attr { size, blocks_512, mtime, ctime, unsettled, ..attr })
            }
            _ => Err(odd_reply()),
        }
    }

    async fn settle(&self, file: FileId, epoch: u64, cap: Capability, found: Settlement) -> Result<()> {
        self.core.tell(self.who(), MetaRequest::Settle { file, epoch, cap, found }).await
    }
}
