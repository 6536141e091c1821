//! Layouts that are tried on the twin: a grid, and what lies beside a layout.

use weft_planner::{Figures, Part, Placing};

/// Stripe sizes that are tried whatever requests there are, KiB.
const SIZES_KIB: [u64; 4] = [64, 256, 1024, 4096];
/// Parts of a request that are tried as stripes.
const PARTS_OF_REQUEST: [u64; 3] = [1, 2, 4];
/// Parts of a row at most where there are more than two classes, of which each part then has equal stripes.
const ROW_MAX: usize = 3;
/// The least stripe, bytes, and what all are multiples of.
const STRIPE_MIN: u64 = 4096;
/// How stripes beside a stripe compare to it, in quarters.
const BESIDE: [u64; 4] = [2, 3, 6, 8];
/// Parts of the room that a part may take, in eighths.
const SHARES: [u64; 4] = [8, 7, 6, 4];

/// What is tried for: a cluster in figures, room on each target of each class, a file and its usual request, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Space<'a> {
    /// The cluster.
    pub figures: &'a Figures,
    /// Room by class.
    pub rooms: &'a [u64],
    /// Length of the file.
    pub extent: u64,
    /// The usual request.
    pub request: u64,
}

/// Parts in a row; each ends where some class is full, or earlier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row(Vec<RowPart>);

/// Stripe sizes by class, and how much of the room that is left they take, in eighths.
#[derive(Clone, PartialEq, Eq, Debug)]
struct RowPart {
    stripes: Vec<u64>,
    share: u64,
}

