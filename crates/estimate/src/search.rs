//! Layouts tried on the twin one after another: what the planners are held against.

use crate::trial::{Trial, layout_spec, run_layout};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use weft_planner::{Figures, Part, Placing};
use weft_twin::{ClusterSpec, RunOptions};
use weft_workload::Workload;

/// Stripe sizes that are tried whatever requests there are, KiB.
const SIZES_KIB: [u64; 4] = [64, 256, 1024, 4096];
/// Parts of a request that are tried as stripes.
const PARTS_OF_REQUEST: [u64; 3] = [1, 2, 4];
/// The same for rows of three classes, each with equal stripes.
const SIZES_OF_ROWS_KIB: [u64; 2] = [64, 4096];
/// Parts of a row at most.
const ROW_MAX: usize = 3;
/// The least stripe, bytes.
const STRIPE_MIN: u64 = 4096;

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

impl Space<'_> {
    /// All layouts of one and two parts of which the first ends where its room does. Of two classes with every pair of
    /// stripes; of more, up to three parts, each over any set of classes with equal stripes.
    pub fn all(&self) -> Vec<Placing> {
        if self.rooms.len() > 2 { self.rows() } else { self.pairs() }
    }

    /// One stripe size for all targets, each target until it is full.
    pub fn fixed(&self) -> Vec<Placing> {
        let fixed = |size: &u64| {
            let mut left = self.rooms.to_vec();
            let mut parts: Vec<Part> = Vec::new();
            let mut from = 0;
            loop {
                let stripes: Vec<u64> =
                    left.iter().map(|room| if *room >= *size { *size } else { 0 }).collect();
                if stripes.iter().all(|size| *size == 0) {
                    return None;
                }
                let part = Part { start: from, end: None, stripes };
                let end = self.ends(&part, &left);
                if end >= self.extent {
                    parts.push(part);
                    return Some(Placing { parts });
                }
                self.take(&part, end, &mut left);
                parts.push(Part { end: Some(end), ..part });
                from = end;
            }
        };
        self.sizes(&SIZES_KIB).iter().filter_map(fixed).collect()
    }

    fn sizes(&self, kib: &[u64]) -> Vec<u64> {
        let mut sizes: Vec<u64> = kib.iter().map(|kib| kib << 10).collect();
        sizes.extend(PARTS_OF_REQUEST.map(|part| self.request / part));
        sizes.retain(|size| *size >= STRIPE_MIN);
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// Where a part ends because some class is full, by whole rounds.
    fn ends(&self, part: &Part, left: &[u64]) -> u64 {
        let limited = (0..left.len()).filter(|class| part.stripes[*class] > 0 && left[*class] != u64::MAX);
        let rounds = limited.map(|class| left[class] / part.stripes[class]).min().unwrap_or(u64::MAX);
        rounds.saturating_mul(part.round(self.figures)).saturating_add(part.start)
    }

    fn take(&self, part: &Part, end: u64, left: &mut [u64]) {
        let rounds = (end - part.start) / part.round(self.figures);
        for (left, size) in left.iter_mut().zip(&part.stripes).filter(|(left, _)| **left != u64::MAX) {
            *left -= rounds * size;
        }
    }

    fn pairs(&self) -> Vec<Placing> {
        let sizes = self.sizes(&SIZES_KIB);
        let mut stripes: Vec<Vec<u64>> = vec![Vec::new()];
        for _ in self.rooms {
            let with = |before: &Vec<u64>| {
                let one = |size: &u64| [before.as_slice(), &[*size]].concat();
                [0].iter().chain(&sizes).map(one).collect::<Vec<_>>()
            };
            stripes = stripes.iter().flat_map(with).collect();
        }
        stripes.retain(|stripes| stripes.iter().any(|size| *size > 0));
        let mut found = Vec::new();
        for head in &stripes {
            let part = Part { start: 0, end: None, stripes: head.clone() };
            let boundary = self.ends(&part, self.rooms);
            if boundary >= self.extent {
                found.push(Placing::whole(head.clone()));
            } else if boundary > 0 {
                let tails = stripes.iter().filter(|tail| *tail != head);
                let two = tails.map(|tail| Placing::two(head.clone(), boundary, tail.clone()));
                found.extend(two.filter(|two| two.fits(self.figures, self.rooms, self.extent, 1)));
            }
        }
        found
    }

    fn rows(&self) -> Vec<Placing> {
        let mut sizes = SIZES_OF_ROWS_KIB.map(|kib| kib << 10).to_vec();
        sizes.push(self.request);
        let classes = self.rooms.len();
        let stripes = |set: u32, size: u64| {
            (0..classes).map(|class| if set >> class & 1 == 1 { size } else { 0 }).collect()
        };
        let choices: Vec<Vec<u64>> =
            (1..1u32 << classes).flat_map(|set| sizes.iter().map(move |size| stripes(set, *size))).collect();
        let mut found = Vec::new();
        let mut begun: Vec<(Vec<Part>, Vec<u64>)> = vec![(Vec::new(), self.rooms.to_vec())];
        for depth in 1..=ROW_MAX {
            let mut next = Vec::new();
            for (before, left) in &begun {
                let last = before.last();
                let from = last.map_or(0, |part| part.end.expect("all but the last end"));
                for stripes in
                    choices.iter().filter(|stripes| last.is_none_or(|last| last.stripes != **stripes))
                {
                    let part = Part { start: from, end: None, stripes: stripes.clone() };
                    let end = self.ends(&part, left);
                    if end >= self.extent {
                        found.push(Placing { parts: [before.as_slice(), &[part]].concat() });
                    } else if end > from && depth < ROW_MAX {
                        let mut left = left.clone();
                        self.take(&part, end, &mut left);
                        next.push(([before.as_slice(), &[Part { end: Some(end), ..part }]].concat(), left));
                    }
                }
            }
            begun = next;
        }
        found
    }
}

