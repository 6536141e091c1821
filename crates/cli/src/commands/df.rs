//! `weft df`.

use super::session::Weft;
use super::status::{Answer, ask};
use crate::failure::Failure;
use crate::table::{Table, human};
use clap::Args;
use std::path::PathBuf;
use weft_config::Server;
use weft_wire::status::TargetStatus;

/// Shows space by target.
#[derive(Args)]
#[command(after_long_help = "\
Targets that share a file system each show all of it. Where the cluster file limits what layouts may promise on a target
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
        let (mut failed, mut limited, mut full) = (false, false, String::new());
        for Answer { server, status } in ask(&weft) {
            match status {
                Ok(status) => {
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
                        let used = total.0.saturating_sub(free.0);
                        let percent = if total.0 == 0 { 0.0 } else { 100.0 * used as f64 / total.0 as f64 };
                        table.row([
                            target,
                            class,
                            server.name.clone(),
                            size(total.0),
                            size(used),
                            size(free.0),
                            format!("{:.0}%", percent.ceil()),
                            path,
                        ]);
                    }
                }
                Err(why) => {
                    let down = Failure::new(format!("server {} is down", server.name), why);
                    eprintln!("{}", down.remedy("start it with `weft serve` on its host"));
                    failed = true;
                }
            }
        }
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

/// A line for each target of a server that is too full for new files.
pub fn nearly_full(server: &Server, told: &[TargetStatus]) -> String {
    let line = |target: &TargetStatus| {
        let reserve = server.targets.iter().find(|known| known.id == target.target)?.reserve;
        reserve.is_reached(target.total, target.free).then(|| {
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
