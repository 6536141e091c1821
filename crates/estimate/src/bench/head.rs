//! A head over a medium that turns, told by how long requests near each other take.

use super::{Bench, Run, short};
use weft_core::Nanos;
use weft_env::device::{DeviceAction, Ticket};
use weft_planner::Bytes;
use weft_planner::figures::{Head, Line, Seek};

/// Length of all requests, bytes.
const LEN: u64 = 4096;
/// Places that are looked at for one figure.
const PLACES: u64 = 33;
/// Distance between those places, bytes.
const APART: u64 = 24 << 20;
/// It is told over no less of the device, bytes.
const SPAN_MIN: u64 = 1 << 30;
/// Steps of distances, bytes.
const STEP: u64 = 16 << 10;
/// Further than this nobody reads on, bytes.
const ON_MAX: u64 = 8 << 20;
/// Stretches that are asked for at most.
const STRETCHES_MAX: u64 = 64;
/// Distances that a head is sent over, bytes.
const DISTANCES: [u64; 6] = [64 << 10, 4 << 20, 64 << 20, 256 << 20, 1 << 30, 4 << 30];
/// A request that waits comes so long after the one before, nanoseconds.
const BEHIND: u64 = 200_000;
/// What is in memory takes at most this part of a turn.
const QUICK: f64 = 0.125;
/// Half of all turns that were seen are within this part of their median, or there are none.
const SURE: f64 = 0.1;
/// No medium turns so quickly, nanoseconds.
const TURN_MIN: f64 = 1e6;

impl Bench<'_> {
    /// What is known of a head; `None` if there is none.
    pub(super) fn head(&self, sequential: Line) -> Option<Head> {
        // Memory of the system would answer what the device is asked about.
        let bench = Self { direct: true, span: self.span.max(SPAN_MIN), ..*self };
        let base = |place: u64| (1 + place) * APART % (bench.span - APART) / STEP * STEP;
        let (byte, start) = (sequential.byte_ns(), sequential.startup_ns());
        // Backwards: a turn less what lies between.
        let back = |place: u64| {
            let distance = (1 + place % 4) * STEP;
            let takes = bench.second(base(place) + distance, 0, base(place));
            takes + distance as f64 * byte - start
        };
        let mut turns: Vec<f64> = (0..PLACES).map(back).collect();
        turns.sort_by(f64::total_cmp);
        let turn = turns[turns.len() / 2];
        let quarter = turns.len() / 4;
        let spread = turns[turns.len() - 1 - quarter] - turns[quarter];
        if turn < TURN_MIN || spread > SURE * turn {
            return None;
        }
        // Pauses of different parts of a turn, or chance would have some of what was not read come by.
        let idle = |place: u64| ((3.0 + 0.37 * place as f64) * turn) as u64;
        let is_read = |distance: u64| {
            (0..3).all(|place| {
                bench.second(base(place), idle(place), base(place) + LEN + distance) < QUICK * turn
            })
        };
        let (mut least, mut most) = (0, ON_MAX / STEP);
        while least < most {
            let middle = (least + most).div_ceil(2);
            (least, most) = if is_read(middle * STEP) { (middle, most) } else { (least, middle - 1) };
        }
        let reads_on = (least + 1) * STEP;
        // Places all around a turn. What lies too near comes by a turn later: right behind that is the least.
        let part = (turn / byte / PLACES as f64) as u64 / LEN * LEN;
        let least = |far: u64, takes: &dyn Fn(u64, u64) -> f64| {
            let takes = |place: u64, distance: u64| takes(base(place), (base(place) + distance) % bench.span);
            let coarse = (0..PLACES).map(|place| (takes(place, far + place * part), place));
            let (_, place) = coarse.min_by(|a, b| a.0.total_cmp(&b.0)).expect("there are places");
            let behind = far + place * part;
            let fine = (0..=part / LEN).map(|back| behind - back * LEN).map(|at| (takes(place, at), at));
            fine.min_by(|a, b| a.0.total_cmp(&b.0)).expect("there are places")
        };
        let distances = DISTANCES.iter().map(|far| far + reads_on).filter(|far| *far < bench.span);
        let queued: Vec<(f64, u64)> =
            distances.map(|far| least(far, &|from, to| bench.queued(from, to))).collect();
        // What a request takes that is asked for when the one before is answered, and not while the head is at that.
        let way = least(DISTANCES[0] + reads_on, &|from, to| bench.second(from, 0, to)).0 - queued[0].0;
        let seek = |(least, at): (f64, u64)| {
            // It lies anywhere within these bytes.
            let least = least - 1.5 * LEN as f64 * byte;
            Seek { distance: Bytes(at), us: short((least / 1e3).max(0.0)) }
        };
        let seeks: Vec<Seek> = queued.into_iter().map(seek).collect();
        let is_kept = |stretches: u64| {
            let mut run = bench.prepared();
            (0..=stretches).for_each(|place| run.one(&bench.asked(DeviceAction::Read, base(place), LEN)));
            let begun = run.clock;
            run.one(&bench.asked(DeviceAction::Read, base(0), LEN));
            ((run.clock - begun) as f64) < QUICK * turn
        };
        let stretches = (1..=STRETCHES_MAX).take_while(|stretches| is_kept(*stretches)).count();
        Some(Head {
            turn_us: short(turn / 1e3),
            way_us: short(((way - start) / 1e3).max(0.0)),
            seeks,
            reads_on: Bytes(reads_on),
            stretches: stretches as u32,
            takes: self.takes,
            ahead: Bytes(if self.direct { 0 } else { self.ahead }),
        })
    }

    /// Nanoseconds of a read at `to` after one at `from` and a pause.
    fn second(&self, from: u64, idle: u64, to: u64) -> f64 {
        let mut run = self.prepared();
        run.one(&self.asked(DeviceAction::Read, from, LEN));
        run.pause(idle);
        let begun = run.clock;
        run.one(&self.asked(DeviceAction::Read, to, LEN));
        (run.clock - begun) as f64
    }

    /// Nanoseconds from the end of a read at `from` to that of one at `to` that waits behind it.
    fn queued(&self, from: u64, to: u64) -> f64 {
        let mut run = self.prepared();
        run.ticket += 1;
        let first = Ticket(run.ticket);
        run.device.submit(Nanos(run.clock), first, &self.asked(DeviceAction::Read, from, LEN));
        // The device has no choice: it is at the first one.
        run.pause(BEHIND);
        let mut done = Vec::new();
        run.ticket += 1;
        run.device.submit(Nanos(run.clock), Ticket(run.ticket), &self.asked(DeviceAction::Read, to, LEN));
        while !done.contains(&first) {
            run.wait(&mut done);
        }
        let begun = run.clock;
        while done.len() < 2 {
            run.wait(&mut done);
        }
        (run.clock - begun) as f64
    }

    /// A device with a file that is there, and nothing of it in memory.
    pub(super) fn prepared(&self) -> Run {
        let mut run = Run::new((self.device)());
        run.one(&self.asked(DeviceAction::Write, self.span - 1, 1));
        run.one(&self.asked(DeviceAction::Sync, 0, 1));
        run.device.forget();
        run
    }
}
