//! Rules of directories against a naive walk, and space reservations against the sum over all layouts, including those
//! of moves in progress. Both with random operations, across restarts, and with a power failure at every sync.

use crate::meta_support::cuts::power_cut_at_every_sync;
use crate::meta_support::model::Rng;
use crate::meta_support::*;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use weft_core::{
    ByteLen, ClassLayout, ClassPart, FileId, FileOffset, Layout, Pattern, RecordedLens, TargetId,
    TargetSettings,
};
use weft_env::Env;
use weft_env::real::{RealEnv, block_on};
use weft_env::sim::SimEnv;
use weft_server::metadata::Config;
use weft_wire::Errno;
use weft_wire::meta::*;

const KIB: u64 = 1024;
/// Capacity of each of the two SSDs.
const CAPACITY: u64 = 300 * KIB;
/// Stripe sizes that identify the rule of a layout; the smallest is the cluster's.
const DEFAULT_TAG: u64 = 1 << 20;

fn pattern(text: &str) -> Pattern {
    text.parse().expect("a pattern")
}

/// Returns a layout that starts on both classes, up to a length that grows with the tag, and ends on HDDs with a stripe
/// size that encodes the tag.
fn by_class(tag: u64) -> LayoutSpec {
    let part = |end, stripes: &[(&str, u64)]| ClassPart {
        end,
        stripes: stripes.iter().map(|(class, size)| ((*class).to_owned(), ByteLen(*size))).collect(),
    };
    let end = FileOffset(tag * 24 * KIB);
    let parts = vec![part(Some(end), &[("hdd", KIB), ("ssd", 3 * KIB)]), part(None, &[("hdd", tag * 4096)])];
    LayoutSpec { by_class: Some(ClassLayout::new(parts).expect("a layout")), ..LayoutSpec::default() }
}

fn striped(tag: u64) -> LayoutSpec {
    LayoutSpec { stripe_size: Some(ByteLen(tag * 4096)), ..LayoutSpec::default() }
}

/// Returns the tag of the rule that a layout comes from.
fn tag_of(layout: &Layout) -> u64 {
    layout.components().last().expect("at least one").strips[0].stripe_size.0
}

fn change(path: &str, forget: RuleRemoval, add: Vec<Rule>) -> MetaRequest {
    MetaRequest::ChangeRules { at: at(path), forget, add }
}

fn rule(text: &str, layout: LayoutSpec) -> Rule {
    Rule { pattern: pattern(text), layout }
}

/// Settings of targets with these capacities.
fn capacities(capacities: &[(u32, u64)]) -> BTreeMap<TargetId, TargetSettings> {
    let settings = |capacity: u64| TargetSettings::with_capacity(ByteLen(capacity));
    capacities.iter().map(|(id, capacity)| (TargetId(*id), settings(*capacity))).collect()
}

fn limited(path: PathBuf) -> Config {
    let mut config = config(path);
    config.options.targets = capacities(&[(2, CAPACITY), (3, CAPACITY)]);
    config
}

/// Directories by path with their rules and, if `mkdir` created them, their files.
#[derive(Clone, Default, Debug, PartialEq)]
struct Model {
    dirs: BTreeMap<String, Vec<(String, u64)>>,
    files: BTreeMap<String, u64>,
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

impl Model {
    fn new() -> Self {
        Self { dirs: [(String::new(), Vec::new())].into(), ..Self::default() }
    }

    /// Returns the stripe size of a new file according to the documentation.
    fn tag(&self, path: &str) -> u64 {
        let mut dir = parent(path);
        loop {
            let below = path[dir.len()..].trim_start_matches('/');
            let rules = &self.dirs[dir];
            if let Some((_, tag)) = rules.iter().find(|(text, _)| pattern(text).matches(below.as_bytes())) {
                return tag * 4096;
            }
            if dir.is_empty() {
                return DEFAULT_TAG;
            }
            dir = parent(dir);
        }
    }

    fn renamed(&mut self, from: &str, to: &str) {
        let moved = |path: &String| match path.strip_prefix(from) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{to}{rest}"),
            _ => path.clone(),
        };
        self.dirs = self.dirs.iter().map(|(path, rules)| (moved(path), rules.clone())).collect();
        self.files = self.files.iter().map(|(path, tag)| (moved(path), *tag)).collect();
    }
}

