//! Everything but reading and writing: lengths, syncing, removal, leases, listings.

use super::probe::Probe;
use super::{Counters, DataConnection, DataService, key};
use crate::audit;
use crate::connection::answer;
use crate::connections::Entry;
use crate::place::{Gate, Position};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weft_core::{ByteLen, Integrity, TargetId};
use weft_env::{Attachment, Env, Shared};
use weft_store::datafile::DatafileKey;
use weft_store::target::{DATAFILE_LEN_MAX, Module};
use weft_wire::data::{Damage, DataReply, DataRequest, DatafileId, DatafileMeta, SCRUB_LEN_MAX, Scrubbed};
use weft_wire::{Capability, Errno, Incoming, Kind, Link, Rights, WireError};

/// The most datafiles that one request may name, and one page of a listing hold.
const DATAFILES_MAX: usize = 4096;

fn check_count(count: usize) -> Result<(), WireError> {
    match count <= DATAFILES_MAX {
        true => Ok(()),
        false => {
            let detail = format!("{count} datafiles in one request, of at most {DATAFILES_MAX}");
            Err(WireError::new(Errno::EINVAL, detail))
        }
    }
}

impl<E: Env> DataService<E> {
    pub(super) async fn serve_other(
        &self,
        link: &mut Link<E::Conn>,
        entry: &Entry,
        connection: &mut DataConnection<E>,
        incoming: &Incoming,
        request: DataRequest,
    ) -> io::Result<()> {
        let audited = connection.origin.as_ref().and_then(|_| audit::of_data(&request, connection.is_server));
        let result = match request {
            DataRequest::Lease { datafile, cap, write } => {
                return self.lease(link, entry, connection, incoming, (datafile, cap, write)).await;
            }
            DataRequest::AttachShared { payload_len } => {
                return self.attach(link, entry, connection, incoming, payload_len).await;
            }
            DataRequest::GetLens { cap, datafiles } => self.lens(connection, cap, &datafiles).await,
            DataRequest::SetLens { cap, datafiles } => self.set_lens(connection, cap, &datafiles).await,
            DataRequest::Sync { cap, datafiles } => self.sync(connection, cap, &datafiles).await,
            DataRequest::Remove { datafiles } => self.remove(connection, &datafiles).await,
            DataRequest::Release { slots } => {
                self.leases.release(connection.id(), &slots);
                Ok(DataReply::Done)
            }
            DataRequest::RevokeLeases { target } => self.revoke(connection, target).await,
            DataRequest::Fence { cap, before_s, datafiles } => {
                self.fence(connection, cap, before_s, &datafiles).await
            }
            DataRequest::Watch { cap, datafiles } => self.watch(connection, cap, &datafiles).await,
            DataRequest::Changes { cap, watch, round } => self.changes(connection, cap, watch, round),
            DataRequest::Seal { cap, before_s, datafiles } => {
                self.seal(connection, cap, before_s, &datafiles).await
            }
            DataRequest::SetTimes { cap, mtime, datafiles } => {
                self.set_times(connection, cap, mtime, &datafiles).await
            }
            DataRequest::Punch { cap, extents } => self.punch(connection, cap, &extents).await,
            DataRequest::Seek { cap, datafiles, hole } => self.seek(connection, cap, &datafiles, hole).await,
            DataRequest::ListDatafiles { target, after, limit } => {
                let after = after.map(|(file, object)| DatafileKey::new(file, object));
                self.list(connection, target, after, limit as usize).await
            }
            DataRequest::Flush { target, from } => {
                let from = from.map(|(file, object, at)| (DatafileKey::new(file, object), at));
                self.flush(connection, target, from).await
            }
            DataRequest::Scrub { target, from, len } => {
                let from = from.map(|(file, object, at)| (DatafileKey::new(file, object), at));
                self.scrub(connection, target, from, len).await
            }
            DataRequest::Samples { run, from, limit } => self.samples(connection, run, from, limit as usize),
            DataRequest::Probe { target, work, len, offsets, within } => {
                let probe = Probe { target, work, len, offsets, within };
                self.probe(connection, probe).await
            }
            DataRequest::Read { .. } | DataRequest::ReadShared { .. } | DataRequest::Write { .. } => {
                Err(WireError::new(Errno::EPROTO, "a read with a payload"))
            }
        };
        if let (Some(what), Some(origin)) = (audited, &connection.origin) {
            origin.record(self.env.wall(), &what, result.as_ref().err());
        }
        answer(link, entry, incoming, &result.unwrap_or_else(DataReply::Failed)).await
    }

