//! Compressed datafiles over real sockets and files: every request that a datafile of several files might break.

use crate::support::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_core::{ByteLen, Integrity, LocalOffset, ServerId, TargetId, Timestamp};
use weft_env::real::{RealEnv, block_on};
use weft_env::{Address, Conn, Env, File, Shared};
use weft_server::ServerConfig;
use weft_wire::data::{DataReply, DataRequest, DatafileId, IoHints, PayloadLocation, Scrubbed, lease};
use weft_wire::hello::Role;
use weft_wire::status::{StatusReply, StatusRequest, TargetStatus};
use weft_wire::{Capability, Errno, Rights};

/// Length of the chunks of all compressed files.
const CHUNK: u64 = 16 << 10;
const LEN: u64 = 10 * CHUNK + 777;

fn config_in(folder: &Path) -> ServerConfig {
    let tcp = Address::Tcp("127.0.0.1".into(), 0);
    config(folder, vec![unix(folder), tcp], true)
}

/// Returns bytes of which a codec makes less than half.
fn text(len: u64, salt: u64) -> Vec<u8> {
    (0..len).map(|at| b'a' + (at / 32).wrapping_mul(0x9E37_79B9 ^ salt).to_le_bytes()[2] % 26).collect()
}

fn rights(setting: &str) -> Rights {
    let compression = setting.parse().expect("a setting");
    Rights::READ.and(Rights::WRITE).and(Rights::of_compression(Some(compression)))
}

/// Returns the capability for a compressed file.
fn cap<E: Env>(client: &Client<E>, file: u64) -> Capability {
    client.grant(file, rights("zstd/16KiB"), 1 << 40)
}

async fn write<E: Env>(client: &mut Client<E>, part: DatafileId, offset: u64, bytes: &[u8]) -> DataReply {
    let cap = cap(client, part.file.0);
    client.call(&write_request(part, cap, offset, bytes.len() as u32), bytes).await.0
}

async fn read<E: Env>(
    client: &mut Client<E>,
    part: DatafileId,
    offset: u64,
    len: u64,
) -> (DataReply, Vec<u8>) {
    let cap = cap(client, part.file.0);
    client.call(&read_request(part, cap, offset, len as u32), &[]).await
}

async fn change<E: Env>(client: &mut Client<E>, request: DataRequest) {
    let reply = client.call(&request, &[]).await.0;
    assert_eq!(reply, DataReply::Done, "{request:?}");
}

async fn list<E: Env>(client: &mut Client<E>, target: u32) -> Vec<(u64, ByteLen)> {
    let request = DataRequest::ListDatafiles { target: TargetId(target), after: None, limit: 100 };
    match client.call(&request, &[]).await.0 {
        DataReply::Datafiles(all) => all.into_iter().map(|(file, _, len)| (file.0, len)).collect(),
        other => panic!("{other:?}"),
    }
}

async fn scrub<E: Env>(client: &mut Client<E>, target: u32) -> Scrubbed {
    let request = DataRequest::Scrub { target: TargetId(target), from: None, len: 16 << 20 };
    match client.call(&request, &[]).await.0 {
        DataReply::Scrubbed(found) => found,
        other => panic!("{other:?}"),
    }
}

async fn target_status<E: Env>(client: &mut Client<E>, target: u32) -> TargetStatus {
    let StatusReply::Status(status) = client.status(StatusRequest::Status).await else { panic!("no status") };
    status.targets.into_iter().find(|found| found.target == TargetId(target)).expect("the target")
}

/// Returns all files of a target's datafiles, in the order of their names.
fn files(target: &Path) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(target.join("objects")).expect("a target");
    let folders = folders.map(|entry| entry.expect("an entry").path());
    let of = |folder: PathBuf| {
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("one").path())
    };
    let mut all: Vec<_> = folders.flat_map(of).collect();
    all.sort();
    all
}

async fn administer(env: &RealEnv, tcp: &Address) -> Client<RealEnv> {
    let (caller, key) = administrator(me(), 77);
    Client::connect_as(env, tcp, caller, key).await
}

