//! Chunks of a datafile in memory: the result of its records.
//!
//! A chunk is a stack: a version at the bottom, or nothing, and layers over it, the newest on top. A layer is a piece
//! or zeros. Bytes that nothing covers are zeros. All layers of a datafile are its *overlay*.

use super::record::{Extent, Piece, Record, UNIT_BYTES, Version};
use std::collections::BTreeMap;
use std::ops::Range;
use weft_core::ranges::{ByteRange, RangeSet};
use weft_env::mutants::{Mutant, is_seeded};

/// A part of a chunk that is newer than its version and the layers below it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layer {
    /// Stored bytes.
    Piece(Piece),
    /// Zeros.
    Zeros {
        /// First byte within the chunk.
        start: u32,
        /// One past the last byte.
        end: u32,
    },
}

impl Layer {
    /// Returns the first byte within the chunk.
    pub const fn start(&self) -> u32 {
        match self {
            Self::Piece(piece) => piece.start,
            Self::Zeros { start, .. } => *start,
        }
    }

    /// Returns one past the last byte within the chunk.
    pub const fn end(&self) -> u32 {
        match self {
            Self::Piece(piece) => piece.end(),
            Self::Zeros { end, .. } => *end,
        }
    }

    /// Returns the range within the chunk.
    pub fn range(&self) -> ByteRange {
        ByteRange::new(self.start().into(), self.end().into()).expect("layers are not empty")
    }
}

/// Version and layers of a chunk.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Chunk {
    /// Bytes at the bottom.
    pub version: Option<Version>,
    /// Newer parts, the oldest first.
    pub layers: Vec<Layer>,
}

impl Chunk {
    /// Returns one past the last byte that anything covers.
    pub fn end(&self) -> u32 {
        let layers = self.layers.iter().map(Layer::end);
        layers.chain(self.version.map(|version| version.len)).max().unwrap_or(0)
    }

    /// Returns true if layers cover all of `range`.
    pub fn is_covered(&self, range: ByteRange) -> bool {
        let covered: RangeSet = self.layers.iter().map(Layer::range).collect();
        covered.contains(range)
    }

    /// Returns the bytes that are not zeros, as far as the map knows.
    pub fn data(&self) -> RangeSet {
        let mut data = RangeSet::new();
        if let Some(version) = self.version
            && let Some(range) = ByteRange::new(0, version.len.into())
        {
            data.insert(range);
        }
        for layer in &self.layers {
            match layer {
                Layer::Piece(_) => data.insert(layer.range()),
                Layer::Zeros { .. } => data.remove(layer.range()),
            };
        }
        data
    }

    /// Returns the extents of all stored bytes.
    pub fn extents(&self) -> impl Iterator<Item = Extent> + '_ {
        let version = self.version.iter().map(Version::extent);
        version.chain(self.layers.iter().filter_map(extent_of))
    }
}

fn extent_of(layer: &Layer) -> Option<Extent> {
    match layer {
        Layer::Piece(piece) => Some(piece.extent()),
        Layer::Zeros { .. } => None,
    }
}

/// Chunks of a datafile. Versions take about 40 bytes of memory each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chunks {
    chunk_len: u64,
    len: u64,
    versions: BTreeMap<u64, Version>,
    overlay: BTreeMap<u64, Vec<Layer>>,
    layers: u64,
    overlay_units: u64,
    stored_units: u64,
}

impl Chunks {
    /// Returns an empty datafile with chunks of `chunk_len` bytes.
    pub const fn new(chunk_len: u64) -> Self {
        Self {
            chunk_len,
            len: 0,
            versions: BTreeMap::new(),
            overlay: BTreeMap::new(),
            layers: 0,
            overlay_units: 0,
            stored_units: 0,
        }
    }

    /// Returns the length of the datafile in bytes.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Makes the datafile at least `len` bytes long.
    pub fn reach(&mut self, len: u64) {
        self.len = self.len.max(len);
    }

    /// Returns the number of records that describe the datafile.
    pub fn live_records(&self) -> u64 {
        1 + self.versions.len() as u64 + self.layers
    }

    /// Returns the number of bytes that the overlay occupies, and the number of chunks that it touches.
    pub fn overlay_size(&self) -> (u64, u64) {
        (self.overlay_units * UNIT_BYTES, self.overlay.len() as u64)
    }

    /// Returns the number of bytes that all stored bytes occupy.
    pub const fn stored(&self) -> u64 {
        self.stored_units * UNIT_BYTES
    }

