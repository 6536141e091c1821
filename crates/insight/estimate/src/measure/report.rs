//! The file of measured figures, read by the planner and by iBridge.

use super::cases::{Case, Order};
use super::curve::Curve;
use super::fit::{FittedLine, Point, rounded};
use super::memory::PageCacheEstimate;
use super::network::Link;
use super::target::Measured;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use weft_planner::figures::{Class, Depth, Network, Service};
use weft_planner::mix::Direction;
use weft_planner::{Bytes, Figures};

/// Suffix of the file, which lies next to the cluster file.
const FILE_SUFFIX: &str = "figures.toml";

/// Measurements of a cluster.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Cluster name.
    pub cluster: String,
    /// Time of the measurement, seconds since 1970.
    pub measured_s: u64,
    /// Figures for the planner.
    pub figures: Figures,
    /// Network figures by server.
    pub network: Vec<Link>,
    /// Measurements by target class.
    pub classes: Vec<ClassReport>,
}

/// Measurements of a target class.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ClassReport {
    /// Class name.
    pub name: String,
    /// Kind of target according to the cluster file: its I/O module and emulated device.
    pub device: String,
    /// Numbers of the targets that were measured.
    pub targets: Vec<u32>,
    /// Time of the measurement if it is older than the report, seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_s: Option<u64>,
    /// Bytes used on each target.
    pub span: Bytes,
    /// Number of requests.
    pub samples: u64,
    /// Number of requests in outlier batches, which are not used.
    pub aside: u64,
    /// Largest relative deviation of a target from the mean, over all cases.
    pub apart: f64,
    /// Lines of reads.
    pub read: Lines,
    /// Lines of writes.
    pub write: Lines,
    /// Effective size of the page cache; `None` if requests bypass it.
    #[serde(rename = "held", default, skip_serializing_if = "Option::is_none")]
    pub page_cache: Option<PageCacheEstimate>,
    /// Service curve for iBridge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curve: Option<Curve>,
    /// Results of all cases.
    pub points: Vec<Point>,
}

/// Lines over the request length, with standard errors.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Lines {
    /// Adjacent requests.
    pub sequential: FittedLine,
    /// Sixteen interleaved streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<FittedLine>,
    /// Adjacent requests, shuffled in small groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<FittedLine>,
    /// Time of a small append and its sync, microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync_us: Option<f64>,
    /// Standard error of `sync_us`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync_error_us: Option<f64>,
    /// Random requests by queue depth.
    pub random: Vec<DepthLine>,
    /// Random direct writes by queue depth, if the others are buffered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past: Vec<DepthLine>,
}

/// A line at a queue depth.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct DepthLine {
    /// Queue depth.
    pub depth: u32,
    /// The line.
    #[serde(flatten)]
    pub line: FittedLine,
}

/// Input of a class report.
#[derive(Clone, Debug)]
pub struct ClassMeasurement {
    /// Class name.
    pub class: String,
    /// Kind of target.
    pub device: String,
    /// Number of targets in the class.
    pub targets: u32,
    /// Dirty bytes before writers block.
    pub write_buffer: u64,
    /// Dirty bytes at which write-back begins.
    pub write_back_threshold: u64,
    /// Page cache size that the system reports, bytes. Counts if everything that was read was still cached.
    pub page_cache: u64,
    /// Capacity of the device, bytes.
    pub capacity: u64,
    /// Measured targets by number.
    pub measured: Vec<(u32, Measured)>,
}

impl Report {
    /// Builds a report from classes and network figures.
    ///
    /// # Panics
    /// If no target of a class was measured.
    pub fn new(cluster: &str, measured_s: u64, sites: &[ClassMeasurement], network: Vec<Link>) -> Self {
        let classes: Vec<ClassReport> = sites.iter().map(ClassReport::of).collect();
        let figures = Figures {
            processes_per_node: 1,
            call_us: 0.0,
            network: network_figures(&network),
            classes: sites.iter().zip(&classes).map(|(site, class)| class.figures(site)).collect(),
        };
        Self { cluster: cluster.to_owned(), measured_s, figures, network, classes }
    }

