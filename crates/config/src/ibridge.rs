//! `[server.target.ibridge]`: the SSD beside a target.

use crate::error::ConfigError;
use crate::load::{emulated, required};
use crate::model::Ibridge;
use crate::quantity::parse_size;
use crate::section::{Item, Section};
use std::ops::Range;
use weft_core::ibridge::{Policy, Thresholds, Weight};
use weft_core::{ByteLen, Nanos};

/// Eight segments of the log, the fewest with which it can go on cleaning.
const SIZE_MIN: ByteLen = ByteLen::from_mib(32);
const SIZE_MAX: ByteLen = ByteLen(1 << 46);
const ENTRY_SIZES: std::ops::RangeInclusive<ByteLen> = ByteLen::from_kib(1)..=ByteLen::from_kib(64);
const BELOW: std::ops::RangeInclusive<ByteLen> = ByteLen(0)..=ByteLen::from_mib(4);

/// Instead of a profile: the figures that `weft profile` found.
const MEASURED: &str = "measured";

/// Where its parts stand.
#[derive(Clone)]
pub(crate) struct Places {
    pub section: Range<usize>,
    pub path: Range<usize>,
}

/// A part of the log, as it is written.
enum Part {
    Percent(u64),
    Bytes(ByteLen),
}

impl Part {
    fn parse(text: &str) -> Result<Self, String> {
        let Some(number) = text.strip_suffix('%') else { return parse_size(text).map(Self::Bytes) };
        match number.trim().parse() {
            Ok(percent) if (1..=100).contains(&percent) => Ok(Self::Percent(percent)),
            _ => Err("write a percentage of size between \"1 %\" and \"100 %\", or a size".into()),
        }
    }

    fn of(&self, size: ByteLen) -> ByteLen {
        match self {
            Self::Percent(percent) => ByteLen((u128::from(size.0) * u128::from(*percent) / 100) as u64),
            Self::Bytes(len) => *len,
        }
    }
}

/// Reads the section.
pub(crate) fn ibridge(section: Section<'_>) -> Result<(Ibridge, Places), ConfigError> {
    let path = section.path("path", "/ssd/weft/log0")?;
    let path = required(&section, "path", path, "write path = \"/ssd/weft/log0\", a directory on the SSD")?;
    let size = section.size("size", SIZE_MIN..=SIZE_MAX)?;
    let size = required(&section, "size", size, "write size = \"10 GiB\", the room of the log")?;
    let policy = section.parsed("policy", "ibridge", |text| text.parse::<Policy>().map_err(told))?;
    let fragments_below = section.size("fragments_below", BELOW)?;
    let random_below = section.size("random_below", BELOW)?;
    let weight = section.parsed("weight", "7/8", |text| text.parse::<Weight>().map_err(told))?;
    let exchange = section.duration("exchange", Nanos::from_ms(10)..=Nanos::from_s(60))?;
    let exchange = exchange.unwrap_or(Nanos::from_s(1));
    let stale = section.duration("stale", Nanos::from_ms(10)..=Nanos::from_s(60))?;
    let idle = section.duration("idle", Nanos::from_ms(1)..=Nanos::from_s(3600))?;
    let high = section.parsed("dirty_high", "75 %", Part::parse)?;
    let low = section.parsed("dirty_low", "50 %", Part::parse)?;
    let preload = section.flag("preload")?;
    let entry_size = section.size("entry_size", ENTRY_SIZES)?;
    let profile = section.parsed("profile", "hdd-7200", |text| match text {
        MEASURED => Ok(None),
        other => emulated(other).map(Some),
    })?;
    let emulate = section.parsed("emulate", "sata-ssd", emulated)?;
    let default = Thresholds::default();
    let dirty = |part: &Option<Item<Part>>, percent| {
        part.as_ref().map_or(Part::Percent(percent).of(size), |item| item.value.of(size))
    };
    let (dirty_high, dirty_low) = (dirty(&high, 75), dirty(&low, 50));
    let whose = low.as_ref().or(high.as_ref()).map(|item| item.span.clone());
    if let Some(span) = whose.filter(|_| dirty_low > dirty_high || dirty_high > size) {
        let problem = "dirty_low, dirty_high and size do not rise in this order";
        let remedy = "bytes are written back from dirty_high down to dirty_low: leave both lines out for 75 % and 50 %";
        return Err(section.refuse(span, problem, remedy));
    }
    let places = Places { section: section.span(), path: path.span };
    section.finish()?;
    let ibridge = Ibridge {
        path: path.value,
        size,
        policy: policy.map_or(Policy::default(), |item| item.value),
        fragments_below: fragments_below.unwrap_or(default.fragments_below),
        random_below: random_below.unwrap_or(default.random_below),
        weight: weight.map_or(Weight::default(), |item| item.value),
        exchange,
        // What one lost report does not make old.
        stale: stale.unwrap_or(Nanos(exchange.0 * 5)),
        idle: idle.unwrap_or(Nanos::from_ms(10)),
        dirty_high,
        dirty_low,
        preload: preload.unwrap_or(true),
        entry_size: entry_size.unwrap_or(ByteLen::from_kib(4)),
        measured: profile.as_ref().is_some_and(|item| item.value.is_none()),
        profile: profile.and_then(|item| item.value),
        emulate: emulate.map(|item| item.value),
    };
    Ok((ibridge, places))
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}