    /// Checks a capability for datafiles that all have to be parts of its file.
    pub(super) fn check_all(
        &self,
        connection: &mut DataConnection<E>,
        cap: &Capability,
        needed: Rights,
        datafiles: impl ExactSizeIterator<Item = DatafileId>,
    ) -> Result<(), WireError> {
        check_count(datafiles.len())?;
        connection.check(&self.secret, cap, cap.file, needed, self.env.wall())?;
        for datafile in datafiles {
            if datafile.file != cap.file {
                let detail =
                    format!("the capability for file {} does not hold for {}", cap.file, datafile.file);
                return Err(WireError::new(Errno::EACCES, detail));
            }
            self.served(datafile.target)?;
        }
        Ok(())
    }

    async fn lens(
        &self,
        connection: &mut DataConnection<E>,
        cap: Capability,
        datafiles: &[DatafileId],
    ) -> Result<DataReply, WireError> {
        self.check_all(connection, &cap, Rights::default(), datafiles.iter().copied())?;
        let mut found = Vec::with_capacity(datafiles.len());
        for &datafile in datafiles {
            let served = self.served(datafile.target)?;
            self.check_seal(served, &cap)?;
            let meta = served.placed.meta(key(datafile)).await;
            let meta = self.unless_moved(served, &cap, meta)?;
            let cached = served.placed.cached(key(datafile)).unwrap_or_default();
            let keeps_nothing = served.placed.target().module() == Module::Null;
            let missing = DatafileMeta { keeps_nothing, ..DatafileMeta::default() };
            found.push(meta.map_or(missing, |meta| DatafileMeta {
                len: meta.len,
                blocks_512: meta.blocks_512,
                mtime: Some(meta.mtime),
                ssd_dirty: cached.dirty,
                ssd_clean: cached.clean,
                keeps_nothing,
            }));
        }
        Ok(DataReply::Lens(found))
    }

    async fn set_lens(
        &self,
        connection: &mut DataConnection<E>,
        cap: Capability,
        datafiles: &[(DatafileId, ByteLen)],
    ) -> Result<DataReply, WireError> {
        self.check_all(connection, &cap, Rights::WRITE, datafiles.iter().map(|&(datafile, _)| datafile))?;
        if let Some((datafile, len)) = datafiles.iter().find(|(_, len)| len.0 > DATAFILE_LEN_MAX) {
            let detail = format!("{len} bytes are more than datafile {} can have", datafile.object);
            return Err(WireError::new(Errno::EFBIG, detail));
        }
        let _inside = connection.place(&self.insiders).enter(cap.file);
        for &(datafile, len) in datafiles {
            let served = self.served(datafile.target)?;
            self.check_fence(served, &cap)?;
            // An extension changes nothing behind the old end but the length, which is asked for.
            let _changing = self.watches.changing(datafile, len.0, u64::MAX);
            Counters::add(&served.counters.requests, 1);
            let gate = Gate { admission: &served.admission, session: connection.session };
            if len.0 > 0 {
                let prepared = served.placed.prepare(key(datafile), cap.rights.integrity()).await;
                prepared.map_err(|error| self.failed(error))?;
            }
            served.placed.set_len(key(datafile), len, gate).await.map_err(|error| self.failed(error))?;
        }
        Ok(DataReply::Done)
    }