/// Returns the next request and its expected result, and updates the model.
fn step(model: &mut Model, rng: &mut Rng, handle: HandleId) -> (MetaRequest, Result<(), Errno>) {
    let pick = |rng: &mut Rng, names: Vec<String>| names[rng.below(names.len() as u64) as usize].clone();
    let dir = pick(rng, model.dirs.keys().cloned().collect());
    let child = |dir: &str, name: String| if dir.is_empty() { name } else { format!("{dir}/{name}") };
    match rng.below(12) {
        0 | 1 => {
            let path = child(&dir, format!("d{}", rng.below(3)));
            let free = !model.dirs.contains_key(&path) && path.len() < 12;
            let deep = path.len() >= 12;
            if free {
                model.dirs.insert(path.clone(), Vec::new());
            }
            let path = if deep { dir } else { path };
            let answer = if free { Ok(()) } else { Err(Errno::EEXIST) };
            (MetaRequest::Mkdir { at: at(&path), mode: 0o755 }, answer)
        }
        2..=4 => {
            let tag = 1 + rng.below(9);
            let text = ["*.h5", "a{n}*", "/d1/*", "**/d?/a*", "*", "x.h5", "d0/**"][rng.below(7) as usize];
            let layout = if rng.below(3) == 0 { striped(tag) } else { by_class(tag) };
            let rules = model.dirs.get_mut(&dir).expect("picked");
            let all = rng.below(4) == 0;
            rules.retain(|(other, _)| !all && other != text);
            rules.insert(0, (text.to_owned(), tag));
            let forget = if all { RuleRemoval::All } else { RuleRemoval::Replaced };
            (change(&dir, forget, vec![rule(text, layout)]), Ok(()))
        }
        5 => {
            let rules = model.dirs.get_mut(&dir).expect("picked");
            match rules.pop() {
                Some((text, _)) => (change(&dir, RuleRemoval::These(vec![pattern(&text)]), vec![]), Ok(())),
                None => (change(&dir, RuleRemoval::These(vec![pattern("z")]), vec![]), Err(Errno::ENOENT)),
            }
        }
        6..=8 => {
            let name = ["a1.h5", "x.h5", "a22", "b", "c1"][rng.below(5) as usize].to_owned();
            let path = child(&dir, format!("{name}.{}", rng.below(3)));
            let path = if rng.below(2) == 0 { path.trim_end_matches(".0").to_owned() } else { path };
            if model.dirs.contains_key(&path) {
                return (open_request(&path, CREATE, 0o644, handle), Err(Errno::EISDIR));
            }
            if !model.files.contains_key(&path) {
                let tag = model.tag(&path);
                model.files.insert(path.clone(), tag);
            }
            (open_request(&path, CREATE, 0o644, handle), Ok(()))
        }
        9 | 10 if !model.files.is_empty() => {
            let path = pick(rng, model.files.keys().cloned().collect());
            model.files.remove(&path);
            (MetaRequest::Unlink { at: at(&path) }, Ok(()))
        }
        _ => {
            let free: Vec<String> = model.dirs.keys().filter(|dir| !dir.is_empty()).cloned().collect();
            let to = child(&dir, "m".to_owned());
            let taken = model.dirs.contains_key(&to) || model.files.contains_key(&to) || to.len() >= 12;
            let from = if free.is_empty() { None } else { Some(pick(rng, free)) };
            match from.filter(|from| !taken && !to.starts_with(&format!("{from}/")) && *from != to) {
                Some(from) => {
                    model.renamed(&from, &to);
                    (rename_request(&from, &to), Ok(()))
                }
                None => (MetaRequest::Stat { at: at(&dir) }, Ok(())),
            }
        }
    }
}

