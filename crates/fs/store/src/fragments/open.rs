//! Opening a log: identity, recovery of the mapping, and formatting.
//!
//! # Recovery
//!
//! | found | action |
//! | --- | --- |
//! | empty directory | format a new log |
//! | clean shutdown, same boot | replay it |
//! | older boot, clean shutdown | replay it; drop copies, because the disk may have lost the original |
//! | no clean shutdown | verify unsealed payloads; replay without torn puts; drop clean entries |
//! | a durable frame is missing | fail with [`OpenLogError::Damaged`] |
//! | fallback journal of this log | replay that one instead; the log accepts no puts |
//! | fallback journal of another log | its dirty ranges become lost ranges of this log |
//!
//! Clean entries are dropped after a loss of power, because it may have undone a `Forget` and kept the disk's newer
//! bytes. An SSD can lose its cache while the machine runs on, so the same rules hold in the same boot.

use super::fallback_journal::{self, Health};
use super::filter::Filter;
use super::frame::FrameKey;
use super::identity::{self, BadIdentity, Identity};
use super::journal::{Commit, FILES, PAYLOADS_NUMBER};
use super::map::Map;
use super::piece::State as PieceState;
use super::replay::{self, Scan};
use super::segments::{Segments, check};
use super::{
    FragmentLog, LogSpec, Lost, OpenLogError, PAYLOADS, Recovered, SEGMENTS, Shared, State, StopOnDrop,
};
use crate::emulate::{self, Emulator};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use weft_core::DataClass;
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, LocalOffset};
use weft_env::device::DeviceAction;
use weft_env::{BlockingFile, Dir, Env, File, OpenMode};

const LOCK: &str = "lock";
const IDENTITY_NEW: &str = "weft-fragments.new";
/// Names that may exist without an identity file, left by an interrupted format.
const NAMES_BEFORE_IDENTITY: [&str; 6] = [LOCK, IDENTITY_NEW, SEGMENTS, FILES[0], FILES[1], "lost+found"];

/// Each journal file reserves this fraction of the payload capacity.
const JOURNAL_DIVISOR: u64 = 64;

/// Returns at most `limit` lost ranges.
pub(super) fn lost(map: &Map, limit: usize) -> Vec<Lost> {
    let keys = map.keys_from(None).filter(|(key, _)| map.is_lost(*key));
    let entries = keys.flat_map(|(key, _)| map.overlapping(key, ByteRange::ALL));
    let lost = entries.filter(|entry| entry.label.state == PieceState::Lost);
    lost.take(limit).map(|entry| Lost { key: entry.key, extent: entry.extent }).collect()
}

