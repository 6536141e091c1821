//! Compression settings in the metadata service: precedence, inheritance, the attribute, capabilities, moves, and the
//! cached size of compressed files.

use crate::meta_support::*;
use std::path::PathBuf;
use weft_core::{ByteLen, Compression, FileId, RecordedLens, TargetId, TargetSettings, Timestamp};
use weft_env::Env;
use weft_env::real::{RealEnv, block_on};
use weft_server::metadata::Config;
use weft_wire::meta::*;
use weft_wire::{Capability, Errno};

const NAME: &str = "user.weft.compress";

fn compression(text: &str) -> Option<Compression> {
    weft_core::parse_compression(text).expect("a setting")
}

fn spec(setting: &str) -> LayoutSpec {
    LayoutSpec { compression: Some(setting.parse().expect("a setting")), ..LayoutSpec::default() }
}

/// Runs a test with a connection of root, in a cluster with `lz4` as its default and `off` for the SSDs.
fn with_default(test: impl AsyncFnOnce(Peer<RealEnv>)) {
    with(
        |config| {
            config.options.compression = compression("lz4");
            let off = TargetSettings { compression: "off".parse().ok(), ..TargetSettings::default() };
            config.options.targets = [2, 3].map(|id| (TargetId(id), off)).into();
        },
        test,
    );
}

fn with(change: impl FnOnce(&mut Config), test: impl AsyncFnOnce(Peer<RealEnv>)) {
    let dir = tempfile::tempdir().expect("a directory");
    let path: PathBuf = dir.path().join("metadata");
    std::fs::create_dir(&path).expect("created");
    let mut config = config(path);
    change(&mut config);
    block_on(async {
        let service = start(&RealEnv::new(), config, &Removed::default()).await;
        test(Peer::new(&service, 1, user(0))).await;
        service.shutdown().await;
    });
}

async fn get(root: &Peer<RealEnv>, path: &str) -> Result<String, Errno> {
    match root.ask(MetaRequest::GetXattr { at: at(path), name: NAME.into() }).await {
        MetaReply::Value(value) => Ok(String::from_utf8(value).expect("text")),
        other => Err(errno(other)),
    }
}

fn set_request(path: &str, value: &str) -> MetaRequest {
    let (name, value) = (NAME.into(), value.as_bytes().to_vec());
    MetaRequest::SetXattr { at: at(path), name, value, create: false, replace: false }
}

async fn set(root: &mut Peer<RealEnv>, path: &str, value: &str) -> Result<(), Errno> {
    done(root.change(set_request(path, value)).await)
}

async fn remove(root: &mut Peer<RealEnv>, path: &str) -> Result<(), Errno> {
    done(root.change(MetaRequest::RemoveXattr { at: at(path), name: NAME.into() }).await)
}

/// Opens a file with a requested layout.
async fn open_with(root: &mut Peer<RealEnv>, path: &str, layout: LayoutSpec) -> (HandleId, Opened) {
    root.next_handle += 1;
    let handle = HandleId(root.next_handle);
    let flags = CREATE;
    let request =
        MetaRequest::Open { at: at(path), flags, mode: 0o644, handle, layout, cache: false, ranks: None };
    (handle, opened(root.change(request).await).expect("opened"))
}

fn of_cap(opened: &Opened) -> Option<Compression> {
    opened.cap.expect("of a regular file").rights.compression()
}

