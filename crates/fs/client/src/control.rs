//! Data requests without payload: lengths, truncation, sync, fences, removal.

use crate::connection::Connection;
use crate::core::Core;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::exchange::{Item, Outcome, Traffic, exchange};
use crate::short_datafiles::ShortDatafile;
use std::collections::BTreeMap;
use std::io;
use weft_core::{ByteLen, FileId, FileOffset, Layout, ObjectId, RecordedLens, ServerId, TargetId};
use weft_env::Env;
use weft_wire::data::{DataReply, DataRequest, DatafileId, DatafileMeta};
use weft_wire::meta::CollectedSize;
use weft_wire::{Capability, Errno, Family, WireError};

/// Most datafiles named in one request.
const DATAFILES_PER_REQUEST_MAX: usize = 4096;

/// Prepared requests and their replies.
struct ControlTraffic {
    requests: Vec<DataRequest>,
    /// One for each request, with the boot id of the machine that sent it.
    replies: Vec<Option<(DataReply, u64)>>,
}

impl<E: Env> Traffic<E> for ControlTraffic {
    async fn send(&mut self, connection: &mut Connection<E>, item: usize) -> io::Result<()> {
        connection.send_request(Family::Data, &self.requests[item], &[]).await
    }

    async fn receive(
        &mut self,
        connection: &mut Connection<E>,
        item: usize,
    ) -> io::Result<Result<(), WireError>> {
        let incoming = connection.recv_reply().await?;
        let reply = connection.link.decode(&incoming)?;
        connection.link.skip_payload(u64::from(incoming.header.payload_len)).await?;
        match reply {
            DataReply::Failed(error) => Ok(Err(error)),
            reply => {
                self.replies[item] = Some((reply, connection.boot));
                Ok(Ok(()))
            }
        }
    }
}

impl<E: Env> Core<E> {
    /// Sends each request to its server, and returns the replies in the same order, each with the boot id of its
    /// machine.
    pub(crate) async fn send_data_requests(
        &self,
        requests: Vec<(ServerId, DataRequest)>,
    ) -> Result<Vec<(DataReply, u64)>, Error> {
        let deadline = Deadline::of_request(self);
        self.send_data_requests_each(requests, deadline).await?.into_iter().collect()
    }

    /// Sends each request to its server. Returns, in the same order, the reply with its machine's boot id, or the
    /// error.
    async fn send_data_requests_each(
        &self,
        requests: Vec<(ServerId, DataRequest)>,
        deadline: Deadline,
    ) -> Result<Vec<Result<(DataReply, u64), Error>>, Error> {
        self.check_not_forked()?;
        let mut items: Vec<Item> = requests.iter().map(|(server, _)| Item::new(*server)).collect();
        let replies = requests.iter().map(|_| None).collect();
        let mut traffic =
            ControlTraffic { requests: requests.into_iter().map(|(_, request)| request).collect(), replies };
        exchange(self, &mut items, &mut traffic, deadline).await;
        let reply = |(item, reply): (Item, Option<_>)| match item.outcome {
            Outcome::Failed(error) => Err(error),
            Outcome::Pending | Outcome::Done => Ok(reply.expect("done items have replies")),
        };
        Ok(items.into_iter().zip(traffic.replies).map(reply).collect())
    }

    /// Sends one request for each server and batch of `objects`. Returns the indices of each batch with its reply.
    pub(crate) async fn send_by_server<T>(
        &self,
        objects: &[T],
        place: impl Fn(&T) -> TargetId,
        request: impl Fn(Vec<&T>) -> DataRequest,
    ) -> Result<Vec<(Vec<usize>, (DataReply, u64))>, Error> {
        let mut by_server: BTreeMap<ServerId, Vec<usize>> = BTreeMap::new();
        for (index, object) in objects.iter().enumerate() {
            by_server.entry(self.route(place(object))?).or_default().push(index);
        }
        let batches: Vec<(ServerId, Vec<usize>)> = by_server
            .into_iter()
            .flat_map(|(server, all)| {
                all.chunks(DATAFILES_PER_REQUEST_MAX).map(|some| (server, some.to_vec())).collect::<Vec<_>>()
            })
            .collect();
        let requests = batches
            .iter()
            .map(|(server, some)| (*server, request(some.iter().map(|&index| &objects[index]).collect())))
            .collect();
        let replies = self.send_data_requests(requests).await?;
        Ok(batches.into_iter().map(|(_, some)| some).zip(replies).collect())
    }

