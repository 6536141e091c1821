//! Datafiles that are shorter than their records: bytes of the file are lost, unless another client is truncating it.

use crate::core::Core;
use crate::error::{Error, Missing, Result};
use weft_core::{ByteLen, FileId, FileOffset, Layout, ObjectId, RecordedLens, TargetId};
use weft_env::Env;
use weft_wire::Capability;
use weft_wire::data::DatafileMeta;

/// A datafile that is shorter than its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ShortDatafile {
    pub(crate) object: ObjectId,
    pub(crate) target: TargetId,
    /// Current length.
    pub(crate) held: ByteLen,
    /// Recorded length; may be [`ByteLen::UNKNOWN`].
    pub(crate) recorded: ByteLen,
}

impl ShortDatafile {
    /// Whether nobody knows how long the datafile was.
    pub(crate) fn is_unknown(&self) -> bool {
        self.recorded == ByteLen::UNKNOWN
    }

    /// Returns the end of the datafile's bytes in the file, as far as it is known.
    pub(crate) fn end(&self, layout: &Layout) -> FileOffset {
        layout.logical_end(self.object, if self.is_unknown() { self.held } else { self.recorded })
    }
}

/// Returns the datafiles of `layout` in `found` that are shorter than `recorded`.
pub(crate) fn find_short(
    layout: &Layout,
    recorded: &RecordedLens,
    found: &[(ObjectId, DatafileMeta)],
) -> Vec<ShortDatafile> {
    let mut all = Vec::new();
    for (object, target, recorded) in recorded.of(layout) {
        let found = found.iter().find(|(other, _)| *other == object);
        if let Some((_, meta)) = found
            && meta.len < recorded
            && !meta.keeps_nothing
        {
            all.push(ShortDatafile { object, target, held: meta.len, recorded });
        }
    }
    all
}

impl<E: Env> Core<E> {
    /// Builds the error for the bytes that a file has lost with `short`, from `start` on.
    pub(crate) fn missing(
        &self,
        data: FileId,
        layout: &Layout,
        start: FileOffset,
        short: &ShortDatafile,
    ) -> Error {
        let server = self.map().server_of(short.target).map(|id| self.server(id).entry().name.clone());
        Error::Missing(Box::new(Missing {
            server: server.unwrap_or_default(),
            target: short.target,
            file: data,
            object: short.object,
            held: short.held,
            recorded: short.recorded,
            range: (start, short.end(layout)),
            path: Vec::new(),
        }))
    }

    /// Returns the datafiles of a file that are shorter than `recorded`. Another client may be truncating the file.
    pub(crate) async fn seemingly_short_datafiles(
        &self,
        cap: Capability,
        layout: &Layout,
        recorded: &RecordedLens,
    ) -> Result<Vec<ShortDatafile>> {
        let objects: Vec<_> = recorded.of(layout).map(|(object, target, _)| (object, target)).collect();
        if objects.is_empty() {
            return Ok(Vec::new());
        }
        let metas = self.datafile_metas(cap.file, cap, &objects).await?;
        let found: Vec<_> = objects.into_iter().map(|(object, _)| object).zip(metas).collect();
        Ok(find_short(layout, recorded, &found))
    }
}
