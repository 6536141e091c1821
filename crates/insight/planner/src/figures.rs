//! Figures: the planner's description of a cluster. Target classes, their speed and capacity, and the network.

use crate::bytes::Bytes;
use crate::mix::Direction;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use weft_core::TargetId;
use weft_core::layout::COLUMNS_MAX;

/// A cluster described by figures, either measured (`weft plan --cluster`, `weft profile`) or written by hand.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Processes per compute node, the paper's c. Used when the trace does not name hosts.
    #[serde(default = "default_processes_per_node")]
    pub processes_per_node: u32,
    /// Mean time that a process computes between two requests, microseconds.
    #[serde(default)]
    pub call_us: f64,
    /// Whether the speeds were measured on the cluster by `weft profile`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub measured: bool,
    /// The network between nodes.
    pub network: Network,
    /// Processors of the host on which all servers and clients run; absent if they run on several hosts, or unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<Processor>,
    /// Target classes.
    pub classes: Vec<Class>,
}

fn default_processes_per_node() -> u32 {
    1
}

/// Processors that clients and servers share, because all of them run on one host.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processor {
    /// Requests without payload that are sent, served and answered per second, by all processors together. A request
    /// and its reply count once.
    pub messages_per_s: f64,
    /// Number of processors.
    pub cores: u32,
}

/// Network figures.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Time of one message without payload, microseconds; the paper's e.
    pub connect_us: f64,
    /// Bandwidth of a link in each direction, 10^6 bytes per second; the paper's 1/t.
    pub mb_s: f64,
    /// Bytes that a connection buffers in flight. A sender blocks until the receiver has taken some of them.
    #[serde(default = "default_window")]
    pub window: Bytes,
}

/// Default of [`Network::window`]: the socket buffers of both ends on a local network.
const fn default_window() -> Bytes {
    Bytes(512 << 10)
}

impl Network {
    /// A network with the default window.
    pub const fn new(connect_us: f64, mb_s: f64) -> Self {
        Self { connect_us, mb_s, window: default_window() }
    }
}

/// A class of targets with the same performance.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// Class name.
    pub name: String,
    /// Number of targets in the class.
    pub targets: u32,
    /// Bytes available on each target for the planned files; unlimited if absent.
    #[serde(alias = "room", default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Bytes>,
    /// Bytes of recently read or written data that the page cache of each target holds.
    #[serde(default)]
    pub memory: Bytes,
    /// Relative error of the speeds, as a fraction; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// Number of each target's device. Targets with equal numbers, also of other classes, share a device. Absent if
    /// unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<Vec<u32>>,
    /// Read performance.
    pub read: Service,
    /// Write performance.
    pub write: Service,
}

/// How a target serves requests of one direction.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Requests that start where the previous one ended.
    pub sequential: Line,
    /// Interleaved sequential streams of one file. If absent, `sequential` is used where the page cache buffers writes,
    /// else `random`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<Line>,
    /// Requests near the previous one but out of order; `sequential` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<Line>,
    /// Head and platter of a disk. If absent, requests are served in arrival order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<Head>,
    /// Random requests, by queue depth in ascending order.
    pub random: Vec<Depth>,
    /// Random writes that reach the device before the page cache could merge them, by how many are submitted together,
    /// in ascending order; `random` if absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scattered: Vec<Depth>,
    /// Time of a sync in addition to the writes it waits for, microseconds. Concurrent syncs share it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sync_us: f64,
    /// Delay of reads while the device writes back dirty data. If absent, reads take precedence.
    #[serde(rename = "waits", default, skip_serializing_if = "Option::is_none")]
    pub read_delay: Option<ReadDelay>,
    /// Dirty bytes that the page cache accepts before writers block; 0 if every write waits for the device.
    #[serde(rename = "behind", default)]
    pub write_buffer: Bytes,
    /// The device's own write cache. If absent, a write is on the medium when the device has taken it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<Cache>,
    /// Dirty bytes at which the device begins to write back.
    #[serde(rename = "gathers", default)]
    pub write_back_threshold: Bytes,
}

/// Time of a request as a linear function of its length: the paper's alpha and 1/beta.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Time of an empty request, microseconds.
    pub startup_us: f64,
    /// Rate of the remaining bytes, 10^6 per second.
    pub mb_s: f64,
}

/// Delay of reads behind write-back.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadDelay {
    /// Longest wait, microseconds.
    #[serde(rename = "most_us")]
    pub max_us: f64,
    /// Write-back time that a read does not wait for because the device serves both at once, microseconds.
    #[serde(rename = "beside_us", default)]
    pub overlap_us: f64,
}

