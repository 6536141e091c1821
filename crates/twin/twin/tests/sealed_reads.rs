//! A move seals and removes a datafile while a read of it waits for the device. The read returns all bytes or is
//! rejected, on each of the three ways by which bytes reach a client. It never finds the removed datafile empty.

#[path = "../../../fs/server/tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use support::*;
use weft_core::{Nanos, ServerId};
use weft_env::sim::{Control, Sim, SimEnv};
use weft_env::{Address, Conn, Dir, Env, Shared};
use weft_wire::data::{DataReply, DataRequest};
use weft_wire::hello::{Identity, Role};
use weft_wire::{Errno, Rights};

const FILE: u64 = 8;
const LEN: usize = 256 << 10;
/// Expiry below which the seal rejects capabilities, in seconds since 1970.
const SEALED_BEFORE_S: u64 = 1 << 41;

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

/// Virtual time at which the requests start.
const RACE_BEGINS: Nanos = Nanos::from_s(10);

async fn sleep_until_race(env: &SimEnv, control: &Control) {
    env.sleep(RACE_BEGINS.saturating_sub(control.elapsed())).await;
}

/// Returns the result of a read when the datafile is sealed and removed `delay` after it was sent.
fn raced(way: Way, delay: Nanos) -> Result<Vec<u8>, Option<Errno>> {
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
        config.hooks.uid = 1000;
        // One request at a time, so that the read waits behind the other one.
        config.targets.iter_mut().for_each(|target| target.queue_depth = 1);
        Arc::new(start(&env, config).await)
    });
    let world = local.clone();
    sim.block_on(&local, async move {
        let mut writer = connected(&world, Way::SharedMemory, 1).await;
        assert_eq!(writer.write(datafile(0, FILE, 0), 0, &pattern(LEN, 8)).await, DataReply::Written);
        assert_eq!(writer.write(datafile(0, 9, 0), 0, &pattern(LEN, 9)).await, DataReply::Written);
    });
    let ended = Arc::new(AtomicU64::new(0));
    let (world, control, mover_ended) = (local.clone(), sim.control(), Arc::clone(&ended));
    let mover = async move {
        let hello = hello(Role::Server(ServerId(1)), 9);
        let mut server =
            Client::connect_as(&world, &address(Way::SentFile), hello, secret().server_key()).await;
        sleep_until_race(&world, &control).await;
        world.sleep(delay).await;
        let cap = server.grant(FILE, Rights::MOVE, SEALED_BEFORE_S);
        let datafiles = vec![datafile(0, FILE, 0)];
        let seal = DataRequest::Seal { cap, before_s: SEALED_BEFORE_S, datafiles: datafiles.clone() };
        assert_eq!(server.call(&seal, &[]).await.0, DataReply::Done);
        assert_eq!(server.call(&DataRequest::Remove { datafiles }, &[]).await.0, DataReply::Done);
        mover_ended.fetch_add(1, Ordering::SeqCst);
    };
    sim.start(&local, "mover", mover);
    let world = if way == Way::Payload { compute.clone() } else { local.clone() };
    let (other, control, other_ended) = (world.clone(), sim.control(), Arc::clone(&ended));
    sim.start(&world, "other reader", async move {
        let mut client = connected(&other, way, 3).await;
        sleep_until_race(&other, &control).await;
        client.read(datafile(0, 9, 0), 0, LEN as u32).await;
        other_ended.fetch_add(1, Ordering::SeqCst);
    });
    let (reader, control) = (world.clone(), sim.control());
    let got = sim.block_on(&world, async move {
        let mut client = connected(&reader, way, 2).await;
        sleep_until_race(&reader, &control).await;
        let got = read_whole(&mut client, way).await;
        while ended.load(Ordering::SeqCst) < 2 {
            reader.sleep(Nanos::from_ms(1)).await; // virtual time
        }
        got
    });
    let stopped = Arc::clone(&server);
    sim.block_on(&storage, async move { stopped.stop().await });
    got
}

/// Races each way of reading with a seal, at delays from 0 to 745 µs. Returns the numbers of complete reads, refused reads
/// and reads with too few bytes or another error.
fn outcomes(way: Way) -> (u32, u32, u32) {
    let (mut complete, mut refused, mut wrong) = (0, 0, 0);
    for step in 0..150 {
        match raced(way, Nanos(step * 5_000)) {
            Ok(bytes) if bytes == pattern(LEN, 8) => complete += 1,
            Err(Some(Errno::EREMCHG)) => refused += 1,
            _ => wrong += 1,
        }
    }
    (complete, refused, wrong)
}

#[test]
fn a_read_that_a_seal_overtakes_returns_every_byte_or_is_refused() {
    for way in [Way::Payload, Way::SentFile, Way::SharedMemory] {
        let (complete, refused, wrong) = outcomes(way);
        assert_eq!(wrong, 0, "{way:?}");
        assert!(complete > 0 && refused > 0, "{way:?}: {complete} complete, {refused} refused: no race");
    }
}
