//! Some of the requests, kept for whoever plans layouts by what programs do.
//!
//! A client's time is cut into stretches, and of so many stretches one is kept whole, on every server the same: what is put
//! together from them are requests in a row, with all their parts. Which stretches these are is left to chance, differs from
//! client to client, and needs no memory.

use super::DataConnection;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::num::NonZeroU32;
use weft_core::{LocalOffset, Nanos, Timestamp};
use weft_env::Env;
use weft_wire::data::{DatafileId, IoHints, SAMPLES_MAX, Sample, Samples};
use weft_wire::hello::SessionId;

/// A stretch of a client's time, in nanoseconds: so long that also who asks for little has several requests in it, from which
/// their order can be told.
const STRETCH_NS: u64 = 1_000_000_000;

/// What is kept of the requests to a server.
pub(super) struct Sampler {
    one_in: NonZeroU32,
    max: usize,
    /// This run of the server.
    run: u64,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// The number of the first one.
    first: u64,
    samples: VecDeque<Sample>,
}

/// A request that is to be kept when it is answered: when this is dropped.
pub(super) struct Noted<'a, E: Env> {
    sampler: &'a Sampler,
    env: &'a E,
    sample: Sample,
}

impl<E: Env> Drop for Noted<'_, E> {
    fn drop(&mut self) {
        let took = self.env.wall().0.saturating_sub(self.sample.start.0);
        self.sample.took = Nanos(u64::try_from(took).unwrap_or(0));
        self.sampler.keep(self.sample);
    }
}

/// What a connection remembers of the stretch that its client is in.
#[derive(Clone, Copy, Default)]
pub(super) struct Stretch {
    number: u64,
    kept: bool,
}

/// The number by which samples name a client process. It is half as long as the session's and does not tell it.
pub(super) fn client_number(session: SessionId) -> u64 {
    let (high, low) = ((session.0 >> 64) as u64, session.0 as u64);
    mixed(mixed(high) ^ low)
}

fn mixed(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Sampler {
    /// Of so many stretches one; at most `max` requests.
    pub fn new(env: &impl Env, one_in: NonZeroU32, max: usize) -> Self {
        let mut run = [0; 8];
        env.random(&mut run);
        let run = u64::from_le_bytes(run).max(1);
        Self { one_in, max: max.max(1), run, kept: Mutex::default() }
    }

    /// Whether the client of `connection` is in a stretch that is kept.
    fn wants<E: Env>(&self, connection: &mut DataConnection<E>, now: Timestamp) -> bool {
        // A clock that stands before 1970 gives one long stretch.
        let number = u64::try_from(now.0).unwrap_or(0) / STRETCH_NS;
        let stretch = &mut connection.stretch;
        if stretch.number != number {
            let chance = mixed(connection.client ^ mixed(number));
            *stretch = Stretch { number, kept: chance.is_multiple_of(self.one_in.get().into()) };
        }
        stretch.kept
    }

    /// Notes a request that begins.
    pub fn note<'a, E: Env>(
        &'a self,
        env: &'a E,
        connection: &mut DataConnection<E>,
        (datafile, offset, len, write): (DatafileId, LocalOffset, u32, bool),
        hints: &IoHints,
    ) -> Option<Noted<'a, E>> {
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
        Some(Noted { sampler: self, env, sample })
    }

    fn keep(&self, sample: Sample) {
        let mut kept = self.kept.lock();
        if kept.samples.len() == self.max {
            kept.samples.pop_front();
            kept.first += 1;
        }
        kept.samples.push_back(sample);
    }

    /// Those from number `from` of `run` on.
    pub fn read(&self, run: u64, from: u64, limit: usize) -> Samples {
        let kept = self.kept.lock();
        let end = kept.first + kept.samples.len() as u64;
        let wanted = if run == self.run { from.min(end) } else { 0 };
        let from = wanted.max(kept.first);
        let skipped = (from - kept.first) as usize;
        let samples: Vec<Sample> =
            kept.samples.iter().skip(skipped).take(limit.clamp(1, SAMPLES_MAX)).copied().collect();
        let next = from + samples.len() as u64;
        // What came before whoever asks had asked for anything is no loss.
        let lost = if run == self.run { from - wanted } else { 0 };
        Samples { run: self.run, next, lost, one_in: self.one_in.get(), samples }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::{FileId, ObjectId, TargetId};

    fn sampler(max: usize) -> Sampler {
        let one_in = NonZeroU32::new(4).expect("not zero");
        Sampler { one_in, max, run: 77, kept: Mutex::default() }
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
    fn readers_go_on_where_they_were_and_hear_what_they_missed() {
        let sampler = sampler(10);
        let offsets = |of: &Samples| of.samples.iter().map(|sample| sample.offset.0).collect::<Vec<_>>();
        (0..4).for_each(|number| sampler.keep(sample(number)));
        let first = sampler.read(0, 0, 3);
        assert_eq!((offsets(&first), first.next, first.lost), (vec![0, 1, 2], 3, 0));
        let second = sampler.read(77, first.next, 100);
        assert_eq!((offsets(&second), second.next, second.lost), (vec![3], 4, 0));
        assert_eq!(offsets(&sampler.read(77, 4, 100)), Vec::<u64>::new());
        // Another reader takes nothing away; a number of another run or of the future means nothing.
        assert_eq!(offsets(&sampler.read(76, 3, 100)), [0, 1, 2, 3]);
        assert_eq!(sampler.read(77, u64::MAX, 100).next, 4);
        (4..20).for_each(|number| sampler.keep(sample(number)));
        let late = sampler.read(77, 4, 100);
        assert_eq!((offsets(&late), late.next, late.lost), ((10..20).collect(), 20, 6));
        assert_eq!(sampler.read(0, 0, 100).lost, 0);
    }

    #[test]
    fn numbers_of_clients_differ_and_stretches_are_as_many_as_told() {
        let numbers: std::collections::BTreeSet<u64> =
            (0..1000u128).map(|session| client_number(SessionId(session << 60))).collect();
        assert_eq!(numbers.len(), 1000);
        let kept = |client: u64| {
            (0..10_000u64).filter(|number| mixed(client ^ mixed(*number)).is_multiple_of(4)).count()
        };
        assert!(numbers.iter().take(20).all(|client| (2300..2700).contains(&kept(*client))));
    }
}