/// Starts to move a file to another layout, then aborts, abandons or commits the move. Calls `on_change` with the model
/// after the layout change: before the request, and again after its reply.
async fn move_one<E: Env>(
    peer: &mut Peer<E>,
    model: &mut Model,
    rng: &mut Rng,
    handle: HandleId,
    mut on_change: impl FnMut(Option<&Model>),
) {
    let Some(path) = model.files.keys().nth(rng.below(model.files.len().max(1) as u64) as usize).cloned()
    else {
        return;
    };
    let tag = 1 + rng.below(9);
    let layout = if rng.below(3) == 0 { striped(tag) } else { by_class(tag) };
    let request = MetaRequest::BeginMove { at: at(&path), handle, layout, dry_run: false };
    match peer.ask(request).await {
        MetaReply::Done => return, // the file already has that layout
        MetaReply::Moving(_) => {}
        other => panic!("{path}: {other:?}"),
    }
    match rng.below(4) {
        0 => {} // another session may resume it
        1 => done(peer.change(MetaRequest::AbortMove { at: at(&path) }).await).expect("a move"),
        _ => {
            let MetaReply::Moving(moving) = peer.ask(MetaRequest::BeginCutover { handle }).await else {
                panic!("{path}: not finished")
            };
            let size = peer.stat(&path).await.expect("exists").size;
            model.files.insert(path, tag * 4096);
            on_change(Some(model));
            let request = MetaRequest::CommitMove {
                handle,
                seal_s: moving.seal_s,
                size,
                lens: RecordedLens::NONE,
                copied: size,
            };
            done(peer.change(request).await).expect("in time");
            on_change(None);
        }
    }
    peer.close(handle, WriteSummary::default()).await.expect("open");
}

fn fine(reply: &MetaReply) -> Result<(), Errno> {
    match reply {
        MetaReply::Failed(error) => Err(error.errno),
        _ => Ok(()),
    }
}

impl<E: Env> Peer<E> {
    async fn layout(&self, path: &str) -> Layout {
        match self.ask(MetaRequest::GetLayout { at: at(path) }).await {
            MetaReply::Layout { layout: Some(layout), .. } => layout,
            other => panic!("{path}: {other:?}"),
        }
    }

    async fn rules_of(&self, path: &str) -> Vec<(String, u64)> {
        let MetaReply::Rules(ruled) = self.ask(MetaRequest::Rules { at: at(path) }).await else {
            panic!("no rules")
        };
        let own = self.stat(path).await.expect("exists").file;
        let own = ruled.into_iter().find(|ruled| ruled.directory == own);
        let tag = |rule: &Rule| match &rule.layout.by_class {
            Some(layout) => layout.parts().last().expect("one").stripes[0].1.0 / 4096,
            None => rule.layout.stripe_size.expect("set").0 / 4096,
        };
        let rules = own.map(|own| own.rules).unwrap_or_default();
        rules.iter().map(|rule| (rule.pattern.as_str().to_owned(), tag(rule))).collect()
    }

    /// Checks that namespace, rules and reservations are consistent. Reservations may exceed the layouts only by files
    /// that are being removed.
    async fn check(&self, note: &str) {
        assert_eq!(self.problems().await, Vec::<String>::new(), "{note}");
        for reservation in self.service.status().await.space_reservations {
            assert!(reservation.reserved <= reservation.capacity, "{note}: {reservation:?}");
        }
    }

    async fn as_modeled(&self, model: &Model, note: &str) {
        for (dir, rules) in &model.dirs {
            assert_eq!(self.rules_of(dir).await, *rules, "{note}: rules of {dir:?}");
        }
        for (path, tag) in &model.files {
            assert_eq!(tag_of(&self.layout(path).await), *tag, "{note}: {path} in {model:#?}");
        }
    }
}

#[test]
fn the_nearest_matching_rule_decides_as_in_a_naive_walk() {
    for seed in 0..12 {
        let dir = tempfile::tempdir().expect("a directory");
        block_on(async {
            let removed = Removed::default();
            let mut service = start(&RealEnv::new(), limited(dir.path().into()), &removed).await;
            let mut peer = Peer::new(&service, 1, user(0));
            let (mut model, mut rng, mut parts) = (Model::new(), Rng::new(seed), BTreeSet::new());
            for number in 0..400u64 {
                let note = format!("seed {seed}, step {number}");
                let (request, expected) = step(&mut model, &mut rng, HandleId(number));
                let reply = peer.change(request.clone()).await;
                assert_eq!(fine(&reply), expected, "{note}: {request:?}");
                if let MetaReply::Opened(opened) = reply {
                    let layout = opened.layout.expect("striped");
                    parts.insert(layout.components().len());
                    peer.close(HandleId(number), WriteSummary::default()).await.expect("open");
                }
                if number % 4 == 0 {
                    let handle = HandleId(10_000 + number);
                    move_one(&mut peer, &mut model, &mut rng, handle, |_| ()).await;
                }
                if number % 40 == 39 {
                    peer.as_modeled(&model, &note).await;
                    peer.check(&note).await;
                }
                if number == 200 {
                    peer.gone().await;
                    service.shutdown().await;
                    drop(service);
                    service = start(&RealEnv::new(), limited(dir.path().into()), &removed).await;
                    peer = Peer::new(&service, 1, user(0));
                    peer.seq = 2 * number + 10;
                }
            }
            assert_eq!(parts, BTreeSet::from([1, 2]), "files with and without a component on SSDs");
            peer.gone().await;
            service.shutdown().await;
        });
    }
}

