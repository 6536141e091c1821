//! Search for the parameters with which a model agrees with measurements.

use super::{AccessPattern, Case, Sample, Work, predict};
use crate::{Profile, ProfileError};
use weft_core::ByteLen;

/// A fitted profile and its errors.
#[derive(Clone, PartialEq, Debug)]
pub struct Fit {
    /// The profile.
    pub profile: Profile,
    /// Relative error of the model for each sample.
    pub errors: Vec<f64>,
}

/// A parameter to search for: accessor, lower bound and upper bound.
type Parameter = (fn(&mut Profile) -> Option<&mut f64>, f64, f64);

/// Nanoseconds of a random page read from which on the device must be a disk that seeks.
const SEEK_NS_MIN: f64 = 2_000_000.0;
/// Capacity in 10^9 bytes used during the search. A small device that is not full behaves like a larger one and is
/// built faster.
const SEARCH_CAPACITY_GB: f64 = 16.0;

macro_rules! parameter {
    ($part:ident, $name:ident, $low:expr, $high:expr) => {{
        fn reach(profile: &mut Profile) -> Option<&mut f64> {
            profile.$part.as_mut().map(|part| &mut part.$name)
        }
        (reach as fn(&mut Profile) -> Option<&mut f64>, $low, $high)
    }};
}

const HDD: &[Parameter] = &[
    parameter!(hdd, outer_mb_s, 1.0, 2_000.0),
    parameter!(hdd, command_us, 1.0, 5_000.0),
    parameter!(hdd, seek_track_us, 50.0, 20_000.0),
    parameter!(hdd, seek_average_us, 100.0, 60_000.0),
    parameter!(hdd, write_settle_us, 1.0, 10_000.0),
    parameter!(hdd, interface_mb_s, 20.0, 20_000.0),
];

const SSD: &[Parameter] = &[
    parameter!(ssd, latency_us, 0.5, 20_000.0),
    parameter!(ssd, read_us, 1.0, 20_000.0),
    parameter!(ssd, command_us, 0.1, 5_000.0),
    parameter!(ssd, channel_mb_s, 5.0, 20_000.0),
    parameter!(ssd, interface_mb_s, 5.0, 50_000.0),
    parameter!(ssd, program_us, 1.0, 100_000.0),
    parameter!(ssd, flush_us, 1.0, 100_000.0),
];

fn find(samples: &[Sample], is_it: impl Fn(&Sample) -> bool) -> Option<&Sample> {
    samples.iter().find(|sample| is_it(sample))
}

/// Fits a profile called `name` to samples of a file of `span` bytes on a device of `capacity` bytes.
///
/// Parameters that the samples do not determine keep the values of `sata-ssd` or `hdd-7200`. Examples are parallelism
/// beyond the measured queue depth, spare capacity, and the speed of inner tracks.
///
/// # Errors
/// Fails if no device has such parameters.
pub fn fit(
    name: &str,
    about: &str,
    samples: &[Sample],
    span: ByteLen,
    capacity: ByteLen,
) -> Result<Fit, ProfileError> {
    let read_one =
        |sample: &Sample| sample.case.work == Work::Read(AccessPattern::Random) && sample.case.depth == 1;
    let page = find(samples, |sample| read_one(sample) && sample.case.len == ByteLen::from_kib(4));
    let is_disk = page.is_some_and(|sample| sample.figure() > SEEK_NS_MIN);
    let mut profile = Profile::by_name(if is_disk { "hdd-7200" } else { "sata-ssd" })?;
    profile.name = name.to_owned();
    profile.about = about.to_owned();
    profile.source = "Measured by weft profile.".to_owned();
    fit_copies(&mut profile, samples);
    let capacity_gb = (capacity.0 as f64 / 1e9).clamp(1.0, 10_000.0);
    let span_gb = span.0 as f64 / 1e9;
    let searched = if is_disk {
        init_hdd(&mut profile, samples, capacity_gb);
        HDD
    } else {
        init_ssd(&mut profile, samples, span_gb);
        SSD
    };
    let fitted: Vec<&Sample> =
        samples.iter().filter(|sample| !sample.case.is_held_out && sample.case.work != Work::Copy).collect();
    let mut best = loss(&profile, &fitted, span);
    for step in [3.0, 1.7, 1.3, 1.12, 1.05] {
        for _ in 0..3 {
            let before = best;
            for &(reach, low, high) in searched {
                for factor in [step, 1.0 / step] {
                    let mut other = profile.clone();
                    let Some(value) = reach(&mut other) else { continue };
                    *value = (*value * factor).clamp(low, high);
                    keep_better(&mut profile, other, &mut best, &fitted, span);
                }
            }
            for other in discrete_variants(&profile) {
                keep_better(&mut profile, other, &mut best, &fitted, span);
            }
            if best > 0.98 * before {
                break;
            }
        }
    }
    if let Some(ssd) = &mut profile.ssd {
        ssd.capacity_gb = capacity_gb.max(span_gb * 1.3);
    }
    round(&mut profile, searched);
    profile.check()?;
    let mut small = profile.clone();
    if let Some(ssd) = &mut small.ssd {
        ssd.capacity_gb = ssd.capacity_gb.min(SEARCH_CAPACITY_GB.max(span_gb * 1.3));
    }
    let errors = samples.iter().map(|sample| ratio(&small, sample, span) - 1.0).collect();
    Ok(Fit { profile, errors })
}

