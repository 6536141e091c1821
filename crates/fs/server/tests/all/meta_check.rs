//! Damage in the database: reported by table and key, found and repaired by a check.

use crate::meta_support::*;
use std::path::Path;
use weft_core::FileId;
use weft_env::Env;
use weft_env::real::{RealEnv, block_on};
use weft_store::metadata::{
    DatabaseSpec, DentryRow, Engine, EngineError, Inode, Journal, JournalOptions, NodeKind, Snapshot, Table,
    Transaction, dentry_key, file_key, seal,
};
use weft_wire::Errno;
use weft_wire::meta::*;

/// Changes the database while the service is stopped.
async fn tamper(path: &Path, change: impl FnOnce(&mut dyn Transaction)) {
    let env = RealEnv::new();
    let dir = env.dir(path).await.expect("a directory");
    let wanted = DatabaseSpec::formatting("test");
    let journal = Journal::open(env, dir, "database", &wanted, JournalOptions::default());
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
    let found = s.get(Table::Inodes, &file_key(file)).expect("readable").expect("exists");
    found.open(Table::Inodes, &file_key(file)).expect("sound")
}

async fn check(peer: &mut Peer<RealEnv>, repair: bool) -> NamespaceReport {
    match peer.change(MetaRequest::CheckNamespace { repair }).await {
        MetaReply::Checked(report) => report,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_check_finds_and_repairs_inconsistencies() {
    let dir = tempfile::tempdir().expect("a directory");
    block_on(async {
        let service = start(&RealEnv::new(), config(dir.path().into()), &Removed::default()).await;
        let mut root = Peer::new(&service, 1, user(0));
        for path in ["d", "d/sub", "lost", "lost/in"] {
            root.mkdir(path).await.expect("created");
        }
        let gone = root.touch("d/gone").await.expect("created");
        let kept = root.touch("d/kept").await.expect("created");
        let unnamed = root.touch("unnamed").await.expect("created");
        let inside = root.touch("lost/in/f").await.expect("created");
        let lost = root.stat("lost").await.expect("exists").file;
        let (replaced, other) =
            (root.touch("name").await.expect("created"), root.touch("other").await.expect("created"));
        assert_eq!(check(&mut root, false).await.problems, Vec::<String>::new());
        root.gone().await;
        service.shutdown().await;

        tamper(dir.path(), |t| {
            t.delete(Table::Inodes, &file_key(gone));
            t.delete(Table::Dentries, &dentry_key(ROOT, b"unnamed"));
            t.delete(Table::Dentries, &dentry_key(ROOT, b"lost"));
            // A name that refers to another file, whose own name is missing.
            t.delete(Table::Dentries, &dentry_key(ROOT, b"other"));
            let key = dentry_key(ROOT, b"name");
            let row = DentryRow { file: other, kind: NodeKind::Regular };
            t.put(Table::Dentries, &key, seal(Table::Dentries, &key, &row));
            let mut inode = read_inode(t, kept);
            inode.nlink = 9;
            t.put(Table::Inodes, &file_key(kept), seal(Table::Inodes, &file_key(kept), &inode));
            // A name that creates a cycle.
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
        let linked = root.stat("unnamed").await.map(|attr| (attr.file, attr.nlink));
        assert_eq!(linked, Ok((unnamed, 1)), "the inode gets a name again");
        assert_eq!(root.stat("lost/in/f").await.map(|attr| attr.file), Ok(inside), "and so does a directory");
        let sheltered = root.stat(&format!("lost+found/{replaced}")).await;
        assert_eq!(sheltered.map(|attr| attr.nlink), Ok(1), "its name refers to another file");
        assert_eq!(root.stat("name").await.map(|attr| (attr.file, attr.nlink)), Ok((other, 1)));
        assert_eq!(root.list("d").await, Ok(vec!["kept".into(), "sub".into()]));
        assert_eq!(root.stat("d/kept").await.map(|attr| attr.nlink), Ok(1));
        let mut other = Peer::new(&service, 3, user(1000));
        let refused = other.change(MetaRequest::CheckNamespace { repair: true }).await;
        assert_eq!(errno(refused), Errno::EPERM);
        service.shutdown().await;
    });
}

#[test]
fn a_damaged_value_causes_an_error_that_names_it() {
    let dir = tempfile::tempdir().expect("a directory");
    block_on(async {
        let service = start(&RealEnv::new(), config(dir.path().into()), &Removed::default()).await;
        let mut root = Peer::new(&service, 1, user(0));
        let file = root.touch("f").await.expect("created");
        root.touch("g").await.expect("created");
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
fn damaged_rows_are_reported_and_removed_and_files_get_names_again() {
    let dir = tempfile::tempdir().expect("a directory");
    block_on(async {
        let service = start(&RealEnv::new(), config(dir.path().into()), &Removed::default()).await;
        let mut root = Peer::new(&service, 1, user(0));
        root.mkdir("d").await.expect("created");
        root.mkdir("d/sub").await.expect("created");
        let (file, gone) =
            (root.touch("d/f").await.expect("created"), root.touch("d/g").await.expect("created"));
        let kept = root.touch("d/sub/kept").await.expect("created");
        let (at, sub) =
            (root.stat("d").await.expect("exists").file, root.stat("d/sub").await.expect("exists").file);
        root.gone().await;
        service.shutdown().await;
        tamper(dir.path(), |t| {
            t.put(Table::Dentries, &dentry_key(at, b"f"), b"no such bytes".to_vec());
            t.put(Table::Dentries, &dentry_key(at, b"sub"), b"no such bytes".to_vec());
            t.put(Table::Inodes, &file_key(gone), b"no such bytes".to_vec());
            t.put(Table::Xattrs, &file_key(file), Vec::new());
        })
        .await;
        let service = start(&RealEnv::new(), config(dir.path().into()), &Removed::default()).await;
        let mut root = Peer::new(&service, 2, user(0));
        for name in ["d/f", "d/g", "d/sub/kept"] {
            let MetaReply::Failed(error) =
                root.ask(MetaRequest::Stat { at: crate::meta_support::at(name) }).await
            else {
                panic!("{name} is read")
            };
            assert_eq!(error.errno, Errno::EIO, "{name}");
            assert!(error.detail.contains("weft fsck --repair"), "{name}: {error}");
        }
        let found = check(&mut root, false).await.problems.join("\n");
        for part in [
            format!("entry \"f\" of directory {at}"),
            format!("entry \"sub\" of directory {at}"),
            format!("row of file {gone} in table inodes"),
            format!("row of file {file} in table xattrs"),
        ] {
            assert!(found.contains(&format!("{part} is damaged")), "{part}: {found}");
        }
        let mended = check(&mut root, true).await;
        assert_eq!(mended.mended, mended.problems.len() as u64);
        assert_eq!(check(&mut root, false).await.problems, Vec::<String>::new(), "after mending");
        assert_eq!(root.list("d").await, Ok(vec!["f".into(), "sub".into()]));
        assert_eq!(root.stat("d/f").await.map(|attr| (attr.file, attr.nlink)), Ok((file, 1)));
        assert_eq!(root.stat("d/sub").await.map(|attr| attr.file), Ok(sub));
        assert_eq!(root.stat("d/sub/kept").await.map(|attr| attr.file), Ok(kept));
        service.shutdown().await;
    });
}

#[test]
fn a_damaged_counter_is_reported_and_never_removed() {
    let dir = tempfile::tempdir().expect("a directory");
    block_on(async {
        let service = start(&RealEnv::new(), config(dir.path().into()), &Removed::default()).await;
        service.shutdown().await;
        tamper(dir.path(), |t| t.put(Table::Counters, b"restored", b"no such bytes".to_vec())).await;
        let service = start(&RealEnv::new(), config(dir.path().into()), &Removed::default()).await;
        let mut root = Peer::new(&service, 2, user(0));
        for repair in [true, false] {
            let report = check(&mut root, repair).await;
            assert_eq!((report.problems.len(), report.mended), (1, 0), "{:?}", report.problems);
            assert!(
                report.problems[0].contains("table counters")
                    && report.problems[0].contains("weft meta restore")
            );
        }
        service.shutdown().await;
    });
}

#[test]
fn paths_of_other_clusters_foreign_paths_and_paths_in_use_are_rejected() {
    let dir = tempfile::tempdir().expect("a directory");
    let open = async |cluster: &str, path: &Path| {
        let env = RealEnv::new();
        let dir = env.dir(path).await.expect("a directory");
        let wanted = DatabaseSpec::formatting(cluster);
        Journal::open(env, dir, "database", &wanted, JournalOptions::default()).await
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
