//! Datafiles that disappear or are truncated outside of Weft: their bytes are an error, and all other bytes are
//! readable.

use crate::support::model::Random;
use crate::support::{Reach, RealCluster, SERVERS, at, open, options, pattern, read, write};
use std::io::IoSliceMut;
use weft_client::{Client, Error, LayoutSpec, OpenFile, OpenFlags, Transport};
use weft_core::{ByteLen, FileOffset, TargetId};
use weft_env::real::{RealEnv, block_on};
use weft_store::datafile::DatafileKey;

const STRIPE: u64 = 4096;

async fn open_to_read(client: &Client<RealEnv>, path: &str) -> OpenFile<RealEnv> {
    client.open(&at(path), OpenFlags::READ, 0, &LayoutSpec::default()).await.expect("opens")
}

async fn try_read(file: &OpenFile<RealEnv>, offset: u64, len: u64) -> Result<Vec<u8>, Error> {
    let mut buf = vec![0xee; len as usize];
    let got = file.read_at(&mut [IoSliceMut::new(&mut buf)], FileOffset(offset)).await?;
    buf.truncate(got);
    Ok(buf)
}

/// Truncates the datafile that has byte `at` of a file to `len` bytes, or removes it, without its server.
async fn lose(cluster: &mut RealCluster, file: &OpenFile<RealEnv>, at: u64, len: Option<u64>) -> TargetId {
    let place = file.layout().expect("a layout").locate(FileOffset(at));
    cluster.stop_server(place.target.0).await;
    let folder = &cluster.plan.folders[place.target.0 as usize];
    // The datafiles of a moved file have another generation.
    let mut names =
        (0..2).map(|generation| DatafileKey::new(file.file().of_generation(generation), place.object));
    let path = names.find_map(|name| Some(folder.join(name.name())).filter(|path| path.exists()));
    let path = path.expect("it is there");
    match len {
        None => std::fs::remove_file(&path).expect("it was there"),
        Some(len) => {
            let datafile = std::fs::OpenOptions::new().write(true).open(&path).expect("it is there");
            assert!(datafile.metadata().expect("a length").len() > len, "shorter than it was");
            datafile.set_len(len).expect("truncated");
        }
    }
    cluster.start_server(place.target.0).await;
    place.target
}

