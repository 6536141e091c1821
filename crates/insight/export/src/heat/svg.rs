//! Draws heat maps as SVG without scripts, fonts or external references, so that any viewer shows them. The same trace
//! gives the same bytes.

use super::axis::{Axis, Quantity, View};
use super::grid::{Grid, HeatMap};
use super::scale::{LEVELS, Scale};
use std::fmt::Write;
use weft_core::units::human_bytes;

/// Width of the picture, pixels.
const WIDTH: usize = 900;
/// Margins to the left of the panels, for tick labels, and to the right, pixels.
const LEFT: usize = 76;
const RIGHT: usize = 20;
/// Gap between the panels of reads and writes, pixels.
const GAP: usize = 28;
/// Size of a cell in pixels. An integer keeps the edges sharp.
const CELL: usize = 3;
/// Maximum height of a panel, pixels.
const HEIGHT: usize = 240;
/// Color of marks.
const MARK_COLOR: &str = "#1a7f37";
/// Color of secondary text.
const GRAY: &str = "fill=\"#57606a\"";
/// Maximum height of a row, pixels.
const ROW_MAX: usize = 24;
/// Thickness of the bar of marks beside a panel, pixels.
const MARK: usize = 4;
/// Least opacity of a cell with a mark, so that a few bytes are seen.
const MARK_OPACITY_MIN: f64 = 0.25;

/// The content of a picture.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Title.
    pub title: String,
    /// Notes below the title, one per line.
    pub notes: Vec<String>,
    /// Names and heat maps, created with [`Picture::columns`] columns and [`Picture::ROWS`] rows.
    pub files: Vec<(String, HeatMap)>,
}

impl Picture {
    /// Maximum rows of a heat map.
    pub const ROWS: usize = HEIGHT / CELL;

    /// Columns of a heat map, depending on whether reads and writes are drawn next to each other.
    pub const fn columns(both: bool) -> usize {
        let width = WIDTH - LEFT - RIGHT;
        if both { (width - GAP) / 2 / CELL } else { width / CELL }
    }
}

/// Transfer direction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Read,
    Written,
}

impl Direction {
    const BOTH: [Self; 2] = [Self::Read, Self::Written];

    fn name(self) -> &'static str {
        if self == Self::Read { "read" } else { "written" }
    }

    fn grid(self, map: &HeatMap) -> &Grid {
        if self == Self::Read { &map.reads } else { &map.writes }
    }

    /// Color of a level, from few bytes to many.
    fn color(self, level: usize) -> String {
        let stops: [[u32; 3]; 3] = match self {
            Self::Read => [[0xcd, 0xe6, 0xf5], [0x3b, 0x8f, 0xcb], [0x0a, 0x2a, 0x5e]],
            Self::Written => [[0xfd, 0xe2, 0xc0], [0xec, 0x7a, 0x2b], [0x78, 0x1c, 0x05]],
        };
        let last = (LEVELS - 1) as u32;
        // Two gradients between three stops, in steps of 1 / last.
        let at = 2 * level as u32;
        let (from, to, part) =
            if at <= last { (stops[0], stops[1], at) } else { (stops[1], stops[2], at - last) };
        let mix = |n: usize| (from[n] * (last - part) + to[n] * part + last / 2) / last;
        format!("#{:02x}{:02x}{:02x}", mix(0), mix(1), mix(2))
    }
}

/// Draws the picture as SVG text.
pub fn svg(picture: &Picture) -> String {
    let directions: Vec<Direction> = Direction::BOTH
        .into_iter()
        .filter(|direction| picture.files.iter().any(|(_, map)| direction.grid(map).bytes.get() > 0))
        .collect();
    let cells =
        || picture.files.iter().flat_map(|(_, map)| Direction::BOTH.map(|direction| direction.grid(map)));
    let scale = Scale::of(cells().flat_map(|grid| grid.cells.iter().copied()));
    let mut body = String::new();
    let mut y = 34;
    text(&mut body, (20, y), "font-size=\"18\" font-weight=\"600\"", &shortened(&picture.title, 72, false));
    for note in &picture.notes {
        y += 19;
        text(&mut body, (20, y), GRAY, &shortened(note, 140, false));
    }
    for (name, map) in &picture.files {
        y += 32;
        text(&mut body, (20, y), "font-weight=\"600\"", &shortened(name, 120, true));
        y = panels(&mut body, y, map, &directions, scale.as_ref());
    }
    if let Some(scale) = &scale {
        y = legend(&mut body, y + 30, &directions, scale);
    }
    let height = y + 24;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-size=\"12\" fill=\"#1f2328\" \
         font-family=\"-apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n\
         <title>{}</title>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" rx=\"8\" fill=\"#ffffff\" stroke=\"#d0d7de\"/>\n{body}</svg>\n",
        escaped(&picture.title)
    )
}

