//! The namespace as POSIX defines it, one corner case after another.

use crate::meta_support::*;
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
        let made = root.mkdir("d").await.expect("created");
        assert_eq!((made.kind, made.mode, made.nlink), (FileType::Directory, 0o755, 2));
        let (handle, opened) = root.open("d/f", CREATE).await.expect("created");
        assert!(opened.created && !opened.must_truncate);
        assert_eq!(opened.layout.as_ref().map(|layout| layout.objects().count()), Some(4));
        let cap = opened.cap.expect("a right");
        assert!(secret().verify(
            root.ctx.session,
            &cap,
            opened.attr.file,
            weft_wire::Rights::WRITE,
            opened.attr.ctime
        ));
        let invalid_size = root.stat("d/f").await.expect("exists").invalid_size.expect("being written");
        assert!(!invalid_size.may_validate_size);
        let end = weft_core::ByteLen(5000);
        let mtime = weft_core::Timestamp(opened.attr.mtime.0 + 10_000_000_000);
        let summary = WriteSummary { wrote: true, end, bytes: end, mtime, ..WriteSummary::default() };
        root.close(handle, summary).await.expect("closed");
        let attr = root.stat("d/f").await.expect("exists");
        assert_eq!((attr.size, attr.blocks_512, attr.mtime), (end, 16, mtime));
        assert!(attr.invalid_size.is_none(), "the summary makes the size valid");
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

async fn set(peer: &mut Peer<RealEnv>, path: &str, set: SetAttr) -> Result<Attr, Errno> {
    attr(peer.change(MetaRequest::SetAttr { at: at(path), set }).await)
}