    /// Returns length, allocated space and modification time of `objects`, in their order.
    pub(crate) async fn datafile_metas(
        &self,
        file: FileId,
        cap: Capability,
        objects: &[(ObjectId, TargetId)],
    ) -> Result<Vec<DatafileMeta>, Error> {
        let replies = self
            .send_by_server(
                objects,
                |&(_, target)| target,
                |some| DataRequest::GetLens {
                    cap,
                    datafiles: some.iter().map(|&&object| datafile(file, object)).collect(),
                },
            )
            .await?;
        let mut out = vec![DatafileMeta::default(); objects.len()];
        for (indices, (reply, _)) in replies {
            match reply {
                DataReply::Lens(lens) if lens.len() == indices.len() => {
                    for (index, len) in indices.into_iter().zip(lens) {
                        out[index] = len;
                    }
                }
                _ => return Err(Error::unexpected_reply()),
            }
        }
        Ok(out)
    }

    /// Returns length, allocated space and modification time of each datafile of `layout`, in the order of its
    /// objects.
    ///
    /// An entry is `None` if its server cannot be asked now; the error says why. Fails if a server refuses the request
    /// itself.
    pub(crate) async fn known_datafile_metas(
        &self,
        cap: Capability,
        layout: &Layout,
        deadline: Deadline,
    ) -> Result<(Vec<Option<DatafileMeta>>, Option<Error>), Error> {
        let objects: Vec<_> = layout.objects().collect();
        let (mut missing, mut by_server) = (None, BTreeMap::<ServerId, Vec<usize>>::new());
        for (index, (_, target)) in objects.iter().enumerate() {
            match self.route(*target) {
                Ok(server) => by_server.entry(server).or_default().push(index),
                Err(error) => missing = Some(error),
            }
        }
        let some = by_server.into_iter().flat_map(|(server, all)| {
            all.chunks(DATAFILES_PER_REQUEST_MAX).map(|some| (server, some.to_vec())).collect::<Vec<_>>()
        });
        let batches: Vec<(ServerId, Vec<usize>)> = some.collect();
        let request = |(server, some): &(ServerId, Vec<usize>)| {
            let datafiles = some.iter().map(|&index| datafile(cap.file, objects[index])).collect();
            (*server, DataRequest::GetLens { cap, datafiles })
        };
        let requests = batches.iter().map(request).collect();
        let replies = self.send_data_requests_each(requests, deadline).await?;
        let mut lens = vec![None; objects.len()];
        for ((_, indices), reply) in batches.into_iter().zip(replies) {
            match reply {
                Ok((DataReply::Lens(found), _)) if found.len() == indices.len() => {
                    for (index, meta) in indices.into_iter().zip(found) {
                        lens[index] = Some(meta);
                    }
                }
                Ok(_) => return Err(Error::unexpected_reply()),
                Err(error) if error.errno() == Errno::EIO.0 => missing = Some(error),
                Err(error) => return Err(error),
            }
        }
        Ok((lens, missing))
    }

    /// Returns size, allocated space and modification time of a file according to its datafiles.
    pub(crate) async fn survey(&self, cap: Capability, layout: &Layout) -> Result<CollectedSize, Error> {
        match self.survey_known(cap, layout, Deadline::of_request(self)).await? {
            (found, None) => Ok(found),
            (_, Some(error)) => Err(error),
        }
    }

