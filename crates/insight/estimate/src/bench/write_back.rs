//! Measures write-back: the delay of reads behind it, and the device's write cache.
//!
//! | figure | how it is measured |
//! | --- | --- |
//! | `waits.most_us` | the longest of eight 4 KiB reads while the page cache is full of dirty data |
//! | `waits.beside_us` | write-back time of 64 MiB above the threshold, minus the time that a read waits then |
//! | `cache.size` | bytes by which direct writes are ahead of the sustained rate after 384 MiB |
//! | `cache.mb_s` | rate of the first 8 MiB |

use super::{BUFFERED_BYTES, Bench, DeviceRun, Order, line, rounded};
use std::ops::Range;
use weft_env::device::DeviceAction;
use weft_planner::Bytes;
use weft_planner::figures::{Cache, ReadDelay};

/// Number of reads measured during write-back.
const DELAYED_READS: u64 = 8;
/// Dirty bytes above the threshold when the overlap of reads and write-back is measured.
const EXCESS_BYTES: u64 = 64 << 20;
/// Maximum bytes of a write message.
const MESSAGE_BYTES: u64 = 4 << 20;
/// Length of the writes that fill the device cache, bytes.
const WRITE_BYTES: u64 = 1 << 20;
/// Bytes of the first writes, which fit the device cache.
const BURST_BYTES: u64 = 8 << 20;
/// Bytes after which the device cache is full.
const FILL_BYTES: u64 = BUFFERED_BYTES / 2;

impl Bench<'_> {
    /// Measures how long reads wait while the device writes back dirty data.
    pub(super) fn read_delay(&self) -> Option<ReadDelay> {
        if self.direct || self.write_back_threshold >= BUFFERED_BYTES {
            return None;
        }
        // Messages of full length, after the range that is read.
        let write = |bytes: Range<u64>, run: &mut DeviceRun| {
            let at = |number| self.span + number * MESSAGE_BYTES;
            let messages = bytes.start / MESSAGE_BYTES..bytes.end / MESSAGE_BYTES;
            run.run_at_depth(
                1,
                messages.map(|number| self.request(DeviceAction::Write, at(number), MESSAGE_BYTES)),
            );
            run.clock
        };
        let read = |place: u64, run: &mut DeviceRun| {
            run.run_one(&self.request(DeviceAction::Read, self.span / DELAYED_READS * place, 4096));
            run.clock
        };
        // The page cache is full.
        let mut run = self.prepared();
        let mut before = write(0..self.write_buffer.min(self.write_back_threshold + FILL_BYTES), &mut run);
        let most =
            (0..DELAYED_READS).map(|place| read(place, &mut run) - std::mem::replace(&mut before, run.clock));
        let most = most.max().unwrap_or(0) as f64;
        // The dirty data is slightly above the threshold. Part of its write-back overlaps with the read.
        let mut run = self.prepared();
        let begun = write(0..self.write_back_threshold, &mut run);
        let over = EXCESS_BYTES.min(self.write_buffer.saturating_sub(self.write_back_threshold));
        write(self.write_back_threshold..self.write_back_threshold + over, &mut run);
        let done = (read(0, &mut run) - begun) as f64;
        let all = line(|len| self.write(Order::Sequential, 4, len)).byte_ns() * over as f64;
        let beside = if done < most { (all - done).max(0.0) } else { 0.0 };
        Some(ReadDelay { max_us: rounded(most / 1e3), overlap_us: rounded(beside / 1e3) })
    }

    /// Measures the device's write cache: its size is the lead over the sustained rate.
    pub(super) fn cache(&self) -> Option<Cache> {
        let past = Self { direct: true, ..*self };
        let mut run = self.prepared();
        let mut part = |bytes: Range<u64>| {
            let pieces = (bytes.start / WRITE_BYTES..bytes.end / WRITE_BYTES)
                .map(|at| past.request(DeviceAction::Write, at * WRITE_BYTES, WRITE_BYTES));
            let count = (bytes.end - bytes.start) / WRITE_BYTES;
            run.run_at_depth(self.queue_depth, pieces) * count as f64
        };
        let first = part(0..BURST_BYTES);
        let filled = first + part(BURST_BYTES..FILL_BYTES);
        let byte = part(FILL_BYTES..BUFFERED_BYTES) / FILL_BYTES as f64;
        let ahead = FILL_BYTES as f64 - filled / byte;
        let mb_s = rounded(BURST_BYTES as f64 * 1e3 / first);
        (ahead >= WRITE_BYTES as f64 && mb_s > 1e3 / byte)
            .then(|| Cache { size: Bytes(ahead as u64 / WRITE_BYTES * WRITE_BYTES), mb_s })
    }
}

#[cfg(test)]
mod tests {
    use super::super::StreamSchedule;
    use super::*;
    use weft_models::Profile;

    #[test]
    fn read_delay_and_device_cache_are_measured() {
        let of = |name: &str, direct| {
            let profile = Profile::by_name(name).unwrap();
            let device = move || profile.build(1);
            let bench = Bench {
                device: &device,
                direct,
                span: 1 << 30,
                write_buffer: 512 << 20,
                write_back_threshold: 128 << 20,
                schedule: StreamSchedule::RoundRobin,
                queue_depth: 32,
                read_ahead: 128 << 10,
            };
            (bench.read_delay(), bench.writes().cache)
        };
        // A read waits for nearly all of 128 write-back requests, of which the SSD has 32 at a time.
        let (ssd, _) = of("sata-ssd", false);
        let ssd = ssd.unwrap();
        assert!((200e3..330e3).contains(&ssd.max_us) && (60e3..100e3).contains(&ssd.overlap_us), "{ssd:?}");
        // The disk has a cache of 32 MiB that fills at 500 MB/s. A read that has waited for half a second is served
        // first.
        let (hdd, cache) = of("hdd-7200", false);
        assert!((400e3..700e3).contains(&hdd.unwrap().max_us), "{hdd:?}");
        let cache = cache.unwrap();
        assert!(
            (28..=33).contains(&(cache.size.0 >> 20)) && (450.0..510.0).contains(&cache.mb_s),
            "{cache:?}"
        );
        assert_eq!(of("hdd-7200", true), (None, None));
    }
}
