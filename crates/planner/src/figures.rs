//! What the planner knows of a cluster: classes of targets, how fast they are, how much room they have.

use crate::bytes::Bytes;
use crate::mix::Direction;
use serde::{Deserialize, Serialize};
use weft_core::layout::COLUMNS_MAX;

/// A cluster in figures. Measured (`weft plan --cluster`), or written by hand.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Processes on a compute node, the paper's c, where a trace names no hosts.
    #[serde(default = "one")]
    pub processes_per_node: u32,
    /// What a process spends on its own between two requests, microseconds.
    #[serde(default)]
    pub call_us: f64,
    /// Between nodes.
    pub network: Network,
    /// Targets by class.
    pub classes: Vec<Class>,
}

fn one() -> u32 {
    1
}

/// The network.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// One message without payload, microseconds; the paper's e.
    pub connect_us: f64,
    /// A link in each direction, 10^6 bytes per second; the paper's 1/t.
    pub mb_s: f64,
    /// What a connection holds on its way: who sends more waits until the receiver has taken some.
    #[serde(default = "window")]
    pub window: Bytes,
}

/// What a connection of a local network holds, in the buffers of both ends.
const fn window() -> Bytes {
    Bytes(512 << 10)
}

impl Network {
    /// A network with connections as usual.
    pub const fn new(connect_us: f64, mb_s: f64) -> Self {
        Self { connect_us, mb_s, window: window() }
    }
}

/// Targets that are alike.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// How many.
    pub targets: u32,
    /// Room for what is planned on each of them; without it there is enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<Bytes>,
    /// Memory of each that still has what was read or written last.
    #[serde(default)]
    pub memory: Bytes,
    /// Reads.
    pub read: Service,
    /// Writes.
    pub write: Service,
}

/// How a target serves requests of one direction.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Requests that follow each other.
    pub sequential: Line,
    /// Requests that follow each other in several streams of one file, in turn; without it as `random`, or as
    /// `sequential` where memory gathers them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<Line>,
    /// Requests that follow each other and come out of order; without it as `sequential`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<Line>,
    /// What is known of a head that a medium turns under; without it requests are served as they come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<Head>,
    /// Requests anywhere, by how many are under way at a time, rising.
    pub random: Vec<Depth>,
    /// Requests anywhere that memory had no time to gather, by how many go to the device together, rising; without it as
    /// `random`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scattered: Vec<Depth>,
    /// What a sync takes beside the writes that it waits for, microseconds; those who ask together share it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sync_us: f64,
    /// How reads wait while the device writes what memory has gathered; without it they go first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
    /// So much is taken into memory before who writes must wait; 0 when each request waits for the device.
    #[serde(default)]
    pub behind: Bytes,
    /// The memory of the device itself for writes; without it what it writes is on the medium at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<Cache>,
    /// So much memory gathers before the device begins to write.
    #[serde(default)]
    pub gathers: Bytes,
}

/// Time of a request as a line over its length: the paper's alpha and 1/beta.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Of a request without bytes, microseconds.
    pub startup_us: f64,
    /// Of further bytes, 10^6 per second.
    pub mb_s: f64,
}

/// How reads wait behind writes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waits {
    /// No longer than this, microseconds.
    pub most_us: f64,
    /// So much of what is being written they do not wait for, microseconds of writing.
    #[serde(default)]
    pub beside_us: f64,
}

/// A memory of a device for writes on their way to the medium.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// So much it holds.
    pub size: Bytes,
    /// As quickly it is filled, 10^6 bytes per second.
    pub mb_s: f64,
}

/// A head over a medium that turns.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// A turn, microseconds.
    pub turn_us: f64,
    /// What a request takes on its way to the medium and back while the head may be at others, microseconds.
    #[serde(default)]
    pub way_us: f64,
    /// Until the head stands still elsewhere, by distance, rising.
    pub seeks: Vec<Seek>,
    /// It reads on so far behind a request, into the device's memory.
    pub reads_on: Bytes,
    /// So many stretches that it has read are kept there.
    pub stretches: u32,
    /// So many requests the device is given at a time.
    #[serde(default = "takes")]
    pub takes: u32,
    /// The system reads so far ahead of who reads a file in order.
    #[serde(default = "ahead")]
    pub ahead: Bytes,
}

