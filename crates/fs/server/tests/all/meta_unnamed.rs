//! Files without a name (`O_TMPFILE`): how they end, and how they get a first name.

use crate::meta_support::*;
use std::collections::BTreeSet;
use std::path::PathBuf;
use weft_core::{ByteLen, FileId, Nanos};
use weft_env::Env;
use weft_env::sim::Sim;
use weft_wire::Errno;
use weft_wire::meta::*;

/// Flags of an open with `O_TMPFILE`.
const UNNAMED: OpenFlags = OpenFlags { directory: true, ..CREATE };

/// Returns the inode of an open file as the source of a first name.
fn nameable(file: &Opened) -> InodePath {
    InodePath { follow: true, ..InodePath::at_inode(file.attr.file, file.attr.proof) }
}

fn link_request(from: InodePath, to: &str) -> MetaRequest {
    MetaRequest::Link { from, to: link_at(to) }
}

fn wrote(end: u64) -> WriteSummary {
    WriteSummary { wrote: true, end: ByteLen(end), bytes: ByteLen(end), ..WriteSummary::default() }
}

/// Files whose datafiles were removed.
fn freed(removed: &Removed) -> BTreeSet<FileId> {
    removed.0.lock().datafiles.iter().map(|id| id.file).collect()
}

#[test]
fn an_unnamed_file_ends_with_its_last_close_or_its_session() {
    with_simulated_service(11, async |env, service, removed| {
        let (mut a, mut b) = (Peer::new(&service, 1, user(0)), Peer::new(&service, 2, user(0)));
        a.mkdir("d").await.expect("created");
        let before = a.stat("d").await.expect("exists");
        env.sleep(Nanos::from_s(1)).await;
        let (handle, file) = a.open_mode("d", UNNAMED, 0o640).await.expect("created");
        assert!(file.created && file.cap.is_some() && file.layout.is_some());
        assert_eq!((file.attr.kind, file.attr.mode, file.attr.nlink), (FileType::Regular, 0o640, 0));
        let (_, lost) = b.open("d", UNNAMED).await.expect("created");
        assert_eq!(a.list("d").await, Ok(vec![]));
        assert_eq!(a.stat("d").await.expect("exists").mtime, before.mtime, "no name was created");
        assert_eq!(a.problems().await, Vec::<String>::new());
        // Opened again by its inode, as through /proc.
        let by_inode = MetaRequest::Open {
            at: InodePath::at_inode(file.attr.file, file.attr.proof),
            flags: READ,
            mode: 0,
            handle: HandleId(90),
            layout: LayoutSpec::default(),
            cache: false,
            ranks: None,
        };
        opened(a.change(by_inode).await).expect("open");
        a.close(handle, wrote(9)).await.expect("open");
        env.sleep(Nanos::from_s(20)).await;
        assert_eq!(freed(&removed), BTreeSet::new(), "both are open");
        a.close(HandleId(90), WriteSummary::default()).await.expect("open");
        env.sleep(Nanos::from_s(20)).await;
        assert_eq!(freed(&removed), BTreeSet::from([file.attr.file]));
        b.gone().await;
        env.sleep(Nanos::from_s(20)).await;
        assert_eq!(freed(&removed), BTreeSet::from([file.attr.file, lost.attr.file]));
        assert_eq!(a.rmdir("d").await, Ok(()), "empty");
    });
}

#[test]
fn an_unnamed_file_needs_a_directory_that_the_caller_may_change() {
    with_simulated_service(11, async |_, service, _| {
        let (mut root, mut a) = (Peer::new(&service, 1, user(0)), Peer::new(&service, 2, user(1000)));
        root.touch("f").await.expect("created");
        root.mkdir("d").await.expect("created");
        let layout = LayoutSpec { class: Some("ssd".to_owned()), ..LayoutSpec::default() };
        done(root.change(MetaRequest::SetLayout { at: at("d"), spec: layout }).await).expect("set");
        assert_eq!(root.open("f", UNNAMED).await.map(|_| ()), Err(Errno::ENOTDIR));
        assert_eq!(root.open("missing", UNNAMED).await.map(|_| ()), Err(Errno::ENOENT));
        assert_eq!(a.open("d", UNNAMED).await.map(|_| ()), Err(Errno::EACCES));
        let read_only = OpenFlags { write: false, ..UNNAMED };
        assert_eq!(root.open("d", read_only).await.map(|_| ()), Err(Errno::EISDIR));
        let (_, file) = root.open("d", UNNAMED).await.expect("created");
        let targets: Vec<_> = file.layout.iter().flat_map(|layout| layout.objects()).collect();
        assert_eq!(targets.len(), 2, "the layout of the directory: {targets:?}");
    });
}

