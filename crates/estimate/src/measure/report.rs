//! What was measured of a cluster, as a file that the planner and iBridge read.

use super::cases::{Case, Order};
use super::curve::Curve;
use super::fit::{FittedLine, Point, short};
use super::memory::Held;
use super::network::Link;
use super::target::Measured;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use weft_planner::figures::{Class, Depth, Network, Service};
use weft_planner::mix::Direction;
use weft_planner::{Bytes, Figures};

/// The file of a cluster's figures ends so; it lies beside the cluster file.
const SUFFIX: &str = "figures.toml";

/// What was measured of a cluster.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The cluster's name.
    pub cluster: String,
    /// When, in seconds since 1970.
    pub measured_s: u64,
    /// As the planner takes them.
    pub figures: Figures,
    /// The way to each server.
    pub network: Vec<Link>,
    /// Targets of each class.
    pub classes: Vec<ClassReport>,
}

/// What was measured of a class of targets.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ClassReport {
    /// The class.
    pub name: String,
    /// What a target is, by the cluster file: its module and what it emulates.
    pub device: String,
    /// Targets that were measured, by their numbers.
    pub targets: Vec<u32>,
    /// When, in seconds since 1970, where that was before all of the report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_s: Option<u64>,
    /// Over so much of each, bytes.
    pub span: Bytes,
    /// Requests that were done.
    pub samples: u64,
    /// Of them those in batches that were far from the others, and count for nothing.
    pub aside: u64,
    /// By which part of the mean the target differs, of the case in which one differs most.
    pub apart: f64,
    /// Reads.
    pub read: Lines,
    /// Writes.
    pub write: Lines,
    /// What memory has of what was read last; `None` where requests go past it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// The device as iBridge sees it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curve: Option<Curve>,
    /// What all kinds of requests took.
    pub points: Vec<Point>,
}

/// Lines over the lengths of requests, with their errors.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Lines {
    /// Requests that follow each other.
    pub sequential: FittedLine,
    /// Sixteen streams in turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<FittedLine>,
    /// In order but for neighbors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<FittedLine>,
    /// A small write behind the end of a file and its sync, microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync_us: Option<f64>,
    /// Standard error of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync_error_us: Option<f64>,
    /// Anywhere, by how many are under way.
    pub random: Vec<DepthLine>,
    /// The same of writes that memory did not gather, where it gathers the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past: Vec<DepthLine>,
}

/// A line at a depth.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct DepthLine {
    /// Under way at a time.
    pub depth: u32,
    /// The line.
    #[serde(flatten)]
    pub line: FittedLine,
}

/// A class to be reported.
#[derive(Clone, Debug)]
pub struct Site {
    /// The class.
    pub class: String,
    /// What a target is.
    pub device: String,
    /// How many targets the class has.
    pub targets: u32,
    /// So much is taken into memory before writers wait, bytes.
    pub behind: u64,
    /// So much is gathered there before the device begins.
    pub gathers: u64,
    /// So much memory the system says that it has, for when all that was read was still there.
    pub holds: u64,
    /// Size of the device, bytes.
    pub capacity: u64,
    /// Those that were measured.
    pub measured: Vec<(u32, Measured)>,
}

impl Report {
    /// Of classes, each with one measured target at least, and the ways to servers.
    ///
    /// # Panics
    /// Without a measured target of a class.
    pub fn new(cluster: &str, measured_s: u64, sites: &[Site], network: Vec<Link>) -> Self {
        let classes: Vec<ClassReport> = sites.iter().map(ClassReport::of).collect();
        let figures = Figures {
            processes_per_node: 1,
            call_us: 0.0,
            network: of_links(&network),
            classes: sites.iter().zip(&classes).map(|(site, class)| class.figures(site)).collect(),
        };
        Self { cluster: cluster.to_owned(), measured_s, figures, network, classes }
    }

    /// With the classes of an `earlier` report that were not measured now, as far as they are `still` what they were.
    #[must_use]
    pub fn beside_earlier(mut self, earlier: Self, still: impl Fn(&ClassReport) -> bool) -> Self {
        let when = earlier.measured_s;
        for class in earlier.classes {
            let figures = earlier.figures.classes.iter().find(|figures| figures.name == class.name);
            if let Some(figures) = figures.filter(|_| self.class(&class.name).is_none() && still(&class)) {
                self.figures.classes.push(figures.clone());
                self.classes.push(ClassReport { measured_s: class.measured_s.or(Some(when)), ..class });
            }
        }
        self
    }

    /// When a class was measured, in seconds since 1970.
    pub fn measured_s(&self, class: &ClassReport) -> u64 {
        class.measured_s.unwrap_or(self.measured_s)
    }

    /// Where the figures of the cluster lie that this file describes: beside it, `cluster.figures.toml` for
    /// `cluster.toml`.
    pub fn beside(cluster_file: &Path) -> PathBuf {
        cluster_file.with_extension(SUFFIX)
    }

    /// As text that [`Report::from_toml`] reads.
    ///
    /// # Panics
    /// Never: all of it is what TOML can hold.
    pub fn to_toml(&self) -> String {
        let text = toml::to_string(self).expect("numbers and words");
        format!(
            "# Measured by `weft profile`; read by `weft plan`, and by iBridge when a server starts.\n{text}"
        )
    }

