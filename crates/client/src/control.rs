//! Data requests without payload: lengths, cutting, syncing, removing.

use crate::connect::Wire;
use crate::core::Core;
use crate::error::Error;
use crate::exchange::{Item, Outcome, Traffic, exchange};
use crate::lost::Short;
use std::collections::BTreeMap;
use std::io;
use weft_core::{ByteLen, FileId, FileOffset, Layout, ObjectId, RecordedLens, ServerId, TargetId};
use weft_env::Env;
use weft_wire::data::{DataReply, DataRequest, DatafileId, DatafileMeta};
use weft_wire::meta::Settlement;
use weft_wire::{Capability, Errno, Family, WireError};

/// Datafiles named in one request.
const BATCH: usize = 4096;

/// Ready-made requests and their replies.
struct Plain {
    requests: Vec<DataRequest>,
    /// Each with the boot of the machine that gave it.
    replies: Vec<Option<(DataReply, u64)>>,
}

impl<E: Env> Traffic<E> for Plain {
    async fn send(&mut self, wire: &mut Wire<E>, item: usize) -> io::Result<()> {
        wire.ask(Family::Data, &self.requests[item], &[]).await
    }

    async fn receive(&mut self, wire: &mut Wire<E>, item: usize) -> io::Result<Result<(), WireError>> {
        let incoming = wire.answer().await?;
        let reply = wire.link.decode(&incoming)?;
        wire.link.skip_payload(u64::from(incoming.header.payload_len)).await?;
        match reply {
            DataReply::Failed(error) => Ok(Err(error)),
            reply => {
                self.replies[item] = Some((reply, wire.boot));
                Ok(Ok(()))
            }
        }
    }
}

impl<E: Env> Core<E> {
    /// Sends each of `requests` to its server; the replies in the same order, each with the boot of its machine.
    pub(crate) async fn ask_data(
        &self,
        requests: Vec<(ServerId, DataRequest)>,
    ) -> Result<Vec<(DataReply, u64)>, Error> {
        self.ask_data_each(requests).await?.into_iter().collect()
    }

    /// Sends each of `requests` to its server; for each in the same order the reply with the boot of the server's machine,
    /// or why there is none.
    async fn ask_data_each(
        &self,
        requests: Vec<(ServerId, DataRequest)>,
    ) -> Result<Vec<Result<(DataReply, u64), Error>>, Error> {
        self.check_ours()?;
        let mut items: Vec<Item> = requests.iter().map(|(server, _)| Item::new(*server)).collect();
        let replies = requests.iter().map(|_| None).collect();
        let mut plain =
            Plain { requests: requests.into_iter().map(|(_, request)| request).collect(), replies };
        exchange(self, &mut items, &mut plain).await;
        let reply = |(item, reply): (Item, Option<_>)| match item.outcome {
            Outcome::Failed(error) => Err(error),
            Outcome::Pending | Outcome::Done => Ok(reply.expect("done items have replies")),
        };
        Ok(items.into_iter().zip(plain.replies).map(reply).collect())
    }