impl<E: Env> FragmentLog<E> {
    /// Opens the log and starts its background task. Formats the log if its directory is empty.
    ///
    /// # Errors
    /// See [`OpenLogError`].
    pub async fn open(env: &E, spec: &LogSpec) -> Result<(Self, Recovered), OpenLogError> {
        let opening = Opening { env, spec };
        let dir = env.dir(&spec.path).await.map_err(opening.io("open the fragment log"))?;
        let lock = match dir.lock(LOCK).await {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(OpenLogError::Locked { path: spec.path.clone() });
            }
            Err(error) => return Err(opening.io("lock the fragment log")(error)),
        };
        let target_dir = env.dir(&spec.target_path).await.map_err(opening.io("open the target"))?;
        let fallback = opening.read_fallback(&target_dir).await?;
        let (mut identity, version) = opening.identity(&dir).await?.unzip();
        // A log that failed earlier still has dirty bytes to write back.
        let mut failed = None;
        if let (Some(found), Some(fallback)) = (identity, &fallback)
            && found.log == fallback.identity.log
        {
            match fallback.map.bytes_dirty() {
                0 => {
                    dir.remove(identity::NAME).await.map_err(opening.io("format the fragment log again"))?;
                    identity = None;
                }
                _ => failed = Some(found),
            }
        }
        let mut is_new = identity.is_none();
        let mut identity = match identity {
            Some(identity) => {
                // A failed log takes no puts, so it keeps its version.
                if version != Some(identity::VERSION) && failed.is_none() {
                    opening.write_identity(&dir, &identity).await.map_err(opening.io("upgrade it"))?;
                }
                identity
            }
            None => {
                // A log that is being formatted again has left its payload directory.
                let names = dir.list("").await.map_err(opening.io("list it"))?;
                if spec.must_exist && fallback.is_none() && !names.iter().any(|name| name == SEGMENTS) {
                    let (path, target) = (spec.path.clone(), spec.target_path.clone());
                    return Err(OpenLogError::Gone { path, target });
                }
                opening.format(&dir).await?
            }
        };
        let device = spec.emulate.as_ref().map(|emulation| Emulator::new(env, emulation));
        let (payloads, journal, files, found) = loop {
            let mode = if failed.is_some() { OpenMode::READ } else { OpenMode::WRITE };
            let open = async |name: &str| {
                let file = dir.open(name, mode).await;
                file.map_err(opening.io("open a part of the fragment log"))
            };
            let payloads = open(PAYLOADS).await?;
            let journal = [open(FILES[0]).await?, open(FILES[1]).await?];
            let files = match (&failed, fallback.as_ref()) {
                (Some(_), Some(fallback)) => vec![fallback.journal.clone()],
                _ => {
                    let mut files = Vec::new();
                    for file in &journal {
                        let bytes = read_all(file, device.as_ref()).await;
                        files.push(bytes.map_err(opening.io("read the journal of the fragment log"))?);
                    }
                    files
                }
            };
            let key = FrameKey(identity.log);
            let found = opening.recover(&identity, &payloads, &files, key, device.as_ref()).await?;
            let is_empty = found.map.bytes_dirty() == 0 && found.map.lost == 0;
            if is_new
                || failed.is_some()
                || !is_empty
                || opening.sizes() == (identity.segments, identity.segment_len)
            {
                break (payloads, journal, files, found);
            }
            // The configuration has other sizes, and the disk has everything that is in this log.
            dir.remove(identity::NAME).await.map_err(opening.io("format the fragment log again"))?;
            (identity, is_new) = (opening.format(&dir).await?, true);
        };
        let key = FrameKey(identity.log);
        let Found { mut map, mut recovered, file, frame } = found;
        recovered.is_new = is_new;
        recovered.after_power_loss &= !is_new;
        if let (None, Some(fallback)) = (&failed, &fallback) {
            // Dirty bytes of the previous log went with its SSD.
            fallback.map.for_each_dirty(|key, extent| map.insert_lost(key, extent));
        }
        recovered.lost = lost(&map, usize::MAX);
        let mut allocated = [0; 2];
        if failed.is_none() {
            allocated = [files[0].len() as u64, files[1].len() as u64];
        }

        let size = u64::from(identity.segments) * u64::from(identity.segment_len);
        let spec = LogSpec {
            size: ByteLen(size),
            segment_len: ByteLen(u64::from(identity.segment_len)),
            ..spec.clone()
        };
        let capacity = map.segments.capacity().0;
        let shared = Shared {
            env: env.clone(),
            entries_max: (size / spec.entry_len.0.max(1)).max(1),
            spec,
            payloads,
            journal,
            fallback_journal: Mutex::new(None),
            identity,
            key,
            device,
            has_bytes: env.hollow(0).is_none(),
            filter: Filter::new(),
            state: Mutex::new(State {
                map,
                quotas: [capacity; DataClass::COUNT],
                pending: Vec::new(),
                lsn: 0,
                has_unsealed: true,
                unsynced_datafiles: BTreeMap::new(),
                syncing_datafiles: BTreeMap::new(),
                compact_from_lsn: 0,
                all_unsynced_lsn: 0,
                put: 0,
                evicted: 0,
                moved: 0,
            }),
            commit: Mutex::new(Commit {
                written: 0,
                written_frame: frame,
                durable: 0,
                durable_frame: frame,
                leading: false,
                syncing: false,
                file,
                offset: 0,
                copy_offset: None,
                allocated,
                checkpoint_len: 0,
                spare: Vec::new(),
                stop: false,
                task_running: true,
                checkpoints: 0,
            }),
            progress: env.notify(),
            work: env.notify(),
            health: Health::new(),
            lock: Mutex::new(Some(lock)),
        };
        shared.filter.update(&mut shared.state.lock().map);
        let shared = Arc::new(shared);
        let this = Self(Arc::clone(&shared), Some(Arc::new(StopOnDrop(shared))));
        if failed.is_some() {
            this.0.fail("", "it failed before", &io::ErrorKind::Other.into());
            let moved = this.ensure_journal().await;
            moved.map_err(|error| opening.io("note what the disk has")(io::Error::other(error)))?;
        } else {
            // Stale frames in the other file no longer matter, because the checkpoint overwrites it.
            let made = this.first_checkpoint(file).await;
            made.map_err(|error| {
                opening.io("write the journal of the fragment log")(io::Error::other(error))
            })?;
            // Not earlier: until now, unsealed puts could have replaced payloads in free segments.
            let free = this.0.state.lock().map.segments.free_and_used();
            this.discard_segments(&free).await;
            if fallback.is_some() {
                let removing = async {
                    target_dir.remove(fallback_journal::NAME).await?;
                    target_dir.sync("").await
                };
                removing.await.map_err(opening.io("remove the journal of the log that failed"))?;
            }
        }
        let task = Self(Arc::clone(&this.0), None);
        let spawned = env.spawn("weft-fragments", move || async move { task.run_task().await });
        spawned.map_err(opening.io("start the task of the fragment log"))?;
        Ok((this, recovered))
    }
}