/// Writes at random, loses a datafile or the end of one, and compares random reads with a model of the file.
async fn lose_at_random(seed: u64, transport: Transport, cluster: &mut RealCluster) {
    let mut rng = Random::new(seed);
    let name = format!("f{seed}");
    let writer = cluster.client(options(transport));
    let file = open(&writer, &name, STRIPE).await;
    let layout = file.layout().expect("a layout").clone();
    let mut model = Vec::new();
    let mut ends = vec![0; layout.objects().count()];
    for round in 0..1 + rng.below(6) {
        let (offset, len) = (rng.below(20 * STRIPE), 1 + rng.below(3 * STRIPE));
        let bytes = pattern(len as usize, seed << 8 | round);
        write(&file, offset, &bytes).await;
        model.resize(model.len().max((offset + len) as usize), 0);
        model[offset as usize..(offset + len) as usize].copy_from_slice(&bytes);
        for at in offset..offset + len {
            let place = layout.locate(FileOffset(at));
            let end = &mut ends[layout.index_of(place.object).expect("of the layout")];
            *end = (*end).max(place.local.0 + 1);
        }
    }
    // The lengths are recorded by a sync while the file stays open, and by a close.
    let stays = match seed % 3 {
        0 => {
            file.sync().await.expect("synced");
            Some(file)
        }
        1 => {
            file.sync().await.expect("synced");
            file.close().await.expect("closed");
            None
        }
        _ => {
            file.close().await.expect("closed");
            None
        }
    };
    let reader = cluster.client(options(transport));
    writer.flush().await.expect("flushed");
    let early = open_to_read(&reader, &name).await;
    if rng.below(2) == 0 {
        assert_eq!(read(&early, 0, model.len() + 1).await, model, "seed {seed}");
    }
    let held: Vec<usize> = (0..ends.len()).filter(|index| ends[*index] > 0).collect();
    let victim = held[rng.below(held.len() as u64) as usize];
    let (object, _) = layout.objects().nth(victim).expect("of the layout");
    let kept = if rng.below(2) == 0 { None } else { Some(rng.below(ends[victim])) };
    let some_byte = (0..model.len() as u64).find(|at| layout.locate(FileOffset(*at)).object == object);
    lose(cluster, &early, some_byte.expect("it has bytes"), kept).await;
    let is_lost = |at: u64| {
        let place = layout.locate(FileOffset(at));
        place.object == object && (kept.unwrap_or(0)..ends[victim]).contains(&place.local.0)
    };
    let late = open_to_read(&reader, &name).await;
    for (file, reader_name) in [(Some(&early), "early"), (Some(&late), "late"), (stays.as_ref(), "writer")] {
        let Some(file) = file else { continue };
        for round in 0..40 {
            let (offset, len) = match round {
                0 => (0, model.len() as u64 + 10),
                _ => (rng.below(model.len() as u64 + 10), rng.below(3 * STRIPE)),
            };
            let end = (offset + len).min(model.len() as u64);
            let result = try_read(file, offset, len).await;
            let what = format!("seed {seed}, {transport:?}, {reader_name}: {len} bytes at {offset}");
            match (offset..end).find(|at| is_lost(*at)) {
                None => {
                    let expected = model.get(offset as usize..end.max(offset) as usize).unwrap_or(&[]);
                    assert_eq!(result.as_deref(), Ok(expected), "{what}");
                }
                Some(first) => {
                    let error = result.expect_err(&what);
                    assert_eq!(error.errno(), libc::EIO, "{what}: {error}");
                    let Error::Missing(missing) = &error else { panic!("{what}: {error}") };
                    assert_eq!(missing.range.0, FileOffset(first), "{what}");
                    assert_eq!((missing.held.0, missing.recorded.0), (kept.unwrap_or(0), ends[victim]));
                }
            }
        }
        assert_eq!(file.size().await, Ok(ByteLen(model.len() as u64)), "seed {seed}, {reader_name}");
    }
    assert_eq!(reader.stat(&at(&name)).await.expect("there").size, ByteLen(model.len() as u64));
}

#[test]
fn lost_bytes_are_an_error_and_all_other_bytes_are_read() {
    for (reach, transport) in [
        (Reach::Unix, Transport::Auto),
        (Reach::Unix, Transport::Descriptor),
        (Reach::Tcp, Transport::Socket),
    ] {
        block_on(async {
            let mut cluster = RealCluster::start(reach).await;
            for seed in 1..9 {
                lose_at_random(seed, transport, &mut cluster).await;
            }
            cluster.stop().await;
        });
    }
}

