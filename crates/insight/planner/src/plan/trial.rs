//! A plan tried on the running cluster: replays with the present layouts and with the planned ones, in pairs.

use super::file::{Plan, PlanError};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Probability below which a difference is not taken for chance.
const P_MAX: f64 = 0.05;

/// Least number of pairs with which a trial can be decided: with 5, the least two-sided p value is 0.0625.
pub const DECIDING_PAIRS_MIN: u32 = 6;

/// Times of the replays of a trial.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    /// Number of pairs of replays.
    pub times: u32,
    /// Fraction of the trace's reads and writes that were replayed, above 0 to 1.
    pub share: f64,
    /// Seconds of each replay with the present layouts, by pair.
    pub present_s: Vec<f64>,
    /// Seconds of each replay with the planned layouts, by pair.
    pub planned_s: Vec<f64>,
}

/// Result of a trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The planned layouts are faster beyond chance.
    Faster,
    /// The planned layouts are slower beyond chance.
    Slower,
    /// The difference may be chance.
    Undecided,
}

impl Trial {
    /// Compares the pairs, at a two-sided p value below 0.05.
    pub fn verdict(&self) -> Verdict {
        let (planned_slower, planned_faster) = self.rank_sums();
        if self.p_value() >= P_MAX {
            Verdict::Undecided
        } else if planned_faster > planned_slower {
            Verdict::Faster
        } else {
            Verdict::Slower
        }
    }

    /// Exact two-sided p value of the Wilcoxon signed-rank test over the pairs. Equal pairs are left out, and equal
    /// differences share their mean rank.
    pub fn p_value(&self) -> f64 {
        let ranks: Vec<usize> = self.signed_ranks().iter().map(|(doubled, _)| *doubled).collect();
        let total: usize = ranks.iter().sum();
        // Probability of each sum of the ranks with one sign, if each sign is equally likely.
        let mut probability = vec![0.0; total + 1];
        probability[0] = 1.0;
        for rank in ranks {
            for sum in (0..=total).rev() {
                let with = if sum >= rank { probability[sum - rank] } else { 0.0 };
                probability[sum] = 0.5 * (probability[sum] + with);
            }
        }
        let (slower, faster) = self.rank_sums();
        let tail: f64 = probability[..=slower.min(faster)].iter().sum();
        (2.0 * tail).min(1.0)
    }

    /// Median seconds with the present layouts, and with the planned ones.
    pub fn medians_s(&self) -> (f64, f64) {
        (median(&self.present_s), median(&self.planned_s))
    }

    /// Median time with the present layouts, divided by that with the planned ones. Above 1 the plan is faster.
    pub fn ratio(&self) -> f64 {
        let (present, planned) = self.medians_s();
        present / planned
    }

    /// Doubled rank of each pair's absolute difference, and whether the planned layouts were faster.
    fn signed_ranks(&self) -> Vec<(usize, bool)> {
        let pairs = self.present_s.iter().zip(&self.planned_s);
        let mut saved: Vec<f64> =
            pairs.map(|(present, planned)| present - planned).filter(|saved| *saved != 0.0).collect();
        saved.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
        let mut ranks = Vec::with_capacity(saved.len());
        for tied in saved.chunk_by(|a, b| a.abs() == b.abs()) {
            // Twice the mean of the ranks before + 1 to before + len.
            let doubled = 2 * ranks.len() + tied.len() + 1;
            ranks.extend(tied.iter().map(|saved| (doubled, *saved > 0.0)));
        }
        ranks
    }

    /// Doubled sums of the ranks of the pairs in which the planned layouts were slower, and faster.
    fn rank_sums(&self) -> (usize, usize) {
        self.signed_ranks().iter().fold((0, 0), |(slower, faster), (rank, is_faster)| match is_faster {
            true => (slower, faster + rank),
            false => (slower + rank, faster),
        })
    }

    /// Checks what a file says.
    pub(super) fn check(&self) -> Result<(), PlanError> {
        let wrong = |why: &str| Err(PlanError(format!("trial: {why}: plan again")));
        let count = self.times as usize;
        if count == 0 || self.present_s.len() != count || self.planned_s.len() != count {
            return wrong("the numbers of replays differ from `times`");
        }
        if !(self.share > 0.0 && self.share <= 1.0) {
            return wrong("`share` is not above 0 to 1");
        }
        let mut seconds = self.present_s.iter().chain(&self.planned_s);
        if !seconds.all(|seconds| seconds.is_finite() && *seconds > 0.0) {
            return wrong("a time is not above 0");
        }
        Ok(())
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (present, planned) = self.medians_s();
        write!(
            f,
            "{} pairs of replays of {:.0} % of the requests: median {present:.3} s with the present layouts, \
             {planned:.3} s with the planned ones, ratio {:.2}, p = {:.3}: {}",
            self.times,
            100.0 * self.share,
            self.ratio(),
            self.p_value(),
            self.verdict()
        )
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Faster => "faster beyond chance",
            Self::Slower => "slower beyond chance",
            Self::Undecided => "undecided",
        })
    }
}

/// Median of at least one value.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

impl Plan {
    /// Adds a trial of the plan. Unless the plan was faster beyond chance, its rules are removed, so that files keep
    /// their layouts, and a note says why.
    pub fn judge(&mut self, trial: Trial) {
        if trial.verdict() != Verdict::Faster {
            let why = "the trial did not show beyond chance that another layout is faster";
            self.kept.extend(self.rules.drain(..).map(|rule| rule.into_kept(why)));
            self.notes.push(format!("files keep their layouts, because the plan was tried: {trial}"));
        }
        self.trial = Some(trial);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Options, plan};
    use crate::survey::{Limits, Survey};
    use crate::testing::hybrid;