    /// One request per server (and batch) about `objects` of one file.
    pub(crate) async fn ask_about<T>(
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
                all.chunks(BATCH).map(|some| (server, some.to_vec())).collect::<Vec<_>>()
            })
            .collect();
        let requests = batches
            .iter()
            .map(|(server, some)| (*server, request(some.iter().map(|&index| &objects[index]).collect())))
            .collect();
        let replies = self.ask_data(requests).await?;
        Ok(batches.into_iter().map(|(_, some)| some).zip(replies).collect())
    }

    /// Length, room and time of `objects`, in their order.
    pub(crate) async fn lens(
        &self,
        file: FileId,
        cap: Capability,
        objects: &[(ObjectId, TargetId)],
    ) -> Result<Vec<DatafileMeta>, Error> {
        let replies = self
            .ask_about(
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
                _ => return Err(odd_reply()),
            }
        }
        Ok(out)
    }

    /// Length, room and time of each datafile of `layout`, in the order of its objects: `None` where the server cannot be
    /// asked now, with the reason. `Err` when a server refuses the request itself.
    pub(crate) async fn lens_known(
        &self,
        cap: Capability,
        layout: &Layout,
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
            all.chunks(BATCH).map(|some| (server, some.to_vec())).collect::<Vec<_>>()
        });
        let batches: Vec<(ServerId, Vec<usize>)> = some.collect();
        let request = |(server, some): &(ServerId, Vec<usize>)| {
            let datafiles = some.iter().map(|&index| datafile(cap.file, objects[index])).collect();
            (*server, DataRequest::GetLens { cap, datafiles })
        };
        let replies = self.ask_data_each(batches.iter().map(request).collect()).await?;
        let mut lens = vec![None; objects.len()];
        for ((_, indices), reply) in batches.into_iter().zip(replies) {
            match reply {
                Ok((DataReply::Lens(found), _)) if found.len() == indices.len() => {
                    for (index, meta) in indices.into_iter().zip(found) {
                        lens[index] = Some(meta);
                    }
                }
                Ok(_) => return Err(odd_reply()),
                Err(error) if error.errno() == Errno::EIO.0 => missing = Some(error),
                Err(error) => return Err(error),
            }
        }
        Ok((lens, missing))
    }

    /// Size, room and time of a file as a whole, by its datafiles.
    pub(crate) async fn survey(&self, cap: Capability, layout: &Layout) -> Result<Settlement, Error> {
        match self.survey_known(cap, layout).await? {
            (found, None) => Ok(found),
            (_, Some(error)) => Err(error),
        }
    }

    /// Size, room and time of a file by those of its datafiles that can be asked, and why others cannot.
    pub(crate) async fn survey_known(
        &self,
        cap: Capability,
        layout: &Layout,
    ) -> Result<(Settlement, Option<Error>), Error> {
        let (lens, missing) = self.lens_known(cap, layout).await?;
        let metas: Vec<_> = lens.into_iter().map(Option::unwrap_or_default).collect();
        Ok((settlement(layout, &metas), missing))
    }

    /// Length, room and time of all datafiles of a file, in the order of its layout.
    pub(crate) async fn all_lens(
        &self,
        cap: Capability,
        layout: &Layout,
    ) -> Result<Vec<DatafileMeta>, Error> {
        let objects: Vec<_> = layout.objects().collect();
        self.lens(cap.file, cap, &objects).await
    }

    /// What `request` makes of them, asked about all datafiles of a file and done everywhere; see [`Boots`].
    pub(crate) async fn have_all(
        &self,
        file: FileId,
        layout: &Layout,
        request: impl Fn(Vec<DatafileId>) -> DataRequest,
    ) -> Result<Boots, Error> {
        let objects: Vec<_> = layout.objects().collect();
        self.have(file, &objects, request).await
    }

    /// The same of some of them.
    async fn have(
        &self,
        file: FileId,
        objects: &[(ObjectId, TargetId)],
        request: impl Fn(Vec<DatafileId>) -> DataRequest,
    ) -> Result<Boots, Error> {
        let named = |some: Vec<&(ObjectId, TargetId)>| {
            request(some.into_iter().map(|&object| datafile(file, object)).collect())
        };
        let replies = self.ask_about(objects, |&(_, target)| target, named).await?;
        only_done(&replies)?;
        Ok(boots(objects, &replies))
    }

    /// Cuts or extends all datafiles, so that the file has `size`; see [`Boots`].
    pub(crate) async fn set_lens(
        &self,
        file: FileId,
        cap: Capability,
        layout: &Layout,
        size: FileOffset,
    ) -> Result<Boots, Error> {
        let request = |datafiles| set_lens(cap, layout, size, datafiles);
        self.have_all(file, layout, request).await
    }

    /// The same of a file that is used meanwhile, or kept when it fails: it never ends before `size` where it did not
    /// before. The datafile with the last byte gets its length first, for it may have a hole there, and end earlier; once the
    /// others are cut nothing else would make the file so long. Datafiles in `short` stay as they are.
    pub(crate) async fn cut(
        &self,
        file: FileId,
        cap: Capability,
        layout: &Layout,
        size: FileOffset,
        short: &[Short],
    ) -> Result<Boots, Error> {
        // Nothing is cut on the others while a server does not answer.
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
            false => self.have(file, &first, request).await?,
        };
        if !rest.is_empty() {
            let cut = self.have(file, &rest, request).await;
            boots.extend(cut.map_err(|error| error.and(CUT_IN_PART))?);
        }
        Ok(boots)
    }

    /// Makes what was written to all datafiles of a file survive loss of power; see [`Boots`].
    pub(crate) async fn sync_objects(
        &self,
        file: FileId,
        cap: Capability,
        layout: &Layout,
    ) -> Result<Boots, Error> {
        self.have_all(file, layout, |datafiles| DataRequest::Sync { cap, datafiles }).await
    }

    /// In which life the machine with `target` is.
    pub(crate) async fn boot_of(&self, target: TargetId, cap: Capability) -> Result<u64, Error> {
        let request = DataRequest::Sync { cap, datafiles: Vec::new() };
        let reply = self.ask_data(vec![(self.route(target)?, request)]).await?.pop();
        reply.map(|(_, boot)| boot).ok_or_else(odd_reply)
    }

    /// Has the data servers refuse capabilities of a file that end before `before_s`; what is under way with them has ended
    /// then.
    pub(crate) async fn fence(
        &self,
        file: FileId,
        cap: Capability,
        layout: &Layout,
        before_s: u64,
    ) -> Result<(), Error> {
        let request = |datafiles| DataRequest::Fence { cap, before_s, datafiles };
        self.have_all(file, layout, request).await.map(drop)
    }

    /// Removes datafiles. Servers and administrators only.
    pub(crate) async fn remove_datafiles(&self, datafiles: &[DatafileId]) -> Result<(), Error> {
        let replies = self
            .ask_about(
                datafiles,
                |datafile| datafile.target,
                |some| DataRequest::Remove { datafiles: some.into_iter().copied().collect() },
            )
            .await?;
        only_done(&replies)
    }
}