#[test]
fn no_write_or_truncation_turns_lost_bytes_into_a_hole() {
    for transport in [Transport::Auto, Transport::Descriptor] {
        block_on(async {
            let mut cluster = RealCluster::start(Reach::Unix).await;
            let client = cluster.client(options(transport));
            let file = open(&client, "f", STRIPE).await;
            let bytes = pattern(8 * STRIPE as usize, 3);
            write(&file, 0, &bytes).await;
            file.close().await.expect("closed");
            client.flush().await.expect("flushed");
            let early = open_to_read(&client, "f").await;
            lose(&mut cluster, &early, STRIPE, Some(5)).await;
            let is_lost = |result: Result<(), Error>| match result {
                Err(Error::Missing(missing)) => assert_eq!(missing.range.0, FileOffset(STRIPE + 5)),
                other => panic!("{other:?}"),
            };
            assert_eq!(early.seek_data(FileOffset(STRIPE + 9)).await, Ok(Some(FileOffset(STRIPE + 9))));
            assert_eq!(early.seek_hole(FileOffset(0)).await, Ok(Some(FileOffset(8 * STRIPE))));
            let file = open(&client, "f", STRIPE).await;
            // After the lost bytes in the same datafile, and over all of them.
            for (offset, len) in [(5 * STRIPE + 9, 10), (0, 6 * STRIPE)] {
                let buf = std::io::IoSlice::new(&bytes[..len as usize]);
                is_lost(file.write_at(&[buf], FileOffset(offset)).await.map(drop));
            }
            write(&file, 2 * STRIPE, &bytes[2 * STRIPE as usize..][..7]).await;
            is_lost(file.truncate(ByteLen(20 * STRIPE)).await);
            is_lost(client.truncate(&at("f"), ByteLen(20 * STRIPE)).await);
            is_lost(try_read(&file, 0, 8 * STRIPE).await.map(drop));
            file.close().await.expect("closed");
            // Bytes that are truncated away are no longer missing; the others are.
            client.truncate(&at("f"), ByteLen(2 * STRIPE + 9)).await.expect("truncated");
            let file = open_to_read(&client, "f").await;
            is_lost(try_read(&file, 0, 8 * STRIPE).await.map(drop));
            assert_eq!(file.size().await, Ok(ByteLen(2 * STRIPE + 9)));
            assert_eq!(client.stat(&at("f")).await.expect("there").size, ByteLen(2 * STRIPE + 9));
            // A file cannot end with a lost byte.
            is_lost(client.truncate(&at("f"), ByteLen(STRIPE + 9)).await);
            assert_eq!(file.size().await, Ok(ByteLen(2 * STRIPE + 9)));
            // After all lost bytes are truncated away, the file can be truncated and written as usual.
            client.truncate(&at("f"), ByteLen(STRIPE + 3)).await.expect("truncated");
            let file = open(&client, "f", STRIPE).await;
            write(&file, STRIPE, &bytes[STRIPE as usize..]).await;
            assert_eq!(read(&file, 0, bytes.len() + 1).await, bytes);
            file.close().await.expect("closed");
            client.flush().await.expect("flushed");
            lose(&mut cluster, &early, STRIPE, None).await;
            client.accept_loss(&at("f"), ByteLen(8 * STRIPE)).await.expect("accepted");
            let mut expected = bytes;
            for stripe in [1, 5] {
                expected[(stripe * STRIPE) as usize..((stripe + 1) * STRIPE) as usize].fill(0);
            }
            let file = open_to_read(&client, "f").await;
            assert_eq!(read(&file, 0, expected.len() + 1).await, expected);
            cluster.stop().await;
        });
    }
}

/// The fault search found this with losses of power. Here, a datafile is truncated while its server is stopped.
#[test]
fn an_open_file_notices_the_loss_of_bytes_that_were_written_after_its_last_read() {
    for transport in [Transport::Auto, Transport::Descriptor, Transport::Socket] {
        block_on(async {
            let mut cluster = RealCluster::start(Reach::Unix).await;
            let client = cluster.client(options(transport));
            open(&client, "f", STRIPE).await.close().await.expect("closed");
            let early = open_to_read(&client, "f").await;
            assert_eq!(try_read(&early, 0, 10).await, Ok(Vec::new()), "the file is empty");
            let file = open(&client, "f", STRIPE).await;
            write(&file, 0, &pattern(3 * STRIPE as usize, 5)).await;
            file.close().await.expect("closed");
            client.flush().await.expect("flushed");
            lose(&mut cluster, &early, 2 * STRIPE, Some(0)).await;
            // The remaining bytes end at the end of a stripe, as if the file ended there.
            let lost = try_read(&early, STRIPE, 2 * STRIPE).await.expect_err("bytes are lost");
            let Error::Missing(missing) = &lost else { panic!("{transport:?}: {lost}") };
            assert_eq!(missing.range, (FileOffset(2 * STRIPE), FileOffset(3 * STRIPE)));
            assert_eq!(early.size().await, Ok(ByteLen(3 * STRIPE)));
            cluster.stop().await;
        });
    }
}

#[test]
fn the_error_for_lost_bytes_names_path_range_target_and_server() {
    block_on(async {
        let mut cluster = RealCluster::start(Reach::Unix).await;
        let client = cluster.client(options(Transport::Auto));
        let file = open(&client, "wide", 65_536).await;
        write(&file, 0, &pattern(200_000, 1)).await;
        let target = lose(&mut cluster, &file, 65_536, None).await;
        // Nothing is recorded before the first sync or close.
        assert_eq!(try_read(&file, 65_536, 5).await, Ok(vec![0; 5]));
        write(&file, 65_536, &[7]).await;
        file.sync().await.expect("synced");
        lose(&mut cluster, &file, 65_536, None).await;
        let error = try_read(&file, 60_000, 10_000).await.expect_err("lost").to_string();
        let expected_start = format!(
            "wide: bytes 65536 to 131072 are lost: datafile {}.0.1 on target {}",
            file.file(),
            target.0
        );
        assert!(error.starts_with(&expected_start), "{error}");
        assert!(error.contains(&format!("of server s{} has 0 of 65536 bytes", target.0)), "{error}");
        assert!(error.contains("weft fsck"), "{error}");
        assert_eq!(read(&file, 0, 65_536).await.len(), 65_536, "the remaining bytes are readable");
        cluster.stop().await;
    });
}