struct Opening<'a, E: Env> {
    env: &'a E,
    spec: &'a LogSpec,
}

struct Found {
    map: Map,
    recovered: Recovered,
    /// Index of the journal file that was replayed.
    file: usize,
    /// A frame number at or above all numbers in both files.
    frame: u64,
}

/// A failed log, read from its fallback journal on the target's disk.
struct FallbackLog {
    identity: Identity,
    journal: Vec<u8>,
    map: Map,
}

impl<E: Env> Opening<'_, E> {
    fn io(&self, doing: &'static str) -> impl Fn(io::Error) -> OpenLogError + Copy {
        let path = &self.spec.path;
        move |source| OpenLogError::Io { path: path.clone(), doing, source }
    }

    fn damaged(&self, what: impl Into<String>) -> OpenLogError {
        OpenLogError::Damaged { path: self.spec.path.clone(), what: what.into() }
    }

    /// Returns the configured number and length of segments.
    fn sizes(&self) -> (u32, u32) {
        let len = self.spec.segment_len.0.clamp(u64::from(LogSpec::SEGMENT_LEN_MIN), 1 << 30);
        let count = (self.spec.size.0 / len).clamp(LogSpec::SEGMENTS_MIN, u64::from(u32::MAX) / 2);
        (count as u32, len as u32)
    }

    /// Reads and checks the identity file, and returns its version; `None` if there is none.
    async fn identity(&self, dir: &E::Dir) -> Result<Option<(Identity, u32)>, OpenLogError> {
        let file = match dir.open(identity::NAME, OpenMode::READ).await {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.io("open its identity file")(error)),
        };
        let mut bytes = [0; identity::LEN + 1];
        let got = file.read_at(&mut [IoSliceMut::new(&mut bytes)], LocalOffset(0)).await;
        let got = got.map_err(self.io("read its identity file"))?;
        let (found, version) = Identity::decode_with_version(&bytes[..got]).map_err(|bad| match bad {
            BadIdentity::Damaged(why) => self.damaged(format!("identity file {:?} ({why})", identity::NAME)),
            BadIdentity::Version(found) => {
                OpenLogError::Version { path: self.spec.path.clone(), found, known: identity::VERSION }
            }
        })?;
        let cluster = Identity::cluster_hash(&self.spec.cluster);
        if (found.target, found.cluster) == (self.spec.target, cluster) {
            return Ok(Some((found, version)));
        }
        let owner = match found.cluster == cluster {
            true => format!("{} of this cluster", found.target),
            false => format!("{} of another cluster", found.target),
        };
        let expected = format!("{} of cluster {:?}", self.spec.target, self.spec.cluster);
        Err(OpenLogError::Foreign { path: self.spec.path.clone(), found: owner, expected })
    }

    /// Reads the fallback journal that an earlier log left on the target's disk.
    async fn read_fallback(&self, target: &E::Dir) -> Result<Option<FallbackLog>, OpenLogError> {
        let file = match target.open(fallback_journal::NAME, OpenMode::READ).await {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.io("open the journal of the log that failed")(error)),
        };
        let doing = "read the journal of the log that failed";
        let mut journal = read_all::<E>(&file, None).await.map_err(self.io(doing))?;
        let damaged = |why| OpenLogError::Damaged {
            path: self.spec.target_path.clone(),
            what: format!("journal of a log that failed, {:?} ({why})", fallback_journal::NAME),
        };
        let head: Vec<u8> = journal.drain(..identity::LEN.min(journal.len())).collect();
        let identity = Identity::decode(&head).map_err(|bad| damaged(format!("{bad:?}")))?;
        let key = FrameKey(identity.log);
        let scan = replay::scan(&journal, key).ok_or_else(|| damaged("no complete checkpoint".to_owned()))?;
        let mut map = Map::new(Segments::new(identity.segments, identity.segment_len));
        let replayed = replay::replay(&journal, &scan, key, &BTreeSet::new(), &mut map);
        replayed.map_err(|why| damaged(why.to_owned()))?;
        Ok(Some(FallbackLog { identity, journal, map }))
    }

    async fn format(&self, dir: &E::Dir) -> Result<Identity, OpenLogError> {
        let spec = self.spec;
        let names = dir.list("").await.map_err(self.io("list it"))?;
        if let Some(found) = names.iter().find(|name| !NAMES_BEFORE_IDENTITY.contains(&name.as_str())) {
            return Err(OpenLogError::NotEmpty { path: spec.path.clone(), found: found.clone() });
        }
        let mut log = [0; 8];
        self.env.random(&mut log);
        let (segments, segment_len) = self.sizes();
        let identity = Identity {
            target: spec.target,
            cluster: Identity::cluster_hash(&spec.cluster),
            log: u64::from_le_bytes(log),
            segments,
            segment_len,
        };
        let formatting = async {
            dir.make_dir(SEGMENTS).await?;
            let payloads = dir.open(PAYLOADS, OpenMode::CREATE).await?;
            payloads.set_len(ByteLen(0)).await?;
            let allocated = payloads.blocking();
            allocated.allocate(ByteLen(u64::from(segments) * u64::from(segment_len)))?;
            allocated.wait_for_device().await;
            payloads.sync().await?;
            dir.sync(SEGMENTS).await?;
            for name in FILES {
                let file = dir.open(name, OpenMode::CREATE).await?;
                file.set_len(ByteLen(0)).await?;
                // Reserve space for the journal, so that other files on the same file system cannot take it.
                file.blocking().reserve(ByteLen(spec.size.0 / JOURNAL_DIVISOR))?;
                file.sync().await?;
            }
            let checkpoint = super::checkpoint::empty_checkpoint(self.env.boot(), FrameKey(identity.log));
            let file = dir.open(FILES[0], OpenMode::WRITE).await?;
            file.write_at(&[IoSlice::new(&checkpoint)], LocalOffset(0)).await?;
            file.sync().await?;
            dir.sync("").await?;
            self.write_identity(dir, &identity).await
        };
        formatting.await.map_err(self.io("format the fragment log"))?;
        Ok(identity)
    }

    /// Writes the identity file and makes it durable.
    async fn write_identity(&self, dir: &E::Dir, identity: &Identity) -> io::Result<()> {
        let file = dir.open(IDENTITY_NEW, OpenMode::CREATE).await?;
        file.set_len(ByteLen(0)).await?;
        file.write_at(&[IoSlice::new(&identity.encode())], LocalOffset(0)).await?;
        file.sync().await?;
        dir.rename(IDENTITY_NEW, identity::NAME).await?;
        dir.sync("").await
    }

    async fn recover(
        &self,
        identity: &Identity,
        payloads: &E::File,
        files: &[Vec<u8>],
        key: FrameKey,
        device: Option<&Emulator<E>>,
    ) -> Result<Found, OpenLogError> {
        let scans: Vec<Option<Scan>> = files.iter().map(|bytes| replay::scan(bytes, key)).collect();
        let best =
            (0..files.len()).filter_map(|file| scans[file].map(|scan| (scan.last, scan.number, file))).max();
        let Some((last, _, file)) = best else {
            return Err(self.damaged("journal (no complete checkpoint)"));
        };
        let scan = scans[file].expect("chosen");
        let (mut number, mut durable) = (last, 0);
        for (bytes, scan) in files.iter().zip(&scans) {
            let (later, proven) = replay::later(bytes, scan.map_or(0, |scan| scan.end), key);
            number = number.max(later);
            durable = durable.max(proven);
        }
        if durable > last {
            return Err(self.damaged(format!("journal at frame {}", last + 1)));
        }

        let has_booted = scan.boot != self.env.boot();
        let mut torn = BTreeSet::new();
        // An SSD that failed may have dropped payloads. Reading them reports it.
        let is_fallback = files.len() < FILES.len();
        if (has_booted || !scan.is_orderly && !is_fallback) && self.env.hollow(0).is_none() {
            for put in replay::unsealed(&files[file], &scan, key) {
                let location = put.location;
                let read = async {
                    let len = usize::try_from(put.extent.len()).map_err(io::Error::other)?;
                    let mut bytes = vec![0; len.min(identity.segment_len as usize)];
                    let offset = u64::from(location.segment) * u64::from(identity.segment_len)
                        + u64::from(location.position);
                    let in_flight = begin(device, DeviceAction::Read, PAYLOADS_NUMBER, offset, bytes.len());
                    let got =
                        payloads.read_at(&mut [IoSliceMut::new(&mut bytes)], LocalOffset(offset)).await?;
                    emulate::finish(in_flight).await;
                    Ok::<_, io::Error>(
                        got == bytes.len() && check(&bytes, location, put.generation) == put.check,
                    )
                };
                // In the same boot, an unreadable payload is no proof of a lost cache. Reading it reports the error.
                if !read.await.unwrap_or(!has_booted) {
                    torn.insert((location.segment, location.position));
                }
            }
        }
        // A killed process leaves its writes in the system's memory. But nothing proves that the SSD has not lost its cache
        // since the system wrote them there.
        let lost_memory = has_booted || !scan.is_orderly;
        let mut map = Map::new(Segments::new(identity.segments, identity.segment_len));
        let replayed = replay::replay(&files[file], &scan, key, &torn, &mut map);
        replayed.map_err(|what| self.damaged(format!("journal ({what})")))?;
        if lost_memory {
            // The loss of power, or of the SSD's cache, may have undone a `Forget`, so the disk may have newer bytes.
            map.drop_evictable(|state| state == PieceState::Copy || !scan.is_orderly);
        }
        let bytes = |count: fn(&super::map::ClassTotal) -> u64| ByteLen(map.classes.iter().map(count).sum());
        let recovered = Recovered {
            is_new: false,
            after_power_loss: lost_memory && !scan.is_orderly,
            entries: map.len(),
            dirty: bytes(|total| total.dirty),
            clean: bytes(|total| total.clean),
            torn: torn.len() as u64,
            lost: Vec::new(),
        };
        Ok(Found { map, recovered, file, frame: number })
    }
}

fn begin<E: Env>(
    device: Option<&Emulator<E>>,
    action: DeviceAction,
    file: u64,
    offset: u64,
    len: usize,
) -> Option<emulate::InFlight<E>> {
    device.map(|device| device.begin(&emulate::request(action, file, LocalOffset(offset), len)))
}

async fn read_all<E: Env>(file: &E::File, device: Option<&Emulator<E>>) -> io::Result<Vec<u8>> {
    let len = file.meta().await?.len.0;
    let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
    let in_flight = begin(device, DeviceAction::Read, PAYLOADS_NUMBER + 1, 0, bytes.len());
    let got = file.read_at(&mut [IoSliceMut::new(&mut bytes)], LocalOffset(0)).await?;
    emulate::finish(in_flight).await;
    bytes.truncate(got);
    Ok(bytes)
}