#[test]
fn a_directory_passes_its_setting_on() {
    with(
        |_| (),
        async |mut root| {
            root.mkdir("d").await.expect("created");
            root.touch("d/before").await.expect("created");
            assert_eq!(get(&root, "d").await, Err(Errno::ENODATA));
            assert_eq!(get(&root, "d/before").await, Err(Errno::ENODATA));
            set(&mut root, "d", "zstd:3").await.expect("a directory");
            assert_eq!(get(&root, "d").await.as_deref(), Ok("zstd:3/64KiB"));
            root.mkdir("d/e").await.expect("created");
            let (_, opened) = root.open("d/e/f", CREATE).await.expect("created");
            assert_eq!(of_cap(&opened), compression("zstd:3"));
            assert_eq!(get(&root, "d/e/f").await.as_deref(), Ok("zstd:3/64KiB"));
            assert_eq!(get(&root, "d/before").await, Err(Errno::ENODATA), "made before");
            // Mode bits are shown without the setting, and a changed mode keeps it.
            assert_eq!(root.stat("d/e/f").await.expect("there").mode, 0o644);
            let chmod = SetAttr { mode: Some(0o600), ..SetAttr::default() };
            attr(root.change(MetaRequest::SetAttr { at: at("d/e/f"), set: chmod }).await).expect("changed");
            assert_eq!(get(&root, "d/e/f").await.as_deref(), Ok("zstd:3/64KiB"));
            // A directory below may have another setting, or explicitly none.
            set(&mut root, "d/e", "off").await.expect("a directory");
            let (_, opened) = root.open("d/e/plain", CREATE).await.expect("created");
            assert_eq!(of_cap(&opened), None);
            assert_eq!(get(&root, "d/e/plain").await.as_deref(), Ok("off"));
            remove(&mut root, "d").await.expect("a directory");
            root.touch("d/after").await.expect("created");
            assert_eq!(get(&root, "d/after").await, Err(Errno::ENODATA));
            root.gone().await;
        },
    );
}

#[test]
fn request_rule_directory_targets_and_cluster_decide_in_this_order() {
    with_default(async |mut root| {
        root.mkdir("d").await.expect("created");
        let (_, opened) = root.open("d/a", CREATE).await.expect("created");
        assert_eq!(of_cap(&opened), compression("lz4"), "hdd and ssd: the cluster's");
        let ssd = || LayoutSpec { class: Some("ssd".into()), ..LayoutSpec::default() };
        let (_, opened) = open_with(&mut root, "d/b", ssd()).await;
        assert_eq!(of_cap(&opened), None, "the targets'");
        set(&mut root, "d", "zstd").await.expect("a directory");
        let (_, opened) = open_with(&mut root, "d/c", ssd()).await;
        assert_eq!(of_cap(&opened), compression("zstd"), "the directory's");
        let rule = |pattern: &str, layout| Rule { pattern: pattern.parse().expect("a pattern"), layout };
        let add = vec![rule("*.txt", spec("zstd:9")), rule("*.log", ssd())];
        let request = MetaRequest::ChangeRules { at: at("d"), forget: RuleRemoval::Replaced, add };
        done(root.change(request).await).expect("set");
        let (_, opened) = root.open("d/d.txt", CREATE).await.expect("created");
        assert_eq!(of_cap(&opened), compression("zstd:9"), "the rule's");
        assert_eq!(opened.layout.expect("a file").objects().count(), 4, "the rule leaves the layout open");
        let (_, opened) = root.open("d/e.log", CREATE).await.expect("created");
        assert_eq!(of_cap(&opened), compression("zstd"), "the rule leaves the compression open");
        let (_, opened) = open_with(&mut root, "d/f.txt", spec("off")).await;
        assert_eq!(of_cap(&opened), None, "the request's");
        // The rules show it.
        let MetaReply::Rules(ruled) = root.ask(MetaRequest::Rules { at: at("d") }).await else {
            panic!("rules")
        };
        let shown: Vec<_> = ruled[0].rules.iter().map(|rule| rule.layout.compression).collect();
        assert_eq!(shown, ["zstd:9".parse().ok(), None]);
        let default = match root.ask(MetaRequest::GetLayout { at: at("d") }).await {
            MetaReply::Layout { default, .. } => default.expect("a setting"),
            other => panic!("{other:?}"),
        };
        assert_eq!(default, spec("zstd"));
        root.gone().await;
    });
}

#[test]
fn a_setting_survives_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("metadata");
    std::fs::create_dir(&path).expect("created");
    block_on(async {
        let service = start(&RealEnv::new(), config(path.clone()), &Removed::default()).await;
        let mut root = Peer::new(&service, 1, user(0));
        root.mkdir("d").await.expect("created");
        set(&mut root, "d", "auto/1MiB").await.expect("a directory");
        root.touch("d/f").await.expect("created");
        let pattern = "*.txt".parse().expect("a pattern");
        let add = vec![Rule { pattern, layout: spec("off") }];
        done(root.change(MetaRequest::ChangeRules { at: at("d"), forget: RuleRemoval::All, add }).await)
            .expect("set");
        root.gone().await;
        service.shutdown().await;
        let service = start(&RealEnv::new(), config(path), &Removed::default()).await;
        let mut root = Peer::new(&service, 2, user(0));
        assert_eq!(get(&root, "d").await.as_deref(), Ok("auto/1024KiB"));
        assert_eq!(get(&root, "d/f").await.as_deref(), Ok("auto/1024KiB"));
        root.touch("d/g.txt").await.expect("created");
        assert_eq!(get(&root, "d/g.txt").await.as_deref(), Ok("off"));
        root.gone().await;
        service.shutdown().await;
    });
}

