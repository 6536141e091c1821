//! Creation of a compressed datafile, and opening with recovery.

use super::chunks::Chunks;
use super::coder::Coder;
use super::header::{BadHeader, HEADER_BYTES, Header, HeaderedFile, VERSION};
use super::journal::{Journal, MapEnd};
use super::record::{Record, UNIT_BYTES};
use super::scan::{self, Missing, Scan, Torn};
use super::space::Space;
use super::{Compressed, MAP_SUFFIX, State};
use crate::content::{Fault, RawFile, Upkeep};
use crate::datafile::{DatafileKey, Names};
use crate::emulate::{Charge, ChargedFile};
use crate::range_lock::RangeLocks;
use parking_lot::Mutex;
use std::io::{self, IoSliceMut};
use std::sync::Arc;
use weft_core::ranges::RangeSet;
use weft_core::{ByteLen, Compression, LocalOffset};
use weft_env::mutants::{Mutant, is_seeded};
use weft_env::{Dir, Env, File, OpenMode};

/// Maximum number of bytes of a map read at once.
const READ_BYTES: usize = 1 << 20;

/// A datafile to create or open.
pub(crate) struct Spec<E: Env> {
    pub env: E,
    pub key: DatafileKey,
    pub names: Arc<Names<E>>,
    pub upkeep: Arc<Upkeep<E>>,
    pub reserve: Arc<super::MapReserve<E>>,
    pub cache: Arc<super::ChunkCache>,
    /// The container on the emulated device.
    pub container: Charge<E>,
    /// The map on the emulated device.
    pub map: Charge<E>,
}

/// Returns true if a file that has no map has no bytes that a program has written: it is empty, or lost its map with
/// power before it was ever synced.
///
/// # Errors
/// Errors of the device.
pub(crate) async fn is_blank<E: Env>(file: &RawFile<E>) -> io::Result<bool> {
    let mut bytes = [0; HEADER_BYTES];
    let got = file.read_bytes(LocalOffset(0), &mut bytes).await?;
    Ok(Header::decode(HeaderedFile::Container, &bytes[..got]) == Err(BadHeader::Missing))
}

async fn read_header<F: File>(container: &F) -> io::Result<Result<Header, BadHeader>> {
    let mut bytes = [0; HEADER_BYTES];
    let got = container.read_at(&mut [IoSliceMut::new(&mut bytes)], LocalOffset(0)).await?;
    Ok(Header::decode(HeaderedFile::Container, &bytes[..got]))
}

async fn read_all<E: Env>(file: &ChargedFile<E>) -> io::Result<Vec<u8>> {
    let len = file.file.meta().await?.len.0;
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < len {
        let at = bytes.len();
        bytes.resize(at + READ_BYTES.min(len as usize - at), 0);
        let got = file.read_at(&mut bytes[at..], LocalOffset(at as u64)).await?;
        bytes.truncate(at + got);
        if got == 0 {
            break;
        }
    }
    Ok(bytes)
}

fn version_error(found: u32) -> Fault {
    let why =
        format!("its map has format version {found}, this program knows {VERSION}: install a later Weft");
    Fault::Io(io::Error::new(io::ErrorKind::InvalidData, why))
}

impl<E: Env> Spec<E> {
    fn map_name(&self) -> String {
        self.key.name() + MAP_SUFFIX
    }

    fn new_pair(&self) -> u64 {
        let mut random = [0; 8];
        self.env.random(&mut random);
        u64::from_le_bytes(random)
    }
}

