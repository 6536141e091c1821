//! The size of a file: cutting it, finding it out from the datafiles, and telling the metadata service.

use crate::call::Effect;
use crate::client::Client;
use crate::control::{Boots, odd_reply};
use crate::error::{Error, Result};
use weft_core::{ByteLen, FileId, FileOffset};
use weft_env::Env;
use weft_wire::meta::{Attr, HandleId, MetaReply, MetaRequest, Place, Settlement};
use weft_wire::{Capability, Errno};

/// The finding about a file that was just cut to nothing.
pub(crate) const EMPTY: Settlement = Settlement { size: ByteLen(0), blocks_512: 0, mtime: None };

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
        match self.call(Effect::Once, MetaRequest::Truncate { at, handle }).await? {
            MetaReply::Truncate { file, layout, cap, epoch } => {
                let cut = self.core.set_lens(file, cap, &layout, FileOffset(size.0)).await;
                if handle.is_some() {
                    // The writers' closes settle the size, or whoever asks after them.
                    return cut;
                }
                let found = match (&cut, size) {
                    (Err(_), _) => Err(()),
                    (Ok(_), ByteLen(0)) => Ok(EMPTY),
                    (Ok(_), _) => self.core.survey(file, cap, &layout).await.map_err(drop),
                };
                // The service waits to hear that the cut is over; it believes no finding under another epoch.
                let (epoch, found) = found.map_or((u64::MAX, EMPTY), |found| (epoch, found));
                let settled = self.settle(file, epoch, cap, found).await;
                cut.and_then(|boots| settled.map(|()| boots))
            }
            _ => Err(odd_reply()),
        }
    }

    /// Fills in what only the datafiles know, and tells the metadata service so that the next one need not ask.
    pub(crate) async fn resolve(&self, mut attr: Attr) -> Result<Attr> {
        let Some(unsettled) = attr.unsettled.take() else { return Ok(attr) };
        let found = self.core.survey(attr.file, unsettled.cap, &unsettled.layout).await?;
        attr.size = found.size;
        attr.blocks_512 = found.blocks_512;
        if let Some(mtime) = found.mtime.filter(|mtime| *mtime > unsettled.mtime_set_at) {
            attr.mtime = mtime;
            attr.ctime = attr.ctime.max(mtime);
        }
        if unsettled.may_settle {
            // The answer is right without it.
            let _ = self.settle(attr.file, unsettled.epoch, unsettled.cap, found).await;
        }
        Ok(attr)
    }

    pub(crate) async fn settle(
        &self,
        file: FileId,
        epoch: u64,
        cap: Capability,
        found: Settlement,
    ) -> Result<()> {
        self.core.tell(self.who(), MetaRequest::Settle { file, epoch, cap, found }).await
    }
}