    /// A trial in which the planned layouts save these seconds of 10.
    fn saving(saved: &[f64]) -> Trial {
        Trial {
            times: saved.len() as u32,
            share: 1.0,
            present_s: vec![10.0; saved.len()],
            planned_s: saved.iter().map(|saved| 10.0 - saved).collect(),
        }
    }

    #[test]
    fn p_values_are_those_of_the_published_table() {
        // Two-sided critical values at 0.05: a rank sum of 0 for 6 pairs, 2 for 7, 3 for 8.
        let cases: [(&[f64], f64, Verdict); 6] = [
            (&[1.0, 2.0, 3.0, 4.0, 5.0], 2.0 / 32.0, Verdict::Undecided),
            (&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2.0 / 64.0, Verdict::Faster),
            (&[-1.0, -2.0, -3.0, -4.0, -5.0, -6.0], 2.0 / 64.0, Verdict::Slower),
            (&[1.0, -2.0, 3.0, 4.0, 5.0, 6.0, 7.0], 6.0 / 128.0, Verdict::Faster),
            (&[1.0, 2.0, -3.0, 4.0, 5.0, 6.0, 7.0], 10.0 / 128.0, Verdict::Undecided),
            (&[-1.0, -2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], 10.0 / 256.0, Verdict::Faster),
        ];
        for (saved, p, verdict) in cases {
            let trial = saving(saved);
            assert!((trial.p_value() - p).abs() < 1e-12, "{saved:?}: {}", trial.p_value());
            assert_eq!(trial.verdict(), verdict, "{saved:?}");
        }
    }

    #[test]
    fn no_verdict_is_possible_below_the_least_number_of_pairs() {
        let of = |count: u32| saving(&vec![1.0; count as usize]).verdict();
        assert_eq!(of(DECIDING_PAIRS_MIN - 1), Verdict::Undecided);
        assert_eq!(of(DECIDING_PAIRS_MIN), Verdict::Faster);
    }

    #[test]
    fn equal_pairs_count_for_nothing_and_ties_share_their_rank() {
        assert_eq!((saving(&[0.0; 9]).p_value(), saving(&[0.0; 9]).verdict()), (1.0, Verdict::Undecided));
        assert_eq!(saving(&[1.0, 0.0, 2.0]).p_value(), saving(&[1.0, 2.0]).p_value());
        // Ranks 1.5, 1.5 and 3: the sums of one sign are 0, 1.5 (twice), 3 (twice), 4.5 (twice) and 6.
        assert_eq!(saving(&[1.0, -1.0, 2.0]).p_value(), 2.0 * 3.0 / 8.0);
        assert_eq!(saving(&[2.0, -2.0]).p_value(), 1.0);
    }

    #[test]
    fn medians_and_their_ratio() {
        let trial = Trial {
            times: 4,
            share: 0.5,
            present_s: vec![9.0, 3.0, 5.0, 1.0],
            planned_s: vec![2.0, 2.0, 8.0, 1.0],
        };
        assert_eq!((trial.medians_s(), trial.ratio()), ((4.0, 2.0), 2.0));
        assert!(trial.to_string().contains("50 % of the requests"), "{trial}");
    }

    #[test]
    fn only_a_faster_plan_keeps_its_rules_and_the_file_keeps_the_trial() {
        let mut names = weft_trace::Names::default();
        let file = names.file("/data").expect("room for a name");
        let mut survey = Survey::new(&Limits::default());
        for n in 0..200u64 {
            let record = weft_trace::Record {
                rank: weft_trace::Rank(0),
                host: weft_trace::HostId(0),
                file,
                op: weft_trace::Operation::Read,
                level: weft_trace::Level::Posix,
                collective: false,
                offset: weft_core::FileOffset(n * 65_536),
                len: weft_core::ByteLen(65_536),
                start: weft_core::Nanos(n),
                end: weft_core::Nanos(n + 1),
            };
            survey.add(&record, &names);
        }
        let figures = hybrid((3, 10_000.0, 70.0), (2, 150.0, 400.0), None);
        let planned = plan(&survey.finish(None), &figures, &Options::default()).expect("plans").plan;
        for (saved, rules) in [([3.0; 7], planned.rules.len()), ([-3.0; 7], 0), ([0.0; 7], 0)] {
            let (mut tried, trial) = (planned.clone(), saving(&saved));
            tried.judge(trial.clone());
            assert_eq!((tried.rules.len(), tried.trial.as_ref()), (rules, Some(&trial)));
            assert_eq!(tried.notes.len(), planned.notes.len() + usize::from(rules == 0));
            assert_eq!(Plan::from_toml(&tried.to_toml()), Ok(tried));
        }
        for damage in [
            |trial: &mut Trial| trial.times = 8,
            |trial: &mut Trial| trial.share = 0.0,
            |trial: &mut Trial| trial.planned_s[0] = f64::NAN,
            |trial: &mut Trial| trial.present_s[0] = -1.0,
        ] {
            let (mut tried, mut trial) = (planned.clone(), saving(&[3.0; 7]));
            damage(&mut trial);
            tried.trial = Some(trial);
            let refused = Plan::from_toml(&tried.to_toml()).expect_err("damaged").to_string();
            assert!(refused.contains("trial"), "{refused}");
        }
    }
}