    async fn fence(
        &self,
        connection: &mut DataConnection<E>,
        cap: Capability,
        before_s: u64,
        datafiles: &[DatafileId],
    ) -> Result<DataReply, WireError> {
        self.check_all(connection, &cap, Rights::WRITE, datafiles.iter().copied())?;
        for datafile in datafiles {
            self.check_seal(self.served(datafile.target)?, &cap)?;
        }
        if before_s > cap.expires_s {
            let detail = format!("a fence for file {} that its own capability does not pass", cap.file);
            return Err(WireError::new(Errno::EINVAL, detail));
        }
        for datafile in datafiles {
            self.served(datafile.target)?.placed.target().fence(cap.file, before_s).await;
        }
        self.wait_for_insiders(&cap, datafiles).await
    }

    /// From here on nobody new passes who must not; those who passed before are waited for.
    pub(super) async fn wait_for_insiders(
        &self,
        cap: &Capability,
        datafiles: &[DatafileId],
    ) -> Result<DataReply, WireError> {
        for &datafile in datafiles {
            let stuck = self.leases.revoke_datafile(datafile, self.limits.revoke_timeout).await;
            self.note_stuck(stuck);
        }
        if !self.insiders.wait(&self.env, cap.file, self.limits.stall_timeout).await {
            let detail = format!("server {:?}: a write of file {} does not end", self.name, cap.file);
            return Err(WireError::new(Errno::EIO, detail));
        }
        Ok(DataReply::Done)
    }

    async fn sync(
        &self,
        connection: &mut DataConnection<E>,
        cap: Capability,
        datafiles: &[DatafileId],
    ) -> Result<DataReply, WireError> {
        self.check_all(connection, &cap, Rights::default(), datafiles.iter().copied())?;
        for &datafile in datafiles {
            let served = self.served(datafile.target)?;
            self.check_seal(served, &cap)?;
            Counters::add(&served.counters.requests, 1);
            let gate = Gate { admission: &served.admission, session: connection.session };
            let synced = served.placed.sync(key(datafile), gate).await;
            self.unless_moved(served, &cap, synced)?;
        }
        Ok(DataReply::Done)
    }

    async fn remove(
        &self,
        connection: &DataConnection<E>,
        datafiles: &[DatafileId],
    ) -> Result<DataReply, WireError> {
        must(connection.is_server || connection.is_administrator(), "remove datafiles")?;
        check_count(datafiles.len())?;
        let mut removed: BTreeMap<TargetId, Vec<DatafileKey>> = BTreeMap::new();
        for &datafile in datafiles {
            let served = self.served(datafile.target)?;
            Counters::add(&served.counters.requests, 1);
            removed.entry(datafile.target).or_default().push(key(datafile));
            if connection.is_server {
                // An administrator may remove a part of a file that lives on.
                served.placed.target().bury(key(datafile)).await;
                self.watches.end(datafile.file);
            }
            let stuck = self.leases.revoke_datafile(datafile, self.limits.revoke_timeout).await;
            self.note_stuck(stuck);
            let gate = Gate { admission: &served.admission, session: connection.session };
            served.placed.remove(key(datafile), gate).await.map_err(|error| self.failed(error))?;
        }
        // Nobody remembers them when this is answered: what came back after a loss of power would stay.
        for (target, keys) in removed {
            let served = self.served(target)?;
            let _permit = served.admission.enter(connection.session).await;
            served.placed.sync_removals(&keys).await.map_err(|error| self.failed(error))?;
        }
        Ok(DataReply::Done)
    }

    async fn revoke(
        &self,
        connection: &DataConnection<E>,
        target: weft_core::TargetId,
    ) -> Result<DataReply, WireError> {
        must(connection.is_administrator(), "take leases back")?;
        self.served(target)?;
        let stuck = self.leases.revoke_target(target, self.limits.revoke_timeout).await;
        self.note_stuck(stuck);
        Ok(DataReply::Done)
    }

    async fn flush(
        &self,
        connection: &DataConnection<E>,
        target: weft_core::TargetId,
        from: Option<Position>,
    ) -> Result<DataReply, WireError> {
        must(connection.is_server || connection.is_administrator(), "have a target written back")?;
        let served = self.served(target)?;
        let (step, dirty) = served.placed.flush(from).await.map_err(|error| self.failed(error))?;
        let next = step.next.map(|(key, at)| (key.file, key.object, at));
        Ok(DataReply::Flushed { next, written: step.written, dirty })
    }

