//! The simulated disk against a model: synced data survives a power failure; unsynced data is old or new.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use weft_core::{ByteLen, LocalOffset};
use weft_env::sim::{Rng, Sim, SimEnv};
use weft_env::{Create, Dir, Env, File, OpenMode};

const SECTOR: usize = 512;
const LEN_MAX: u64 = 10_000;

/// Versions of a file since its last sync, the synced one first.
#[derive(Clone)]
struct Versions {
    all: Vec<Vec<u8>>,
    is_cut_since: bool,
}

impl Versions {
    fn last(&self) -> &Vec<u8> {
        self.all.last().expect("one version")
    }

    fn byte_at(&self, version: &[u8], at: usize) -> u8 {
        version.get(at).copied().unwrap_or(0)
    }

    /// Checks that a power failure may leave `found`.
    fn allow(&self, found: &[u8]) -> Result<(), String> {
        if !self.all.iter().any(|version| version.len() == found.len()) {
            return Err(format!("length {} was never set", found.len()));
        }
        for (at, &byte) in found.iter().enumerate() {
            if !self.all.iter().any(|version| self.byte_at(version, at) == byte) {
                return Err(format!("byte {at} was never {byte}"));
            }
        }
        let sectors = if self.is_cut_since { 0 } else { found.len().div_ceil(SECTOR) };
        for sector in 0..sectors {
            let range = sector * SECTOR..found.len().min((sector + 1) * SECTOR);
            let is_whole = |version: &Vec<u8>| range.clone().all(|at| self.byte_at(version, at) == found[at]);
            if !self.all.iter().any(is_whole) {
                return Err(format!("sector {sector} is torn"));
            }
        }
        Ok(())
    }
}

async fn read_all(env: &SimEnv, name: &str) -> Vec<u8> {
    let dir = env.dir(Path::new("/")).await.expect("root");
    let file = dir.open(name, OpenMode::READ).await.expect("a synced name");
    let mut bytes = vec![0; file.meta().await.expect("meta").len.0 as usize];
    assert_eq!(
        file.read_at(&mut [IoSliceMut::new(&mut bytes)], LocalOffset(0)).await.expect("read"),
        bytes.len()
    );
    bytes
}

/// Runs random writes, cuts and syncs of one file, then a power failure. Returns the outcome: all old, all new, or
/// mixed.
fn contents_round(seed: u64) -> &'static str {
    let mut sim = Sim::with_seed(seed);
    let node = sim.node("a");
    let env = node.clone();
    let versions = sim.block_on(&node, async move {
        let mut rng = Rng::new(seed);
        let dir = env.dir(Path::new("/")).await.expect("root");
        let file = dir.open("f", OpenMode::CREATE).await.expect("file");
        dir.sync("").await.expect("sync");
        let mut versions = Versions { all: vec![vec![]], is_cut_since: false };
        for step in 1..=rng.below(40) {
            let mut next = versions.last().clone();
            match rng.below(10) {
                0 => {
                    file.sync().await.expect("sync");
                    versions = Versions { all: vec![next], is_cut_since: false };
                    continue;
                }
                1 | 2 => {
                    let len = rng.below(LEN_MAX);
                    file.set_len(ByteLen(len)).await.expect("cut");
                    next.resize(len as usize, 0);
                    versions.is_cut_since = true;
                }
                _ => {
                    let (offset, len) = (rng.below(LEN_MAX), rng.below(3000) as usize);
                    // Every step writes a distinct byte, so that versions are distinguishable.
                    let bytes = vec![step as u8; len];
                    let (a, b) = bytes.split_at(len / 3);
                    file.write_at(&[IoSlice::new(a), IoSlice::new(b)], LocalOffset(offset))
                        .await
                        .expect("write");
                    if len > 0 {
                        let end = offset as usize + len;
                        next.resize(next.len().max(end), 0);
                        next[offset as usize..end].copy_from_slice(&bytes);
                    }
                }
            }
            versions.all.push(next);
        }
        assert_eq!(read_all(&env, "f").await, *versions.last());
        versions
    });
    sim.power_cut(&node);
    let node = sim.restart(&node);
    let env = node.clone();
    let found = sim.block_on(&node, async move { read_all(&env, "f").await });
    if let Err(why) = versions.allow(&found) {
        panic!("seed {seed}: {why}");
    }
    // Data that has survived also survives the next power failure.
    sim.power_cut(&node);
    let node = sim.restart(&node);
    let env = node.clone();
    assert_eq!(sim.block_on(&node, async move { read_all(&env, "f").await }), found, "seed {seed}");
    match &found {
        _ if versions.all.iter().all(|version| version == versions.last()) => "nothing at risk",
        found if *found == versions.all[0] => "old",
        found if found == versions.last() => "new",
        _ => "between",
    }
}

#[test]
fn synced_bytes_survive_and_the_rest_is_old_or_new() {
    let mut seen = BTreeMap::new();
    for seed in 0..3000 {
        *seen.entry(contents_round(seed)).or_insert(0) += 1;
    }
    eprintln!("{seen:?}");
    for outcome in ["old", "new", "between"] {
        assert!(
            seen.get(outcome).is_some_and(|&count| count > 100),
            "outcome {outcome} is too rare: {seen:?}"
        );
    }
}

