//! Rules of directories against a naive walk, and the account of room against what all layouts promise, also those of files
//! that are being moved: at random, over restarts, and with the power cut at every sync.

mod meta_support;

use meta_support::cuts::power_cut_at_every_sync;
use meta_support::model::rand_like::Rng;
use meta_support::*;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use weft_core::{
    ByteLen, ClassLayout, ClassPart, FileId, FileOffset, Layout, Pattern, RecordedLens, TargetId,
};
use weft_env::Env;
use weft_env::real::{RealEnv, block_on};
use weft_env::sim::SimEnv;
use weft_server::metadata::Config;
use weft_wire::Errno;
use weft_wire::meta::*;

const KIB: u64 = 1024;
/// Room of each of the two SSDs.
const ROOM: u64 = 300 * KIB;
/// Stripes by which a rule is known again; the first is the cluster's.
const DEFAULT_TAG: u64 = 1 << 20;

fn pattern(text: &str) -> Pattern {
    text.parse().expect("a pattern")
}

/// A layout that begins on both classes, up to a length that grows with the tag, and ends on HDDs with a stripe that tells it.
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

/// Which rule a layout comes from.
fn tag_of(layout: &Layout) -> u64 {
    layout.components().last().expect("one at least").strips[0].stripe_size.0
}

fn change(path: &str, forget: Forget, add: Vec<Rule>) -> MetaRequest {
    MetaRequest::ChangeRules { at: at(path), forget, add }
}

fn rule(text: &str, layout: LayoutSpec) -> Rule {
    Rule { pattern: pattern(text), layout }
}

fn limited(path: PathBuf) -> Config {
    let mut config = config(path);
    config.options.rooms = [(TargetId(2), ByteLen(ROOM)), (TargetId(3), ByteLen(ROOM))].into();
    config
}

/// Directories by their paths with their rules and, for those that were made by `mkdir`, their files.
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

    /// The stripe of a new file, straight from what is documented.
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

