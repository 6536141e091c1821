//! Removing a file removes its datafiles from all data servers, including one that is down at first.

use crate::support::{Reach, RealCluster, at, open, options, write};
use std::path::Path;
use weft_client::Transport;
use weft_env::real::block_on;

fn datafiles(folder: &Path) -> usize {
    let objects = std::fs::read_dir(folder.join("objects")).expect("a target").flatten();
    objects.map(|entry| std::fs::read_dir(entry.path()).map_or(0, Iterator::count)).sum()
}

fn all(cluster: &RealCluster) -> Vec<usize> {
    cluster.plan.folders.iter().map(|folder| datafiles(folder)).collect()
}

async fn wait_for(what: &str, cluster: &RealCluster, is_reached: impl Fn(&[usize]) -> bool) {
    crate::support::wait_until(what, async || {
        let now = all(cluster);
        if is_reached(&now) { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await;
}

#[test]
fn datafiles_are_removed_after_the_last_name_and_the_last_open_are_gone() {
    for reach in [Reach::Unix, Reach::Tcp] {
        block_on(async {
            let mut cluster = RealCluster::start(reach).await;
            let client = cluster.client(options(Transport::Socket));
            let before = all(&cluster);
            for name in ["a", "b"] {
                let file = open(&client, name, 4096).await;
                write(&file, 0, &[7; 40_000]).await;
                file.close().await.expect("closes");
            }
            assert!(all(&cluster).iter().zip(&before).all(|(now, before)| now == &(before + 2)), "written");
            let held = open(&client, "a", 4096).await;
            client.unlink(&at("a")).await.expect("removed");
            cluster.stop_server(3).await;
            client.unlink(&at("b")).await.expect("removed");
            wait_for("b goes where it can, a stays", &cluster, |now| {
                now[..3].iter().zip(&before).all(|(now, before)| now == &(before + 1))
            })
            .await;
            held.close().await.expect("closes");
            wait_for("a goes too", &cluster, |now| now[..3] == before[..3]).await;
            cluster.start_server(3).await;
            wait_for("the server that was down is asked again", &cluster, |now| now == before).await;
            cluster.stop().await;
        });
    }
}
