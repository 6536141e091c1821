//! Description of a modelled locking file system and of the delegates in front of it.

use crate::device;
use crate::spec::{SpecError, positive};
use serde::{Deserialize, Serialize};
use weft_core::delegates::ownership::Policy;
use weft_models::locks::{LockKind, LockSpec};
use weft_workload::Size;

/// Maximum number of delegates.
const DELEGATES_MAX: u32 = 10_000;

/// Kind of a locking file system.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockingKind {
    /// Extent locks at the server of each stripe object, like Lustre's.
    #[default]
    LustreLike,
    /// Byte-range tokens of a token server, like those of GPFS.
    GpfsLike,
}

/// A modelled locking file system, which takes the place of Weft's servers.
///
/// | field | `lustre-like` | `gpfs-like` |
/// | --- | --- | --- |
/// | `servers`, `stripe_size` | 16, 512 KiB | 54, 512 KiB (IODC section IV) |
/// | `lock_block` | 512 KiB | 512 KiB (IODC section IV) |
/// | `request_max` | 1 MiB, the length of an RPC | 512 KiB, a block |
/// | `write_unit` | 4 KiB, a page | 512 B, a sector (Schmuck and Haskin, section 3.4) |
/// | `cache` | 32 MiB for each server (`max_dirty_mb`) | 64 MiB (`pagepool`) |
/// | `requests_in_flight` | 8 for each server (`max_rpcs_in_flight`) | 8 |
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LockingSpec {
    /// Kind, which gives the following fields their defaults.
    pub kind: LockingKind,
    /// Number of servers, over all of which each file is striped.
    pub servers: Option<u32>,
    /// Length of a stripe.
    pub stripe_size: Option<Size>,
    /// Granularity of locks.
    pub lock_block: Option<Size>,
    /// Longest request of a client to a server.
    pub request_max: Option<Size>,
    /// Unit that a client writes to a server. A client reads a unit before it changes a part of it.
    pub write_unit: Option<Size>,
    /// Dirty bytes that a client holds: for each server (`lustre-like`) or in total (`gpfs-like`).
    pub cache: Option<Size>,
    /// Write requests of a client that a server processes at once.
    pub requests_in_flight: u32,
    /// Profile name of the disk of each server. Requests bypass the server's page cache, as in both file systems.
    pub profile: String,
    /// Microseconds of processor time of a server for each request.
    pub request_us: f64,
    /// Microseconds that the metadata server spends on an open or close, one after another.
    pub open_us: f64,
    /// Rate at which a client copies bytes into its cache, in 10^6 bytes per second.
    pub copy_mb_s: f64,
    /// Whether clients request locks. Without locks the cache of a client stays dirty until it is closed.
    pub locks: bool,
}

impl Default for LockingSpec {
    fn default() -> Self {
        Self {
            kind: LockingKind::default(),
            servers: None,
            stripe_size: None,
            lock_block: None,
            request_max: None,
            write_unit: None,
            cache: None,
            requests_in_flight: 8,
            profile: device::SIMPLE.to_owned(),
            request_us: 30.0,
            open_us: 200.0,
            copy_mb_s: 1000.0,
            locks: true,
        }
    }
}

/// Lock message in one direction, in microseconds. Equal to the built-in lock models.
const LOCK_NAMES: [&str; 2] = ["lustre", "gpfs"];

/// Resolved values of a [`LockingSpec`].
#[derive(Clone, Debug)]
pub(super) struct Figures {
    pub kind: LockKind,
    pub servers: u64,
    pub stripe: u64,
    pub request_max: u64,
    pub unit: u64,
    pub cache: u64,
    pub in_flight: usize,
    pub request_ns: u64,
    pub open_ns: u64,
    pub copy_mb_s: f64,
    /// Latency of a lock message in one direction.
    pub lock_latency: u64,
    pub has_locks: bool,
}

