//! Lost bytes: datafiles that are missing, or were truncated outside of Weft.

use crate::backoff::Backoff;
use crate::call::Effect;
use crate::error::{Error, Result};
use crate::file::{LayoutVersion, State};
use crate::short_datafiles::{ShortDatafile, find_short};
use weft_core::{FileOffset, LocalExtent, ObjectId, RecordedLens, TargetId};
use weft_env::Env;
use weft_wire::Errno;
use weft_wire::meta::{HandleId, MetaReply, MetaRequest};

impl<E: Env> State<E> {
    /// Checks datafiles with a record before their first write: writing to a datafile that has lost bytes would turn
    /// them into a hole.
    ///
    /// # Errors
    /// `Missing`.
    #[cold]
    pub(crate) async fn check_before_write(
        &self,
        version: &LayoutVersion<E>,
        objects: &[(ObjectId, TargetId)],
    ) -> Result<()> {
        let core = &*self.session.core;
        if version.ends.is_unfetched() {
            self.refresh_recorded(version, FileOffset::ZERO).await?;
        }
        let request = async |cap| core.datafile_metas(version.data, cap, objects).await;
        let metas = self.with_capability(version, request).await?;
        let found: Vec<_> = objects.iter().map(|(object, _)| *object).zip(metas).collect();
        if !find_short(&version.layout, &version.ends.recorded(), &found).is_empty() {
            let lost = self.lost_datafiles(version).await?;
            let is_asked = |short: &&ShortDatafile| objects.iter().any(|(object, _)| *object == short.object);
            if let Some(short) = lost.iter().find(is_asked) {
                let start =
                    version.layout.file_pieces(short.object, LocalExtent::new(short.held.0, 1)).next();
                let start = start.map_or(FileOffset::ZERO, |piece| piece.offset);
                return Err(core.missing(version.data, &version.layout, start, short));
            }
        }
        objects.iter().for_each(|(object, _)| version.ends.mark_checked(*object));
        Ok(())
    }

    /// Fetches the epoch and the recorded lengths of the datafiles of `version`.
    ///
    /// # Errors
    /// `EREMCHG` when the file has another layout by now.
    async fn ask_recorded(&self, version: &LayoutVersion<E>) -> Result<(u64, RecordedLens)> {
        let handle = self.record.handle;
        let reply = self.session.call(Effect::Repeatable, MetaRequest::Recorded { handle }).await;
        match reply.map_err(|error| self.explained(error))? {
            MetaReply::Recorded { data, epoch, lens } if data == version.data => Ok((epoch, lens)),
            MetaReply::Recorded { .. } => Err(Error::stale_layout()),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Fetches the records of a file that has `size`, for [`DatafileEnds::recorded`](crate::file::Ends::recorded).
    pub(crate) async fn refresh_recorded(&self, version: &LayoutVersion<E>, size: FileOffset) -> Result<()> {
        let restarts = self.session.core.restarts();
        let (_, lens) = self.ask_recorded(version).await?;
        version.ends.set_recorded(lens, size, restarts);
        Ok(())
    }

    /// Returns the datafiles that have lost bytes.
    ///
    /// A truncation by another client is not a loss. It lowers the record and begins a new epoch before it shortens a
    /// datafile. So a datafile that is shorter than a record fetched before has lost bytes if the epoch is unchanged
    /// afterwards.
    pub(crate) async fn lost_datafiles(&self, version: &LayoutVersion<E>) -> Result<Vec<ShortDatafile>> {
        let core = &*self.session.core;
        let mut backoff = Backoff::default();
        loop {
            let restarts = core.restarts();
            let (epoch, lens) = self.ask_recorded(version).await?;
            version.ends.set_recorded(lens.clone(), lens.file_size(&version.layout), restarts);
            let objects: Vec<_> =
                lens.of(&version.layout).map(|(object, target, _)| (object, target)).collect();
            if objects.is_empty() {
                return Ok(Vec::new());
            }
            let request = async |cap| core.datafile_metas(version.data, cap, &objects).await;
            let metas = self.with_capability(version, request).await?;
            let found: Vec<_> = objects.iter().map(|(object, _)| *object).zip(metas).collect();
            let lost = find_short(&version.layout, &lens, &found);
            if lost.is_empty() || self.ask_recorded(version).await?.0 == epoch {
                return Ok(lost);
            }
            if !backoff.wait(&core.env).await {
                const WHY: &str = "a datafile is shorter than recorded, and other clients keep truncating the file: \
                                   try later";
                return Err(Error::misuse(Errno::EIO, WHY));
            }
        }
    }

    /// Sends the ends of synced writes to the metadata server for its record, without waiting.
    pub(crate) async fn record_ends(&self, version: &LayoutVersion<E>, handle: HandleId, lens: RecordedLens) {
        if lens.is_empty() || version.ends.is_recorded(&lens) {
            return;
        }
        let written = weft_wire::meta::WrittenLens { data: version.data, lens: lens.clone() };
        if self.session.core.try_send_one_way(MetaRequest::Record { handle, written }).await {
            version.ends.raise_recorded(&lens);
        }
    }
}
