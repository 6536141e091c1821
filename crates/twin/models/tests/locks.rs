//! Tests of the lock models: grants computed by hand, and invariants for random requests.

use proptest::prelude::*;
use std::ops::Range;
use weft_core::{ByteLen, LocalOffset, Nanos};
use weft_models::locks::{LockRequest, LockSpec, Locks, Mode, Revoked};

const END: u64 = u64::MAX;

fn locks(name: &str) -> Locks {
    Locks::new(&LockSpec::by_name(name).expect("a lock model that comes with Weft"))
}

fn range(start: u64, end: u64) -> Range<LocalOffset> {
    LocalOffset(start)..LocalOffset(end)
}

fn write(client: u32, start: u64, end: u64) -> LockRequest {
    LockRequest { client, object: 0, range: range(start, end), mode: Mode::Write, hold: Nanos(0) }
}

fn read(client: u32, start: u64, end: u64) -> LockRequest {
    LockRequest { mode: Mode::Read, ..write(client, start, end) }
}

#[test]
fn the_first_client_gets_everything_in_one_round_trip() {
    for name in ["lustre", "gpfs"] {
        let mut locks = locks(name);
        let grant = locks.request(Nanos(0), &write(1, 4096, 8192));
        // 50 us to the server, 10 us there, 50 us back.
        assert_eq!((grant.at, grant.messages), (Nanos(110_000), 2), "{name}");
        assert_eq!(grant.range, range(0, END));
        let again = locks.request(Nanos(200_000), &write(1, 1 << 40, 2 << 40));
        assert_eq!((again.at, again.messages), (Nanos(200_000), 0));
        assert_eq!(locks.counters().hits, 1);
    }
}

#[test]
fn an_extent_lock_is_revoked_completely_after_write_back() {
    let mut lustre = locks("lustre");
    lustre.request(Nanos(0), &write(1, 0, 1_000_000));
    let second = lustre.request(Nanos(1_000_000), &write(2, 2_000_000, 2_004_096));
    // At the server after 60 us, at the holder after 110 us, then 500 us, 1 MB at 100 MB/s, and two messages back.
    let by_hand = 1_000_000 + 110_000 + 500_000 + 10_000_000 + 2 * 50_000;
    assert_eq!(second.at, Nanos(by_hand));
    assert_eq!(second.revoked, [Revoked { client: 1, range: range(0, END), flushed: ByteLen(1_000_000) }]);
    assert_eq!(second.range, range(1_003_520, END), "up to the last use of the first, in whole pages");
    assert_eq!(second.messages, 4);
    // The first client returns without a conflict, but it loses the part to which the second lock extended.
    let third = lustre.request(Nanos(by_hand), &write(1, 0, 4096));
    assert_eq!((third.revoked.len(), third.range), (0, range(0, 1_003_520)));
    let fourth = lustre.request(Nanos(by_hand), &write(1, 1_003_520, 1_100_000));
    assert_eq!(fourth.revoked.len(), 1);
    // A client that lost its lock long ago limits no grant.
    let much_later = lustre.request(Nanos::from_s(10), &write(3, 4_000_000, 4_004_096));
    assert_eq!(much_later.range.end, LocalOffset(END));
}

#[test]
fn a_grant_extends_to_conflicting_locks() {
    let mut lustre = locks("lustre");
    lustre.request(Nanos(0), &read(1, 0, 4096));
    let other = lustre.request(Nanos(0), &read(2, 8192, 12_288));
    assert_eq!((other.range, other.revoked.len()), (range(0, END), 0), "readers share");
    // A writer takes the lock from both.
    let writer = lustre.request(Nanos(0), &write(3, 4096, 8192));
    assert_eq!(writer.revoked.iter().map(|r| (r.client, r.flushed.0)).collect::<Vec<_>>(), [(1, 0), (2, 0)]);
    assert_eq!(writer.messages, 6);
    assert_eq!(lustre.holders(0), [(3, range(4096, 8192), Mode::Write)], "between the ranges of the readers");
}

#[test]
fn grants_on_a_contended_object_extend_less() {
    let mut spec = LockSpec::by_name("lustre").expect("a lock model that comes with Weft");
    (spec.contended, spec.contended_growth_mib) = (1, 1);
    let mut locks = Locks::new(&spec);
    locks.request(Nanos(0), &write(1, 0, 4096));
    let second = locks.request(Nanos(0), &write(2, 100, 5000));
    assert_eq!(second.range, range(0, 8192 + (1 << 20)), "whole pages, and 1 MiB more");
}

