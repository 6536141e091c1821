//! A move seals and removes a datafile while a read of it waits for the device. The read returns all bytes or is
//! rejected, on each of the three ways by which bytes reach a client. It never finds the removed datafile empty.
//!
//! The fault search does not find the mutant `ReadAfterSeal`, so its test is here: `cargo test -p weft-twin --features
//! mutants --test sealed_reads`.

#[path = "../../../fs/server/tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use support::*;
use weft_core::{Nanos, ServerId};
use weft_env::mutants::{self, Mutant};
use weft_env::sim::{Control, Sim, SimEnv};
use weft_env::{Address, Conn, Dir, Env, Shared};
use weft_wire::data::{DataReply, DataRequest};
use weft_wire::hello::{Identity, Role};
use weft_wire::{Errno, Rights};

const FILE: u64 = 8;
const LEN: usize = 256 << 10;
/// Expiry below which the seal rejects capabilities, in seconds since 1970.
const SEALED_BEFORE_S: u64 = 1 << 41;

/// Sessions. The target admits waiting ones in the order of their numbers, so that a removal can overtake the read.
const WRITER: u128 = 1;
const FIRST_EARLIER_READER: u128 = 2;
const MOVER: u128 = 100;
const READER: u128 = 200;

/// Way by which bytes reach the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// Copied into a payload.
    Payload,
    /// Sent by the system from the open datafile.
    SentFile,
    /// Copied into memory that client and server share.
    SharedMemory,
}

const WAYS: [Way; 3] = [Way::Payload, Way::SentFile, Way::SharedMemory];

/// Peer that removes the sealed datafile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Remover {
    /// The metadata service. The target keeps a tombstone, with which a read fails.
    Service,
    /// An administrator. The target keeps no tombstone, as after more removals than it has tombstones.
    Administrator,
}

/// A read of a datafile that is sealed and removed, and the requests before it.
#[derive(Clone, Copy, Debug)]
struct Race {
    way: Way,
    /// Number of reads of another datafile that arrive before the read.
    earlier_reads: u64,
    remover: Remover,
}

fn address(way: Way) -> Address {
    match way {
        Way::Payload => Address::Tcp("storage".into(), 4000),
        Way::SentFile | Way::SharedMemory => Address::Unix("/run/socket".into()),
    }
}

async fn connected(env: &SimEnv, way: Way, session: u128) -> Client<SimEnv> {
    let user = Identity { uid: 1000, gid: 1000, groups: vec![] };
    let key = secret().identity_key(&user);
    Client::connect_as(env, &address(way), hello(Role::Client(user), session), key).await
}

/// Reads the whole datafile. Returns its bytes, or the error number.
async fn read_whole(client: &mut Client<SimEnv>, way: Way) -> Result<Vec<u8>, Option<Errno>> {
    let (datafile, cap) = (datafile(0, FILE, 0), client.cap(FILE));
    let DataRequest::Read { offset, len, hints, .. } = read_request(datafile, cap, 0, LEN as u32) else {
        unreachable!("it makes a read")
    };
    if way != Way::SharedMemory {
        let (reply, bytes) = client.call(&DataRequest::Read { datafile, cap, offset, len, hints }, &[]).await;
        return match reply {
            DataReply::Read { .. } => Ok(bytes),
            other => Err(errno(&other)),
        };
    }
    let attach = DataRequest::AttachShared { payload_len: LEN as u32 };
    let DataReply::Attached { payload_len } = client.call(&attach, &[]).await.0 else {
        panic!("not attached")
    };
    let area = client.link.conn().take_shared(payload_len as usize).expect("the area");
    let request = DataRequest::ReadShared { datafile, cap, offset, len, to: 0, hints };
    match client.call(&request, &[]).await.0 {
        DataReply::ReadShared { len, .. } => {
            let mut bytes = vec![0; len as usize];
            area.copy_out(0, &mut bytes);
            Ok(bytes)
        }
        other => Err(errno(&other)),
    }
}

/// Virtual time at which the earlier reads start.
const RACE_BEGINS: Nanos = Nanos::from_s(10);
/// Virtual time at which the read starts.
const READ_BEGINS: Nanos = RACE_BEGINS.saturating_add(Nanos(2_000));

async fn sleep_until(env: &SimEnv, control: &Control, time: Nanos) {
    env.sleep(time.saturating_sub(control.elapsed())).await;
}