fn sim_config() -> Config {
    let mut config = limited(PathBuf::from("/"));
    config.options.journal.log_len = ByteLen(6000);
    config
}

/// Model after each step, and number of steps with a reply.
type Progress = Arc<Mutex<(Vec<Model>, usize)>>;

async fn load(env: SimEnv, seed: u64, progress: Progress) {
    let service = start(&env, sim_config(), &Removed::default()).await;
    let mut peer = Peer::new(&service, 1, user(0));
    let (mut model, mut rng) = (Model::new(), Rng::new(seed));
    for number in 0..60 {
        let (request, expected) = step(&mut model, &mut rng, HandleId(number));
        progress.lock().0.push(model.clone());
        let reply = peer.change(request).await;
        assert_eq!(fine(&reply), expected, "seed {seed}");
        progress.lock().1 += 1;
        if let MetaReply::Opened(_) = reply {
            // The reaper removes inodes that may have datafiles.
            let end = ByteLen(1 + number % 2);
            let summary = WriteSummary { wrote: number % 2 == 0, end, ..WriteSummary::default() };
            peer.close(HandleId(number), summary).await.expect("open");
        }
        if number % 4 == 3 {
            let on_change = |now: Option<&Model>| match now {
                Some(model) => progress.lock().0.push(model.clone()),
                None => progress.lock().1 += 1,
            };
            move_one(&mut peer, &mut model, &mut rng, HandleId(10_000 + number), on_change).await;
        }
    }
    peer.gone().await;
    service.shutdown().await;
}

async fn look(env: SimEnv, progress: Progress, note: String) {
    let service = start(&env, sim_config(), &Removed::default()).await;
    let peer = Peer::new(&service, 9, user(0));
    let (states, answered) = progress.lock().clone();
    let mut fits = Vec::new();
    for done in [answered, answered + 1] {
        let model = match done.checked_sub(1) {
            None => Model::new(),
            Some(last) => match states.get(last) {
                Some(model) => model.clone(),
                None => continue,
            },
        };
        let mut same = true;
        for (dir, rules) in &model.dirs {
            same &= peer.stat(dir).await.is_ok() && peer.rules_of(dir).await == *rules;
        }
        for (path, tag) in &model.files {
            same &= peer.stat(path).await.is_ok() && tag_of(&peer.layout(path).await) == *tag;
        }
        fits.push(same);
    }
    assert!(fits.contains(&true), "{note}: neither the acknowledged state nor the next one");
    peer.check(&note).await;
    peer.gone().await;
    service.shutdown().await;
}

#[test]
fn power_cut_at_every_sync_keeps_rules_and_exact_reservations() {
    let cuts = power_cut_at_every_sync(Progress::default, load, look);
    assert!(cuts > 200, "{cuts} cuts are too few to be significant");
}

fn with_limits(test: impl AsyncFnOnce(Peer<RealEnv>, &std::path::Path)) {
    let dir = tempfile::tempdir().expect("a directory");
    block_on(async {
        let service = start(&RealEnv::new(), limited(dir.path().into()), &Removed::default()).await;
        test(Peer::new(&service, 1, user(0)), dir.path()).await;
        service.shutdown().await;
    });
}

fn reserved(layout: &Layout) -> BTreeMap<u32, u64> {
    let ssd = |(target, bytes): (TargetId, ByteLen)| (target.0 >= 2).then_some((target.0, bytes.0));
    layout.space_reservations().into_iter().filter_map(ssd).collect()
}