/// Runs a workload under each layout, by `jobs` threads; those that could be run, the quickest first.
pub fn tried(
    cluster: &ClusterSpec,
    figures: &Figures,
    workload: &dyn Workload,
    layouts: Vec<Placing>,
    options: RunOptions,
    jobs: usize,
) -> Vec<(Trial, Placing)> {
    let next = AtomicUsize::new(0);
    let mut found: Vec<(usize, Trial)> = Vec::new();
    std::thread::scope(|scope| {
        let (tell, hear) = mpsc::channel();
        for _ in 0..jobs.clamp(1, layouts.len().max(1)) {
            let (tell, next, layouts) = (tell.clone(), &next, &layouts);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(placing) = layouts.get(index) else { return };
                    let run = layout_spec(placing, figures)
                        .and_then(|layout| run_layout(cluster, layout, workload, options));
                    // A layout that files cannot have is none to be tried.
                    if let Ok(trial) = run
                        && tell.send((index, trial)).is_err()
                    {
                        return;
                    }
                }
            });
        }
        drop(tell);
        found.extend(hear);
    });
    found.sort_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds).then(a.0.cmp(&b.0)));
    let mut layouts: Vec<Option<Placing>> = layouts.into_iter().map(Some).collect();
    let one = |(index, trial): (usize, Trial)| (trial, layouts[index].take().expect("each is run once"));
    found.into_iter().map(one).collect()
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
            for layouts in [space.all(), space.fixed()] {
                assert!(layouts.len() > 3);
                for (number, placing) in layouts.iter().enumerate() {
                    assert!(placing.fits(&figures, &rooms, 64 << 20, 1), "{placing:?}");
                    assert!(!layouts[..number].contains(placing), "{placing:?}");
                }
            }
            // One stripe size in all parts, and all classes in the first.
            for placing in space.fixed() {
                let sizes: Vec<u64> = placing.parts.iter().flat_map(|part| part.stripes.clone()).collect();
                assert!(sizes.iter().all(|size| *size == 0 || *size == sizes[0]), "{placing:?}");
            }
        }
    }
}