fn mode(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

fn owner(uid: Option<u32>, gid: Option<u32>) -> SetAttr {
    SetAttr { uid, gid, ..SetAttr::default() }
}

async fn symlink(peer: &mut Peer<RealEnv>, path: &str, target: &str) -> Result<Attr, Errno> {
    attr(peer.change(MetaRequest::Symlink { at: link_at(path), target: target.into() }).await)
}

#[test]
fn names_and_paths_have_bounds() {
    with_service(async |mut root, _| {
        let long = "n".repeat(255);
        root.touch(&long).await.expect("255 bytes are a name");
        assert_eq!(root.touch(&format!("{long}n")).await, Err(Errno::ENAMETOOLONG));
        assert_eq!(root.stat(&"a/".repeat(2048)).await, Err(Errno::ENAMETOOLONG));
        assert_eq!(root.stat(&format!("{long}/x")).await, Err(Errno::ENOTDIR));
        assert_eq!(root.stat("no/x").await, Err(Errno::ENOENT));
        assert_eq!(symlink(&mut root, "l", &"x".repeat(4096)).await, Err(Errno::ENAMETOOLONG));
        assert_eq!(symlink(&mut root, "l", "").await, Err(Errno::ENOENT));
    });
}

#[test]
fn slashes_at_the_end_require_a_directory() {
    with_service(async |mut root, _| {
        root.mkdir("d/").await.expect("created");
        root.touch("f").await.expect("created");
        symlink(&mut root, "to_d", "d").await.expect("created");
        symlink(&mut root, "to_f", "f").await.expect("created");
        assert_eq!(root.stat("f/").await, Err(Errno::ENOTDIR));
        assert_eq!(root.stat("to_d/").await.map(|attr| attr.kind), Ok(FileType::Directory));
        assert_eq!(root.stat("to_d").await.map(|attr| attr.kind), Ok(FileType::Symlink));
        assert_eq!(root.stat("to_f/").await, Err(Errno::ENOTDIR));
        assert_eq!(root.unlink("f/").await, Err(Errno::ENOTDIR));
        assert_eq!(root.unlink("d/").await, Err(Errno::EISDIR));
        assert_eq!(root.rmdir("to_d/").await, Err(Errno::ENOTDIR));
        assert_eq!(root.open("new/", CREATE).await.map(|_| ()), Err(Errno::EISDIR));
        assert_eq!(root.rename("f/", "g").await, Err(Errno::ENOTDIR));
        assert_eq!(root.rename("f", "g/").await, Err(Errno::ENOTDIR));
        root.rename("d/", "e/").await.expect("directories may");
        assert_eq!(root.rmdir("e/.").await, Err(Errno::EINVAL));
        assert_eq!(root.rmdir("e/..").await, Err(Errno::ENOTEMPTY));
        assert_eq!(root.mkdir("e/.").await, Err(Errno::EEXIST));
        assert_eq!(root.rename("e/.", "x").await, Err(Errno::EBUSY));
    });
}

#[test]
fn links_are_followed_inside_and_returned_where_they_leave() {
    with_service(async |mut root, _| {
        root.mkdir("d").await.expect("created");
        root.touch("d/f").await.expect("created");
        symlink(&mut root, "d/up", "../d/./f").await.expect("created");
        symlink(&mut root, "chain", "d/up").await.expect("created");
        let through = attr(root.ask(MetaRequest::Stat { at: at("chain") }).await).expect("followed");
        assert_eq!(through.kind, FileType::Regular);
        symlink(&mut root, "loop", "loop").await.expect("created");
        assert_eq!(attr(root.ask(MetaRequest::Stat { at: at("loop") }).await), Err(Errno::ELOOP));
        for n in 0..41 {
            let target = if n == 0 { "d/f".to_owned() } else { format!("l{}", n - 1) };
            symlink(&mut root, &format!("l{n}"), &target).await.expect("created");
        }
        attr(root.ask(MetaRequest::Stat { at: at("l39") }).await).expect("40 links are followed");
        assert_eq!(attr(root.ask(MetaRequest::Stat { at: at("l40") }).await), Err(Errno::ELOOP));

        let elsewhere = |reply| match reply {
            MetaReply::Elsewhere { from, target, rest } => {
                let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
                (text(from), text(target), text(rest))
            }
            other => panic!("{other:?}"),
        };
        let three = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
        symlink(&mut root, "d/abs", "/etc").await.expect("created");
        let reply = root.ask(MetaRequest::Stat { at: at("d/abs/host/x") }).await;
        assert_eq!(elsewhere(reply), three("d", "/etc", "host/x"));
        symlink(&mut root, "d/out", "../../etc/x").await.expect("created");
        let reply = root.ask(MetaRequest::Stat { at: at("d/out") }).await;
        assert_eq!(elsewhere(reply), three("", "..", "etc/x"));

        symlink(&mut root, "dangling", "d/made").await.expect("created");
        let exclusive = OpenFlags { exclusive: true, ..CREATE };
        assert_eq!(root.open("dangling", exclusive).await.map(|_| ()), Err(Errno::EEXIST));
        assert!(root.open("dangling", CREATE).await.expect("through the link").1.created);
        root.stat("d/made").await.expect("exists");
        let reply = root.change(MetaRequest::Open {
            at: link_at("chain"),
            flags: READ,
            mode: 0,
            handle: HandleId(900),
            layout: LayoutSpec::default(),
            cache: false,
            ranks: None,
        });
        assert_eq!(errno(reply.await), Errno::ELOOP, "O_NOFOLLOW");
    });
}

#[test]
fn opening_checks_the_needed_permissions() {
    with_service(async |mut root, mut other| {
        root.mkdir("d").await.expect("created");
        set(&mut root, "", mode(0o777)).await.expect("root's");
        root.touch("f").await.expect("created");
        set(&mut root, "f", mode(0o644)).await.expect("root's");
        assert_eq!(other.open("f", WRITE).await.map(|_| ()), Err(Errno::EACCES));
        let cut = OpenFlags { truncate: true, ..READ };
        assert_eq!(other.open("f", cut).await.map(|_| ()), Err(Errno::EACCES), "a truncation is a write");
        other.open("f", READ).await.expect("readable");
        assert_eq!(root.open("d", WRITE).await.map(|_| ()), Err(Errno::EISDIR));
        assert_eq!(root.open("d", OpenFlags { create: true, ..READ }).await.map(|_| ()), Err(Errno::EISDIR));
        let directory = OpenFlags { directory: true, ..READ };
        assert_eq!(root.open("f", directory).await.map(|_| ()), Err(Errno::ENOTDIR));
        assert_eq!(root.open("d", directory).await.map(|(_, opened)| opened.layout), Ok(None));
        let (_, opened) = other.open_mode("ro", CREATE, 0o444).await.expect("its creator may write it once");
        assert_eq!((opened.attr.uid, opened.attr.mode), (1000, 0o444));
        assert_eq!(other.open("ro", WRITE).await.map(|_| ()), Err(Errno::EACCES));
        let fifo = MetaRequest::Mknod { at: at("p"), kind: FileType::Fifo, mode: 0o666, rdev: 0 };
        attr(other.change(fifo).await).expect("anybody may");
        assert_eq!(other.open("p", WRITE).await.map(|(_, opened)| opened.layout), Ok(None));
        let device = MetaRequest::Mknod { at: at("c"), kind: FileType::CharDevice, mode: 0o666, rdev: 5 };
        assert_eq!(attr(other.change(device.clone()).await), Err(Errno::EPERM));
        assert_eq!(attr(root.change(device).await).map(|attr| attr.rdev), Ok(5));
        assert_eq!(root.open("c", READ).await.map(|_| ()), Err(Errno::ENXIO));
        set(&mut root, "d", mode(0o644)).await.expect("root's");
        assert_eq!(other.stat("d/x").await, Err(Errno::EACCES), "no right to search");
    });
}

#[test]
fn owners_modes_and_set_ids() {
    with_service(async |mut root, mut other| {
        set(&mut root, "", mode(0o777)).await.expect("root's");
        other.touch("f").await.expect("created");
        assert_eq!(set(&mut other, "f", owner(Some(0), None)).await, Err(Errno::EPERM), "given away");
        assert_eq!(set(&mut other, "f", owner(None, Some(5))).await, Err(Errno::EPERM), "not a member");
        set(&mut other, "f", owner(Some(1000), Some(1000))).await.expect("as it is");
        let attr = set(&mut root, "f", mode(0o6755)).await.expect("root's");
        assert_eq!(attr.mode, 0o6755);
        let attr = set(&mut other, "f", owner(None, Some(1000))).await.expect("own group");
        assert_eq!(attr.mode, 0o755, "a change of owner clears set-id bits");
        set(&mut root, "f", owner(None, Some(7))).await.expect("root's");
        let attr = set(&mut other, "f", mode(0o2755)).await.expect("owner's");
        assert_eq!(attr.mode, 0o755, "not a member of the file's group");
        assert_eq!(set(&mut root, "f", mode(0o4755)).await.map(|attr| attr.mode), Ok(0o4755));
        let (handle, _) = other.open("f", WRITE).await.expect("owner's");
        let end = weft_core::ByteLen(1);
        let mtime = weft_core::Timestamp(0);
        let summary = WriteSummary { wrote: true, end, bytes: end, mtime, ..WriteSummary::default() };
        other.close(handle, summary).await.expect("open");
        assert_eq!(root.stat("f").await.map(|attr| attr.mode), Ok(0o755), "a write clears set-id bits");
        root.mkdir("g").await.expect("created");
        set(&mut root, "g", owner(None, Some(42))).await.expect("root's");
        set(&mut root, "g", mode(0o2777)).await.expect("root's");
        other.touch("g/f").await.expect("created");
        assert_eq!(other.stat("g/f").await.map(|attr| attr.gid), Ok(42));
        assert_eq!(other.mkdir("g/d").await.map(|attr| (attr.gid, attr.mode)), Ok((42, 0o2755)));
    });
}

#[test]
fn owners_set_times_and_writers_set_now() {
    with_service(async |mut root, mut other| {
        root.touch("f").await.expect("created");
        set(&mut root, "f", mode(0o666)).await.expect("root's");
        let (now, then) = (Some(SetTime::Now), Some(SetTime::At(weft_core::Timestamp(5))));
        let times = |atime, mtime| SetAttr { atime, mtime, ..SetAttr::default() };
        set(&mut other, "f", times(now, now)).await.expect("a writer's");
        assert_eq!(set(&mut other, "f", times(now, None)).await, Err(Errno::EPERM));
        assert_eq!(set(&mut other, "f", times(then, then)).await, Err(Errno::EPERM));
        set(&mut root, "f", mode(0o444)).await.expect("root's");
        assert_eq!(set(&mut other, "f", times(now, now)).await, Err(Errno::EACCES));
        let attr = set(&mut root, "f", times(then, None)).await.expect("root's");
        assert_eq!(attr.atime, weft_core::Timestamp(5));
    });
}

#[test]
fn sticky_directories_and_moved_directories() {
    with_service(async |mut root, mut other| {
        set(&mut root, "", mode(0o1777)).await.expect("root's");
        root.touch("f").await.expect("created");
        root.mkdir("d").await.expect("created");
        set(&mut root, "d", mode(0o777)).await.expect("root's");
        other.touch("own").await.expect("created");
        assert_eq!(other.unlink("f").await, Err(Errno::EPERM));
        assert_eq!(other.rename("own", "f").await, Err(Errno::EPERM), "over another user's");
        assert_eq!(other.rmdir("d").await, Err(Errno::EPERM));
        other.rename("own", "mine").await.expect("its own");
        // Moving a directory elsewhere requires write permission on it: its `..` changes.
        other.mkdir("from").await.expect("created");
        set(&mut other, "from", mode(0o555)).await.expect("owner's");
        assert_eq!(other.rename("from", "d/to").await, Err(Errno::EACCES));
        other.rename("from", "here").await.expect("within the same directory it is allowed");
        root.mkdir("d/sub").await.expect("created");
        assert_eq!(root.rename("d", "d/sub/x").await, Err(Errno::EINVAL));
        assert_eq!(root.rename("d/sub", "d").await, Err(Errno::ENOTEMPTY));
        assert_eq!(root.stat("d").await.map(|attr| attr.nlink), Ok(3));
        root.rename("d/sub", "sub").await.expect("moved");
        assert_eq!(root.stat("d").await.map(|attr| attr.nlink), Ok(2));
        assert_eq!(root.stat("sub/../d").await.map(|attr| attr.kind), Ok(FileType::Directory));
    });
}

#[test]
fn extended_attributes_by_their_namespaces() {
    with_service(async |mut root, mut other| {
        set(&mut root, "", mode(0o777)).await.expect("root's");
        other.touch("f").await.expect("created");
        symlink(&mut other, "l", "f").await.expect("created");
        let put = |path: &str, name: &str, create, replace| MetaRequest::SetXattr {
            at: link_at(path),
            name: name.into(),
            value: b"v".to_vec(),
            create,
            replace,
        };
        let get = |name: &str| MetaRequest::GetXattr { at: at("f"), name: name.into() };
        assert_eq!(done(other.change(put("f", "user.a", false, true)).await), Err(Errno::ENODATA));
        done(other.change(put("f", "user.a", true, false)).await).expect("new");
        assert_eq!(done(other.change(put("f", "user.a", true, false)).await), Err(Errno::EEXIST));
        assert_eq!(done(other.change(put("l", "user.a", false, false)).await), Err(Errno::EPERM), "a link");
        assert_eq!(done(other.change(put("f", "trusted.a", false, false)).await), Err(Errno::EPERM));
        assert_eq!(done(other.change(put("f", "system.a", false, false)).await), Err(Errno::EOPNOTSUPP));
        done(root.change(put("f", "trusted.a", false, false)).await).expect("root's");
        assert_eq!(errno(other.ask(get("trusted.a")).await), Errno::ENODATA);
        assert_eq!(root.ask(get("trusted.a")).await, MetaReply::Value(b"v".to_vec()));
        let names = MetaRequest::ListXattr { at: at("f") };
        assert_eq!(other.ask(names.clone()).await, MetaReply::Names(vec!["user.a".into()]));
        assert_eq!(root.ask(names).await, MetaReply::Names(vec!["trusted.a".into(), "user.a".into()]));
        assert_eq!(root.ask(get("user.weft.stripe_count")).await, MetaReply::Value(b"4".to_vec()));
        // SELinux labels are not supported; other attributes of this namespace are absent.
        assert_eq!(errno(other.ask(get("security.selinux")).await), Errno::EOPNOTSUPP);
        assert_eq!(errno(other.ask(get("security.a")).await), Errno::ENODATA);
        let label = put("f", "security.selinux", false, false);
        assert_eq!(done(root.change(label).await), Err(Errno::EOPNOTSUPP));
        let remove = MetaRequest::RemoveXattr { at: at("f"), name: "user.a".into() };
        done(other.change(remove.clone()).await).expect("exists");
        assert_eq!(done(other.change(remove).await), Err(Errno::ENODATA));
        let long = MetaRequest::SetXattr {
            at: at("f"),
            name: "user.b".into(),
            value: vec![0; XATTR_LEN_MAX + 1],
            create: false,
            replace: false,
        };
        assert_eq!(done(other.change(long).await), Err(Errno(7)), "E2BIG");
    });
}

#[test]
fn layouts_are_inherited_and_set_on_unwritten_files() {
    with_service(async |mut root, _| {
        let spec = |class: &str| LayoutSpec { class: Some(class.into()), ..LayoutSpec::default() };
        let set_layout = |path: &str, spec| MetaRequest::SetLayout { at: at(path), spec };
        root.mkdir("d").await.expect("created");
        done(root.change(set_layout("d", spec("ssd"))).await).expect("known");
        let MetaReply::Failed(error) = root.change(set_layout("d", spec("tape"))).await else {
            panic!("taken")
        };
        assert_eq!(error.errno, Errno::EINVAL);
        assert!(error.detail.contains("hdd, ssd"), "{}", error.detail);
        root.mkdir("d/e").await.expect("created");
        let (handle, opened) = root.open("d/e/f", CREATE).await.expect("created");
        let mut targets: Vec<u32> =
            opened.layout.expect("striped").objects().map(|(_, target)| target.0).collect();
        targets.sort_unstable();
        assert_eq!(targets, [2, 3]);
        assert_eq!(done(root.change(set_layout("d/e/f", spec("hdd"))).await), Err(Errno::EBUSY));
        root.close(handle, WriteSummary::default()).await.expect("open");
        done(root.change(set_layout("d/e/f", spec("hdd"))).await).expect("never written");
        let (handle, _) = root.open("d/e/f", WRITE).await.expect("exists");
        let end = weft_core::ByteLen(9);
        let mtime = weft_core::Timestamp(0);
        root.close(handle, WriteSummary { wrote: true, end, bytes: end, mtime, ..WriteSummary::default() })
            .await
            .expect("open");
        assert_eq!(done(root.change(set_layout("d/e/f", spec("hdd"))).await), Err(Errno::EEXIST));
    });
}

#[test]
fn a_directory_lists_in_pages_in_the_order_of_its_names() {
    big_directory(20_000);
}

#[test]
#[ignore = "a minute: the same with a million entries"]
fn a_directory_of_a_million_entries_lists_in_pages() {
    big_directory(1_000_000);
}

fn big_directory(count: u64) {
    with_service(async |mut root, _| {
        root.mkdir("d").await.expect("created");
        // Not in the order of the names (7 has no common factor with powers of ten), by many threads at once, so that
        // they share their syncs.
        const MAKERS: u64 = 32;
        std::thread::scope(|scope| {
            for maker in 0..MAKERS {
                let service = &root.service;
                scope.spawn(move || {
                    let peer = Peer::new(service, 1000 + u128::from(maker), user(0));
                    for n in (maker..count).step_by(MAKERS as usize).map(|n| n * 7 % count) {
                        let at = at(&format!("d/{n:07}"));
                        let mknod = MetaRequest::Mknod { at, kind: FileType::Regular, mode: 0o644, rdev: 0 };
                        attr(block_on(peer.ask(mknod))).expect("created");
                    }
                });
            }
        });
        let (mut after, mut next) = (Vec::new(), 0);
        loop {
            let request =
                MetaRequest::List { at: at("d"), after, limit: 1000, with_attr: next % 2 == 0, lease: false };
            let MetaReply::Entries { entries, more } = root.ask(request).await else { panic!("no entries") };
            for entry in &entries {
                assert_eq!(entry.name, format!("{next:07}").into_bytes());
                next += 1;
            }
            match entries.last() {
                Some(last) if more => after = last.name.clone(),
                _ => break,
            }
        }
        assert_eq!(next, count);
        assert_eq!(root.rmdir("d").await, Err(Errno::ENOTEMPTY));
    });
}

/// A request for the state takes several locks, and an open takes some of them while it writes. Both need the same
/// order to avoid a deadlock.
#[test]
fn the_state_is_reported_during_opens_and_closes() {
    with_service(async |root, _other| {
        let running = std::sync::atomic::AtomicU32::new(4);
        let ended = std::sync::atomic::AtomicU32::new(0);
        let begin = std::time::Instant::now();
        std::thread::scope(|scope| {
            let (service, running, ended) = (&root.service, &running, &ended);
            for opener in 0..4 {
                scope.spawn(move || {
                    let mut peer = Peer::new(service, 1000 + opener, user(0));
                    for _ in 0..300 {
                        let (handle, _) = block_on(peer.open(&format!("f{opener}"), CREATE)).expect("opened");
                        block_on(peer.close(handle, WriteSummary::default())).expect("closed");
                    }
                    running.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                });
            }
            for _ in 0..2 {
                scope.spawn(move || {
                    while running.load(std::sync::atomic::Ordering::SeqCst) > 0 {
                        assert!(block_on(service.status()).opens <= 4);
                        ended.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    }
                });
            }
            scope.spawn(move || {
                while running.load(std::sync::atomic::Ordering::SeqCst) > 0 {
                    if begin.elapsed().as_secs() > 120 {
                        eprintln!("the state and the opens deadlock");
                        std::process::abort();
                    }
                    std::thread::sleep(std::time::Duration::from_millis(50));
                }
            });
        });
        assert!(ended.into_inner() > 0);
    });
}
