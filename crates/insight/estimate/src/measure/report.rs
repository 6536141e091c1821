//! The file of measured figures, read by the planner and by iBridge.

use super::cases::{Case, Order};
use super::curve::Curve;
use super::fit::{FittedLine, Point, rounded};
use super::memory::PageCacheEstimate;
use super::missing::{self, Missing};
use super::network::Link;
use super::target::Measured;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use weft_planner::figures::{Class, Depth, Network, Processor, Service};
use weft_planner::mix::Direction;
use weft_planner::{Bytes, Figures};

/// Suffix of the file, which lies next to the cluster file.
const FILE_SUFFIX: &str = "figures.toml";

/// Relative error of the planner's model for a measured class whose repetitions agree, fraction.
pub const ERROR_OF_MODEL: f64 = 0.10;

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
    /// Figures that could not be measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
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
    /// Device of each target of the class, if known.
    pub devices: Option<Vec<u32>>,
    /// Measured targets by number.
    pub measured: Vec<(u32, Measured)>,
}

impl Report {
    /// Builds a report from classes, network figures and the processors that clients and servers share. `missing` are
    /// figures already known to be missing. A class without a figure that the planner needs is left out, and so is one
    /// that the planner would refuse; there may be none left.
    ///
    /// # Panics
    /// If no target of a class was measured.
    pub fn new(
        cluster: &str,
        measured_s: u64,
        sites: &[ClassMeasurement],
        network: Vec<Link>,
        processor: Option<Processor>,
        missing: Vec<Missing>,
    ) -> Self {
        let figures = Figures {
            processes_per_node: 1,
            call_us: 0.0,
            measured: true,
            network: network_figures(&network),
            processor,
            classes: Vec::new(),
        };
        let cluster = cluster.to_owned();
        let mut report = Self { cluster, measured_s, figures, network, classes: Vec::new(), missing };
        for site in sites {
            let (class, missing) = ClassReport::of(site);
            report.missing.extend(missing);
            let Some(class) = class else { continue };
            if let Err(why) = report.add(class.figures(site), class) {
                report.missing.push(Missing::of_class(&site.class, "every figure", why));
            }
        }
        report
    }

    /// Adds a class if the planner accepts its figures.
    fn add(&mut self, figures: Class, class: ClassReport) -> Result<(), String> {
        self.figures.classes.push(figures);
        if let Err(error) = self.figures.check() {
            self.figures.classes.pop();
            return Err(format!("the planner refuses them ({error}); {}", missing::REMEDY));
        }
        self.classes.push(class);
        Ok(())
    }

    /// Adds the classes of an `earlier` report that were not measured now, if `still` confirms that they are unchanged.
    #[must_use]
    pub fn beside_earlier(mut self, earlier: Self, still: impl Fn(&ClassReport) -> bool) -> Self {
        let when = earlier.measured_s;
        for class in earlier.classes {
            let figures = earlier.figures.classes.iter().find(|figures| figures.name == class.name);
            let figures = figures.filter(|_| self.class(&class.name).is_none() && still(&class)).cloned();
            let name = class.name.clone();
            let class = ClassReport { measured_s: class.measured_s.or(Some(when)), ..class };
            if figures.is_some_and(|figures| self.add(figures, class).is_ok()) {
                let of_class = |missing: &&Missing| missing.class.as_ref() == Some(&name);
                self.missing.retain(|missing| !of_class(&missing));
                self.missing.extend(earlier.missing.iter().filter(of_class).cloned());
            }
        }
        self
    }