#[test]
fn lengths_listings_times_and_removal_concern_the_datafile_not_its_files() {
    with_server(true, async |env, unix, tcp, folder| {
        let mut client = Client::connect(&env, &unix).await;
        let mut admin = administer(&env, &tcp).await;
        let server = hello(Role::Server(ServerId(1)), 9);
        let mut remover = Client::connect_as(&env, &tcp, server, secret().server_key()).await;
        for target in [0, 1] {
            let path = folder.join(format!("t{target}"));
            let (part, plain) = (datafile(target, 40, 1), datafile(target, 41, 0));
            let bytes = text(LEN, 1);
            assert_eq!(write(&mut client, part, 0, &bytes).await, DataReply::Written);
            assert_eq!(client.write(plain, 0, &bytes).await, DataReply::Written);
            assert_eq!(files(&path).len(), 3, "container, map and the plain datafile");
            assert_eq!(list(&mut admin, target).await, [(40, ByteLen(LEN)), (41, ByteLen(LEN))]);

            let mtime = Timestamp(1_000_000_000_000_000_000);
            let mover = client.grant(40, rights("zstd/16KiB").and(Rights::MOVE), 1 << 40);
            change(&mut client, DataRequest::SetTimes { cap: mover, mtime, datafiles: vec![part] }).await;
            let lens = DataRequest::GetLens { cap: cap(&client, 40), datafiles: vec![part] };
            let DataReply::Lens(metas) = client.call(&lens, &[]).await.0 else { panic!("no lengths") };
            assert_eq!((metas[0].len, metas[0].mtime), (ByteLen(LEN), Some(mtime)));
            assert!(metas[0].blocks_512 * 512 < LEN / 2, "{metas:?}");
            let status = target_status(&mut admin, target).await;
            assert!(status.bytes_compressed >= LEN - CHUNK, "{status:?}");
            assert!(status.bytes_stored < status.bytes_compressed / 2, "{status:?}");

            change(&mut remover, DataRequest::Remove { datafiles: vec![part] }).await;
            assert_eq!(list(&mut admin, target).await, [(41, ByteLen(LEN))]);
            assert_eq!(files(&path).len(), 1, "no file of it is left");
            let refused = write(&mut client, part, 0, b"late").await;
            assert_eq!(errno(&refused), Some(Errno::ESTALE), "{refused:?}");
            assert_eq!(files(&path).len(), 1, "a late write creates nothing");
        }
    });
}

