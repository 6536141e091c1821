//! The end of a search: everything is mended and quiet, and everything must be right.

use super::actor::Actor;
use super::cluster::Cluster;
use super::judge::Judge;
use std::collections::{BTreeMap, BTreeSet};
use weft_client::{Client, Error, OpenFile, Wait};
use weft_core::{ByteLen, FileId, Nanos, ObjectId, ServerId, TargetId};
use weft_env::Env;
use weft_env::sim::SimEnv;
use weft_wire::meta::{FileType, LockKind, LockOwner, LockRange, LockSpace};

/// What is to be removed is gone after this long.
const REAPED_AFTER: Nanos = Nanos::from_s(40);
/// Asked for at a time.
const PAGE: u32 = 1000;

/// Looks at all names, reads all files that are left, and checks metadata and datafiles against each other.
pub async fn verify(cluster: &Cluster, judge: &Judge, actor: &mut Actor) {
    actor.check_names().await;
    let files: Vec<FileId> = judge.now(|state, _| state.files.keys().copied().collect());
    let damaged = judge.all_damaged();
    if cluster.plan.moves && cluster.plan.parts() {
        let wish = actor.some_classes();
        for &file in files.iter().rev().take(5) {
            match actor.move_until_done(file, &wish).await {
                // Removed, or a part of it is lost.
                Err(error) if [libc::ENOENT, libc::ESTALE].contains(&error.errno()) => {}
                Err(error) if judge.is_lost_with_ssd(&error) => {}
                Err(error) if judge.is_lost_with_power(&error) => {}
                Err(error) if damaged.contains(&file) && error.errno() == libc::EIO => {
                    judge.hit("damage: told by a move");
                }
                Err(error) => {
                    return judge.violated("everything proceeds after the faults", error.to_string());
                }
                Ok(()) => {}
            }
        }
    }
    for file in files {
        let handle = match actor.open_to_read(file).await {
            Ok(handle) => handle,
            // Removed.
            Err(error) if [libc::ENOENT, libc::ESTALE].contains(&error.errno()) => continue,
            Err(error) => return judge.violated("everything proceeds after the faults", error.to_string()),
        };
        judge.hit("verify: a file read whole");
        let checked = async {
            let size = actor.size_of(&handle).await?;
            actor.read_range(&handle, 0, size as usize + 1).await
        };
        let checked = checked.await;
        if damaged.contains(&file) {
            // Right bytes or an error, which `read_range` and the judge look after.
            match checked {
                Err(error) if error.errno() == libc::EIO => judge.hit("damage: told by a read"),
                Err(error) => {
                    return judge.violated("everything proceeds after the faults", error.to_string());
                }
                Ok(_) => judge.hit("damage: nothing that is read"),
            }
            continue;
        }
        if let Err(error) = checked
            && !judge.is_lost_with_ssd(&error)
            && !judge.is_lost_with_power(&error)
        {
            return judge.violated("everything proceeds after the faults", error.to_string());
        }
        if let Err(error) = nobody_locks(&handle).await {
            return judge.violated("locks vanish with their holders", format!("file {file}: {error}"));
        }
        // Not waited for: fsck must not mind.
        drop(handle);
    }
    // What movers that ended have left; of files that were removed it has gone with them.
    if cluster.plan.moves {
        for file in judge.now(|state, _| state.files.keys().copied().collect::<Vec<_>>()) {
            match actor.forget_move(file).await {
                Err(error) if ![libc::ENOENT, libc::ESTALE].contains(&error.errno()) => {
                    return judge.violated("everything proceeds after the faults", error.to_string());
                }
                _ => {}
            }
        }
        actor.client().env().sleep(REAPED_AFTER).await;
    }
    if let Err(error) = actor.client().flush().await {
        return judge.violated("everything proceeds after the faults", error.to_string());
    }
    if !damaged.is_empty() {
        return;
    }
    match fsck(cluster, judge, actor.client()).await {
        Ok(problems) if problems.is_empty() => {}
        Ok(problems) => judge.violated("fsck finds nothing", problems.join("; ")),
        Err(error) => judge.violated("everything proceeds after the faults", error.to_string()),
    }
}

/// All who could hold a lock have gone.
async fn nobody_locks(handle: &OpenFile<SimEnv>) -> Result<(), Error> {
    let range = LockRange { start: 0, end: u64::MAX };
    let own = LockOwner::Handle(handle.handle());
    handle.lock(LockSpace::Flock, own, LockKind::Exclusive, range, Wait::No).await?;
    handle.lock(LockSpace::Record, LockOwner::Process(0), LockKind::Shared, range, Wait::No).await
}

type Parts = BTreeMap<(ObjectId, TargetId), ByteLen>;

/// What `weft fsck` looks for.
async fn fsck(cluster: &Cluster, judge: &Judge, client: &Client<SimEnv>) -> Result<Vec<String>, Error> {
    let mut problems = client.check_namespace(false).await?.problems;
    let mut parts: BTreeMap<FileId, Parts> = BTreeMap::new();
    for target in (0..cluster.plan.targets() as u32).map(TargetId) {
        let mut after = None;
        loop {
            let page = client.list_datafiles(target, after, PAGE).await?;
            let Some((file, object, _)) = page.last() else { break };
            after = Some((*file, *object));
            for (file, object, len) in page {
                judge.hit("verify: a datafile");
                parts.entry(file).or_default().insert((object, target), len);
            }
        }
    }
    let mut promised: BTreeMap<TargetId, u64> = BTreeMap::new();
    let mut after = FileId(0);
    loop {
        let page = client.scan_inodes(after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = last.file;
        for inode in page {
            let own = parts.remove(&inode.file).unwrap_or_default();
            if inode.doomed {
                problems.push(format!("inode {} is to be removed and still there", inode.file));
                continue;
            }
            let layout = match (&inode.layout, inode.kind) {
                (Some(layout), FileType::Regular) => layout,
                _ => continue,
            };
            for (object, target) in layout.objects() {
                let component = &layout.components()[usize::from(object.component)];
                *promised.entry(target).or_default() +=
                    component.end.map_or(0, |end| layout.local_len(object, end).0);
            }
            let places: BTreeSet<_> = layout.objects().collect();
            for part in own.keys().filter(|part| !places.contains(part)) {
                problems.push(format!("inode {}: {part:?} is not of its layout", inode.file));
            }
            let lens = places.iter().map(|part| (part.0, own.get(part).copied().unwrap_or_default()));
            let size = layout.file_size(lens);
            judge.hit(if inode.settled { "verify: a settled inode" } else { "verify: an open inode" });
            if inode.settled && size.0 != inode.size.0 {
                // Nobody synced it, and the machine of its end lost power.
                if judge.file(inode.file.inode(), |model, _| model.end_lost) {
                    judge.hit("verify: a recorded size that power took");
                    continue;
                }
                problems.push(format!("inode {} has {} bytes, its datafiles {size}", inode.file, inode.size));
            }
        }
    }
    for room in client.status(ServerId(0)).await?.metadata.map(|of| of.rooms).unwrap_or_default() {
        judge.hit("verify: an account of room");
        let all = promised.get(&room.target).copied().unwrap_or_default();
        if room.promised.0 != all || all > room.room.0 {
            problems.push(format!("{room:?}, of which layouts promise {all}"));
        }
    }
    problems.extend(parts.keys().map(|file| format!("datafiles of {file} belong to no file")));
    Ok(problems)
}