#[test]
fn truncated_bytes_do_not_reappear() {
    for seed in 0..500 {
        let mut sim = Sim::with_seed(seed);
        let node = sim.node("a");
        let env = node.clone();
        sim.block_on(&node, async move {
            let dir = env.dir(Path::new("/")).await.expect("root");
            let file = dir.open("f", OpenMode::CREATE).await.expect("file");
            file.write_at(&[IoSlice::new(&[1; 4000])], LocalOffset(0)).await.expect("write");
            file.sync().await.expect("sync");
            dir.sync("").await.expect("sync");
            file.set_len(ByteLen(100)).await.expect("cut");
            file.write_at(&[IoSlice::new(&[2; 10])], LocalOffset(5000)).await.expect("write");
        });
        sim.power_cut(&node);
        let node = sim.restart(&node);
        let env = node.clone();
        let found = sim.block_on(&node, async move { read_all(&env, "f").await });
        match found.len() {
            4000 => assert!(found.iter().all(|&byte| byte == 1), "seed {seed}"),
            100 => assert!(found.iter().all(|&byte| byte == 1), "seed {seed}"),
            5010 => assert!(
                found[100..5000].iter().all(|&byte| byte == 0),
                "seed {seed}: truncated bytes reappeared"
            ),
            len => panic!("seed {seed}: length {len} was never set"),
        }
    }
}

/// Files that a name may refer to after a power failure.
type Allowed = BTreeMap<String, BTreeSet<Option<u64>>>;

fn names_round(seed: u64) -> bool {
    let mut sim = Sim::with_seed(seed);
    let node = sim.node("a");
    let env = node.clone();
    let (allowed, last, durable) = sim.block_on(&node, async move {
        let mut rng = Rng::new(seed);
        let dir = env.dir(Path::new("/")).await.expect("root");
        for folder in ["p", "q"] {
            dir.make_dir(folder).await.expect("folder");
        }
        dir.sync("").await.expect("sync");
        let names: Vec<String> =
            ["p", "q"].iter().flat_map(|folder| (0..3).map(move |n| format!("{folder}/{n}"))).collect();
        let mut now: BTreeMap<String, Option<u64>> = names.iter().map(|name| (name.clone(), None)).collect();
        let mut allowed: Allowed = names.iter().map(|name| (name.clone(), BTreeSet::from([None]))).collect();
        // Files whose name is synced and that were neither removed nor replaced since: they have one name through all
        // renames.
        let mut durable: BTreeSet<u64> = BTreeSet::new();
        for id in 1..=rng.below(30) {
            let name = names[rng.below(6) as usize].clone();
            let other = names[rng.below(6) as usize].clone();
            match rng.below(5) {
                0 | 1 => {
                    let mode = OpenMode { write: true, create: Create::New, direct: false };
                    match dir.open(&name, mode).await {
                        Ok(file) => {
                            file.write_at(&[IoSlice::new(&id.to_le_bytes())], LocalOffset(0))
                                .await
                                .expect("write");
                            file.sync().await.expect("sync");
                            now.insert(name, Some(id));
                        }
                        Err(_) => assert!(now[&name].is_some()),
                    }
                }
                2 => match dir.remove(&name).await {
                    Ok(()) => {
                        let id = now.insert(name, None).flatten().expect("it existed");
                        durable.remove(&id);
                    }
                    Err(_) => assert!(now[&name].is_none()),
                },
                3 => match dir.rename(&name, &other).await {
                    Ok(()) => {
                        let id = now.insert(name, None).flatten();
                        assert!(id.is_some());
                        let replaced =
                            now.insert(other, id).flatten().filter(|&replaced| Some(replaced) != id);
                        if let Some(replaced) = replaced {
                            durable.remove(&replaced);
                        }
                    }
                    Err(_) => assert!(now[&name].is_none()),
                },
                _ => {
                    let folder = &name[..1];
                    dir.sync(folder).await.expect("sync");
                    for (name, allowed) in &mut allowed {
                        if name.starts_with(folder) {
                            allowed.clear();
                            allowed.insert(now[name]);
                            durable.extend(now[name]);
                        }
                    }
                }
            }
            now.iter().for_each(|(name, id)| {
                allowed.get_mut(name).expect("a name").insert(*id);
            });
        }
        (allowed, now, durable)
    });
    sim.power_cut(&node);
    let node = sim.restart(&node);
    let env = node.clone();
    let found: BTreeMap<String, Option<u64>> = sim.block_on(&node, async move {
        let dir = env.dir(Path::new("/")).await.expect("root");
        let mut found = BTreeMap::new();
        for folder in ["p", "q"] {
            for name in dir.list(folder).await.expect("a synced folder") {
                let name = format!("{folder}/{name}");
                let bytes = read_all(&env, &name).await;
                found.insert(name, Some(u64::from_le_bytes(bytes.try_into().expect("8 synced bytes"))));
            }
        }
        found
    });
    let mut ids = BTreeSet::new();
    for (name, allowed) in &allowed {
        let id = found.get(name).copied().flatten();
        assert!(allowed.contains(&id), "seed {seed}: {name} is {id:?}, not one of {allowed:?}");
        assert!(id.is_none_or(|id| ids.insert(id)), "seed {seed}: file {id:?} has two names");
    }
    assert!(durable.is_subset(&ids), "seed {seed}: of {durable:?} only {ids:?} have a name");
    last.iter().any(|(name, id)| found.get(name).copied().flatten() != *id)
}

#[test]
fn synced_names_survive_and_the_rest_is_old_or_new() {
    let lost = (0..2000).filter(|&seed| names_round(seed)).count();
    assert!(lost > 200, "names were lost in only {lost} of 2000 rounds");
}
