//! The namespace as POSIX has it, one corner after the other.

mod meta_support;

use meta_support::*;
use weft_env::real::{RealEnv, block_on};
use weft_wire::Errno;
use weft_wire::meta::*;

fn with_service(body: impl AsyncFnOnce(Peer<RealEnv>, Peer<RealEnv>)) {
    let dir = tempfile::tempdir().expect("a directory");
    block_on(async {
        let service = start(&RealEnv::new(), config(dir.path().into()), &Removed::default()).await;
        let root = Peer::new(&service, 1, user(0));
        let other = Peer::new(&service, 2, user(1000));
        body(root, other).await;
        service.shutdown().await;
    });
}

#[test]
fn the_minimal_path() {
    with_service(async |mut root, _| {
        let made = root.mkdir("d").await.expect("made");
        assert_eq!((made.kind, made.mode, made.nlink), (FileType::Directory, 0o755, 2));
        let (handle, opened) = root.open("d/f", CREATE).await.expect("made");
        assert!(opened.created && !opened.must_truncate);
        assert_eq!(opened.layout.as_ref().map(|layout| layout.objects().count()), Some(4));
        let cap = opened.cap.expect("a right");
        assert!(secret().verify(&cap, opened.attr.file, weft_wire::Rights::WRITE, opened.attr.ctime));
        let unsettled = root.stat("d/f").await.expect("there").unsettled.expect("being written");
        assert!(!unsettled.may_settle);
        let end = weft_core::ByteLen(5000);
        let mtime = weft_core::Timestamp(opened.attr.mtime.0 + 10_000_000_000);
        let summary = WriteSummary { wrote: true, end, bytes: end, mtime, unsure: false };
        root.close(handle, summary).await.expect("closed");
        let attr = root.stat("d/f").await.expect("there");
        assert_eq!((attr.size, attr.blocks_512, attr.mtime), (end, 16, mtime));
        assert!(attr.unsettled.is_none(), "the summary settled it");
        root.rename("d/f", "g").await.expect("renamed");
        assert_eq!(root.list("").await, Ok(vec!["d".into(), "g".into()]));
        assert_eq!(root.rmdir("g").await, Err(Errno::ENOTDIR));
        assert_eq!(root.unlink("d").await, Err(Errno::EISDIR));
        root.unlink("g").await.expect("removed");
        root.rmdir("d").await.expect("removed");
        assert_eq!(root.list("").await, Ok(vec![]));
        assert_eq!(root.stat("g").await, Err(Errno::ENOENT));
    });
}