    /// Whether a figure of a class is known to be missing.
    pub fn lacks(&self, class: &str, figure: &str) -> bool {
        self.missing.iter().any(|missing| missing.class.as_deref() == Some(class) && missing.figure == figure)
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
    /// The report of a class and its missing figures. `None` if the planner needs one of these.
    fn of(site: &ClassMeasurement) -> (Option<Self>, Vec<Missing>) {
        let (_, first) = site.measured.first().expect("a measured target");
        let mut apart = 0f64;
        let all = || site.measured.iter().flat_map(|(_, measured)| &measured.cases);
        let mut cases: Vec<(Case, Point)> = Vec::new();
        for (case, _) in all() {
            if cases.iter().any(|(known, _)| known == case) {
                continue;
            }
            let points: Vec<&Point> =
                all().filter(|(other, _)| other == case).map(|(_, point)| point).collect();
            let (point, differ) = Point::pooled(&points);
            apart = apart.max(differ);
            cases.push((*case, point));
        }
        let missed: Vec<_> = site.measured.iter().flat_map(|(_, measured)| measured.missed.clone()).collect();
        let mut missing = missing::of_cases(&site.class, &cases, &missed);
        let page_cache =
            PageCacheEstimate::least(site.measured.iter().filter_map(|(_, measured)| measured.page_cache));
        if page_cache.is_none() && !first.direct {
            missing.push(Missing::of_class(&site.class, Missing::MEMORY, missing::NO_READ_TIME));
        }
        let [read, write] = [Direction::Read, Direction::Write].map(|direction| Lines::of(&cases, direction));
        let (Some(read), Some(write)) = (read, write) else {
            let why =
                format!("the planner needs sequential and random reads and writes; {}", missing::REMEDY);
            missing.push(Missing::of_class(&site.class, "every figure", why));
            return (None, missing);
        };
        let (read_mb_s, write_mb_s) = (read.sequential.mb_s, write.sequential.mb_s);
        let measured = Measured { cases: cases.clone(), ..first.clone() };
        let report = Self {
            name: site.class.clone(),
            device: site.device.clone(),
            targets: site.measured.iter().map(|(target, _)| *target).collect(),
            measured_s: None,
            span: Bytes(first.span),
            samples: cases.iter().map(|(_, point)| point.count).sum(),
            aside: cases.iter().map(|(_, point)| point.aside).sum(),
            apart: rounded(apart),
            page_cache,
            curve: Curve::of(&measured, site.capacity, read_mb_s, write_mb_s),
            read,
            write,
            points: cases.into_iter().map(|(_, point)| point).collect(),
        };
        (Some(report), missing)
    }

    /// Mean relative deviation of the repetitions over all cases that were repeated, fraction. `None` if none was.
    pub fn deviation(&self) -> Option<f64> {
        let repeated: Vec<f64> = self.points.iter().filter_map(|point| point.deviation).collect();
        (!repeated.is_empty()).then(|| repeated.iter().sum::<f64>() / repeated.len() as f64)
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
            error: self.deviation().map(|deviation| rounded((ERROR_OF_MODEL + deviation).min(1.0))),
            devices: site.devices.clone(),
            read: self.read.service((0, 0)),
            write: self.write.service(memory),
        }
    }
}

