//! Settings of delegates on the command line, and their defaults.

use crate::failure::Failure;
use weft_core::ByteLen;
use weft_core::delegates::ownership::Policy;
use weft_wire::delegate::JobSettings;

/// Share of the host's memory that its delegates may use for pages together.
const MEMORY_SHARE: u64 = 4;
/// Default limit of a delegate's memory for pages.
const MEMORY_MAX: ByteLen = ByteLen(1 << 30);
/// Least memory for pages.
const MEMORY_MIN: ByteLen = ByteLen(4 << 20);
/// Bounds of the length of a page.
const PAGE_LEN: std::ops::RangeInclusive<u64> = 4096..=(64 << 20);
/// Length of a read or write of whole pages that ranks on the delegate's host do without it.
const DIRECT_MIN: u64 = 1 << 20;

/// Settings of a job's delegates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Rule by which a page gets its owner.
    pub policy: Policy,
    /// Memory of each delegate for pages; `None` for a share of the host's memory.
    pub memory: Option<ByteLen>,
    /// Length of pages; `None` to follow the underlying file system.
    pub page_len: Option<u64>,
    /// Whether dirty bytes are written before a sync or close.
    pub write_behind: bool,
}

impl Settings {
    /// Checks the combination of options.
    ///
    /// # Errors
    /// The memory does not hold two pages.
    pub fn check(&self) -> Result<(), Failure> {
        match (self.memory, self.page_len) {
            (Some(memory), Some(page)) if memory.0 < 2 * page => {
                let why =
                    format!("{} hold less than two pages of {page} bytes", weft_config::format_size(memory));
                Err(Failure::misuse("memory of delegates", why).remedy("give more memory, or shorter pages"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the text that must be equal for all delegates of a job.
    pub fn text(&self, over: &[std::path::PathBuf]) -> String {
        let memory =
            self.memory.map_or_else(|| "default memory".to_owned(), |memory| format!("{} bytes", memory.0));
        let page =
            self.page_len.map_or_else(|| "default pages".to_owned(), |len| format!("pages of {len} bytes"));
        let write = if self.write_behind { "write-behind" } else { "write at close" };
        let over: Vec<_> = over.iter().map(|dir| dir.display().to_string()).collect();
        format!("{}, {memory}, {page}, {write}, over {}", self.policy, over.join(":"))
    }

    /// Returns the arguments of `weft delegate` for these settings.
    pub fn arguments(&self) -> Vec<String> {
        let mut all = vec!["--policy".to_owned(), self.policy.to_string()];
        if let Some(memory) = self.memory {
            all.extend(["--memory".to_owned(), memory.0.to_string()]);
        }
        if let Some(len) = self.page_len {
            all.extend(["--page-size".to_owned(), len.to_string()]);
        }
        all.extend(["--write-behind".to_owned(), if self.write_behind { "on" } else { "off" }.to_owned()]);
        all
    }

    /// Returns the settings of delegate `index` of `count`; `on_host` of them run on this host.
    pub fn of_job(&self, index: u32, count: u32, on_host: u32) -> JobSettings {
        JobSettings {
            delegates: count,
            index,
            policy: self.policy,
            group_pages: 1,
            page_len: self.page_len,
            memory: self.memory.unwrap_or_else(|| default_memory(host_memory(), on_host)),
            write_behind: self.write_behind,
            direct_min: Some(DIRECT_MIN),
        }
    }
}

/// A quarter of the host's memory for all its delegates, at most 1 GiB for each.
fn default_memory(host: u64, on_host: u32) -> ByteLen {
    ByteLen(host / MEMORY_SHARE / u64::from(on_host.max(1))).clamp(MEMORY_MIN, MEMORY_MAX)
}

/// Returns the memory of this host, or of this process's control group if that is less.
fn host_memory() -> u64 {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = meminfo.lines().find_map(|line| {
        let kib: u64 = line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    });
    let group = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = group.lines().find_map(|line| {
        let path = line.strip_prefix("0::/")?;
        let text = std::fs::read_to_string(format!("/sys/fs/cgroup/{path}/memory.max")).ok()?;
        text.trim().parse::<u64>().ok()
    });
    total.into_iter().chain(limit).min().unwrap_or(MEMORY_MAX.0)
}

/// Parses the length of a page.
pub fn page_len(text: &str) -> Result<u64, String> {
    let len = weft_config::parse_size(text)?.0;
    match PAGE_LEN.contains(&len) && len.is_multiple_of(4096) {
        true => Ok(len),
        false => Err("it must be a multiple of 4 KiB, up to 64 MiB".into()),
    }
}

/// Parses the memory of a delegate.
pub fn memory(text: &str) -> Result<ByteLen, String> {
    let len = weft_config::parse_size(text)?;
    match len >= MEMORY_MIN {
        true => Ok(len),
        false => Err(format!("it must be at least {}", weft_config::format_size(MEMORY_MIN))),
    }
}

/// Parses `on` or `off`.
pub fn on_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("write on or off".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delegates_of_a_host_share_a_quarter_of_its_memory() {
        const GIB: u64 = 1 << 30;
        assert_eq!(default_memory(64 * GIB, 2), MEMORY_MAX);
        assert_eq!(default_memory(4 * GIB, 4), ByteLen(GIB / 4));
        assert_eq!(default_memory(GIB / 16, 8), MEMORY_MIN);
        assert!(host_memory() > 0);
    }

    #[test]
    fn sizes_of_pages_and_memory_have_bounds() {
        assert_eq!(page_len("512K"), Ok(512 << 10));
        for text in ["0", "1000", "128M", "x"] {
            assert!(page_len(text).is_err(), "{text}");
        }
        assert!(memory("1M").is_err() && memory("4M").is_ok());
        let settings = |memory, page_len| Settings {
            policy: Policy::Hashed,
            memory: Some(ByteLen(memory)),
            page_len: Some(page_len),
            write_behind: true,
        };
        assert!(settings(8 << 20, 4 << 20).check().is_ok());
        assert!(settings(8 << 20, 8 << 20).check().is_err());
    }
}
