//! An administrator who runs `weft fsck --repair --delete-orphans` on the wrong metadata by mistake, or gives up a disk.

use super::cluster::Cluster;
use super::judge::Judge;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_client::{Client, Error};
use weft_core::{FileId, Layout, Nanos, TargetId};
use weft_env::Env;
use weft_env::sim::SimEnv;
use weft_wire::data::DatafileId;
use weft_wire::meta::TargetChange;

/// Number of entries per request.
const PAGE: u32 = 100;
/// Pause between attempts while servers are down.
const RETRY_PAUSE: Nanos = Nanos::from_ms(250);
/// Number of the client process, greater than those of all programs.
const CLIENT: u32 = 1 << 30;

/// Starts a repair on the metadata server's machine and retries it until `is_over`.
pub fn begin(cluster: &Arc<Cluster>, judge: &Judge, is_over: Arc<AtomicBool>) {
    let client = cluster.client(cluster.plan.servers[0], CLIENT, 0);
    let (env, judge) = (client.env().clone(), judge.clone());
    let targets = cluster.plan.targets() as u32;
    let task = move || async move {
        while !is_over.load(Ordering::SeqCst) {
            client.env().sleep(RETRY_PAUSE).await;
            if repair(&client, targets, &judge, &is_over).await.is_ok() {
                judge.hit("repair: done on the wrong metadata");
                return;
            }
        }
    };
    // Spawning fails on a machine without power. Then there is no repair.
    let _ = env.spawn("repair", task);
}

/// Gives up the data of a target, as `weft target replace --data-lost` does. The files with datafiles there are damaged.
pub async fn give_up(cluster: &Arc<Cluster>, judge: &Judge, target: TargetId) -> Result<(), Error> {
    let client = cluster.client(cluster.plan.servers[0], CLIENT + 1, 0);
    let mut after = FileId(0);
    loop {
        let page = client.scan_inodes(after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = last.file;
        for inode in page {
            let mut places = inode.layout.iter().flat_map(Layout::objects);
            if !inode.is_inline && places.any(|(_, of)| of == target) {
                judge.damaged(inode.file.inode());
            }
        }
    }
    client.change_target(target, TargetChange::Replace { data_lost: true }).await?;
    Ok(())
}

/// Removes every datafile whose file is unknown, unless another incarnation of the metadata may own it.
async fn repair(
    client: &Client<SimEnv>,
    targets: u32,
    judge: &Judge,
    is_over: &AtomicBool,
) -> Result<(), Error> {
    // List datafiles before inodes, so that files created in between are not taken for orphans.
    let mut found = Vec::new();
    for target in (0..targets).map(TargetId) {
        let mut after = None;
        // A target that is down or refused is skipped.
        while let Ok(page) = client.list_datafiles(target, after, PAGE).await {
            let Some((file, object, _)) = page.last() else { break };
            after = Some((*file, *object));
            found.extend(page.iter().map(|(file, object, _)| DatafileId {
                target,
                file: *file,
                object: *object,
            }));
        }
    }
    let (mut known, mut after) = (BTreeSet::new(), FileId(0));
    loop {
        let page = client.scan_inodes(after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = last.file;
        known.extend(page.iter().map(|inode| inode.file.inode()));
    }
    found.retain(|datafile| !known.contains(&datafile.file.inode()));
    for datafile in found {
        let own = client.issued_by_this_database(vec![datafile.file]).await?;
        if is_over.load(Ordering::SeqCst) {
            return Ok(());
        }
        if own == [true] {
            judge.say(|| format!("the repair removes {datafile:?}"));
            client.remove_datafiles(&[datafile]).await?;
        } else {
            judge.hit("repair: a datafile of another incarnation is kept");
        }
    }
    Ok(())
}
