//! File systems that lock: who gets what when, by hand, and what holds whatever is asked.

use proptest::prelude::*;
use std::ops::Range;
use weft_core::{ByteLen, LocalOffset, Nanos};
use weft_models::locks::{Ask, LockSpec, Locks, Mode, Revoked};

const END: u64 = u64::MAX;

fn locks(name: &str) -> Locks {
    Locks::new(&LockSpec::by_name(name).expect("a lock model that comes with Weft"))
}

fn range(start: u64, end: u64) -> Range<LocalOffset> {
    LocalOffset(start)..LocalOffset(end)
}

fn write(client: u32, start: u64, end: u64) -> Ask {
    Ask { client, object: 0, range: range(start, end), mode: Mode::Write, hold: Nanos(0) }
}

fn read(client: u32, start: u64, end: u64) -> Ask {
    Ask { mode: Mode::Read, ..write(client, start, end) }
}

#[test]
fn the_first_gets_all_for_one_round_trip_and_keeps_it() {
    for name in ["lustre", "gpfs"] {
        let mut locks = locks(name);
        let grant = locks.ask(Nanos(0), &write(1, 4096, 8192));
        // 50 us there, 10 us, 50 us back.
        assert_eq!((grant.at, grant.messages), (Nanos(110_000), 2), "{name}");
        assert_eq!(grant.range, range(0, END));
        let again = locks.ask(Nanos(200_000), &write(1, 1 << 40, 2 << 40));
        assert_eq!((again.at, again.messages), (Nanos(200_000), 0));
        assert_eq!(locks.counters().kept, 1);
    }
}

#[test]
fn an_extent_lock_is_called_back_whole_and_written_back_first() {
    let mut lustre = locks("lustre");
    lustre.ask(Nanos(0), &write(1, 0, 1_000_000));
    let second = lustre.ask(Nanos(1_000_000), &write(2, 2_000_000, 2_004_096));
    // At the server after 60 us, at the holder after 110; 500 us and 1 MB at 100 MB/s; two ways back.
    let by_hand = 1_000_000 + 110_000 + 500_000 + 10_000_000 + 2 * 50_000;
    assert_eq!(second.at, Nanos(by_hand));
    assert_eq!(second.revoked, [Revoked { client: 1, range: range(0, END), flushed: ByteLen(1_000_000) }]);
    assert_eq!(second.range, range(1_003_520, END), "up to where the first worked, in whole pages");
    assert_eq!(second.messages, 4);
    // The first comes again, and nobody minds; but where the lock of the second grew to, it has to go.
    let third = lustre.ask(Nanos(by_hand), &write(1, 0, 4096));
    assert_eq!((third.revoked.len(), third.range), (0, range(0, 1_003_520)));
    let fourth = lustre.ask(Nanos(by_hand), &write(1, 1_003_520, 1_100_000));
    assert_eq!(fourth.revoked.len(), 1);
    // Whoever lost one long ago stops nobody.
    let much_later = lustre.ask(Nanos::from_s(10), &write(3, 4_000_000, 4_004_096));
    assert_eq!(much_later.range.end, LocalOffset(END));
}

#[test]
fn a_lock_grows_to_the_locks_of_others_which_it_does_not_touch() {
    let mut lustre = locks("lustre");
    lustre.ask(Nanos(0), &read(1, 0, 4096));
    let other = lustre.ask(Nanos(0), &read(2, 8192, 12_288));
    assert_eq!((other.range, other.revoked.len()), (range(0, END), 0), "readers share");
    // A writer takes it from both.
    let writer = lustre.ask(Nanos(0), &write(3, 4096, 8192));
    assert_eq!(writer.revoked.iter().map(|r| (r.client, r.flushed.0)).collect::<Vec<_>>(), [(1, 0), (2, 0)]);
    assert_eq!(writer.messages, 6);
    assert_eq!(lustre.holders(0), [(3, range(4096, 8192), Mode::Write)], "between where the readers were");
}

#[test]
fn a_contended_object_grows_locks_less() {
    let mut spec = LockSpec::by_name("lustre").expect("a lock model that comes with Weft");
    (spec.contended, spec.contended_growth_mib) = (1, 1);
    let mut locks = Locks::new(&spec);
    locks.ask(Nanos(0), &write(1, 0, 4096));
    let second = locks.ask(Nanos(0), &write(2, 100, 5000));
    assert_eq!(second.range, range(0, 8192 + (1 << 20)), "whole pages, and 1 MiB more");
}

#[test]
fn what_is_in_use_is_given_up_afterwards() {
    for name in ["lustre", "gpfs"] {
        let mut locks = locks(name);
        locks.ask(Nanos(0), &Ask { hold: Nanos::from_ms(30), ..read(1, 0, 4096) });
        let second = locks.ask(Nanos(0), &write(2, 0, 4096));
        assert!(second.at.0 >= 110_000 + 30_000_000 && second.at.0 < 31_000_000, "{name}: {}", second.at);
    }
}