/// The write cache of a device.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Size of the cache.
    pub size: Bytes,
    /// Rate at which the cache fills, 10^6 bytes per second.
    pub mb_s: f64,
}

/// The head of a disk above its rotating medium.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Time of one rotation, microseconds.
    #[serde(rename = "turn_us")]
    pub rotation_us: f64,
    /// Command overhead of a request, microseconds. The head serves other requests meanwhile.
    #[serde(rename = "way_us", default)]
    pub overhead_us: f64,
    /// Seek times by distance, in ascending order.
    pub seeks: Vec<Seek>,
    /// Bytes that the drive reads into its cache past the end of a request (look-ahead).
    #[serde(rename = "reads_on")]
    pub look_ahead: Bytes,
    /// Number of look-ahead segments that the drive's cache keeps.
    #[serde(rename = "stretches")]
    pub cache_segments: u32,
    /// Requests queued in the device at a time.
    #[serde(rename = "takes", default = "default_queue_depth")]
    pub queue_depth: u32,
    /// Bytes that the operating system reads ahead of a sequential reader.
    #[serde(rename = "ahead", default = "default_read_ahead")]
    pub read_ahead: Bytes,
}

/// Time of one seek.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seek {
    /// Seek distance.
    pub distance: Bytes,
    /// Time until the head has settled, microseconds.
    pub us: f64,
}

/// Linux's default read-ahead.
fn default_read_ahead() -> Bytes {
    Bytes(128 << 10)
}

/// A typical device queue depth of disks.
fn default_queue_depth() -> u32 {
    16
}

/// Mean time per request at a queue depth, as a line over the length.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Depth {
    /// Queue depth.
    pub depth: u32,
    /// Time of an empty request, microseconds.
    pub startup_us: f64,
    /// Rate of the remaining bytes, 10^6 per second.
    pub mb_s: f64,
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

fn is_false(value: &bool) -> bool {
    !value
}

/// Maximum number of classes. The planner searches over many subsets of them.
const CLASSES_MAX: usize = 16;
/// Maximum number of targets in all classes. It bounds the columns of a layout with one part per class and one more.
const TARGETS_MAX: u64 = 3500;
const _: () = assert!(TARGETS_MAX as usize * (CLASSES_MAX + 1) <= COLUMNS_MAX);
/// Maximum relative error of a class's speeds. A figure that is further off says nothing.
const ERROR_MAX: f64 = 10.0;
/// Maximum number of processors of a host.
const CORES_MAX: u32 = 1 << 16;
/// Microseconds of a small random request from which on a device must be a disk that seeks.
const SEEK_US: f64 = 2_000.0;
/// Number of buffered writes beyond which merging gains nothing more.
const MERGED_MAX: u32 = 1024;

/// Why figures do not describe a usable cluster.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("figures: {field}: {why}")]
pub struct FiguresError {
    /// The offending field.
    pub field: String,
    /// The reason.
    pub why: &'static str,
}

impl Figures {
    /// The targets of each class, numbered in the order of the classes.
    pub fn targets(&self) -> Vec<Vec<TargetId>> {
        let mut number = 0;
        let of_class = |class: &Class| {
            let first = number;
            number += class.targets;
            (first..number).map(TargetId).collect()
        };
        self.classes.iter().map(of_class).collect()
    }

    /// Whether two targets are known to share a device.
    pub fn shares_devices(&self) -> bool {
        let mut seen = BTreeSet::new();
        self.classes
            .iter()
            .filter_map(|class| class.devices.as_ref())
            .flatten()
            .any(|device| !seen.insert(device))
    }