    /// Returns a chunk; an empty one for a hole.
    pub fn get(&self, chunk: u64) -> Chunk {
        let layers = self.overlay.get(&chunk).cloned().unwrap_or_default();
        Chunk { version: self.versions.get(&chunk).copied(), layers }
    }

    /// Returns the version of a chunk that has no layers; `None` if it has layers.
    pub fn bare(&self, chunk: u64) -> Option<Option<Version>> {
        (!self.overlay.contains_key(&chunk)).then(|| self.versions.get(&chunk).copied())
    }

    /// Returns true if nothing is stored of a chunk.
    pub fn is_hole(&self, chunk: u64) -> bool {
        !self.versions.contains_key(&chunk) && !self.overlay.contains_key(&chunk)
    }

    /// Returns the first chunk at or behind `from` that is not a hole.
    pub fn next_stored(&self, from: u64) -> Option<u64> {
        let version = self.versions.range(from..).next().map(|(&chunk, _)| chunk);
        let layers = self.next_overlaid(from);
        version.into_iter().chain(layers).min()
    }

    /// Returns the first chunk at or behind `from` that has layers.
    pub fn next_overlaid(&self, from: u64) -> Option<u64> {
        self.overlay.range(from..).next().map(|(&chunk, _)| chunk)
    }

    /// Returns the extents of all stored bytes.
    pub fn extents(&self) -> impl Iterator<Item = Extent> + '_ {
        let versions = self.versions.values().map(Version::extent);
        versions.chain(self.overlay.values().flatten().filter_map(extent_of))
    }

    /// Returns the records that describe the datafile.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let versions = self.versions.iter().map(|(&chunk, &version)| Record::Version { chunk, version });
        let layers = self.overlay.iter().flat_map(|(&chunk, layers)| {
            layers.iter().map(move |layer| match *layer {
                Layer::Piece(piece) => Record::Piece { chunk, piece },
                Layer::Zeros { start, end } => Record::Zeros { chunk, start, len: end - start },
            })
        });
        versions.chain(layers).chain([Record::Length { len: self.len }])
    }

    /// Applies a record, and appends the extents that it frees to `freed`.
    pub fn apply(&mut self, record: &Record, freed: &mut Vec<Extent>) {
        match *record {
            Record::Version { chunk, version } => {
                let before = freed.len();
                self.clear(chunk..chunk + 1, freed);
                // The raw bytes of a chunk may become its version where they are.
                let kept = freed[before..].iter().position(|extent| extent.at == version.at);
                if let Some(kept) = kept {
                    freed.swap_remove(before + kept);
                }
                self.stored_units += version.units();
                self.versions.insert(chunk, version);
            }
            Record::Hole { chunk, count } => self.clear(chunk..chunk + count, freed),
            Record::Piece { chunk, piece } => self.push_piece(chunk, piece, freed),
            Record::Zeros { chunk, start, len } => self.push_zeros(chunk, start, start + len, freed),
            Record::Length { len } => self.set_len(len, freed),
        }
        self.len = self.len.max(record.len_min(self.chunk_len));
    }

    /// Makes chunks holes.
    fn clear(&mut self, chunks: Range<u64>, freed: &mut Vec<Extent>) {
        let before = freed.len();
        while let Some((&chunk, _)) = self.versions.range(chunks.clone()).next() {
            let version = self.versions.remove(&chunk).expect("found");
            freed.push(version.extent());
        }
        while let Some((&chunk, _)) = self.overlay.range(chunks.clone()).next() {
            let layers = self.overlay.remove(&chunk).expect("found");
            self.layers -= layers.len() as u64;
            let extents = layers.iter().filter_map(extent_of);
            self.overlay_units -= extents.clone().map(|extent| extent.units).sum::<u64>();
            freed.extend(extents);
        }
        self.stored_units -= freed[before..].iter().map(|extent| extent.units).sum::<u64>();
    }

    fn push_piece(&mut self, chunk: u64, piece: Piece, freed: &mut Vec<Extent>) {
        let layers = self.overlay.entry(chunk).or_default();
        let place = (piece.at, piece.start);
        let grows = |layer: &Layer| matches!(layer, Layer::Piece(top) if (top.at, top.start) == place);
        if layers.last().is_some_and(grows)
            && let Some(Layer::Piece(top)) = layers.pop()
        {
            self.layers -= 1;
            self.overlay_units -= top.units();
            self.stored_units -= top.units();
        }
        self.layers += 1;
        self.overlay_units += piece.units();
        self.stored_units += piece.units();
        self.push(chunk, Layer::Piece(piece), freed);
    }

    fn push_zeros(&mut self, chunk: u64, mut start: u32, end: u32, freed: &mut Vec<Extent>) {
        let mut end = end.min(self.get(chunk).end());
        if start >= end {
            return;
        }
        let layers = self.overlay.entry(chunk).or_default();
        // Joins zeros on top that touch these.
        if let Some(&Layer::Zeros { start: top_start, end: top_end }) = layers.last()
            && top_start <= end
            && start <= top_end
        {
            layers.pop();
            self.layers -= 1;
            (start, end) = (start.min(top_start), end.max(top_end));
        }
        self.layers += 1;
        self.push(chunk, Layer::Zeros { start, end }, freed);
    }

    /// Puts a layer on top of a chunk and drops what it hides.
    fn push(&mut self, chunk: u64, top: Layer, freed: &mut Vec<Extent>) {
        let layers = self.overlay.entry(chunk).or_default();
        let (before, count) = (freed.len(), layers.len());
        layers.retain(|layer| {
            let is_hidden = top.start() <= layer.start() && layer.end() <= top.end();
            if is_hidden {
                freed.extend(extent_of(layer));
            }
            !is_hidden
        });
        self.layers -= (count - layers.len()) as u64;
        let units: u64 = freed[before..].iter().map(|extent| extent.units).sum();
        self.overlay_units -= units;
        self.stored_units -= units;
        layers.push(top);
        let hides = |version: &Version| top.start() == 0 && version.len <= top.end();
        if let Some(version) = self.versions.get(&chunk).copied().filter(hides) {
            self.versions.remove(&chunk);
            self.stored_units -= version.units();
            freed.push(version.extent());
        }
        let has_bytes = |layer: &Layer| matches!(layer, Layer::Piece(_));
        if !self.versions.contains_key(&chunk)
            && let Some(layers) = self.overlay.get(&chunk)
            && !layers.iter().any(has_bytes)
        {
            self.layers -= layers.len() as u64;
            self.overlay.remove(&chunk);
        }
    }

    fn set_len(&mut self, len: u64, freed: &mut Vec<Extent>) {
        if len < self.len {
            let (chunk, kept) = (len / self.chunk_len, (len % self.chunk_len) as u32);
            self.clear(len.div_ceil(self.chunk_len)..u64::MAX, freed);
            if kept > 0 && !is_seeded(Mutant::StaleChunk) {
                self.push_zeros(chunk, kept, self.chunk_len as u32, freed);
            }
        }
        self.len = len;
    }

    /// Returns the first byte at or after `from` that is data, or `None` if only holes follow.
    pub fn seek_data(&self, from: u64) -> Option<u64> {
        let mut chunk = from / self.chunk_len;
        let mut within = from % self.chunk_len;
        loop {
            let stored = self.next_stored(chunk)?;
            if stored > chunk {
                (chunk, within) = (stored, 0);
            }
            if let Some(range) = self.get(chunk).data().next_from(within) {
                let at = chunk * self.chunk_len + range.start();
                return (at < self.len).then_some(at);
            }
            (chunk, within) = (chunk + 1, 0);
        }
    }

    /// Returns the first byte at or after `from` that is in a hole. The end of the datafile counts as a hole.
    pub fn seek_hole(&self, from: u64) -> u64 {
        let mut at = from;
        while at < self.len {
            let (chunk, within) = (at / self.chunk_len, at % self.chunk_len);
            match self.get(chunk).data().next_from(within) {
                Some(range) if range.start() == within => {
                    at = chunk * self.chunk_len + range.end();
                    if range.end() < self.chunk_len {
                        return at.min(self.len).max(from);
                    }
                }
                _ => return at,
            }
        }
        from.max(at.min(self.len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressed::codec::Codec;
    use weft_env::sim::Rng;

    const CHUNK_LEN: u64 = 16 << 10;

    fn version(at: u64, len: u32) -> Version {
        Version { at, stored: len / 2 + 1, len, crc: 0, codec: Codec::Lz4 }
    }

    fn piece(start: u32, len: u32, at: u64) -> Piece {
        Piece { start, len, at, crc: 0 }
    }

    /// Applies a record; returns the freed places.
    fn apply(chunks: &mut Chunks, record: Record) -> Vec<u64> {
        let mut freed = Vec::new();
        chunks.apply(&record, &mut freed);
        freed.into_iter().map(|extent| extent.at).collect()
    }

    #[test]
    fn a_layer_hides_what_it_covers() {
        let mut chunks = Chunks::new(CHUNK_LEN);
        assert_eq!(apply(&mut chunks, Record::Version { chunk: 1, version: version(1, 3000) }), []);
        assert_eq!(apply(&mut chunks, Record::Piece { chunk: 1, piece: piece(100, 500, 10) }), []);
        assert_eq!(apply(&mut chunks, Record::Piece { chunk: 1, piece: piece(200, 100, 20) }), []);
        assert_eq!(apply(&mut chunks, Record::Piece { chunk: 1, piece: piece(50, 700, 30) }), [10, 20]);
        assert_eq!(chunks.len(), CHUNK_LEN + 3000);
        assert_eq!(apply(&mut chunks, Record::Piece { chunk: 1, piece: piece(0, 3000, 40) }), [30, 1]);
        assert_eq!(chunks.get(1), Chunk { version: None, layers: vec![Layer::Piece(piece(0, 3000, 40))] });
        assert_eq!(apply(&mut chunks, Record::Hole { chunk: 0, count: 5 }), [40]);
        assert_eq!((chunks.live_records(), chunks.stored(), chunks.overlay_size()), (1, 0, (0, 0)));
        assert_eq!(chunks.len(), CHUNK_LEN + 3000, "a hole does not change the length");
    }

    #[test]
    fn a_piece_grows_in_its_place() {
        let mut chunks = Chunks::new(CHUNK_LEN);
        apply(&mut chunks, Record::Piece { chunk: 0, piece: piece(100, 500, 10) });
        assert_eq!(apply(&mut chunks, Record::Piece { chunk: 0, piece: piece(100, 900, 10) }), []);
        assert_eq!(chunks.get(0).layers, [Layer::Piece(piece(100, 900, 10))]);
        assert_eq!((chunks.len(), chunks.overlay_size()), (1000, (1024, 1)));
        // The raw bytes become the version of the chunk.
        let whole = Version { at: 10, stored: 1000, len: 1000, crc: 0, codec: Codec::Raw };
        assert_eq!(apply(&mut chunks, Record::Version { chunk: 0, version: whole }), []);
        assert_eq!((chunks.stored(), chunks.overlay_size()), (1024, (0, 0)));
    }

    #[test]
    fn a_truncation_hides_the_rest_of_its_chunk_for_good() {
        let mut chunks = Chunks::new(CHUNK_LEN);
        apply(&mut chunks, Record::Version { chunk: 0, version: version(1, 16_384) });
        apply(&mut chunks, Record::Version { chunk: 1, version: version(20, 9) });
        assert_eq!(apply(&mut chunks, Record::Length { len: 1000 }), [20]);
        apply(&mut chunks, Record::Length { len: 50_000 });
        assert_eq!(chunks.get(0).layers, [Layer::Zeros { start: 1000, end: 16_384 }]);
        assert_eq!(chunks.seek_hole(0), 1000);
        assert_eq!(chunks.seek_data(1000), None);
        assert_eq!(apply(&mut chunks, Record::Length { len: 0 }), [1]);
        assert_eq!((chunks.len(), chunks.live_records(), chunks.stored()), (0, 1, 0));
    }

    #[test]
    fn zeros_are_kept_only_over_bytes() {
        let mut chunks = Chunks::new(CHUNK_LEN);
        apply(&mut chunks, Record::Length { len: 10_000 });
        apply(&mut chunks, Record::Zeros { chunk: 0, start: 5, len: 100 });
        assert!(chunks.is_hole(0));
        apply(&mut chunks, Record::Piece { chunk: 0, piece: piece(0, 4000, 1) });
        apply(&mut chunks, Record::Zeros { chunk: 0, start: 3000, len: 8000 });
        apply(&mut chunks, Record::Zeros { chunk: 0, start: 2000, len: 1000 });
        assert_eq!(chunks.get(0).layers[1..], [Layer::Zeros { start: 2000, end: 4000 }]);
        assert_eq!(apply(&mut chunks, Record::Zeros { chunk: 0, start: 0, len: 2000 }), [1]);
        assert!(chunks.is_hole(0));
        assert_eq!(chunks.live_records(), 1);
    }

    /// Records, with places that increase and never overlap.
    fn random(rng: &mut Rng, next: &mut u64) -> Record {
        let chunk = rng.below(4);
        let (a, b) = (rng.below(CHUNK_LEN) as u32, rng.below(CHUNK_LEN) as u32);
        let (start, len) = (a.min(b), a.abs_diff(b) + 1);
        let at = *next;
        *next += 40;
        match rng.below(10) {
            0 | 1 => Record::Version { chunk, version: version(at, a + 1) },
            2..=5 => Record::Piece { chunk, piece: piece(start, len, at) },
            6 | 7 => Record::Zeros { chunk, start, len },
            8 => Record::Hole { chunk, count: 1 + rng.below(2) },
            _ => Record::Length { len: rng.below(5 * CHUNK_LEN) },
        }
    }

    #[test]
    fn records_match_a_model_and_describe_themselves() {
        for seed in 0..100 {
            eprintln!("seed {seed}");
            let mut rng = Rng::new(seed);
            let (mut next, mut chunks) = (1, Chunks::new(CHUNK_LEN));
            // For each byte, the place and offset that it comes from; zero for a zero.
            let mut model: Vec<(u64, u64)> = Vec::new();
            for _ in 0..60 {
                let record = random(&mut rng, &mut next);
                apply(&mut chunks, record);
                let mut put = |chunk: u64, start: u32, len: u32, at: u64| {
                    let start = (chunk * CHUNK_LEN + u64::from(start)) as usize;
                    let end = start + len as usize;
                    if at > 0 && model.len() < end {
                        model.resize(end, (0, 0));
                    }
                    let within = start.min(model.len())..end.min(model.len());
                    for (offset, byte) in model[within].iter_mut().enumerate() {
                        *byte = if at > 0 { (at, offset as u64) } else { (0, 0) };
                    }
                };
                match record {
                    Record::Version { chunk, version } => {
                        put(chunk, 0, CHUNK_LEN as u32, 0);
                        put(chunk, 0, version.len, version.at);
                    }
                    Record::Piece { chunk, piece } => put(chunk, piece.start, piece.len, piece.at),
                    Record::Zeros { chunk, start, len } => put(chunk, start, len, 0),
                    Record::Hole { chunk, count } => put(chunk, 0, CHUNK_LEN as u32 * count as u32, 0),
                    Record::Length { len } => model.resize(len as usize, (0, 0)),
                }
                check(&chunks, &model);
                // The copy may drop layers that several others hide together.
                let mut copy = Chunks::new(CHUNK_LEN);
                for record in chunks.records() {
                    assert!(Record::decode(&record.encode(), CHUNK_LEN).is_some());
                    apply(&mut copy, record);
                }
                check(&copy, &model);
            }
        }
    }

    fn check(chunks: &Chunks, model: &[(u64, u64)]) {
        assert_eq!(chunks.len(), model.len() as u64);
        let mut bytes = vec![(0, 0); model.len().next_multiple_of(CHUNK_LEN as usize)];
        let (mut units, mut records) = (0, 1);
        for (number, part) in bytes.chunks_mut(CHUNK_LEN as usize).enumerate() {
            let chunk = chunks.get(number as u64);
            if let Some(version) = chunk.version {
                records += 1;
                for (offset, byte) in part[..version.len as usize].iter_mut().enumerate() {
                    *byte = (version.at, offset as u64);
                }
            }
            for layer in &chunk.layers {
                records += 1;
                let at = match layer {
                    Layer::Piece(piece) => piece.at,
                    Layer::Zeros { .. } => 0,
                };
                for (offset, byte) in
                    part[layer.start() as usize..layer.end() as usize].iter_mut().enumerate()
                {
                    *byte = if at > 0 { (at, offset as u64) } else { (0, 0) };
                }
            }
            units += chunk.extents().map(|extent| extent.units).sum::<u64>();
        }
        assert!(bytes[..model.len()] == *model && bytes[model.len()..].iter().all(|byte| byte.0 == 0));
        assert_eq!((chunks.stored(), chunks.live_records()), (units * UNIT_BYTES, records));
        for from in (0..model.len()).step_by(997) {
            let data = model[from..].iter().position(|byte| byte.0 > 0).map(|at| (from + at) as u64);
            let hole = model[from..].iter().position(|byte| byte.0 == 0).map_or(model.len(), |at| from + at);
            assert_eq!(chunks.seek_data(from as u64), data);
            assert_eq!(chunks.seek_hole(from as u64), hole as u64);
        }
    }
}