    /// Reads a report and checks its figures.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn from_toml(text: &str) -> Result<Self, String> {
        let report: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        report.figures.check().map_err(|error| error.to_string())?;
        Ok(report)
    }

    /// The class of this name.
    pub fn class(&self, name: &str) -> Option<&ClassReport> {
        self.classes.iter().find(|class| class.name == name)
    }
}

/// The network as the planner has it: the mean over servers of a message, the slower direction of bytes.
fn of_links(links: &[Link]) -> Network {
    if links.is_empty() {
        return Network::new(20.0, 12_500.0);
    }
    let mean = |of: fn(&Link) -> f64| short(links.iter().map(of).sum::<f64>() / links.len() as f64);
    Network::new(mean(|link| link.message_us), mean(Link::mb_s).max(1e-6))
}

impl ClassReport {
    fn of(site: &Site) -> Self {
        let (_, first) = site.measured.first().expect("a measured target");
        let mut apart = 0f64;
        let cases: Vec<(Case, Point)> = first
            .cases
            .iter()
            .map(|(case, _)| {
                let same = site.measured.iter().flat_map(|(_, measured)| &measured.cases);
                let points: Vec<&Point> =
                    same.filter(|(other, _)| other == case).map(|(_, point)| point).collect();
                let (point, differ) = Point::pooled(&points);
                apart = apart.max(differ);
                (*case, point)
            })
            .collect();
        let [read, write] = [Direction::Read, Direction::Write].map(|direction| Lines::of(&cases, direction));
        let (read_mb_s, write_mb_s) = (read.sequential.mb_s, write.sequential.mb_s);
        let measured = Measured { cases: cases.clone(), ..first.clone() };
        Self {
            name: site.class.clone(),
            device: site.device.clone(),
            targets: site.measured.iter().map(|(target, _)| *target).collect(),
            measured_s: None,
            span: Bytes(first.span),
            samples: cases.iter().map(|(_, point)| point.count).sum(),
            aside: cases.iter().map(|(_, point)| point.aside).sum(),
            apart: short(apart),
            held: Held::least(site.measured.iter().filter_map(|(_, measured)| measured.held)),
            curve: Curve::of(&measured, site.capacity, read_mb_s, write_mb_s),
            read,
            write,
            points: cases.into_iter().map(|(_, point)| point).collect(),
        }
    }

    fn figures(&self, site: &Site) -> Class {
        let (_, first) = site.measured.first().expect("a measured target");
        let memory = if first.direct { (0, 0) } else { (site.behind, site.gathers) };
        Class {
            name: self.name.clone(),
            targets: site.targets,
            room: None,
            // Reads that memory answers were kept out of what was measured.
            memory: Bytes(self.held.map_or(0, |held| held.or_as_told(site.holds))),
            read: self.read.service((0, 0)),
            write: self.write.service(memory),
        }
    }
}

impl Lines {
    fn of(cases: &[(Case, Point)], direction: Direction) -> Self {
        let of = |order: Order, depth: Option<u32>| -> Option<FittedLine> {
            let same = cases.iter().filter(|(case, _)| {
                case.direction == direction
                    && case.order == order
                    && depth.is_none_or(|depth| case.depth == depth)
            });
            let points: Vec<&Point> = same.map(|(_, point)| point).filter(|point| point.count > 0).collect();
            (points.len() > 1).then(|| FittedLine::through(&points))
        };
        let by_depth = |order: Order| -> Vec<DepthLine> {
            let mut depths: Vec<u32> = cases
                .iter()
                .filter(|(case, _)| case.direction == direction && case.order == order)
                .map(|(case, _)| case.depth)
                .collect();
            depths.dedup();
            let line = |depth| Some(DepthLine { depth, line: of(order, Some(depth))? });
            depths.into_iter().filter_map(line).collect()
        };
        let mut random = by_depth(Order::Random);
        if let [only] = &mut random[..] {
            only.depth = 1; // memory gathers them: how many write makes no difference
        }
        let sequential = of(Order::Sequential, None).expect("two lengths at least");
        let syncs = cases.iter().find(|(case, _)| case.direction == direction && case.order == Order::Sync);
        Self {
            sequential,
            streams: of(Order::Streams, None),
            near: of(Order::Near, None),
            sync_us: syncs.map(|(_, point)| short(point.ns_each / 1e3)),
            sync_error_us: syncs.map(|(_, point)| short(point.ns_error / 1e3)),
            random,
            past: by_depth(Order::Past),
        }
    }

    fn service(&self, (behind, gathers): (u64, u64)) -> Service {
        Service {
            sequential: self.sequential.line(),
            streams: self.streams.map(|line| line.line()),
            head: None,
            near: self.near.map(|line| line.line()),
            random: falling(&self.random),
            scattered: falling(&self.past),
            sync_us: self.sync_us.unwrap_or(0.0),
            waits: None,
            cache: None,
            behind: Bytes(behind),
            gathers: Bytes(gathers),
        }
    }
}

/// Lines by depth as the planner has them: more at a time never take longer each, what would say so is chance.
fn falling(lines: &[DepthLine]) -> Vec<Depth> {
    let mut depths: Vec<Depth> = Vec::new();
    for DepthLine { depth, line } in lines {
        let now = Depth { depth: *depth, startup_us: line.startup_us, mb_s: line.mb_s };
        let ns = |of: &Depth| of.startup_us * 1e3 + 65_536.0 * 1e3 / of.mb_s;
        depths.push(match depths.last() {
            Some(before) if ns(&now) > ns(before) => Depth { depth: *depth, ..*before },
            _ => now,
        });
    }
    depths
}
