//! `weft df`.

use super::session::Weft;
use super::status::{ServerReply, compressed, query_servers};
use crate::failure::Failure;
use crate::table::Table;
use clap::Args;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::PathBuf;
use weft_config::Server;
use weft_core::units::human_bytes;
use weft_wire::status::TargetStatus;

/// Shows space by target.
#[derive(Args)]
#[command(after_long_help = "\
Targets on one file system each show all of its space; the line `total` counts it once. If the cluster file limits the
space that layouts may reserve on a target (`capacity`), reserved and remaining space are shown below. Targets with
less free space than their `reserve` are listed: they get no new files. So are targets that have compressed bytes since
their server's start, with the bytes that these became; `weft du --both` shows both sizes of files.

Examples:
  weft df
  weft df --bytes
  weft df --json                     target is null for the metadata")]
pub struct Df {
    /// Show exact bytes
    #[arg(long)]
    bytes: bool,
    /// Print JSON, with exact bytes
    #[arg(long, conflicts_with = "bytes")]
    json: bool,
}

impl Df {
    /// Runs the command.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let weft = Weft::open(file)?;
        let size = |bytes: u64| if self.bytes { bytes.to_string() } else { human_bytes(bytes) };
        let mut table = Table::new(["TARGET", "CLASS", "SERVER", "SIZE", "USED", "AVAIL", "USE%", "PATH"]);
        let mut reservations = Table::new(["TARGET", "CAPACITY", "RESERVED", "LEFT"]);
        let (mut total, mut free, mut counted) = (0, 0, BTreeSet::new());
        let (mut failed, mut limited, mut full) = (false, false, String::new());
        let (mut listed, mut reserved) = (Vec::new(), Vec::new());
        for ServerReply { server, status, is_refused } in query_servers(&weft) {
            match status {
                Ok(status) => {
                    for target in &status.targets {
                        if target.file_system == 0 || counted.insert(target.file_system) {
                            total += target.total.0;
                            free += target.free.0;
                        }
                    }
                    full += &nearly_full(server, &status.targets);
                    full += &compressed(server, &status.targets);
                    for reservation in
                        status.metadata.iter().flat_map(|metadata| &metadata.space_reservations)
                    {
                        limited = true;
                        reserved.push(json!({
                            "target": reservation.target.0,
                            "capacity": reservation.capacity.0,
                            "reserved": reservation.reserved.0,
                        }));
                        reservations.row([
                            reservation.target.0.to_string(),
                            size(reservation.capacity.0),
                            size(reservation.reserved.0),
                            size(reservation.capacity.0.saturating_sub(reservation.reserved.0)),
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
                        listed.push(json!({
                            "target": target.parse::<u32>().ok(),
                            "class": class,
                            "server": server.name,
                            "size": total.0,
                            "used": total.0.saturating_sub(free.0),
                            "available": free.0,
                            "path": path,
                        }));
                        let [size, used, free, percent] = columns(total.0, free.0, size);
                        table.row([target, class, server.name.clone(), size, used, free, percent, path]);
                    }
                }
                Err(why) => {
                    let failure = match is_refused {
                        true => Failure::new(format!("server {} refuses this command", server.name), why),
                        false => Failure::new(format!("server {} is down", server.name), why)
                            .remedy("start it with `weft serve` on its host"),
                    };
                    errln!("{failure}");
                    failed = true;
                }
            }
        }
        if self.json {
            let used = total.saturating_sub(free);
            let total = json!({ "size": total, "used": used, "available": free });
            outln!("{:#}", json!({ "targets": listed, "total": total, "reservations": reserved }));
            return Ok(u8::from(failed));
        }
        let [all, used, free, percent] = columns(total, free, size);
        table.row(["total".into(), String::new(), String::new(), all, used, free, percent, String::new()]);
        out!("{}", table.render());
        if limited {
            outln!("\nreserved by layouts:");
            out!("{}", reservations.render());
        }
        if !full.is_empty() {
            out!("\n{full}");
        }
        Ok(u8::from(failed))
    }
}

/// Returns size, used space, free space and use in percent.
fn columns(total: u64, free: u64, size: impl Fn(u64) -> String) -> [String; 4] {
    let used = total.saturating_sub(free);
    let percent = if total == 0 { 0.0 } else { 100.0 * used as f64 / total as f64 };
    [size(total), size(used), size(free), format!("{:.0}%", percent.ceil())]
}

/// Returns a line for each target of a server that is too full for new files.
pub fn nearly_full(server: &Server, reported: &[TargetStatus]) -> String {
    let line = |target: &TargetStatus| {
        let reserve = server.targets.iter().find(|known| known.id == target.target)?.reserve;
        let is_full = target.refused.is_none() && reserve.is_reached(target.total, target.free);
        is_full.then(|| {
            format!(
                "target {} is nearly full: it gets no new files ({} free, reserve {})\n",
                target.target.0,
                human_bytes(target.free.0),
                human_bytes(reserve.of(target.total).0),
            )
        })
    };
    reported.iter().filter_map(line).collect()
}
