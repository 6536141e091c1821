//! Newtypes for every number that crosses a module boundary.
//!
//! Offsets and lengths are in bytes, durations in nanoseconds.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident($inner:ty), $fmt:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// Zero of this unit.
            pub const ZERO: Self = Self(0);

            /// Returns the bare number, for arithmetic within a module and for formats.
            #[inline]
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $fmt, self.0)
            }
        }
    };
}

unit!(
    /// An offset in a (striped, logical) file, in bytes.
    FileOffset(u64), "{}"
);
unit!(
    /// An offset in a datafile, in bytes.
    LocalOffset(u64), "{}"
);
unit!(
    /// A length in bytes.
    ByteLen(u64), "{}"
);
unit!(
    /// An offset in the caller's buffer of a request, in bytes.
    BufferOffset(u64), "{}"
);
unit!(
    /// A server of the cluster, by its index in the cluster file.
    ServerId(u32), "server {}"
);
unit!(
    /// A target (a storage path with a class), unique in the cluster.
    TargetId(u32), "target {}"
);
unit!(
    /// An inode, and thereby its datafiles. Never reused.
    ///
    /// Inode numbers are below 2^48. In the names of datafiles, in capabilities and on targets, the upper 16 bits are
    /// the generation of the file's datafiles. A file that moved to another layout has new datafiles, under the next
    /// generation.
    FileId(u64), "{:016x}"
);

impl FileId {
    /// Inode numbers are below this.
    pub const INODES_END: u64 = 1 << 48;

    /// Returns the inode, without the generation.
    #[must_use]
    pub const fn inode(self) -> Self {
        Self(self.0 % Self::INODES_END)
    }

    /// Returns the generation of the datafiles.
    #[must_use]
    pub const fn generation(self) -> u16 {
        (self.0 / Self::INODES_END) as u16
    }

    /// Returns the id of a generation of this file's datafiles.
    #[must_use]
    pub const fn of_generation(self, generation: u16) -> Self {
        Self(self.inode().0 + generation as u64 * Self::INODES_END)
    }
}

unit!(
    /// A duration or a point on a monotonic clock, in nanoseconds.
    Nanos(u64), "{} ns"
);

/// A datafile among those of a file: component of the layout, and column of the component.
///
/// Together with the [`FileId`] it identifies the datafile on its target.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub struct ObjectId {
    /// Index of the component in the layout.
    pub component: u16,
    /// Index of the (target, stripe size) pair in the component.
    pub column: u16,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.component, self.column)
    }
}

/// A range of a logical file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, Serialize, Deserialize)]
pub struct Extent {
    /// First byte.
    pub offset: FileOffset,
    /// Number of bytes; may be zero.
    pub len: ByteLen,
}

impl Extent {
    /// Returns the range of `len` bytes from `offset`.
    pub const fn new(offset: u64, len: u64) -> Self {
        Self { offset: FileOffset(offset), len: ByteLen(len) }
    }

    /// Returns one past the last byte; `None` past 2^64 - 1.
    pub const fn end(self) -> Option<FileOffset> {
        match self.offset.0.checked_add(self.len.0) {
            Some(end) => Some(FileOffset(end)),
            None => None,
        }
    }
}

/// A range of a datafile.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, Serialize, Deserialize)]
pub struct LocalExtent {
    /// First byte.
    pub offset: LocalOffset,
    /// Number of bytes; may be zero.
    pub len: ByteLen,
}

impl LocalExtent {
    /// Returns the range of `len` bytes from `offset`.
    pub const fn new(offset: u64, len: u64) -> Self {
        Self { offset: LocalOffset(offset), len: ByteLen(len) }
    }

    /// Returns one past the last byte; `None` past 2^64 - 1.
    pub const fn end(self) -> Option<LocalOffset> {
        match self.offset.0.checked_add(self.len.0) {
            Some(end) => Some(LocalOffset(end)),
            None => None,
        }
    }
}

impl ByteLen {
    /// Stands for the length of a datafile that holds bytes but cannot tell its length. Longer than any datafile.
    pub const UNKNOWN: Self = Self(u64::MAX);

    /// Returns `n` KiB (1024 bytes).
    pub const fn from_kib(n: u64) -> Self {
        Self(n << 10)
    }