    /// Checks that every value is within the planner's bounds.
    ///
    /// # Errors
    /// Names the first field that is out of bounds.
    pub fn check(&self) -> Result<(), FiguresError> {
        let fail = |field: String, why| Err(FiguresError { field, why });
        if self.processes_per_node == 0 {
            return fail("processes_per_node".into(), "give at least 1");
        }
        let time = |value: f64| (0.0..=1e12).contains(&value);
        let speed = |value: f64| (1e-6..=1e9).contains(&value);
        if !time(self.call_us) {
            return fail("call_us".into(), "give 0 or more");
        }
        if !time(self.network.connect_us) || !speed(self.network.mb_s) {
            return fail("network".into(), "give connect_us of 0 or more and mb_s above 0");
        }
        let is_usable = |processor: Processor| {
            speed(processor.messages_per_s) && (1..=CORES_MAX).contains(&processor.cores)
        };
        if self.processor.is_some_and(|processor| !is_usable(processor)) {
            return fail("processor".into(), "give messages_per_s above 0 and cores of 1 to 65,536");
        }
        if self.classes.is_empty() {
            return fail("classes".into(), "give at least one class");
        }
        if self.classes.len() > CLASSES_MAX {
            return fail("classes".into(), "give at most 16 classes");
        }
        let mut targets = 0;
        for (number, class) in self.classes.iter().enumerate() {
            let at = format!("classes[{number}]");
            targets += u64::from(class.targets);
            if class.targets == 0 || targets > TARGETS_MAX {
                return fail(
                    format!("{at}.targets"),
                    "give at least 1, and at most 3,500 in all classes together",
                );
            }
            if self.classes[..number].iter().any(|other| other.name == class.name) {
                return fail(format!("{at}.name"), "another class has this name");
            }
            if class.error.is_some_and(|error| !(0.0..=ERROR_MAX).contains(&error)) {
                return fail(format!("{at}.error"), "give a fraction of 0 to 10");
            }
            if class.devices.as_ref().is_some_and(|devices| devices.len() as u64 != u64::from(class.targets))
            {
                return fail(format!("{at}.devices"), "give one number for each target");
            }
            for (name, service) in [("read", &class.read), ("write", &class.write)] {
                let lines = service
                    .random
                    .iter()
                    .chain(&service.scattered)
                    .map(|depth| (depth.startup_us, depth.mb_s));
                let others = [Some(service.sequential), service.streams, service.near].into_iter().flatten();
                if !lines
                    .chain(others.map(|line| (line.startup_us, line.mb_s)))
                    .all(|(startup, rate)| time(startup) && speed(rate))
                {
                    return fail(format!("{at}.{name}"), "give startup_us of 0 or more and mb_s above 0");
                }
                let rising = service.random.windows(2).all(|pair| pair[0].depth < pair[1].depth);
                if service.random.is_empty() || service.random[0].depth == 0 || !rising {
                    return fail(
                        format!("{at}.{name}.random"),
                        "give depths of at least 1 in ascending order",
                    );
                }
                if let Some(head) = &service.head {
                    let turns = (1.0..=1e9).contains(&head.rotation_us);
                    let rising = head.seeks.windows(2).all(|pair| pair[0].distance.0 < pair[1].distance.0);
                    let bounded = head.seeks.iter().all(|seek| time(seek.us) && seek.distance.0 > 0);
                    let bounded = bounded && time(head.overhead_us);
                    let near = head.look_ahead.0.max(head.read_ahead.0) <= 1 << 30;
                    if !turns || !rising || !bounded || !near || head.cache_segments > 65_536 {
                        return fail(
                            format!("{at}.{name}.head"),
                            "give turn_us of 1 or more, way_us of 0 or more, seeks in ascending order of distance, at \
                             most 65,536 stretches, and reads_on and ahead of at most 1 GiB",
                        );
                    }
                }
                if !time(service.sync_us) {
                    return fail(format!("{at}.{name}.sync_us"), "give 0 or more");
                }
                if service.read_delay.is_some_and(|delay| !time(delay.max_us) || !time(delay.overlap_us)) {
                    return fail(format!("{at}.{name}.waits"), "give most_us and beside_us of 0 or more");
                }
                if service.cache.is_some_and(|cache| !speed(cache.mb_s)) {
                    return fail(format!("{at}.{name}.cache"), "give mb_s above 0");
                }
                let rising = service.scattered.windows(2).all(|pair| pair[0].depth < pair[1].depth);
                if service.scattered.first().is_some_and(|first| first.depth == 0) || !rising {
                    return fail(
                        format!("{at}.{name}.scattered"),
                        "give depths of at least 1 in ascending order",
                    );
                }
            }
        }
        Ok(())
    }

    /// Parses figures from TOML and checks them.
    ///
    /// # Errors
    /// A syntax error, or the first field that is out of bounds.
    pub fn from_toml(text: &str) -> Result<Self, String> {
        let figures: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        figures.check().map_err(|error| error.to_string())?;
        Ok(figures)
    }
}

impl Class {
    /// Performance in one direction.
    pub fn service(&self, direction: Direction) -> &Service {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }

    /// Bytes available on each target; `u64::MAX` if unlimited.
    pub fn capacity(&self) -> u64 {
        self.capacity.map_or(u64::MAX, |capacity| capacity.0)
    }
}