impl Space<'_> {
    /// The grid. Of two classes rows of one and two parts with every pair of stripes; of more, up to three parts, each over
    /// any set of classes with equal stripes. All but the last end where their room does.
    pub fn all(&self) -> Vec<(Row, Placing)> {
        let sizes = self.sizes();
        let classes = self.rooms.len();
        let (choices, most) = if classes > 2 {
            let stripes = |set: u32, size: u64| -> Vec<u64> {
                (0..classes).map(|class| if set >> class & 1 == 1 { size } else { 0 }).collect()
            };
            let sets = 1..1u32 << classes;
            (sets.flat_map(|set| sizes.iter().map(move |size| stripes(set, *size))).collect(), ROW_MAX)
        } else {
            (every(&sizes, classes), 2)
        };
        let mut found = Vec::new();
        let mut rows = vec![Row(Vec::new())];
        for _ in 0..most {
            let with = |row: &Row| {
                let last = row.0.last().map(|part| part.stripes.clone());
                let others = choices.iter().filter(|stripes| last.as_ref() != Some(stripes));
                let one = |stripes: &Vec<u64>| {
                    let part = RowPart { stripes: stripes.clone(), share: SHARES[0] };
                    Row([row.0.as_slice(), &[part]].concat())
                };
                others.map(one).collect::<Vec<_>>()
            };
            rows = rows.iter().flat_map(with).collect();
            found.extend(rows.iter().filter_map(|row| Some((row.clone(), self.laid(row)?))));
            // What lies behind a part that takes the rest is no other layout.
            rows.retain(|row| self.left(row).is_some());
        }
        found
    }

    /// One stripe size for all targets, each target until it is full.
    pub fn fixed(&self) -> Vec<(Row, Placing)> {
        let fixed = |size: &u64| {
            let mut left = self.rooms.to_vec();
            let mut row = Row(Vec::new());
            loop {
                let stripes: Vec<u64> =
                    left.iter().map(|room| if *room >= *size { *size } else { 0 }).collect();
                if stripes.iter().all(|size| *size == 0) {
                    return None;
                }
                row.0.push(RowPart { stripes, share: SHARES[0] });
                if let Some(placing) = self.laid(&row) {
                    return Some((row, placing));
                }
                left = self.left(&row)?.1;
            }
        };
        self.sizes().iter().filter_map(fixed).collect()
    }

    /// Those beside a layout: one stripe, or all of a part, half, three quarters, one and a half times or twice as long; one
    /// part that takes another share of the room.
    pub fn beside(&self, row: &Row) -> Vec<(Row, Placing)> {
        let mut rows: Vec<Row> = Vec::new();
        for (number, part) in row.0.iter().enumerate() {
            let mut with = |changed: RowPart| {
                let mut other = row.clone();
                other.0[number] = changed;
                if !rows.contains(&other) {
                    rows.push(other);
                }
            };
            let taking = (0..part.stripes.len()).filter(|class| part.stripes[*class] > 0);
            let taking: Vec<usize> = taking.collect();
            for quarters in BESIDE {
                for classes in taking.iter().map(std::slice::from_ref).chain([taking.as_slice()]) {
                    let mut part = part.clone();
                    for class in classes {
                        let size = part.stripes[*class] * quarters / 4;
                        part.stripes[*class] = size.next_multiple_of(STRIPE_MIN);
                    }
                    with(part);
                }
            }
            // The last part takes what is left, whatever its share.
            let shares = SHARES.iter().filter(|share| number + 1 < row.0.len() && **share != part.share);
            for share in shares {
                with(RowPart { share: *share, ..part.clone() });
            }
        }
        let mut found: Vec<(Row, Placing)> = Vec::new();
        for row in rows {
            // Shares of few rounds come to the same layout.
            if let Some(placing) = self.laid(&row).filter(|it| !found.iter().any(|(_, other)| other == it)) {
                found.push((row, placing));
            }
        }
        found
    }

    fn sizes(&self) -> Vec<u64> {
        let mut sizes = SIZES_KIB.map(|kib| kib << 10).to_vec();
        sizes.extend(PARTS_OF_REQUEST.map(|part| self.request / part));
        sizes.retain(|size| *size >= STRIPE_MIN);
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// A row as a layout, if its last part has room for the rest and all before it for something.
    fn laid(&self, row: &Row) -> Option<Placing> {
        let (last, before) = row.0.split_last()?;
        let (mut parts, left) = self.left(&Row(before.to_vec()))?;
        let start = parts.last().map_or(0, |part: &Part| part.end.expect("all but the last end"));
        let last = Part { start, end: None, stripes: last.stripes.clone() };
        let full = self.ends(&last, &left);
        parts.push(last);
        (full >= self.extent).then_some(Placing { parts })
    }

    /// Parts that all end before the file does, and the room that they leave.
    fn left(&self, row: &Row) -> Option<(Vec<Part>, Vec<u64>)> {
        let (mut parts, mut left, mut start) = (Vec::new(), self.rooms.to_vec(), 0);
        for RowPart { stripes, share } in &row.0 {
            let part = Part { start, end: None, stripes: stripes.clone() };
            let round = part.round(self.figures);
            let full = self.ends(&part, &left);
            if full == u64::MAX {
                return None;
            }
            let rounds = (full - start) / round * share / SHARES[0];
            let end = start + rounds * round;
            if rounds == 0 || end >= self.extent {
                return None;
            }
            for (left, size) in left.iter_mut().zip(&part.stripes).filter(|(left, _)| **left != u64::MAX) {
                *left -= rounds * size;
            }
            parts.push(Part { end: Some(end), ..part });
            start = end;
        }
        Some((parts, left))
    }

    /// Where a part ends because some class is full, by whole rounds.
    fn ends(&self, part: &Part, left: &[u64]) -> u64 {
        let limited = (0..left.len()).filter(|class| part.stripes[*class] > 0 && left[*class] != u64::MAX);
        let rounds = limited.map(|class| left[class] / part.stripes[class]).min().unwrap_or(u64::MAX);
        rounds.saturating_mul(part.round(self.figures)).saturating_add(part.start)
    }
}

