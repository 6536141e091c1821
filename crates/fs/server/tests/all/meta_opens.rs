//! Opens, sizes, repeated requests, locks, the end of sessions, and recovery after restarts.

use crate::meta_support::*;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use weft_core::{ByteLen, LocalOffset, Nanos, RecordedLens, ServerId, Timestamp};
use weft_env::sim::{DiskFaults, Sim, SimEnv};
use weft_env::{Dir, Env, File, OpenMode};
use weft_wire::Errno;
use weft_wire::hello::{JobNumber, SessionId};
use weft_wire::meta::*;

fn wrote(end: u64, at: Timestamp) -> WriteSummary {
    let (end, bytes) = (ByteLen(end), ByteLen(end));
    WriteSummary { wrote: true, end, bytes, mtime: at, ..WriteSummary::default() }
}

fn found(size: u64) -> CollectedSize {
    let lens = RecordedLens::new(vec![ByteLen(size)]);
    CollectedSize { size: ByteLen(size), blocks_512: 8, mtime: None, lens }
}

/// Open that a returning session has had for writing.
fn open_for_writing(handle: HandleId, opened: &Opened) -> ReclaimOpen {
    ReclaimOpen {
        handle,
        file: opened.attr.file,
        flags: WRITE,
        proof: Some(opened.attr.proof),
        cap: opened.cap,
        caching: false,
        redirected: Redirected::No,
    }
}

async fn settle(peer: &Peer<SimEnv>, attr: &Attr, size: u64) {
    let invalid_size = attr.invalid_size.as_ref().expect("an invalid size");
    let (file, epoch, cap) = (attr.file, invalid_size.epoch, invalid_size.cap);
    let request = MetaRequest::ValidateSize { file, epoch, cap, found: found(size) };
    // Accepted or ignored; rejected if its capability has expired.
    let result = done(peer.ask(request).await);
    assert!(matches!(result, Ok(()) | Err(Errno::EACCES)), "{result:?}");
}

