//! Changes during the copy, as the data servers note them.

use super::Mover;
use crate::control::datafile;
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use weft_core::{ByteLen, ByteRange, LocalExtent, LocalOffset, ObjectId, ServerId};
use weft_env::Env;
use weft_wire::data::{DataReply, DataRequest, DatafileId, WATCHED_MAX};

/// Most ranges of the file that one changed range of a datafile is split into. Beyond that it counts as one range,
/// with the bytes in between.
const RANGES_PER_CHANGE_MAX: usize = 64;

/// A watch on datafiles of one server.
pub(super) struct Watched {
    server: ServerId,
    datafiles: Vec<DatafileId>,
    watch: u64,
    round: u64,
}

impl<E: Env> Mover<'_, E> {
    /// Starts watches on all old datafiles.
    pub(super) async fn watch(&mut self) -> Result<()> {
        let mut by_server: BTreeMap<ServerId, Vec<DatafileId>> = BTreeMap::new();
        for (object, target) in self.from.layout.objects() {
            let server = self.session.core.route(target)?;
            by_server.entry(server).or_default().push(datafile(self.from.data(), (object, target)));
        }
        for (server, datafiles) in by_server {
            for some in datafiles.chunks(WATCHED_MAX) {
                let watch = self.watch_some(server, some).await?;
                self.watched.push(Watched { server, datafiles: some.to_vec(), watch, round: 0 });
            }
        }
        self.polled_at = self.session.core.env.now();
        Ok(())
    }

    async fn watch_some(&self, server: ServerId, datafiles: &[DatafileId]) -> Result<u64> {
        let request = DataRequest::Watch { cap: self.from.cap, datafiles: datafiles.to_vec() };
        match self.session.core.send_data_requests(vec![(server, request)]).await?.pop() {
            Some((DataReply::Watching { watch }, _)) => Ok(watch),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Fetches the changes since the last call.
    pub(super) async fn poll(&mut self) -> Result<()> {
        match self.ask_for_changes().await {
            Err(error) if error.is_expired() => {
                self.renew_capabilities(ByteLen::ZERO).await?;
                self.ask_for_changes().await
            }
            result => result,
        }
    }

    async fn ask_for_changes(&mut self) -> Result<()> {
        let cap = self.from.cap;
        let ask = |watched: &Watched| {
            (watched.server, DataRequest::Changes { cap, watch: watched.watch, round: watched.round + 1 })
        };
        let replies = self.session.core.send_data_requests(self.watched.iter().map(ask).collect()).await?;
        for (at, (reply, _)) in replies.into_iter().enumerate() {
            match reply {
                DataReply::Changes(changes) => {
                    self.watched[at].round += 1;
                    for change in changes {
                        for (start, end) in change.ranges {
                            self.mark(change.datafile.object, start, end);
                        }
                    }
                }
                // The server has restarted and lost its notes: watch again, and treat everything as changed.
                DataReply::NotWatching => {
                    let Watched { server, datafiles, .. } = &self.watched[at];
                    let watch = self.watch_some(*server, datafiles).await?;
                    let objects: Vec<ObjectId> = datafiles.iter().map(|datafile| datafile.object).collect();
                    (self.watched[at].watch, self.watched[at].round) = (watch, 0);
                    objects.into_iter().for_each(|object| self.mark(object, 0, u64::MAX));
                }
                _ => return Err(Error::unexpected_reply()),
            }
        }
        self.polled_at = self.session.core.env.now();
        Ok(())
    }

    /// Marks bytes `start..end` of a datafile as changed.
    fn mark(&mut self, object: ObjectId, start: u64, end: u64) {
        let layout = &self.from.layout;
        if layout.target(object).is_none() || start >= end {
            return;
        }
        let local = LocalExtent { offset: LocalOffset(start), len: ByteLen(end - start) };
        let mut pieces = layout.file_pieces(object, local);
        let few: Vec<_> = pieces.by_ref().take(RANGES_PER_CHANGE_MAX).collect();
        let Some(first) = few.first() else { return };
        if pieces.next().is_some() {
            let last = layout.logical_end(object, ByteLen(end));
            self.changed
                .add(ByteRange::new(first.offset.0, last.0).expect("its last byte is behind its first"));
            return;
        }
        for piece in few {
            let range = ByteRange::with_len(piece.offset.0, piece.len.0);
            self.changed.add(range.expect("pieces have bytes"));
        }
    }
}
