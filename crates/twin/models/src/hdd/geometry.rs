//! Position of a sector on the platters, and the time at which it passes under its head.

use super::HddSpec;
use crate::time::from_us;

/// Bytes of a sector.
pub(crate) const SECTOR: u64 = 512;

/// Tracks of equal density.
#[derive(Clone, Debug)]
struct Zone {
    first_sector: u64,
    first_track: u64,
    tracks: u64,
    sectors_per_track: u64,
}

/// Sectors laid out by cylinder from the outer edge. Each track starts later by the time of the switch to it (skew), so
/// that a sequential transfer does not lose a rotation.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    zones: Vec<Zone>,
    /// Nanoseconds of a rotation.
    pub period: u64,
    heads: u64,
    head_switch: u64,
    cylinder_switch: u64,
    sectors: u64,
}

/// Position of a sector on a track.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SectorPosition {
    pub track: u64,
    /// Nanoseconds of a rotation after which the sector passes the head.
    pub angle: u64,
}

impl Geometry {
    pub fn new(spec: &HddSpec) -> Self {
        let period = (60e9 / spec.rpm as f64).round() as u64;
        let (heads, zones) = (u64::from(spec.heads), u64::from(spec.zones));
        let (head_switch, cylinder_switch) = (from_us(spec.head_switch_us), from_us(spec.cylinder_switch_us));
        let switch = ((heads - 1) * head_switch + cylinder_switch) as f64 / heads as f64;
        // A track takes one rotation and one switch. The sustained rate of a data sheet includes both.
        let sectors_at = |mb_s: f64| (mb_s * 1e-3 * (period as f64 + switch) / SECTOR as f64).round() as u64;
        let density = |zone: u64| {
            let inward = if zones > 1 { zone as f64 / (zones - 1) as f64 } else { 0.0 };
            sectors_at(spec.outer_mb_s + (spec.inner_mb_s - spec.outer_mb_s) * inward).max(1)
        };
        let mean = (0..zones).map(density).sum::<u64>() as f64 / zones as f64;
        let wanted = spec.capacity_gb * 1e9 / SECTOR as f64;
        let cylinders = (wanted / mean / (heads * zones) as f64).ceil().max(1.0) as u64;
        let mut geometry =
            Self { zones: Vec::new(), period, heads, head_switch, cylinder_switch, sectors: 0 };
        for zone in 0..zones {
            let (tracks, sectors_per_track) = (cylinders * heads, density(zone));
            let first_track = zone * tracks;
            geometry.zones.push(Zone {
                first_sector: geometry.sectors,
                first_track,
                tracks,
                sectors_per_track,
            });
            geometry.sectors += tracks * sectors_per_track;
        }
        geometry
    }

    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    pub fn cylinders(&self) -> u64 {
        self.zones.iter().map(|zone| zone.tracks).sum::<u64>() / self.heads
    }

    pub fn cylinder(&self, track: u64) -> u64 {
        track / self.heads
    }

    fn zone(&self, sector: u64) -> usize {
        self.zones.partition_point(|zone| zone.first_sector <= sector) - 1
    }

    /// Returns the skew of a track relative to track 0.
    fn skew(&self, track: u64) -> u64 {
        let cylinder = self.cylinder(track);
        let turned = |count: u64, switch: u64| (count % self.period) * (switch % self.period) % self.period;
        (turned(track - cylinder, self.head_switch) + turned(cylinder, self.cylinder_switch)) % self.period
    }

    /// Returns the time in which `count` sectors of a zone pass under the head.
    fn share(&self, count: u64, zone: &Zone) -> u64 {
        (u128::from(count) * u128::from(self.period) / u128::from(zone.sectors_per_track)) as u64
    }

    /// Returns the position of `sector`.
    pub fn sector_position(&self, sector: u64) -> SectorPosition {
        let zone = &self.zones[self.zone(sector.min(self.sectors - 1))];
        let within = sector.min(self.sectors - 1) - zone.first_sector;
        let track = zone.first_track + within / zone.sectors_per_track;
        let on_track = within % zone.sectors_per_track;
        let angle = (self.share(on_track, zone) + self.skew(track)) % self.period;
        SectorPosition { track, angle }
    }

    /// Returns the time to transfer `count` sectors from `sector`, which is under the head.
    pub fn transfer(&self, sector: u64, count: u64) -> u64 {
        let (mut at, mut left, mut time) = (sector, count, 0);
        let mut index = self.zone(at.min(self.sectors - 1));
        while left > 0 {
            let Some(zone) = self.zones.get(index) else { break };
            let within = at - zone.first_sector;
            let here = left.min(zone.tracks * zone.sectors_per_track - within);
            let first = zone.first_track + within / zone.sectors_per_track;
            let last = zone.first_track + (within + here - 1) / zone.sectors_per_track;
            let cylinders = self.cylinder(last) - self.cylinder(first);
            let switches = (last - first - cylinders).saturating_mul(self.head_switch);
            time = self
                .share(here, zone)
                .saturating_add(switches)
                .saturating_add(cylinders.saturating_mul(self.cylinder_switch))
                .saturating_add(time);
            (at, left, index) = (at + here, left - here, index + 1);
            if left > 0 {
                time = time.saturating_add(self.cylinder_switch);
            }
        }
        time
    }

    /// Returns the number of sectors from `sector` on that pass in `elapsed`: the inverse of
    /// [`transfer`](Self::transfer), with the switches spread evenly.
    pub fn passed(&self, sector: u64, elapsed: u64) -> u64 {
        let zone = &self.zones[self.zone(sector.min(self.sectors - 1))];
        let switch = ((self.heads - 1) * self.head_switch + self.cylinder_switch) / self.heads;
        (u128::from(elapsed) * u128::from(zone.sectors_per_track) / u128::from(self.period + switch)) as u64
    }

    /// Returns the time of a head switch if that alone leads from one track to the other.
    pub fn switch(&self, from: u64, to: u64) -> Option<u64> {
        match (from == to, self.cylinder(from) == self.cylinder(to)) {
            (true, _) => Some(0),
            (false, true) => Some(self.head_switch),
            _ => None,
        }
    }
}
