//! What is written back together: dirty bytes that lie so near to each other that the disk passes over what is between
//! them in less time than it would take to come back.

use super::Placed;
use super::bridge::Bridge;
use weft_core::ibridge::ServiceCurve;
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, LocalOffset};
use weft_env::{Env, Hollow};
use weft_store::datafile::DatafileKey;
use weft_store::error::DatafileError;
use weft_store::fragments::Piece;
use weft_store::target::Module;

/// The longest write to the disk while others may come: they have to wait for it.
pub(super) const SPAN_MAX: u64 = 4 << 20;
/// The longest when somebody waits for everything to be on the disk. After each write the platters turn once before the next.
pub(super) const LONG_SPAN_MAX: u64 = 16 << 20;
/// What the disk reads before it writes a part of it.
const PAGE: u64 = 4096;
/// The most writes to the disk for which others have to wait.
const PARTS_MAX: usize = 4;
/// The length of a buffer for spans of up to `len_max` and the rest of the pages at their ends.
pub(super) const fn buffer_len(len_max: u64) -> usize {
    (len_max + 2 * PAGE) as usize
}

/// The longest span for a buffer.
pub(super) const fn span_max(buf: &[u8]) -> u64 {
    buf.len() as u64 - 2 * PAGE
}

/// Neighbors in one datafile as one, up to a length.
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

/// Runs that are near to each other as one, with what lies between them, up to a length.
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

/// Whether reading and writing what lies between takes less than another wait for the platters.
fn is_near(curve: &ServiceCurve, gap: ByteLen) -> bool {
    let over = curve.transfer(gap, false).saturating_add(curve.transfer(gap, true));
    over < curve.seek(gap).saturating_add(curve.rotation())
}

fn joined(first: ByteRange, last: ByteRange) -> ByteRange {
    ByteRange::new(first.start(), last.end()).expect("longer than before")
}

/// Whole pages around a span.
pub(super) fn around(span: ByteRange) -> ByteRange {
    let start = span.start() - span.start() % PAGE;
    let end = span.end().checked_next_multiple_of(PAGE).unwrap_or(span.end());
    ByteRange::new(start, end).expect("longer than before")
}

impl<E: Env> Placed<E> {
    /// Gives the disk dirty `pieces` that lie in `span`; `held`, the pages around it, is the caller's. `buf` has room for
    /// these. What is in many parts is given in several calls, so that nobody waits for all of them: the end of what was.
    pub(super) async fn copy_span(
        &self,
        bridge: &Bridge<E>,
        key: DatafileKey,
        held: ByteRange,
        pieces: &[Piece],
        buf: &mut [u8],
    ) -> Result<u64, DatafileError> {
        let runs = runs(pieces, held.len());
        let is_ragged = runs.iter().any(|(_, run)| run.start() % PAGE != 0 || run.end() % PAGE != 0);
        let is_direct = self.target.module() == Module::Direct;
        // Through the page cache the system gathers and sorts what is written, and only has to read pages that are
        // written in part: better all at once than one by one.
        let wants_rest = runs.len() > 1 && (is_direct || is_ragged);
        let on_disk = match wants_rest {
            true => self.rest(&bridge.config.curve, key, held, &runs, buf).await,
            false => 0,
        };
        let within =
            |part: ByteRange| (part.start() - held.start()) as usize..(part.end() - held.start()) as usize;
        let mut parts = if is_direct { self::parts(&runs, held, &buf[..on_disk]) } else { only(&runs) };
        let mut end = held.end();
        if is_direct && parts.len() > PARTS_MAX {
            parts.truncate(PARTS_MAX);
            end = parts[PARTS_MAX - 1].end();
        }
        for piece in pieces.iter().filter(|piece| piece.extent().end() <= end) {
            let _busy = bridge.busy();
            bridge.log.read(piece, &mut buf[within(piece.extent())]).await?;
        }
        for part in parts {
            self.target.write(key, LocalOffset(part.start()), &buf[within(part)]).await?;
        }
        Ok(end)
    }

    /// Reads what lies in `held` between and around `runs`, as far as the disk has it: up to which byte of `held` that is
    /// known. What cannot be read is written back without it.
    async fn rest(
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
            let room = &mut buf[from..from + gap.len() as usize];
            let wanted = room.len();
            let count = self.target.read(key, LocalOffset(gap.start()), room).await.map_or(0, |read| read.0);
            if count < wanted {
                return from + count;
            }
        }
        held.len() as usize
    }
}

/// What of `range` lies outside `pieces` (sorted and disjoint), in few requests: two gaps are one, with what is between
/// them, where the disk is to pass over a piece of that length.
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

fn only(runs: &[(DatafileKey, ByteRange)]) -> Vec<ByteRange> {
    runs.iter().map(|(_, run)| *run).collect()
}

/// What is written in one go: runs, with what lies between and around them where the disk has it. `rest` is what is known
/// of `held`, from its start on.
fn parts(runs: &[(DatafileKey, ByteRange)], held: ByteRange, rest: &[u8]) -> Vec<ByteRange> {
    // Holes stay holes: zeros are not written.
    let has = |start: u64, end: u64| {
        let bytes = rest.get((start - held.start()) as usize..(end - held.start()) as usize);
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
    fn what_is_nearer_than_a_turn_is_near() {
        // Half a turn of 4 ms; 100 MB/s both ways: 200,000 bytes are read and written in it.
        let seek = vec![(ByteLen(0), Nanos(0))];
        let curve = |rotation| {
            ServiceCurve::new(seek.clone(), rotation, 100_000_000, 100_000_000, ByteLen(0)).unwrap()
        };
        let disk = curve(Nanos::from_ms(4));
        assert!(is_near(&disk, ByteLen(199_999)) && !is_near(&disk, ByteLen(200_000)));
        assert!(!is_near(&curve(Nanos(0)), ByteLen(1)), "an SSD comes back at once");
    }

    #[test]
    fn gaps_are_asked_for_apart_where_the_disk_is_not_to_pass_over_what_is_between() {
        let pieces = [(10, 20), (25, 26), (40, 50)].map(|(start, end)| range(start, end));
        let of = |passed: u64| gaps(range(5, 60), pieces, |len| len.0 < passed);
        assert_eq!(of(0), [range(5, 10), range(20, 25), range(26, 40), range(50, 60)]);
        assert_eq!(of(2), [range(5, 10), range(20, 40), range(50, 60)]);
        assert_eq!(of(11), [range(5, 60)]);
        assert_eq!(gaps(range(10, 20), [range(10, 20)], |_| false), [], "nothing is missing");
        assert_eq!(gaps(range(5, 30), [], |_| false), [range(5, 30)], "all of it");
    }

    #[test]
    fn what_lies_between_is_written_where_there_is_anything() {
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
            "and whole pages at the ends"
        );
        rest.truncate(9000 - 4096);
        assert_eq!(
            parts(&runs, held, &rest),
            [range(4096, 8000), range(9000, 20_000)],
            "the disk has no more"
        );
    }
}