#[test]
fn only_plain_datafiles_are_leased_and_all_are_read_through_shared_memory() {
    with_server(true, async |env, unix, tcp, _| {
        let mut client = Client::connect(&env, &unix).await;
        let key = secret().identity_key(&me());
        let mut remote = Client::connect_as(&env, &tcp, hello(Role::Client(me()), 2), key).await;
        let attach = DataRequest::AttachShared { payload_len: 1 << 20 };
        let DataReply::Attached { payload_len } = client.call(&attach, &[]).await.0 else {
            panic!("no area")
        };
        let area = client.link.conn().take_shared(payload_len as usize).expect("the area");
        let _page = client.link.conn().take_shared(lease::PAGE_LEN).expect("the lease page");
        let bytes = text(LEN, 2);
        for (file, is_compressed) in [(40, true), (41, false)] {
            let part = datafile(0, file, 0);
            let cap = if is_compressed { cap(&client, file) } else { client.cap(file) };
            area.copy_in(1000, &bytes);
            let (place, hints) = (PayloadLocation::Shared(1000), IoHints::default());
            let (offset, len) = (LocalOffset(100), LEN as u32);
            let request =
                DataRequest::Write { datafile: part, cap, offset, len, place, hints: hints.clone() };
            assert_eq!(client.call(&request, &[]).await.0, DataReply::Written);
            let to = 400_000;
            let request = DataRequest::ReadShared { datafile: part, cap, offset, len, to, hints };
            let reply = client.call(&request, &[]).await.0;
            assert!(matches!(reply, DataReply::ReadShared { len, .. } if u64::from(len) == LEN), "{reply:?}");
            let mut seen = vec![0; LEN as usize];
            area.copy_out(to as usize, &mut seen);
            assert!(seen == bytes, "other bytes in shared memory, compressed: {is_compressed}");
            // By messages: a plain datafile is sent without a copy over the socket.
            for client in [&mut client, &mut remote] {
                let cap = if is_compressed { self::cap(client, file) } else { client.cap(file) };
                let (reply, read) = client.call(&read_request(part, cap, 100, 1 << 20), &[]).await;
                assert_eq!(reply, DataReply::Read { datafile_len: ByteLen(LEN + 100) });
                assert!(read == bytes, "other bytes in a message, compressed: {is_compressed}");
            }
            for write in [true, false] {
                let request = DataRequest::Lease { datafile: part, cap, write };
                let reply = client.call(&request, &[]).await.0;
                assert_eq!(reply == DataReply::NotLeased, is_compressed, "{reply:?}");
                if !is_compressed {
                    let file = client.link.conn().take_file().expect("a descriptor");
                    assert_eq!(file.meta().await.expect("its length").len, ByteLen(LEN + 100));
                }
            }
        }
        // A capability that hides the compression opens no way past it.
        let hidden = client.cap(40);
        let request = DataRequest::Lease { datafile: datafile(0, 40, 0), cap: hidden, write: true };
        assert_eq!(client.call(&request, &[]).await.0, DataReply::NotLeased);
        let (_, read) = client.call(&read_request(datafile(0, 40, 0), hidden, 100, 1 << 20), &[]).await;
        assert!(read == bytes);
    });
}

#[test]
fn holes_truncation_and_samples_use_the_offsets_of_the_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let env = RealEnv::new();
    block_on(async {
        let config = ServerConfig { sample: std::num::NonZeroU32::new(1), ..config_in(folder.path()) };
        make_folders(&config);
        let server = start(&env, config).await;
        let mut client = Client::connect(&env, &server.addresses()[0]).await;
        let mut admin = administer(&env, &server.addresses()[1]).await;
        let part = datafile(0, 40, 0);
        let mut expected = text(LEN, 3);
        assert_eq!(write(&mut client, part, 0, &expected).await, DataReply::Written);
        let cap = cap(&client, 40);
        let hole = (part, LocalOffset(2 * CHUNK - 100), ByteLen(3 * CHUNK));
        change(&mut client, DataRequest::Punch { cap, extents: vec![hole] }).await;
        expected[(2 * CHUNK - 100) as usize..][..3 * CHUNK as usize].fill(0);
        for (is_hole, from, found) in [
            (true, 0, Some(2 * CHUNK - 100)),
            (false, 2 * CHUNK - 100, Some(5 * CHUNK - 100)),
            (true, 5 * CHUNK, Some(LEN)),
            (false, LEN, None),
        ] {
            let datafiles = vec![(part, LocalOffset(from))];
            let request = DataRequest::Seek { cap, datafiles, hole: is_hole };
            let DataReply::Sought(all) = client.call(&request, &[]).await.0 else { panic!("not sought") };
            assert_eq!(all, [found.map(LocalOffset)], "hole {is_hole} from {from}");
        }
        // Cut inside a chunk, then longer: what was cut off does not come back.
        for len in [7 * CHUNK + 5, LEN + 100] {
            let datafiles = vec![(part, ByteLen(len))];
            change(&mut client, DataRequest::SetLens { cap, datafiles }).await;
            expected.resize(len as usize, 0);
        }
        change(&mut client, DataRequest::Sync { cap, datafiles: vec![part] }).await;
        let (reply, bytes) = read(&mut client, part, 0, 1 << 20).await;
        assert_eq!(reply, DataReply::Read { datafile_len: ByteLen(LEN + 100) });
        assert!(bytes == expected);
        // The next reply on the same connection shows that the read has been sampled.
        change(&mut client, DataRequest::Sync { cap, datafiles: vec![part] }).await;
        let request = DataRequest::Samples { run: 0, from: 0, limit: 100 };
        let DataReply::Samples(samples) = admin.call(&request, &[]).await.0 else { panic!("no samples") };
        let seen: Vec<_> =
            samples.samples.iter().map(|one| (one.offset.0, u64::from(one.len), one.write)).collect();
        assert_eq!(seen, [(0, LEN, true), (0, 1 << 20, false)]);
        assert_eq!(server.panics(), 0);
        server.stop().await;
    });
}

