//! Directory trees.

use super::*;
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use weft_core::{ByteLen, LocalOffset};
use weft_env::{Create, Dir, File, OpenMode};

const NEW: OpenMode = OpenMode { write: true, create: Create::New, direct: false };

fn kind<T>(result: std::io::Result<T>) -> ErrorKind {
    result.err().expect("an error").kind()
}

pub async fn files_are_created_as_requested<E: Env>(stage: Stage<E>) {
    let dir = stage.env.dir(&stage.folder).await.expect("folder");
    assert_eq!(kind(dir.open("a", OpenMode::READ).await), ErrorKind::NotFound);
    assert_eq!(kind(dir.open("a", OpenMode::WRITE).await), ErrorKind::NotFound);
    dir.open("a", NEW).await.expect("new");
    assert_eq!(kind(dir.open("a", NEW).await), ErrorKind::AlreadyExists);
    let file = dir.open("a", OpenMode::CREATE).await.expect("exists");
    file.write_at(&[IoSlice::new(b"x")], LocalOffset(0)).await.expect("write");
    let reader = dir.open("a", OpenMode::READ).await.expect("exists");
    assert!(reader.write_at(&[IoSlice::new(b"x")], LocalOffset(0)).await.is_err(), "opened for reading");
    assert_eq!(dir.meta("a").await.expect("meta").len, ByteLen(1));
    assert_eq!(kind(dir.open("none/a", OpenMode::CREATE).await), ErrorKind::NotFound);
    assert!(dir.open("a/b", OpenMode::CREATE).await.is_err(), "a folder is not a file");
    let space = dir.space().await.expect("space");
    assert!(space.total.0 > 0 && space.free <= space.total, "{space:?}");
    assert!(stage.env.dir(&stage.folder.join("none")).await.is_err());
}

pub async fn names_are_listed_removed_and_renamed<E: Env>(stage: Stage<E>) {
    let dir = stage.env.dir(&stage.folder).await.expect("folder");
    dir.make_dir("b").await.expect("folder");
    dir.make_dir("b").await.expect("again");
    dir.make_dir("b/c").await.expect("folder");
    assert_eq!(kind(dir.make_dir("x/y").await), ErrorKind::NotFound);
    for name in ["z", "b/two", "b/one"] {
        dir.open(name, OpenMode::CREATE).await.expect(name);
    }
    assert!(dir.make_dir("z").await.is_err(), "a file has this name");
    assert_eq!(dir.list("").await.expect("names"), ["b", "z"]);
    assert_eq!(dir.list("b").await.expect("names"), ["c", "one", "two"]);
    dir.rename("b/one", "b/two").await.expect("rename");
    dir.rename("z", "b/c/z").await.expect("rename");
    assert_eq!(dir.list("").await.expect("names"), ["b"]);
    assert_eq!(dir.list("b").await.expect("names"), ["c", "two"]);
    assert_eq!(dir.list("b/c").await.expect("names"), ["z"]);
    assert_eq!(kind(dir.rename("none", "b/n").await), ErrorKind::NotFound);
    dir.remove("b/two").await.expect("remove");
    assert_eq!(kind(dir.remove("b/two").await), ErrorKind::NotFound);
    assert!(dir.remove("b/c").await.is_err(), "a folder is not a file");
    assert_eq!(kind(dir.list("none").await), ErrorKind::NotFound);
    for folder in ["", "b", "b/c"] {
        dir.sync(folder).await.expect("sync");
    }
}

pub async fn removed_files_live_while_open<E: Env>(stage: Stage<E>) {
    let dir = stage.env.dir(&stage.folder).await.expect("folder");
    let file = dir.open("a", OpenMode::CREATE).await.expect("file");
    file.write_at(&[IoSlice::new(b"still")], LocalOffset(0)).await.expect("write");
    dir.remove("a").await.expect("remove");
    let other = dir.open("a", NEW).await.expect("a new one");
    let mut out = [0; 5];
    file.read_at(&mut [IoSliceMut::new(&mut out)], LocalOffset(0)).await.expect("read");
    assert_eq!(&out, b"still");
    assert_eq!(other.meta().await.expect("meta").len, ByteLen(0));
}

pub async fn names_stay_inside<E: Env>(stage: Stage<E>) {
    let dir = stage.env.dir(&stage.folder).await.expect("folder");
    for name in ["", "/etc/passwd", "../x", "a/../x", "a//b", "."] {
        assert_eq!(kind(dir.open(name, OpenMode::CREATE).await), ErrorKind::InvalidInput, "{name}");
        assert_eq!(kind(dir.remove(name).await), ErrorKind::InvalidInput, "{name}");
    }
}

pub async fn locks_exclude<E: Env>(stage: Stage<E>) {
    let dir = stage.env.dir(&stage.folder).await.expect("folder");
    let guard = dir.lock("lock").await.expect("free");
    assert_eq!(kind(dir.lock("lock").await), ErrorKind::WouldBlock);
    dir.lock("other").await.expect("another file");
    drop(guard);
    dir.lock("lock").await.expect("free again");
}
