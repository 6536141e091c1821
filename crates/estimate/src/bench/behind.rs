//! What the device does behind writers: how long reads wait for it, and what it takes into a memory of its own.

use super::{Bench, Order, Run, WRITTEN, line, short};
use std::ops::Range;
use weft_env::device::DeviceAction;
use weft_planner::Bytes;
use weft_planner::figures::{Cache, Waits};

/// Reads that are measured beside writes.
const WAITS: u64 = 8;
/// Of so much more than memory gathers some is not waited for, bytes.
const BACKLOG: u64 = 64 << 20;
/// The longest message of a write, bytes.
const MESSAGE: u64 = 4 << 20;
/// A write by which a device's memory is told, bytes.
const PIECE: u64 = 1 << 20;
/// The first of them, which find room there.
const BURST: u64 = 8 << 20;
/// After so many it is full, bytes.
const HALF: u64 = WRITTEN / 2;

impl Bench<'_> {
    /// How long reads wait while the device writes what memory has gathered.
    pub(super) fn waits(&self) -> Option<Waits> {
        if self.direct || self.gathers >= WRITTEN {
            return None;
        }
        // As long as messages are, behind what is read.
        let write = |bytes: Range<u64>, run: &mut Run| {
            let at = |number| self.span + number * MESSAGE;
            let messages = bytes.start / MESSAGE..bytes.end / MESSAGE;
            run.each(1, messages.map(|number| self.asked(DeviceAction::Write, at(number), MESSAGE)));
            run.clock
        };
        let read = |place: u64, run: &mut Run| {
            run.one(&self.asked(DeviceAction::Read, self.span / WAITS * place, 4096));
            run.clock
        };
        // Memory is full.
        let mut run = self.prepared();
        let mut before = write(0..self.behind.min(self.gathers + HALF), &mut run);
        let most = (0..WAITS).map(|place| read(place, &mut run) - std::mem::replace(&mut before, run.clock));
        let most = most.max().unwrap_or(0) as f64;
        // There is little more than is gathered: so much of it is not waited for.
        let mut run = self.prepared();
        let begun = write(0..self.gathers, &mut run);
        let over = BACKLOG.min(self.behind.saturating_sub(self.gathers));
        write(self.gathers..self.gathers + over, &mut run);
        let done = (read(0, &mut run) - begun) as f64;
        let all = line(|len| self.write(Order::Sequential, 4, len)).byte_ns() * over as f64;
        let beside = if done < most { (all - done).max(0.0) } else { 0.0 };
        Some(Waits { most_us: short(most / 1e3), beside_us: short(beside / 1e3) })
    }

    /// What the device takes into its own memory: bytes by which it is ahead of how quickly it takes them in the long run.
    pub(super) fn cache(&self) -> Option<Cache> {
        let past = Self { direct: true, ..*self };
        let mut run = self.prepared();
        let mut part = |bytes: Range<u64>| {
            let pieces = (bytes.start / PIECE..bytes.end / PIECE)
                .map(|at| past.asked(DeviceAction::Write, at * PIECE, PIECE));
            let count = (bytes.end - bytes.start) / PIECE;
            run.each(self.takes, pieces) * count as f64
        };
        let first = part(0..BURST);
        let filled = first + part(BURST..HALF);
        let byte = part(HALF..WRITTEN) / HALF as f64;
        let ahead = HALF as f64 - filled / byte;
        let mb_s = short(BURST as f64 * 1e3 / first);
        (ahead >= PIECE as f64 && mb_s > 1e3 / byte)
            .then(|| Cache { size: Bytes(ahead as u64 / PIECE * PIECE), mb_s })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Turns;
    use super::*;
    use weft_models::Profile;

    #[test]
    fn what_reads_wait_for_and_what_devices_take_is_measured() {
        let of = |name: &str, direct| {
            let profile = Profile::by_name(name).unwrap();
            let device = move || profile.build(1);
            let bench = Bench {
                device: &device,
                direct,
                span: 1 << 30,
                behind: 512 << 20,
                gathers: 128 << 20,
                turns: Turns::Strict,
                takes: 32,
                ahead: 128 << 10,
            };
            (bench.waits(), bench.writes().cache)
        };
        // Of 128 requests of write-back a read waits for nearly all; 32 of them the SSD has at a time.
        let (ssd, _) = of("sata-ssd", false);
        let ssd = ssd.unwrap();
        assert!((200e3..330e3).contains(&ssd.most_us) && (60e3..100e3).contains(&ssd.beside_us), "{ssd:?}");
        // A disk's own memory is of 32 MiB, and filled by 500 MB/s; a read that has waited for half a second goes first.
        let (hdd, cache) = of("hdd-7200", false);
        assert!((400e3..700e3).contains(&hdd.unwrap().most_us), "{hdd:?}");
        let cache = cache.unwrap();
        assert!(
            (28..=33).contains(&(cache.size.0 >> 20)) && (450.0..510.0).contains(&cache.mb_s),
            "{cache:?}"
        );
        assert_eq!(of("hdd-7200", true), (None, None));
    }
}
