//! Final checks of a search, after all faults are healed and all programs have ended.

use super::actor::Actor;
use super::cluster::Cluster;
use super::judge::Judge;
use std::collections::{BTreeMap, BTreeSet};
use weft_client::{Client, Error, OpenFile, Wait};
use weft_core::{ByteLen, FileId, Nanos, ObjectId, ServerId, TargetId};
use weft_env::Env;
use weft_env::sim::SimEnv;
use weft_wire::meta::{FileType, LockKind, LockOwner, LockRange, LockSpace};

/// Time after which removed files have been deleted.
const REAP_TIME: Nanos = Nanos::from_s(40);
/// Number of entries per request.
const PAGE: u32 = 1000;

/// Checks all names, reads all remaining files, and compares metadata with datafiles.
pub async fn verify(cluster: &Cluster, judge: &Judge, actor: &mut Actor) {
    actor.check_names().await;
    let files: Vec<FileId> = judge.now(|state, _| state.files.keys().copied().collect());
    let damaged = judge.all_damaged();
    if cluster.plan.moves && cluster.plan.parts() {
        let wish = actor.draw_classes();
        for &file in files.iter().rev().take(5) {
            match actor.move_until_done(file, &wish).await {
                // The file was removed, or a part of it is lost.
                Err(error) if [libc::ENOENT, libc::ESTALE].contains(&error.errno()) => {}
                Err(error) if judge.is_lost_with_ssd(&error) => {}
                Err(error) if judge.is_lost_with_power(&error) => {}
                Err(error) if damaged.contains(&file) && error.errno() == libc::EIO => {
                    judge.hit("damage: reported by a move");
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
            // The file was removed.
            Err(error) if [libc::ENOENT, libc::ESTALE].contains(&error.errno()) => continue,
            // The mapping of a replica with newer bytes is lost.
            Err(error) if cluster.plan.replicas && judge.is_lost_with_ssd(&error) => continue,
            Err(error) => return judge.violated("everything proceeds after the faults", error.to_string()),
        };
        judge.hit("verify: a file read whole");
        let checked = async {
            let size = actor.size_of(&handle).await?;
            actor.read_range(&handle, 0, size as usize + 1).await
        };
        let checked = checked.await;
        if damaged.contains(&file) {
            // `read_range` and the judge check that the bytes are right.
            match checked {
                Err(error) if error.errno() == libc::EIO => judge.hit("damage: reported by a read"),
                Err(error) => {
                    return judge.violated("everything proceeds after the faults", error.to_string());
                }
                Ok(_) => judge.hit("damage: in bytes that no read needs"),
            }
            continue;
        }
        if let Err(error) = checked
            && !judge.is_lost_with_ssd(&error)
            && !judge.is_lost_with_power(&error)
        {
            return judge.violated("everything proceeds after the faults", error.to_string());
        }
        if let Err(error) = check_no_locks(&handle).await {
            return judge.violated("locks vanish with their holders", format!("file {file}: {error}"));
        }
        // Dropped without waiting for the close: fsck must tolerate an open file.
        drop(handle);
    }
    // State of interrupted moves. For removed files it is gone already.
    if cluster.plan.moves {
        for file in judge.now(|state, _| state.files.keys().copied().collect::<Vec<_>>()) {
            match actor.cancel_move(file).await {
                Err(error) if ![libc::ENOENT, libc::ESTALE].contains(&error.errno()) => {
                    return judge.violated("everything proceeds after the faults", error.to_string());
                }
                _ => {}
            }
        }
        actor.client().env().sleep(REAP_TIME).await;
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

/// Checks that no lock is left, by taking all of them.
async fn check_no_locks(handle: &OpenFile<SimEnv>) -> Result<(), Error> {
    let range = LockRange { start: 0, end: u64::MAX };
    let own = LockOwner::Handle(handle.handle());
    handle.lock(LockSpace::Flock, own, LockKind::Exclusive, range, Wait::No).await?;
    handle.lock(LockSpace::Record, LockOwner::Process(0), LockKind::Shared, range, Wait::No).await
}

type Parts = BTreeMap<(ObjectId, TargetId), ByteLen>;

/// Checks what `weft fsck` checks.
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
    let mut last_inline = None;
    loop {
        let page = client.scan_inodes(after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = last.file;
        for inode in page {
            let own = parts.remove(&inode.file).unwrap_or_default();
            if inode.doomed && last_inline == Some(inode.file.inode()) {
                judge.hit("verify: an unfinished copy of an inline file");
                continue;
            }
            last_inline = inode.is_inline.then_some(inode.file);
            if inode.doomed {
                problems.push(format!("inode {} is marked for removal and still exists", inode.file));
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
            if inode.is_inline {
                judge.hit("verify: an inline file");
                problems
                    .extend(own.keys().map(|part| format!("inline inode {}: it has {part:?}", inode.file)));
                continue;
            }
            let places: BTreeSet<_> = layout.objects().collect();
            for part in own.keys().filter(|part| !places.contains(part)) {
                problems.push(format!("inode {}: {part:?} does not belong to its layout", inode.file));
            }
            let lens = places.iter().map(|part| (part.0, own.get(part).copied().unwrap_or_default()));
            let size = layout.file_size(lens);
            judge.hit(if inode.is_size_valid {
                "verify: an inode with a valid size"
            } else {
                "verify: an inode without a valid size"
            });
            if inode.is_size_valid && size.0 != inode.size.0 {
                // No sync covered the end, and its machine lost power.
                if judge.file(inode.file.inode(), |model, _| model.end_lost) {
                    judge.hit("verify: a recorded size lost with power");
                    continue;
                }
                problems.push(format!("inode {} has {} bytes, its datafiles {size}", inode.file, inode.size));
            }
        }
    }
    let metadata = client.status(ServerId(0)).await?.metadata;
    for reservation in metadata.map(|of| of.space_reservations).unwrap_or_default() {
        judge.hit("verify: a space reservation");
        let all = promised.get(&reservation.target).copied().unwrap_or_default();
        if reservation.reserved.0 != all || all > reservation.capacity.0 {
            problems.push(format!("{reservation:?}, but layouts reserve {all}"));
        }
    }
    problems.extend(parts.keys().map(|file| format!("datafiles of {file} belong to no file")));
    Ok(problems)
}
