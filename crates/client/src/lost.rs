//! Bytes that are recorded and not there: datafiles that are missing or were cut below Weft.

use crate::call::Effect;
use crate::control::odd_reply;
use crate::core::Core;
use crate::error::{Error, Missing, Result};
use crate::file::{Home, Patience, State, another_home};
use crate::write::expired;
use weft_core::{ByteLen, FileId, FileOffset, Layout, LocalExtent, ObjectId, RecordedLens, TargetId};
use weft_env::Env;
use weft_wire::data::DatafileMeta;
use weft_wire::meta::{HandleId, MetaReply, MetaRequest};
use weft_wire::{Capability, Errno};

/// A datafile that is shorter than its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Short {
    pub(crate) object: ObjectId,
    pub(crate) target: TargetId,
    /// What is there.
    pub(crate) held: ByteLen,
    /// What should be.
    pub(crate) recorded: ByteLen,
}

/// Datafiles that are shorter than `recorded`, when those of `layout` are as `found`.
pub(crate) fn short(
    layout: &Layout,
    recorded: &RecordedLens,
    found: &[(ObjectId, DatafileMeta)],
) -> Vec<Short> {
    let mut all = Vec::new();
    for (object, target, recorded) in recorded.of(layout) {
        let found = found.iter().find(|(other, _)| *other == object);
        if let Some((_, meta)) = found
            && meta.len < recorded
            && !meta.keeps_nothing
        {
            all.push(Short { object, target, held: meta.len, recorded });
        }
    }
    all
}

impl<E: Env> Core<E> {
    /// The error that says which bytes of a file are lost with `short`: from `start` on.
    pub(crate) fn missing(&self, data: FileId, layout: &Layout, start: FileOffset, short: &Short) -> Error {
        let server = self.map.server_of(short.target).map(|id| self.server(id).entry().name.clone());
        Error::Missing(Box::new(Missing {
            server: server.unwrap_or_default(),
            target: short.target,
            file: data,
            object: short.object,
            held: short.held,
            recorded: short.recorded,
            range: (start, layout.logical_end(short.object, short.recorded)),
            path: Vec::new(),
        }))
    }
}

impl<E: Env> Core<E> {
    /// Datafiles of a file that are shorter than `recorded`; others may be cutting the file.
    pub(crate) async fn seems_short(
        &self,
        cap: Capability,
        layout: &Layout,
        recorded: &RecordedLens,
    ) -> Result<Vec<Short>> {
        let objects: Vec<_> = recorded.of(layout).map(|(object, target, _)| (object, target)).collect();
        if objects.is_empty() {
            return Ok(Vec::new());
        }
        let metas = self.lens(cap.file, cap, &objects).await?;
        let found: Vec<_> = objects.into_iter().map(|(object, _)| object).zip(metas).collect();
        Ok(short(layout, recorded, &found))
    }
}

impl<E: Env> State<E> {
    /// Checks datafiles with a record before they are written for the first time: a write to one that has lost bytes would
    /// make them a hole.
    ///
    /// # Errors
    /// `Missing`.
    #[cold]
    pub(crate) async fn check_before_write(
        &self,
        home: &Home<E>,
        objects: &[(ObjectId, TargetId)],
    ) -> Result<()> {
        let core = &*self.client.core;
        let metas = match core.lens(home.data, self.cap_in(home).await?, objects).await {
            Err(error) if expired(&error) => {
                self.renew().await?;
                core.lens(home.data, self.cap_in(home).await?, objects).await?
            }
            metas => metas?,
        };
        let found: Vec<_> = objects.iter().map(|(object, _)| *object).zip(metas).collect();
        if !short(&home.layout, &home.ends.recorded(), &found).is_empty() {
            let lost = self.lost_datafiles(home).await?;
            let is_asked = |short: &&Short| objects.iter().any(|(object, _)| *object == short.object);
            if let Some(short) = lost.iter().find(is_asked) {
                let start = home.layout.file_pieces(short.object, LocalExtent::new(short.held.0, 1)).next();
                let start = start.map_or(FileOffset::ZERO, |piece| piece.offset);
                return Err(core.missing(home.data, &home.layout, start, short));
            }
        }
        objects.iter().for_each(|(object, _)| home.ends.checked(*object));
        Ok(())
    }

    /// What the metadata service has recorded of the datafiles in `home`, with the epoch.
    ///
    /// # Errors
    /// That the file has another home, by now.
    async fn ask_recorded(&self, home: &Home<E>) -> Result<(u64, RecordedLens)> {
        let handle = self.record.handle;
        let reply = self.client.call(Effect::Repeatable, MetaRequest::Recorded { handle }).await;
        match reply.map_err(|error| self.explained(error))? {
            MetaReply::Recorded { data, epoch, lens } if data == home.data => Ok((epoch, lens)),
            MetaReply::Recorded { .. } => Err(another_home()),
            _ => Err(odd_reply()),
        }
    }

    /// Asks what is recorded of a file that has `size`, for [`Ends::recorded`](crate::file::Ends::recorded).
    pub(crate) async fn refresh_recorded(&self, home: &Home<E>, size: FileOffset) -> Result<()> {
        let (_, lens) = self.ask_recorded(home).await?;
        home.ends.heard(lens, size);
        Ok(())
    }

    /// Datafiles that are shorter than recorded. Others may cut the file meanwhile: that is no loss.
    ///
    /// A cut lowers the record before it shortens a datafile, and begins a new epoch. So a datafile that is found shorter
    /// than a record that was heard before has lost bytes, if the epoch is the same afterwards.
    pub(crate) async fn lost_datafiles(&self, home: &Home<E>) -> Result<Vec<Short>> {
        let core = &*self.client.core;
        let mut patience = Patience::default();
        loop {
            let (epoch, lens) = self.ask_recorded(home).await?;
            home.ends.heard(lens.clone(), lens.file_size(&home.layout));
            let objects: Vec<_> = lens.of(&home.layout).map(|(object, target, _)| (object, target)).collect();
            if objects.is_empty() {
                return Ok(Vec::new());
            }
            let metas = match core.lens(home.data, self.cap_in(home).await?, &objects).await {
                Err(error) if expired(&error) => {
                    self.renew().await?;
                    core.lens(home.data, self.cap_in(home).await?, &objects).await?
                }
                metas => metas?,
            };
            let found: Vec<_> = objects.iter().map(|(object, _)| *object).zip(metas).collect();
            let lost = short(&home.layout, &lens, &found);
            if lost.is_empty() || self.ask_recorded(home).await?.0 == epoch {
                return Ok(lost);
            }
            if !patience.wait(&core.env).await {
                const WHY: &str =
                    "a datafile is shorter than recorded, and the file is cut again and again: try later";
                return Err(Error::misuse(Errno::EIO, WHY));
            }
        }
    }

    /// Has the metadata service record where synced writes end, without waiting for it.
    pub(crate) async fn record_ends(&self, home: &Home<E>, handle: HandleId, lens: RecordedLens) {
        if lens.is_empty() || home.ends.is_recorded(&lens) {
            return;
        }
        let written = weft_wire::meta::WrittenLens { data: home.data, lens: lens.clone() };
        if self.client.core.mention(MetaRequest::Record { handle, written }).await {
            home.ends.record(&lens);
        }
    }
}
