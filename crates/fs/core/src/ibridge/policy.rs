//! Policies by name.

use std::fmt;
use std::str::FromStr;

/// Policy that selects requests for the SSD.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Policy {
    /// No requests.
    Off,
    /// The paper's policy: small requests with a positive return. The classes share the SSD in proportion to their
    /// average returns.
    #[default]
    Ibridge,
    /// All small requests.
    Threshold,
    /// As `Ibridge`, with fixed shares of the SSD.
    Static {
        /// Parts for fragments.
        fragments: u32,
        /// Parts for small random requests.
        random: u32,
    },
    /// Weft's policy: requests whose positioning time exceeds `ns_per_byte` per byte, and unaligned edges of other
    /// writes, if these were measured to cost as much.
    Detour {
        /// Disk time in nanoseconds that each byte on the SSD must save.
        ns_per_byte: u32,
        /// Page size in bytes; 0 disables the treatment of edges.
        page: u32,
    },
}

/// Error: the text is not a policy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{0:?} is not a policy: use off, ibridge, threshold, static(RANDOM:FRAGMENTS) such as static(1:2), or \
     detour(NS_PER_BYTE:PAGE) such as detour(20:4096)"
)]
pub struct PolicyError(pub String);

impl Policy {
    /// [`Policy::Detour`] at the default price: 1.5 times the time to write a byte to an SSD of 150 MB/s and read it
    /// back.
    pub const DETOUR: Self = Self::Detour { ns_per_byte: 20, page: 4096 };
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Ibridge => f.write_str("ibridge"),
            Self::Threshold => f.write_str("threshold"),
            Self::Static { fragments, random } => write!(f, "static({random}:{fragments})"),
            Self::Detour { ns_per_byte, page } => write!(f, "detour({ns_per_byte}:{page})"),
        }
    }
}

impl FromStr for Policy {
    type Err = PolicyError;

    /// Ratios are written as in the paper: `static(1:2)` gives one part to random requests and two to fragments.
    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let error = || PolicyError(text.to_owned());
        let pair = |word: &str| {
            let inner = text.strip_prefix(word)?.strip_prefix('(')?.strip_suffix(')')?;
            let (first, second) = inner.split_once(':')?;
            Some((first.trim().parse::<u32>().ok()?, second.trim().parse::<u32>().ok()?))
        };
        match text {
            "off" => return Ok(Self::Off),
            "ibridge" => return Ok(Self::Ibridge),
            "threshold" => return Ok(Self::Threshold),
            "detour" => return Ok(Self::DETOUR),
            _ => {}
        }
        if let Some((random, fragments)) = pair("static") {
            let is_usable = random.checked_add(fragments).is_some_and(|parts| parts > 0);
            return if is_usable { Ok(Self::Static { fragments, random }) } else { Err(error()) };
        }
        match pair("detour") {
            Some((ns_per_byte, page)) if page == 0 || page.is_power_of_two() && page <= 1 << 20 => {
                Ok(Self::Detour { ns_per_byte, page })
            }
            _ => Err(error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_round_trip() {
        let policies = [
            Policy::Off,
            Policy::Ibridge,
            Policy::Threshold,
            Policy::Static { fragments: 2, random: 1 },
            Policy::DETOUR,
            Policy::Detour { ns_per_byte: 0, page: 0 },
        ];
        for policy in policies {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        assert_eq!("static(1:2)".parse(), Ok(Policy::Static { random: 1, fragments: 2 }), "as in the paper");
        assert_eq!("detour".parse(), Ok(Policy::DETOUR));
    }

    #[test]
    fn errors_list_the_valid_policies() {
        for text in
            ["", "on", "static", "static(0:0)", "static(1)", "static(-1:2)", "detour(1:3)", "Static(1:2)"]
        {
            let error = text.parse::<Policy>().unwrap_err().to_string();
            assert!(error.contains("static(1:2)"), "{text}: {error}");
        }
        assert!("static(4294967295:1)".parse::<Policy>().is_err(), "the sum overflows");
    }
}
