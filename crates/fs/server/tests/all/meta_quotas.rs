//! Quotas: limits hold whatever happens, and accounts agree with the files after any operations and any crash.

use crate::meta_support::cuts::power_cut_at_every_sync;
use crate::meta_support::model::Rng;
use crate::meta_support::*;
use std::path::PathBuf;
use std::sync::Arc;
use weft_core::{ByteLen, FileOffset, QuotaId, QuotaLimits, QuotaUsage, RecordedLens, Timestamp};
use weft_env::Env;
use weft_env::sim::SimEnv;
use weft_server::metadata::Service;
use weft_wire::meta::*;
use weft_wire::{Capability, Errno, WriteLimit};

const ALICE: u32 = 1001;
const BOB: u32 = 1002;

fn limits(bytes: u64, inodes: u64) -> QuotaLimits {
    QuotaLimits { bytes: Some(ByteLen(bytes)), inodes: Some(inodes) }
}

fn bytes(max: u64) -> QuotaLimits {
    QuotaLimits { bytes: Some(ByteLen(max)), inodes: None }
}

fn of_user(uid: u32) -> QuotaSubject {
    QuotaSubject::User(uid)
}

fn of_tree(path: &str) -> QuotaSubject {
    QuotaSubject::TreeOf(at(path))
}

/// A file on one target has one datafile, which is as long as the file.
fn on_one_target() -> LayoutSpec {
    LayoutSpec { stripe_count: Some(1), ..LayoutSpec::default() }
}

impl<E: Env> Peer<E> {
    async fn set_quota(&mut self, subject: QuotaSubject, limits: QuotaLimits) -> Result<Quota, Errno> {
        quota(self.change(MetaRequest::SetQuota { subject, limits }).await).map(|found| found.expect("set"))
    }

    async fn quota(&self, subject: QuotaSubject) -> Result<Option<Quota>, Errno> {
        quota(self.ask(MetaRequest::GetQuota { subject }).await)
    }

    async fn usage(&self, subject: QuotaSubject) -> (u64, u64) {
        let quota = self.quota(subject).await.expect("allowed").expect("a quota");
        (quota.usage.bytes.0, quota.usage.inodes)
    }

    async fn begin(&mut self, path: &str, flags: OpenFlags) -> Result<(HandleId, Opened), Errno> {
        self.next_handle += 1;
        let handle = HandleId(self.next_handle);
        let request = MetaRequest::Open {
            at: at(path),
            flags,
            mode: 0o666,
            handle,
            layout: on_one_target(),
            cache: false,
            ranks: None,
        };
        opened(self.change(request).await).map(|opened| (handle, opened))
    }

    /// Asks for bytes as a client does before it writes behind the limit of its capability.
    async fn grow(&self, handle: HandleId, cap: &Capability, end: u64) -> Result<Capability, Errno> {
        if cap.limit.is_none_or(|limit| end <= limit.file_len.0) {
            return Ok(*cap);
        }
        match self.ask(MetaRequest::ReserveSpace { handle, cap: *cap, end: FileOffset(end) }).await {
            MetaReply::Capability(cap) => Ok(cap),
            other => Err(errno(other)),
        }
    }

    /// Writes a file up to `len`, and closes it.
    async fn write(&mut self, path: &str, flags: OpenFlags, len: u64) -> Result<(), Errno> {
        let (handle, opened) = self.begin(path, flags).await?;
        let grown = self.grow(handle, &opened.cap.expect("a file"), len).await;
        let summary = if grown.is_ok() { wrote(len) } else { WriteSummary::default() };
        self.close(handle, summary).await.expect("open");
        if opened.must_truncate && grown.is_err() {
            return Ok(()); // the truncation is done, and no write
        }
        grown.map(drop)
    }

