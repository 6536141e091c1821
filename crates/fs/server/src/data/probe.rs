//! Probes: timed requests that measure a target, past its SSD tier.
//!
//! They go through admission like other requests. The datafile belongs to no file: the metadata service never assigns
//! its file id. It is removed with the connection that made it, and `weft fsck` finds one that a crash left.

use super::datafile_ops::require;
use super::{Counters, DataConnection, DataService, ServedTarget};
use weft_core::units::human_bytes;
use weft_core::{ByteLen, FileId, LocalOffset, Nanos, ObjectId, Reserve, TargetId};
use weft_env::Env;
use weft_store::datafile::DatafileKey;
use weft_store::target::DATAFILE_LEN_MAX;
use weft_wire::data::{DataReply, PAYLOAD_LEN_MAX, ProbeWork};
use weft_wire::{Errno, WireError};

/// File id that no file has.
const PROBE_FILE: FileId = FileId(u64::MAX);
/// Maximum time of one message, because the end of the server waits for it.
const PROBE_TIME_MAX: Nanos = Nanos::from_s(5);

/// A request to measure a target.
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
        require(connection.is_administrator(), "measure a target")?;
        let served = self.served(probe.target)?;
        let key = key_of(connection);
        let begun = self.env.now();
        let mut times = Vec::new();
        let target = served.tiered.target();
        match probe.work {
            ProbeWork::Make(len) => {
                if len.0 > DATAFILE_LEN_MAX {
                    return Err(WireError::new(Errno::EFBIG, "the length exceeds the maximum of a datafile"));
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

    /// Reads or writes at each offset, and returns the time of each.
    async fn probe_each(
        &self,
        connection: &DataConnection<E>,
        served: &ServedTarget<E>,
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
            return Err(WireError::new(Errno::EFBIG, "a request ends behind the last possible offset"));
        }
        let target = served.tiered.target();
        if is_write {
            let space = target.space().await.map_err(|error| self.failed(error))?;
            let wanted = ByteLen(u64::from(len) * probe.offsets.len() as u64);
            if let Some(shortage) = shortage(space.total, space.free, wanted) {
                return Err(WireError::new(Errno::ENOSPC, format!("{} {shortage}", probe.target)));
            }
        }
        let past = match probe.work {
            ProbeWork::WritePast => {
                Some(target.direct_writer(key).await.map_err(|error| self.failed(error))?)
            }
            _ => None,
        };
        let mut buf = self.pool.borrow(len as usize, connection.user).await;
        if is_write && self.env.hollow(1).is_none() {
            // Some devices do not store zeros.
            for (index, word) in buf.chunks_exact_mut(8).enumerate() {
                let mixed = (index as u64 ^ u64::from(len)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                word.copy_from_slice(&mixed.to_le_bytes());
            }
        }
        let end = self.env.now().saturating_add(probe.within.min(PROBE_TIME_MAX));
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
                    let detail = format!(
                        "the datafile for the measurement on {} was truncated or removed meanwhile",
                        probe.target
                    );
                    return Err(WireError::new(Errno::ESTALE, detail));
                }
            }
            times.push(self.env.now().saturating_sub(begun));
        }
        Ok(times)
    }

    /// Removes the datafiles that a connection made for measurements.
    pub(crate) async fn end_probes(&self, connection: &mut DataConnection<E>) {
        let key = key_of(connection);
        for target in std::mem::take(&mut connection.probed) {
            if let Ok(served) = self.served(target) {
                let _permit = served.admission.enter(connection.session).await;
                if let Err(error) = served.tiered.target().remove(key).await {
                    (self.hooks.log)(&format!("error: {error}"));
                }
            }
        }
    }
}

/// Explains why a file system of `total` bytes with `free` ones has no space for a measurement that writes `wanted`
/// bytes; `None` if it has. The usual [`Reserve`] stays free.
fn shortage(total: ByteLen, free: ByteLen, wanted: ByteLen) -> Option<String> {
    let reserve = Reserve::Usual.of(total);
    (free.0 < wanted.0.saturating_add(reserve.0)).then(|| {
        let [free, wanted, reserve] = [free, wanted, reserve].map(|len| human_bytes(len.0));
        format!("has {free} free, and a measurement of {wanted} must leave {reserve}: free some space")
    })
}

/// Datafile for the measurements of a session. Two sessions share one only if the low sixteen bits of their ids are
/// equal.
fn key_of<E: Env>(connection: &DataConnection<E>) -> DatafileKey {
    let column = connection.session.0 as u16;
    DatafileKey::new(PROBE_FILE, ObjectId { component: u16::MAX, column })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_leaves_the_reserve_free_however_large_the_disk_is() {
        let (total, wanted) = (ByteLen::from_mib(252 << 10), ByteLen::from_mib(64));
        assert_eq!(shortage(total, ByteLen::from_mib(1088), wanted), None);
        let refused = shortage(total, ByteLen::from_mib(1087), wanted).expect("too little");
        assert!(refused.contains("1.00 GiB") && refused.contains("64.0 MiB"), "{refused}");
        assert_eq!(
            shortage(ByteLen::from_mib(100), ByteLen::from_mib(66), wanted),
            None,
            "a fiftieth is 2 MiB"
        );
        assert!(shortage(ByteLen::from_mib(100), ByteLen::from_mib(65), wanted).is_some());
    }
}