/// Every choice of a stripe size, or none, for each class, but for none at all.
fn every(sizes: &[u64], classes: usize) -> Vec<Vec<u64>> {
    let mut stripes: Vec<Vec<u64>> = vec![Vec::new()];
    for _ in 0..classes {
        let with = |before: &Vec<u64>| {
            let one = |size: &u64| [before.as_slice(), &[*size]].concat();
            [0].iter().chain(sizes).map(one).collect::<Vec<_>>()
        };
        stripes = stripes.iter().flat_map(with).collect();
    }
    stripes.retain(|stripes| stripes.iter().any(|size| *size > 0));
    stripes
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_planner::Bytes;

    fn figures(rooms: &[Option<u64>]) -> Figures {
        let class = |(number, room): (usize, &Option<u64>)| {
            format!(
                "[[classes]]\nname = \"c{number}\"\ntargets = 2\n{}\n\
                 read = {{ sequential = {{ startup_us = 1, mb_s = 1 }}, random = [{{ depth = 1, startup_us = 1, mb_s = 1 }}] }}\n\
                 write = {{ sequential = {{ startup_us = 1, mb_s = 1 }}, random = [{{ depth = 1, startup_us = 1, mb_s = 1 }}] }}\n",
                room.map_or_else(String::new, |room| format!("room = \"{}\"", Bytes(room)))
            )
        };
        let classes: String = rooms.iter().enumerate().map(class).collect();
        Figures::from_toml(&format!("[network]\nconnect_us = 1\nmb_s = 100\n{classes}")).unwrap()
    }

    #[test]
    fn all_layouts_fit_and_none_is_there_twice() {
        for rooms in [vec![None, Some(8 << 20)], vec![None, Some(2 << 20), Some(8 << 20)]] {
            let figures = figures(&rooms);
            let rooms: Vec<u64> = rooms.iter().map(|room| room.unwrap_or(u64::MAX)).collect();
            let space = Space { figures: &figures, rooms: &rooms, extent: 64 << 20, request: 512 << 10 };
            let all = space.all();
            let beside = all.iter().step_by(7).map(|(row, _)| space.beside(row));
            for layouts in [space.all(), space.fixed()].into_iter().chain(beside) {
                assert!(layouts.len() > 3);
                for (number, (_, placing)) in layouts.iter().enumerate() {
                    assert!(placing.fits(&figures, &rooms, 64 << 20, 1), "{placing:?}");
                    assert!(!layouts[..number].iter().any(|(_, other)| other == placing), "{placing:?}");
                }
            }
            // One stripe size in all parts, and all classes in the first.
            for (_, placing) in space.fixed() {
                let sizes: Vec<u64> = placing.parts.iter().flat_map(|part| part.stripes.clone()).collect();
                assert!(sizes.iter().all(|size| *size == 0 || *size == sizes[0]), "{placing:?}");
            }
        }
    }

    #[test]
    fn what_lies_beside_a_layout_differs_in_one_thing() {
        let figures = figures(&[None, Some(8 << 20)]);
        let space =
            Space { figures: &figures, rooms: &[u64::MAX, 8 << 20], extent: 64 << 20, request: 512 << 10 };
        let part = |stripes: [u64; 2], share| RowPart { stripes: stripes.to_vec(), share };
        let row = Row(vec![part([0, 1 << 20], 8), part([1 << 20, 0], 8)]);
        let beside = space.beside(&row);
        for ((hdd, ssd, end), is_there) in [
            ((1 << 20, 2 << 20, 16 << 20), true),
            ((768 << 10, 1 << 20, 16 << 20), true),
            ((1 << 20, 1 << 20, 14 << 20), true),
            ((1 << 20, 1 << 20, 8 << 20), true),
            ((2 << 20, 2 << 20, 16 << 20), false),
            ((1 << 20, 4 << 20, 16 << 20), false),
        ] {
            let wanted = Placing::two(vec![0, ssd], end, vec![hdd, 0]);
            assert_eq!(beside.iter().any(|(_, placing)| *placing == wanted), is_there, "{wanted:?}");
        }
    }
}