    async fn count(&mut self, tree: FileIdOfTree) {
        let mut open = vec![tree];
        while let Some(dir) = open.pop() {
            let mut after = Vec::new();
            loop {
                let step = TreeStep { tree, dir, after };
                match self.ask(MetaRequest::CountTree(step)).await {
                    MetaReply::TreeCounted { directories, after: next, .. } => {
                        open.extend(directories);
                        match next {
                            Some(next) => after = next,
                            None => break,
                        }
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        done(self.change(MetaRequest::EndTreeCount { tree }).await).expect("counted");
    }
}

type FileIdOfTree = weft_core::FileId;

fn quota(reply: MetaReply) -> Result<Option<Quota>, Errno> {
    match reply {
        MetaReply::Quotas { quotas, .. } => Ok(quotas.into_iter().next()),
        other => Err(errno(other)),
    }
}

fn wrote(len: u64) -> WriteSummary {
    let (end, bytes) = (ByteLen(len), ByteLen(len));
    WriteSummary { wrote: len > 0, end, bytes, mtime: Timestamp(1), ..WriteSummary::default() }
}

#[test]
fn a_user_uses_the_quota_up_to_the_last_byte() {
    with_simulated_service(1, |_, service, _| async move {
        let mut root = Peer::new(&service, 1, user(0));
        let mut alice = Peer::new(&service, 2, user(ALICE));
        open_root(&mut root).await;
        alice.write("before", CREATE, 300).await.expect("no quota yet");
        // The account begins with the files that exist.
        let set = root.set_quota(of_user(ALICE), limits(1000, 4)).await.expect("set");
        assert_eq!(set.usage, QuotaUsage { bytes: ByteLen(300), inodes: 1 });
        alice.write("a", CREATE, 700).await.expect("fits");
        assert_eq!(alice.usage(of_user(ALICE)).await, (1000, 2));
        assert_eq!(alice.write("a", WRITE, 701).await, Err(Errno::EDQUOT));
        // Bytes that are charged can be overwritten, also after a truncation at the open.
        alice.write("a", OpenFlags { truncate: true, ..WRITE }, 700).await.expect("charged");
        assert_eq!(alice.write("b", CREATE, 1).await, Err(Errno::EDQUOT));
        // The empty file exists.
        assert_eq!(alice.usage(of_user(ALICE)).await, (1000, 3));
        alice.unlink("before").await.expect("removed");
        alice.write("b", WRITE, 300).await.expect("fits again");
        assert_eq!(alice.usage(of_user(ALICE)).await, (1000, 2));
        // Inodes of all kinds count.
        alice.mkdir("d").await.expect("third");
        alice.touch("e").await.expect("fourth");
        assert_eq!(alice.touch("f").await, Err(Errno::EDQUOT));
        let link = MetaRequest::Symlink { at: at("l"), target: b"a".to_vec() };
        assert_eq!(attr(alice.change(link).await).err(), Some(Errno::EDQUOT));
        // Root is not limited, but the files are charged to their owner.
        root.write("a", WRITE, 5000).await.expect("exempt");
        assert_eq!(root.usage(of_user(ALICE)).await, (5300, 4));
        assert_eq!(alice.write("a", WRITE, 5001).await, Err(Errno::EDQUOT));
        assert_eq!(root.problems().await, Vec::<String>::new());
    });
}

#[test]
fn a_capability_ends_at_the_charge_and_never_later_than_the_one_before() {
    with_simulated_service(2, |_, service, _| async move {
        let mut root = Peer::new(&service, 1, user(0));
        let mut alice = Peer::new(&service, 2, user(ALICE));
        open_root(&mut root).await;
        root.set_quota(of_user(ALICE), bytes(1 << 20)).await.expect("set");
        let (handle, opened) = alice.begin("f", CREATE).await.expect("created");
        let first = opened.cap.expect("a file");
        let ahead = first.limit.expect("limited").file_len.0;
        assert!((1..=1 << 20).contains(&ahead), "{ahead}");
        assert_eq!(root.usage(of_user(ALICE)).await, (ahead, 1));
        let more = alice.grow(handle, &first, 500_000).await.expect("fits");
        assert!(more.limit.is_some_and(|limit| limit.file_len.0 >= 500_000));
        assert_eq!((more.file, more.rights, more.expires_s), (first.file, first.rights, first.expires_s));
        // Neither a forged capability nor one of another file or for reading gets more.
        let forged = Capability { limit: None, ..more };
        let request = |cap| MetaRequest::ReserveSpace { handle, cap, end: FileOffset(600_000) };
        assert_eq!(errno(alice.ask(request(forged)).await), Errno::ESTALE);
        let (reading, read) = alice.begin("f", READ).await.expect("open");
        assert_eq!(read.cap.and_then(|cap| cap.limit), None);
        let request = |cap| MetaRequest::ReserveSpace { handle: reading, cap, end: FileOffset(1) };
        assert_eq!(errno(alice.ask(request(more)).await), Errno::EBADF);
        assert_eq!(alice.grow(handle, &more, (1 << 20) + 1).await, Err(Errno::EDQUOT));
        alice.close(reading, WriteSummary::default()).await.expect("open");
        alice.close(handle, wrote(7)).await.expect("open");
        assert_eq!(root.usage(of_user(ALICE)).await, (7, 1));
        // Root's capability has no end.
        let (_, opened) = root.begin("f", WRITE).await.expect("open");
        assert_eq!(opened.cap.and_then(|cap| cap.limit), None);
    });
}

#[test]
fn a_truncation_by_path_is_charged_before_it_extends() {
    with_simulated_service(3, |_, service, _| async move {
        let mut root = Peer::new(&service, 1, user(0));
        let mut alice = Peer::new(&service, 2, user(ALICE));
        open_root(&mut root).await;
        root.set_quota(of_user(ALICE), bytes(1000)).await.expect("set");
        alice.write("f", CREATE, 10).await.expect("fits");
        let truncate = |size| MetaRequest::Truncate { at: at("f"), handle: None, size: ByteLen(size) };
        assert_eq!(errno(alice.change(truncate(1001)).await), Errno::EDQUOT);
        let MetaReply::Truncate { file, cap, epoch, .. } = alice.change(truncate(1000)).await else {
            panic!("not truncated")
        };
        assert_eq!(cap.limit, Some(WriteLimit { file_len: ByteLen(1000), datafile_len: ByteLen(1000) }));
        assert_eq!(root.usage(of_user(ALICE)).await, (1000, 1));
        let lens = RecordedLens::new(vec![ByteLen(1000)]);
        let found = CollectedSize { size: ByteLen(1000), blocks_512: 8, mtime: None, lens };
        done(alice.ask(MetaRequest::ValidateSize { file, epoch, cap, found }).await).expect("measured");
        assert_eq!(root.usage(of_user(ALICE)).await, (1000, 1));
        assert_eq!(root.problems().await, Vec::<String>::new());
    });
}

#[test]
fn trees_count_what_is_in_them_and_keep_it() {
    with_simulated_service(4, |_, service, _| async move {
        let mut root = Peer::new(&service, 1, user(0));
        let mut bob = Peer::new(&service, 2, user(BOB));
        open_root(&mut root).await;
        for dir in ["p", "p/q", "other"] {
            bob.mkdir(dir).await.expect("created");
        }
        bob.write("p/q/old", CREATE, 100).await.expect("no quota yet");
        bob.write("outside", CREATE, 50).await.expect("no quota");
        let set = root.set_quota(of_tree("p"), limits(1000, 5)).await.expect("set");
        let QuotaId::Tree(tree) = set.id else { panic!("{set:?}") };
        assert_eq!((set.path.as_slice(), set.is_counted), (&b"p"[..], false));
        // Files that come while the tree is being counted count once.
        bob.write("p/new", CREATE, 10).await.expect("fits");
        root.count(tree).await;
        root.count(tree).await;
        assert_eq!(root.usage(of_tree("p/q/old")).await, (110, 4));
        assert!(root.quota(of_tree("p")).await.expect("allowed").expect("a quota").is_counted);
        assert_eq!(root.quota(of_tree("other")).await, Ok(None));
        assert_eq!(bob.write("p/new", WRITE, 901).await, Err(Errno::EDQUOT));
        bob.write("p/new", WRITE, 900).await.expect("fits");
        bob.touch("p/q/five").await.expect("fits");
        assert_eq!(bob.touch("p/q/six").await, Err(Errno::EDQUOT));
        // A file moves in if it fits; a directory and a file with two names stay.
        assert_eq!(bob.rename("outside", "p/outside").await, Err(Errno::EDQUOT));
        bob.unlink("p/q/five").await.expect("removed");
        bob.unlink("p/q/old").await.expect("removed");
        bob.rename("outside", "p/outside").await.expect("fits");
        assert_eq!(root.usage(of_tree("p")).await, (950, 4));
        bob.rename("p/outside", "other/outside").await.expect("moves out");
        assert_eq!(root.usage(of_tree("p")).await, (900, 3));
        assert_eq!(bob.rename("p/q", "other/q").await, Err(Errno::EXDEV));
        assert_eq!(bob.rename("other", "p/other").await, Err(Errno::EXDEV));
        let link = |from: &str, to: &str| MetaRequest::Link { from: at(from), to: at(to) };
        assert_eq!(attr(bob.change(link("p/new", "other/l")).await).err(), Some(Errno::EXDEV));
        attr(bob.change(link("p/new", "p/q/l")).await).expect("within the tree");
        assert_eq!(bob.rename("p/q/l", "other/l").await, Err(Errno::EXDEV));
        assert_eq!(root.usage(of_tree("p")).await, (900, 3));
        // Trees do not overlap, and the root of a tree moves with it.
        assert_eq!(root.set_quota(of_tree("p/q"), bytes(1)).await.err(), Some(Errno::EINVAL));
        assert_eq!(root.set_quota(of_tree(""), bytes(1)).await.err(), Some(Errno::EINVAL));
        bob.rename("p", "other/p").await.expect("with its tree");
        assert_eq!(root.usage(of_tree("other/p/new")).await, (900, 3));
        assert_eq!(root.problems().await, Vec::<String>::new());
        // The account ends with its root.
        bob.unlink("other/p/new").await.expect("removed");
        bob.unlink("other/p/q/l").await.expect("removed");
        bob.rmdir("other/p/q").await.expect("empty");
        bob.rmdir("other/p").await.expect("empty");
        assert!(matches!(
            root.ask(MetaRequest::ListQuotas { after: None }).await,
            MetaReply::Quotas { quotas, more: false } if quotas.is_empty()
        ));
        assert_eq!(root.problems().await, Vec::<String>::new());
    });
}

#[test]
fn a_refused_rename_over_the_root_of_a_tree_leaves_its_account() {
    with_simulated_service(7, |_, service, _| async move {
        let mut root = Peer::new(&service, 1, user(0));
        let mut bob = Peer::new(&service, 2, user(BOB));
        open_root(&mut root).await;
        for dir in ["t", "x", "same"] {
            bob.mkdir(dir).await.expect("created");
        }
        for tree in ["t", "x"] {
            root.set_quota(of_tree(tree), limits(1000, 3)).await.expect("set");
        }
        bob.mkdir("x/d").await.expect("fits");
        assert_eq!(bob.rename("x/d", "t").await, Err(Errno::EXDEV));
        assert_eq!(root.usage(of_tree("t")).await, (0, 1));
        assert_eq!(bob.write("t/f", CREATE, 1001).await, Err(Errno::EDQUOT));
        // A name in the same directory is no other tree, whatever the directory counts in.
        attr(bob.change(MetaRequest::Link { from: at("t/f"), to: at("t/g") }).await)
            .expect("within the tree");
        bob.rename("t/g", "t/h").await.expect("within the directory");
        assert_eq!(root.problems().await, Vec::<String>::new());
    });
}

#[test]
fn no_tree_is_inside_another_even_while_that_is_being_counted() {
    with_simulated_service(8, |_, service, _| async move {
        let mut root = Peer::new(&service, 1, user(0));
        open_root(&mut root).await;
        for dir in ["p", "p/q", "p/q/r"] {
            root.mkdir(dir).await.expect("created");
        }
        let set = root.set_quota(of_tree("p"), bytes(1000)).await.expect("set");
        assert!(!set.is_counted);
        for inner in ["p/q", "p/q/r"] {
            assert_eq!(root.set_quota(of_tree(inner), bytes(1)).await.err(), Some(Errno::EINVAL), "{inner}");
        }
    });
}

#[test]
fn a_file_that_leaves_all_accounts_has_no_charge_when_it_returns() {
    with_simulated_service(9, |_, service, _| async move {
        let mut root = Peer::new(&service, 1, user(0));
        let mut bob = Peer::new(&service, 2, user(BOB));
        open_root(&mut root).await;
        bob.mkdir("t").await.expect("created");
        root.set_quota(of_tree("t"), bytes(1 << 20)).await.expect("set");
        let (handle, opened) = bob.begin("t/f", CREATE).await.expect("created");
        bob.grow(handle, &opened.cap.expect("a file"), 100_000).await.expect("fits");
        bob.rename("t/f", "f").await.expect("moves out");
        assert_eq!(root.usage(of_tree("t")).await, (0, 1));
        bob.close(handle, wrote(7)).await.expect("open");
        let set = root.set_quota(of_user(BOB), bytes(1 << 20)).await.expect("set");
        assert_eq!(set.usage, QuotaUsage { bytes: ByteLen(7), inodes: 2 });
        bob.unlink("f").await.expect("removed");
        assert_eq!(root.problems().await, Vec::<String>::new());
    });
}

#[test]
fn only_administrators_set_quotas_and_see_those_of_others() {
    with_simulated_service(5, |_, service, _| async move {
        let mut root = Peer::new(&service, 1, user(0));
        let mut alice = Peer::new(&service, 2, user(ALICE));
        open_root(&mut root).await;
        assert_eq!(alice.set_quota(of_user(ALICE), bytes(1)).await.err(), Some(Errno::EPERM));
        root.set_quota(of_user(BOB), bytes(1)).await.expect("set");
        assert_eq!(alice.quota(of_user(BOB)).await.err(), Some(Errno::EPERM));
        assert_eq!(alice.quota(of_user(ALICE)).await, Ok(None));
        assert_eq!(errno(alice.ask(MetaRequest::ListQuotas { after: None }).await), Errno::EPERM);
        let step = TreeStep { tree: ROOT, dir: ROOT, after: Vec::new() };
        assert_eq!(errno(alice.ask(MetaRequest::CountTree(step)).await), Errno::EPERM);
        assert_eq!(errno(alice.change(MetaRequest::EndTreeCount { tree: ROOT }).await), Errno::EPERM);
        // A quota that would limit nobody is refused.
        assert_eq!(root.set_quota(of_user(0), bytes(1)).await.err(), Some(Errno::EINVAL));
        assert_eq!(root.set_quota(of_tree("missing"), bytes(1)).await.err(), Some(Errno::ENOENT));
        alice.touch("f").await.expect("created");
        assert_eq!(root.set_quota(of_tree("f"), bytes(1)).await.err(), Some(Errno::ENOTDIR));
    });
}

#[test]
fn space_left_is_that_of_the_quotas() {
    with_simulated_service(6, |_, service, _| async move {
        let mut root = Peer::new(&service, 1, user(0));
        let mut alice = Peer::new(&service, 2, user(ALICE));
        open_root(&mut root).await;
        alice.mkdir("p").await.expect("created");
        root.set_quota(of_user(ALICE), bytes(1000)).await.expect("set");
        root.set_quota(of_tree("p"), bytes(500)).await.expect("set");
        let ids = async |peer: &Peer<SimEnv>, path: Option<&str>| match peer
            .ask(MetaRequest::StatFs { at: path.map(at) })
            .await
        {
            MetaReply::StatFs { quotas, .. } => quotas.iter().map(|quota| quota.limits).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        assert_eq!(ids(&alice, None).await, [bytes(1000)]);
        assert_eq!(ids(&alice, Some("p")).await, [bytes(1000), bytes(500)]);
        assert_eq!(ids(&root, Some("p")).await, []);
    });
}

async fn open_root<E: Env>(root: &mut Peer<E>) {
    let set = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    attr(root.change(MetaRequest::SetAttr { at: at(""), set }).await).expect("root's directory");
}

const LIMIT: u64 = 200_000;
const INODES: u64 = 14;

async fn prepare<E: Env>(root: &mut Peer<E>) {
    open_root(root).await;
    for dir in ["a", "b", "c"] {
        root.mkdir(dir).await.expect("created");
        let set = SetAttr { mode: Some(0o777), ..SetAttr::default() };
        attr(root.change(MetaRequest::SetAttr { at: at(dir), set }).await).expect("there");
    }
    root.set_quota(of_user(ALICE), limits(LIMIT, INODES)).await.expect("set");
    for tree in ["a", "b"] {
        let set = root.set_quota(of_tree(tree), limits(LIMIT, INODES)).await.expect("set");
        assert!(set.is_counted, "an empty directory is counted at once");
    }
}

/// One random operation of a limited user.
async fn step<E: Env>(peer: &mut Peer<E>, rng: &mut Rng, open: &mut Vec<(HandleId, Capability, u64)>) {
    let name = |rng: &mut Rng| format!("{}/f{}", ["a", "b", "c"][rng.below(3) as usize], rng.below(5));
    let (path, other) = (name(rng), name(rng));
    let len = rng.below(90_000);
    match rng.below(10) {
        0 | 1 => drop(peer.write(&path, CREATE, len).await),
        2 => drop(peer.write(&path, OpenFlags { truncate: true, ..CREATE }, len).await),
        3 => drop(peer.unlink(&path).await),
        4 => drop(peer.rename(&path, &other).await),
        5 => drop(peer.change(MetaRequest::Link { from: at(&path), to: at(&other) }).await),
        6 => {
            drop(peer.change(MetaRequest::Truncate { at: at(&path), handle: None, size: ByteLen(len) }).await)
        }
        7 | 8 => {
            if let Ok((handle, opened)) = peer.begin(&path, CREATE).await {
                open.push((handle, opened.cap.expect("a file"), 0));
            }
        }
        _ => {
            if open.is_empty() {
                return;
            }
            let (handle, cap, mut end) = open.swap_remove(rng.below(open.len() as u64) as usize);
            if peer.grow(handle, &cap, len).await.is_ok() {
                end = end.max(len);
            }
            // Some writers fail, so that only the datafiles know the size.
            let summary = WriteSummary { unsure: rng.below(4) == 0, ..wrote(end) };
            let _ = peer.close(handle, summary).await;
        }
    }
}

async fn require_limits<E: Env>(root: &Peer<E>, note: &str) {
    assert_eq!(root.problems().await, Vec::<String>::new(), "{note}");
    for subject in [of_user(ALICE), of_tree("a"), of_tree("b")] {
        let quota = root.quota(subject).await.expect("allowed").expect("a quota");
        let QuotaUsage { bytes, inodes } = quota.usage;
        assert!(bytes.0 <= LIMIT && inodes <= INODES, "{note}: {quota:?}");
    }
}

#[test]
fn random_operations_keep_all_accounts_exact_and_below_their_limits() {
    operate(0..12);
}

/// Each seeded bug makes a run fail.
#[cfg(feature = "mutants")]
#[test]
fn seeded_bugs_of_quotas_are_found() {
    use weft_env::mutants::{self, Mutant};
    for mutant in [Mutant::KeptCharge, Mutant::UncheckedQuota] {
        mutants::seed(Some(mutant));
        let found = std::panic::catch_unwind(|| operate(0..12)).is_err();
        mutants::seed(None);
        assert!(found, "{mutant:?} is not found");
    }
}

fn operate(seeds: std::ops::Range<u64>) {
    let (mut refused, mut most) = (0, 0);
    for seed in seeds {
        let at_limit = Arc::new(parking_lot::Mutex::new((0u32, 0u64)));
        let seen = at_limit.clone();
        with_simulated_service(seed, move |_, service, _| async move {
            let mut root = Peer::new(&service, 1, user(0));
            prepare(&mut root).await;
            let mut alice = Peer::new(&service, 2, user(ALICE));
            let (mut rng, mut open) = (Rng::new(seed), Vec::new());
            for number in 0..150 {
                step(&mut alice, &mut rng, &mut open).await;
                require_limits(&root, &format!("seed {seed}, step {number}")).await;
                let (used, _) = root.usage(of_user(ALICE)).await;
                let mut seen = seen.lock();
                seen.1 = seen.1.max(used);
            }
            let last = alice.write("c/last", CREATE, LIMIT).await;
            seen.lock().0 += u32::from(last == Err(Errno::EDQUOT));
            // The owner changes: the account follows, whatever the file is charged.
            for name in alice.list("a").await.expect("there") {
                let set = SetAttr { uid: Some(BOB), gid: Some(BOB), ..SetAttr::default() };
                attr(root.change(MetaRequest::SetAttr { at: link_at(&format!("a/{name}")), set }).await)
                    .expect("root may");
            }
            assert_eq!(root.problems().await, Vec::<String>::new(), "seed {seed}");
        });
        let (count, used) = *at_limit.lock();
        (refused, most) = (refused + count, most.max(used));
    }
    assert!(refused > 0, "no write was refused");
    assert!(most > LIMIT * 3 / 4, "the limit was never near: {most}");
}

async fn crash_load(env: SimEnv, seed: u64, (): ()) {
    let service = start(&env, config(PathBuf::from("/")), &Removed::default()).await;
    let mut root = Peer::new(&service, 1, user(0));
    prepare(&mut root).await;
    let mut alice = Peer::new(&service, 2, user(ALICE));
    let (mut rng, mut open) = (Rng::new(seed), Vec::new());
    for _ in 0..12 {
        step(&mut alice, &mut rng, &mut open).await;
    }
    service.shutdown().await;
}

async fn crash_check(env: SimEnv, (): (), note: String) {
    let service: Arc<Service<SimEnv>> = start(&env, config(PathBuf::from("/")), &Removed::default()).await;
    let root = Peer::new(&service, 99, user(0));
    assert_eq!(root.problems().await, Vec::<String>::new(), "{note}");
    // All three quotas are set in the beginning, one after the other.
    if let Ok(Some(quota)) = root.quota(of_user(ALICE)).await {
        assert!(quota.usage.bytes.0 <= LIMIT && quota.usage.inodes <= INODES, "{note}: {quota:?}");
    }
    service.shutdown().await;
}

#[test]
fn accounts_are_exact_after_a_power_cut_at_every_sync() {
    let cuts = power_cut_at_every_sync(|| (), crash_load, crash_check);
    assert!(cuts > 100, "{cuts} cuts are too few to be significant");
}