async fn truncate(peer: &mut Peer<SimEnv>, path: &str) -> MetaRequest {
    match peer.change(MetaRequest::Truncate { at: at(path), handle: None, size: ByteLen(7) }).await {
        MetaReply::Truncate { file, cap, epoch, .. } => {
            MetaRequest::ValidateSize { file, epoch, cap, found: found(7) }
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_last_close_validates_the_size_from_all_writers() {
    with_simulated_service(3, async |env, service, _| {
        let (mut a, mut b) = (Peer::new(&service, 1, user(0)), Peer::new(&service, 2, user(0)));
        let (first, _) = a.open("f", CREATE).await.expect("created");
        let (second, _) = b.open("f", WRITE).await.expect("exists");
        let late = Timestamp(env.wall().0 + 5_000_000_000);
        a.close(first, wrote(100, env.wall())).await.expect("open");
        let still = a.stat("f").await.expect("exists");
        assert!(!still.invalid_size.expect("b writes").may_validate_size);
        b.close(second, wrote(300, late)).await.expect("open");
        let attr = a.stat("f").await.expect("exists");
        assert_eq!((attr.size, attr.mtime, attr.invalid_size), (ByteLen(300), late, None));
        assert_eq!(a.close(first, WriteSummary::default()).await, Err(Errno::EBADF));
    });
}

#[test]
fn a_truncation_beside_writers_or_another_leaves_the_size_invalid() {
    with_simulated_service(3, async |env, service, _| {
        let (mut a, mut b) = (Peer::new(&service, 1, user(0)), Peer::new(&service, 2, user(0)));
        let is_unsettled = async |peer: &Peer<SimEnv>| {
            let invalid_size = peer.stat("f").await.expect("exists").invalid_size;
            invalid_size.map(|invalid_size| invalid_size.may_validate_size)
        };
        // A writer that wrote past the new end closed its file when the truncation reports its result.
        let (handle, _) = a.open("f", CREATE).await.expect("created");
        let cut = truncate(&mut b, "f").await;
        a.close(handle, wrote(100, env.wall())).await.expect("open");
        assert_eq!(is_unsettled(&a).await, Some(false), "b cuts");
        done(b.ask(cut).await).expect("done");
        assert_eq!(is_unsettled(&a).await, Some(true));
        // Two concurrent truncations, by two clients and by one: only the datafiles know which came last.
        for of_one in [false, true] {
            let first = truncate(&mut a, "f").await;
            let second = truncate(if of_one { &mut a } else { &mut b }, "f").await;
            done(a.ask(first).await).expect("done");
            assert_eq!(is_unsettled(&a).await, Some(false), "the second truncation");
            done(if of_one { &a } else { &b }.ask(second).await).expect("done");
            assert_eq!(is_unsettled(&a).await, Some(true));
        }
        // An earlier measurement does not end a truncation.
        let seen = a.stat("f").await.expect("exists");
        let cut = truncate(&mut a, "f").await;
        settle(&a, &seen, 9).await;
        assert_eq!(is_unsettled(&a).await, Some(false), "a cuts");
        done(a.ask(cut).await).expect("done");
        assert_eq!(a.stat("f").await.expect("exists").size, ByteLen(7));
        // A failed truncation reports that it has failed and is over.
        let MetaRequest::ValidateSize { file, cap, .. } = truncate(&mut a, "f").await else { unreachable!() };
        done(a.ask(MetaRequest::ValidateSize { file, epoch: NO_EPOCH, cap, found: found(7) }).await)
            .expect("done");
        assert_eq!(is_unsettled(&a).await, Some(true));
    });
}

/// A file that has ended a truncation and stayed open ignores where writes of a second writer end. Its size must then not be
/// valid: the bytes would be in no record when a disk is lost.
#[test]
fn a_size_is_valid_only_if_the_ends_of_all_writes_count() {
    with_simulated_service(3, async |env, service, _| {
        let (mut a, mut b) = (Peer::new(&service, 1, user(0)), Peer::new(&service, 2, user(0)));
        a.touch("f").await.expect("created");
        b.open("f", READ).await.expect("exists");
        let cut = truncate(&mut b, "f").await;
        done(b.ask(cut).await).expect("done");
        assert_eq!(a.stat("f").await.expect("exists").invalid_size, None);
        for second_writes in [true, false] {
            let (first, _) = a.open("f", WRITE).await.expect("exists");
            let (second, _) = b.open("f", WRITE).await.expect("exists");
            let summary = if second_writes { wrote(50, env.wall()) } else { WriteSummary::default() };
            b.close(second, summary).await.expect("open");
            a.close(first, wrote(30, env.wall())).await.expect("open");
            let attr = a.stat("f").await.expect("exists");
            let may_validate = attr.invalid_size.as_ref().map(|invalid_size| invalid_size.may_validate_size);
            assert_eq!(may_validate, second_writes.then_some(true));
            if second_writes {
                settle(&a, &attr, 50).await;
            }
        }
    });
}

/// Time after which no earlier capability is valid.
const CAPABILITIES_EXPIRED_AFTER: Nanos = Nanos::from_s(3603);

#[test]
fn after_a_dead_or_unsure_writer_the_datafiles_decide_the_size() {
    with_simulated_service(3, async |env, service, _| {
        let mut a = Peer::new(&service, 1, user(0));
        for unsure in [false, true] {
            let path = format!("f{unsure}");
            let mut b = Peer::new(&service, 2 + u128::from(unsure), user(0));
            let (ours, _) = a.open(&path, CREATE).await.expect("created");
            let (theirs, _) = b.open(&path, WRITE).await.expect("exists");
            if unsure {
                let summary = WriteSummary { unsure, ..wrote(1, env.wall()) };
                b.close(theirs, summary).await.expect("open");
            }
            b.gone().await;
            let before = a.stat(&path).await.expect("exists");
            a.close(ours, wrote(10, env.wall())).await.expect("open");
            let attr = a.stat(&path).await.expect("exists");
            let invalid_size = attr.invalid_size.as_ref().expect("nobody knows");
            assert_eq!(
                invalid_size.may_validate_size, unsure,
                "b, lost, may continue while its capability is valid"
            );
            if !unsure {
                settle(&a, &attr, 4000).await;
                assert!(a.stat(&path).await.expect("exists").invalid_size.is_some(), "b may still write");
                env.sleep(CAPABILITIES_EXPIRED_AFTER).await;
            }
            let attr = a.stat(&path).await.expect("exists");
            assert!(attr.invalid_size.as_ref().expect("nobody knows").may_validate_size);
            settle(&a, &before, 5).await;
            assert!(a.stat(&path).await.expect("exists").invalid_size.is_some(), "measured while a wrote");
            settle(&a, &attr, 4000).await;
            let attr = a.stat(&path).await.expect("exists");
            assert_eq!((attr.size, attr.invalid_size), (ByteLen(4000), None));
        }
    });
}

#[test]
fn a_size_measured_before_a_write_or_truncation_is_rejected() {
    with_simulated_service(3, async |env, service, _| {
        let (mut a, b) = (Peer::new(&service, 1, user(0)), Peer::new(&service, 2, user(0)));
        let (handle, _) = a.open("f", CREATE).await.expect("created");
        let seen = b.stat("f").await.expect("exists");
        settle(&b, &seen, 1).await;
        assert!(b.stat("f").await.expect("exists").invalid_size.is_some(), "a writes");
        a.close(handle, WriteSummary { unsure: true, ..wrote(10, env.wall()) }).await.expect("open");
        let seen = b.stat("f").await.expect("exists");
        let finish = truncate(&mut a, "f").await;
        settle(&b, &seen, 10).await;
        let during = b.stat("f").await.expect("exists");
        assert!(!during.invalid_size.as_ref().expect("being cut").may_validate_size);
        settle(&b, &during, 10).await;
        assert!(b.stat("f").await.expect("exists").invalid_size.is_some(), "a still cuts");
        done(a.ask(finish).await).expect("done");
        assert_eq!(b.stat("f").await.expect("exists").size, ByteLen(7));
        // A client that dies during a truncation invalidates every measurement.
        truncate(&mut a, "f").await;
        let during = b.stat("f").await.expect("exists");
        a.gone().await;
        settle(&b, &during, 9).await;
        let after = b.stat("f").await.expect("exists");
        assert!(
            !after.invalid_size.as_ref().expect("unknown").may_validate_size,
            "it may be alive and still cut"
        );
        env.sleep(CAPABILITIES_EXPIRED_AFTER).await;
        let after = b.stat("f").await.expect("exists");
        assert!(after.invalid_size.as_ref().expect("unknown").may_validate_size);
        settle(&b, &after, 8).await;
        assert_eq!(b.stat("f").await.expect("exists").size, ByteLen(8));
    });
}

#[test]
fn only_peers_that_act_for_users_read_what_a_user_may_execute() {
    with_simulated_service(3, async |_, service, _| {
        let (mut root, mut own) = (Peer::new(&service, 1, user(0)), Peer::new(&service, 2, user(7)));
        root.open_mode("f", CREATE, 0o711).await.expect("created");
        let execute = OpenFlags { execute: true, ..READ };
        let mut refused = async |flags| own.open("f", flags).await.map(|_| ());
        assert_eq!((refused(READ).await, refused(execute).await), (Err(Errno::EACCES), Err(Errno::EACCES)));
        let mut handle = 50;
        let mut for_user = async |flags| {
            handle += 1;
            let request = open_request("f", flags, 0, HandleId(handle));
            let call = MetaCall { seq: 0, on_behalf: Some(user(7)), request };
            opened(service.call(&root.ctx, call).await).map(|_| ())
        };
        assert_eq!((for_user(READ).await, for_user(execute).await), (Err(Errno::EACCES), Ok(())));
        let writes = OpenFlags { write: true, ..execute };
        assert_eq!(for_user(writes).await, Err(Errno::EACCES));
    });
}

#[test]
fn explicit_times_override_only_older_writes() {
    with_simulated_service(3, async |env, service, _| {
        let mut a = Peer::new(&service, 1, user(0));
        let (handle, _) = a.open("f", CREATE).await.expect("created");
        let (before, by_hand) = (env.wall(), Timestamp::from_parts(1000, 5));
        env.sleep(Nanos::from_s(1)).await;
        let set = SetAttr { mtime: Some(SetTime::At(by_hand)), ..SetAttr::default() };
        a.change(MetaRequest::SetAttr { at: at("f"), set }).await;
        a.close(handle, wrote(5, before)).await.expect("open");
        assert_eq!(a.stat("f").await.expect("exists").mtime, by_hand);
        let (handle, _) = a.open("f", WRITE).await.expect("exists");
        env.sleep(Nanos::from_s(1)).await;
        let after = env.wall();
        a.close(handle, wrote(5, after)).await.expect("open");
        assert_eq!(a.stat("f").await.expect("exists").mtime, after);
    });
}

#[test]
fn an_open_with_truncation_cuts_only_files_with_data() {
    with_simulated_service(3, async |env, service, _| {
        let mut a = Peer::new(&service, 1, user(0));
        let cut = OpenFlags { truncate: true, ..WRITE };
        a.touch("f").await.expect("created");
        let (handle, opened) = a.open("f", cut).await.expect("exists");
        assert!(!opened.must_truncate, "it was empty");
        a.close(handle, wrote(50, env.wall())).await.expect("open");
        assert_eq!(a.stat("f").await.expect("exists").size, ByteLen(50));
        let (handle, opened) = a.open("f", cut).await.expect("exists");
        assert!(opened.must_truncate);
        a.close(handle, wrote(3, env.wall())).await.expect("open");
        assert!(
            a.stat("f").await.expect("exists").invalid_size.is_some(),
            "whether it was cut is unknown here"
        );
    });
}

#[test]
fn an_open_with_truncation_counts_as_a_writer_until_its_close() {
    with_simulated_service(3, async |env, service, _| {
        let (mut a, b) = (Peer::new(&service, 1, user(0)), Peer::new(&service, 2, user(0)));
        let (handle, _) = a.open("f", CREATE).await.expect("created");
        a.close(handle, wrote(10, env.wall())).await.expect("open");
        let (handle, opened) = a.open("f", OpenFlags { truncate: true, ..READ }).await.expect("exists");
        assert!(opened.must_truncate);
        let during = b.stat("f").await.expect("exists");
        assert!(!during.invalid_size.as_ref().expect("being cut").may_validate_size);
        settle(&b, &during, 10).await;
        a.close(handle, WriteSummary::default()).await.expect("open");
        settle(&b, &during, 10).await;
        let after = b.stat("f").await.expect("exists");
        assert!(after.invalid_size.as_ref().expect("not measured since").may_validate_size);
        settle(&b, &after, 0).await;
        assert_eq!(b.stat("f").await.expect("exists").size, ByteLen(0));
    });
}

#[test]
fn a_handle_refers_to_one_file() {
    with_simulated_service(3, async |_, service, _| {
        let mut a = Peer::new(&service, 1, user(0));
        let (handle, _) = a.open("f", CREATE).await.expect("created");
        let other = open_request("g", CREATE, 0o644, handle);
        assert_eq!(errno(a.change(other).await), Errno::EALREADY);
        assert_eq!(a.stat("g").await, Err(Errno::ENOENT));
        let same = open_request("f", WRITE, 0o644, handle);
        opened(a.change(same).await).expect("the same open");
        a.close(handle, WriteSummary::default()).await.expect("open once");
        assert_eq!(a.stat("f").await.expect("exists").invalid_size, None);
    });
}

#[test]
fn a_repeated_request_is_executed_once() {
    with_simulated_service(3, async |_, service, _| {
        let mut a = Peer::new(&service, 1, user(0));
        let mkdir = MetaRequest::Mkdir { at: at("d"), mode: 0o755 };
        let first = a.repeat(1, mkdir.clone()).await;
        assert_eq!(a.repeat(1, mkdir.clone()).await, first);
        assert_eq!(a.repeat(2, mkdir.clone()).await, MetaReply::Failed(Errno::EEXIST.into()));
        let unlink = MetaRequest::Rmdir { at: at("d") };
        assert_eq!(a.repeat(3, unlink.clone()).await, MetaReply::Done);
        assert_eq!(a.repeat(3, unlink.clone()).await, MetaReply::Done);
        assert_eq!(errno(a.repeat(1, mkdir).await), Errno::EPROTO, "answered long ago and discarded");
        a.seq = 3;
        // Repeats a creation whose reply was lost with its connection, and whose session therefore ended.
        let flags = OpenFlags { exclusive: true, ..CREATE };
        let create = open_request("f", flags, 0o600, HandleId(7));
        let first = opened(a.repeat(4, create.clone()).await).expect("created");
        a.gone().await;
        let a = Peer::new(&service, 1, user(0));
        let again = opened(a.repeat(4, create).await).expect("made already");
        assert_eq!((again.attr.file, again.created), (first.attr.file, true));
        assert!(a.stat("f").await.expect("exists").invalid_size.is_some());
        done(a.ask(MetaRequest::Close { handle: HandleId(7), summary: WriteSummary::default() }).await)
            .expect("open");
        let other = Peer::on_slot(&service, 1, 1, user(0));
        assert_eq!(errno(other.repeat(4, open_request("f", flags, 0o600, HandleId(9))).await), Errno::EEXIST);
    });
}

#[test]
fn an_unlinked_file_lives_until_its_last_close_and_is_then_removed() {
    with_simulated_service(3, async |env, service, removed| {
        let (mut a, mut b) = (Peer::new(&service, 1, user(0)), Peer::new(&service, 2, user(0)));
        let (handle, opened) = a.open("f", CREATE).await.expect("created");
        let (_, _) = b.open("f", READ).await.expect("exists");
        a.unlink("f").await.expect("removed");
        let file = opened.attr.file;
        let by_number = MetaRequest::Stat { at: InodePath::at_inode(file, opened.attr.proof) };
        assert_eq!(attr(a.ask(by_number.clone()).await).expect("open").nlink, 0);
        a.close(handle, wrote(9, env.wall())).await.expect("open");
        env.sleep(Nanos::from_s(20)).await;
        assert!(removed.0.lock().datafiles.is_empty(), "b reads it");
        removed.0.lock().down.insert(ServerId(2));
        b.gone().await;
        env.sleep(Nanos::from_s(5)).await;
        assert_eq!(errno(a.ask(by_number).await), Errno::ESTALE);
        assert_eq!(service.status().await.reaping, 1, "one server is down");
        let servers = |removed: &Removed| {
            let state = removed.0.lock();
            state.datafiles.iter().map(|id| (id.file, id.target.0)).collect::<Vec<_>>()
        };
        assert_eq!(servers(&removed), [(file, 0), (file, 1), (file, 3)]);
        removed.0.lock().down.clear();
        env.sleep(Nanos::from_s(60)).await;
        assert_eq!(servers(&removed).len(), 4);
        assert_eq!(service.status().await.reaping, 0);
        // A file that was never written has nothing to remove.
        let calls = removed.0.lock().calls;
        a.touch("empty").await.expect("created");
        a.unlink("empty").await.expect("removed");
        env.sleep(Nanos::from_s(60)).await;
        assert_eq!(removed.0.lock().calls, calls);
    });
}

fn lock(handle: HandleId, kind: LockKind, wait: bool, ticket: u64) -> MetaRequest {
    let (space, range) = (LockSpace::Record, LockRange { start: 0, end: 10 });
    MetaRequest::Lock { handle, space, owner: LockOwner::Process(0), kind, range, wait, ticket, pid: 0 }
}

#[test]
fn locks_wait_in_slices_and_end_with_their_session() {
    with_simulated_service(3, async |env, service, _| {
        let (mut a, mut b) = (Peer::new(&service, 1, user(0)), Peer::new(&service, 2, user(0)));
        let (ours, _) = a.open("f", CREATE).await.expect("created");
        let (theirs, _) = b.open("f", WRITE).await.expect("exists");
        assert_eq!(a.ask(lock(ours, LockKind::Exclusive, false, 0)).await, MetaReply::Locked);
        assert_eq!(errno(b.ask(lock(theirs, LockKind::Shared, false, 0)).await), Errno::EAGAIN);
        let before = env.now();
        let MetaReply::LockWait(ticket) = b.ask(lock(theirs, LockKind::Shared, true, 0)).await else {
            panic!("held")
        };
        let waited = env.now().saturating_sub(before);
        assert!(waited >= Nanos::from_ms(250) && waited < Nanos::from_ms(400), "{waited}");
        let test = MetaRequest::TestLock {
            handle: theirs,
            space: LockSpace::Record,
            owner: LockOwner::Process(0),
            kind: LockKind::Shared,
            range: LockRange { start: 3, end: 4 },
        };
        let MetaReply::Holder(Some(held)) = b.ask(test).await else { panic!("held") };
        assert_eq!((held.pid, held.range), (101, LockRange { start: 0, end: 10 }));
        assert!(!held.is_of_open_file);
        a.gone().await;
        assert_eq!(b.ask(lock(theirs, LockKind::Shared, true, ticket)).await, MetaReply::Locked);
        let (reader, _) = b.open("f", READ).await.expect("exists");
        let exclusive = lock(reader, LockKind::Exclusive, false, 0);
        assert_eq!(errno(b.ask(exclusive).await), Errno::EBADF, "opened for reading");
        b.close(theirs, WriteSummary::default()).await.expect("open");
        assert_eq!(service.status().await.locks, 1, "one more handle of the file is open");
        b.close(reader, WriteSummary::default()).await.expect("open");
        assert_eq!(service.status().await.locks, 0);
    });
}

fn append(handle: HandleId, turn: u64, ticket: u64) -> MetaRequest {
    MetaRequest::Lock {
        handle,
        space: LockSpace::Append,
        owner: LockOwner::Handle(HandleId(turn)),
        kind: LockKind::Exclusive,
        range: LockRange { start: 0, end: u64::MAX },
        wait: true,
        ticket,
        pid: 0,
    }
}

fn end_append(handle: HandleId, turn: u64) -> MetaRequest {
    let owner = LockOwner::Handle(HandleId(turn));
    MetaRequest::Unlock {
        handle,
        space: LockSpace::Append,
        owner,
        range: LockRange { start: 0, end: u64::MAX },
    }
}

#[test]
fn slow_and_lost_appenders_are_fenced() {
    with_simulated_service(3, async |env, service, _| {
        let (mut a, mut b) = (Peer::new(&service, 1, user(0)), Peer::new(&service, 2, user(0)));
        let (ours, opened) = a.open("f", CREATE).await.expect("created");
        let (theirs, _) = b.open("f", WRITE).await.expect("exists");
        assert_eq!(b.ask(append(theirs, 90, 0)).await, MetaReply::Locked);
        assert_eq!(b.ask(end_append(theirs, 90)).await, MetaReply::Done);
        assert_eq!(a.ask(append(ours, 100, 0)).await, MetaReply::Locked, "no client must be fenced");
        // The end of this append never arrives.
        let (since, mut ticket) = (env.now(), 0);
        let (cap, fence_s) = loop {
            match b.ask(append(theirs, 91, ticket)).await {
                MetaReply::LockWait(next) => ticket = next,
                MetaReply::LockedFenced { cap, fence_s } => break (cap, fence_s),
                other => panic!("{other:?}"),
            }
        };
        let waited = env.now().saturating_sub(since);
        assert!(waited >= Nanos::from_ms(14_900) && waited < Nanos::from_ms(15_500), "{waited}");
        assert!(opened.cap.expect("for writing").expires_s < fence_s && fence_s <= cap.expires_s);
        // A delayed message about the append that was taken over changes nothing.
        assert_eq!(a.ask(end_append(ours, 100)).await, MetaReply::Done);
        let MetaReply::LockWait(ticket) = a.ask(append(ours, 101, 0)).await else { panic!("held") };
        // The holder's session ends: it may still be writing.
        b.gone().await;
        let MetaReply::LockedFenced { fence_s: later, .. } = a.ask(append(ours, 101, ticket)).await else {
            panic!("without a fence")
        };
        assert!(later > cap.expires_s);
        let MetaReply::Capability(renewed) = a.ask(MetaRequest::Renew { handle: ours }).await else {
            panic!("renewed")
        };
        assert!(renewed.expires_s >= later);
        // A failed append that may still be executed.
        let owner = LockOwner::Handle(HandleId(101));
        assert_eq!(a.ask(MetaRequest::AbandonAppend { handle: ours, owner }).await, MetaReply::Done);
        let MetaReply::LockedFenced { fence_s: last, .. } = a.ask(append(ours, 102, 0)).await else {
            panic!("without a fence")
        };
        assert!(last > renewed.expires_s);
        a.close(ours, WriteSummary::default()).await.expect("open");
        assert_eq!(service.status().await.locks, 0);
    });
}

#[test]
fn deadlocks_are_detected() {
    with_simulated_service(3, async |_, service, _| {
        let (mut a, mut b) = (Peer::new(&service, 1, user(0)), Peer::new(&service, 2, user(0)));
        let (a1, _) = a.open("f", CREATE).await.expect("created");
        let (a2, _) = a.open("g", CREATE).await.expect("created");
        let (b1, _) = b.open("f", WRITE).await.expect("exists");
        let (b2, _) = b.open("g", WRITE).await.expect("exists");
        assert_eq!(a.ask(lock(a1, LockKind::Exclusive, true, 0)).await, MetaReply::Locked);
        assert_eq!(b.ask(lock(b2, LockKind::Exclusive, true, 0)).await, MetaReply::Locked);
        let MetaReply::LockWait(ticket) = a.ask(lock(a2, LockKind::Exclusive, true, 0)).await else {
            panic!("held")
        };
        assert_eq!(errno(b.ask(lock(b1, LockKind::Exclusive, true, 0)).await), Errno::EDEADLK);
        assert_eq!(a.ask(MetaRequest::CancelLock { ticket }).await, MetaReply::Done);
        assert_eq!(errno(b.ask(lock(b1, LockKind::Exclusive, false, 0)).await), Errno::EAGAIN);
    });
}

#[test]
fn writers_wait_for_caching_mounts() {
    with_simulated_service(3, async |env, service, _| {
        let mut mount = Peer::new(&service, 1, user(0));
        let mut writer = Peer::new(&service, 2, user(0));
        mount.touch("f").await.expect("created");
        let cached = |handle| open_to_cache("f", handle);
        let (busy, _) = writer.open("f", WRITE).await.expect("exists");
        assert!(
            !opened(mount.change(cached(HandleId(70))).await).expect("exists").may_cache,
            "it is written"
        );
        writer.close(busy, WriteSummary::default()).await.expect("open");
        assert!(opened(mount.change(cached(HandleId(71))).await).expect("exists").may_cache);
        let (handle, opened) = writer.open("f", WRITE).await.expect("exists");
        assert!(opened.cached_elsewhere);
        let events = mount.service.clone();
        let (mount_ctx, dropped) = (mount.ctx.clone(), env.notify());
        let body = {
            let dropped = dropped.clone();
            move || async move {
                let wait =
                    |done| MetaCall { seq: 0, on_behalf: None, request: MetaRequest::WaitEvents { done } };
                let MetaReply::Events(got) = events.call(&mount_ctx, wait(0)).await else {
                    panic!("no events")
                };
                assert_eq!((got.len(), got[0].outdated), (1, Outdated::Pages { start: 5, end: 9 }));
                weft_env::Notify::notify_all(&dropped);
                events.call(&mount_ctx, wait(got[0].number)).await;
            }
        };
        env.spawn("mount", body).expect("a task");
        let before = env.now();
        let invalidate = MetaRequest::Invalidate { handle, start: 5, end: 9 };
        done(writer.ask(invalidate.clone()).await).expect("done");
        assert!(env.now().saturating_sub(before) < Nanos::from_s(1), "the mount answered");
        assert_eq!(weft_env::Notify::epoch(&dropped), 1);
        let before = env.now();
        done(writer.ask(invalidate.clone()).await).expect("done");
        let waited = env.now().saturating_sub(before);
        assert!(waited >= Nanos::from_s(5) && waited < Nanos::from_s(6), "a mount that hangs: {waited}");
        mount.gone().await;
        let before = env.now();
        done(writer.ask(invalidate).await).expect("done");
        assert!(env.now().saturating_sub(before) < Nanos::from_s(1), "no mount caches pages any more");
    });
}

#[test]
fn a_close_drops_pages_of_other_mounts_unless_its_writes_were_reported() {
    with_simulated_service(4, async |_, service, _| {
        let mut mount = Peer::new(&service, 1, user(0));
        let mut writer = Peer::new(&service, 2, user(0));
        mount.touch("f").await.expect("created");
        let cached = open_to_cache("f", HandleId(70));
        assert!(opened(mount.change(cached).await).expect("exists").may_cache);
        let mut done = 0;
        for (unsure, reported) in [(false, true), (true, true), (false, false), (true, false)] {
            let (handle, _) = writer.open("f", WRITE).await.expect("exists");
            let summary = WriteSummary { unsure, reported, ..wrote(9, Timestamp(1)) };
            // The close waits for the mount for a while.
            writer.close(handle, summary).await.expect("open");
            let MetaReply::Events(events) = mount.ask(MetaRequest::WaitEvents { done }).await else {
                panic!("no events")
            };
            let outdated: Vec<_> = events.iter().map(|event| event.outdated).collect();
            let all = Outdated::Pages { start: 0, end: u64::MAX };
            assert_eq!(outdated, if reported { vec![] } else { vec![all] }, "unsure {unsure}");
            done = events.last().map_or(done, |event| event.number);
        }
    });
}

/// Adopts the open of a rank, as an I/O delegate does that wants to cache pages. Returns whether it may.
async fn adopt_to_cache<E: Env>(
    delegate: &mut Peer<E>,
    (rank, opened): (u128, &Opened),
    handle: HandleId,
) -> bool {
    let (file, proof) = (opened.attr.file, Some(opened.attr.proof));
    let open = ReclaimOpen {
        handle,
        file,
        flags: WRITE,
        proof,
        cap: None,
        caching: true,
        redirected: Redirected::No,
    };
    let request = MetaRequest::Adopt { open, parent: SessionId(rank).name() };
    match delegate.change(request).await {
        MetaReply::Opened(opened) => {
            assert!(!opened.must_recall, "its own job");
            opened.may_cache
        }
        other => panic!("{other:?}"),
    }
}

fn recalled(reply: MetaReply) -> bool {
    match reply {
        MetaReply::Recalled(done) => done,
        other => panic!("{other:?}"),
    }
}

#[test]
fn opens_outside_of_a_job_wait_for_its_delegates() {
    with_simulated_service(5, async |env, service, _| {
        let (job, other_job) = (JobNumber(1), JobNumber(2));
        let mut rank = Peer::of_job(&service, 1, user(0), job);
        let mut delegate = Peer::of_job(&service, 2, user(0), job);
        let (mut outside, mut of_other) =
            (Peer::new(&service, 3, user(0)), Peer::of_job(&service, 4, user(0), other_job));
        let (_, of_rank) = rank.open("f", CREATE).await.expect("created");
        assert!(adopt_to_cache(&mut delegate, (1, &of_rank), HandleId(70)).await);
        let mut second = Peer::of_job(&service, 5, user(0), job);
        assert!(!second.open("f", WRITE).await.expect("exists").1.must_recall, "of the same job");

        // A path is truncated through an open only.
        let truncate = MetaRequest::Truncate { at: at("f"), handle: None, size: ByteLen(0) };
        assert!(matches!(outside.change(truncate.clone()).await, MetaReply::OpenFirst));
        for (stranger, name) in [(&mut outside, "of no job"), (&mut of_other, "of another job")] {
            let (handle, opened) = stranger.open("f", READ).await.expect("exists");
            assert!(opened.must_recall, "{name}");
            let before = env.now();
            let request = MetaRequest::AwaitRecall { handle };
            assert!(!recalled(stranger.ask(request.clone()).await), "{name}: the delegate has not answered");
            assert!(env.now().saturating_sub(before) >= Nanos::from_ms(200), "{name}: it waited");
            let MetaReply::Events(events) = delegate.ask(MetaRequest::WaitEvents { done: 0 }).await else {
                panic!("no events")
            };
            let event = events.last().expect("an event").clone();
            let all = Outdated::Pages { start: 0, end: u64::MAX };
            assert_eq!((event.file, event.outdated), (opened.attr.file, all));
            let (service, ctx) = (delegate.service.clone(), delegate.ctx.clone());
            env.spawn("delegate", move || async move {
                // The second event is that of the repeated request.
                let mut done = event.number;
                for _ in 0..2 {
                    let request = MetaRequest::WaitEvents { done };
                    let call = MetaCall { seq: 0, on_behalf: None, request };
                    let MetaReply::Events(events) = service.call(&ctx, call).await else {
                        panic!("no events")
                    };
                    done = events.last().map_or(done, |event| event.number);
                }
            })
            .expect("a task");
            assert!(recalled(stranger.ask(request).await), "{name}: acknowledged");
        }
        assert!(
            matches!(outside.change(truncate.clone()).await, MetaReply::OpenFirst),
            "also while it is open"
        );

        // While a stranger has the file open, no delegate of a job may cache it.
        let mut late = Peer::of_job(&service, 6, user(0), job);
        assert!(!adopt_to_cache(&mut late, (1, &of_rank), HandleId(71)).await);
        // A delegate that has ended blocks nobody.
        delegate.gone().await;
        let (handle, opened) = outside.open("f", READ).await.expect("exists");
        assert!(!opened.must_recall);
        assert!(recalled(outside.ask(MetaRequest::AwaitRecall { handle }).await));
        assert!(matches!(outside.change(truncate).await, MetaReply::Truncate { .. }), "nobody caches it");
        // After the last open outside, it may cache again.
        outside.gone().await;
        of_other.gone().await;
        assert!(adopt_to_cache(&mut late, (1, &of_rank), HandleId(72)).await);
        assert_eq!(errno(late.ask(MetaRequest::AwaitRecall { handle: HandleId(9) }).await), Errno::EBADF);
    });
}

#[test]
fn after_a_crash_clients_reclaim_locks_before_others_get_them() {
    let mut sim = Sim::with_seed(5);
    let node = sim.node("mds");
    let env = node.clone();
    let (held, orphan) = sim.block_on(&node, async move {
        let service = start(&env, config(PathBuf::from("/")), &Removed::default()).await;
        let mut a = Peer::new(&service, 1, user(0));
        let (held, first) = a.open("held", CREATE).await.expect("created");
        assert_eq!(a.ask(lock(held, LockKind::Exclusive, false, 0)).await, MetaReply::Locked);
        let (orphan, second) = a.open("orphan", CREATE).await.expect("created");
        a.unlink("orphan").await.expect("removed");
        ((held, first), (orphan, second))
    });
    sim.power_cut(&node);
    let node = sim.restart(&node);
    let env = node.clone();
    sim.block_on(&node, async move {
        let removed = Removed::default();
        let service = start(&env, config(PathBuf::from("/")), &removed).await;
        let mut b = Peer::new(&service, 2, user(0));
        let (theirs, _) = b.open("held", WRITE).await.expect("exists");
        let (waiter, ctx) = (service.clone(), b.ctx.clone());
        let answered = std::sync::Arc::new(parking_lot::Mutex::new(None));
        let answer = answered.clone();
        let body = move || async move {
            // Repeat the request while the reply says so, as clients do.
            let mut ticket = 0;
            let reply = loop {
                let request = lock(theirs, LockKind::Exclusive, false, ticket);
                match waiter.call(&ctx, MetaCall { seq: 0, on_behalf: None, request }).await {
                    MetaReply::LockWait(next) => ticket = next,
                    reply => break reply,
                }
            };
            *answer.lock() = Some(reply);
        };
        env.spawn("other", body).expect("a task");
        env.sleep(Nanos::from_s(1)).await;
        assert!(answered.lock().is_none(), "only former holders get locks during the grace period");

        let a = Peer::new(&service, 1, user(0));
        let reopen = |(handle, opened): &(HandleId, Opened)| ReclaimOpen {
            handle: *handle,
            file: opened.attr.file,
            flags: WRITE,
            proof: Some(opened.attr.proof),
            cap: opened.cap,
            caching: false,
            redirected: Redirected::No,
        };
        let mut forged = reopen(&held);
        forged.handle = HandleId(99);
        forged.cap.as_mut().expect("given").mac[0] ^= 1;
        forged.proof.as_mut().expect("given").0[0] ^= 1;
        let opens = vec![reopen(&held), reopen(&orphan), forged];
        let locks = vec![ReclaimLock {
            file: held.1.attr.file,
            space: LockSpace::Record,
            owner: LockOwner::Process(0),
            kind: LockKind::Exclusive,
            range: LockRange { start: 0, end: 10 },
            pid: 0,
        }];
        let MetaReply::Reclaimed { lost_opens, lost_locks, uncached: _ } =
            a.ask(MetaRequest::Reclaim { opens, locks }).await
        else {
            panic!("not reclaimed")
        };
        assert_eq!((lost_opens, lost_locks), (vec![HandleId(99)], vec![]));
        env.sleep(Nanos::from_s(10)).await;
        let refused = answered.lock().take().expect("the grace period is over");
        assert_eq!(errno(refused), Errno::EAGAIN, "a holds it again");
        assert!(removed.0.lock().datafiles.is_empty(), "the orphan is open again");
        a.gone().await;
        env.sleep(Nanos::from_s(10)).await;
        assert_eq!(removed.0.lock().datafiles.len(), 4, "the orphan may have been written");
        assert_eq!(b.ask(lock(theirs, LockKind::Exclusive, false, 0)).await, MetaReply::Locked);
        service.shutdown().await;
    });
}

/// Returns a `Reclaim` of one file and its lock (see [`lock`]) by the session that had both.
fn reclaim_locked(handle: HandleId, opened: &Opened) -> MetaRequest {
    let open = ReclaimOpen {
        handle,
        file: opened.attr.file,
        flags: WRITE,
        proof: Some(opened.attr.proof),
        cap: opened.cap,
        caching: false,
        redirected: Redirected::No,
    };
    let lock = ReclaimLock {
        file: opened.attr.file,
        space: LockSpace::Record,
        owner: LockOwner::Process(0),
        kind: LockKind::Exclusive,
        range: LockRange { start: 0, end: 10 },
        pid: 0,
    };
    MetaRequest::Reclaim { opens: vec![open], locks: vec![lock] }
}

/// If the log fails to record the end of a session, the next start gives the session its lock back. Until then no other
/// session may get the lock.
#[test]
fn a_failed_log_grants_no_lock_of_a_session_that_has_ended() {
    let mut sim = Sim::with_seed(9);
    let node = sim.node("mds");
    let control = sim.control();
    let env = node.clone();
    let (ours, theirs) = sim.block_on(&node, async move {
        let service = start(&env, config(PathBuf::from("/")), &Removed::default()).await;
        let (mut a, mut b) = (Peer::new(&service, 1, user(0)), Peer::new(&service, 2, user(0)));
        let ours = a.open("f", CREATE).await.expect("created");
        let theirs = b.open("f", WRITE).await.expect("exists");
        let (other, _) = b.open("other", CREATE).await.expect("created");
        assert_eq!(a.ask(lock(ours.0, LockKind::Exclusive, false, 0)).await, MetaReply::Locked);
        // Both are recorded as sessions with locks, so that another lock does not change the database.
        assert_eq!(b.ask(lock(other, LockKind::Exclusive, false, 0)).await, MetaReply::Locked);
        let broken = DiskFaults { sync_errors_per_million: 1_000_000, ..DiskFaults::default() };
        control.set_disk_faults(&env, "/".as_ref(), broken);
        let mkdir = MetaRequest::Mkdir { at: at("d"), mode: 0o755 };
        assert_eq!(errno(a.change(mkdir).await), Errno::EIO, "the log has failed");
        a.gone().await;
        for wait in [false, true] {
            assert_eq!(errno(b.ask(lock(theirs.0, LockKind::Exclusive, wait, 0)).await), Errno::EIO);
        }
        control.set_disk_faults(&env, "/".as_ref(), DiskFaults::default());
        (ours, theirs)
    });
    sim.control().kill(&node);
    let node = sim.restart(&node);
    let env = node.clone();
    sim.block_on(&node, async move {
        let service = start(&env, config(PathBuf::from("/")), &Removed::default()).await;
        let (a, b) = (Peer::new(&service, 1, user(0)), Peer::new(&service, 2, user(0)));
        let MetaReply::Reclaimed { lost_locks, .. } = a.ask(reclaim_locked(ours.0, &ours.1)).await else {
            panic!("not reclaimed")
        };
        assert_eq!(lost_locks, [], "no other session held it in the meantime");
        let MetaReply::Reclaimed { lost_locks, .. } = b.ask(reclaim_locked(theirs.0, &theirs.1)).await else {
            panic!("not reclaimed")
        };
        assert_eq!(lost_locks.len(), 1, "the other session holds it");
        service.shutdown().await;
    });
}

/// If one start rejects the reclaim of a lock and its reply is lost in a crash, the next start also rejects it.
#[test]
fn a_lock_reclaim_rejected_before_a_crash_is_rejected_after_it() {
    let mut sim = Sim::with_seed(10);
    let mut node = sim.node("mds");
    let env = node.clone();
    let ours = sim.block_on(&node, async move {
        let service = start(&env, config(PathBuf::from("/")), &Removed::default()).await;
        let (mut a, mut b) = (Peer::new(&service, 1, user(0)), Peer::new(&service, 2, user(0)));
        let ours = a.open("f", CREATE).await.expect("created");
        let (theirs, _) = b.open("f", WRITE).await.expect("exists");
        assert_eq!(a.ask(lock(ours.0, LockKind::Exclusive, false, 0)).await, MetaReply::Locked);
        a.gone().await;
        assert_eq!(b.ask(lock(theirs, LockKind::Exclusive, false, 0)).await, MetaReply::Locked);
        // The first session returns and reclaims its lock; the reply is lost in the crash.
        let a = Peer::new(&service, 1, user(0));
        let MetaReply::Reclaimed { lost_locks, .. } = a.ask(reclaim_locked(ours.0, &ours.1)).await else {
            panic!("not reclaimed")
        };
        assert_eq!(lost_locks.len(), 1);
        ours
    });
    sim.power_cut(&node);
    node = sim.restart(&node);
    let env = node.clone();
    sim.block_on(&node, async move {
        let service = start(&env, config(PathBuf::from("/")), &Removed::default()).await;
        let a = Peer::new(&service, 1, user(0));
        let MetaReply::Reclaimed { lost_locks, .. } = a.ask(reclaim_locked(ours.0, &ours.1)).await else {
            panic!("not reclaimed")
        };
        assert_eq!(lost_locks.len(), 1, "another session held it");
        service.shutdown().await;
    });
}

#[test]
fn the_space_of_a_large_file_is_free_when_its_removal_returns() {
    with_simulated_service(3, async |env, service, removed| {
        let mut a = Peer::new(&service, 1, user(0));
        env.sleep(Nanos::from_s(10)).await; // the reaper has started
        let len = 1 << 30;
        for name in ["large", "other"] {
            let (handle, _) = a.open(name, CREATE).await.expect("created");
            a.close(handle, wrote(len, env.wall())).await.expect("open");
        }
        let before = removed.0.lock().datafiles.len();
        a.unlink("large").await.expect("removed");
        assert_eq!(removed.0.lock().datafiles.len(), before + 4);
        // While a server is down, no request waits, except for the one that detects it.
        removed.0.lock().down.insert(ServerId(2));
        let start = env.now();
        a.unlink("other").await.expect("removed");
        assert!(env.now().saturating_sub(start) <= Nanos::from_s(3), "bounded");
        for name in ["third", "fourth"] {
            let (handle, _) = a.open(name, CREATE).await.expect("created");
            a.close(handle, wrote(len, env.wall())).await.expect("open");
            let start = env.now();
            a.unlink(name).await.expect("removed");
            assert!(env.now().saturating_sub(start) < Nanos::from_ms(100), "{name} waited");
        }
    });
}

#[test]
fn on_a_full_device_names_can_be_removed_but_not_created() {
    let mut sim = Sim::with_seed(8);
    let node = sim.node("mds");
    let control = sim.control();
    let small = DiskFaults { capacity_bytes: 16 << 20, ..DiskFaults::default() };
    control.set_disk_faults(&node, "/".as_ref(), small);
    let env = node.clone();
    sim.block_on(&node, async move {
        let service = start(&env, config(PathBuf::from("/")), &Removed::default()).await;
        let mut a = Peer::new(&service, 1, user(0));
        // Other files occupy most of the device.
        let dir = env.dir("/".as_ref()).await.expect("a disk");
        let ballast = dir.open("ballast", OpenMode::CREATE).await.expect("created");
        ballast.write_at(&[std::io::IoSlice::new(&vec![1; 10 << 20])], LocalOffset(0)).await.expect("space");
        let mut names = Vec::new();
        let refused = loop {
            let name = format!("file {}", names.len());
            match a.open(&name, CREATE).await {
                Ok((handle, _)) => {
                    let summary = wrote(1, env.wall());
                    done(a.ask(MetaRequest::Close { handle, summary }).await).expect("closed");
                    names.push(name);
                }
                Err(error) => break error,
            }
            assert!(names.len() < 50_000, "the device never fills up");
        };
        assert_eq!(refused, Errno::ENOSPC);
        let mkdir = MetaRequest::Mkdir { at: at("directory"), mode: 0o755 };
        assert_eq!(errno(a.change(mkdir).await), Errno::ENOSPC);
        // Existing files can be opened with O_CREAT, but not created exclusively.
        let (handle, _) = a.open(&names[0], CREATE).await.expect("it exists");
        let exclusive = OpenFlags { exclusive: true, ..CREATE };
        assert_eq!(a.open(&names[0], exclusive).await.expect_err("it exists"), Errno::EEXIST);
        assert_eq!(a.open("other", exclusive).await.expect_err("no space"), Errno::ENOSPC);
        truncate(&mut a, &names[0]).await;
        let summary = wrote(1, env.wall());
        done(a.ask(MetaRequest::Close { handle, summary }).await).expect("closed");
        for name in &names {
            a.unlink(name).await.expect("removed on a full device");
        }
        control.set_disk_faults(&env, "/".as_ref(), DiskFaults::default());
        env.sleep(Nanos::from_s(3)).await;
        a.open("other", exclusive).await.expect("created by itself when there is space");
        service.shutdown().await;
    });
}

#[test]
fn no_datafile_is_removed_while_a_power_failure_may_restore_its_name() {
    let mut gone = 0;
    for seed in 0..60 {
        let mut sim = Sim::with_seed(seed);
        let node = sim.node("mds");
        let (env, removed) = (node.clone(), Removed::default());
        let data_servers = removed.clone();
        let files = sim.block_on(&node, async move {
            let service = start(&env, config(PathBuf::from("/")), &data_servers).await;
            let mut files = Vec::new();
            for client in 0..4 {
                let mut peer = Peer::new(&service, client, user(0));
                let mut own = Vec::new();
                for number in 0..6 {
                    let name = format!("f{client}.{number}");
                    let (handle, opened) = peer.open(&name, CREATE).await.expect("created");
                    peer.close(handle, wrote(100, env.wall())).await.expect("open");
                    own.push((name, opened.attr.file));
                }
                files.extend(own.clone());
                let unlink = move || async move {
                    for (name, _) in own {
                        // There is no reply if the power fails first.
                        let _ = peer.unlink(&name).await;
                    }
                };
                env.spawn("client", unlink).expect("a task");
            }
            // Passes of the removal of datafiles are five milliseconds apart.
            env.sleep(Nanos(seed * 150_000)).await;
            files
        });
        sim.power_cut(&node);
        let node = sim.restart(&node);
        let (env, removed) = (node.clone(), removed.0.lock().datafiles.clone());
        gone += sim.block_on(&node, async move {
            let service = start(&env, config(PathBuf::from("/")), &Removed::default()).await;
            let peer = Peer::new(&service, 9, user(0));
            let mut gone = 0;
            for (name, file) in files {
                if removed.iter().any(|datafile| datafile.file == file) {
                    gone += 1;
                    assert_eq!(peer.stat(&name).await.map(drop), Err(Errno::ENOENT), "seed {seed}: {name}");
                }
            }
            gone
        });
    }
    assert!(gone > 100, "{gone} files are too few to be significant");
}

#[test]
fn no_client_writes_before_the_invalid_size_is_durable() {
    let mut open = 0;
    for seed in 0..120 {
        let mut sim = Sim::with_seed(seed);
        let node = sim.node("mds");
        let env = node.clone();
        let answered: Arc<Mutex<Vec<u128>>> = Arc::default();
        let of_clients = Arc::clone(&answered);
        sim.block_on(&node, async move {
            let service = start(&env, config(PathBuf::from("/")), &Removed::default()).await;
            let mut peer = Peer::new(&service, 9, user(0));
            let (handle, _) = peer.open("f", CREATE).await.expect("created");
            peer.close(handle, wrote(100, env.wall())).await.expect("open");
            assert!(peer.stat("f").await.expect("exists").invalid_size.is_none());
            done(peer.ask(MetaRequest::Flush).await).expect("durable");
            for client in 0..4 {
                let mut peer = Peer::new(&service, client, user(0));
                let answered = Arc::clone(&of_clients);
                let env_of = env.clone();
                let write = move || async move {
                    env_of.sleep(Nanos(1 + client as u64 * 10_000)).await;
                    let is_told = match client {
                        // The log is busy when the other requests arrive.
                        0 => peer.mkdir("d").await.is_err(),
                        1 | 3 => peer.open("f", WRITE).await.is_ok(),
                        _ => {
                            let cut = MetaRequest::Truncate { at: at("f"), handle: None, size: ByteLen(0) };
                            matches!(peer.change(cut).await, MetaReply::Truncate { .. })
                        }
                    };
                    // From here on the client changes datafiles.
                    if is_told {
                        answered.lock().push(client);
                    }
                };
                env.spawn("client", write).expect("a task");
            }
            env.sleep(Nanos(seed % 30 * 5_000)).await;
        });
        sim.power_cut(&node);
        let node = sim.restart(&node);
        let (env, answered) = (node.clone(), answered.lock().clone());
        open += u32::from(!answered.is_empty());
        sim.block_on(&node, async move {
            let service = start(&env, config(PathBuf::from("/")), &Removed::default()).await;
            let is_open =
                Peer::new(&service, 9, user(0)).stat("f").await.expect("exists").invalid_size.is_some();
            assert!(is_open || answered.is_empty(), "seed {seed}: {answered:?} may have written");
        });
    }
    assert!(open > 20, "{open} are too few to be significant");
}

#[test]
fn a_file_with_data_has_datafiles_even_without_times() {
    with_simulated_service(3, async |env, service, removed| {
        let mut a = Peer::new(&service, 1, user(0));
        let mut b = Peer::new(&service, 2, user(0));
        for (name, size) in [("bytes", 7), ("none", 0)] {
            let (_, opened) = b.open(name, CREATE).await.expect("created");
            let file = opened.attr.file;
            b.gone().await;
            b = Peer::new(&service, 3 + u128::from(size), user(0));
            env.sleep(CAPABILITIES_EXPIRED_AFTER).await;
            let attr = a.stat(name).await.expect("exists");
            settle(&a, &attr, size).await;
            assert!(a.stat(name).await.expect("exists").invalid_size.is_none(), "{name} has a valid size");
            a.unlink(name).await.expect("exists");
            env.sleep(Nanos::from_s(5)).await;
            let is_removed = removed.0.lock().datafiles.iter().any(|datafile| datafile.file == file);
            assert_eq!(is_removed, size > 0, "{name}");
        }
    });
}

#[test]
fn recorded_lengths_grow_with_writes_and_shrink_only_with_truncations() {
    with_simulated_service(3, async |env, service, _| {
        let (mut a, mut b) = (Peer::new(&service, 1, user(0)), Peer::new(&service, 2, user(0)));
        let (handle, opened) = a.open("f", CREATE).await.expect("created");
        let data = opened.attr.file;
        let lens = |len| RecordedLens::new(vec![ByteLen(len)]);
        let written = |data, len| WrittenLens { data, lens: lens(len) };
        let recorded =
            async |peer: &Peer<SimEnv>, handle| match peer.ask(MetaRequest::Recorded { handle }).await {
                MetaReply::Recorded { data: of, lens, epoch } => {
                    assert_eq!(of, data);
                    (lens, epoch)
                }
                other => panic!("{other:?}"),
            };
        let record = async |peer: &Peer<SimEnv>, handle, written| {
            done(peer.ask(MetaRequest::Record { handle, written }).await).expect("taken or not");
        };
        record(&a, handle, written(data, 10)).await;
        assert_eq!(recorded(&a, handle).await.0, lens(10));
        // Lengths of other datafiles, and smaller ones, are ignored.
        record(&a, handle, written(data.of_generation(1), 99)).await;
        record(&a, handle, written(data, 3)).await;
        assert_eq!(recorded(&a, handle).await.0, lens(10));
        a.close(handle, WriteSummary { written: written(data, 30), ..wrote(30, env.wall()) })
            .await
            .expect("open");
        let (reader, opened) = b.open("f", READ).await.expect("exists");
        assert_eq!(opened.recorded, lens(30));

        // After a truncation, the service ignores earlier writers and one that opens during it.
        let (early, _) = a.open("f", WRITE).await.expect("exists");
        let before = recorded(&b, reader).await;
        let settle = truncate(&mut b, "f").await;
        let after = recorded(&b, reader).await;
        assert_eq!((&before.0, &after.0), (&lens(30), &lens(7)), "before any datafile is cut");
        assert_ne!(before.1, after.1, "every reader learns that it was cut");
        let (late, _) = a.open("f", WRITE).await.expect("exists");
        for handle in [early, late] {
            record(&a, handle, written(data, 50)).await;
            assert_eq!(recorded(&b, reader).await.0, lens(7));
            a.close(handle, WriteSummary { written: written(data, 60), ..wrote(60, env.wall()) })
                .await
                .expect("open");
        }
        done(b.ask(settle).await).expect("heard");
        assert_eq!(recorded(&b, reader).await.0, lens(7));

        // Measured lengths are recorded, and never lowered.
        let attr = a.stat("f").await.expect("exists");
        assert_eq!(attr.invalid_size.as_ref().expect("an invalid size").recorded, lens(7));
        self::settle(&a, &attr, 5).await;
        assert_eq!(recorded(&b, reader).await.0, lens(7));
        assert_eq!(a.stat("f").await.expect("exists").size, ByteLen(7), "as long as recorded");

        // O_TRUNC resets the record; writes of the truncating open are believed.
        let flags = OpenFlags { truncate: true, ..WRITE };
        let (emptied, opened) = a.open("f", flags).await.expect("exists");
        assert!(opened.must_truncate && opened.recorded.is_empty());
        record(&a, emptied, written(data, 20)).await;
        assert_eq!(recorded(&b, reader).await.0, lens(20));
        // So are those of another process that shares its open file, unless they are lost during a truncation.
        let proof = Some(opened.attr.proof);
        let open = ReclaimOpen {
            handle: HandleId(77),
            file: data,
            flags,
            proof,
            cap: None,
            caching: false,
            redirected: Redirected::No,
        };
        let reply = b.ask(MetaRequest::Adopt { open, parent: SessionId(1).name() }).await;
        assert!(matches!(reply, MetaReply::Opened(_)), "{reply:?}");
        a.gone().await;
        let mut c = Peer::new(&service, 3, user(0));
        let (other, _) = c.open("f", WRITE).await.expect("exists");
        record(&c, other, written(data, 90)).await;
        assert_eq!(recorded(&b, reader).await.0, lens(20));
    });
}

#[test]
fn ends_of_a_reclaimed_open_are_not_recorded() {
    with_simulated_service(3, async |env, service, _| {
        let (mut a, mut b) = (Peer::new(&service, 1, user(0)), Peer::new(&service, 2, user(0)));
        let (handle, opened) = a.open("f", CREATE).await.expect("created");
        let file = opened.attr.file;
        let cut = MetaRequest::Truncate { at: at("f"), handle: Some(handle), size: ByteLen(7) };
        assert!(matches!(a.change(cut).await, MetaReply::Truncate { .. }));
        a.gone().await;
        // After the last possible action of a lost session.
        env.sleep(Nanos::from_s(7200)).await;
        let a = Peer::new(&service, 1, user(0));
        let opens = vec![open_for_writing(handle, &opened)];
        let reply = a.ask(MetaRequest::Reclaim { opens, locks: vec![] }).await;
        assert!(
            matches!(&reply, MetaReply::Reclaimed { lost_opens, .. } if lost_opens.is_empty()),
            "{reply:?}"
        );
        // It wrote up to here before it cut the file.
        let written = WrittenLens { data: file, lens: RecordedLens::new(vec![ByteLen(50)]) };
        done(a.ask(MetaRequest::Record { handle, written: written.clone() }).await).expect("heard");
        let summary = WriteSummary { written, ..wrote(50, env.wall()) };
        done(a.ask(MetaRequest::Close { handle, summary }).await).expect("heard");
        let (_, opened) = b.open("f", READ).await.expect("exists");
        assert!(opened.recorded.is_empty(), "{:?}", opened.recorded);
    });
}

#[test]
fn a_reclaimed_open_beside_other_writers_leaves_the_size_invalid() {
    with_simulated_service(3, async |env, service, _| {
        let (mut a, mut b) = (Peer::new(&service, 1, user(0)), Peer::new(&service, 2, user(0)));
        let (handle, opened) = a.open("f", CREATE).await.expect("created");
        a.gone().await;
        // After the last possible action of a lost session.
        env.sleep(Nanos::from_s(7200)).await;
        let cut = truncate(&mut b, "f").await;
        done(b.ask(cut).await).expect("heard");
        let (writer, _) = b.open("f", WRITE).await.expect("exists");
        let a = Peer::new(&service, 1, user(0));
        let opens = vec![open_for_writing(handle, &opened)];
        let reply = a.ask(MetaRequest::Reclaim { opens, locks: vec![] }).await;
        assert!(
            matches!(&reply, MetaReply::Reclaimed { lost_opens, .. } if lost_opens.is_empty()),
            "{reply:?}"
        );
        // It wrote up to here before the truncation.
        let summary = wrote(50, env.wall());
        done(a.ask(MetaRequest::Close { handle, summary }).await).expect("heard");
        b.close(writer, wrote(9, env.wall())).await.expect("open");
        let attr = b.stat("f").await.expect("exists");
        assert!(attr.invalid_size.is_some(), "the datafiles are not queried: {} bytes", attr.size);
    });
}