    /// Adds the classes of an `earlier` report that were not measured now, if `still` confirms that they are unchanged.
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

    /// Time at which a class was measured, seconds since 1970.
    pub fn measured_s(&self, class: &ClassReport) -> u64 {
        class.measured_s.unwrap_or(self.measured_s)
    }

    /// Path of the figures that belong to a cluster file: `cluster.figures.toml` next to `cluster.toml`.
    pub fn beside(cluster_file: &Path) -> PathBuf {
        cluster_file.with_extension(FILE_SUFFIX)
    }

    /// Formats the report as TOML.
    ///
    /// # Panics
    /// Never: every value has a TOML form.
    pub fn to_toml(&self) -> String {
        let text = toml::to_string(self).expect("numbers and words");
        format!(
            "# Measured by `weft profile`; read by `weft plan`, and by iBridge when a server starts.\n{text}"
        )
    }

    /// Parses a report and checks its figures.
    ///
    /// # Errors
    /// A syntax error, or figures out of bounds.
    pub fn from_toml(text: &str) -> Result<Self, String> {
        let report: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        report.figures.check().map_err(|error| error.to_string())?;
        Ok(report)
    }

    /// The class with this name.
    pub fn class(&self, name: &str) -> Option<&ClassReport> {
        self.classes.iter().find(|class| class.name == name)
    }
}

/// Converts to the planner's network: the mean message time over the servers, and the slower direction.
fn network_figures(links: &[Link]) -> Network {
    if links.is_empty() {
        return Network::new(20.0, 12_500.0);
    }
    let mean = |of: fn(&Link) -> f64| rounded(links.iter().map(of).sum::<f64>() / links.len() as f64);
    Network::new(mean(|link| link.message_us), mean(Link::mb_s).max(1e-6))
}

impl ClassReport {
    fn of(site: &ClassMeasurement) -> Self {
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
            apart: rounded(apart),
            page_cache: PageCacheEstimate::least(
                site.measured.iter().filter_map(|(_, measured)| measured.page_cache),
            ),
            curve: Curve::of(&measured, site.capacity, read_mb_s, write_mb_s),
            read,
            write,
            points: cases.into_iter().map(|(_, point)| point).collect(),
        }
    }

    fn figures(&self, site: &ClassMeasurement) -> Class {
        let (_, first) = site.measured.first().expect("a measured target");
        let memory = if first.direct { (0, 0) } else { (site.write_buffer, site.write_back_threshold) };
        Class {
            name: self.name.clone(),
            targets: site.targets,
            capacity: None,
            // Reads answered from the page cache are not part of the measured times.
            memory: Bytes(self.page_cache.map_or(0, |estimate| estimate.or_reported(site.page_cache))),
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
            only.depth = 1; // Buffered: the number of writers makes no difference.
        }
        let sequential = of(Order::Sequential, None).expect("two lengths at least");
        let syncs =
            cases.iter().find(|(case, _)| case.direction == direction && case.order == Order::AppendSync);
        Self {
            sequential,
            streams: of(Order::Streams, None),
            near: of(Order::Near, None),
            sync_us: syncs.map(|(_, point)| rounded(point.ns_each / 1e3)),
            sync_error_us: syncs.map(|(_, point)| rounded(point.ns_error / 1e3)),
            random,
            past: by_depth(Order::RandomDirect),
        }
    }

    fn service(&self, (write_buffer, write_back_threshold): (u64, u64)) -> Service {
        Service {
            sequential: self.sequential.line(),
            streams: self.streams.map(|line| line.line()),
            head: None,
            near: self.near.map(|line| line.line()),
            random: non_increasing(&self.random),
            scattered: non_increasing(&self.past),
            sync_us: self.sync_us.unwrap_or(0.0),
            read_delay: None,
            cache: None,
            write_buffer: Bytes(write_buffer),
            write_back_threshold: Bytes(write_back_threshold),
        }
    }
}

/// Converts to the planner's depths. The time per request is made non-increasing with depth, since an increase is
/// noise.
fn non_increasing(lines: &[DepthLine]) -> Vec<Depth> {
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