    /// Returns `n` MiB (1024 KiB).
    pub const fn from_mib(n: u64) -> Self {
        Self(n << 20)
    }
}

impl Nanos {
    /// Returns `ms` milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms * 1_000_000)
    }

    /// Returns `s` seconds.
    pub const fn from_s(s: u64) -> Self {
        Self(s * 1_000_000_000)
    }

    /// Returns the sum, saturated at the maximum.
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the difference, saturated at zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Converts to the standard library's type.
    pub const fn as_duration(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0)
    }
}

/// A point in civil time: nanoseconds since 1970-01-01 UTC, negative before.
///
/// Decoding rejects a value that a `timespec` cannot hold, so arithmetic on received values cannot overflow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(into = "i128", try_from = "i128")]
pub struct Timestamp(pub i128);

impl From<Timestamp> for i128 {
    fn from(time: Timestamp) -> i128 {
        time.0
    }
}

impl TryFrom<i128> for Timestamp {
    type Error = &'static str;

    fn try_from(nanos: i128) -> Result<Self, Self::Error> {
        match i64::try_from(nanos.div_euclid(1_000_000_000)) {
            Ok(_) => Ok(Self(nanos)),
            Err(_) => Err("a time that no timespec can hold"),
        }
    }
}

impl Timestamp {
    /// Converts the two fields of a `timespec`.
    pub const fn from_parts(seconds: i64, nanos: u32) -> Self {
        Self(seconds as i128 * 1_000_000_000 + nanos as i128)
    }

    /// Returns the two fields of a `timespec`; the second is in 0..1e9.
    pub const fn parts(self) -> (i64, u32) {
        (self.0.div_euclid(1_000_000_000) as i64, self.0.rem_euclid(1_000_000_000) as u32)
    }

    /// Returns date and time in UTC to the second, as `2026-11-23T05:48:33Z`.
    pub fn utc(self) -> String {
        let (seconds, _) = self.parts();
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

/// Converts days since 1970-01-01 to year, month and day in the Gregorian calendar.
fn civil(days: i64) -> (i64, i64, i64) {
    // Years begin on March 1 here, so that the leap day is the last of its year; 400 years have 146,097 days.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let of_month = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, of_month)
}

/// Units of sizes in bytes, in descending order.
const SIZE_UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Parses a size: a whole number and `B`, `KiB`, `MiB`, `GiB` or `TiB` (powers of 1024). A number without a unit means
/// bytes; `k`, `M`, `G` and `T` mean `KiB` to `TiB`, as in `lfs`.
///
/// # Errors
/// A sentence that says what to write instead.
pub fn parse_size(text: &str) -> Result<ByteLen, String> {
    let (number, unit) = split_number(text).ok_or("write a whole number and a unit, such as \"64 KiB\"")?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1u64 << 40,
        "kb" | "mb" | "gb" | "tb" => {
            let first = unit.as_bytes()[0].to_ascii_uppercase() as char;
            return Err(format!("units are powers of 1024 here: write {number} {first}iB"));
        }
        _ => return Err(format!("{unit:?} is not a unit of size: use B, KiB, MiB, GiB or TiB")),
    };
    let bytes = number.checked_mul(factor).ok_or("this is more than 2^64 bytes: write less")?;
    Ok(ByteLen(bytes))
}

/// Formats a size with the largest unit that keeps it whole.
pub fn format_size(size: ByteLen) -> String {
    let whole = SIZE_UNITS.iter().find(|(_, factor)| size.0 != 0 && size.0.is_multiple_of(*factor));
    let (unit, factor) = whole.unwrap_or(&SIZE_UNITS[4]);
    format!("{} {unit}", size.0 / factor)
}

const DURATIONS: [(&str, u64); 6] = [
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Parses a duration: a whole number and `ns`, `us`, `ms`, `s`, `min` or `h`.
///
/// # Errors
/// A sentence that says what to write instead.
pub fn parse_duration(text: &str) -> Result<Nanos, String> {
    let advice = "write a whole number and a unit, such as \"500 ms\" or \"5 s\"";
    let (number, unit) = split_number(text).ok_or(advice)?;
    if unit.is_empty() && number != 0 {
        return Err(advice.to_owned());
    }
    let factor = match DURATIONS.iter().find(|(name, _)| *name == unit) {
        Some((_, factor)) => *factor,
        None if unit.is_empty() => 1,
        None => return Err(format!("{unit:?} is not a unit of time: use ns, us, ms, s, min or h")),
    };
    number.checked_mul(factor).map(Nanos).ok_or_else(|| "this is more than 500 years: write less".to_owned())
}

/// Formats a duration with the largest unit that keeps it whole.
pub fn format_duration(duration: Nanos) -> String {
    let whole = DURATIONS.iter().find(|(_, factor)| duration.0 != 0 && duration.0.is_multiple_of(*factor));
    let (unit, factor) = whole.unwrap_or(&DURATIONS[2]);
    format!("{} {unit}", duration.0 / factor)
}

/// Splits text into a number and the rest; `None` if it does not start with a number in range.
pub fn split_number(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..digits].parse().ok()?, text[digits..].trim()))
}