impl Head {
    /// Nanoseconds until the head has settled `distance` bytes away. Interpolates between measured distances on a
    /// logarithmic scale.
    pub fn seek_ns(&self, distance: u64) -> f64 {
        let above = self.seeks.partition_point(|seek| seek.distance.0 < distance);
        let us = match (above.checked_sub(1).map(|below| self.seeks[below]), self.seeks.get(above)) {
            (None, None) => 0.0,
            (None, Some(only)) => only.us,
            (Some(only), None) => only.us,
            (Some(below), Some(above)) => {
                let log = |bytes: u64| (bytes as f64).ln();
                let part =
                    (log(distance) - log(below.distance.0)) / (log(above.distance.0) - log(below.distance.0));
                below.us + part * (above.us - below.us)
            }
        };
        us * 1e3
    }
}

impl Line {
    /// Nanoseconds of a request of `len` bytes.
    pub fn ns(&self, len: f64) -> f64 {
        self.startup_us * 1e3 + len * 1e3 / self.mb_s
    }

    /// The paper's alpha, nanoseconds.
    pub fn startup_ns(&self) -> f64 {
        self.startup_us * 1e3
    }

    /// The paper's beta, nanoseconds per byte.
    pub fn byte_ns(&self) -> f64 {
        1e3 / self.mb_s
    }
}

impl Service {
    /// Whether the device must be a disk that seeks.
    pub fn seeks(&self) -> bool {
        self.random.first().is_some_and(|depth| depth.startup_us > SEEK_US)
    }

    /// The line of random requests at queue depth 1.
    pub fn alone(&self) -> Line {
        let Depth { startup_us, mb_s, .. } = self.random[0];
        Line { startup_us, mb_s }
    }

    /// Nanoseconds of a request of `len` bytes that continues one of several interleaved streams, at queue depth
    /// `depth`.
    pub fn streams_ns(&self, depth: u32, len: f64) -> f64 {
        match self.streams {
            Some(streams) => streams.ns(len),
            None if self.write_buffer.0 > 0 => self.sequential.ns(len),
            None => self.random_ns(depth, len),
        }
    }

    /// Nanoseconds of a request of `len` bytes that lies near the end of the previous one.
    pub fn near_ns(&self, len: f64) -> f64 {
        self.near.unwrap_or(self.sequential).ns(len)
    }

    /// Mean nanoseconds per random request of `len` bytes at queue depth `depth`. Interpolates between measured depths
    /// on a logarithmic scale.
    pub fn random_ns(&self, depth: u32, len: f64) -> f64 {
        interpolated_ns(&self.random, depth, len)
    }

    /// Nanoseconds of a buffered write of `len` bytes when `count` of them are submitted to the device together.
    pub fn gathered_ns(&self, count: u32, len: f64) -> f64 {
        let gathered = self.random[0];
        match self.scattered.last() {
            Some(most) if count > most.depth && count < MERGED_MAX => {
                let ends = [*most, Depth { depth: MERGED_MAX, ..gathered }];
                interpolated_ns(&ends, count, len)
            }
            Some(most) if count <= most.depth => interpolated_ns(&self.scattered, count, len),
            _ => self.alone().ns(len),
        }
    }
}