#[test]
fn a_seal_rejects_every_request_and_survives_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let env = RealEnv::new();
    block_on(async {
        let config = config_in(folder.path());
        make_folders(&config);
        let part = datafile(0, 40, 0);
        let bytes = text(LEN, 4);
        for run in 0..2 {
            let server = start(&env, config.clone()).await;
            let mut client = Client::connect(&env, &server.addresses()[0]).await;
            let now_s = env.wall().parts().0 as u64;
            let (before, after) = (now_s + 1000, now_s + 2000);
            let old = client.grant(40, rights("zstd/16KiB"), before);
            let new = client.grant(40, rights("zstd/16KiB").and(Rights::MOVE), after);
            if run == 0 {
                let write = write_request(part, old, 0, LEN as u32);
                assert_eq!(client.call(&write, &bytes).await.0, DataReply::Written);
                let seal = DataRequest::Seal { cap: new, before_s: before + 500, datafiles: vec![part] };
                change(&mut client, seal).await;
            }
            let datafiles = vec![part];
            for request in [
                read_request(part, old, 0, 10),
                DataRequest::GetLens { cap: old, datafiles: datafiles.clone() },
                DataRequest::SetLens { cap: old, datafiles: vec![(part, ByteLen(5))] },
                DataRequest::Sync { cap: old, datafiles: datafiles.clone() },
                DataRequest::Punch { cap: old, extents: vec![(part, LocalOffset(0), ByteLen(5))] },
                DataRequest::Seek { cap: old, datafiles: vec![(part, LocalOffset(0))], hole: true },
            ] {
                let reply = client.call(&request, &[]).await.0;
                assert_eq!(errno(&reply), Some(Errno::EREMCHG), "run {run}: {request:?}: {reply:?}");
            }
            let refused = client.call(&write_request(part, old, 0, 4), b"late").await.0;
            assert_eq!(errno(&refused), Some(Errno::EREMCHG), "run {run}: {refused:?}");
            let (_, read) = client.call(&read_request(part, new, 0, 1 << 20), &[]).await;
            assert!(read == bytes, "run {run}");
            server.stop().await;
        }
    });
}

