//! The client against servers over real sockets and files.

use crate::support::{
    Plan, Reach, RealCluster, SERVERS, at, ids, model, open, options, pattern, read, write,
};
use std::io::{IoSliceMut, Read, Write};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};
use weft_client::{ClientOptions, PinnedExtents, Transport};
use weft_core::{Extent, Nanos};
use weft_env::real::{RealEnv, block_on};
use weft_env::{Address, File};
use weft_wire::{Errno, Family, HEADER_LEN, Header, Kind};

fn model_over(reach: Reach, transport: Transport, check: impl Fn(weft_client::Counts)) {
    block_on(async {
        let cluster = RealCluster::start(reach).await;
        for seed in 0..4 {
            let clients = [cluster.client(options(transport)), cluster.client(options(transport))];
            model::run(seed, 150, &clients, async |_| {}).await;
            check(clients[0].counts());
        }
        cluster.stop().await;
    });
}

#[test]
fn reads_return_what_was_written_through_descriptors() {
    model_over(Reach::Unix, Transport::Descriptor, |counts| {
        assert!(counts.leases > 0 && counts.leased_operations > 100, "{counts:?}");
    });
}

#[test]
fn reads_return_what_was_written_by_automatic_transport() {
    model_over(Reach::Unix, Transport::Auto, |counts| assert!(counts.leased_operations > 50, "{counts:?}"));
}

#[test]
fn reads_return_what_was_written_over_unix_sockets() {
    model_over(Reach::Unix, Transport::Socket, |counts| {
        assert_eq!((counts.leases, counts.leased_operations), (0, 0));
        assert!(counts.shared_payloads > 10, "{counts:?}");
    });
}

#[test]
fn reads_return_what_was_written_over_tcp() {
    model_over(Reach::Tcp, Transport::Auto, |counts| {
        assert_eq!((counts.leases, counts.leased_operations, counts.shared_payloads), (0, 0, 0));
    });
}

#[test]
fn programs_do_not_notice_server_restarts() {
    for (reach, transport) in
        [(Reach::Unix, Transport::Auto), (Reach::Unix, Transport::Socket), (Reach::Tcp, Transport::Socket)]
    {
        block_on(async {
            let mut cluster = RealCluster::start(reach).await;
            let clients = [cluster.client(options(transport)), cluster.client(options(transport))];
            model::run(77, 120, &clients, async |step| {
                if step % 25 == 24 {
                    let id = (step / 25 % 4) as u32;
                    cluster.stop_server(id).await;
                    cluster.start_server(id).await;
                }
            })
            .await;
            assert!(clients[0].counts().repeated + clients[1].counts().repeated > 0);
            cluster.stop().await;
        });
    }
}

