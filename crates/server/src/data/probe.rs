//! Requests that measure a target: on a datafile of the session's own, past the SSD beside it, timed here.
//!
//! They take their turns with everybody else's. The datafile is of no file: it has an id that the metadata service gives
//! to none, goes with the connection that made it, and what a crash leaves behind `weft fsck` finds.

use super::many::must;
use super::{Counters, DataConnection, DataService, Served};
use weft_core::{ByteLen, FileId, LocalOffset, Nanos, ObjectId, TargetId};
use weft_env::Env;
use weft_store::datafile::DatafileKey;
use weft_store::target::DATAFILE_LEN_MAX;
use weft_wire::data::{DataReply, PAYLOAD_LEN_MAX, ProbeWork};
use weft_wire::{Errno, WireError};

/// The id of no file.
const FILE: FileId = FileId(u64::MAX);
/// Longest time that one message may measure: a server that is told to end waits for it.
const WITHIN_MAX: Nanos = Nanos::from_s(5);
/// Of a target's file system so much stays free, one part in so many.
const STAYS_FREE: u64 = 20;

/// What to measure.
pub(super) struct Probe {
    pub target: TargetId,
    pub work: ProbeWork,
    pub len: u32,
    pub offsets: Vec<LocalOffset>,
    pub within: Nanos,
}

impl<E: Env> DataService<E> {
    pub(super) async fn probe(
        &self,
        connection: &mut DataConnection<E>,
        probe: Probe,
    ) -> Result<DataReply, WireError> {
        must(connection.is_administrator(), "measure a target")?;
        let served = self.served(probe.target)?;
        let key = key_of(connection);
        let begun = self.env.now();
        let mut times = Vec::new();
        let target = served.placed.target();
        match probe.work {
            ProbeWork::Make(len) => {
                if len.0 > DATAFILE_LEN_MAX {
                    return Err(WireError::new(Errno::EFBIG, "a datafile cannot be so long"));
                }
                connection.probed.insert(probe.target);
                let _permit = served.admission.enter(connection.session).await;
                target.set_len(key, len).await.map_err(|error| self.failed(error))?;
            }
            ProbeWork::Read | ProbeWork::Write | ProbeWork::WritePast => {
                times = self.probe_each(connection, served, key, &probe).await?;
            }
            ProbeWork::Sync => {
                let _permit = served.admission.enter(connection.session).await;
                target.sync(key).await.map_err(|error| self.failed(error))?;
            }
            ProbeWork::Forget => target.forget(key).await.map_err(|error| self.failed(error))?,
            ProbeWork::Remove => {
                let _permit = served.admission.enter(connection.session).await;
                target.remove(key).await.map_err(|error| self.failed(error))?;
                connection.probed.remove(&probe.target);
            }
        }
        Ok(DataReply::Probed { times, elapsed: self.env.now().saturating_sub(begun) })
    }

    /// Reads or writes at each offset; what each took.
    async fn probe_each(
        &self,
        connection: &DataConnection<E>,
        served: &Served<E>,
        key: DatafileKey,
        probe: &Probe,
    ) -> Result<Vec<Nanos>, WireError> {
        let (len, is_write) = (probe.len, probe.work != ProbeWork::Read);
        if len == 0 || len > PAYLOAD_LEN_MAX {
            let detail = format!("{len} bytes in one request, of 1 to {PAYLOAD_LEN_MAX}");
            return Err(WireError::new(Errno::EINVAL, detail));
        }
        let fits = |at: &LocalOffset| at.0.checked_add(len.into()).is_some_and(|end| end <= DATAFILE_LEN_MAX);
        if !probe.offsets.iter().all(fits) {
            return Err(WireError::new(Errno::EFBIG, "a request ends past the last offset"));
        }
        let target = served.placed.target();
        if is_write {
            let space = target.space().await.map_err(|error| self.failed(error))?;
            let wanted = ByteLen(u64::from(len) * probe.offsets.len() as u64);
            if space.free.0 < wanted.0 + space.total.0 / STAYS_FREE {
                let detail = format!("{} has too little room to be measured", probe.target);
                return Err(WireError::new(Errno::ENOSPC, detail));
            }
        }
        let past = match probe.work {
            ProbeWork::WritePast => Some(target.past(key).await.map_err(|error| self.failed(error))?),
            _ => None,
        };
        let mut buf = self.pool.borrow(len as usize, connection.user).await;
        if is_write && self.env.hollow(1).is_none() {
            // Not all zeros, which some devices do not store.
            for (index, word) in buf.chunks_exact_mut(8).enumerate() {
                let mixed = (index as u64 ^ u64::from(len)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                word.copy_from_slice(&mixed.to_le_bytes());
            }
        }
        let end = self.env.now().saturating_add(probe.within.min(WITHIN_MAX));
        let mut times = Vec::with_capacity(probe.offsets.len());
        for &offset in &probe.offsets {
            let _permit = served.admission.enter(connection.session).await;
            let begun = self.env.now();
            if begun >= end {
                break;
            }
            Counters::add(&served.counters.requests, 1);
            if is_write {
                let written = match &past {
                    Some(past) => past.write(offset, &buf).await,
                    None => target.write(key, offset, &buf).await,
                };
                written.map_err(|error| self.failed(error))?;
                Counters::add(&served.counters.bytes_written, len.into());
            } else {
                let read = target.read(key, offset, &mut buf[..len as usize]).await;
                let (got, _) = read.map_err(|error| self.failed(error))?;
                Counters::add(&served.counters.bytes_read, got as u64);
                if got < len as usize {
                    let detail = format!("what is measured on {} was taken away meanwhile", probe.target);
                    return Err(WireError::new(Errno::ESTALE, detail));
                }
            }
            times.push(self.env.now().saturating_sub(begun));
        }
        Ok(times)
    }

    /// Takes away what a connection has measured on and left.
    pub(crate) async fn end_probes(&self, connection: &mut DataConnection<E>) {
        let key = key_of(connection);
        for target in std::mem::take(&mut connection.probed) {
            if let Ok(served) = self.served(target) {
                let _permit = served.admission.enter(connection.session).await;
                if let Err(error) = served.placed.target().remove(key).await {
                    (self.hooks.log)(&error.to_string());
                }
            }
        }
    }
}

/// Sessions that measure at the same time have datafiles of their own, as far as sixteen bits tell them apart.
fn key_of<E: Env>(connection: &DataConnection<E>) -> DatafileKey {
    let column = connection.session.0 as u16;
    DatafileKey::new(FILE, ObjectId { component: u16::MAX, column })
}