    async fn list(
        &self,
        connection: &DataConnection<E>,
        target: weft_core::TargetId,
        after: Option<DatafileKey>,
        limit: usize,
    ) -> Result<DataReply, WireError> {
        must(connection.is_server || connection.is_administrator(), "list datafiles")?;
        let served = self.served(target)?;
        let limit = limit.clamp(1, DATAFILES_MAX);
        let found = served.placed.list(after, limit).await.map_err(|error| self.failed(error))?;
        Ok(DataReply::Datafiles(found.into_iter().map(|(key, len)| (key.file, key.object, len)).collect()))
    }

    async fn scrub(
        &self,
        connection: &DataConnection<E>,
        target: weft_core::TargetId,
        from: Option<(DatafileKey, weft_core::LocalOffset)>,
        len: u32,
    ) -> Result<DataReply, WireError> {
        must(connection.is_server || connection.is_administrator(), "verify what lies on a target")?;
        let served = self.served(target)?;
        let gate = Gate { admission: &served.admission, session: connection.session };
        let _permit = served.placed.enter(gate).await;
        let budget = ByteLen(len.clamp(1, SCRUB_LEN_MAX).into());
        let step = served.placed.target().scrub(from, budget).await.map_err(|error| self.failed(error))?;
        let damaged = step.damaged.iter().map(|damage| Damage {
            file: damage.key.file,
            object: damage.key.object,
            start: damage.start,
            end: damage.end,
        });
        Ok(DataReply::Scrubbed(Scrubbed {
            next: step.next.map(|(key, at)| (key.file, key.object, at)),
            verified: step.verified,
            checked: step.checked,
            unchecked: step.unchecked.iter().map(|key| (key.file, key.object)).collect(),
            damaged: damaged.collect(),
        }))
    }

    fn samples(
        &self,
        connection: &DataConnection<E>,
        run: u64,
        from: u64,
        limit: usize,
    ) -> Result<DataReply, WireError> {
        must(connection.is_server || connection.is_administrator(), "see samples of requests")?;
        let samples = self.sampler.as_ref().map(|sampler| sampler.read(run, from, limit));
        Ok(DataReply::Samples(samples.unwrap_or_default()))
    }

    async fn attach(
        &self,
        link: &mut Link<E::Conn>,
        entry: &Entry,
        connection: &mut DataConnection<E>,
        incoming: &Incoming,
        wanted: u32,
    ) -> io::Result<()> {
        let areas = self.areas(connection, entry, wanted);
        let (payload, leases) = match areas {
            Ok(areas) if incoming.header.kind == Kind::Request => areas,
            Ok(_) => return Ok(()),
            Err(error) => return answer(link, entry, incoming, &DataReply::Failed(error)).await,
        };
        let payload_len = payload.as_ref().map_or(0, |area| area.len() as u32);
        let attachments: Vec<_> = payload.into_iter().chain([leases]).map(Attachment::Shared).collect();
        let reply = DataReply::Attached { payload_len };
        let header = &incoming.header;
        entry.expect_peer();
        link.send_attached(Kind::Reply, header.family, header.request, &reply, &attachments).await
    }

    /// The payload area, if there is memory for one, and the lease page of a connection.
    fn areas(
        &self,
        connection: &mut DataConnection<E>,
        entry: &Entry,
        wanted: u32,
    ) -> Result<(Option<E::Shared>, E::Shared), WireError> {
        if !connection.local {
            let detail = "shared memory needs a Unix socket: the client is not on this server's node";
            return Err(WireError::new(Errno::EOPNOTSUPP, detail));
        }
        if std::mem::replace(&mut connection.attached, true) {
            return Err(WireError::new(Errno::EBUSY, "this connection has its shared areas already"));
        }
        let len = u64::from(wanted).min(self.limits.shared_payload_max.0) as usize;
        if len > 0 {
            connection.payload_area = self.payload_area(len, connection.user);
        }
        let leases = self.leases.attach(connection.id(), Arc::clone(&entry.closer))?;
        Ok((connection.payload_area.clone(), leases))
    }

