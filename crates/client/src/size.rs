//! The size of a file: cutting it, finding it out from the datafiles, and telling the metadata service.

use crate::call::Effect;
use crate::client::Client;
use crate::control::{Boots, odd_reply};
use crate::error::{Error, Result};
use crate::file::{Patience, moved};
use crate::write::expired;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use weft_core::{ByteLen, FileId, FileOffset};
use weft_env::Env;
use weft_wire::meta::{Attr, HandleId, MetaReply, MetaRequest, NO_EPOCH, Place, Settlement};
use weft_wire::{Capability, Errno};

/// The finding about a file that was just cut to nothing.
const EMPTY: Settlement = Settlement { size: ByteLen(0), blocks_512: 0, mtime: None };

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
        self.0.lock().get(&file).copied().unwrap_or(EMPTY)
    }
}

impl<E: Env> Client<E> {
    /// Cuts or extends a file.
    ///
    /// # Errors
    /// Those of truncate(2).
    pub async fn truncate(&self, at: &Place, size: ByteLen) -> Result<()> {
        self.truncate_by(at.clone(), None, size).await.map(drop).map_err(|error| error.about(&at.path))
    }

    pub(crate) async fn truncate_by(
        &self,
        at: Place,
        handle: Option<HandleId>,
        size: ByteLen,
    ) -> Result<Boots> {
        if size.0 > crate::read::OFFSET_MAX {
            return Err(Error::misuse(Errno::EFBIG, "a length beyond 2^63 - 1"));
        }
        let mut patience = Patience::default();
        loop {
            let request = MetaRequest::Truncate { at: at.clone(), handle };
            let MetaReply::Truncate { file, layout, cap, epoch } = self.call(Effect::Once, request).await?
            else {
                return Err(odd_reply());
            };
            let cut = self.core.cut(cap.file, cap, &layout, FileOffset(size.0)).await;
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

    /// Fills in what only the datafiles know, and tells the metadata service so that the next one need not ask. Where a
    /// data server cannot be asked, size, room and time are the last known ones; `unsettled` stays as a mark of that.
    pub(crate) async fn resolve(&self, mut attr: Attr) -> Result<LastKnown> {
        let mut patience = Patience::default();
        let (unsettled, found) = loop {
            let Some(unsettled) = attr.unsettled.take() else { return Ok(LastKnown { attr, error: None }) };
            match self.core.survey_known(unsettled.cap, &unsettled.layout).await {
                // The file is on its way to another layout: the service knows where it is by now, or will.
                Err(error) if moved(&error) && patience.wait(&self.core.env).await => {
                    let at = Place { base: attr.file, path: Vec::new(), follow: false };
                    match self.call(Effect::Repeatable, MetaRequest::Stat { at }).await? {
                        // The rest is of the moment of the answer that it came with.
                        MetaReply::Attr(Attr { size, blocks_512, mtime, ctime, unsettled, .. }) => {
                            attr = Attr { size, blocks_512, mtime, ctime, unsettled, ..attr };
                        }
                        _ => return Err(odd_reply()),
                    }
                }
                found => break (unsettled, found?),
            }
        };
        let (mut found, error) = found;
        match &error {
            None => self.core.sizes.keep(attr.file, found),
            Some(_) => {
                // Datafiles that answer say how long the file is at least.
                let before = self.core.sizes.last(attr.file);
                let at_least = |a: u64, b: u64, c: u64| a.max(b).max(c);
                found.size = ByteLen(at_least(attr.size.0, found.size.0, before.size.0));
                found.blocks_512 = at_least(attr.blocks_512, found.blocks_512, before.blocks_512);
                found.mtime = found.mtime.max(before.mtime);
            }
        }
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

    async fn settle(&self, file: FileId, epoch: u64, cap: Capability, found: Settlement) -> Result<()> {
        self.core.tell(self.who(), MetaRequest::Settle { file, epoch, cap, found }).await
    }
}