/// Formats a number of bytes with three digits and a binary unit, for people.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn civil_time_follows_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_800_000_000, "2027-01-15T08:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(Timestamp::from_parts(seconds, 5).utc(), expected);
        }
        assert!(!Timestamp::from_parts(i64::MIN, 0).utc().is_empty(), "no arithmetic overflows");
        assert!(!Timestamp::from_parts(i64::MAX, 0).utc().is_empty());
    }

    #[test]
    fn timestamps_before_1970_keep_their_parts() {
        let t = Timestamp::from_parts(-2, 999_999_999);
        assert_eq!(t.parts(), (-2, 999_999_999));
        assert_eq!(t.0, -1_000_000_001);
    }

    #[test]
    fn times_beyond_timespec_are_rejected() {
        let (first, last) =
            (Timestamp::from_parts(i64::MIN, 0), Timestamp::from_parts(i64::MAX, 999_999_999));
        assert_eq!((Timestamp::try_from(first.0), Timestamp::try_from(last.0)), (Ok(first), Ok(last)));
        assert!(Timestamp::try_from(first.0 - 1).is_err() && Timestamp::try_from(last.0 + 1).is_err());
    }

    #[test]
    fn an_extent_past_the_maximum_has_no_end() {
        assert_eq!(Extent::new(u64::MAX, 1).end(), None);
        assert_eq!(Extent::new(u64::MAX - 1, 1).end(), Some(FileOffset(u64::MAX)));
    }

    #[test]
    fn sizes_parse() {
        for (text, bytes) in [
            ("0", 0),
            ("47008", 47_008),
            ("64 KiB", 65_536),
            ("64KiB", 65_536),
            ("64k", 65_536),
            (" 1 MiB ", 1 << 20),
            ("2g", 2 << 30),
            ("1 TiB", 1 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(ByteLen(bytes)), "{text}");
        }
        for text in ["", "KiB", "-1", "1.5 MiB", "64 KB", "1 parsec", "99999999 TiB", "0x10"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert_eq!(parse_size("64 KB").unwrap_err(), "units are powers of 1024 here: write 64 KiB");
    }

    #[test]
    fn formatted_sizes_parse_to_the_same_size() {
        for bytes in [0, 1, 1023, 1024, 47_008, 65_536, 3 << 20, 2 << 40, u64::MAX] {
            assert_eq!(parse_size(&format_size(ByteLen(bytes))), Ok(ByteLen(bytes)));
        }
    }

    #[test]
    fn people_read_three_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (47_008, "45.9 KiB"),
            (1 << 20, "1.00 MiB"),
            (999 << 20, "999 MiB"),
            (1023 << 20, "1.00 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(human_bytes(bytes), text);
        }
    }

    #[test]
    fn durations_need_a_unit() {
        for (text, nanos) in
            [("0", 0), ("500ms", 500_000_000), ("5 s", 5_000_000_000), ("2 min", 120_000_000_000)]
        {
            assert_eq!(parse_duration(text), Ok(Nanos(nanos)), "{text}");
        }
        for text in ["", "5", "5 minutes", "-1 s", "1.5 s", "99999999999 h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn formatted_durations_parse_to_the_same_duration() {
        for nanos in [0, 1, 1_500, 2_000_000, 90_000_000_000, 3_600_000_000_000] {
            assert_eq!(parse_duration(&format_duration(Nanos(nanos))), Ok(Nanos(nanos)));
        }
    }
}