/// Interpolates between two depths on the logarithm of `depth`.
fn interpolated_ns(depths: &[Depth], depth: u32, len: f64) -> f64 {
    let at = |depth: &Depth| Line { startup_us: depth.startup_us, mb_s: depth.mb_s }.ns(len);
    let above = depths.partition_point(|known| known.depth < depth);
    match (above.checked_sub(1).map(|below| &depths[below]), depths.get(above)) {
        (None, Some(only)) | (Some(only), None) => at(only),
        (Some(below), Some(above)) => {
            let log = |depth: u32| f64::from(depth).ln();
            let part = (log(depth) - log(below.depth)) / (log(above.depth) - log(below.depth));
            at(below) + part * (at(above) - at(below))
        }
        (None, None) => unreachable!("checked: there is a depth"),
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        processes_per_node = 2
        [network]
        connect_us = 34
        mb_s = 117.7
        [[classes]]
        name = "hdd"
        targets = 4
        capacity = "1 GiB"
        [classes.read]
        sequential = { startup_us = 100, mb_s = 76 }
        random = [{ depth = 1, startup_us = 12000, mb_s = 70 }, { depth = 16, startup_us = 4000, mb_s = 70 }]
        [classes.write]
        sequential = { startup_us = 100, mb_s = 76 }
        random = [{ depth = 1, startup_us = 4000, mb_s = 70 }]
        behind = "1 MiB"
    "#;

    #[test]
    fn read_delay_and_write_cache_are_parsed() {
        let with = |waits: &str, cache: &str| {
            let text = TEXT.replacen(
                "        [classes.write]\n",
                &format!("{waits}\n        [classes.write]\n{cache}\n"),
                1,
            );
            Figures::from_toml(&text)
        };
        let figures =
            with("waits = { most_us = 5000.0 }", "cache = { size = \"32 MiB\", mb_s = 500.0 }").unwrap();
        let class = &figures.classes[0];
        assert_eq!(class.read.read_delay, Some(ReadDelay { max_us: 5000.0, overlap_us: 0.0 }));
        assert_eq!(class.write.cache, Some(Cache { size: Bytes(32 << 20), mb_s: 500.0 }));
        assert_eq!(Figures::from_toml(&toml::to_string(&figures).unwrap()).unwrap(), figures);
        assert!(with("waits = { most_us = -1.0 }", "").unwrap_err().contains("waits"));
        assert!(with("waits = { most_us = 1.0, beside_us = nan }", "").unwrap_err().contains("waits"));
        assert!(with("", "cache = { size = \"1 MiB\", mb_s = 0.0 }").unwrap_err().contains("cache"));
    }

    #[test]
    fn errors_processors_and_shared_devices_are_parsed_and_bounded() {
        let with = |head: &str, class: &str| {
            let text = TEXT.replacen("[network]", &format!("{head}\n[network]"), 1);
            Figures::from_toml(&text.replacen("capacity =", &format!("{class}\ncapacity ="), 1))
        };
        let plain = with("", "").unwrap();
        assert_eq!((plain.measured, plain.processor, plain.classes[0].error), (false, None, None));
        assert!(!plain.shares_devices());
        let processor = "measured = true\nprocessor = { messages_per_s = 90000.0, cores = 2 }";
        let full = with(processor, "error = 0.13\ndevices = [0, 1, 0, 2]").unwrap();
        assert_eq!(full.processor, Some(Processor { messages_per_s: 90_000.0, cores: 2 }));
        assert!(full.measured && full.classes[0].error == Some(0.13) && full.shares_devices());
        assert_eq!(Figures::from_toml(&toml::to_string(&full).unwrap()).unwrap(), full);
        assert!(!with("", "devices = [3, 1, 0, 2]").unwrap().shares_devices());
        // Classes share a device, too.
        let mut two = with("", "devices = [0, 1, 2, 3]").unwrap();
        let ssd = Class { name: "ssd".into(), targets: 1, devices: Some(vec![3]), ..two.classes[0].clone() };
        two.classes.push(ssd);
        assert!(two.check().is_ok() && two.shares_devices());
        for (head, class, expected) in [
            ("processor = { messages_per_s = 0.0, cores = 2 }", "", "processor"),
            ("processor = { messages_per_s = inf, cores = 2 }", "", "processor"),
            ("processor = { messages_per_s = 9.0, cores = 0 }", "", "processor"),
            ("", "error = -0.1", "classes[0].error"),
            ("", "error = nan", "classes[0].error"),
            ("", "devices = [0, 1, 2]", "classes[0].devices"),
        ] {
            let error = with(head, class).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn figures_are_parsed_and_interpolated() {
        let figures = Figures::from_toml(TEXT).unwrap();
        let read = &figures.classes[0].read;
        let ms = |depth| read.random_ns(depth, 0.0) / 1e6;
        assert_eq!((ms(1), ms(16), ms(400)), (12.0, 4.0, 4.0));
        assert!((ms(4) - 8.0).abs() < 1e-9);
        assert_eq!(read.sequential.ns(76.0), 101_000.0);
        assert_eq!(toml::from_str::<Figures>(&toml::to_string(&figures).unwrap()).unwrap(), figures);
    }

    #[test]
    fn invalid_figures_are_rejected() {
        for (from, to, expected) in [
            ("targets = 4", "targets = 0", "classes[0].targets"),
            ("mb_s = 117.7", "mb_s = 0", "network"),
            ("depth = 16", "depth = 1", "classes[0].read.random"),
            ("startup_us = 100, mb_s = 76", "startup_us = -1, mb_s = 76", "classes[0].read"),
            ("targets = 4", "targets = 3501", "classes[0].targets"),
            ("targets = 4", "tragets = 4", "unknown field"),
            ("mb_s = 117.7", "mb_s = nan", "network"),
            ("startup_us = 100", "startup_us = inf", "classes[0].read"),
        ] {
            let error = Figures::from_toml(&TEXT.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