impl<E: Env> Compressed<E> {
    /// Creates a datafile, or makes one without bytes compressed. None of its files may be in use.
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn create(spec: &Spec<E>, compression: Compression) -> Result<Self, Fault> {
        let dir = spec.names.dir();
        let container = dir.open(&spec.key.name(), OpenMode::CREATE).await?;
        let container = ChargedFile { file: container, charge: spec.container.clone() };
        let map = dir.open(&spec.map_name(), OpenMode::CREATE).await?;
        let map = ChargedFile { file: map, charge: spec.map.clone() };
        // Bytes reach the container only after both headers. Until then, what an earlier datafile of this name left
        // does not count.
        map.set_len(ByteLen(0)).await?;
        container.set_len(ByteLen(0)).await?;
        let header = Header {
            key: spec.key,
            compression,
            pair: spec.new_pair(),
            boot: spec.env.boot(),
            progress: 0,
            frames: 0,
        };
        map.write_at(&header.encode(HeaderedFile::Map), LocalOffset(0)).await?;
        container.write_at(&header.encode(HeaderedFile::Container), LocalOffset(0)).await?;
        let end = MapEnd { len: HEADER_BYTES as u64, ..MapEnd::default() };
        let chunks = Chunks::new(compression.chunk_len());
        Ok(Self::from_parts(spec, &header, (container, map), chunks, Space::empty(), end))
    }

    /// Opens the datafile of `container`; `None` if it is not compressed.
    ///
    /// # Errors
    /// Errors of the device; a missing or damaged map.
    pub async fn open(spec: &Spec<E>, container: &E::File) -> Result<Option<Self>, Fault> {
        let boot = spec.env.boot();
        let beside = match read_header(container).await? {
            Ok(header) if header.key == spec.key => Some(header),
            Err(BadHeader::Version(found)) => return Err(version_error(found)),
            Ok(_) | Err(BadHeader::Missing | BadHeader::Foreign | BadHeader::Damaged(_)) => None,
        };
        let container_len = container.meta().await?.len.0;
        let was_synced = beside.is_some_and(|header| header.progress > 0);
        // A map that was never synced may be lost with power. Otherwise the medium, or an operator, has lost it.
        let is_lossy =
            !was_synced && beside.is_none_or(|header| header.boot != boot || container_len <= UNIT_BYTES);
        let map = match spec.names.dir().open(&spec.map_name(), OpenMode::WRITE).await {
            Ok(map) => ChargedFile { file: map, charge: spec.map.clone() },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return match beside {
                    None => Ok(None),
                    Some(header) if is_lossy => Self::create(spec, header.compression).await.map(Some),
                    Some(_) => Err(Fault::MapMissing),
                };
            }
            Err(error) => return Err(error.into()),
        };
        let bytes = read_all(&map).await?;
        let header = match Header::decode(HeaderedFile::Map, &bytes) {
            Ok(header) if header.key != spec.key => {
                return Err(Fault::MapDamaged("it belongs to another datafile"));
            }
            Ok(header) => header,
            // A failed write may leave a part of the header. Nothing was stored then, or nothing was synced.
            Err(bad) if !was_synced && (bad == BadHeader::Missing || bytes.len() < HEADER_BYTES) => {
                return match beside {
                    None => Ok(None),
                    Some(header) => Self::create(spec, header.compression).await.map(Some),
                };
            }
            Err(BadHeader::Missing) => return Err(Fault::MapDamaged("its header is missing")),
            Err(BadHeader::Foreign) => return Err(Fault::MapDamaged("it is no map")),
            Err(BadHeader::Damaged(why)) => return Err(Fault::MapDamaged(why)),
            Err(BadHeader::Version(found)) => return Err(version_error(found)),
        };
        if let Some(other) = beside
            && other.pair != header.pair
        {
            // The map of a datafile of the same name that was removed before the power was lost.
            return match other.progress == 0 && other.boot != boot {
                true => Self::create(spec, other.compression).await.map(Some),
                false => Err(Fault::MapDamaged("it belongs to another container")),
            };
        }
        let found = scan::scan(&header, &bytes).map_err(Fault::MapDamaged)?;
        let marked = beside.map_or(0, |header| header.progress);
        if found.last < marked {
            return Err(Fault::MapDamaged("frames at its end are missing"));
        }
        let is_unsealed = found.changed > found.sealed;
        // Bytes that this process has written are in the page cache at least. Simulated payloads may have no bytes.
        let is_verified = spec.upkeep.is_verified(spec.key) || spec.env.hollow(0).is_some();
        let torn = match is_unsealed && !is_verified && !is_seeded(Mutant::TornMapEntry) {
            true => torn_records(&header, &bytes, &found, container).await?,
            false => Torn::new(),
        };
        if !torn.is_empty() {
            spec.upkeep.note_torn(spec.key);
        }
        let replayed = scan::replay(&header, &bytes, &found, &torn).map_err(Fault::MapDamaged)?;
        let len_units = container_len.div_ceil(UNIT_BYTES);
        let space = Space::new(replayed.chunks.extents(), replayed.pending, len_units);
        let space = space.map_err(Fault::MapDamaged)?;
        let end = MapEnd {
            last: found.last,
            changed: found.changed,
            len: found.end as u64,
            sealed: found.sealed,
            durable: found.durable,
            // Records that do not count must be gone before their space is used again.
            needs_checkpoint: found.is_torn || !torn.is_empty() || is_unsealed && found.boot != boot,
            marked,
        };
        let has_work = end.needs_checkpoint || is_unsealed || replayed.chunks.overlay_size().1 > 0;
        let container = ChargedFile { file: container.clone(), charge: spec.container.clone() };
        let opened = Self::from_parts(spec, &header, (container, map), replayed.chunks, space, end);
        if has_work {
            opened.note_change(&mut opened.state.lock());
        }
        Ok(Some(opened))
    }

    fn from_parts(
        spec: &Spec<E>,
        header: &Header,
        (container, map): (ChargedFile<E>, ChargedFile<E>),
        chunks: Chunks,
        space: Space,
        end: MapEnd,
    ) -> Self {
        let env = &spec.env;
        let state = State {
            chunks,
            space,
            last: end.last,
            last_change: end.changed,
            unsettled_since: None,
            changed_at: env.tick(),
        };
        Self {
            env: env.clone(),
            key: spec.key,
            compression: header.compression,
            chunk_len: header.compression.chunk_len(),
            pair: header.pair,
            names: Arc::clone(&spec.names),
            upkeep: Arc::clone(&spec.upkeep),
            reserve: Arc::clone(&spec.reserve),
            cache: Arc::clone(&spec.cache),
            read_position: Mutex::default(),
            coder: Coder::new(env, header.compression.policy),
            container,
            locks: RangeLocks::new(env),
            folds: RangeLocks::new(env),
            journal: Journal::new(env, map, &end),
            state: Mutex::new(state),
        }
    }
}

