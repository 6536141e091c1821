//! Sizes such as `64 KiB` and durations such as `500 ms`.

use weft_core::{ByteLen, Nanos};

const SIZES: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
const DURATIONS: [(&str, u64); 6] = [
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Parses a size: a whole number and `B`, `KiB`, `MiB`, `GiB` or `TiB` (powers of 1024). A number without a unit means
/// bytes; `k`, `M`, `G` and `T` mean `KiB` to `TiB`, as in `lfs`.
///
/// # Errors
/// A sentence that says what to write instead.
pub fn parse_size(text: &str) -> Result<ByteLen, String> {
    let (number, unit) = split(text).ok_or("write a whole number and a unit, such as \"64 KiB\"")?;
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

/// Parses a duration: a whole number and `ns`, `us`, `ms`, `s`, `min` or `h`.
///
/// # Errors
/// A sentence that says what to write instead.
pub fn parse_duration(text: &str) -> Result<Nanos, String> {
    let advice = "write a whole number and a unit, such as \"500 ms\" or \"5 s\"";
    let (number, unit) = split(text).ok_or(advice)?;
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

/// Formats a size with the largest unit that keeps it whole.
pub fn format_size(size: ByteLen) -> String {
    let whole = SIZES.iter().find(|(_, factor)| size.0 != 0 && size.0.is_multiple_of(*factor));
    let (unit, factor) = whole.unwrap_or(&SIZES[4]);
    format!("{} {unit}", size.0 / factor)
}

/// Formats a duration with the largest unit that keeps it whole.
pub fn format_duration(duration: Nanos) -> String {
    let whole = DURATIONS.iter().find(|(_, factor)| duration.0 != 0 && duration.0.is_multiple_of(*factor));
    let (unit, factor) = whole.unwrap_or(&DURATIONS[2]);
    format!("{} {unit}", duration.0 / factor)
}

/// Splits text into a number and the rest; `None` if it does not start with a number in range.
fn split(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..digits].parse().ok()?, text[digits..].trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn formatted_quantities_parse() {
        for bytes in [0, 1, 1023, 1024, 47_008, 65_536, 3 << 20, u64::MAX] {
            assert_eq!(parse_size(&format_size(ByteLen(bytes))), Ok(ByteLen(bytes)));
        }
        for nanos in [0, 1, 1_500, 2_000_000, 90_000_000_000, 3_600_000_000_000] {
            assert_eq!(parse_duration(&format_duration(Nanos(nanos))), Ok(Nanos(nanos)));
        }
    }
}