/// How long a head is on its way.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seek {
    /// So far.
    pub distance: Bytes,
    /// Until it stands still, microseconds.
    pub us: f64,
}

/// As far as systems do unless told.
fn ahead() -> Bytes {
    Bytes(128 << 10)
}

/// As many as disks take.
fn takes() -> u32 {
    16
}

/// Time from request to request when so many are under way.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Depth {
    /// How many.
    pub depth: u32,
    /// Of a request without bytes, microseconds.
    pub startup_us: f64,
    /// Of further bytes, 10^6 per second.
    pub mb_s: f64,
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

/// Most classes: the planner tries many sets of them.
const CLASSES_MAX: usize = 16;
/// Most targets of all classes together: a layout with a part for each class, and one behind, may have no more.
const TARGETS_MAX: u64 = 3500;
const _: () = assert!(TARGETS_MAX as usize * (CLASSES_MAX + 1) <= COLUMNS_MAX);
/// So many writes that memory gathered are as good as any number.
const GATHERED: u32 = 1024;

/// Why figures make no cluster.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("figures: {field}: {why}")]
pub struct FiguresError {
    /// Where.
    pub field: String,
    /// What is wrong.
    pub why: &'static str,
}

impl Figures {
    /// Looks whether the planner can work with these.
    ///
    /// # Errors
    /// The first that is out of bounds.
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
        if self.classes.is_empty() {
            return fail("classes".into(), "give one class at least");
        }
        if self.classes.len() > CLASSES_MAX {
            return fail("classes".into(), "give 16 classes at most");
        }
        let mut targets = 0;
        for (number, class) in self.classes.iter().enumerate() {
            let at = format!("classes[{number}]");
            targets += u64::from(class.targets);
            if class.targets == 0 || targets > TARGETS_MAX {
                return fail(format!("{at}.targets"), "give 1 at least, and 3,500 in all classes together");
            }
            if self.classes[..number].iter().any(|other| other.name == class.name) {
                return fail(format!("{at}.name"), "another class has this name");
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
                    return fail(format!("{at}.{name}.random"), "give depths from 1 on, rising");
                }
                if let Some(head) = &service.head {
                    let turns = (1.0..=1e9).contains(&head.turn_us);
                    let rising = head.seeks.windows(2).all(|pair| pair[0].distance.0 < pair[1].distance.0);
                    let bounded = head.seeks.iter().all(|seek| time(seek.us) && seek.distance.0 > 0);
                    let bounded = bounded && time(head.way_us);
                    let near = head.reads_on.0.max(head.ahead.0) <= 1 << 30;
                    if !turns || !rising || !bounded || !near || head.stretches > 65_536 {
                        return fail(
                            format!("{at}.{name}.head"),
                            "give turn_us of 1 or more, way_us of 0 or more, seeks of rising distances, up to 65,536 stretches, and \
                             reads_on and ahead of up to 1 GiB",
                        );
                    }
                }
                if !time(service.sync_us) {
                    return fail(format!("{at}.{name}.sync_us"), "give 0 or more");
                }
                if service.waits.is_some_and(|waits| !time(waits.most_us) || !time(waits.beside_us)) {
                    return fail(format!("{at}.{name}.waits"), "give most_us and beside_us of 0 or more");
                }
                if service.cache.is_some_and(|cache| !speed(cache.mb_s)) {
                    return fail(format!("{at}.{name}.cache"), "give mb_s above 0");
                }
                let rising = service.scattered.windows(2).all(|pair| pair[0].depth < pair[1].depth);
                if service.scattered.first().is_some_and(|first| first.depth == 0) || !rising {
                    return fail(format!("{at}.{name}.scattered"), "give depths from 1 on, rising");
                }
            }
        }
        Ok(())
    }

    /// Reads them.
    ///
    /// # Errors
    /// What is wrong with the text or the figures.
    pub fn from_toml(text: &str) -> Result<Self, String> {
        let figures: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        figures.check().map_err(|error| error.to_string())?;
        Ok(figures)
    }
}

impl Class {
    /// How it serves a direction.
    pub fn service(&self, direction: Direction) -> &Service {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }

    /// Room on each target, in bytes.
    pub fn room(&self) -> u64 {
        self.room.map_or(u64::MAX, |room| room.0)
    }
}

