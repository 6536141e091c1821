//! `weft key rotate`: exchanges the root secret in three steps, while servers and programs run.

use super::{Weft, cluster_key, now_s};
use crate::audit;
use crate::commands::status;
use crate::failure::Failure;
use clap::Args;
use std::path::{Path, PathBuf};
use weft_config::{ClusterKey, Key, Rotation};
use weft_core::Nanos;

/// Lifetime of capabilities in seconds. The former secret is needed for this long after the next one came into use.
const OVERLAP_S: u64 = 3600;

/// Exchanges the root secret in three steps, while programs run.
#[derive(Args)]
pub struct Rotate {
    /// Use the added secret for new keys and capabilities; all servers must accept it already
    #[arg(long = "use", conflicts_with = "finish")]
    use_next: bool,
    /// Refuse the former secret and all its keys; all servers must have used the new one for an hour
    #[arg(long)]
    finish: bool,
    /// Neither query the servers nor wait for the hour
    #[arg(long)]
    force: bool,
    /// The cluster key [default: that of the cluster file]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

impl Rotate {
    /// Performs one step.
    pub fn run(self, cluster: Option<PathBuf>) -> Result<u8, Failure> {
        let (file, key) = cluster_key(cluster.clone(), self.key.clone())?;
        let next = match (self.use_next, self.finish) {
            (true, _) => self.use_it(cluster.clone(), &file, &key)?,
            (_, true) => self.finish_it(cluster.clone(), &file, &key)?,
            _ => key
                .add(now_s())
                .map_err(|error| Failure::new("random bytes", error))?
                .ok_or_else(|| out_of_turn(&file, key.rotation()))?,
        };
        Key::Cluster(next.clone()).replace(&file)?;
        let (action, message) = match next.rotation() {
            Rotation::Added { next } => (
                "key.rotate",
                format!(
                    "generation {next} is accepted; copy the file to every server, then run `weft key rotate --use`"
                ),
            ),
            Rotation::Used { former } => (
                "key.rotate.use",
                format!(
                    "generation {} is in use, {former} is accepted; copy the file to every server, issue \
                     new keys, then run `weft key rotate --finish`",
                    next.generations()[0]
                ),
            ),
            Rotation::None => (
                "key.rotate.finish",
                format!(
                    "only generation {} is accepted; copy the file to every server",
                    next.generations()[0]
                ),
            ),
        };
        audit::of_keys(cluster, &file, action, &message);
        outln!("{}: {message}", file.display());
        Ok(0)
    }

    fn use_it(&self, cluster: Option<PathBuf>, file: &Path, key: &ClusterKey) -> Result<ClusterKey, Failure> {
        let next = key.use_next(now_s()).ok_or_else(|| out_of_turn(file, key.rotation()))?;
        let generation = next.generations()[0];
        if !self.force {
            all_servers(
                cluster,
                |generations| generations.contains(&generation),
                |server| format!("server {server} does not accept generation {generation} yet"),
            )?;
        }
        Ok(next)
    }

    fn finish_it(
        &self,
        cluster: Option<PathBuf>,
        file: &Path,
        key: &ClusterKey,
    ) -> Result<ClusterKey, Failure> {
        let next = key.finish().ok_or_else(|| out_of_turn(file, key.rotation()))?;
        let generation = next.generations()[0];
        if self.force {
            return Ok(next);
        }
        let used_s = now_s().saturating_sub(key.made_s());
        if used_s < OVERLAP_S {
            let why = format!(
                "generation {generation} is in use for {} min, and programs may hold capabilities of the \
                 former one for an hour",
                used_s / 60
            );
            return Err(Failure::new(file.display(), why)
                .remedy("finish later; with --force programs that have files open may get errors"));
        }
        all_servers(
            cluster,
            |generations| generations.first() == Some(&generation),
            |server| format!("server {server} does not use generation {generation} yet"),
        )?;
        Ok(next)
    }
}

fn out_of_turn(file: &Path, rotation: Rotation) -> Failure {
    let (why, remedy) = match rotation {
        Rotation::None => {
            ("no rotation is in progress".to_owned(), "begin one with `weft key rotate`".to_owned())
        }
        Rotation::Added { next } => (
            format!("a rotation is in progress: generation {next} is accepted but not in use"),
            "continue with `weft key rotate --use`".to_owned(),
        ),
        Rotation::Used { former } => (
            format!("a rotation is in progress: generation {former} is still accepted"),
            "continue with `weft key rotate --finish`".to_owned(),
        ),
    };
    Failure::misuse(file.display(), why).remedy(remedy)
}

/// Fails unless every server of the cluster answers with the expected generations.
fn all_servers(
    cluster: Option<PathBuf>,
    is_ready: impl Fn(&[u32]) -> bool,
    why: impl Fn(&str) -> String,
) -> Result<(), Failure> {
    let weft = Weft::of(crate::commands::load(cluster)?, |options| {
        options.connect_timeout = Nanos::from_s(5);
        options.request_timeout = Nanos::from_s(5);
        options.retry_for = Nanos(0);
    })?;
    weft_client::set_log(|_| ());
    let weft = weft.complete();
    for answer in status::query_servers(&weft) {
        let name = &answer.server.name;
        let (why, remedy) = match &answer.status {
            Ok(status) if is_ready(&status.keys.generations) => continue,
            Ok(_) => (why(name), "copy the key file to its host, and wait a few seconds"),
            Err(reason) => (
                format!("server {name} does not report which secrets it accepts: {reason}"),
                "start it, or skip this check with --force",
            ),
        };
        return Err(Failure::new("rotation", why).remedy(remedy));
    }
    Ok(())
}