#[test]
fn exhausted_capacity_limits_later_files_until_space_is_released() {
    with_limits(async |mut root, _| {
        root.mkdir("d").await.expect("created");
        // 240 KiB per file: 90 KiB on each SSD.
        let layout = by_class(10);
        done(root.change(change("d", RuleRemoval::Replaced, vec![rule("*", layout.clone())])).await)
            .expect("set");
        let mut made = Vec::new();
        for n in 0..5 {
            let path = format!("d/f{n}");
            root.touch(&path).await.expect("created");
            made.push(reserved(&root.layout(&path).await).values().copied().max().unwrap_or(0));
        }
        // 8 KiB a round: 30 rounds a file. 300 KiB hold three whole files, ten rounds of the fourth, and nothing more.
        assert_eq!(made, [90 * KIB, 90 * KIB, 90 * KIB, 30 * KIB, 0]);
        let reservations = root.service.status().await.space_reservations;
        assert!(
            reservations
                .iter()
                .all(|reservation| reservation.reserved.0 == CAPACITY && reservation.capacity.0 == CAPACITY),
            "{reservations:?}"
        );
        // A layout with explicit targets is rejected with a reason and a remedy.
        let exactly = LayoutSpec::exactly(&root.layout("d/f0").await);
        let set = |path: &str, spec: &LayoutSpec| MetaRequest::SetLayout { at: at(path), spec: spec.clone() };
        let MetaReply::Failed(error) = root.change(set("d/f4", &exactly)).await else { panic!("taken") };
        assert_eq!(error.errno, Errno::ENOSPC);
        assert!(
            error.detail.contains("target ") && error.detail.contains("cluster file"),
            "{}",
            error.detail
        );
        assert_eq!(reserved(&root.layout("d/f4").await), BTreeMap::new(), "as before");
        // The file has never been written: its reservation is released at once.
        root.unlink("d/f1").await.expect("exists");
        done(root.change(set("d/f4", &exactly)).await).expect("space again");
        // Another layout releases the old reservation; a plain layout reserves nothing.
        done(root.change(set("d/f0", &striped(3))).await).expect("never written");
        root.touch("d/f5").await.expect("created");
        assert_eq!(reserved(&root.layout("d/f5").await).values().copied().max(), Some(90 * KIB));
        root.check("at the end").await;
        root.gone().await;
    });
}

#[test]
fn the_reservation_of_a_file_is_released_with_its_datafiles() {
    with_limits(async |mut root, _| {
        done(root.change(change("", RuleRemoval::Replaced, vec![rule("*", by_class(10))])).await)
            .expect("set");
        let (handle, _) = root.open("f", CREATE).await.expect("created");
        let end = ByteLen(9);
        let summary = WriteSummary { wrote: true, end, bytes: end, ..WriteSummary::default() };
        root.close(handle, summary).await.expect("open");
        let reserved =
            async |root: &Peer<RealEnv>| root.service.status().await.space_reservations[0].reserved.0;
        // A file cut to length zero keeps its layout and may grow again.
        let (handle, opened) = root.open("f", OpenFlags { truncate: true, ..WRITE }).await.expect("exists");
        assert!(opened.must_truncate);
        root.close(handle, WriteSummary::default()).await.expect("open");
        assert_eq!(reserved(&root).await, 90 * KIB);
        root.unlink("f").await.expect("exists");
        // The reservation is complete until the reaper is done, then zero.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            let status = root.service.status().await;
            match (status.space_reservations[0].reserved.0, status.reaping) {
                (0, 0) => break,
                (reserved, _) => assert!([0, 90 * KIB].contains(&reserved), "{reserved}"),
            }
            assert!(std::time::Instant::now() < until, "{status:?}");
            std::thread::yield_now();
        }
        root.gone().await;
    });
}

#[test]
fn a_new_limit_counts_existing_layouts_and_a_removed_one_is_forgotten() {
    let dir = tempfile::tempdir().expect("a directory");
    block_on(async {
        let begin = async |limits: &[(u32, u64)]| {
            let mut config = config(dir.path().into());
            config.options.targets = capacities(limits);
            start(&RealEnv::new(), config, &Removed::default()).await
        };
        let service = begin(&[]).await;
        let mut root = Peer::new(&service, 1, user(0));
        done(root.change(change("", RuleRemoval::Replaced, vec![rule("*", by_class(10))])).await)
            .expect("set");
        root.touch("f").await.expect("created");
        assert_eq!(service.status().await.space_reservations, []);
        root.gone().await;
        service.shutdown().await;
        let service = begin(&[(2, 100 * KIB), (3, 10 * KIB)]).await;
        let reserved: Vec<u64> = service
            .status()
            .await
            .space_reservations
            .iter()
            .map(|reservation| reservation.reserved.0)
            .collect();
        assert_eq!(reserved, [90 * KIB; 2]);
        // More is reserved than available: nothing is left, and the rest does not become negative.
        let mut root = Peer::new(&service, 1, user(0));
        root.seq = 100;
        root.touch("g").await.expect("created");
        assert_eq!(reserved_by(&root, "g").await, [(2, 9 * KIB)].into());
        root.check_account().await;
        root.gone().await;
        service.shutdown().await;
        let service = begin(&[(3, 1 << 20)]).await;
        let reservations = service.status().await.space_reservations;
        assert_eq!(
            reservations,
            [SpaceReservation {
                target: TargetId(3),
                capacity: ByteLen(1 << 20),
                reserved: ByteLen(90 * KIB)
            }]
        );
        service.shutdown().await;
    });
}

