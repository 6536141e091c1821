//! Coalescing of writeback: which dirty ranges go to the disk in one write.
//!
//! Dirty ranges are merged across a gap when the disk reads and writes the gap in less time than a seek and a rotation
//! take.

use super::TieredTarget;
use super::ssd_tier::SsdTier;
use weft_core::ibridge::ServiceCurve;
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, LocalOffset};
use weft_env::{Env, Hollow};
use weft_store::datafile::DatafileKey;
use weft_store::error::DatafileError;
use weft_store::fragments::Piece;
use weft_store::target::Module;

/// Longest write to the disk while requests may arrive, because they wait for it.
pub(super) const SPAN_LEN_MAX: u64 = 4 << 20;
/// Longest write while a request waits for everything to be written back. Between two writes the disk loses one
/// rotation.
pub(super) const FLUSH_SPAN_LEN_MAX: u64 = 16 << 20;
/// Granularity of writes: the system reads the rest of a page before it writes a part of it.
const PAGE: u64 = 4096;
/// Maximum number of writes to the disk per call, because requests wait for them.
const PARTS_MAX: usize = 4;
/// Buffer length for spans of up to `len_max` plus the rest of the pages at both ends.
pub(super) const fn buffer_len(len_max: u64) -> usize {
    (len_max + 2 * PAGE) as usize
}

/// Longest span that fits a buffer.
pub(super) const fn span_max(buf: &[u8]) -> u64 {
    buf.len() as u64 - 2 * PAGE
}

/// Merges adjacent pieces of a datafile, up to `len_max` bytes each.
pub(super) fn runs(pieces: &[Piece], len_max: u64) -> Vec<(DatafileKey, ByteRange)> {
    let mut runs: Vec<(DatafileKey, ByteRange)> = Vec::new();
    for piece in pieces {
        let (key, mut extent) = (piece.key(), piece.extent());
        if let Some((last_key, last)) = runs.last_mut()
            && *last_key == key
            && last.end() == extent.start()
            && extent.end() - last.start() <= len_max
        {
            *last = joined(*last, extent);
            continue;
        }
        while extent.len() > len_max {
            let at = extent.start() + len_max;
            runs.push((key, ByteRange::new(extent.start(), at).expect("not empty")));
            extent = ByteRange::new(at, extent.end()).expect("not empty");
        }
        runs.push((key, extent));
    }
    runs
}

/// Merges runs that are near each other into spans of at most `len_max` bytes, gaps included.
pub(super) fn spans(curve: &ServiceCurve, pieces: &[Piece], len_max: u64) -> Vec<(DatafileKey, ByteRange)> {
    let mut spans: Vec<(DatafileKey, ByteRange)> = Vec::new();
    for (key, run) in runs(pieces, len_max) {
        match spans.last_mut() {
            Some((last_key, last))
                if *last_key == key
                    && run.end() - last.start() <= len_max
                    && is_near(curve, ByteLen(run.start() - last.end())) =>
            {
                *last = joined(*last, run);
            }
            _ => spans.push((key, run)),
        }
    }
    spans
}

/// Whether reading and writing the gap takes less time than a seek and a rotation.
fn is_near(curve: &ServiceCurve, gap: ByteLen) -> bool {
    let over = curve.transfer(gap, false).saturating_add(curve.transfer(gap, true));
    over < curve.seek(gap).saturating_add(curve.rotation())
}

fn joined(first: ByteRange, last: ByteRange) -> ByteRange {
    ByteRange::new(first.start(), last.end()).expect("the ranges are in order")
}

/// Whole pages around a span.
pub(super) fn whole_pages(span: ByteRange) -> ByteRange {
    let start = span.start() - span.start() % PAGE;
    let end = span.end().checked_next_multiple_of(PAGE).unwrap_or(span.end());
    ByteRange::new(start, end).expect("a span is not empty")
}

