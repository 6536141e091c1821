//! Division of an SSD's capacity between the classes of bytes on it.

use crate::data_class::DataClass;
use crate::ibridge::{Class, Partition, Policy};
use crate::units::ByteLen;
use std::fmt;
use std::str::FromStr;

/// Share of the cache when iBridge uses the same SSD, in percent.
const PERCENT_DEFAULT: u8 = 50;
/// Least and largest adaptive share, in percent, so that neither side loses the space in which it shows its use.
const ADAPTIVE_PERCENT: std::ops::RangeInclusive<f64> = 10.0..=90.0;
/// Step of the adaptive share, in percent.
const ADAPTIVE_STEP: f64 = 2.0;
/// Number of admissions after which the quotas are computed again.
pub const ADMISSIONS_PER_UPDATE: u64 = 64;

/// Share of the SSD that the cache may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CacheShare {
    /// A percentage of the capacity. iBridge's classes divide the rest.
    Fixed(u8),
    /// Moves towards the side whose space serves more bytes.
    Adaptive,
}

/// Error: the text is not a share.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is not a share of the SSD: use a percentage between \"1 %\" and \"100 %\", or adaptive")]
pub struct CacheShareError(pub String);

impl Default for CacheShare {
    fn default() -> Self {
        Self::Fixed(PERCENT_DEFAULT)
    }
}

impl fmt::Display for CacheShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(percent) => write!(f, "{percent} %"),
            Self::Adaptive => f.write_str("adaptive"),
        }
    }
}

impl FromStr for CacheShare {
    type Err = CacheShareError;

    fn from_str(text: &str) -> Result<Self, CacheShareError> {
        if text == "adaptive" {
            return Ok(Self::Adaptive);
        }
        let percent = text.strip_suffix('%').and_then(|number| number.trim().parse().ok());
        let percent = percent.filter(|percent| (1..=100).contains(percent));
        percent.map(Self::Fixed).ok_or_else(|| CacheShareError(text.to_owned()))
    }
}

/// Quotas of the classes: iBridge's [`Partition`], and the share of the cache.
#[derive(Clone, PartialEq, Debug)]
pub struct SsdBudget {
    /// iBridge's policy and partition; `None` if no request of its classes is admitted.
    ibridge: Option<(Policy, Partition)>,
    cache: Option<CacheShare>,
    /// Current share of the cache in percent.
    percent: f64,
    /// Bytes that each side has served since the last update: iBridge's classes, and the cache.
    served: [u64; 2],
    admitted: [u64; DataClass::COUNT],
}

impl SsdBudget {
    /// Returns the budget of an SSD that has served nothing. Without iBridge the cache may use all of it.
    pub fn new(ibridge: Option<Policy>, cache: Option<CacheShare>) -> Self {
        let percent = match (ibridge, cache) {
            (_, None) => 0.0,
            (_, Some(CacheShare::Fixed(percent))) => f64::from(percent),
            (None, Some(CacheShare::Adaptive)) => 100.0,
            (Some(_), Some(CacheShare::Adaptive)) => f64::from(PERCENT_DEFAULT),
        };
        let ibridge = ibridge.map(|policy| (policy, Partition::new(policy)));
        Self { ibridge, cache, percent, served: [0; 2], admitted: [0; DataClass::COUNT] }
    }

    /// Returns the name in reports.
    pub fn name(&self) -> String {
        match (&self.ibridge, self.cache) {
            (Some((policy, _)), Some(share)) => format!("{policy}, cache {share}"),
            (Some((policy, _)), None) => policy.to_string(),
            (None, Some(share)) => format!("cache {share}"),
            (None, None) => "off".to_owned(),
        }
    }

    /// Records that a request of a class, with this return in nanoseconds, goes to the SSD. Returns true when the
    /// quotas must be computed again.
    pub fn admitted(&mut self, class: DataClass, gain: i64) -> bool {
        if let (Some((_, partition)), Some(of_ibridge)) = (&mut self.ibridge, of_ibridge(class)) {
            partition.admitted(of_ibridge, gain);
        }
        self.admitted[class.index()] += 1;
        let is_due = self.admitted.iter().sum::<u64>() % ADMISSIONS_PER_UPDATE == 1;
        if is_due {
            self.adapt();
        }
        is_due
    }

    /// Records that the SSD served bytes of a class: bytes of reads that it had, or of writes that it took.
    pub fn served(&mut self, class: DataClass, len: ByteLen) {
        self.served[usize::from(class == DataClass::CACHED)] += len.0;
    }

    /// Moves an adaptive share towards the side that served more bytes per byte of its space.
    fn adapt(&mut self) {
        let [of_ibridge, of_cache] = std::mem::take(&mut self.served).map(|bytes| bytes as f64);
        if self.cache != Some(CacheShare::Adaptive) || self.ibridge.is_none() {
            return;
        }
        let (yield_of_cache, yield_of_rest) = (of_cache / self.percent, of_ibridge / (100.0 - self.percent));
        if yield_of_cache > yield_of_rest {
            self.percent += ADAPTIVE_STEP;
        } else if yield_of_cache < yield_of_rest {
            self.percent -= ADAPTIVE_STEP;
        }
        self.percent = self.percent.clamp(*ADAPTIVE_PERCENT.start(), *ADAPTIVE_PERCENT.end());
    }