    /// Returns size, allocated space and modification time according to the datafiles that can be asked, and why
    /// others cannot.
    pub(crate) async fn survey_known(
        &self,
        cap: Capability,
        layout: &Layout,
        deadline: Deadline,
    ) -> Result<(CollectedSize, Option<Error>), Error> {
        let (lens, missing) = self.known_datafile_metas(cap, layout, deadline).await?;
        let metas: Vec<_> = lens.into_iter().map(Option::unwrap_or_default).collect();
        Ok((summarize(layout, &metas), missing))
    }

    /// Returns length, allocated space and modification time of all datafiles of a file, in the order of its layout.
    pub(crate) async fn all_datafile_metas(
        &self,
        cap: Capability,
        layout: &Layout,
    ) -> Result<Vec<DatafileMeta>, Error> {
        let objects: Vec<_> = layout.objects().collect();
        self.datafile_metas(cap.file, cap, &objects).await
    }

    /// Sends `request` about all datafiles of a file, and succeeds when it is done on all of them; see [`Boots`].
    pub(crate) async fn apply_to_all(
        &self,
        file: FileId,
        layout: &Layout,
        request: impl Fn(Vec<DatafileId>) -> DataRequest,
    ) -> Result<Boots, Error> {
        let objects: Vec<_> = layout.objects().collect();
        self.apply_to(file, &objects, request).await
    }

    /// Sends `request` about `objects`, and succeeds when it is done on all of them.
    async fn apply_to(
        &self,
        file: FileId,
        objects: &[(ObjectId, TargetId)],
        request: impl Fn(Vec<DatafileId>) -> DataRequest,
    ) -> Result<Boots, Error> {
        let named = |some: Vec<&(ObjectId, TargetId)>| {
            request(some.into_iter().map(|&object| datafile(file, object)).collect())
        };
        let replies = self.send_by_server(objects, |&(_, target)| target, named).await?;
        expect_done(&replies)?;
        Ok(boots(objects, &replies))
    }

    /// Truncates or extends all datafiles so that the file has `size`; see [`Boots`].
    pub(crate) async fn set_lens(
        &self,
        file: FileId,
        cap: Capability,
        layout: &Layout,
        size: FileOffset,
    ) -> Result<Boots, Error> {
        let request = |datafiles| set_lens(cap, layout, size, datafiles);
        self.apply_to_all(file, layout, request).await
    }

    /// Truncates or extends a file that other clients use, or that must survive a failure of this operation.
    ///
    /// At no time does the file end before `size`, unless it did already. The datafile with the last byte gets its
    /// length first. It may have a hole there and be shorter; once the others are truncated, nothing else would make
    /// the file that long. Datafiles in `short` keep their length.
    pub(crate) async fn truncate(
        &self,
        file: FileId,
        cap: Capability,
        layout: &Layout,
        size: FileOffset,
        short: &[ShortDatafile],
    ) -> Result<Boots, Error> {
        // No datafile is truncated while one of the servers does not answer.
        for (_, target) in layout.objects() {
            if self.server(self.route(target)?).is_troubled() {
                self.boot_of(target, cap).await?;
            }
        }
        let last = size.0.checked_sub(1).map(|last| layout.locate(FileOffset(last)));
        let last = last.map(|at| (at.object, at.target));
        let (first, rest): (Vec<_>, Vec<_>) = layout
            .objects()
            .filter(|(object, _)| short.iter().all(|short| short.object != *object))
            .partition(|object| last == Some(*object));
        let request = |datafiles| set_lens(cap, layout, size, datafiles);
        let mut boots = match first.is_empty() {
            true => Boots::new(),
            false => self.apply_to(file, &first, request).await?,
        };
        if !rest.is_empty() {
            let truncated = self.apply_to(file, &rest, request).await;
            boots.extend(truncated.map_err(|error| error.and(PARTLY_TRUNCATED))?);
        }
        Ok(boots)
    }

    /// Syncs all datafiles of a file, so that their bytes survive a loss of power; see [`Boots`].
    pub(crate) async fn sync_datafiles(
        &self,
        file: FileId,
        cap: Capability,
        layout: &Layout,
    ) -> Result<Boots, Error> {
        self.apply_to_all(file, layout, |datafiles| DataRequest::Sync { cap, datafiles }).await
    }