#[test]
fn a_dead_server_is_named_in_the_error_and_then_fails_fast() {
    block_on(async {
        let mut cluster = RealCluster::start(Reach::Unix).await;
        let options = ClientOptions { retry_for: Nanos::from_ms(300), ..options(Transport::Socket) };
        let client = cluster.client(options);
        let file = open(&client, "f", 65_536).await;
        write(&file, 0, &pattern(4 * 65_536, 1)).await;
        cluster.stop_server(2).await;
        let start = std::time::Instant::now();
        let mut buf = vec![0; 4 * 65_536];
        let error = file
            .read_at(&mut [std::io::IoSliceMut::new(&mut buf)], weft_core::FileOffset(0))
            .await
            .expect_err("a server is dead");
        let took = start.elapsed();
        assert_eq!(error.errno(), 5);
        let text = error.to_string();
        for part in ["f: ", "server s2", "/s2", "weft status"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(took.as_millis() >= 290 && took.as_secs() < 25, "{took:?}");
        let start = std::time::Instant::now();
        for _ in 0..100 {
            let error = file.size().await.expect_err("still dead");
            assert_eq!(error.errno(), 5);
        }
        // If each of them connected for `retry_for`, it would take 300 ms, and all of them 30 s.
        assert!(start.elapsed().as_secs() < 25, "fails fast: {:?}", start.elapsed());
        // Bytes on the other servers are still readable.
        let strips = &file.layout().expect("a layout").components()[0].strips;
        for (column, _) in strips.iter().enumerate().filter(|(_, strip)| strip.target.0 != 2) {
            let from = column * 65_536;
            let got = read(&file, from as u64, 65_536).await;
            assert!(got == pattern(4 * 65_536, 1)[from..from + 65_536], "column {column}");
        }
        cluster.start_server(2).await;
        // The next probe finds the server alive.
        crate::support::wait_until("the server is tried again", async || {
            file.sync().await.map_err(|error| error.to_string())
        })
        .await;
        assert!(read(&file, 0, 4 * 65_536).await == pattern(4 * 65_536, 1));
        cluster.stop().await;
    });
}

#[test]
fn threads_that_share_an_open_file_read_their_own_writes() {
    for transport in [Transport::Auto, Transport::Socket] {
        block_on(async {
            let cluster = RealCluster::start(Reach::Unix).await;
            let client = cluster.client(options(transport));
            let file = open(&client, "shared", 65_536).await;
            const TRANSFER: usize = 47_008;
            std::thread::scope(|scope| {
                for thread in 0..8u64 {
                    let file = file.clone();
                    scope.spawn(move || {
                        block_on(async {
                            for round in 0..40 {
                                let index = round * 8 + thread;
                                write(&file, index * TRANSFER as u64, &pattern(TRANSFER, index)).await;
                                let got = read(&file, index * TRANSFER as u64, TRANSFER).await;
                                assert!(got == pattern(TRANSFER, index), "{transport:?}: transfer {index}");
                            }
                        });
                    });
                }
            });
            let whole = read(&file, 0, 320 * TRANSFER + 1).await;
            assert_eq!(whole.len(), 320 * TRANSFER);
            for (index, got) in whole.chunks(TRANSFER).enumerate() {
                assert!(got == pattern(TRANSFER, index as u64), "{transport:?}: transfer {index}");
            }
            assert_eq!(client.stat(&at("shared")).await.expect("stat").size.0, 320 * TRANSFER as u64);
            cluster.stop().await;
        });
    }
}

#[test]
fn a_read_longer_than_the_shared_area_goes_through_it_in_pieces() {
    block_on(async {
        let cluster = RealCluster::start(Reach::Unix).await;
        let own = ClientOptions { shared_payload_max: 256 << 10, ..options(Transport::Socket) };
        let client = cluster.client(own);
        let file = open(&client, "f", 1 << 20).await;
        let bytes = pattern((3 << 20) + 5000, 3);
        write(&file, 0, &bytes).await;
        let read_counted = async |offset: usize, len: usize| {
            let before = client.counts().data_messages;
            assert!(
                read(&file, offset as u64, len).await == bytes[offset..offset + len],
                "{len} at {offset}"
            );
            client.counts().data_messages - before
        };
        read_counted(0, 100_000).await; // attaches the area
        assert_eq!(read_counted(0, 256 << 10).await, 1);
        assert_eq!(read_counted(0, 1 << 20).await, 4);
        // The last piece is too short for shared memory.
        assert_eq!(read_counted(10, (256 << 10) + 7).await, 2);
        // Sub-requests for several servers, each in pieces.
        assert_eq!(read_counted((1 << 20) - (300 << 10), 700 << 10).await, 4);
        // The file ends in the middle of a piece.
        assert_eq!(read(&file, 3 << 20, 1 << 20).await, bytes[3 << 20..]);
        cluster.stop().await;
    });
}

#[test]
fn pinned_extents_have_the_bytes_of_the_file_in_order() {
    block_on(async {
        let cluster = RealCluster::start(Reach::Unix).await;
        let client = cluster.client(options(Transport::Descriptor));
        let file = open(&client, "f", 4096).await;
        let bytes = pattern(100_000, 5);
        write(&file, 0, &bytes).await;
        let mut pinned = PinnedExtents::default();
        // Across all servers several times, within one stripe, and beyond the end, where runs are longer than
        // datafiles.
        for (at, len) in [(100, 70_000), (5000, 1000), (90_000, 50_000)] {
            assert!(file.pin(Extent::new(at, len), &mut pinned).await);
            let mut got = Vec::new();
            for (datafile, offset, len) in pinned.runs() {
                let mut part = vec![0; len.0 as usize];
                let count = datafile.read_at(&mut [IoSliceMut::new(&mut part)], offset).await.expect("read");
                got.extend_from_slice(&part[..count]);
            }
            assert_eq!(pinned.runs().map(|(_, _, len)| len.0).sum::<u64>(), len);
            assert!(got == bytes[at as usize..(at + len).min(100_000) as usize], "{len} at {at}");
        }
        assert!(!file.pin(Extent::new(0, 0), &mut pinned).await && pinned.runs().count() == 0, "nothing");
        assert!(!file.pin(Extent::new(u64::MAX - 5, 10), &mut pinned).await, "beyond every file");
        let by_message = cluster.client(options(Transport::Socket));
        let file = open(&by_message, "f", 4096).await;
        assert!(!file.pin(Extent::new(0, 4096), &mut pinned).await, "no leases");
        cluster.stop().await;
    });
}

#[test]
fn a_lease_is_revoked_only_after_its_pinned_extents_are_released() {
    block_on(async {
        let cluster = RealCluster::start(Reach::Unix).await;
        let client = cluster.client(options(Transport::Auto));
        let file = open(&client, "f", 4096).await;
        write(&file, 0, &pattern(4096, 5)).await;
        let mut pinned = PinnedExtents::default();
        let whole = Extent::new(0, 4096);
        // A lease is granted after a few uses.
        while !file.pin(whole, &mut pinned).await {
            read(&file, 0, 4096).await;
        }
        let (sent, revoked) = std::sync::mpsc::channel();
        let target = file.layout().expect("a layout").objects().next().expect("an object").1;
        std::thread::scope(|threads| {
            let client = &client;
            threads.spawn(move || {
                block_on(client.revoke_leases(target)).expect("revoked");
                sent.send(()).expect("waited for");
            });
            // The server has begun to revoke the lease when it cannot be used any more.
            let mut second = PinnedExtents::default();
            while block_on(file.pin(whole, &mut second)) {
                second.release();
            }
            assert!(revoked.try_recv().is_err(), "while bytes were pinned");
            pinned.release();
            revoked.recv().expect("then");
        });
        assert!(!file.pin(whole, &mut pinned).await, "not at once again");
        assert_eq!(read(&file, 0, 4096).await, pattern(4096, 5));
        cluster.stop().await;
    });
}

#[test]
fn a_server_of_another_version_is_named_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let addresses: Vec<_> =
        (0..SERVERS).map(|id| Address::Unix(folder.path().join(format!("s{id}")))).collect();
    let Address::Unix(path) = &addresses[0] else { unreachable!() };
    let listener = UnixListener::bind(path).expect("listens");
    let older = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().expect("a client");
        let mut hello = [0; HEADER_LEN];
        peer.read_exact(&mut hello).expect("a greeting");
        let mut reply = Header::new(Kind::Reply, Family::Hello, 1).encode();
        reply[4] = 200;
        peer.write_all(&reply).expect("sent");
    });
    let folders = vec![folder.path().to_owned(); SERVERS as usize];
    let plan = Plan::new(addresses, folders, folder.path().to_owned(), ids().0);
    let client = plan.client(RealEnv::new(), options(Transport::Auto));
    let began = Instant::now();
    let error = block_on(client.stat(&at("f"))).expect_err("it cannot talk to that server");
    assert_eq!(error.errno(), Errno::EPROTO.0);
    let text = error.to_string();
    let levels = format!("speaks feature level 200, this program {}", weft_wire::Levels::KNOWN);
    for part in ["server s0 at unix:", &levels, "install the same Weft", "weft stop"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(began.elapsed() < Duration::from_secs(5), "no attempts for the time of a restart");
    older.join().expect("no panic");
}
