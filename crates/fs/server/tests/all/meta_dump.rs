//! Dumps of the database while the service continues, and a service on a restored database.

use crate::meta_support::*;
use std::path::Path;
use weft_core::FileId;
use weft_env::Env;
use weft_env::real::{RealEnv, block_on};
use weft_store::metadata::{
    DumpError, DumpHeader, DumpReader, DumpRow, DumpWriter, JournalOptions, RestoreError, Restored, Table,
    restore,
};
use weft_wire::Errno;
use weft_wire::meta::*;

async fn begin(peer: &Peer<RealEnv>) -> DumpBegun {
    match peer.ask(MetaRequest::DumpBegin).await {
        MetaReply::DumpBegun(begun) => *begun,
        other => panic!("{other:?}"),
    }
}

/// Reads the pages of a dump; calls `between` after the first.
async fn pages(peer: &Peer<RealEnv>, number: u64, mut between: impl AsyncFnMut()) -> Vec<Vec<DumpedRow>> {
    let (mut pages, mut after) = (Vec::new(), None);
    loop {
        let MetaReply::Dumped(rows) = peer.ask(MetaRequest::DumpPage { number, after: after.clone() }).await
        else {
            panic!("no page")
        };
        let Some(last) = rows.last() else { return pages };
        after = Some((last.table, last.key.clone()));
        pages.push(rows);
        if pages.len() == 1 {
            between().await;
        }
    }
}

fn file_of(begun: &DumpBegun, pages: &[Vec<DumpedRow>]) -> Vec<u8> {
    let header = DumpHeader { made: begun.made, identity: begun.identity.clone() };
    let mut dump = DumpWriter::new(Vec::new(), &header).expect("in memory");
    for row in pages.iter().flatten() {
        dump.row(Table::from_number(row.table).expect("known"), &row.key, &row.value).expect("in memory");
    }
    dump.end().expect("in memory").0
}

async fn restored(path: &Path, dump: &[u8]) -> Result<Restored, RestoreError> {
    let env = RealEnv::new();
    let dir = env.dir(path).await.expect("a directory");
    let mut dump = DumpReader::new(dump)?;
    let header = dump.header().clone();
    let next = || -> Result<Option<DumpRow>, DumpError> { dump.next_row() };
    restore(&env, &dir, "database", &header, next, JournalOptions::default()).await
}

#[test]
fn a_dump_is_a_snapshot_of_its_start_and_can_be_restored() {
    let (dir, other) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    block_on(async {
        let service = start(&RealEnv::new(), config(dir.path().into()), &Removed::default()).await;
        let mut root = Peer::new(&service, 1, user(0));
        root.mkdir("d").await.expect("created");
        let mut files = Vec::new();
        // More than one page of rows.
        for number in 0..2500 {
            files.push(root.touch(&format!("d/f{number:04}")).await.expect("created"));
        }
        let begun = begin(&root).await;
        assert_eq!(begun.inodes, 2502);
        let mut writer = Peer::new(&service, 2, user(0));
        let read = pages(&root, begun.number, async || {
            for number in 0..300 {
                writer.unlink(&format!("d/f{number:04}")).await.expect("removed");
                writer.touch(&format!("d/new{number:04}")).await.expect("created");
            }
        });
        let read = read.await;
        assert!(read.len() > 1, "one page shows nothing");
        assert_eq!(root.ask(MetaRequest::DumpEnd { number: begun.number }).await, MetaReply::Done);
        let last_file = writer.touch("later").await.expect("created");
        writer.gone().await;
        root.gone().await;
        service.shutdown().await;

        let dump = file_of(&begun, &read);
        let found = restored(other.path(), &dump).await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((found.inodes, found.dumped), (2502, begun.made));
        let again = restored(other.path(), &dump).await.expect_err("it is not empty").to_string();
        assert!(again.contains("not empty"), "{again}");
        let service = start(&RealEnv::new(), config(other.path().into()), &Removed::default()).await;
        // The dump contains the replies to the session that existed when it was made.
        let mut root = Peer::new(&service, 9, user(0));
        for (number, file) in files.iter().enumerate() {
            let found = root.stat(&format!("d/f{number:04}")).await.map(|attr| (attr.file, attr.nlink));
            assert_eq!(found, Ok((*file, 1)), "file {number}");
        }
        assert!(root.stat("d/new0000").await.is_err() && root.stat("later").await.is_err());
        assert_eq!(root.problems().await, Vec::<String>::new());
        let next = root.touch("next").await.expect("created");
        assert!(next > last_file, "{next} was already allocated: {last_file}");
        root.gone().await;
        service.shutdown().await;
    });
}

#[test]
fn only_administrators_dump_and_not_too_many_at_a_time() {
    let dir = tempfile::tempdir().expect("a directory");
    block_on(async {
        let service = start(&RealEnv::new(), config(dir.path().into()), &Removed::default()).await;
        let user = Peer::new(&service, 1, user(1000));
        assert_eq!(errno(user.ask(MetaRequest::DumpBegin).await), Errno::EPERM);
        assert_eq!(errno(user.ask(MetaRequest::DumpPage { number: 1, after: None }).await), Errno::EPERM);
        let root = Peer::new(&service, 2, crate::meta_support::user(0));
        let mut begun = Vec::new();
        for _ in 0..DUMPS_MAX {
            begun.push(begin(&root).await.number);
        }
        assert_eq!(errno(root.ask(MetaRequest::DumpBegin).await), Errno::EBUSY);
        let other = Peer::new(&service, 3, crate::meta_support::user(0));
        let of_another = MetaRequest::DumpPage { number: begun[0], after: None };
        assert_eq!(errno(other.ask(of_another).await), Errno::ESTALE);
        other.ask(MetaRequest::DumpEnd { number: begun[0] }).await;
        assert_eq!(
            errno(root.ask(MetaRequest::DumpBegin).await),
            Errno::EBUSY,
            "another session must not end it"
        );
        root.ask(MetaRequest::DumpEnd { number: begun[0] }).await;
        let number = begin(&root).await.number;
        let behind = MetaRequest::DumpPage { number, after: Some((u8::MAX, vec![0])) };
        assert_eq!(root.ask(behind).await, MetaReply::Dumped(Vec::new()));
        // The end of a session ends its dumps.
        root.gone().await;
        begin(&other).await;
        begin(&other).await;
        other.gone().await;
        service.shutdown().await;
    });
}

#[test]
fn rows_changed_after_their_checksum_are_not_restored() {
    let dir = tempfile::tempdir().expect("a directory");
    block_on(async {
        let header = DumpHeader { made: weft_core::Timestamp(0), identity: b"no identity".to_vec() };
        let mut dump = DumpWriter::new(Vec::new(), &header).expect("in memory");
        dump.row(Table::Inodes, &FileId(7).0.to_be_bytes(), b"no such bytes").expect("in memory");
        let dump = dump.end().expect("in memory").0;
        let error = restored(dir.path(), &dump).await.expect_err("no identity").to_string();
        assert!(error.contains("identity"), "{error}");
        assert!(DumpReader::new(&dump[..]).expect("read").next_row().is_err(), "the checksum of the row");
    });
}