    /// Returns the boot id of the machine that has `target`.
    pub(crate) async fn boot_of(&self, target: TargetId, cap: Capability) -> Result<u64, Error> {
        let request = DataRequest::Sync { cap, datafiles: Vec::new() };
        let reply = self.send_data_requests(vec![(self.route(target)?, request)]).await?.pop();
        reply.map(|(_, boot)| boot).ok_or_else(Error::unexpected_reply)
    }

    /// Has the data servers reject capabilities of a file that end before `before_s`. Returns after requests in
    /// progress with such capabilities have ended.
    pub(crate) async fn fence(
        &self,
        file: FileId,
        cap: Capability,
        layout: &Layout,
        before_s: u64,
    ) -> Result<(), Error> {
        let request = |datafiles| DataRequest::Fence { cap, before_s, datafiles };
        self.apply_to_all(file, layout, request).await.map(drop)
    }

    /// Removes datafiles. For servers and administrators only.
    pub(crate) async fn remove_datafiles(&self, datafiles: &[DatafileId]) -> Result<(), Error> {
        let replies = self
            .send_by_server(
                datafiles,
                |datafile| datafile.target,
                |some| DataRequest::Remove { datafiles: some.into_iter().copied().collect() },
            )
            .await?;
        expect_done(&replies)
    }
}

/// Computes size, allocated space and modification time of a file from all of its datafiles, in the order of its
/// layout.
pub(crate) fn summarize(layout: &Layout, metas: &[DatafileMeta]) -> CollectedSize {
    let lens = recorded(metas);
    CollectedSize {
        size: ByteLen(lens.file_size(layout).0),
        blocks_512: metas.iter().map(|meta| meta.blocks_512).sum(),
        mtime: metas.iter().filter_map(|meta| meta.mtime).max(),
        lens,
    }
}

/// Returns the lengths of datafiles in the form of a record.
pub(crate) fn recorded(metas: &[DatafileMeta]) -> RecordedLens {
    RecordedLens::new(metas.iter().map(|meta| meta.len).collect())
}

/// Added to the error of a truncation that some servers may have done.
const PARTLY_TRUNCATED: &str = "other servers may have truncated their parts of the file: it is unchanged up to the \
                                new length, but bytes after it may be missing; truncate it again when the server is \
                                back";

/// Builds the request that gives each datafile the length that it has in a file of `size`.
fn set_lens(cap: Capability, layout: &Layout, size: FileOffset, datafiles: Vec<DatafileId>) -> DataRequest {
    let sized = |datafile: DatafileId| (datafile, layout.local_len(datafile.object, size));
    DataRequest::SetLens { cap, datafiles: datafiles.into_iter().map(sized).collect() }
}

/// Boot id of the machine of each target that was asked.
pub(crate) type Boots = Vec<(TargetId, u64)>;

pub(crate) fn boots(objects: &[(ObjectId, TargetId)], replies: &[(Vec<usize>, (DataReply, u64))]) -> Boots {
    let each = replies.iter().flat_map(|(indices, (_, boot))| indices.iter().map(|&index| (index, *boot)));
    each.map(|(index, boot)| (objects[index].1, boot)).collect()
}

pub(crate) fn datafile(file: FileId, (object, target): (ObjectId, TargetId)) -> DatafileId {
    DatafileId { target, file, object }
}

pub(crate) fn expect_done(replies: &[(Vec<usize>, (DataReply, u64))]) -> Result<(), Error> {
    match replies.iter().all(|(_, (reply, _))| *reply == DataReply::Done) {
        true => Ok(()),
        false => Err(Error::unexpected_reply()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_other_than_done_is_an_error() {
        let reply = |item, reply| (vec![item], (reply, 1));
        assert!(expect_done(&[reply(0, DataReply::Done)]).is_ok());
        assert!(expect_done(&[reply(0, DataReply::Done), reply(1, DataReply::Written)]).is_err());
    }
}
