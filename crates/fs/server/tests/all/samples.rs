//! Requests that a server samples, and access to the samples.

use crate::support::*;
use std::num::NonZeroU32;
use weft_core::{LocalOffset, Timestamp};
use weft_env::real::{RealEnv, block_on};
use weft_env::{Address, Env};
use weft_server::ServerConfig;
use weft_wire::data::{DataReply, DataRequest, IoHints, Samples};
use weft_wire::hello::{Identity, Role};
use weft_wire::{Errno, Rights};

fn samples(run: u64, from: u64, limit: u32) -> DataRequest {
    DataRequest::Samples { run, from, limit }
}

async fn ask<E: Env>(client: &mut Client<E>, run: u64, from: u64, limit: u32) -> Samples {
    match client.call(&samples(run, from, limit), &[]).await.0 {
        DataReply::Samples(samples) => samples,
        other => panic!("no samples: {other:?}"),
    }
}

/// Runs `test` with a server that samples one in `one_in` time slices, over a Unix socket and the network.
fn with_server<F>(one_in: Option<u32>, samples_max: usize, test: F)
where
    F: AsyncFnOnce(RealEnv, Address, Address),
{
    let folder = tempfile::tempdir().expect("a folder");
    let env = RealEnv::new();
    block_on(async {
        let tcp = Address::Tcp("127.0.0.1".into(), 0);
        let mut config = config(folder.path(), vec![unix(folder.path()), tcp], false);
        config.limits.samples_max = samples_max;
        let config = ServerConfig { sample: one_in.and_then(NonZeroU32::new), ..config };
        make_folders(&config);
        let server = start(&env, config).await;
        let (unix, tcp) = (server.addresses()[0].clone(), server.addresses()[1].clone());
        test(env, unix, tcp).await;
        assert_eq!(server.panics(), 0);
        server.stop().await;
    });
}

#[test]
fn samples_contain_the_requests() {
    with_server(Some(1), 1000, async |env, unix, tcp| {
        let before = env.wall();
        let mut one = Client::connect(&env, &unix).await;
        let (caller, key) = administrator(me(), 2);
        let mut two = Client::connect_as(&env, &tcp, caller, key).await;
        let (part, other) = (datafile(0, 40, 3), datafile(0, 41, 0));
        assert_eq!(one.write(part, 4096, &[7; 500]).await, DataReply::Written);
        one.read(part, 4096, 100).await;
        // Requests that no program made, such as the copies of a move, are not sampled.
        let cap = one.cap(40);
        let hints = IoHints::default();
        let copy = DataRequest::Read { datafile: part, cap, offset: LocalOffset(0), len: 100, hints };
        one.call(&copy, &[]).await;
        // Rejected requests and those without data are not sampled.
        let reader = one.grant(part.file.0, Rights::READ, 1 << 40);
        let refused = one.call(&write_request(part, reader, 0, 4), b"evil").await.0;
        assert_eq!(errno(&refused), Some(Errno::EACCES));
        one.call(&DataRequest::Sync { cap, datafiles: vec![part] }, &[]).await;
        // A request on another connection shows that the first one has been served and sampled.
        two.read(other, 1 << 30, 65_536).await;
        let found = ask(&mut two, 0, 0, 1000).await;
        let requests: Vec<_> = found.samples.iter().map(|s| (s.datafile, s.offset, s.len, s.write)).collect();
        let at = |offset| LocalOffset(offset);
        let expected =
            [(part, at(4096), 500, true), (part, at(4096), 100, false), (other, at(1 << 30), 65_536, false)];
        assert_eq!(requests, expected);
        assert_eq!((found.one_in, found.lost, found.next), (1, 0, 3));
        let clients: Vec<_> = found.samples.iter().map(|sample| sample.client).collect();
        assert!(clients[0] == clients[1] && clients[1] != clients[2], "{clients:?}");
        let after = env.wall();
        for sample in &found.samples {
            let end = Timestamp(sample.start.0 + i128::from(sample.took.0));
            assert!(sample.start >= before && end <= after, "{sample:?}");
        }
        // In pages, and again from the start.
        let first = ask(&mut one, 0, 0, 2).await;
        let second = ask(&mut one, first.run, first.next, 2).await;
        assert_eq!([&first.samples[..], &second.samples[..]].concat(), found.samples);
        assert_eq!(ask(&mut one, found.run, found.next, 2).await.samples, []);
        // Leases would bypass sampling: the server grants none.
        let attach = DataRequest::AttachShared { payload_len: 0 };
        assert!(matches!(one.call(&attach, &[]).await.0, DataReply::Attached { .. }));
        let lease = DataRequest::Lease { datafile: part, cap, write: true };
        assert_eq!(one.call(&lease, &[]).await.0, DataReply::NotLeased);
    });
}

#[test]
fn only_administrators_see_samples() {
    with_server(Some(1), 10, async |env, _, tcp| {
        let identity = Identity { uid: my_uid() + 12_345, gid: 5, groups: vec![] };
        let key = secret().identity_key(&identity);
        let mut stranger = Client::connect_as(&env, &tcp, hello(Role::Client(identity), 3), key).await;
        let refused = stranger.call(&samples(0, 0, 10), &[]).await.0;
        assert_eq!(errno(&refused), Some(Errno::EPERM));
    });
}

#[test]
fn samples_are_bounded_and_a_new_run_is_detected() {
    for _ in 0..2 {
        with_server(Some(1), 8, async |env, unix, _| {
            let mut client = Client::connect(&env, &unix).await;
            let part = datafile(0, 40, 3);
            for number in 0..20 {
                client.write(part, number * 10, &[1; 10]).await;
            }
            let found = ask(&mut client, 0, 0, u32::MAX).await;
            let offsets: Vec<u64> = found.samples.iter().map(|sample| sample.offset.0 / 10).collect();
            assert_eq!(offsets, (12..20).collect::<Vec<u64>>());
            assert_eq!(ask(&mut client, found.run, 5, u32::MAX).await.lost, 7);
            // Numbers of an earlier run are invalid.
            let other = ask(&mut client, found.run.wrapping_add(1), 19, u32::MAX).await;
            assert_eq!((other.samples.len(), other.lost), (8, 0));
        });
    }
}

#[test]
fn a_server_samples_nothing_by_default() {
    with_server(None, 8, async |env, unix, _| {
        let mut client = Client::connect(&env, &unix).await;
        client.write(datafile(0, 40, 3), 0, &[1; 10]).await;
        assert_eq!(ask(&mut client, 0, 0, 100).await, Samples::default());
    });
}