/// What is done next, with the model as it is then; the request's answer is known.
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
            let forget = if all { Forget::All } else { Forget::Replaced };
            (change(&dir, forget, vec![rule(text, layout)]), Ok(()))
        }
        5 => {
            let rules = model.dirs.get_mut(&dir).expect("picked");
            match rules.pop() {
                Some((text, _)) => (change(&dir, Forget::These(vec![pattern(&text)]), vec![]), Ok(())),
                None => (change(&dir, Forget::These(vec![pattern("z")]), vec![]), Err(Errno::ENOENT)),
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

/// Begins to move a file to another layout, and gives it up, leaves it, or ends it. `told` sees the model as it is once the
/// file has its new layout, before that is asked for, and then that it was answered.
async fn move_one<E: Env>(
    peer: &mut Peer<E>,
    model: &mut Model,
    rng: &mut Rng,
    handle: HandleId,
    mut told: impl FnMut(Option<&Model>),
) {
    let Some(path) = model.files.keys().nth(rng.below(model.files.len().max(1) as u64) as usize).cloned()
    else {
        return;
    };
    let tag = 1 + rng.below(9);
    let layout = if rng.below(3) == 0 { striped(tag) } else { by_class(tag) };
    let request = MetaRequest::Move { at: at(&path), handle, layout, only_tell: false };
    match peer.ask(request).await {
        MetaReply::Done => return, // it has that layout
        MetaReply::Moving(_) => {}
        other => panic!("{path}: {other:?}"),
    }
    match rng.below(4) {
        0 => {} // somebody may go on with it
        1 => done(peer.change(MetaRequest::MoveNot { at: at(&path) }).await).expect("a move"),
        _ => {
            let MetaReply::Moving(moving) = peer.ask(MetaRequest::MoveOver { handle }).await else {
                panic!("{path}: not over")
            };
            let size = peer.stat(&path).await.expect("there").size;
            model.files.insert(path, tag * 4096);
            told(Some(model));
            let request =
                MetaRequest::Moved { handle, seal_s: moving.seal_s, size, lens: RecordedLens::NONE };
            done(peer.change(request).await).expect("in time");
            told(None);
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
        let own = self.stat(path).await.expect("there").file;
        let own = ruled.into_iter().find(|ruled| ruled.directory == own);
        let tag = |rule: &Rule| match &rule.layout.by_class {
            Some(layout) => layout.parts().last().expect("one").stripes[0].1.0 / 4096,
            None => rule.layout.stripe_size.expect("set").0 / 4096,
        };
        let rules = own.map(|own| own.rules).unwrap_or_default();
        rules.iter().map(|rule| (rule.pattern.as_str().to_owned(), tag(rule))).collect()
    }

    /// That namespace, rules and account agree with themselves; the account may be behind only by what is being removed.
    async fn check(&self, note: &str) {
        let MetaReply::Checked(report) = self.ask(MetaRequest::CheckNamespace { repair: false }).await else {
            panic!("no report")
        };
        assert_eq!(report.problems, Vec::<String>::new(), "{note}");
        for room in self.service.status().await.rooms {
            assert!(room.promised <= room.room, "{note}: {room:?}");
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
fn the_nearest_rule_that_fits_decides_as_by_a_naive_walk() {
    for seed in 0..12 {
        let dir = tempfile::tempdir().expect("a directory");
        block_on(async {
            let removed = Removed::default();
            let mut service = start(&RealEnv::new(), limited(dir.path().into()), &removed).await;
            let mut peer = Peer::new(&service, 1, user(0));
            let (mut model, mut rng, mut parts) = (Model::new(), Rng(seed), BTreeSet::new());
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
            assert_eq!(parts, BTreeSet::from([1, 2]), "files with and without a part on SSDs");
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

/// The model after each step, and how many were answered.
type Progress = Arc<Mutex<(Vec<Model>, usize)>>;

async fn load(env: SimEnv, seed: u64, progress: Progress) {
    let service = start(&env, sim_config(), &Removed::default()).await;
    let mut peer = Peer::new(&service, 1, user(0));
    let (mut model, mut rng) = (Model::new(), Rng(seed));
    for number in 0..60 {
        let (request, expected) = step(&mut model, &mut rng, HandleId(number));
        progress.lock().0.push(model.clone());
        let reply = peer.change(request).await;
        assert_eq!(fine(&reply), expected, "seed {seed}");
        progress.lock().1 += 1;
        if let MetaReply::Opened(_) = reply {
            // What may have datafiles is removed by way of the reaper.
            let end = ByteLen(1 + number % 2);
            let summary = WriteSummary { wrote: number % 2 == 0, end, ..WriteSummary::default() };
            peer.close(HandleId(number), summary).await.expect("open");
        }
        if number % 4 == 3 {
            let told = |now: Option<&Model>| match now {
                Some(model) => progress.lock().0.push(model.clone()),
                None => progress.lock().1 += 1,
            };
            move_one(&mut peer, &mut model, &mut rng, HandleId(10_000 + number), told).await;
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
    assert!(fits.contains(&true), "{note}: neither what was answered nor one step more");
    peer.check(&note).await;
    peer.gone().await;
    service.shutdown().await;
}

#[test]
fn power_cut_at_every_sync_keeps_rules_and_an_exact_account() {
    let cuts = power_cut_at_every_sync(Progress::default, load, look);
    assert!(cuts > 200, "{cuts} cuts are too few to mean something");
}

fn with_limits(test: impl AsyncFnOnce(Peer<RealEnv>, &std::path::Path)) {
    let dir = tempfile::tempdir().expect("a directory");
    block_on(async {
        let service = start(&RealEnv::new(), limited(dir.path().into()), &Removed::default()).await;
        test(Peer::new(&service, 1, user(0)), dir.path()).await;
        service.shutdown().await;
    });
}

fn promised(layout: &Layout) -> BTreeMap<u32, u64> {
    let ssd = |(target, bytes): (TargetId, ByteLen)| (target.0 >= 2).then_some((target.0, bytes.0));
    layout.promises().into_iter().filter_map(ssd).collect()
}

#[test]
fn where_room_runs_out_later_files_get_less_and_what_is_given_back_is_there_again() {
    with_limits(async |mut root, _| {
        root.mkdir("d").await.expect("made");
        // 240 KiB a file: 90 KiB on each SSD.
        let layout = by_class(10);
        done(root.change(change("d", Forget::Replaced, vec![rule("*", layout.clone())])).await).expect("set");
        let mut made = Vec::new();
        for n in 0..5 {
            let path = format!("d/f{n}");
            root.touch(&path).await.expect("made");
            made.push(promised(&root.layout(&path).await).values().copied().max().unwrap_or(0));
        }
        // 8 KiB a round: 30 rounds a file. 300 KiB hold three whole ones, ten rounds of the fourth, and nothing more.
        assert_eq!(made, [90 * KIB, 90 * KIB, 90 * KIB, 30 * KIB, 0]);
        let rooms = root.service.status().await.rooms;
        assert!(rooms.iter().all(|room| room.promised.0 == ROOM && room.room.0 == ROOM), "{rooms:?}");
        // What names the targets itself is refused, and told where and what to do.
        let exactly = LayoutSpec::exactly(&root.layout("d/f0").await);
        let set = |path: &str, spec: &LayoutSpec| MetaRequest::SetLayout { at: at(path), spec: spec.clone() };
        let MetaReply::Failed(error) = root.change(set("d/f4", &exactly)).await else { panic!("taken") };
        assert_eq!(error.errno, Errno::ENOSPC);
        assert!(
            error.detail.contains("target ") && error.detail.contains("cluster file"),
            "{}",
            error.detail
        );
        assert_eq!(promised(&root.layout("d/f4").await), BTreeMap::new(), "as before");
        // Nobody wrote the file: its room is there at once.
        root.unlink("d/f1").await.expect("there");
        done(root.change(set("d/f4", &exactly)).await).expect("room again");
        // Another layout gives the old one's room back; a plain one promises nothing.
        done(root.change(set("d/f0", &striped(3))).await).expect("never written");
        root.touch("d/f5").await.expect("made");
        assert_eq!(promised(&root.layout("d/f5").await).values().copied().max(), Some(90 * KIB));
        root.check("in the end").await;
        root.gone().await;
    });
}

#[test]
fn room_of_a_file_with_datafiles_is_given_back_when_they_are_gone() {
    with_limits(async |mut root, _| {
        done(root.change(change("", Forget::Replaced, vec![rule("*", by_class(10))])).await).expect("set");
        let (handle, _) = root.open("f", CREATE).await.expect("made");
        let end = ByteLen(9);
        let summary = WriteSummary { wrote: true, end, bytes: end, ..WriteSummary::default() };
        root.close(handle, summary).await.expect("open");
        let promised = async |root: &Peer<RealEnv>| root.service.status().await.rooms[0].promised.0;
        // Cut to nothing it has its layout still, and may grow again.
        let (handle, opened) = root.open("f", OpenFlags { truncate: true, ..WRITE }).await.expect("there");
        assert!(opened.must_truncate);
        root.close(handle, WriteSummary::default()).await.expect("open");
        assert_eq!(promised(&root).await, 90 * KIB);
        root.unlink("f").await.expect("there");
        // All or nothing, and nothing once the reaper is done.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            let status = root.service.status().await;
            match (status.rooms[0].promised.0, status.reaping) {
                (0, 0) => break,
                (promised, _) => assert!([0, 90 * KIB].contains(&promised), "{promised}"),
            }
            assert!(std::time::Instant::now() < until, "{status:?}");
            std::thread::yield_now();
        }
        root.gone().await;
    });
}

#[test]
fn a_limit_that_comes_later_is_counted_and_one_that_goes_is_forgotten() {
    let dir = tempfile::tempdir().expect("a directory");
    block_on(async {
        let begin = async |rooms: &[(u32, u64)]| {
            let mut config = config(dir.path().into());
            config.options.rooms = rooms.iter().map(|(id, room)| (TargetId(*id), ByteLen(*room))).collect();
            start(&RealEnv::new(), config, &Removed::default()).await
        };
        let service = begin(&[]).await;
        let mut root = Peer::new(&service, 1, user(0));
        done(root.change(change("", Forget::Replaced, vec![rule("*", by_class(10))])).await).expect("set");
        root.touch("f").await.expect("made");
        assert_eq!(service.status().await.rooms, []);
        root.gone().await;
        service.shutdown().await;
        let service = begin(&[(2, 100 * KIB), (3, 10 * KIB)]).await;
        let promised: Vec<u64> = service.status().await.rooms.iter().map(|room| room.promised.0).collect();
        assert_eq!(promised, [90 * KIB; 2]);
        // More is promised than there is: nothing is left, and nothing goes below zero.
        let mut root = Peer::new(&service, 1, user(0));
        root.seq = 100;
        root.touch("g").await.expect("made");
        assert_eq!(super_promises(&root, "g").await, [(2, 9 * KIB)].into());
        root.check_account().await;
        root.gone().await;
        service.shutdown().await;
        let service = begin(&[(3, 1 << 20)]).await;
        let rooms = service.status().await.rooms;
        assert_eq!(
            rooms,
            [TargetRoom { target: TargetId(3), room: ByteLen(1 << 20), promised: ByteLen(90 * KIB) }]
        );
        service.shutdown().await;
    });
}

#[test]
fn a_limit_of_another_size_holds_from_the_next_start_on_with_the_account_as_it_was() {
    let dir = tempfile::tempdir().expect("a directory");
    block_on(async {
        let begin = async |room: u64| {
            let mut config = config(dir.path().into());
            config.options.rooms = [(TargetId(2), ByteLen(room)), (TargetId(3), ByteLen(room))].into();
            start(&RealEnv::new(), config, &Removed::default()).await
        };
        let mut made = 0;
        // A file promises 90 KiB; with less room, less, and with less than is promised, nothing.
        for (room, promises) in [(100, [90, 9]), (280, [90, 90]), (120, [0, 0]), (300, [21, 0])] {
            let service = begin(room * KIB).await;
            let mut root = Peer::new(&service, 1 + u128::from(room), user(0));
            if made == 0 {
                done(root.change(change("", Forget::Replaced, vec![rule("*", by_class(10))])).await)
                    .expect("set");
            }
            for promised in promises {
                made += 1;
                let path = format!("f{made}");
                root.touch(&path).await.expect("made");
                let found = super_promises(&root, &path).await.get(&2).copied().unwrap_or(0);
                assert_eq!(found, promised * KIB, "{path}, {room} KiB of room");
            }
            if room == 300 {
                // What was taken under the old limit is given back under the new one.
                root.unlink("f1").await.expect("there");
                root.touch("g").await.expect("made");
                assert_eq!(super_promises(&root, "g").await.get(&2), Some(&(90 * KIB)));
            }
            root.check_account().await;
            root.gone().await;
            service.shutdown().await;
        }
    });
}

#[test]
fn moves_are_told_to_who_owns_the_file_and_to_root_in_pages() {
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
            peer.touch(&path).await.expect("made");
            let handle = HandleId(1000 + n);
            let request = MetaRequest::Move { at: at(&path), handle, layout: striped(3), only_tell: false };
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
        // What the mover tells is told on.
        let told = (ByteLen(77), ByteLen(5));
        let on =
            MetaRequest::MoveOn { handle: HandleId(1001), copied: ByteLen(0), done: told.0, left: told.1 };
        assert!(matches!(other.ask(on).await, MetaReply::Moving(_)));
        let mover = moves(&other, FileId(0)).await.0[0].mover.expect("at it");
        assert_eq!((mover.done, mover.left), told);
        assert!(mover.told >= mover.since);
        other.gone().await;
        let left = moves(&root, FileId(0)).await.0;
        assert!(left[1].mover.is_none() && left[0].mover.is_some(), "who has ended moves nothing");
        root.gone().await;
    });
}

async fn super_promises(root: &Peer<RealEnv>, path: &str) -> BTreeMap<u32, u64> {
    promised(&root.layout(path).await)
}

impl Peer<RealEnv> {
    async fn check_account(&self) {
        let MetaReply::Checked(report) = self.ask(MetaRequest::CheckNamespace { repair: false }).await else {
            panic!("no report")
        };
        assert_eq!(report.problems, Vec::<String>::new());
    }
}

#[test]
fn rules_are_their_directory_s_owner_s_and_refused_where_they_could_not_be_followed() {
    with_limits(async |mut root, _| {
        root.mkdir("d").await.expect("made");
        root.touch("f").await.expect("made");
        let mut other = Peer::new(&root.service, 2, user(7));
        let one = || vec![rule("*", striped(2))];
        assert_eq!(done(other.change(change("d", Forget::Replaced, one())).await), Err(Errno::EPERM));
        assert_eq!(done(root.change(change("f", Forget::Replaced, one())).await), Err(Errno::ENOTDIR));
        let tape = LayoutSpec { class: Some("tape".into()), ..LayoutSpec::default() };
        let MetaReply::Failed(error) = root.change(change("d", Forget::All, vec![rule("*.h5", tape)])).await
        else {
            panic!("taken")
        };
        assert_eq!(error.errno, Errno::EINVAL);
        assert!(error.detail.contains("rule *.h5") && error.detail.contains("hdd, ssd"), "{}", error.detail);
        let many = (0..RULES_MAX).map(|n| rule(&format!("f{n}"), striped(1))).collect();
        done(root.change(change("d", Forget::Replaced, many)).await).expect("as many as there may be");
        assert_eq!(done(root.change(change("d", Forget::Replaced, one())).await), Err(Errno::ENOSPC));
        let by_class = LayoutSpec { ..by_class(1) };
        let set = MetaRequest::SetLayout { at: at("d"), spec: by_class };
        assert_eq!(done(root.change(set).await), Err(Errno::EINVAL), "a rule instead");
        // Gone with their directory.
        root.rmdir("d").await.expect("empty");
        root.mkdir("d").await.expect("made");
        assert_eq!(root.rules_of("d").await, []);
        root.check("in the end").await;
        other.gone().await;
        root.gone().await;
    });
}

#[test]
fn a_wish_goes_before_rules_and_rules_before_a_directory_s_default() {
    with_limits(async |mut root, _| {
        root.mkdir("d").await.expect("made");
        let set = MetaRequest::SetLayout { at: at("d"), spec: striped(5) };
        done(root.change(set).await).expect("set");
        root.mkdir("d/e").await.expect("made");
        done(root.change(change("d", Forget::Replaced, vec![rule("*.h5", by_class(2))])).await).expect("set");
        root.touch("d/e/a").await.expect("made");
        root.touch("d/e/a.h5").await.expect("made");
        assert_eq!(tag_of(&root.layout("d/e/a").await), 5 * 4096, "no rule fits");
        assert_eq!(tag_of(&root.layout("d/e/a.h5").await), 2 * 4096, "in a directory that was there before");
        let request = MetaRequest::Open {
            at: at("d/e/b.h5"),
            flags: CREATE,
            mode: 0o644,
            handle: HandleId(999),
            layout: striped(7),
            cache: false,
        };
        let opened = opened(root.change(request).await).expect("made");
        let layout = opened.layout.expect("striped");
        assert_eq!((tag_of(&layout), layout.components().len()), (7 * 4096, 1));
        let mknod = MetaRequest::Mknod { at: at("d/n.h5"), kind: FileType::Regular, mode: 0o644, rdev: 0 };
        attr(root.change(mknod).await).expect("made");
        assert_eq!(tag_of(&root.layout("d/n.h5").await), 2 * 4096);
        assert_ne!(opened.attr.file, FileId(0));
        root.gone().await;
    });
}