#[test]
fn a_changed_limit_applies_from_the_next_start_and_keeps_reservations() {
    let dir = tempfile::tempdir().expect("a directory");
    block_on(async {
        let begin = async |capacity: u64| {
            let mut config = config(dir.path().into());
            config.options.targets = capacities(&[(2, capacity), (3, capacity)]);
            start(&RealEnv::new(), config, &Removed::default()).await
        };
        let mut made = 0;
        // A file reserves 90 KiB; with a lower capacity less, and below the reserved space nothing.
        for (capacity, reservations) in [(100, [90, 9]), (280, [90, 90]), (120, [0, 0]), (300, [21, 0])] {
            let service = begin(capacity * KIB).await;
            let mut root = Peer::new(&service, 1 + u128::from(capacity), user(0));
            if made == 0 {
                done(root.change(change("", RuleRemoval::Replaced, vec![rule("*", by_class(10))])).await)
                    .expect("set");
            }
            for reserved in reservations {
                made += 1;
                let path = format!("f{made}");
                root.touch(&path).await.expect("created");
                let found = reserved_by(&root, &path).await.get(&2).copied().unwrap_or(0);
                assert_eq!(found, reserved * KIB, "{path}, capacity {capacity} KiB");
            }
            if capacity == 300 {
                // Space reserved under the old limit is released under the new one.
                root.unlink("f1").await.expect("exists");
                root.touch("g").await.expect("created");
                assert_eq!(reserved_by(&root, "g").await.get(&2), Some(&(90 * KIB)));
            }
            root.check_account().await;
            root.gone().await;
            service.shutdown().await;
        }
    });
}

#[test]
fn owners_and_root_list_moves_in_pages() {
    with_limits(async |mut root, _| {
        let moves = async |peer: &Peer<RealEnv>, after| match peer.ask(MetaRequest::Moves { after }).await {
            MetaReply::Moves { moves, more } => (moves, more),
            other => panic!("{other:?}"),
        };
        let count = MOVES_MAX as u64 + 3;
        let mut other = Peer::new(&root.service, 2, user(7));
        let open = SetAttr { mode: Some(0o777), ..SetAttr::default() };
        let reply = root.change(MetaRequest::SetAttr { at: at(""), set: open }).await;
        assert!(matches!(reply, MetaReply::Attr(_)), "{reply:?}");
        for n in 0..count {
            let peer = if n == 1 { &mut other } else { &mut root };
            let path = format!("f{n}");
            peer.touch(&path).await.expect("created");
            let handle = HandleId(1000 + n);
            let request =
                MetaRequest::BeginMove { at: at(&path), handle, layout: striped(3), dry_run: false };
            assert!(matches!(peer.ask(request).await, MetaReply::Moving(_)));
        }
        let (first, more) = moves(&root, FileId(0)).await;
        assert_eq!(first.len(), MOVES_MAX);
        let (second, end) = moves(&root, more.expect("more")).await;
        assert_eq!((second.len() as u64, end), (3, None));
        let paths: Vec<_> = first.iter().chain(&second).map(|state| state.path.clone()).collect();
        assert_eq!(paths, (0..count).map(|n| format!("f{n}").into_bytes()).collect::<Vec<_>>());
        let (own, _) = moves(&other, FileId(0)).await;
        assert_eq!(own.iter().map(|state| &state.path[..]).collect::<Vec<_>>(), [b"f1"]);
        // The mover's progress report is visible to others.
        let progress = (ByteLen(77), ByteLen(5));
        let on = MetaRequest::RenewMove {
            handle: HandleId(1001),
            copied: ByteLen(0),
            done: progress.0,
            left: progress.1,
        };
        assert!(matches!(other.ask(on).await, MetaReply::Moving(_)));
        let mover = moves(&other, FileId(0)).await.0[0].mover.expect("at it");
        assert_eq!((mover.done, mover.left), progress);
        assert!(mover.reported >= mover.since);
        other.gone().await;
        let left = moves(&root, FileId(0)).await.0;
        assert!(left[1].mover.is_none() && left[0].mover.is_some(), "a session that has ended moves nothing");
        root.gone().await;
    });
}

