//! Damage in the database: told by table and key, found and mended by a check.

mod meta_support;

use meta_support::*;
use std::path::Path;
use weft_core::FileId;
use weft_env::Env;
use weft_env::real::{RealEnv, block_on};
use weft_store::metadata::{
    DentryRow, Engine, EngineError, Identity, Inode, Journal, JournalOptions, NodeKind, Snapshot, Table,
    Transaction, dentry_key, file_key, seal,
};
use weft_wire::Errno;
use weft_wire::meta::*;

/// Changes the database behind the service's back.
async fn tamper(path: &Path, change: impl FnOnce(&mut dyn Transaction)) {
    let env = RealEnv::new();
    let dir = env.dir(path).await.expect("a directory");
    let identity = Identity { cluster: "test".into() };
    let journal = Journal::open(env, dir, "database", &identity, JournalOptions::default());
    let journal = journal.await.unwrap_or_else(|error| panic!("{error}"));
    let written = journal.write(|t| {
        change(t);
        Ok::<(), EngineError>(())
    });
    let (_, point) = written.expect("written");
    journal.durable(point).await.expect("durable");
    journal.shutdown().await.expect("ended");
}

fn read_inode(s: &dyn Snapshot, file: FileId) -> Inode {
    let found = s.get(Table::Inodes, &file_key(file)).expect("readable").expect("there");
    found.open(Table::Inodes, &file_key(file)).expect("sound")
}

async fn check(peer: &mut Peer<RealEnv>, repair: bool) -> NamespaceReport {
    match peer.change(MetaRequest::CheckNamespace { repair }).await {
        MetaReply::Checked(report) => report,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_check_finds_and_mends_what_is_wrong() {
    let dir = tempfile::tempdir().expect("a directory");
    block_on(async {
        let service = start(&RealEnv::new(), config(dir.path().into()), &Removed::default()).await;
        let mut root = Peer::new(&service, 1, user(0));
        for path in ["d", "d/sub", "lost", "lost/in"] {
            root.mkdir(path).await.expect("made");
        }
        let gone = root.touch("d/gone").await.expect("made");
        let kept = root.touch("d/kept").await.expect("made");
        let unnamed = root.touch("unnamed").await.expect("made");
        let inside = root.touch("lost/in/f").await.expect("made");
        let lost = root.stat("lost").await.expect("there").file;
        assert_eq!(check(&mut root, false).await.problems, Vec::<String>::new());
        root.gone().await;
        service.shutdown().await;

        tamper(dir.path(), |t| {
            t.delete(Table::Inodes, &file_key(gone));
            t.delete(Table::Dentries, &dentry_key(ROOT, b"unnamed"));
            t.delete(Table::Dentries, &dentry_key(ROOT, b"lost"));
            let mut inode = read_inode(t, kept);
            inode.nlink = 9;
            t.put(Table::Inodes, &file_key(kept), seal(Table::Inodes, &file_key(kept), &inode));
            // A name that makes a circle.
            let key = dentry_key(lost, b"round");
            let row = DentryRow { file: lost, kind: NodeKind::Directory };
            t.put(Table::Dentries, &key, seal(Table::Dentries, &key, &row));
        })
        .await;

        let service = start(&RealEnv::new(), config(dir.path().into()), &Removed::default()).await;
        let mut root = Peer::new(&service, 2, user(0));
        let found = check(&mut root, false).await;
        assert!(found.problems.len() >= 5, "{:#?}", found.problems);
        assert_eq!(found.mended, 0);
        let mended = check(&mut root, true).await;
        assert_eq!(mended.problems, found.problems);
        assert_eq!(mended.mended, found.problems.len() as u64);
        assert_eq!(check(&mut root, true).await.problems, Vec::<String>::new(), "after mending");
        assert_eq!(root.stat(&format!("lost+found/{unnamed}")).await.map(|attr| attr.nlink), Ok(1));
        let sheltered = root.stat(&format!("lost+found/{lost}/in/f")).await;
        assert_eq!(sheltered.map(|attr| attr.file), Ok(inside));
        assert_eq!(root.list("d").await, Ok(vec!["kept".into(), "sub".into()]));
        assert_eq!(root.stat("d/kept").await.map(|attr| attr.nlink), Ok(1));
        let mut other = Peer::new(&service, 3, user(1000));
        let refused = other.change(MetaRequest::CheckNamespace { repair: true }).await;
        assert_eq!(errno(refused), Errno::EPERM);
        service.shutdown().await;
    });
}

#[test]
fn a_damaged_value_is_an_error_that_says_which() {
    let dir = tempfile::tempdir().expect("a directory");
    block_on(async {
        let service = start(&RealEnv::new(), config(dir.path().into()), &Removed::default()).await;
        let mut root = Peer::new(&service, 1, user(0));
        let file = root.touch("f").await.expect("made");
        root.touch("g").await.expect("made");
        root.gone().await;
        service.shutdown().await;
        tamper(dir.path(), |t| t.put(Table::Inodes, &file_key(file), b"no such bytes".to_vec())).await;
        let service = start(&RealEnv::new(), config(dir.path().into()), &Removed::default()).await;
        let root = Peer::new(&service, 2, user(0));
        let MetaReply::Failed(error) = root.ask(MetaRequest::Stat { at: at("f") }).await else {
            panic!("read")
        };
        assert_eq!(error.errno, Errno::EIO);
        assert!(error.detail.contains("inodes") && error.detail.contains(&format!("{file}")), "{error}");
        root.stat("g").await.expect("others are not touched");
        service.shutdown().await;
    });
}

#[test]
fn another_clusters_path_a_foreign_one_and_one_in_use_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let open = async |cluster: &str, path: &Path| {
        let env = RealEnv::new();
        let dir = env.dir(path).await.expect("a directory");
        let identity = Identity { cluster: cluster.into() };
        Journal::open(env, dir, "database", &identity, JournalOptions::default()).await
    };
    block_on(async {
        let journal = open("mine", dir.path()).await.unwrap_or_else(|error| panic!("{error}"));
        let refusal = async |cluster: &str| match open(cluster, dir.path()).await {
            Ok(_) => panic!("taken"),
            Err(error) => error.to_string(),
        };
        assert!(refusal("mine").await.contains("in use"));
        journal.shutdown().await.expect("ended");
        let sentence = refusal("yours").await;
        assert!(sentence.contains("mine") && sentence.contains("yours"), "{sentence}");
        let foreign = tempfile::tempdir().expect("a directory");
        std::fs::write(foreign.path().join("thesis.tex"), "years of work").expect("written");
        let error = open("mine", foreign.path()).await.err().expect("not ours").to_string();
        assert!(error.contains("thesis.tex"), "{error}");
    });
}