/// Draws the panels of a file below `y`, and returns their lower edge.
fn panels(
    out: &mut String,
    y: usize,
    map: &HeatMap,
    directions: &[Direction],
    scale: Option<&Scale>,
) -> usize {
    let row = (HEIGHT / map.y.cells).clamp(CELL, ROW_MAX);
    let (width, height) = (map.x.cells * CELL, map.y.cells * row);
    let top = y + 28;
    let size = format!("cells of {} × {}", cell(&map.x), cell(&map.y));
    let right = format!("text-anchor=\"end\" {GRAY}");
    text(out, (WIDTH - RIGHT, top - 8), &right, &size);
    let middle = format!("text-anchor=\"middle\" {GRAY}");
    for (number, direction) in directions.iter().enumerate() {
        let left = LEFT + number * (width + GAP);
        let grid = direction.grid(map);
        let moved = format!("{} {}", human_bytes(grid.bytes.get()), direction.name());
        text(out, (left, top - 8), GRAY, &moved);
        let _ = writeln!(
            out,
            "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" fill=\"#f6f8fa\"/>"
        );
        lines(out, (left, top, width, height), map);
        if let Some(scale) = scale {
            cells(out, (left, top, row), grid, *direction, scale);
        }
        let _ = writeln!(
            out,
            "<rect x=\"{left}.5\" y=\"{top}.5\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#8c959f\"/>",
            width - 1,
            height - 1
        );
        marks(out, (left, top, width, height), row, map);
        let (name, ticks) = map.x.ticks(width / 70);
        for (place, tick) in ticks {
            let x = left + (place * width as f64).round() as usize;
            text(out, (x, top + height + 16), &middle, &tick);
        }
        text(out, (left + width / 2, top + height + 33), "text-anchor=\"middle\"", &name);
    }
    let (name, ticks) = map.y.ticks(height / 22);
    for (place, tick) in ticks {
        let y = top + height - (place * height as f64).round() as usize + 4;
        text(out, (LEFT - 6, y), &right, &tick);
    }
    let middle = top + height / 2;
    let turned = format!("text-anchor=\"middle\" transform=\"rotate(-90 20 {middle})\"");
    text(out, (20, middle), &turned, &name);
    top + height + 36
}

/// Draws the bar of marks beside the offset axis: the more bytes of a cell are marked, the darker.
fn marks(
    out: &mut String,
    (left, top, width, height): (usize, usize, usize, usize),
    row: usize,
    map: &HeatMap,
) {
    let Some(axis) = map.offset_axis().filter(|_| !map.marks.is_empty()) else { return };
    let is_upright = map.view == View::Time;
    let cell_len = (axis.high - axis.low) as f64 / axis.cells as f64;
    let opacity = |bytes: f64| match bytes {
        0.0 => None,
        // In steps, so that equal stretches become one rectangle.
        bytes => Some(((bytes / cell_len).clamp(MARK_OPACITY_MIN, 1.0) * 20.0).round() as u32 * 5),
    };
    let levels: Vec<Option<u32>> = map.marks.iter().map(|bytes| opacity(*bytes)).collect();
    let mut cell = 0;
    for stretch in levels.chunk_by(|a, b| a == b) {
        let (begin, len) = (cell, stretch.len());
        cell += len;
        let Some(percent) = stretch[0] else { continue };
        let (x, y, width, height) = match is_upright {
            true => (left + width + 1, top + height - (begin + len) * row, MARK, len * row),
            false => (left + begin * CELL, top + height + 1, len * CELL, MARK),
        };
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{MARK_COLOR}\" \
             fill-opacity=\"{}\"/>",
            f64::from(percent) / 100.0
        );
    }
}

/// Draws grid lines at the ticks, below the cells.
fn lines(out: &mut String, (left, top, width, height): (usize, usize, usize, usize), map: &HeatMap) {
    let mut path = String::new();
    let inside = |place: f64| place > 0.001 && place < 0.999;
    for (place, _) in map.x.ticks(width / 70).1.into_iter().filter(|(place, _)| inside(*place)) {
        let _ = write!(path, "M{}.5 {top}v{height}", left + (place * width as f64).round() as usize);
    }
    if map.y.quantity != Quantity::Ranks {
        for (place, _) in map.y.ticks(height / 22).1.into_iter().filter(|(place, _)| inside(*place)) {
            let _ =
                write!(path, "M{left} {}.5h{width}", top + height - (place * height as f64).round() as usize);
        }
    }
    if !path.is_empty() {
        let _ = writeln!(out, "<path d=\"{path}\" stroke=\"#e4e8ec\"/>");
    }
}

