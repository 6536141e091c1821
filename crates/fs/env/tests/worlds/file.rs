//! Files.

use super::*;
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use weft_core::{ByteLen, LocalOffset, Nanos};
use weft_env::{BlockingFile, Dir, File, OpenMode, Shared};

async fn fresh<E: Env>(stage: &Stage<E>) -> E::File {
    let dir = stage.env.dir(&stage.folder).await.expect("folder");
    dir.open("file", OpenMode::CREATE).await.expect("file")
}

async fn read<F: File>(file: &F, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xEE; len];
    let count = file.read_at(&mut [IoSliceMut::new(&mut bytes)], LocalOffset(offset)).await.expect("read");
    bytes.truncate(count);
    bytes
}

pub async fn vectored_io_is_exact<E: Env>(stage: Stage<E>) {
    let file = fresh(&stage).await;
    let bytes = pattern(5000, 1);
    let parts: Vec<_> = bytes.chunks(3).map(IoSlice::new).collect();
    file.write_at(&parts, LocalOffset(7)).await.expect("write");
    assert_eq!(read(&file, 7, 5000).await, bytes);
    assert_eq!(read(&file, 0, 7).await, [0; 7]);
    let mut out = vec![0; 5000];
    let mut bufs: Vec<_> = out.chunks_mut(2).map(IoSliceMut::new).collect();
    let count = file.read_at(&mut bufs, LocalOffset(7)).await.expect("read");
    assert_eq!((count, out), (5000, bytes));
    file.write_at(&[], LocalOffset(9000)).await.expect("nothing to write");
    assert_eq!(file.meta().await.expect("meta").len, ByteLen(5007));
    file.sync().await.expect("sync");
}

pub async fn reads_end_at_the_end_of_the_file<E: Env>(stage: Stage<E>) {
    let file = fresh(&stage).await;
    file.write_at(&[IoSlice::new(b"0123456789")], LocalOffset(0)).await.expect("write");
    let (mut a, mut b, mut c) = ([0; 4], [0; 8], [9; 2]);
    let mut bufs = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b), IoSliceMut::new(&mut c)];
    assert_eq!(file.read_at(&mut bufs, LocalOffset(2)).await.expect("read"), 8);
    assert_eq!((&a[..], &b[..4], c), (&b"2345"[..], &b"6789"[..], [9; 2]));
    assert_eq!(read(&file, 10, 4).await, b"");
    assert_eq!(read(&file, 1 << 40, 4).await, b"");
}

pub async fn lengths_change<E: Env>(stage: Stage<E>) {
    let file = fresh(&stage).await;
    let before = file.meta().await.expect("meta");
    assert_eq!((before.len, before.blocks_512), (ByteLen(0), 0));
    stage.env.sleep(SOON).await;
    file.write_at(&[IoSlice::new(&[7; 10_000])], LocalOffset(0)).await.expect("write");
    file.sync().await.expect("sync");
    let after = file.meta().await.expect("meta");
    assert!(after.mtime > before.mtime && after.blocks_512 * 512 >= 10_000, "{after:?}");
    file.set_mtime(before.mtime).await.expect("turned back");
    assert_eq!(file.meta().await.expect("meta").mtime, before.mtime);
    file.set_len(ByteLen(100)).await.expect("cut");
    file.set_len(ByteLen(200)).await.expect("extend");
    let bytes = read(&file, 0, 1000).await;
    assert_eq!((bytes.len(), &bytes[..100], &bytes[100..]), (200, &[7; 100][..], &[0; 100][..]));
}

pub async fn shared_memory_is_written<E: Env>(stage: Stage<E>) {
    let file = fresh(&stage).await;
    let shared = stage.env.shared(8192).expect("shared memory");
    shared.copy_in(1000, &pattern(5000, 4));
    file.write_shared_at(&shared, 1000, 5000, LocalOffset(3)).await.expect("write");
    assert_eq!(read(&file, 3, 6000).await, pattern(5000, 4));
    let got = file.read_shared_at(&shared, 100, 6000, LocalOffset(1003)).await.expect("read");
    let mut back = vec![0; 4000];
    shared.copy_out(100, &mut back);
    assert_eq!((got, &back[..]), (4000, &pattern(5000, 4)[1000..]), "short at the end of the file");
}

pub async fn a_blocking_file_is_the_same_file<E: Env>(stage: Stage<E>) {
    let file = fresh(&stage).await;
    let blocking = file.blocking();
    blocking.write_at(b"abcdef", LocalOffset(2)).expect("write");
    assert_eq!(read(&file, 0, 100).await, b"\0\0abcdef");
    let mut out = [0; 3];
    blocking.read_at(&mut out, LocalOffset(3)).expect("read");
    assert_eq!(&out, b"bcd");
    let error = blocking.read_at(&mut out, LocalOffset(6)).expect_err("past the end");
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    blocking.set_len(ByteLen(4)).expect("cut");
    blocking.sync().expect("sync");
    assert_eq!((blocking.len().expect("len"), blocking.is_empty().expect("len")), (ByteLen(4), false));
    blocking.wait_for_device().await;
    let idle_at = stage.env.now();
    blocking.wait_for_device().await;
    assert!(stage.env.now().saturating_sub(idle_at) < Nanos::from_s(1), "no requests are pending");
}