#[test]
fn only_an_empty_file_or_a_directory_changes_its_setting() {
    with_default(async |mut root| {
        root.touch("f").await.expect("created");
        assert_eq!(get(&root, "f").await, Ok("lz4/64KiB".into()));
        let MetaReply::Failed(error) = root.change(set_request("f", "gzip")).await else { panic!("taken") };
        assert_eq!(error.errno, Errno::EINVAL);
        assert!(error.detail.contains("use off, lz4"), "{}", error.detail);
        root.touch("empty").await.expect("created");
        // `touch` opened the file for writing, so only its datafiles know whether it is empty.
        let made =
            root.change(MetaRequest::Mknod { at: at("new"), kind: FileType::Regular, mode: 0o644, rdev: 0 });
        attr(made.await).expect("created");
        set(&mut root, "new", "zstd").await.expect("never written");
        let (handle, opened) = root.open("new", WRITE).await.expect("there");
        assert_eq!(of_cap(&opened), compression("zstd"));
        let MetaReply::Failed(error) = root.change(set_request("new", "off")).await else { panic!("taken") };
        assert_eq!(error.errno, Errno::EBUSY);
        let end = ByteLen(9);
        let summary = WriteSummary { wrote: true, end, bytes: end, ..WriteSummary::default() };
        root.close(handle, summary).await.expect("open");
        let MetaReply::Failed(error) = root.change(set_request("new", "off")).await else { panic!("taken") };
        assert_eq!(error.errno, Errno::EEXIST);
        assert!(error.detail.contains("weft migrate --compress"), "{}", error.detail);
        // Without a setting, a file has the default.
        let made = root.change(MetaRequest::Mknod {
            at: at("again"),
            kind: FileType::Regular,
            mode: 0o644,
            rdev: 0,
        });
        attr(made.await).expect("created");
        set(&mut root, "again", "off").await.expect("never written");
        remove(&mut root, "again").await.expect("never written");
        assert_eq!(get(&root, "again").await, Ok("lz4/64KiB".into()));
        let link = MetaRequest::Symlink { at: at("link"), target: b"nowhere".to_vec() };
        attr(root.change(link).await).expect("created");
        let request = MetaRequest::SetXattr {
            at: link_at("link"),
            name: NAME.into(),
            value: b"lz4".to_vec(),
            create: false,
            replace: false,
        };
        assert_eq!(done(root.change(request).await), Err(Errno::EPERM));
        let mut other = Peer::new(&root.service, 2, user(1000));
        assert_eq!(set(&mut other, "new", "lz4").await, Err(Errno::EPERM), "not the owner");
        other.gone().await;
        root.gone().await;
    });
}

#[test]
fn the_stored_bytes_of_a_compressed_file_come_from_its_datafiles() {
    with(
        |_| (),
        async |mut root| {
            let (handle, opened) = open_with(&mut root, "f", spec("zstd")).await;
            let end = ByteLen(1 << 20);
            let summary = WriteSummary { wrote: true, end, bytes: end, ..WriteSummary::default() };
            root.close(handle, summary).await.expect("open");
            let collect = async |root: &Peer<RealEnv>, mtime: Timestamp| {
                let attr = root.stat("f").await.expect("there");
                let Some(invalid) = attr.invalid_size else { return false };
                assert_eq!(invalid.cap.rights.compression(), compression("zstd"));
                let lens = RecordedLens::new(vec![end]);
                let found = CollectedSize { size: end, blocks_512: 16, mtime: Some(mtime), lens };
                let (file, epoch, cap) = (attr.file, invalid.epoch, invalid.cap);
                done(root.ask(MetaRequest::ValidateSize { file, epoch, cap, found }).await)
                    .expect("its owner");
                true
            };
            // Its servers may still compress it.
            let now = RealEnv::new().wall();
            assert!(collect(&root, now).await, "the close estimates no stored bytes");
            assert!(collect(&root, Timestamp(now.0 - 1_000_000_000_000)).await, "it was just written");
            let attr = root.stat("f").await.expect("there");
            assert!(attr.invalid_size.is_none(), "nothing changes its stored bytes any more");
            assert_eq!((attr.size, attr.blocks_512), (end, 16));
            // A close without a write leaves it valid.
            let (handle, _) = root.open("f", WRITE).await.expect("there");
            root.close(handle, WriteSummary::default()).await.expect("open");
            assert!(root.stat("f").await.expect("there").invalid_size.is_none());
            assert_eq!(opened.attr.file, attr.file);
            root.gone().await;
        },
    );
}