#[test]
fn a_truncation_by_another_client_is_not_a_loss() {
    for transport in [Transport::Auto, Transport::Socket] {
        block_on(async {
            let cluster = RealCluster::start(Reach::Unix).await;
            let (one, other) = (cluster.client(options(transport)), cluster.client(options(transport)));
            let file = open(&one, "f", STRIPE).await;
            let bytes = pattern(10 * STRIPE as usize, 3);
            write(&file, 0, &bytes).await;
            file.sync().await.expect("synced");
            file.close().await.expect("closed");
            one.flush().await.expect("flushed");
            let early = open_to_read(&one, "f").await;
            assert_eq!(read(&early, 0, bytes.len()).await, bytes);
            let size = 3 * STRIPE + 5;
            other.truncate(&at("f"), ByteLen(size)).await.expect("truncated");
            assert_eq!(read(&early, 0, bytes.len()).await, bytes[..size as usize]);
            assert_eq!(early.size().await, Ok(ByteLen(size)));
            // After it is extended again, the file has a hole there.
            other.truncate(&at("f"), ByteLen(9 * STRIPE)).await.expect("made longer");
            let mut expected = bytes[..size as usize].to_vec();
            expected.resize(9 * STRIPE as usize, 0);
            assert_eq!(read(&early, 0, bytes.len()).await, expected);
            let flags = OpenFlags { write: true, truncate: true, ..OpenFlags::READ };
            let emptied = other.open(&at("f"), flags, 0, &LayoutSpec::default()).await.expect("opens");
            assert!(read(&early, 0, bytes.len()).await.is_empty());
            write(&emptied, 2 * STRIPE, &bytes[..10]).await;
            let mut expected = vec![0; 2 * STRIPE as usize];
            expected.extend_from_slice(&bytes[..10]);
            assert_eq!(read(&early, 0, bytes.len()).await, expected);
            emptied.close().await.expect("closed");
            assert_eq!(read(&early, 0, bytes.len()).await, expected);
            cluster.stop().await;
        });
    }
}

#[test]
fn a_file_with_lost_bytes_is_not_moved() {
    block_on(async {
        let mut cluster = RealCluster::start(Reach::Unix).await;
        let client = cluster.client(options(Transport::Auto));
        let file = open(&client, "f", STRIPE).await;
        let bytes = pattern(12 * STRIPE as usize, 3);
        write(&file, 0, &bytes).await;
        file.close().await.expect("closed");
        client.flush().await.expect("flushed");
        let move_to = async |target| {
            let strips = Some(vec![(TargetId(target), ByteLen(STRIPE))]);
            let spec = LayoutSpec { strips, ..LayoutSpec::default() };
            client.migrate(&at("f"), &spec, weft_client::MoveOptions::default(), &mut |_| true).await
        };
        // The records follow the file to its new datafiles.
        move_to(SERVERS - 1).await.expect("moved");
        let file = open_to_read(&client, "f").await;
        lose(&mut cluster, &file, 0, Some(5 * STRIPE + 7)).await;
        let error = move_to(0).await.expect_err("bytes are lost");
        assert!(matches!(error, Error::Missing(_)), "{error}");
        assert!(error.to_string().starts_with("f: bytes 20487 to 49152 are lost"), "{error}");
        let file = open_to_read(&client, "f").await;
        assert_eq!(read(&file, 0, 5 * STRIPE as usize).await, bytes[..5 * STRIPE as usize]);
        assert!(matches!(try_read(&file, 0, 12 * STRIPE).await, Err(Error::Missing(_))));
        cluster.stop().await;
    });
}
