//! A replay on real files.

use super::Replay;
use super::rows::Rows;
use crate::commands::run::{Run, environment, preload_library};
use crate::commands::session::Weft;
use crate::commands::status::{ServerReply, query_servers};
use crate::embedded;
use crate::failure::Failure;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use weft_config::Cluster;
use weft_env::Address;
use weft_trace::prepared::Prepared;
use weft_trace::replay::{Options, Progress, run};

impl Replay {
    pub(super) fn on_files(&self, prepared: &Prepared, cluster: Option<PathBuf>) -> Result<u8, Failure> {
        let path = self.path.as_deref().expect("asked for by clap");
        let cluster = weft_cluster(path, cluster)?;
        let _held = cluster.as_ref().map(embedded::hold).transpose()?;
        let environment = cluster.as_ref().map(worker_environment).transpose()?.unwrap_or_default();
        let space_limit = (!self.no_room_check).then(|| cluster.as_ref().map_or(u64::MAX, free_space));
        let options = Options {
            dir: path.join(format!("weft-replay-{}", std::process::id())),
            processes: self.processes,
            threads: self.threads,
            timing: self.timing(),
            verify: self.verify,
            space_limit,
            unlink_early: true,
            keep: self.keep,
            sync: false,
            is_ended: || false,
            worker: worker_command()?,
            environment,
        };
        let shown = bar();
        let outcome = run(prepared, &options, |progress| show_progress(&shown, &progress));
        shown.finish_and_clear();
        let outcome = outcome.map_err(|why| Failure::new("replay", why))?;
        let place = match &cluster {
            Some(_) => format!("{} (Weft, by the preload library)", path.display()),
            None => path.display().to_string(),
        };
        let rows = Rows::of_files(prepared, &outcome, &place);
        if self.json {
            rows.json()?
        } else {
            rows.text(self.files)
        }
        if self.keep && !self.json {
            outln!("files are in {}", options.dir.display());
        }
        Ok(0)
    }
}

/// Returns the command that starts a worker of a replay.
pub fn worker_command() -> Result<Vec<OsString>, Failure> {
    let program =
        std::env::current_exe().map_err(|error| Failure::new("finding this program's own file", error))?;
    Ok(vec![program.into(), "replay-worker".into()])
}

/// Returns the variables with which a worker reaches `cluster` through the preload library.
pub fn worker_environment(cluster: &Cluster) -> Result<Vec<(OsString, OsString)>, Failure> {
    let mut command = Command::new("true");
    command.env("WEFT_CLUSTER", &cluster.file);
    environment(&mut command, preload_library()?.as_os_str(), &cluster.mount);
    let set = command.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
    Ok(set.collect())
}

/// Returns the cluster that serves `path` to programs under the preload library, if there is one.
fn weft_cluster(path: &Path, file: Option<PathBuf>) -> Result<Option<Cluster>, Failure> {
    if std::env::var_os("WEFT_MOUNT").is_some() {
        // Under `weft run`, the environment of this process is complete.
        return Ok(None);
    }
    match file.or_else(Cluster::configured) {
        Some(file) => {
            let cluster = Cluster::load(&file)?;
            if !path.starts_with(&cluster.mount) {
                return Ok(None);
            }
            embedded::revive(&cluster)?;
            Ok(Some(cluster))
        }
        None if path.starts_with("/weft") => Run::embedded_cluster().map(Some),
        None => Ok(None),
    }
}

/// Returns the free space on a cluster's targets. Targets on one file system of this host count once. If a server does
/// not answer, the space counts as unlimited, and the replay itself shows a lack of it.
pub fn free_space(cluster: &Cluster) -> u64 {
    let Ok(weft) = Weft::of(cluster.clone(), |_| ()).map(Weft::complete) else { return u64::MAX };
    let mut devices: BTreeMap<u64, u64> = BTreeMap::new();
    let mut elsewhere = 0u64;
    for ServerReply { server, status, .. } in query_servers(&weft) {
        let Ok(status) = status else { return u64::MAX };
        let mut sockets = server.addresses.iter().filter_map(|address| match address {
            Address::Unix(path) => Some(path),
            _ => None,
        });
        let is_here = sockets.any(|path| path.exists());
        for target in status.targets {
            match std::fs::metadata(&target.path).ok().filter(|_| is_here) {
                Some(found) => drop(devices.insert(found.dev(), target.free.0)),
                None => elsewhere = elsewhere.saturating_add(target.free.0),
            }
        }
    }
    devices.into_values().fold(elsewhere, u64::saturating_add)
}

fn bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}");
    ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
}

fn show_progress(bar: &ProgressBar, progress: &Progress) {
    let bytes = weft_core::units::human_bytes(progress.bytes);
    let text = match progress.operations {
        0 => format!("{}: {bytes}", progress.phase),
        operations => format!("{}: {operations} operations, {bytes}", progress.phase),
    };
    bar.set_message(text);
    bar.tick();
}