#[test]
fn a_scrub_verifies_chunks_and_names_damaged_ones() {
    let folder = tempfile::tempdir().expect("a folder");
    let env = RealEnv::new();
    block_on(async {
        let mut config = config_in(folder.path());
        // Checksums of the target apply to plain files only: chunks have their own.
        config.targets.iter_mut().for_each(|target| target.integrity = Integrity::Crc32c);
        make_folders(&config);
        let (part, plain) = (datafile(0, 40, 0), datafile(0, 41, 0));
        let (bytes, lines) = (text(LEN, 5), Arc::new(parking_lot::Mutex::new(Vec::new())));
        let told = Arc::clone(&lines);
        config.hooks.log = Arc::new(move |line| told.lock().push(line.to_owned()));
        let server = start(&env, config.clone()).await;
        let mut client = Client::connect(&env, &server.addresses()[0]).await;
        let mut admin = administer(&env, &server.addresses()[1]).await;
        assert_eq!(write(&mut client, part, 0, &bytes).await, DataReply::Written);
        assert_eq!(client.write(plain, 0, &bytes).await, DataReply::Written);
        let cap_40 = cap(&client, 40);
        change(&mut client, DataRequest::Sync { cap: cap_40, datafiles: vec![part] }).await;
        let names = files(&folder.path().join("t0"));
        let ends: Vec<_> = names.iter().map(|name| name.extension().and_then(|end| end.to_str())).collect();
        assert_eq!(ends, [Some("0"), Some("map"), Some("0"), Some("sum")], "{names:?}");
        let found = scrub(&mut admin, 0).await;
        assert_eq!((found.checked, found.next), (2, None));
        let stored = found.verified.0 - LEN;
        assert!((1..LEN / 2).contains(&stored), "of the compressed one, its stored bytes: {stored}");
        assert!(found.unchecked.is_empty() && found.damaged.is_empty(), "{found:?}");

        // One flipped bit in the stored bytes of one chunk.
        let mut stored = std::fs::read(&names[0]).expect("the container");
        let at = (3000..stored.len()).find(|&at| stored[at] != 0).expect("stored bytes");
        stored[at] ^= 1;
        std::fs::write(&names[0], &stored).expect("damaged");
        let found = scrub(&mut admin, 0).await;
        let [damage] = found.damaged[..] else { panic!("{found:?}") };
        assert_eq!((damage.file, damage.start % CHUNK, damage.end - damage.start), (part.file, 0, CHUNK));
        let (reply, _) = read(&mut client, part, damage.start + 7, 10).await;
        let DataReply::Damaged { start, end, error } = reply else { panic!("{reply:?}") };
        assert_eq!((error.errno, start, end), (Errno::EIO, damage.start, damage.end));
        let range = [damage.start.to_string(), damage.end.to_string()];
        assert!(range.iter().all(|end| error.detail.contains(end)), "{error:?}");
        assert!(error.detail.contains("target 0"), "{error:?}");
        assert!(lines.lock().iter().any(|line| line.contains(&range[0])), "the server logs it");
        // Other chunks are readable, and the damaged one after it was written.
        let elsewhere = if damage.start == 0 { CHUNK } else { 0 };
        let (_, read_back) = read(&mut client, part, elsewhere, 100).await;
        assert!(read_back == bytes[elsewhere as usize..][..100]);
        let again = &bytes[damage.start as usize..damage.end as usize];
        assert_eq!(write(&mut client, part, damage.start, again).await, DataReply::Written);
        assert!(read(&mut client, part, 0, 1 << 20).await.1 == bytes);
        assert_eq!(scrub(&mut admin, 0).await.damaged, []);
        server.stop().await;
    });
}