/// Derives the cost of a call and of a copied byte from copies of two lengths.
fn fit_copies(profile: &mut Profile, samples: &[Sample]) {
    let copy = |len: u64| find(samples, |s| s.case.work == Work::Copy && s.case.len == ByteLen(len));
    if let (Some(small), Some(large)) = (copy(4096), copy(1 << 20)) {
        let (small, large) = (small.figure(), large.figure());
        let per_byte = ((large - small) / ((1 << 20) - 4096) as f64).max(1e-3);
        profile.files.copy_mb_s = (1e3 / per_byte).clamp(10.0, 100_000.0).round();
        profile.files.call_us = ((small - 4096.0 * per_byte) / 1e3).clamp(0.1, 1000.0);
        profile.files.call_us = (profile.files.call_us * 10.0).round() / 10.0;
    }
}

fn sequential_mb_s(samples: &[Sample], write: bool) -> f64 {
    let work =
        if write { Work::Write(AccessPattern::Sequential) } else { Work::Read(AccessPattern::Sequential) };
    let all = samples.iter().filter(|sample| sample.case.work == work);
    all.map(|sample| sample.case.len.0 as f64 * 1e3 / sample.figure()).fold(1.0, f64::max)
}

fn init_hdd(profile: &mut Profile, samples: &[Sample], capacity_gb: f64) {
    let hdd = profile.hdd.as_mut().expect("the disk's profile");
    hdd.capacity_gb = capacity_gb;
    hdd.outer_mb_s = sequential_mb_s(samples, false);
    hdd.inner_mb_s = hdd.outer_mb_s / 2.0;
    hdd.interface_mb_s = (3.0 * hdd.outer_mb_s).max(300.0);
    let random =
        |work| find(samples, |s| s.case.work == work && s.case.depth == 1 && s.case.len == ByteLen(4096));
    if let (Some(read), Some(write)) =
        (random(Work::Read(AccessPattern::Random)), random(Work::Write(AccessPattern::Random)))
    {
        // A disk that acknowledges a write before it can have moved its arm has cached the write.
        hdd.write_cache_kib = if write.quantile(0.5) < read.quantile(0.5) / 4 { 32_768 } else { 0 };
    }
}

fn init_ssd(profile: &mut Profile, samples: &[Sample], span_gb: f64) {
    let ssd = profile.ssd.as_mut().expect("the solid-state disk's profile");
    ssd.capacity_gb = SEARCH_CAPACITY_GB.max(span_gb * 1.3);
    // The age of the device is unknown, and the measurements already include it.
    ssd.used = 0.0;
    (ssd.page_kib, ssd.pages_per_block) = (16, 64);
    let write = sequential_mb_s(samples, true);
    let dies = f64::from(ssd.channels * ssd.dies_per_channel);
    ssd.program_us = (dies * 16_384.0 / write).clamp(1.0, 100_000.0);
    ssd.interface_mb_s = sequential_mb_s(samples, false);
    let page =
        find(samples, |s| s.case.work == Work::Read(AccessPattern::Random) && s.case.len == ByteLen(4096));
    if let Some(page) = page {
        ssd.read_us = (page.figure() / 2e3).clamp(1.0, 20_000.0);
        ssd.latency_us = (page.figure() / 3e3).clamp(0.5, 20_000.0);
    }
    if let Some(sync) = find(samples, |s| s.case.work == Work::Sync) {
        ssd.flush_us = (sync.figure() / 2e3).clamp(1.0, 100_000.0);
    }
}