/// Returns the result of the read when its datafile is sealed, and then removed, `delay` after the start of the race.
fn raced(race: Race, delay: Nanos) -> Result<Vec<u8>, Option<Errno>> {
    let Race { way, earlier_reads, remover } = race;
    let mut sim = Sim::with_seed(11);
    let storage = sim.node("storage");
    let compute = sim.node("compute");
    let local = sim.process(&storage, "client", 1000, 1000);
    let env = storage.clone();
    let server = sim.block_on(&storage, async move {
        let root = env.dir(Path::new("/")).await.expect("the root");
        for name in ["t0", "t1", "t2"] {
            root.make_dir(name).await.expect("a folder");
            root.sync("").await.expect("synced");
        }
        let mut config = config(Path::new("/"), vec![address(Way::SentFile), address(Way::Payload)], true);
        // Local clients are administrators.
        config.hooks.uid = 1000;
        // One request at a time, so that the read waits behind the earlier ones.
        config.targets.iter_mut().for_each(|target| target.queue_depth = 1);
        Arc::new(start(&env, config).await)
    });
    let world = local.clone();
    sim.block_on(&local, async move {
        let mut writer = connected(&world, Way::SharedMemory, WRITER).await;
        assert_eq!(writer.write(datafile(0, FILE, 0), 0, &pattern(LEN, 8)).await, DataReply::Written);
        assert_eq!(writer.write(datafile(0, 9, 0), 0, &pattern(LEN, 9)).await, DataReply::Written);
    });
    let ended = Arc::new(AtomicU64::new(0));
    let (world, control, mover_ended) = (local.clone(), sim.control(), Arc::clone(&ended));
    let mover = async move {
        let mut peer = match remover {
            Remover::Service => {
                let hello = hello(Role::Server(ServerId(1)), MOVER);
                Client::connect_as(&world, &address(Way::SentFile), hello, secret().server_key()).await
            }
            Remover::Administrator => connected(&world, Way::SentFile, MOVER).await,
        };
        sleep_until(&world, &control, RACE_BEGINS.saturating_add(delay)).await;
        let cap = peer.grant(FILE, Rights::MOVE, SEALED_BEFORE_S);
        let datafiles = vec![datafile(0, FILE, 0)];
        let seal = DataRequest::Seal { cap, before_s: SEALED_BEFORE_S, datafiles: datafiles.clone() };
        assert_eq!(peer.call(&seal, &[]).await.0, DataReply::Done);
        assert_eq!(peer.call(&DataRequest::Remove { datafiles }, &[]).await.0, DataReply::Done);
        mover_ended.fetch_add(1, Ordering::SeqCst);
    };
    sim.start(&local, "mover", mover);
    let world = if way == Way::Payload { compute.clone() } else { local.clone() };
    for number in 0..earlier_reads {
        let (other, control, other_ended) = (world.clone(), sim.control(), Arc::clone(&ended));
        sim.start(&world, "earlier reader", async move {
            let mut client = connected(&other, way, FIRST_EARLIER_READER + u128::from(number)).await;
            sleep_until(&other, &control, RACE_BEGINS).await;
            client.read(datafile(0, 9, 0), 0, LEN as u32).await;
            other_ended.fetch_add(1, Ordering::SeqCst);
        });
    }
    let (reader, control) = (world.clone(), sim.control());
    let got = sim.block_on(&world, async move {
        let mut client = connected(&reader, way, READER).await;
        sleep_until(&reader, &control, READ_BEGINS).await;
        let got = read_whole(&mut client, way).await;
        while ended.load(Ordering::SeqCst) < earlier_reads + 1 {
            reader.sleep(Nanos::from_ms(1)).await; // virtual time
        }
        got
    });
    let stopped = Arc::clone(&server);
    sim.block_on(&storage, async move { stopped.stop().await });
    got
}

/// Numbers of races with each outcome of the read.
#[derive(Default, Debug)]
struct Outcomes {
    /// Every byte.
    complete: u32,
    /// Rejected because of the seal.
    refused: u32,
    /// Fewer bytes, or other ones.
    wrong_bytes: u32,
    /// Another error.
    failed: u32,
}

/// Runs `count` races, each `step` later than the previous one.
fn outcomes(race: Race, step: Nanos, count: u64) -> Outcomes {
    let mut outcomes = Outcomes::default();
    for number in 0..count {
        let outcome = match raced(race, Nanos(number * step.0)) {
            Ok(bytes) if bytes == pattern(LEN, 8) => &mut outcomes.complete,
            Ok(_) => &mut outcomes.wrong_bytes,
            Err(Some(Errno::EREMCHG)) => &mut outcomes.refused,
            Err(_) => &mut outcomes.failed,
        };
        *outcome += 1;
    }
    outcomes
}

/// Runs races in which the read waits until after the removal.
fn removed_before_the_read(way: Way, remover: Remover) -> Outcomes {
    outcomes(Race { way, earlier_reads: 8, remover }, Nanos(20_000), 30)
}

#[test]
fn a_read_that_a_seal_overtakes_returns_every_byte_or_is_refused() {
    for way in WAYS {
        let seen = outcomes(Race { way, earlier_reads: 1, remover: Remover::Service }, Nanos(5_000), 150);
        assert_eq!((seen.wrong_bytes, seen.failed), (0, 0), "{way:?}: {seen:?}");
        assert!(seen.complete > 0 && seen.refused > 0, "{way:?}: {seen:?}: no race");
    }
}

#[test]
fn a_read_that_a_removal_overtakes_is_refused() {
    for way in WAYS {
        for remover in [Remover::Service, Remover::Administrator] {
            let seen = removed_before_the_read(way, remover);
            assert_eq!((seen.wrong_bytes, seen.failed), (0, 0), "{way:?}, {remover:?}: {seen:?}");
            assert!(seen.refused > 0, "{way:?}, {remover:?}: {seen:?}: no race");
        }
    }
}

#[test]
fn a_read_without_the_check_after_it_returns_wrong_bytes() {
    for way in WAYS {
        mutants::seed(Some(Mutant::ReadAfterSeal));
        let seen = removed_before_the_read(way, Remover::Administrator);
        mutants::seed(None);
        assert!(seen.wrong_bytes > 0, "{way:?}: {seen:?}: not found");
    }
}