impl LockingSpec {
    pub(crate) fn check(&self, profiles: &[weft_models::Profile]) -> Result<(), SpecError> {
        let at = |field: &str| format!("locking.{field}");
        for (field, size) in [
            ("stripe_size", self.stripe_size),
            ("lock_block", self.lock_block),
            ("request_max", self.request_max),
            ("write_unit", self.write_unit),
            ("cache", self.cache),
        ] {
            positive(at(field), size.map_or(1, |size| size.0))?;
        }
        positive(at("servers"), self.servers.map_or(1, u64::from))?;
        positive(at("requests_in_flight"), self.requests_in_flight.into())?;
        if !self.stripe_len().is_multiple_of(self.unit_len()) {
            return Err(SpecError::new(at("write_unit"), "give a divisor of the stripe size"));
        }
        for (field, value) in [("request_us", self.request_us), ("open_us", self.open_us)] {
            if !(0.0..=1e9).contains(&value) {
                return Err(SpecError::new(at(field), "give a number from 0 to 10^9"));
            }
        }
        if !(1.0..=1e6).contains(&self.copy_mb_s) {
            return Err(SpecError::new(at("copy_mb_s"), "give a number from 1 to 10^6"));
        }
        device::disk(profiles, &self.profile, 0)
            .map(drop)
            .map_err(|error| SpecError::new(at("profile"), error.why))
    }

    fn is_lustre(&self) -> bool {
        self.kind == LockingKind::LustreLike
    }

    /// Number of servers.
    pub fn server_count(&self) -> u32 {
        self.servers.unwrap_or(if self.is_lustre() { 16 } else { 54 })
    }

    fn stripe_len(&self) -> u64 {
        self.stripe_size.unwrap_or(Size::kib(512)).0
    }

    fn unit_len(&self) -> u64 {
        self.write_unit.unwrap_or(Size(if self.is_lustre() { 4096 } else { 512 })).0
    }

    /// Parameters of the lock model. It gets no cost of write-back, because the file system performs it.
    pub(super) fn lock_spec(&self) -> LockSpec {
        let built_in = LockSpec::by_name(LOCK_NAMES[usize::from(!self.is_lustre())]).expect("built in");
        let block = self.lock_block.unwrap_or(Size::kib(512));
        LockSpec {
            servers: if self.is_lustre() { self.server_count() } else { built_in.servers },
            block_kib: (block.0 / 1024).max(1),
            flush_us: 0.0,
            flush_mb_s: 1e9,
            ..built_in
        }
    }

    pub(super) fn figures(&self) -> Figures {
        let locks = self.lock_spec();
        let nanos = |us: f64| (us * 1e3) as u64;
        let (request, cache) = if self.is_lustre() { (1024, 32) } else { (512, 64) };
        Figures {
            kind: locks.kind,
            servers: self.server_count().into(),
            stripe: self.stripe_len(),
            request_max: self.request_max.unwrap_or(Size::kib(request)).0,
            unit: self.unit_len(),
            cache: self.cache.unwrap_or(Size::mib(cache)).0,
            in_flight: self.requests_in_flight as usize,
            request_ns: nanos(self.request_us),
            open_ns: nanos(self.open_us),
            copy_mb_s: self.copy_mb_s,
            lock_latency: nanos(locks.latency_us),
            has_locks: self.locks,
        }
    }
}

/// Delegates of the job, each on a node of its own.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DelegatesSpec {
    /// Number of delegates; 0 for a program that uses the file system itself.
    pub count: u32,
    /// Rule by which a page gets its owner: `first-touch` (IODC) or `hashed`.
    pub policy: Policy,
    /// Whether dirty pages are written before the file is closed.
    pub write_behind: bool,
    /// Length of a page.
    pub page: Size,
    /// Consecutive pages with the same owner, for `hashed`.
    pub group_pages: u64,
    /// Memory of each delegate for pages.
    pub memory: Size,
    /// Longest write of a delegate to the file system. IODC flushes page by page (section III.E); by default, adjacent
    /// pages are written together.
    pub write_max: Option<Size>,
}

impl Default for DelegatesSpec {
    fn default() -> Self {
        Self {
            count: 0,
            policy: Policy::FirstTouch,
            write_behind: false,
            page: Size::kib(512),
            group_pages: 1,
            memory: Size::mib(1024),
            write_max: None,
        }
    }
}

impl DelegatesSpec {
    /// Whether there are no delegates.
    pub fn is_off(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn check(&self) -> Result<(), SpecError> {
        if self.count > DELEGATES_MAX {
            return Err(SpecError::new("delegates.count", format!("give at most {DELEGATES_MAX}")));
        }
        positive("delegates.page", self.page.0)?;
        positive("delegates.group_pages", self.group_pages)?;
        positive("delegates.write_max", self.write_max.map_or(1, |max| max.0))?;
        if self.memory.0 < self.page.0 {
            return Err(SpecError::new("delegates.memory", "give at least the length of a page"));
        }
        Ok(())
    }
}