/// Returns the records that are not sealed and do not count: their bytes are not on the disk, or a newer record has their
/// space.
async fn torn_records<F: File>(
    header: &Header,
    bytes: &[u8],
    found: &Scan,
    container: &F,
) -> Result<Torn, Fault> {
    let mut unsealed = Vec::new();
    let visited = scan::visit(header, bytes, found, |id, record| {
        let stored = match record {
            Record::Version { version, .. } => Some((version.extent(), version.stored, version.crc)),
            Record::Piece { piece, .. } => Some((piece.extent(), piece.len, piece.crc)),
            Record::Hole { .. } | Record::Zeros { .. } | Record::Length { .. } => None,
        };
        unsealed.extend(stored.filter(|_| id.0 > found.sealed).map(|stored| (id, stored)));
    });
    visited.map_err(Fault::MapDamaged)?;
    let (mut torn, mut buf, mut named) = (Torn::new(), Vec::new(), RangeSet::new());
    // The newest first. Space that was never sealed is used again at once, so that bytes may also match an older record
    // of another chunk, if both are the same. The older one was replaced, or its bytes are a part of the newer one's.
    for (id, (extent, len, crc)) in unsealed.into_iter().rev() {
        let range = extent.range();
        if named.gaps(range).next() != Some(range) {
            torn.insert(id, Missing::Replaced);
            named.insert(range);
            continue;
        }
        buf.resize(len as usize, 0);
        let got = container.read_at(&mut [IoSliceMut::new(&mut buf)], LocalOffset(extent.offset())).await?;
        if got < buf.len() || crc32c::crc32c(&buf) != crc {
            torn.insert(id, Missing::Lost);
        } else {
            named.insert(range);
        }
    }
    Ok(torn)
}
