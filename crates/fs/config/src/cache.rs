//! `[server.target.cache]`: the read and write cache on an SSD beside a target.

use crate::error::ConfigError;
use crate::ibridge::{
    ENTRY_SIZE_DEFAULT, ENTRY_SIZES, IDLE_DEFAULT, IDLE_TIMES, IbridgeSpans, LogShare, SIZES, to_message,
};
use crate::load::{emulated, required};
use crate::model::{Cache, CacheLog, Ibridge};
use crate::section::Section;
use std::ops::Range;
use weft_core::cache::{CacheMode, EvictionPolicy};
use weft_core::{ByteLen, CacheShare};

/// Maximum length that is read ahead.
const PREFETCH_MAX: ByteLen = ByteLen::from_mib(64);

/// Positions of the section's values in the file.
#[derive(Clone)]
pub(crate) struct CacheSpans {
    pub section: Range<usize>,
    /// Positions of the log; `None` if the section names none.
    pub log: Option<IbridgeSpans>,
}

/// Reads the section. `beside` is the target's iBridge section, whose log the cache then uses.
pub(crate) fn cache(
    section: Section<'_>,
    beside: Option<&Ibridge>,
) -> Result<(Cache, CacheSpans), ConfigError> {
    let mode = section.choice("mode", &CacheMode::ALL.map(|mode| (mode.word(), mode)))?;
    let mode = mode.ok_or_else(|| {
        section.missing("mode", "write mode = \"read\", \"write-through\", \"write-back\" or \"off\"")
    })?;
    let eviction = section.choice("policy", &EvictionPolicy::ALL.map(|policy| (policy.word(), policy)))?;
    let share = section.parsed("share", "50 %", |text| text.parse::<CacheShare>().map_err(to_message))?;
    let prefetch = section.size("prefetch", ByteLen(0)..=PREFETCH_MAX)?;
    let path = section.path("path", "/ssd/weft/cache0")?;
    let size = section.size("size", SIZES)?;
    let idle = section.duration("idle", IDLE_TIMES)?;
    let high = section.parsed("dirty_high", "75 %", LogShare::parse)?;
    let low = section.parsed("dirty_low", "50 %", LogShare::parse)?;
    let entry_size = section.size("entry_size", ENTRY_SIZES)?;
    let emulate = section.parsed("emulate", "sata-ssd", emulated)?;
    let span = section.span();
    let (log, log_spans) = if beside.is_some() {
        let keys = [
            ("path", path.as_ref().map(|item| item.span.clone())),
            ("size", size.map(|_| span.clone())),
            ("idle", idle.map(|_| span.clone())),
            ("dirty_high", high.as_ref().map(|item| item.span.clone())),
            ("dirty_low", low.as_ref().map(|item| item.span.clone())),
            ("entry_size", entry_size.map(|_| span.clone())),
            ("emulate", emulate.as_ref().map(|item| item.span.clone())),
        ];
        if let Some((key, at)) = keys.into_iter().find_map(|(key, at)| Some((key, at?))) {
            let problem = format!("{key} is set, but the cache of this target uses the log of iBridge");
            let remedy = format!("set {key} in [server.target.ibridge] and remove the line here");
            return Err(section.refuse(at, &problem, &remedy));
        }
        (None, None)
    } else {
        let path =
            required(&section, "path", path, "write path = \"/ssd/weft/cache0\", a directory on the SSD")?;
        let size = required(&section, "size", size, "write size = \"10 GiB\", the capacity of the cache")?;
        if let Some(share) = share.as_ref().filter(|share| share.value != CacheShare::Fixed(100)) {
            let problem = "share is set, but nothing shares the SSD with the cache of this target";
            let remedy = "remove the line, or add [server.target.ibridge] to the target";
            return Err(section.refuse(share.span.clone(), problem, remedy));
        }
        let (dirty_high, dirty_low) = LogShare::marks(&section, (&high, &low), size)?;
        let log = CacheLog {
            path: path.value,
            size,
            idle: idle.unwrap_or(IDLE_DEFAULT),
            dirty_high,
            dirty_low,
            entry_size: entry_size.unwrap_or(ENTRY_SIZE_DEFAULT),
            emulate: emulate.map(|item| item.value),
        };
        (Some(log), Some(IbridgeSpans { section: span.clone(), path: path.span }))
    };
    let default = if beside.is_some() { CacheShare::default() } else { CacheShare::Fixed(100) };
    section.finish()?;
    let cache = Cache {
        mode,
        eviction: eviction.unwrap_or_default(),
        share: share.map_or(default, |item| item.value),
        prefetch: prefetch.unwrap_or(ByteLen(0)),
        log,
    };
    Ok((cache, CacheSpans { section: span, log: log_spans }))
}
