//! `weft replicate show`: where the bytes of a file lie.

use crate::table::Table;
use serde_json::json;
use std::sync::Arc;
use weft_core::Extent;
use weft_core::replicas::{DirtyRegions, Mapping};
use weft_core::units::human_bytes;

/// Characters of a drawing.
const WIDTH: u64 = 64;

/// A replica as commands show it.
pub struct View {
    /// Path of the file.
    pub path: String,
    /// State in a word.
    pub state: &'static str,
    /// Path of the replica; `None` on Weft, where it has none.
    pub place: Option<String>,
    /// Number of processes whose requests it serves; 0 for any number.
    pub ranks: u32,
    /// Size of the file.
    pub size: u64,
    /// Bytes of the replica.
    pub bytes: u64,
    /// Mapping; `None` if it is damaged, or was not read.
    pub mapping: Option<Arc<Mapping>>,
    /// Whether anything was written since the last synchronization.
    pub written: bool,
    /// Bytes of the regions that were written since then.
    pub written_bytes: u64,
    /// The regions that were written since then.
    pub dirty: Option<DirtyRegions>,
    /// Whether a program uses it.
    pub in_use: bool,
}

/// Columns of `weft replicate list`.
pub const COLUMNS: [&str; 7] = ["FILE", "STATE", "PROCESSES", "BYTES", "WRITTEN", "USED", "REPLICA"];

impl View {
    /// Row of `weft replicate list`.
    pub fn row(&self) -> [String; 7] {
        [
            self.path.clone(),
            self.state.to_owned(),
            match self.ranks {
                0 => "any".to_owned(),
                ranks => ranks.to_string(),
            },
            human_bytes(self.bytes),
            human_bytes(self.written_bytes),
            if self.in_use { "yes" } else { "no" }.to_owned(),
            self.place.clone().unwrap_or_else(|| "on Weft".to_owned()),
        ]
    }

    /// Object of `--json`.
    pub fn json(&self) -> serde_json::Value {
        let mapping = self.mapping.as_ref();
        json!({
            "file": self.path,
            "state": self.state,
            "processes": self.ranks,
            "bytes": self.bytes,
            "mapping_bytes": mapping.map(|mapping| mapping.encoded_len()),
            "extents": mapping.map(|mapping| mapping.extents().len()),
            "grids": mapping.map(|mapping| mapping.grids().len()),
            "written": self.written,
            "written_bytes": self.written_bytes,
            "in_use": self.in_use,
            "replica": self.place,
        })
    }
}

/// Prints a replica.
pub fn show(view: &View) {
    outln!("{}: {}", view.path, state(view.state));
    let Some(mapping) = &view.mapping else { return };
    if let Some(place) = &view.place {
        outln!("  replica      {place}");
    }
    let processes = match view.ranks {
        0 => "programs with any number of processes".to_owned(),
        1 => "programs with 1 process".to_owned(),
        ranks => format!("programs with {ranks} processes; others use the file"),
    };
    outln!("  used by      {processes}");
    let size = view.size.max(mapping.file_end());
    outln!(
        "  replicated   {} of {}, {:.1} %",
        human_bytes(mapping.bytes()),
        human_bytes(size),
        100.0 * mapping.bytes() as f64 / size.max(1) as f64
    );
    outln!(
        "  mapping      {} grids with {} slots, {} extents: {} ({:.3} % of the replica)",
        mapping.grids().len(),
        mapping.slots().len(),
        mapping.extents().len(),
        human_bytes(mapping.encoded_len() as u64),
        100.0 * mapping.encoded_len() as f64 / mapping.bytes().max(1) as f64
    );
    if view.written {
        outln!("  written      up to {} that the file does not have", human_bytes(view.written_bytes));
    }
    outln!("\n  the file, {} for each character:", human_bytes(size.div_ceil(WIDTH)));
    outln!("  [{}]", drawing(mapping, view.dirty.as_ref(), size));
    outln!("   # in the replica   + in part   w written   . in the file\n");
    let mut table = Table::new(["  ", "FROM", "LENGTH", "PERIOD", "COUNT", "PIECES", "PLACE"]);
    const LINES_MAX: usize = 12;
    let mut first = 0;
    for grid in mapping.grids().iter().take(LINES_MAX) {
        let slots = &mapping.slots()[first..first + grid.slots as usize];
        first += grid.slots as usize;
        let len: u64 = slots.iter().map(|slot| slot.len).sum();
        table.row([
            String::new(),
            grid.start.to_string(),
            len.to_string(),
            grid.period.to_string(),
            grid.count.to_string(),
            grid.slots.to_string(),
            slots.first().map_or(0, |slot| slot.at).to_string(),
        ]);
    }
    let left = LINES_MAX.saturating_sub(mapping.grids().len());
    for extent in mapping.extents().iter().take(left) {
        table.row([
            String::new(),
            extent.start.to_string(),
            extent.len.to_string(),
            "-".to_owned(),
            "1".to_owned(),
            "1".to_owned(),
            extent.at.to_string(),
        ]);
    }
    out!("{}", table.render());
    let all = mapping.grids().len() + mapping.extents().len();
    if all > LINES_MAX {
        outln!("  and {} more", all - LINES_MAX);
    }
}

fn state(state: &str) -> &'static str {
    match state {
        "valid" => "the replica has the bytes of the file",
        "written" => "the replica has bytes that the file does not have",
        "outdated" => "the replica is outdated and not used; `weft replicate sync` copies the file again",
        "incomplete" => "the replica is incomplete and not used; `weft replicate sync` copies the file",
        "orphan" => "the file is gone; `weft replicate drop` removes the replica",
        _ => "the replica is damaged; `weft replicate drop --force` removes it",
    }
}

/// Draws the file in [`WIDTH`] characters.
fn drawing(mapping: &Mapping, dirty: Option<&DirtyRegions>, size: u64) -> String {
    let step = size.div_ceil(WIDTH).max(1);
    let cell = |number: u64| {
        let from = number * step;
        let len = step.min(size.saturating_sub(from));
        // A part of the pieces of a large cell is enough to draw it.
        const PARTS_MAX: usize = 4096;
        let (mut mapped, mut seen, mut written) = (0, 0, false);
        for part in mapping.split(Extent::new(from, len)).take(PARTS_MAX) {
            seen += part.file.len.0;
            if let Some(at) = part.replica {
                mapped += part.file.len.0;
                written |= dirty.is_some_and(|dirty| dirty.touches(at, part.file.len.0));
            }
        }
        match (mapped, written) {
            (0, _) => '.',
            (_, true) => 'w',
            _ if mapped == seen => '#',
            _ => '+',
        }
    };
    (0..WIDTH).take_while(|number| number * step < size).map(cell).collect()
}