    /// Returns the quotas in bytes, by [`DataClass::index`].
    pub fn quotas(&self, capacity: ByteLen) -> [ByteLen; DataClass::COUNT] {
        let of_cache = ByteLen((capacity.0 as f64 * self.percent / 100.0) as u64).min(capacity);
        let rest = ByteLen(capacity.0 - of_cache.0);
        DataClass::ALL.map(|class| match (&self.ibridge, of_ibridge(class)) {
            (Some((_, partition)), Some(class)) => partition.quota(class, rest),
            (None, Some(_)) => ByteLen(0),
            (_, None) => of_cache,
        })
    }

    /// Returns the average return of a class in nanoseconds; 0 without history.
    pub fn gain(&self, class: DataClass) -> i64 {
        let partition = self.ibridge.as_ref().map(|(_, partition)| partition);
        let average =
            partition.zip(of_ibridge(class)).and_then(|(partition, class)| partition.average(class));
        average.unwrap_or(0.0) as i64
    }

    /// Returns the number of admissions of a class.
    pub const fn admissions(&self, class: DataClass) -> u64 {
        self.admitted[class.index()]
    }

    /// Returns whether requests of a class are admitted.
    pub const fn has(&self, class: DataClass) -> bool {
        match of_ibridge(class) {
            Some(_) => self.ibridge.is_some(),
            None => self.cache.is_some(),
        }
    }
}

/// Returns the class in iBridge; `None` for the cache's.
const fn of_ibridge(class: DataClass) -> Option<Class> {
    match class {
        DataClass::FRAGMENT => Some(Class::Fragment),
        DataClass::RANDOM => Some(Class::Random),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: ByteLen = ByteLen(1000);

    fn quotas(budget: &SsdBudget) -> [u64; 3] {
        budget.quotas(CAPACITY).map(|quota| quota.0)
    }

    #[test]
    fn shares_round_trip() {
        for share in [CacheShare::Fixed(1), CacheShare::Fixed(100), CacheShare::Adaptive] {
            assert_eq!(share.to_string().parse(), Ok(share));
        }
        assert_eq!("50%".parse(), Ok(CacheShare::default()));
        for text in ["", "0 %", "101 %", "50", "half", "-1 %"] {
            let error = text.parse::<CacheShare>().unwrap_err().to_string();
            assert!(error.contains("adaptive"), "{text}: {error}");
        }
    }

    #[test]
    fn the_cache_takes_its_share_first() {
        let of = |ibridge, cache| quotas(&SsdBudget::new(ibridge, cache));
        assert_eq!(of(Some(Policy::Ibridge), None), [500, 500, 0]);
        assert_eq!(of(Some(Policy::Ibridge), Some(CacheShare::Fixed(60))), [200, 200, 600]);
        assert_eq!(of(Some(Policy::DETOUR), Some(CacheShare::Fixed(60))), [400, 400, 600]);
        assert_eq!(of(None, Some(CacheShare::Fixed(100))), [0, 0, 1000]);
        assert_eq!(of(None, Some(CacheShare::Adaptive)), [0, 0, 1000]);
        assert_eq!(of(None, None), [0, 0, 0]);
    }

    #[test]
    fn an_adaptive_share_follows_the_bytes_served_within_bounds() {
        let mut budget = SsdBudget::new(Some(Policy::Threshold), Some(CacheShare::Adaptive));
        assert_eq!(quotas(&budget)[2], 500);
        let mut served = |class, times: u64| {
            for _ in 0..times * ADMISSIONS_PER_UPDATE {
                budget.served(class, ByteLen(1));
                budget.admitted(class, 1);
            }
            quotas(&budget)
        };
        assert_eq!(served(DataClass::CACHED, 2), [460, 460, 540]);
        assert_eq!(served(DataClass::CACHED, 100), [100, 100, 900]);
        assert_eq!(served(DataClass::RANDOM, 100), [900, 900, 100]);
        assert_eq!(budget.name(), "threshold, cache adaptive");
    }

    #[test]
    fn quotas_are_computed_again_from_time_to_time() {
        let mut budget = SsdBudget::new(Some(Policy::Ibridge), Some(CacheShare::Fixed(50)));
        let due = (0..200).filter(|_| budget.admitted(DataClass::FRAGMENT, 1000)).count();
        assert_eq!(due, 4);
        assert_eq!((budget.admissions(DataClass::FRAGMENT), budget.gain(DataClass::FRAGMENT)), (200, 1000));
        assert_eq!(budget.gain(DataClass::CACHED), 0);
        assert!(budget.has(DataClass::CACHED) && budget.has(DataClass::RANDOM));
        assert_eq!(quotas(&budget), [450, 50, 500]);
    }
}
