//! `[server.target.ibridge]`: the SSD beside a target.

use crate::error::ConfigError;
use crate::load::{emulated, required};
use crate::model::Ibridge;
use crate::section::{Item, Section};
use std::ops::{Range, RangeInclusive};
use weft_core::ibridge::{Policy, Thresholds, Weight};
use weft_core::units::parse_size;
use weft_core::{ByteLen, Nanos};

/// Sizes of the log. The smallest has eight segments, the minimum with which compaction can make progress.
pub(crate) const SIZES: RangeInclusive<ByteLen> = ByteLen::from_mib(32)..=ByteLen(1 << 46);
pub(crate) const ENTRY_SIZES: RangeInclusive<ByteLen> = ByteLen::from_kib(1)..=ByteLen::from_kib(64);
pub(crate) const ENTRY_SIZE_DEFAULT: ByteLen = ByteLen::from_kib(4);
pub(crate) const IDLE_TIMES: RangeInclusive<Nanos> = Nanos::from_ms(1)..=Nanos::from_s(3600);
pub(crate) const IDLE_DEFAULT: Nanos = Nanos::from_ms(10);
const BELOW: RangeInclusive<ByteLen> = ByteLen(0)..=ByteLen::from_mib(4);

/// Value of `profile` that selects the measurements of `weft profile`.
const MEASURED: &str = "measured";

/// Positions of the section's values in the file.
#[derive(Clone)]
pub(crate) struct IbridgeSpans {
    pub section: Range<usize>,
    pub path: Range<usize>,
}

/// Share of the log, as written.
pub(crate) enum LogShare {
    Percent(u64),
    Bytes(ByteLen),
}

impl LogShare {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
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

    /// Returns the marks of write-back, `dirty_high` and `dirty_low`, for a log of `size`.
    pub(crate) fn marks(
        section: &Section<'_>,
        (high, low): (&Option<Item<Self>>, &Option<Item<Self>>),
        size: ByteLen,
    ) -> Result<(ByteLen, ByteLen), ConfigError> {
        let dirty = |part: &Option<Item<Self>>, percent| {
            part.as_ref().map_or(Self::Percent(percent).of(size), |item| item.value.of(size))
        };
        let (dirty_high, dirty_low) = (dirty(high, 75), dirty(low, 50));
        let whose = low.as_ref().or(high.as_ref()).map(|item| item.span.clone());
        if let Some(span) = whose.filter(|_| dirty_low > dirty_high || dirty_high > size) {
            let problem = "dirty_low, dirty_high and size are not in ascending order";
            let remedy =
                "write-back starts at dirty_high and stops at dirty_low: remove both lines for 75 % and 50 %";
            return Err(section.refuse(span, problem, remedy));
        }
        Ok((dirty_high, dirty_low))
    }
}

/// Reads the section.
pub(crate) fn ibridge(section: Section<'_>) -> Result<(Ibridge, IbridgeSpans), ConfigError> {
    let path = section.path("path", "/ssd/weft/log0")?;
    let path = required(&section, "path", path, "write path = \"/ssd/weft/log0\", a directory on the SSD")?;
    let size = section.size("size", SIZES)?;
    let size = required(&section, "size", size, "write size = \"10 GiB\", the capacity of the log")?;
    let policy = section.parsed("policy", "ibridge", |text| text.parse::<Policy>().map_err(to_message))?;
    let fragments_below = section.size("fragments_below", BELOW)?;
    let random_below = section.size("random_below", BELOW)?;
    let weight = section.parsed("weight", "7/8", |text| text.parse::<Weight>().map_err(to_message))?;
    let exchange = section.duration("exchange", Nanos::from_ms(10)..=Nanos::from_s(60))?;
    let exchange = exchange.unwrap_or(Nanos::from_s(1));
    let stale = section.duration("stale", Nanos::from_ms(10)..=Nanos::from_s(60))?;
    let idle = section.duration("idle", IDLE_TIMES)?;
    let high = section.parsed("dirty_high", "75 %", LogShare::parse)?;
    let low = section.parsed("dirty_low", "50 %", LogShare::parse)?;
    let preload = section.flag("preload")?;
    let entry_size = section.size("entry_size", ENTRY_SIZES)?;
    let profile = section.parsed("profile", "hdd-7200", |text| match text {
        MEASURED => Ok(None),
        other => emulated(other).map(Some),
    })?;
    let emulate = section.parsed("emulate", "sata-ssd", emulated)?;
    let default = Thresholds::default();
    let (dirty_high, dirty_low) = LogShare::marks(&section, (&high, &low), size)?;
    let places = IbridgeSpans { section: section.span(), path: path.span };
    section.finish()?;
    let ibridge = Ibridge {
        path: path.value,
        size,
        policy: policy.map_or(Policy::default(), |item| item.value),
        fragments_below: fragments_below.unwrap_or(default.fragments_below),
        random_below: random_below.unwrap_or(default.random_below),
        weight: weight.map_or(Weight::default(), |item| item.value),
        exchange,
        // One lost report must not make the averages stale.
        stale: stale.unwrap_or(Nanos(exchange.0 * 5)),
        idle: idle.unwrap_or(IDLE_DEFAULT),
        dirty_high,
        dirty_low,
        preload: preload.unwrap_or(true),
        entry_size: entry_size.unwrap_or(ENTRY_SIZE_DEFAULT),
        measured: profile.as_ref().is_some_and(|item| item.value.is_none()),
        profile: profile.and_then(|item| item.value),
        emulate: emulate.map(|item| item.value),
    };
    Ok((ibridge, places))
}

pub(crate) fn to_message(error: impl std::fmt::Display) -> String {
    error.to_string()
}