impl Head {
    /// Nanoseconds until the head stands still so many bytes away: between two distances that were measured as far as
    /// the logarithm of the distance is.
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
    /// Nanoseconds of a request of so many bytes.
    pub fn ns(&self, len: f64) -> f64 {
        self.startup_us * 1e3 + len * 1e3 / self.mb_s
    }

    /// The paper's alpha, in nanoseconds.
    pub fn startup_ns(&self) -> f64 {
        self.startup_us * 1e3
    }

    /// The paper's beta, in nanoseconds for each byte.
    pub fn byte_ns(&self) -> f64 {
        1e3 / self.mb_s
    }
}

impl Service {
    /// Requests anywhere, one at a time.
    pub fn alone(&self) -> Line {
        let Depth { startup_us, mb_s, .. } = self.random[0];
        Line { startup_us, mb_s }
    }

    /// Nanoseconds of a request of `len` bytes that goes on where another one of the same file ended, with others
    /// between; `depth` are under way.
    pub fn streams_ns(&self, depth: u32, len: f64) -> f64 {
        match self.streams {
            Some(streams) => streams.ns(len),
            None if self.behind.0 > 0 => self.sequential.ns(len),
            None => self.random_ns(depth, len),
        }
    }

    /// Nanoseconds of a request of `len` bytes that lies near the end of the one before.
    pub fn near_ns(&self, len: f64) -> f64 {
        self.near.unwrap_or(self.sequential).ns(len)
    }

    /// Nanoseconds from request to request of `len` bytes anywhere with `depth` of them under way: between two depths
    /// that were measured as far as the logarithm of the depth is.
    pub fn random_ns(&self, depth: u32, len: f64) -> f64 {
        between(&self.random, depth, len)
    }

    /// The same of writes that memory has taken, of which `count` go to the device together.
    pub fn gathered_ns(&self, count: u32, len: f64) -> f64 {
        let gathered = self.random[0];
        match self.scattered.last() {
            Some(most) if count > most.depth && count < GATHERED => {
                let ends = [*most, Depth { depth: GATHERED, ..gathered }];
                between(&ends, count, len)
            }
            Some(most) if count <= most.depth => between(&self.scattered, count, len),
            _ => self.alone().ns(len),
        }
    }
}

/// Between two depths as far as the logarithm of `depth` is.
fn between(depths: &[Depth], depth: u32, len: f64) -> f64 {
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
        room = "1 GiB"
        [classes.read]
        sequential = { startup_us = 100, mb_s = 76 }
        random = [{ depth = 1, startup_us = 12000, mb_s = 70 }, { depth = 16, startup_us = 4000, mb_s = 70 }]
        [classes.write]
        sequential = { startup_us = 100, mb_s = 76 }
        random = [{ depth = 1, startup_us = 4000, mb_s = 70 }]
        behind = "1 MiB"
    "#;

    #[test]
    fn what_reads_wait_for_and_what_a_device_takes_are_read() {
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
        assert_eq!(class.read.waits, Some(Waits { most_us: 5000.0, beside_us: 0.0 }));
        assert_eq!(class.write.cache, Some(Cache { size: Bytes(32 << 20), mb_s: 500.0 }));
        assert_eq!(Figures::from_toml(&toml::to_string(&figures).unwrap()).unwrap(), figures);
        assert!(with("waits = { most_us = -1.0 }", "").unwrap_err().contains("waits"));
        assert!(with("waits = { most_us = 1.0, beside_us = nan }", "").unwrap_err().contains("waits"));
        assert!(with("", "cache = { size = \"1 MiB\", mb_s = 0.0 }").unwrap_err().contains("cache"));
    }

    #[test]
    fn figures_are_read_and_interpolated() {
        let figures = Figures::from_toml(TEXT).unwrap();
        let read = &figures.classes[0].read;
        let ms = |depth| read.random_ns(depth, 0.0) / 1e6;
        assert_eq!((ms(1), ms(16), ms(400)), (12.0, 4.0, 4.0));
        assert!((ms(4) - 8.0).abs() < 1e-9);
        assert_eq!(read.sequential.ns(76.0), 101_000.0);
        assert_eq!(toml::from_str::<Figures>(&toml::to_string(&figures).unwrap()).unwrap(), figures);
    }

    #[test]
    fn what_is_no_cluster_is_refused() {
        for (from, to, told) in [
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
            assert!(error.contains(told), "{error}");
        }
    }
}