impl Lines {
    /// The lines of a direction; `None` if the planner needs one that was not measured.
    fn of(cases: &[(Case, Point)], direction: Direction) -> Option<Self> {
        let of = |order: Order, depth: Option<u32>| -> Option<FittedLine> {
            let same = cases.iter().filter(|(case, _)| {
                case.direction == direction
                    && case.order == order
                    && depth.is_none_or(|depth| case.depth == depth)
            });
            FittedLine::through(&same.map(|(_, point)| point).collect::<Vec<_>>())
        };
        let by_depth = |order: Order| -> Vec<DepthLine> {
            let mut depths: Vec<u32> = cases
                .iter()
                .filter(|(case, _)| case.direction == direction && case.order == order)
                .map(|(case, _)| case.depth)
                .collect();
            depths.sort_unstable();
            depths.dedup();
            let line = |depth| Some(DepthLine { depth, line: of(order, Some(depth))? });
            depths.into_iter().filter_map(line).collect()
        };
        let mut random = by_depth(Order::Random);
        if let [only] = &mut random[..] {
            only.depth = 1; // Buffered: the number of writers makes no difference.
        }
        let sequential = of(Order::Sequential, None)?;
        if random.is_empty() {
            return None;
        }
        let syncs =
            cases.iter().find(|(case, _)| case.direction == direction && case.order == Order::AppendSync);
        Some(Self {
            sequential,
            streams: of(Order::Streams, None),
            near: of(Order::Near, None),
            sync_us: syncs.map(|(_, point)| rounded(point.ns_each / 1e3)),
            sync_error_us: syncs.map(|(_, point)| rounded(point.ns_error / 1e3)),
            random,
            past: by_depth(Order::RandomDirect),
        })
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

/// Converts to the planner's depths. The time of a request of 64 KiB is made non-increasing with depth, since an increase
/// is noise. A lower startup time is kept.
fn non_increasing(lines: &[DepthLine]) -> Vec<Depth> {
    let mut depths: Vec<Depth> = Vec::new();
    for DepthLine { depth, line } in lines {
        let now = Depth { depth: *depth, startup_us: line.startup_us, mb_s: line.mb_s };
        let ns = |of: &Depth| of.startup_us * 1e3 + 65_536.0 * 1e3 / of.mb_s;
        depths.push(match depths.last() {
            Some(before) if ns(&now) > ns(before) => {
                let startup_us = now.startup_us.min(before.startup_us);
                let mb_s = rounded(65_536.0 * 1e3 / (ns(before) - startup_us * 1e3));
                Depth { depth: *depth, startup_us, mb_s }
            }
            _ => now,
        });
    }
    depths
}

#[cfg(test)]
mod tests {
    use super::super::cases;
    use super::super::fit::Stream;
    use super::*;
    use weft_core::Nanos;

    /// A target whose requests all take `ns(case)` nanoseconds, in two repetitions.
    fn target(direct: bool, ns: impl Fn(&Case) -> f64) -> Measured {
        let point = |case: Case| {
            let stream = Stream { times: vec![1000; 20], elapsed: 20_000 };
            let point = Point::of_streams(case.name(), case.len, &[stream]);
            let one = Point { ns_each: ns(&case), ns_error: 1.0, depth: case.depth, ..point };
            (case, Point::of_repetitions(&[one.clone(), one]).expect("two"))
        };
        let span = 1 << 28;
        let all = cases::all(span, direct, false, Nanos::from_s(5)).into_iter().map(point);
        let (cases, missed): (Vec<_>, Vec<_>) = all.partition(|(_, point)| point.is_measured());
        let missed = missed.into_iter().map(|(case, _)| (case, missing::NOTHING_COMPLETED)).collect();
        Measured { cases, missed, page_cache: None, span, reach: span, direct }
    }

    fn class(name: &str, targets: u32, measured: Vec<Measured>) -> ClassMeasurement {
        ClassMeasurement {
            class: name.into(),
            device: "buffered".into(),
            targets,
            write_buffer: 1 << 28,
            write_back_threshold: 1 << 26,
            page_cache: 1 << 30,
            capacity: 1 << 40,
            devices: Some((0..targets).collect()),
            measured: (0..).zip(measured).collect(),
        }
    }

    fn of(classes: &[ClassMeasurement]) -> Report {
        Report::new("test", 7, classes, Vec::new(), None, Vec::new())
    }

    fn usual(case: &Case) -> f64 {
        100_000.0 + case.len as f64 * 5.0
    }

    #[test]
    fn what_was_not_measured_is_named_and_left_out() {
        let unmeasured = |case: &Case| match case.figure().as_str() {
            "read.streams" | "write.sync_us" | "write.scattered of depth 16" | "curve" => 0.0,
            "read.near" => f64::NAN,
            "read.random of depth 64" => f64::INFINITY,
            _ => usual(case),
        };
        let report = of(&[class("hdd", 2, vec![target(false, unmeasured)])]);
        let figures: Vec<&str> = report.missing.iter().map(|missing| missing.figure.as_str()).collect();
        let expected = [
            "read.streams",
            "read.near",
            "read.random of depth 64",
            "write.scattered of depth 16",
            "write.sync_us",
            "curve",
            "memory",
        ];
        for figure in expected {
            assert!(report.lacks("hdd", figure), "{figure}: {figures:?}");
        }
        assert_eq!(figures.len(), expected.len(), "{figures:?}");
        assert!(
            report.missing[0].to_string().starts_with("class hdd, write.sync_us: "),
            "{}",
            report.missing[0]
        );
        let class = &report.figures.classes[0];
        assert_eq!((class.read.streams, class.read.near, class.write.sync_us), (None, None, 0.0));
        let depths = |depths: &[Depth]| depths.iter().map(|depth| depth.depth).collect::<Vec<_>>();
        assert_eq!(depths(&class.read.random), [1, 4, 16]);
        assert_eq!(depths(&class.write.scattered), [1, 4, 64]);
        assert_eq!(report.classes[0].curve, None);
        assert!(report.figures.measured && class.error == Some(0.1), "{:?}", class.error);
        // The file is accepted.
        assert_eq!(Report::from_toml(&report.to_toml()).as_ref(), Ok(&report));
    }

    #[test]
    fn a_class_is_left_out_if_what_was_not_measured_is_needed() {
        let ssd = class("ssd", 2, vec![target(true, usual)]);
        for needed in ["read.sequential", "read.random of depth", "write.sequential", "write.random of depth"]
        {
            for value in [0.0, f64::NAN, f64::INFINITY] {
                let odd = |case: &Case| if case.figure().starts_with(needed) { value } else { usual(case) };
                let report = of(&[class("hdd", 2, vec![target(true, odd)]), ssd.clone()]);
                let names: Vec<&str> =
                    report.figures.classes.iter().map(|class| class.name.as_str()).collect();
                assert_eq!(names, ["ssd"], "{needed}: {value}");
                assert!(report.class("hdd").is_none() && report.lacks("hdd", "every figure"));
                let told = report.missing.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
                assert!(told.contains("run `weft profile` again when the machine is idle"), "{told}");
                assert_eq!(Report::from_toml(&report.to_toml()), Ok(report));
            }
        }
        // Figures that the planner refuses are not written either.
        let slow = class("slow", 2, vec![target(true, |case| case.len as f64 * 1e12)]);
        let report = of(&[
            slow,
            ssd.clone(),
            ClassMeasurement { targets: 0, ..class("none", 0, vec![target(true, usual)]) },
        ]);
        assert_eq!(report.classes.len(), 1, "{:?}", report.missing);
        assert!(report.lacks("slow", "every figure") && report.lacks("none", "every figure"));
        assert_eq!(Report::from_toml(&report.to_toml()), Ok(report));
    }

    #[test]
    fn earlier_figures_stay_if_what_was_not_measured_now_is_unchanged() {
        let partly = |case: &Case| if case.figure() == "curve" { 0.0 } else { usual(case) };
        let earlier = of(&[class("hdd", 2, vec![target(true, partly)])]);
        let nothing = of(&[class("hdd", 2, vec![target(true, |_| 0.0)])]);
        assert!(nothing.figures.classes.is_empty() && nothing.figures.check().is_err());
        let whole = nothing.clone().beside_earlier(earlier.clone(), |_| true);
        assert_eq!(whole.figures.classes, earlier.figures.classes);
        assert_eq!((whole.missing.len(), whole.lacks("hdd", "curve")), (1, true), "{:?}", whole.missing);
        assert_eq!(whole.measured_s(&whole.classes[0]), 7);
        let changed = nothing.clone().beside_earlier(earlier, |_| false);
        assert_eq!(changed, nothing);
    }

    #[test]
    fn noise_does_not_make_deeper_queues_slower() {
        let line = |depth, startup_us, mb_s| {
            let line = FittedLine { startup_us, startup_error_us: 0.0, mb_s, mb_s_error: 0.0, off: 0.0 };
            DepthLine { depth, line }
        };
        let all = [line(1, 40.0, 500.0), line(4, 4.0, 530.0), line(16, 2.0, 515.0), line(64, 5.0, 520.0)];
        let depths = non_increasing(&all);
        let us = |depth: &Depth, len: f64| depth.startup_us + len / depth.mb_s;
        for pair in depths.windows(2) {
            assert!(us(&pair[1], 65_536.0) <= us(&pair[0], 65_536.0) * 1.001, "{depths:?}");
            assert!(us(&pair[1], 4096.0) <= us(&pair[0], 4096.0) * 1.001, "{depths:?}");
        }
        assert_eq!((depths[2].startup_us, depths[3].startup_us), (2.0, 2.0));
    }

    #[test]
    fn targets_that_differ_add_to_the_error() {
        let slower = |case: &Case| usual(case) * 1.5;
        let report = of(&[class("hdd", 2, vec![target(true, usual), target(true, slower)])]);
        let error = report.figures.classes[0].error.expect("known");
        // Each target is 20 % from their mean.
        assert!((error - 0.3).abs() < 1e-3, "{error}");
        assert_eq!(Report::from_toml(&report.to_toml()), Ok(report));
    }
}