    /// A payload area of `len` bytes, where there is memory for it within the share of `user`.
    fn payload_area(&self, len: usize, user: Option<u32>) -> Option<E::Shared> {
        let share = self.limits.shared_of_user().0;
        let mut by_user = user.map(|uid| (uid, self.shared_by_user.lock()));
        if let Some((uid, by_user)) = &by_user
            && (by_user.get(uid).copied().unwrap_or(0) + len) as u64 > share
        {
            return None;
        }
        let max = self.limits.shared_memory_max.0;
        let fits = |used: usize| Some(used + len).filter(|&used| used as u64 <= max);
        self.shared_memory.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        let area = self.env.shared(len).ok();
        // The area is rounded up to whole pages.
        let area_len = area.as_ref().map_or(0, Shared::len);
        self.shared_memory.fetch_add(area_len.wrapping_sub(len), Ordering::Relaxed);
        if let Some((uid, by_user)) = &mut by_user
            && area_len > 0
        {
            *by_user.entry(*uid).or_default() += area_len;
        }
        area
    }

    async fn lease(
        &self,
        link: &mut Link<E::Conn>,
        entry: &Entry,
        connection: &mut DataConnection<E>,
        incoming: &Incoming,
        wanted: (DatafileId, Capability, bool),
    ) -> io::Result<()> {
        let header = &incoming.header;
        match self.lend(connection, wanted).await {
            Err(error) => answer(link, entry, incoming, &DataReply::Failed(error)).await,
            Ok(None) => answer(link, entry, incoming, &DataReply::NotLeased).await,
            Ok(Some((slot, _))) if wanted.2 && self.watches.has(wanted.0) => {
                // Looked at after it was granted: a watch takes back what it finds.
                self.leases.release(connection.id(), &[slot]);
                answer(link, entry, incoming, &DataReply::LentToNobody).await
            }
            Ok(Some((slot, _))) if header.kind != Kind::Request => {
                self.leases.release(connection.id(), &[slot]);
                Ok(())
            }
            Ok(Some((slot, file))) => {
                entry.expect_peer();
                let (reply, file) = (DataReply::Leased { slot }, [Attachment::File(file)]);
                link.send_attached(Kind::Reply, header.family, header.request, &reply, &file).await
            }
        }
    }

    async fn lend(
        &self,
        connection: &mut DataConnection<E>,
        (datafile, cap, write): (DatafileId, Capability, bool),
    ) -> Result<Option<(u32, E::File)>, WireError> {
        let needed = if write { Rights::WRITE } else { Rights::READ };
        connection.check(&self.secret, &cap, datafile.file, needed, self.env.wall())?;
        let served = self.served(datafile.target)?;
        // A writable descriptor can be read through.
        let readable = !write || cap.rights.allow(Rights::READ);
        // What goes past the server is in no sample.
        let lends = served.leases && served.placed.bridge().is_none() && self.sampler.is_none();
        if !lends || !connection.local || !connection.attached || !readable {
            return Ok(None);
        }
        // Nothing takes a descriptor back from a process that keeps it: see `WritableLeases`.
        if write && !connection.leases_writable {
            return Ok(None);
        }
        let target = served.placed.target();
        if target.integrity_of(cap.rights.integrity()) != Integrity::Off {
            return Ok(None);
        }
        let file = target.file_to_lend(key(datafile), write).await;
        let Some(file) = file.map_err(|error| self.failed(error))? else { return Ok(None) };
        let slot = self.leases.grant(connection.id(), datafile);
        // Looked at after it was granted: a fence takes back what it finds.
        let checked = if write { self.check_fence(served, &cap) } else { self.check_seal(served, &cap) };
        if let Err(error) = checked {
            self.leases.release(connection.id(), slot.as_slice());
            return Err(error);
        }
        Ok(slot.map(|slot| (slot, file)))
    }
}

pub(super) fn must(allowed: bool, what: &str) -> Result<(), WireError> {
    match allowed {
        true => Ok(()),
        false => Err(WireError::new(Errno::EPERM, format!("only servers and administrators may {what}"))),
    }
}