/// Size, room and time of a file, from all of its datafiles in the order of its layout.
pub(crate) fn settlement(layout: &Layout, metas: &[DatafileMeta]) -> Settlement {
    let lens = recorded(metas);
    Settlement {
        size: ByteLen(lens.file_size(layout).0),
        blocks_512: metas.iter().map(|meta| meta.blocks_512).sum(),
        mtime: metas.iter().filter_map(|meta| meta.mtime).max(),
        lens,
    }
}

/// The lengths of datafiles, for the record.
pub(crate) fn recorded(metas: &[DatafileMeta]) -> RecordedLens {
    RecordedLens::new(metas.iter().map(|meta| meta.len).collect())
}

/// What an error of a server leaves of a cut, for people.
const CUT_IN_PART: &str = "other servers may have cut their parts of the file: up to the new length it is as it was, and \
                           behind it bytes may be missing; truncate it again when the server is back";

/// The request that gives these datafiles the lengths that a file of `size` has there.
fn set_lens(cap: Capability, layout: &Layout, size: FileOffset, datafiles: Vec<DatafileId>) -> DataRequest {
    let sized = |datafile: DatafileId| (datafile, layout.local_len(datafile.object, size));
    DataRequest::SetLens { cap, datafiles: datafiles.into_iter().map(sized).collect() }
}

/// The boot of the machine of each target that was asked.
pub(crate) type Boots = Vec<(TargetId, u64)>;

pub(crate) fn boots(objects: &[(ObjectId, TargetId)], replies: &[(Vec<usize>, (DataReply, u64))]) -> Boots {
    let each = replies.iter().flat_map(|(indices, (_, boot))| indices.iter().map(|&index| (index, *boot)));
    each.map(|(index, boot)| (objects[index].1, boot)).collect()
}

pub(crate) fn datafile(file: FileId, (object, target): (ObjectId, TargetId)) -> DatafileId {
    DatafileId { target, file, object }
}

pub(crate) fn only_done(replies: &[(Vec<usize>, (DataReply, u64))]) -> Result<(), Error> {
    match replies.iter().all(|(_, (reply, _))| *reply == DataReply::Done) {
        true => Ok(()),
        false => Err(odd_reply()),
    }
}

/// A server that answers another question than the one asked.
pub(crate) fn odd_reply() -> Error {
    Error::misuse(
        weft_wire::Errno::EPROTO,
        "a server's reply does not fit its request; use the same Weft everywhere",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_reply_is_no_success() {
        let reply = |item, reply| (vec![item], (reply, 1));
        assert!(only_done(&[reply(0, DataReply::Done)]).is_ok());
        assert!(only_done(&[reply(0, DataReply::Done), reply(1, DataReply::Written)]).is_err());
    }
}
