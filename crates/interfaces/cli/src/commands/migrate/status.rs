//! `weft migrate --status`: active and stopped moves.

use super::one_line;
use crate::commands::bytes;
use crate::commands::session::{Weft, why};
use crate::failure::Failure;
use crate::table::Table;
use serde_json::{Value, json};
use weft_core::Timestamp;
use weft_core::units::human_bytes;
use weft_env::Env;
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::{MoveState, MoverState};

/// Exit code: moves are active.
const UNDER_WAY: u8 = 3;
/// Exit code: moves are stopped.
const STOPPED: u8 = 4;

/// Prints the moves and returns the exit code.
pub(super) fn show(weft: &Weft, paths: &[String], as_json: bool) -> Result<u8, Failure> {
    let one = |path: &String| Ok(weft.inside(path)?.trim_matches('/').to_owned());
    let below = paths.iter().map(one).collect::<Result<Vec<String>, Failure>>()?;
    let all = block_on(weft.client.moves()).map_err(|error| Failure::new("moves", why(&error)))?;
    let wanted = |state: &MoveState| {
        let path = bytes::text(&state.path);
        let is_below = |dir: &String| {
            let rest = path.strip_prefix(dir.as_str());
            rest.is_some_and(|rest| dir.is_empty() || rest.is_empty() || rest.starts_with('/'))
        };
        below.is_empty() || below.iter().any(is_below)
    };
    let moves: Vec<MoveState> = all.into_iter().filter(wanted).collect();
    if as_json {
        outln!("{:#}", moves.iter().map(|state| to_json(weft, state)).collect::<Value>());
    } else if moves.is_empty() {
        outln!("no file is being moved, and no move was stopped");
    } else {
        let mut table = Table::new(["STATE", "DONE", "SIZE", "%", "RATE", "FOR", "FILE", "TO"]);
        moves.iter().for_each(|state| table.row(row(weft, state)));
        out!("{}", table.render());
    }
    let stopped = moves.iter().any(|state| state.mover.is_none());
    Ok(if stopped {
        STOPPED
    } else if moves.is_empty() {
        0
    } else {
        UNDER_WAY
    })
}

/// Returns the bytes of the file that need not be copied again.
fn done(state: &MoveState) -> u64 {
    match state.mover {
        Some(mover) if mover.reported != mover.since => state.size.0.saturating_sub(mover.left.0),
        _ => state.safe.0.min(state.size.0),
    }
}

/// Returns the bytes per second since the start of the move.
fn rate(mover: &MoverState) -> Option<f64> {
    let seconds = seconds(mover.since, mover.reported);
    (seconds > 0.0).then(|| mover.done.0 as f64 / seconds)
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    (to.0 - from.0) as f64 / 1e9
}

fn path(weft: &Weft, state: &MoveState) -> String {
    match state.path.is_empty() {
        true => format!("a removed file ({})", state.file),
        false => weft.shown(&bytes::text(&state.path)),
    }
}

fn row(weft: &Weft, state: &MoveState) -> [String; 8] {
    let dash = || "-".to_owned();
    let now = RealEnv::new().wall();
    let part = (100 * done(state)).checked_div(state.size.0).unwrap_or(0);
    [
        if state.mover.is_some() { "moving" } else { "stopped" }.to_owned(),
        human_bytes(done(state)),
        human_bytes(state.size.0),
        part.to_string(),
        state
            .mover
            .as_ref()
            .and_then(rate)
            .map_or_else(dash, |rate| format!("{}/s", human_bytes(rate as u64))),
        state.mover.map_or_else(dash, |mover| format!("{:.0} s", seconds(mover.since, now).max(0.0))),
        path(weft, state),
        one_line(weft, Some(&state.layout)),
    ]
}

fn to_json(weft: &Weft, state: &MoveState) -> Value {
    json!({
        "path": path(weft, state),
        "state": if state.mover.is_some() { "moving" } else { "stopped" },
        "size": state.size.0,
        "done": done(state),
        "safe": state.safe.0,
        "copied": state.mover.map(|mover| mover.done.0),
        "bytes_per_s": state.mover.as_ref().and_then(rate),
        "since_s": state.mover.map(|mover| mover.since.parts().0),
        "to": one_line(weft, Some(&state.layout)),
    })
}