impl<E: Env> TieredTarget<E> {
    /// Copies dirty `pieces` to the disk. The caller holds the range lock on `held`, the pages around the span; `buf`
    /// has room for them. At most [`PARTS_MAX`] parts are written per call so that requests do not wait for all of
    /// them. Returns the end of the copied bytes.
    pub(super) async fn copy_span(
        &self,
        tier: &SsdTier<E>,
        key: DatafileKey,
        held: ByteRange,
        pieces: &[Piece],
        buf: &mut [u8],
    ) -> Result<u64, DatafileError> {
        let runs = runs(pieces, held.len());
        let is_unaligned = runs.iter().any(|(_, run)| run.start() % PAGE != 0 || run.end() % PAGE != 0);
        let is_direct = self.target.module() == Module::Direct;
        // Through the page cache, the system merges and sorts the writes itself and only has to read pages that are
        // written in part. It does that best for all of them at once.
        let wants_gaps = runs.len() > 1 && (is_direct || is_unaligned);
        let on_disk = match wants_gaps {
            true => self.read_gaps(&tier.config.curve, key, held, &runs, buf).await,
            false => 0,
        };
        let within =
            |part: ByteRange| (part.start() - held.start()) as usize..(part.end() - held.start()) as usize;
        let mut parts = if is_direct { self::parts(&runs, held, &buf[..on_disk]) } else { run_ranges(&runs) };
        let mut end = held.end();
        if is_direct && parts.len() > PARTS_MAX {
            parts.truncate(PARTS_MAX);
            end = parts[PARTS_MAX - 1].end();
        }
        for piece in pieces.iter().filter(|piece| piece.extent().end() <= end) {
            let _active = tier.begin_log_request();
            tier.log.read(piece, &mut buf[within(piece.extent())]).await?;
        }
        for part in parts {
            self.target.write(key, LocalOffset(part.start()), &buf[within(part)]).await?;
        }
        Ok(end)
    }

    /// Reads the gaps of `held` between and around `runs`. Returns the number of bytes of `held` that are known from
    /// its start on; gaps that cannot be read are left out of the write.
    async fn read_gaps(
        &self,
        curve: &ServiceCurve,
        key: DatafileKey,
        held: ByteRange,
        runs: &[(DatafileKey, ByteRange)],
        buf: &mut [u8],
    ) -> usize {
        let is_passed = |len| curve.transfer(len, false) < curve.seek(len).saturating_add(curve.rotation());
        for gap in gaps(held, runs.iter().map(|(_, run)| *run), is_passed) {
            let from = (gap.start() - held.start()) as usize;
            let gap_buf = &mut buf[from..from + gap.len() as usize];
            let wanted = gap_buf.len();
            let count =
                self.target.read(key, LocalOffset(gap.start()), gap_buf).await.map_or(0, |read| read.0);
            if count < wanted {
                return from + count;
            }
        }
        held.len() as usize
    }
}

/// Ranges of `range` outside `pieces` (sorted and disjoint). Two gaps are merged when `is_passed` says that the disk
/// should read the piece between them too.
pub(super) fn gaps(
    range: ByteRange,
    pieces: impl IntoIterator<Item = ByteRange>,
    is_passed: impl Fn(ByteLen) -> bool,
) -> Vec<ByteRange> {
    let mut gaps: Vec<ByteRange> = Vec::new();
    let mut at = range.start();
    let ends = pieces.into_iter().map(|piece| (piece.start(), piece.end()));
    for (start, end) in ends.chain([(range.end(), range.end())]) {
        if let Some(gap) = ByteRange::new(at, start) {
            match gaps.last_mut() {
                Some(last) if is_passed(ByteLen(gap.start() - last.end())) => *last = joined(*last, gap),
                _ => gaps.push(gap),
            }
        }
        at = end;
    }
    gaps
}

fn run_ranges(runs: &[(DatafileKey, ByteRange)]) -> Vec<ByteRange> {
    runs.iter().map(|(_, run)| *run).collect()
}

