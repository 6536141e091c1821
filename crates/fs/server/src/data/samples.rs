//! Samples: some of the requests, kept for the layout planner.
//!
//! Time is cut into intervals, and for each client one interval in `one_in` is kept whole. All servers keep the same
//! intervals, so samples of several servers combine to sequences of complete requests. A hash of client and interval
//! decides, which needs no memory and differs between clients.

use super::DataConnection;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::num::NonZeroU32;
use weft_core::random::mix64;
use weft_core::{LocalOffset, Nanos, Timestamp};
use weft_env::Env;
use weft_wire::data::{DatafileId, IoHints, SAMPLES_MAX, Sample, Samples};

/// Length of an interval. A slow client still has several requests in it, which show their order.
const INTERVAL_NS: u64 = 1_000_000_000;

/// Sampled requests of a server.
pub(super) struct Sampler {
    one_in: NonZeroU32,
    max: usize,
    /// Random number of this run of the server.
    run: u64,
    buffer: Mutex<SampleBuffer>,
}

#[derive(Default)]
struct SampleBuffer {
    /// Sequence number of the first sample.
    first: u64,
    samples: VecDeque<Sample>,
}

/// A request that is sampled when it is answered, which is when this is dropped.
pub(super) struct PendingSample<'a, E: Env> {
    sampler: &'a Sampler,
    env: &'a E,
    sample: Sample,
}

impl<E: Env> Drop for PendingSample<'_, E> {
    fn drop(&mut self) {
        let took = self.env.wall().0.saturating_sub(self.sample.start.0);
        self.sample.took = Nanos(u64::try_from(took).unwrap_or(0));
        self.sampler.keep(self.sample);
    }
}

/// Interval that a client is in, remembered by its connection.
#[derive(Clone, Copy, Default)]
pub(super) struct Interval {
    number: u64,
    kept: bool,
}

impl Sampler {
    /// Keeps one interval in `one_in`, and at most `max` requests.
    pub fn new(env: &impl Env, one_in: NonZeroU32, max: usize) -> Self {
        let mut run = [0; 8];
        env.random(&mut run);
        let run = u64::from_le_bytes(run).max(1);
        Self { one_in, max: max.max(1), run, buffer: Mutex::default() }
    }

    /// Whether the client of `connection` is in an interval that is kept.
    fn wants<E: Env>(&self, connection: &mut DataConnection<E>, now: Timestamp) -> bool {
        // A clock before 1970 gives one long interval.
        let number = u64::try_from(now.0).unwrap_or(0) / INTERVAL_NS;
        let interval = &mut connection.interval;
        if interval.number != number {
            let chance = mix64(connection.client ^ mix64(number));
            *interval = Interval { number, kept: chance.is_multiple_of(self.one_in.get().into()) };
        }
        interval.kept
    }

    /// Begins to sample a request.
    pub fn begin<'a, E: Env>(
        &'a self,
        env: &'a E,
        connection: &mut DataConnection<E>,
        (datafile, offset, len, write): (DatafileId, LocalOffset, u32, bool),
        hints: &IoHints,
    ) -> Option<PendingSample<'a, E>> {
        if len == 0 || hints.siblings == 0 {
            return None;
        }
        let start = env.wall();
        if !self.wants(connection, start) {
            return None;
        }
        let &IoHints { siblings, call, .. } = hints;
        let (client, took) = (connection.client, Nanos(0));
        let sample = Sample { datafile, client, offset, len, write, siblings, call, start, took };
        Some(PendingSample { sampler: self, env, sample })
    }

    fn keep(&self, sample: Sample) {
        let mut buffer = self.buffer.lock();
        if buffer.samples.len() == self.max {
            buffer.samples.pop_front();
            buffer.first += 1;
        }
        buffer.samples.push_back(sample);
    }

    /// Samples from number `from` of `run` on.
    pub fn read(&self, run: u64, from: u64, limit: usize) -> Samples {
        let buffer = self.buffer.lock();
        let end = buffer.first + buffer.samples.len() as u64;
        let wanted = if run == self.run { from.min(end) } else { 0 };
        let from = wanted.max(buffer.first);
        let skipped = (from - buffer.first) as usize;
        let samples: Vec<Sample> =
            buffer.samples.iter().skip(skipped).take(limit.clamp(1, SAMPLES_MAX)).copied().collect();
        let next = from + samples.len() as u64;
        // A reader that begins, or that knew an earlier run, has lost nothing of this one.
        let lost = if run == self.run { from - wanted } else { 0 };
        Samples { run: self.run, next, lost, one_in: self.one_in.get(), samples }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::client_number;
    use weft_core::{FileId, ObjectId, TargetId};
    use weft_wire::hello::SessionId;

    fn sampler(max: usize) -> Sampler {
        let one_in = NonZeroU32::new(4).expect("not zero");
        Sampler { one_in, max, run: 77, buffer: Mutex::default() }
    }

    fn sample(number: u64) -> Sample {
        let object = ObjectId { component: 0, column: 0 };
        Sample {
            datafile: DatafileId { target: TargetId(0), file: FileId(1), object },
            client: 5,
            offset: LocalOffset(number),
            len: 1,
            write: false,
            siblings: 1,
            call: 0,
            start: Timestamp(0),
            took: Nanos(0),
        }
    }

    #[test]
    fn readers_continue_and_learn_how_many_samples_they_missed() {
        let sampler = sampler(10);
        let offsets = |of: &Samples| of.samples.iter().map(|sample| sample.offset.0).collect::<Vec<_>>();
        (0..4).for_each(|number| sampler.keep(sample(number)));
        let first = sampler.read(0, 0, 3);
        assert_eq!((offsets(&first), first.next, first.lost), (vec![0, 1, 2], 3, 0));
        let second = sampler.read(77, first.next, 100);
        assert_eq!((offsets(&second), second.next, second.lost), (vec![3], 4, 0));
        assert_eq!(offsets(&sampler.read(77, 4, 100)), Vec::<u64>::new());
        // Another reader removes nothing. A number of another run or of the future means nothing.
        assert_eq!(offsets(&sampler.read(76, 3, 100)), [0, 1, 2, 3]);
        assert_eq!(sampler.read(77, u64::MAX, 100).next, 4);
        (4..20).for_each(|number| sampler.keep(sample(number)));
        let late = sampler.read(77, 4, 100);
        assert_eq!((offsets(&late), late.next, late.lost), ((10..20).collect(), 20, 6));
        assert_eq!(sampler.read(0, 0, 100).lost, 0);
    }

    #[test]
    fn client_numbers_differ_and_one_interval_in_n_is_kept() {
        let numbers: std::collections::BTreeSet<u64> =
            (0..1000u128).map(|session| client_number(SessionId(session << 60))).collect();
        assert_eq!(numbers.len(), 1000);
        let kept = |client: u64| {
            (0..10_000u64).filter(|number| mix64(client ^ mix64(*number)).is_multiple_of(4)).count()
        };
        assert!(numbers.iter().take(20).all(|client| (2300..2700).contains(&kept(*client))));
    }
}