#[test]
fn a_lost_map_is_an_error_and_the_datafile_does_not_look_empty() {
    let folder = tempfile::tempdir().expect("a folder");
    let env = RealEnv::new();
    block_on(async {
        let config = config_in(folder.path());
        make_folders(&config);
        let path = folder.path().join("t0");
        let (part, plain) = (datafile(0, 40, 0), datafile(0, 41, 0));
        let bytes = text(LEN, 6);
        let server = start(&env, config.clone()).await;
        let mut client = Client::connect(&env, &server.addresses()[0]).await;
        assert_eq!(write(&mut client, part, 0, &bytes).await, DataReply::Written);
        // A map that was never synced may be lost with the disk's cache.
        let sync = DataRequest::Sync { cap: cap(&client, 40), datafiles: vec![part] };
        change(&mut client, sync).await;
        assert_eq!(client.write(plain, 0, &bytes).await, DataReply::Written);
        drop(client);
        server.stop().await;
        let maps: Vec<_> =
            files(&path).into_iter().filter(|name| name.extension() == Some("map".as_ref())).collect();
        let [map] = &maps[..] else { panic!("{maps:?}") };
        let kept = std::fs::read(map).expect("the map");
        for damage in ["missing", "empty", "foreign"] {
            match damage {
                "missing" => std::fs::remove_file(map).expect("removed"),
                "empty" => std::fs::write(map, b"").expect("cut"),
                _ => std::fs::write(map, vec![7; kept.len()]).expect("overwritten"),
            }
            let server = start(&env, config.clone()).await;
            let mut client = Client::connect(&env, &server.addresses()[0]).await;
            let mut admin = administer(&env, &server.addresses()[1]).await;
            let cap = cap(&client, 40);
            for request in [
                read_request(part, cap, 0, 10),
                DataRequest::GetLens { cap, datafiles: vec![part] },
                DataRequest::SetLens { cap, datafiles: vec![(part, ByteLen(5))] },
                DataRequest::Sync { cap, datafiles: vec![part] },
                DataRequest::Punch { cap, extents: vec![(part, LocalOffset(0), ByteLen(5))] },
                DataRequest::Seek { cap, datafiles: vec![(part, LocalOffset(0))], hole: true },
            ] {
                let DataReply::Failed(error) = client.call(&request, &[]).await.0 else {
                    panic!("{damage}: {request:?} succeeded")
                };
                assert_eq!(error.errno, Errno::EIO, "{damage}: {request:?}: {error:?}");
                assert!(error.detail.contains("map") && error.detail.contains("target 0"), "{error:?}");
            }
            let refused = write(&mut client, part, 0, b"more").await;
            assert_eq!(errno(&refused), Some(Errno::EIO), "{damage}: {refused:?}");
            assert!(client.read(plain, 0, 1 << 20).await.1 == bytes, "others are served");
            // A repair removes empty orphans; this one is not empty.
            assert_eq!(list(&mut admin, 0).await, [(40, ByteLen::UNKNOWN), (41, ByteLen(LEN))]);
            let found = scrub(&mut admin, 0).await;
            assert_eq!(found.damaged.len(), 1, "{damage}: {found:?}");
            drop((client, admin));
            server.stop().await;
        }
        std::fs::write(map, &kept).expect("brought back");
        let server = start(&env, config).await;
        let mut client = Client::connect(&env, &server.addresses()[0]).await;
        let mut admin = administer(&env, &server.addresses()[1]).await;
        assert!(read(&mut client, part, 0, 1 << 20).await.1 == bytes);
        // A damaged datafile can be removed.
        std::fs::remove_file(map).expect("removed");
        change(&mut admin, DataRequest::Remove { datafiles: vec![part] }).await;
        assert_eq!(files(&path).len(), 1);
        server.stop().await;
    });
}

#[test]
fn formats_of_one_target_do_not_mix() {
    with_server(true, async |env, unix, _, folder| {
        let mut client = Client::connect(&env, &unix).await;
        let bytes = text(LEN, 7);
        // The first byte decides; files of other settings stay as they are.
        for (file, setting) in [(40, "lz4/16KiB"), (41, "zstd:5/64KiB"), (42, "auto/1024KiB")] {
            let (part, cap) = (datafile(0, file, 0), client.grant(file, rights(setting), 1 << 40));
            let written = client.call(&write_request(part, cap, 0, LEN as u32), &bytes).await.0;
            assert_eq!(written, DataReply::Written);
            assert_eq!(write(&mut client, part, 5, b"another setting").await, DataReply::Written);
            let mut expected = bytes.clone();
            expected[5..20].copy_from_slice(b"another setting");
            assert!(read(&mut client, part, 0, 1 << 20).await.1 == expected, "{setting}");
        }
        // A file that became compressed after it had bytes: a bug or a foreign disk, never zeros.
        let plain = datafile(0, 43, 0);
        assert_eq!(client.write(plain, 0, &bytes).await, DataReply::Written);
        let (refused, _) = read(&mut client, plain, 0, 10).await;
        assert_eq!(errno(&refused), Some(Errno::EIO), "{refused:?}");
        assert!(client.read(plain, 0, 1 << 20).await.1 == bytes);
        // The null module stores nothing, compressed or not.
        let null = datafile(2, 44, 0);
        assert_eq!(write(&mut client, null, 0, &bytes).await, DataReply::Written);
        assert_eq!(read(&mut client, null, 0, LEN).await.1, vec![0; LEN as usize]);
        assert_eq!(files(&folder.join("t0")).len(), 7);
    });
}