#[test]
fn a_named_file_survives_its_close_and_a_crash_and_an_unnamed_one_does_not() {
    let mut sim = Sim::with_seed(12);
    let node = sim.node("mds");
    let env = node.clone();
    let (named, unnamed) = sim.block_on(&node, async move {
        let service = start(&env, config(PathBuf::from("/")), &Removed::default()).await;
        let mut a = Peer::new(&service, 1, user(0));
        a.mkdir("d").await.expect("created");
        let (handle, named) = a.open("d", UNNAMED).await.expect("created");
        let (_, unnamed) = a.open("d", UNNAMED).await.expect("created");
        let request = link_request(nameable(&named), "d/f");
        let reply = a.change(request.clone()).await;
        assert_eq!(a.repeat(a.seq, request).await, reply, "executed once");
        let linked = attr(reply).expect("linked");
        assert_eq!((linked.file, linked.nlink), (named.attr.file, 1));
        assert_eq!(a.problems().await, Vec::<String>::new());
        a.close(handle, wrote(9)).await.expect("open");
        assert_eq!(a.stat("d/f").await.map(|attr| attr.file), Ok(named.attr.file));
        (named.attr.file, unnamed.attr.file)
    });
    sim.power_cut(&node);
    let node = sim.restart(&node);
    let env = node.clone();
    sim.block_on(&node, async move {
        let removed = Removed::default();
        let service = start(&env, config(PathBuf::from("/")), &removed).await;
        let mut a = Peer::new(&service, 2, user(0));
        env.sleep(Nanos::from_s(20)).await;
        let attr = a.stat("d/f").await.expect("it has a name");
        assert_eq!((attr.file, attr.nlink), (named, 1));
        assert_eq!(freed(&removed), BTreeSet::from([unnamed]));
        assert_eq!(a.problems().await, Vec::<String>::new());
        a.unlink("d/f").await.expect("removed");
        env.sleep(Nanos::from_s(20)).await;
        assert_eq!(freed(&removed), BTreeSet::from([named, unnamed]));
        service.shutdown().await;
    });
}

#[test]
fn an_unnamed_file_gets_a_name_after_a_crash_if_its_session_returned_for_it() {
    let mut sim = Sim::with_seed(13);
    let node = sim.node("mds");
    let env = node.clone();
    let (handle, file) = sim.block_on(&node, async move {
        let service = start(&env, config(PathBuf::from("/")), &Removed::default()).await;
        Peer::new(&service, 1, user(0)).open("", UNNAMED).await.expect("created")
    });
    sim.power_cut(&node);
    let node = sim.restart(&node);
    let env = node.clone();
    sim.block_on(&node, async move {
        let removed = Removed::default();
        let service = start(&env, config(PathBuf::from("/")), &removed).await;
        let mut a = Peer::new(&service, 1, user(0));
        a.seq = 10;
        let refused = a.change(link_request(nameable(&file), "f")).await;
        assert_eq!(errno(refused), Errno::ENOENT, "the session has not returned for it");
        let open = ReclaimOpen {
            handle,
            file: file.attr.file,
            flags: UNNAMED,
            proof: Some(file.attr.proof),
            cap: file.cap,
            caching: false,
            redirected: Redirected::No,
        };
        let reply = a.ask(MetaRequest::Reclaim { opens: vec![open], locks: vec![] }).await;
        assert!(
            matches!(&reply, MetaReply::Reclaimed { lost_opens, .. } if lost_opens.is_empty()),
            "{reply:?}"
        );
        attr(a.change(link_request(nameable(&file), "f")).await).expect("linked");
        env.sleep(Nanos::from_s(20)).await;
        a.gone().await;
        env.sleep(Nanos::from_s(20)).await;
        assert_eq!(freed(&removed), BTreeSet::new());
        let b = Peer::new(&service, 2, user(0));
        assert_eq!(b.stat("f").await.map(|attr| attr.file), Ok(file.attr.file));
        service.shutdown().await;
    });
}