/// Returns variants of a device that differ in one discrete parameter.
fn discrete_variants(profile: &Profile) -> Vec<Profile> {
    let mut out = Vec::new();
    if let Some(ssd) = &profile.ssd {
        for dies in [ssd.dies_per_channel * 2, ssd.dies_per_channel / 2] {
            if (1..=32).contains(&dies) {
                let mut other = profile.clone();
                let ssd = other.ssd.as_mut().expect("the variant of a device keeps its section");
                // More programs at once, each longer by the same factor: only reads change.
                ssd.program_us *= f64::from(dies) / f64::from(ssd.dies_per_channel);
                ssd.dies_per_channel = dies;
                out.push(other);
            }
        }
        for channels in [ssd.channels * 2, ssd.channels / 2] {
            if (1..=32).contains(&channels) {
                let mut other = profile.clone();
                let ssd = other.ssd.as_mut().expect("the variant of a device keeps its section");
                let more = f64::from(channels) / f64::from(ssd.channels);
                // The total speed of all channels stays equal.
                (ssd.program_us, ssd.channel_mb_s) = (ssd.program_us * more, ssd.channel_mb_s / more);
                ssd.channels = channels;
                out.push(other);
            }
        }
        for page_kib in [ssd.page_kib * 2, ssd.page_kib / 2] {
            if (4..=128).contains(&page_kib) {
                let mut other = profile.clone();
                let ssd = other.ssd.as_mut().expect("the variant of a device keeps its section");
                ssd.program_us *= page_kib as f64 / ssd.page_kib as f64;
                ssd.page_kib = page_kib;
                out.push(other);
            }
        }
        for buffer_kib in [64, 1024, 32_768] {
            let mut other = profile.clone();
            other.ssd.as_mut().expect("the variant of a device keeps its section").buffer_kib = buffer_kib;
            out.push(other);
        }
    }
    if profile.hdd.is_some() {
        for rpm in [5400, 7200, 10_000, 15_000] {
            let mut other = profile.clone();
            other.hdd.as_mut().expect("the variant of a device keeps its section").rpm = rpm;
            out.push(other);
        }
    }
    out
}

fn keep_better(profile: &mut Profile, other: Profile, best: &mut f64, fitted: &[&Sample], span: ByteLen) {
    if other.check().is_err() {
        return;
    }
    let loss = loss(&other, fitted, span);
    if loss < *best {
        (*best, *profile) = (loss, other);
    }
}

/// Returns the model's time divided by the measured time.
fn ratio(profile: &Profile, sample: &Sample, span: ByteLen) -> f64 {
    predict(profile, &sample.case, span).figure() / sample.figure().max(1.0)
}

/// Maximum number of requests per case during the search.
const REQUESTS_MAX: u32 = 100;

fn loss(profile: &Profile, fitted: &[&Sample], span: ByteLen) -> f64 {
    let ratio = |sample: &Sample| {
        let case = Case { count: sample.case.count.min(REQUESTS_MAX), ..sample.case.clone() };
        predict(profile, &case, span).figure() / sample.figure().max(1.0)
    };
    fitted.iter().map(|sample| ratio(sample).max(1e-9).ln().powi(2)).sum()
}

/// Rounds parameters to three digits. More would suggest a precision that the measurements lack.
fn round(profile: &mut Profile, searched: &[Parameter]) {
    for &(reach, ..) in searched {
        if let Some(value) = reach(profile) {
            let scale = 10f64.powi(2 - value.abs().log10().floor() as i32);
            *value = (*value * scale).round() / scale;
        }
    }
    if let Some(hdd) = &mut profile.hdd {
        hdd.inner_mb_s = (hdd.outer_mb_s / 2.0).round().max(1.0).min(hdd.outer_mb_s);
        hdd.seek_full_us = hdd.seek_full_us.max(2.0 * hdd.seek_average_us);
        hdd.capacity_gb = hdd.capacity_gb.round();
    }
    if let Some(ssd) = &mut profile.ssd {
        ssd.capacity_gb = ssd.capacity_gb.round().max(1.0);
    }
}