/// Ranges to write: runs, merged across gaps in which the disk has data. `known` holds the known bytes of `held` from
/// its start on.
fn parts(runs: &[(DatafileKey, ByteRange)], held: ByteRange, known: &[u8]) -> Vec<ByteRange> {
    // Holes stay holes: gaps of zeros are not written.
    let has = |start: u64, end: u64| {
        let bytes = known.get((start - held.start()) as usize..(end - held.start()) as usize);
        bytes.is_some_and(|bytes| Hollow::holds(bytes) || bytes.iter().any(|byte| *byte != 0))
    };
    let mut parts: Vec<ByteRange> = Vec::new();
    for &(_, run) in runs {
        match parts.last_mut() {
            Some(last) if last.end() == run.start() || has(last.end(), run.start()) => {
                *last = joined(*last, run)
            }
            _ => parts.push(run),
        }
    }
    let (Some(first), Some(last)) = (parts.first().copied(), parts.last().copied()) else { return parts };
    if held.start() < first.start() && has(held.start(), first.start()) {
        parts[0] = joined(held, first);
    }
    if last.end() < held.end()
        && has(last.end(), held.end())
        && let Some(part) = parts.last_mut()
    {
        *part = joined(*part, held);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::{FileId, Nanos, ObjectId};

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange::new(start, end).expect("not empty")
    }

    #[test]
    fn a_gap_shorter_than_a_rotation_is_near() {
        // Seek 0, rotation 4 ms, 100 MB/s in both directions: 200,000 bytes are read and written in one rotation.
        let seek = vec![(ByteLen(0), Nanos(0))];
        let curve = |rotation| {
            ServiceCurve::new(seek.clone(), rotation, 100_000_000, 100_000_000, ByteLen(0)).unwrap()
        };
        let disk = curve(Nanos::from_ms(4));
        assert!(is_near(&disk, ByteLen(199_999)) && !is_near(&disk, ByteLen(200_000)));
        assert!(!is_near(&curve(Nanos(0)), ByteLen(1)), "an SSD has no rotation");
    }

    #[test]
    fn gaps_are_merged_only_where_the_disk_passes_over_the_piece_between() {
        let pieces = [(10, 20), (25, 26), (40, 50)].map(|(start, end)| range(start, end));
        let of = |passed: u64| gaps(range(5, 60), pieces, |len| len.0 < passed);
        assert_eq!(of(0), [range(5, 10), range(20, 25), range(26, 40), range(50, 60)]);
        assert_eq!(of(2), [range(5, 10), range(20, 40), range(50, 60)]);
        assert_eq!(of(11), [range(5, 60)]);
        assert_eq!(gaps(range(10, 20), [range(10, 20)], |_| false), [], "nothing is missing");
        assert_eq!(gaps(range(5, 30), [], |_| false), [range(5, 30)], "all of it");
    }

    #[test]
    fn gaps_with_data_are_written_too() {
        let key = DatafileKey { file: FileId(1), object: ObjectId { component: 0, column: 0 } };
        let runs: Vec<_> =
            [(5000, 6000), (7000, 8000), (9000, 20_000)].map(|(s, e)| (key, range(s, e))).into();
        let held = range(4096, 20_480);
        let mut rest = vec![0u8; 16_384];
        assert_eq!(
            parts(&runs, held, &rest),
            [range(5000, 6000), range(7000, 8000), range(9000, 20_000)],
            "holes"
        );
        rest[6500 - 4096] = 1;
        assert_eq!(parts(&runs, held, &rest), [range(5000, 8000), range(9000, 20_000)]);
        rest[4100 - 4096] = 1;
        rest[20_479 - 4096] = 1;
        assert_eq!(
            parts(&runs, held, &rest),
            [range(4096, 8000), range(9000, 20_480)],
            "whole pages at the ends"
        );
        rest.truncate(9000 - 4096);
        assert_eq!(
            parts(&runs, held, &rest),
            [range(4096, 8000), range(9000, 20_000)],
            "the disk has no more"
        );
    }
}