/// Draws the cells of a panel: one path per color, with a line for each run of equal cells in a row.
fn cells(
    out: &mut String,
    (left, top, row): (usize, usize, usize),
    grid: &Grid,
    direction: Direction,
    scale: &Scale,
) {
    let mut paths = vec![(String::new(), (0i64, 0i64)); LEVELS];
    for line in 0..grid.height {
        // The first row of cells is at the bottom of the panel.
        let levels: Vec<Option<usize>> =
            grid.cells[line * grid.width..][..grid.width].iter().map(|bytes| scale.level(*bytes)).collect();
        let y = (grid.height - 1 - line) as i64;
        let mut x = 0;
        for stretch in levels.chunk_by(|a, b| a == b) {
            let (begin, len) = (x, stretch.len() as i64);
            x += len;
            let Some(level) = stretch[0] else { continue };
            let (path, (at_x, at_y)) = &mut paths[level];
            // Relative moves take fewer bytes.
            let _ = write!(path, "m{} {}h{len}", begin - *at_x, y - *at_y);
            (*at_x, *at_y) = (x, y);
        }
    }
    let _ = writeln!(
        out,
        "<g transform=\"translate({left} {}) scale({CELL} {row})\" shape-rendering=\"crispEdges\">",
        top as f64 + row as f64 / 2.0
    );
    for (level, (path, _)) in paths.iter().enumerate().filter(|(_, (path, _))| !path.is_empty()) {
        let _ = writeln!(out, "<path stroke=\"{}\" d=\"{path}\"/>", direction.color(level));
    }
    out.push_str("</g>\n");
}

/// Draws the legend, and returns its lower edge.
fn legend(out: &mut String, y: usize, directions: &[Direction], scale: &Scale) -> usize {
    const SWATCH: usize = 44;
    let left = WIDTH - RIGHT - LEVELS * SWATCH;
    text(out, (left - 70, y + 10), &format!("text-anchor=\"end\" {GRAY}"), "bytes in a cell");
    let mut at = y;
    for direction in directions {
        for level in 0..LEVELS {
            let x = left + level * SWATCH;
            let color = direction.color(level);
            let _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"{at}\" width=\"{SWATCH}\" height=\"12\" fill=\"{color}\"/>"
            );
        }
        text(out, (left - 8, at + 10), "text-anchor=\"end\"", direction.name());
        at += 14;
    }
    for number in (0..=LEVELS).step_by(2) {
        let label = if number == 0 { "0".to_owned() } else { human_bytes(scale.bound(number) as u64) };
        let anchor = match number {
            0 => "start",
            LEVELS => "end",
            _ => "middle",
        };
        let style = format!("text-anchor=\"{anchor}\" {GRAY}");
        text(out, (left + number * SWATCH, at + 12), &style, &label);
    }
    at + 12
}

/// Describes the size of a cell along an axis.
fn cell(axis: &Axis) -> String {
    let size = (axis.high - axis.low) as f64 / axis.cells as f64;
    let plain = |size: f64| if size < 9.95 { format!("{size:.1}") } else { format!("{size:.0}") };
    match axis.quantity {
        Quantity::Bytes => human_bytes(size as u64),
        Quantity::Nanoseconds if size >= 1e9 => format!("{} s", plain(size / 1e9)),
        Quantity::Nanoseconds if size >= 1e6 => format!("{} ms", plain(size / 1e6)),
        Quantity::Nanoseconds => format!("{} µs", plain(size / 1e3)),
        Quantity::Ranks if size == 1.0 => "one rank".to_owned(),
        Quantity::Ranks => format!("{} ranks", plain(size)),
        Quantity::Operations => format!("{} operations", plain(size)),
    }
}

fn text(out: &mut String, (x, y): (usize, usize), style: &str, text: &str) {
    let _ = writeln!(out, "<text x=\"{x}\" y=\"{y}\" {style}>{}</text>", escaped(text));
}

/// Shortens text to `most` characters, keeping its end or its begin.
fn shortened(text: &str, most: usize, keep_end: bool) -> String {
    let count = text.chars().count();
    if count <= most {
        text.to_owned()
    } else if keep_end {
        std::iter::once('…').chain(text.chars().skip(count + 1 - most)).collect()
    } else {
        text.chars().take(most - 1).chain(std::iter::once('…')).collect()
    }
}

/// Escapes text of a trace, which is not trusted, for XML.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // Characters that XML does not allow.
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => {
                out.push('\u{fffd}')
            }
            letter => out.push(letter),
        }
    }
    out
}