async fn reserved_by(root: &Peer<RealEnv>, path: &str) -> BTreeMap<u32, u64> {
    reserved(&root.layout(path).await)
}

impl Peer<RealEnv> {
    async fn check_account(&self) {
        assert_eq!(self.problems().await, Vec::<String>::new());
    }
}

#[test]
fn only_owners_change_rules_and_impossible_rules_are_rejected() {
    with_limits(async |mut root, _| {
        root.mkdir("d").await.expect("created");
        root.touch("f").await.expect("created");
        let mut other = Peer::new(&root.service, 2, user(7));
        let one = || vec![rule("*", striped(2))];
        assert_eq!(done(other.change(change("d", RuleRemoval::Replaced, one())).await), Err(Errno::EPERM));
        assert_eq!(done(root.change(change("f", RuleRemoval::Replaced, one())).await), Err(Errno::ENOTDIR));
        let tape = LayoutSpec { class: Some("tape".into()), ..LayoutSpec::default() };
        let MetaReply::Failed(error) =
            root.change(change("d", RuleRemoval::All, vec![rule("*.h5", tape)])).await
        else {
            panic!("taken")
        };
        assert_eq!(error.errno, Errno::EINVAL);
        assert!(error.detail.contains("rule *.h5") && error.detail.contains("hdd, ssd"), "{}", error.detail);
        let many = (0..RULES_MAX).map(|n| rule(&format!("f{n}"), striped(1))).collect();
        done(root.change(change("d", RuleRemoval::Replaced, many)).await).expect("the maximum number");
        assert_eq!(done(root.change(change("d", RuleRemoval::Replaced, one())).await), Err(Errno::ENOSPC));
        let by_class = LayoutSpec { ..by_class(1) };
        let set = MetaRequest::SetLayout { at: at("d"), spec: by_class };
        assert_eq!(done(root.change(set).await), Err(Errno::EINVAL), "a rule instead");
        // Rules are removed with their directory.
        root.rmdir("d").await.expect("empty");
        root.mkdir("d").await.expect("created");
        assert_eq!(root.rules_of("d").await, []);
        root.check("at the end").await;
        other.gone().await;
        root.gone().await;
    });
}

#[test]
fn explicit_layouts_precede_rules_and_rules_precede_defaults() {
    with_limits(async |mut root, _| {
        root.mkdir("d").await.expect("created");
        let set = MetaRequest::SetLayout { at: at("d"), spec: striped(5) };
        done(root.change(set).await).expect("set");
        root.mkdir("d/e").await.expect("created");
        done(root.change(change("d", RuleRemoval::Replaced, vec![rule("*.h5", by_class(2))])).await)
            .expect("set");
        root.touch("d/e/a").await.expect("created");
        root.touch("d/e/a.h5").await.expect("created");
        assert_eq!(tag_of(&root.layout("d/e/a").await), 5 * 4096, "no rule matches");
        assert_eq!(tag_of(&root.layout("d/e/a.h5").await), 2 * 4096, "in a directory that already existed");
        let request = MetaRequest::Open {
            at: at("d/e/b.h5"),
            flags: CREATE,
            mode: 0o644,
            handle: HandleId(999),
            layout: striped(7),
            cache: false,
            ranks: None,
        };
        let opened = opened(root.change(request).await).expect("created");
        let layout = opened.layout.expect("striped");
        assert_eq!((tag_of(&layout), layout.components().len()), (7 * 4096, 1));
        let mknod = MetaRequest::Mknod { at: at("d/n.h5"), kind: FileType::Regular, mode: 0o644, rdev: 0 };
        attr(root.change(mknod).await).expect("created");
        assert_eq!(tag_of(&root.layout("d/n.h5").await), 2 * 4096);
        assert_ne!(opened.attr.file, FileId(0));
        root.gone().await;
    });
}