#[test]
fn a_token_is_split_where_each_is_working() {
    let mut gpfs = locks("gpfs");
    let (block, mib) = (512 << 10, 1 << 20);
    gpfs.ask(Nanos(0), &write(1, 0, 4096));
    // Another one further back: what lies behind is his.
    let second = gpfs.ask(Nanos(0), &write(2, 10 * mib, 10 * mib + 100));
    assert_eq!((second.range, second.messages), (range(10 * mib, END), 4));
    assert_eq!(second.revoked, [Revoked { client: 1, range: range(10 * mib, END), flushed: ByteLen(0) }]);
    // Both go on without a message.
    assert_eq!(gpfs.ask(Nanos(0), &write(1, 9 * mib, 10 * mib)).messages, 0);
    assert_eq!(gpfs.ask(Nanos(0), &write(2, 12 * mib, 40 * mib)).messages, 0);
    // One that works behind keeps what is behind: the third gets up to there.
    let third = gpfs.ask(Nanos(0), &write(3, 11 * mib, 11 * mib + 1));
    assert_eq!(third.range, range(10 * mib, 12 * mib));
    // The same block as somebody works in: only that block goes, written back.
    let fourth = gpfs.ask(Nanos(0), &write(4, 9 * mib + 10, 9 * mib + 20));
    assert_eq!(fourth.range, range(9 * mib, 9 * mib + block));
    assert_eq!(fourth.revoked[0].flushed, ByteLen(block));
    let holders: Vec<_> =
        gpfs.holders(0).into_iter().map(|(client, range, _)| (client, range.start.0, range.end.0)).collect();
    let split = 9 * mib + block;
    let expected = [
        (1, 0, 9 * mib),
        (4, 9 * mib, split),
        (1, split, 10 * mib),
        (3, 10 * mib, 12 * mib),
        (2, 12 * mib, END),
    ];
    assert_eq!(holders, expected);
}

/// Messages for each of 64 requests of `len` bytes that four clients write in turn.
fn interleaved(name: &str, len: u64) -> f64 {
    let mut locks = locks(name);
    let mut now = 0;
    for n in 0..64 {
        now = locks.ask(Nanos(now), &write((n % 4) as u32, n * len, (n + 1) * len)).at.0;
    }
    locks.counters().messages as f64 / 64.0
}

#[test]
fn interleaved_writers_pay_and_those_apart_do_not() {
    for name in ["lustre", "gpfs"] {
        assert!(interleaved(name, 4096) > 1.5, "{name}: {}", interleaved(name, 4096));
        // Each with a region of its own: after the first requests nobody asks again.
        let mut locks = locks(name);
        let mut now = 0;
        for round in 0..64 {
            for client in 0..4u32 {
                let start = u64::from(client) * (1 << 30) + round * 65_536;
                now = locks.ask(Nanos(now), &write(client, start, start + 65_536)).at.0;
            }
        }
        let asked = locks.counters().asked - locks.counters().kept;
        if name == "gpfs" {
            assert_eq!(asked, 4, "each token is split once");
        } else {
            // Extents that grew are taken back whole before they settle between one another.
            assert!(asked < 32, "{asked}");
        }
    }
}

#[test]
fn a_dead_client_has_nothing() {
    let mut gpfs = locks("gpfs");
    gpfs.ask(Nanos(0), &write(1, 0, 4096));
    gpfs.forget_client(1);
    assert_eq!(gpfs.ask(Nanos(0), &write(2, 0, 4096)).messages, 2);
    gpfs.forget_object(0);
    assert_eq!(gpfs.holders(0), []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn nobody_has_what_conflicts_and_everybody_gets_what_he_asked_for(
        name in prop_oneof![Just("lustre"), Just("gpfs")],
        asks in prop::collection::vec((0..6u32, 0..3u64, 0..5_000_000u64, 1..2_000_000u64, any::<bool>(), 0..2_000_000u64), 1..80),
    ) {
        let mut locks = locks(name);
        let mut again = locks.clone();
        let mut now = Nanos(0);
        for (client, object, start, len, is_write, pause) in asks {
            let mode = if is_write { Mode::Write } else { Mode::Read };
            let ask = Ask { client, object, range: range(start, start + len), mode, hold: Nanos(pause / 2) };
            let grant = locks.ask(now, &ask);
            prop_assert!(grant.at >= now);
            prop_assert!(grant.range.start <= ask.range.start && ask.range.end <= grant.range.end);
            prop_assert!(grant.revoked.iter().all(|revoked| revoked.client != client));
            prop_assert_eq!(&again.ask(now, &ask), &grant);
            let holders = locks.holders(object);
            let is_held = holders.iter().any(|(who, held, for_what)| {
                *who == client && held.start <= ask.range.start && ask.range.end <= held.end
                    && (*for_what == Mode::Write || mode == Mode::Read)
            });
            prop_assert!(is_held);
            for (index, (one, range, mode)) in holders.iter().enumerate() {
                prop_assert!(range.start < range.end);
                for (other, theirs, their_mode) in &holders[index + 1..] {
                    let both_read = *mode == Mode::Read && *their_mode == Mode::Read;
                    let apart = range.end <= theirs.start || theirs.end <= range.start;
                    prop_assert!(one == other || both_read || apart, "{one} and {other} of {object}: {holders:?}");
                }
            }
            now = Nanos(now.0 + pause);
        }
    }
}
