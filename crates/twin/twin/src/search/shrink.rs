//! Shrinks a run that breaks a promise.

use super::run::{Options, run};

/// Finds fewer faults and steps with which `seed` still breaks a promise, or `None` if it breaks none as it is. Every
/// change of these limits changes the later events, so the result is not a proven minimum.
pub fn shrink(seed: u64, options: Options) -> Option<Options> {
    let fails = |options: Options| run(seed, options).violation.is_some();
    if !fails(options) {
        return None;
    }
    const FAULTS_TRIED: u32 = 60;
    let fewer = (0..FAULTS_TRIED).map(|faults| Options { faults_max: Some(faults), ..options });
    let mut best = fewer.into_iter().find(|options| fails(*options)).unwrap_or(options);
    let steps_max = best.steps_max.unwrap_or(1000);
    let fewer = (0..).map(|power| 3 << power).take_while(|steps| *steps < steps_max);
    if let Some(shorter) =
        fewer.map(|steps| Options { steps_max: Some(steps), ..best }).find(|options| fails(*options))
    {
        best = shorter;
    }
    Some(best)
}
