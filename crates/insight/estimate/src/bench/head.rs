//! Measures the head of a disk from the times of reads near each other.
//!
//! | figure | how it is measured |
//! | --- | --- |
//! | `turn_us` | a read shortly before the previous one takes a rotation minus the distance; median of 33 places |
//! | `seeks` | minimum over all rotational positions at a distance, for a read queued behind another |
//! | `way_us` | extra time of a read that is requested only after the previous one has completed |
//! | `reads_on` | largest distance that is answered within an eighth of a rotation after a pause |
//! | `stretches` | number of previous reads that are still in the drive's cache |
//! | `takes`, `ahead` | settings, not measured |
//!
//! If the middle half of the rotation times spreads by more than 10 %, or a rotation is below 1 ms, the device has no
//! head.

use super::{Bench, DeviceRun, rounded};
use weft_core::Nanos;
use weft_env::device::{DeviceAction, Ticket};
use weft_planner::Bytes;
use weft_planner::figures::{Head, Line, Seek};

/// Length of all requests, bytes.
const LEN: u64 = 4096;
/// Number of places measured for one figure.
const PLACES: u64 = 33;
/// Distance between these places, bytes.
const PLACE_DISTANCE: u64 = 24 << 20;
/// Minimum bytes of the device in use.
const SPAN_MIN: u64 = 1 << 30;
/// Granularity of distances, bytes.
const STEP: u64 = 16 << 10;
/// Maximum look-ahead, bytes.
const LOOK_AHEAD_MAX: u64 = 8 << 20;
/// Maximum number of cache segments.
const SEGMENTS_MAX: u64 = 64;
/// Seek distances, bytes.
const DISTANCES: [u64; 6] = [64 << 10, 4 << 20, 64 << 20, 256 << 20, 1 << 30, 4 << 30];
/// Delay between submitting a read and the one queued behind it, nanoseconds.
const QUEUE_DELAY_NS: u64 = 200_000;
/// A read from the drive's cache takes at most this fraction of a rotation.
const CACHED_FRACTION: f64 = 0.125;
/// Maximum spread of the middle half of the rotation times, as a fraction of the median.
const SPREAD_MAX: f64 = 0.1;
/// Minimum rotation time, nanoseconds. Anything faster is not a disk.
const ROTATION_MIN_NS: f64 = 1e6;