#[test]
fn a_lock_in_use_is_released_afterwards() {
    for name in ["lustre", "gpfs"] {
        let mut locks = locks(name);
        locks.request(Nanos(0), &LockRequest { hold: Nanos::from_ms(30), ..read(1, 0, 4096) });
        let second = locks.request(Nanos(0), &write(2, 0, 4096));
        assert!(second.at.0 >= 110_000 + 30_000_000 && second.at.0 < 31_000_000, "{name}: {}", second.at);
    }
}

#[test]
fn a_token_is_split_between_working_positions() {
    let mut gpfs = locks("gpfs");
    let (block, mib) = (512 << 10, 1 << 20);
    gpfs.request(Nanos(0), &write(1, 0, 4096));
    // A second client further back gets the part behind it.
    let second = gpfs.request(Nanos(0), &write(2, 10 * mib, 10 * mib + 100));
    assert_eq!((second.range, second.messages), (range(10 * mib, END), 4));
    assert_eq!(second.revoked, [Revoked { client: 1, range: range(10 * mib, END), flushed: ByteLen(0) }]);
    // Both continue without a message.
    assert_eq!(gpfs.request(Nanos(0), &write(1, 9 * mib, 10 * mib)).messages, 0);
    assert_eq!(gpfs.request(Nanos(0), &write(2, 12 * mib, 40 * mib)).messages, 0);
    // A holder that works behind keeps the part behind. The third client gets everything up to there.
    let third = gpfs.request(Nanos(0), &write(3, 11 * mib, 11 * mib + 1));
    assert_eq!(third.range, range(10 * mib, 12 * mib));
    // Two clients in one block: only that block is revoked and written back.
    let fourth = gpfs.request(Nanos(0), &write(4, 9 * mib + 10, 9 * mib + 20));
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

/// Returns messages per request for 64 requests of `len` bytes that four clients write in turn.
fn interleaved(name: &str, len: u64) -> f64 {
    let mut locks = locks(name);
    let mut now = 0;
    for n in 0..64 {
        now = locks.request(Nanos(now), &write((n % 4) as u32, n * len, (n + 1) * len)).at.0;
    }
    locks.counters().messages as f64 / 64.0
}

#[test]
fn only_interleaved_writers_cost_messages() {
    for name in ["lustre", "gpfs"] {
        assert!(interleaved(name, 4096) > 1.5, "{name}: {}", interleaved(name, 4096));
        // Each client has a region. After the first requests none of them needs a message.
        let mut locks = locks(name);
        let mut now = 0;
        for round in 0..64 {
            for client in 0..4u32 {
                let start = u64::from(client) * (1 << 30) + round * 65_536;
                now = locks.request(Nanos(now), &write(client, start, start + 65_536)).at.0;
            }
        }
        let asked = locks.counters().requests - locks.counters().hits;
        if name == "gpfs" {
            assert_eq!(asked, 4, "each token is split once");
        } else {
            // Extents that had grown are revoked completely before they become stable.
            assert!(asked < 32, "{asked}");
        }
    }
}

#[test]
fn a_dead_client_holds_no_lock() {
    let mut gpfs = locks("gpfs");
    gpfs.request(Nanos(0), &write(1, 0, 4096));
    gpfs.forget_client(1);
    assert_eq!(gpfs.request(Nanos(0), &write(2, 0, 4096)).messages, 2);
    gpfs.forget_object(0);
    assert_eq!(gpfs.holders(0), []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_locks_conflict_and_every_request_is_granted(
        name in prop_oneof![Just("lustre"), Just("gpfs")],
        asks in prop::collection::vec((0..6u32, 0..3u64, 0..5_000_000u64, 1..2_000_000u64, any::<bool>(), 0..2_000_000u64), 1..80),
    ) {
        let mut locks = locks(name);
        let mut again = locks.clone();
        let mut now = Nanos(0);
        for (client, object, start, len, is_write, pause) in asks {
            let mode = if is_write { Mode::Write } else { Mode::Read };
            let ask = LockRequest { client, object, range: range(start, start + len), mode, hold: Nanos(pause / 2) };
            let grant = locks.request(now, &ask);
            prop_assert!(grant.at >= now);
            prop_assert!(grant.range.start <= ask.range.start && ask.range.end <= grant.range.end);
            prop_assert!(grant.revoked.iter().all(|revoked| revoked.client != client));
            prop_assert_eq!(&again.request(now, &ask), &grant);
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