fn moving(reply: MetaReply) -> Option<Moving> {
    match reply {
        MetaReply::Moving(moving) => Some(*moving),
        MetaReply::Done => None,
        other => panic!("{other:?}"),
    }
}

fn begin(path: &str, handle: HandleId, layout: LayoutSpec) -> MetaRequest {
    MetaRequest::BeginMove { at: at(path), handle, layout, dry_run: false }
}

#[test]
fn a_move_converts_a_file() {
    with(
        |_| (),
        async |mut root| {
            let (handle, opened) = root.open("f", CREATE).await.expect("created");
            let layout = opened.layout.expect("a file");
            root.close(handle, WriteSummary::default()).await.expect("open");
            let exactly = |setting: Option<&str>| {
                let compression = setting.map(|setting| setting.parse().expect("a setting"));
                LayoutSpec { compression, ..LayoutSpec::exactly(&layout) }
            };
            let rights = |cap: Capability| cap.rights.compression();
            // It has this layout, and it is plain.
            assert!(moving(root.change(begin("f", HandleId(900), exactly(None))).await).is_none());
            assert!(moving(root.change(begin("f", HandleId(900), exactly(Some("off")))).await).is_none());
            let first =
                moving(root.change(begin("f", HandleId(900), exactly(Some("lz4")))).await).expect("a move");
            assert_eq!((rights(first.from), rights(first.to)), (None, compression("lz4")));
            assert_eq!((&first.from_layout, &first.to_layout), (&layout, &layout));
            // A repeated request does not change the move; another mover that wants something else begins again.
            let again =
                moving(root.change(begin("f", HandleId(900), exactly(Some("lz4")))).await).expect("a move");
            assert_eq!(again.to.file, first.to.file);
            root.close(HandleId(900), WriteSummary::default()).await.expect("open");
            let next = moving(root.change(begin("f", HandleId(901), exactly(Some("zstd/16KiB")))).await)
                .expect("a move");
            assert_ne!(next.to.file, first.to.file);
            assert_eq!(rights(next.to), compression("zstd/16KiB"));
            let commit = async |root: &mut Peer<RealEnv>, handle: HandleId| {
                let over = moving(root.ask(MetaRequest::BeginCutover { handle }).await).expect("a move");
                let request = MetaRequest::CommitMove {
                    handle,
                    seal_s: over.seal_s,
                    size: ByteLen(0),
                    lens: RecordedLens::NONE,
                    copied: ByteLen(0),
                };
                done(root.change(request).await).expect("committed");
                root.close(handle, WriteSummary::default()).await.expect("open");
            };
            commit(&mut root, HandleId(901)).await;
            assert_eq!(get(&root, "f").await.as_deref(), Ok("zstd:1/16KiB"));
            let (handle, opened) = root.open("f", READ).await.expect("there");
            assert_eq!(of_cap(&opened), compression("zstd/16KiB"));
            assert_eq!(opened.cap.map(|cap| cap.file), Some(next.to.file));
            root.close(handle, WriteSummary::default()).await.expect("open");
            // A move to another layout keeps the compression.
            let one = LayoutSpec { stripe_count: Some(1), ..LayoutSpec::default() };
            let moved = moving(root.change(begin("f", HandleId(902), one)).await).expect("a move");
            assert_eq!(
                (rights(moved.from), rights(moved.to)),
                (compression("zstd/16KiB"), compression("zstd/16KiB"))
            );
            commit(&mut root, HandleId(902)).await;
            assert_eq!(get(&root, "f").await.as_deref(), Ok("zstd:1/16KiB"));
            assert_ne!(opened.attr.file, FileId(0));
            root.gone().await;
        },
    );
}
