//! `weft df`.

use super::session::Weft;
use super::status::{Answer, ask};
use crate::failure::Failure;
use crate::table::{Table, human};
use clap::Args;
use std::collections::BTreeSet;
use std::path::PathBuf;
use weft_config::Server;
use weft_wire::status::TargetStatus;

/// Shows space by target.
#[derive(Args)]
#[command(after_long_help = "\
Targets that share a file system each show all of it; the line `total` counts it once. Where the cluster file limits what layouts may promise on a target
(`room`), what they do promise and what is left stand below. Targets that have less free than their `reserve` are named:
new files do not begin there.

Examples:
  weft df
  weft df --bytes")]
pub struct Df {
    /// Whole bytes instead of numbers for people
    #[arg(long)]
    bytes: bool,
}

impl Df {
    /// Shows it.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let weft = Weft::open(file)?;
        let size = |bytes: u64| if self.bytes { bytes.to_string() } else { human(bytes) };
        let mut table = Table::new(["TARGET", "CLASS", "SERVER", "SIZE", "USED", "AVAIL", "USE%", "PATH"]);
        let mut rooms = Table::new(["TARGET", "ROOM", "PROMISED", "LEFT"]);
        let (mut total, mut free, mut counted) = (0, 0, BTreeSet::new());
        let (mut failed, mut limited, mut full) = (false, false, String::new());
        for Answer { server, status } in ask(&weft) {
            match status {
                Ok(status) => {
                    for target in &status.targets {
                        if target.file_system == 0 || counted.insert(target.file_system) {
                            total += target.total.0;
                            free += target.free.0;
                        }
                    }
                    full += &nearly_full(server, &status.targets);
                    for room in status.metadata.iter().flat_map(|metadata| &metadata.rooms) {
                        limited = true;
                        rooms.row([
                            room.target.0.to_string(),
                            size(room.room.0),
                            size(room.promised.0),
                            size(room.room.0.saturating_sub(room.promised.0)),
                        ]);
                    }
                    let targets = status
                        .targets
                        .into_iter()
                        .map(|t| (t.target.0.to_string(), t.class, t.total, t.free, t.path));
                    let metadata = status.metadata.zip(server.metadata.as_ref()).map(|(status, config)| {
                        (
                            "-".into(),
                            "metadata".into(),
                            status.total,
                            status.free,
                            config.path.display().to_string(),
                        )
                    });
                    for (target, class, total, free, path) in targets.chain(metadata) {
                        let [size, used, free, percent] = columns(total.0, free.0, size);
                        table.row([target, class, server.name.clone(), size, used, free, percent, path]);
                    }
                }
                Err(why) => {
                    let down = Failure::new(format!("server {} is down", server.name), why);
                    eprintln!("{}", down.remedy("start it with `weft serve` on its host"));
                    failed = true;
                }
            }
        }
        let [all, used, free, percent] = columns(total, free, size);
        table.row(["total".into(), String::new(), String::new(), all, used, free, percent, String::new()]);
        out!("{}", table.render());
        if limited {
            outln!("\npromised by parts of layouts that have an end:");
            out!("{}", rooms.render());
        }
        if !full.is_empty() {
            out!("\n{full}");
        }
        Ok(u8::from(failed))
    }
}

/// Size, use, what is free, and the use in percent.
fn columns(total: u64, free: u64, size: impl Fn(u64) -> String) -> [String; 4] {
    let used = total.saturating_sub(free);
    let percent = if total == 0 { 0.0 } else { 100.0 * used as f64 / total as f64 };
    [size(total), size(used), size(free), format!("{:.0}%", percent.ceil())]
}

/// A line for each target of a server that is too full for new files.
pub fn nearly_full(server: &Server, told: &[TargetStatus]) -> String {
    let line = |target: &TargetStatus| {
        let reserve = server.targets.iter().find(|known| known.id == target.target)?.reserve;
        let is_full = target.refused.is_none() && reserve.is_reached(target.total, target.free);
        is_full.then(|| {
            format!(
                "target {} is nearly full: new files leave it alone ({} free, reserve {})\n",
                target.target.0,
                human(target.free.0),
                human(reserve.of(target.total).0),
            )
        })
    };
    told.iter().filter_map(line).collect()
}
