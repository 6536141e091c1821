//! Sizes such as `64 KiB` and durations such as `500 ms`.

pub use weft_core::units::{format_size, parse_size};

use weft_core::Nanos;
use weft_core::units::split_number;

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

#[cfg(test)]
mod tests {
    use super::*;

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