#[test]
fn only_the_owner_names_a_file_and_only_while_the_session_writes_it() {
    with_simulated_service(11, async |_, service, _| {
        let (mut root, mut a) = (Peer::new(&service, 1, user(0)), Peer::new(&service, 2, user(1000)));
        let mut b = Peer::new(&service, 3, user(1001));
        root.mkdir("d").await.expect("created");
        let open_to_all = SetAttr { mode: Some(0o777), ..SetAttr::default() };
        attr(root.change(MetaRequest::SetAttr { at: at("d"), set: open_to_all }).await).expect("root's");
        root.touch("d/taken").await.expect("created");
        let (handle, file) = a.open_mode("d", UNNAMED, 0o666).await.expect("created");
        let stolen = link_request(nameable(&file), "d/f");
        assert_eq!(errno(b.change(stolen).await), Errno::EACCES, "a proof of another session");
        let by_number = InodePath { proof: None, ..nameable(&file) };
        assert_eq!(errno(root.change(link_request(by_number, "d/f")).await), Errno::ENOENT, "not open there");
        // A client that does not know the file as unnamed asks as for a removed file.
        let as_removed = InodePath { follow: false, ..nameable(&file) };
        assert_eq!(errno(a.change(link_request(as_removed, "d/f")).await), Errno::ENOENT);
        assert_eq!(errno(a.change(link_request(nameable(&file), "d/taken")).await), Errno::EEXIST);
        attr(a.change(link_request(nameable(&file), "d/f")).await).expect("linked");
        a.unlink("d/f").await.expect("removed");
        assert_eq!(errno(a.change(link_request(nameable(&file), "d/f")).await), Errno::ENOENT, "removed");
        a.close(handle, WriteSummary::default()).await.expect("open");

        // A mount has the files of many users open in one session.
        let on_behalf = |uid| Some(user(uid));
        let request = open_request("d", UNNAMED, 0o666, HandleId(50));
        let call = MetaCall { seq: 0, on_behalf: on_behalf(1000), request };
        let file = opened(service.call(&root.ctx, call).await).expect("created");
        assert_eq!(file.attr.uid, 1000);
        let link_for = async |uid| {
            let request = link_request(nameable(&file), "d/g");
            service.call(&root.ctx, MetaCall { seq: 0, on_behalf: on_behalf(uid), request }).await
        };
        assert_eq!(errno(link_for(1001).await), Errno::EPERM);
        attr(link_for(1000).await).expect("its owner");

        let (handle, file) = a.open("d", UNNAMED).await.expect("created");
        a.close(handle, WriteSummary::default()).await.expect("open");
        assert_eq!(errno(a.change(link_request(nameable(&file), "d/h")).await), Errno::ESTALE, "it is gone");
    });
}

#[test]
fn a_repeated_open_whose_session_ended_creates_another_unnamed_file() {
    with_simulated_service(11, async |_, service, _| {
        let a = Peer::new(&service, 1, user(0));
        let request = open_request("", UNNAMED, 0o600, HandleId(7));
        let first = opened(a.repeat(1, request.clone()).await).expect("created");
        let again = opened(a.repeat(1, request.clone()).await).expect("the same open");
        assert_eq!(again.attr.file, first.attr.file);
        a.gone().await;
        let mut a = Peer::new(&service, 1, user(0));
        let second = opened(a.repeat(1, request).await).expect("created");
        assert!(second.created && second.attr.file != first.attr.file);
        let lost = MetaRequest::Stat { at: InodePath::at_inode(first.attr.file, first.attr.proof) };
        assert_eq!(errno(a.ask(lost).await), Errno::ESTALE);
        a.close(HandleId(7), WriteSummary::default()).await.expect("open");
        assert_eq!(a.problems().await, Vec::<String>::new());
    });
}