impl Bench<'_> {
    /// Measures the head; `None` if the device has none.
    pub(super) fn head(&self, sequential: Line) -> Option<Head> {
        // The page cache of the operating system would hide the device.
        let bench = Self { direct: true, span: self.span.max(SPAN_MIN), ..*self };
        let base = |place: u64| (1 + place) * PLACE_DISTANCE % (bench.span - PLACE_DISTANCE) / STEP * STEP;
        let (byte, start) = (sequential.byte_ns(), sequential.startup_ns());
        // Backwards: a rotation minus the distance.
        let back = |place: u64| {
            let distance = (1 + place % 4) * STEP;
            let takes = bench.second(base(place) + distance, 0, base(place));
            takes + distance as f64 * byte - start
        };
        let mut rotations: Vec<f64> = (0..PLACES).map(back).collect();
        rotations.sort_by(f64::total_cmp);
        let rotation = rotations[rotations.len() / 2];
        let quarter = rotations.len() / 4;
        let spread = rotations[rotations.len() - 1 - quarter] - rotations[quarter];
        if rotation < ROTATION_MIN_NS || spread > SPREAD_MAX * rotation {
            return None;
        }
        // Pauses of different fractions of a rotation, or bytes that were not read might pass by coincidence.
        let idle = |place: u64| ((3.0 + 0.37 * place as f64) * rotation) as u64;
        let is_read = |distance: u64| {
            (0..3).all(|place| {
                bench.second(base(place), idle(place), base(place) + LEN + distance)
                    < CACHED_FRACTION * rotation
            })
        };
        let (mut least, mut most) = (0, LOOK_AHEAD_MAX / STEP);
        while least < most {
            let middle = (least + most).div_ceil(2);
            (least, most) = if is_read(middle * STEP) { (middle, most) } else { (least, middle - 1) };
        }
        let look_ahead = (least + 1) * STEP;
        // Rotational positions all around the platter. A position that is too near is reached one rotation later; the
        // minimum is just after it.
        let part = (rotation / byte / PLACES as f64) as u64 / LEN * LEN;
        let least = |far: u64, takes: &dyn Fn(u64, u64) -> f64| {
            let takes = |place: u64, distance: u64| takes(base(place), (base(place) + distance) % bench.span);
            let coarse = (0..PLACES).map(|place| (takes(place, far + place * part), place));
            let (_, place) = coarse.min_by(|a, b| a.0.total_cmp(&b.0)).expect("there are places");
            let next = far + place * part;
            let fine = (0..=part / LEN).map(|back| next - back * LEN).map(|at| (takes(place, at), at));
            fine.min_by(|a, b| a.0.total_cmp(&b.0)).expect("there are places")
        };
        let distances = DISTANCES.iter().map(|far| far + look_ahead).filter(|far| *far < bench.span);
        let queued: Vec<(f64, u64)> =
            distances.map(|far| least(far, &|from, to| bench.queued(from, to))).collect();
        // A read that is submitted after the previous one has completed, instead of being queued behind it.
        let overhead =
            least(DISTANCES[0] + look_ahead, &|from, to| bench.second(from, 0, to)).0 - queued[0].0;
        let seek = |(least, at): (f64, u64)| {
            // The read may start anywhere within these bytes.
            let least = least - 1.5 * LEN as f64 * byte;
            Seek { distance: Bytes(at), us: rounded((least / 1e3).max(0.0)) }
        };
        let seeks: Vec<Seek> = queued.into_iter().map(seek).collect();
        let is_kept = |segments: u64| {
            let mut run = bench.prepared();
            (0..=segments)
                .for_each(|place| run.run_one(&bench.request(DeviceAction::Read, base(place), LEN)));
            let begun = run.clock;
            run.run_one(&bench.request(DeviceAction::Read, base(0), LEN));
            ((run.clock - begun) as f64) < CACHED_FRACTION * rotation
        };
        let segments = (1..=SEGMENTS_MAX).take_while(|segments| is_kept(*segments)).count();
        Some(Head {
            rotation_us: rounded(rotation / 1e3),
            overhead_us: rounded(((overhead - start) / 1e3).max(0.0)),
            seeks,
            look_ahead: Bytes(look_ahead),
            cache_segments: segments as u32,
            queue_depth: self.queue_depth,
            read_ahead: Bytes(if self.direct { 0 } else { self.read_ahead }),
        })
    }

    /// Nanoseconds of a read at `to`, after a read at `from` and a pause.
    fn second(&self, from: u64, idle: u64, to: u64) -> f64 {
        let mut run = self.prepared();
        run.run_one(&self.request(DeviceAction::Read, from, LEN));
        run.pause(idle);
        let begun = run.clock;
        run.run_one(&self.request(DeviceAction::Read, to, LEN));
        (run.clock - begun) as f64
    }

    /// Nanoseconds between the completions of a read at `from` and of one at `to` queued behind it.
    fn queued(&self, from: u64, to: u64) -> f64 {
        let mut run = self.prepared();
        run.ticket += 1;
        let first = Ticket(run.ticket);
        run.device.submit(Nanos(run.clock), first, &self.request(DeviceAction::Read, from, LEN));
        // The device is already serving the first read.
        run.pause(QUEUE_DELAY_NS);
        let mut done = Vec::new();
        run.ticket += 1;
        run.device.submit(Nanos(run.clock), Ticket(run.ticket), &self.request(DeviceAction::Read, to, LEN));
        while !done.contains(&first) {
            run.advance(&mut done);
        }
        let begun = run.clock;
        while done.len() < 2 {
            run.advance(&mut done);
        }
        (run.clock - begun) as f64
    }

    /// A device with an existing file and an empty cache.
    pub(super) fn prepared(&self) -> DeviceRun {
        let mut run = DeviceRun::new((self.device)());
        run.run_one(&self.request(DeviceAction::Write, self.span - 1, 1));
        run.run_one(&self.request(DeviceAction::Sync, 0, 1));
        run.device.forget();
        run
    }
}
