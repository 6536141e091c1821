//! The search for the figures with which a model agrees with what was measured.

use super::{Case, Place, Sample, Work, predict};
use crate::{Profile, ProfileError};
use weft_core::ByteLen;

/// A fitted profile and how well it predicts.
#[derive(Clone, PartialEq, Debug)]
pub struct Fit {
    /// The profile.
    pub profile: Profile,
    /// For each sample the model's figure by the measured one, less one.
    pub errors: Vec<f64>,
}

/// A figure that is searched for: how to reach it, and its bounds.
type Figure = (fn(&mut Profile) -> Option<&mut f64>, f64, f64);

/// Random reads of a page that take longer are seeks, nanoseconds.
const SEEKS: f64 = 2_000_000.0;
/// A device of this size behaves as a larger one does where it is not full, and takes less to build, 10^9 bytes.
const SMALL_GB: f64 = 16.0;

macro_rules! figure {
    ($part:ident, $name:ident, $low:expr, $high:expr) => {{
        fn reach(profile: &mut Profile) -> Option<&mut f64> {
            profile.$part.as_mut().map(|part| &mut part.$name)
        }
        (reach as fn(&mut Profile) -> Option<&mut f64>, $low, $high)
    }};
}

const HDD: &[Figure] = &[
    figure!(hdd, outer_mb_s, 1.0, 2_000.0),
    figure!(hdd, command_us, 1.0, 5_000.0),
    figure!(hdd, seek_track_us, 50.0, 20_000.0),
    figure!(hdd, seek_average_us, 100.0, 60_000.0),
    figure!(hdd, write_settle_us, 1.0, 10_000.0),
    figure!(hdd, interface_mb_s, 20.0, 20_000.0),
];

const SSD: &[Figure] = &[
    figure!(ssd, latency_us, 0.5, 20_000.0),
    figure!(ssd, read_us, 1.0, 20_000.0),
    figure!(ssd, command_us, 0.1, 5_000.0),
    figure!(ssd, channel_mb_s, 5.0, 20_000.0),
    figure!(ssd, interface_mb_s, 5.0, 50_000.0),
    figure!(ssd, program_us, 1.0, 100_000.0),
    figure!(ssd, flush_us, 1.0, 100_000.0),
];

fn find(samples: &[Sample], is_it: impl Fn(&Sample) -> bool) -> Option<&Sample> {
    samples.iter().find(|sample| is_it(sample))
}

/// Fits a profile called `name` to samples of a file of `span` bytes on a device of `capacity` bytes.
///
/// What the samples cannot tell (how far a device's parts work at the same time beyond what was asked of it, spare room,
/// speeds further inwards on a disk) is as in `sata-ssd` or `hdd-7200`.
///
/// # Errors
/// When no device has such figures.
pub fn fit(
    name: &str,
    about: &str,
    samples: &[Sample],
    span: ByteLen,
    capacity: ByteLen,
) -> Result<Fit, ProfileError> {
    let read_one = |sample: &Sample| sample.case.work == Work::Read(Place::Random) && sample.case.depth == 1;
    let page = find(samples, |sample| read_one(sample) && sample.case.len == ByteLen::from_kib(4));
    let is_disk = page.is_some_and(|sample| sample.figure() > SEEKS);
    let mut profile = Profile::by_name(if is_disk { "hdd-7200" } else { "sata-ssd" })?;
    profile.name = name.to_owned();
    profile.about = about.to_owned();
    profile.source = "Measured by weft profile.".to_owned();
    copies(&mut profile, samples);
    let capacity_gb = (capacity.0 as f64 / 1e9).clamp(1.0, 10_000.0);
    let span_gb = span.0 as f64 / 1e9;
    let searched = if is_disk {
        begin_disk(&mut profile, samples, capacity_gb);
        HDD
    } else {
        begin_ssd(&mut profile, samples, span_gb);
        SSD
    };
    let taught: Vec<&Sample> =
        samples.iter().filter(|sample| !sample.case.is_held_out && sample.case.work != Work::Copy).collect();
    let mut best = badness(&profile, &taught, span);
    for step in [3.0, 1.7, 1.3, 1.12, 1.05] {
        for _ in 0..3 {
            let before = best;
            for &(reach, low, high) in searched {
                for factor in [step, 1.0 / step] {
                    let mut other = profile.clone();
                    let Some(value) = reach(&mut other) else { continue };
                    *value = (*value * factor).clamp(low, high);
                    better(&mut profile, other, &mut best, &taught, span);
                }
            }
            for other in neighbors(&profile) {
                better(&mut profile, other, &mut best, &taught, span);
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
        ssd.capacity_gb = ssd.capacity_gb.min(SMALL_GB.max(span_gb * 1.3));
    }
    let errors = samples.iter().map(|sample| ratio(&small, sample, span) - 1.0).collect();
    Ok(Fit { profile, errors })
}

/// What a call and a copied byte cost, from copies of two lengths.
fn copies(profile: &mut Profile, samples: &[Sample]) {
    let copy = |len: u64| find(samples, |s| s.case.work == Work::Copy && s.case.len == ByteLen(len));
    if let (Some(small), Some(large)) = (copy(4096), copy(1 << 20)) {
        let (small, large) = (small.figure(), large.figure());
        let per_byte = ((large - small) / ((1 << 20) - 4096) as f64).max(1e-3);
        profile.files.copy_mb_s = (1e3 / per_byte).clamp(10.0, 100_000.0).round();
        profile.files.call_us = ((small - 4096.0 * per_byte) / 1e3).clamp(0.1, 1000.0);
        profile.files.call_us = (profile.files.call_us * 10.0).round() / 10.0;
    }
}

fn sequential(samples: &[Sample], write: bool) -> f64 {
    let work = if write { Work::Write(Place::Sequential) } else { Work::Read(Place::Sequential) };
    let all = samples.iter().filter(|sample| sample.case.work == work);
    all.map(|sample| sample.case.len.0 as f64 * 1e3 / sample.figure()).fold(1.0, f64::max)
}

fn begin_disk(profile: &mut Profile, samples: &[Sample], capacity_gb: f64) {
    let hdd = profile.hdd.as_mut().expect("the disk's profile");
    hdd.capacity_gb = capacity_gb;
    hdd.outer_mb_s = sequential(samples, false);
    hdd.inner_mb_s = hdd.outer_mb_s / 2.0;
    hdd.interface_mb_s = (3.0 * hdd.outer_mb_s).max(300.0);
    let random =
        |work| find(samples, |s| s.case.work == work && s.case.depth == 1 && s.case.len == ByteLen(4096));
    if let (Some(read), Some(write)) = (random(Work::Read(Place::Random)), random(Work::Write(Place::Random)))
    {
        // A disk that answers a write much sooner than it can seek has put it in memory.
        hdd.write_cache_kib = if write.quantile(0.5) < read.quantile(0.5) / 4 { 32_768 } else { 0 };
    }
}

fn begin_ssd(profile: &mut Profile, samples: &[Sample], span_gb: f64) {
    let ssd = profile.ssd.as_mut().expect("the solid-state disk's profile");
    ssd.capacity_gb = SMALL_GB.max(span_gb * 1.3);
    // Nothing is known of its age, and what was measured was measured as it is.
    ssd.used = 0.0;
    (ssd.page_kib, ssd.pages_per_block) = (16, 64);
    let write = sequential(samples, true);
    let dies = f64::from(ssd.channels * ssd.dies_per_channel);
    ssd.program_us = (dies * 16_384.0 / write).clamp(1.0, 100_000.0);
    ssd.interface_mb_s = sequential(samples, false);
    let page = find(samples, |s| s.case.work == Work::Read(Place::Random) && s.case.len == ByteLen(4096));
    if let Some(page) = page {
        ssd.read_us = (page.figure() / 2e3).clamp(1.0, 20_000.0);
        ssd.latency_us = (page.figure() / 3e3).clamp(0.5, 20_000.0);
    }
    if let Some(sync) = find(samples, |s| s.case.work == Work::Sync) {
        ssd.flush_us = (sync.figure() / 2e3).clamp(1.0, 100_000.0);
    }
}

/// The same device with another of the figures that are counted and not measured.
fn neighbors(profile: &Profile) -> Vec<Profile> {
    let mut out = Vec::new();
    if let Some(ssd) = &profile.ssd {
        for dies in [ssd.dies_per_channel * 2, ssd.dies_per_channel / 2] {
            if (1..=32).contains(&dies) {
                let mut other = profile.clone();
                let ssd = other.ssd.as_mut().expect("just seen");
                // As many more programs at a time, each so much longer: only reads differ.
                ssd.program_us *= f64::from(dies) / f64::from(ssd.dies_per_channel);
                ssd.dies_per_channel = dies;
                out.push(other);
            }
        }
        for channels in [ssd.channels * 2, ssd.channels / 2] {
            if (1..=32).contains(&channels) {
                let mut other = profile.clone();
                let ssd = other.ssd.as_mut().expect("just seen");
                let more = f64::from(channels) / f64::from(ssd.channels);
                // The same speed of all channels together.
                (ssd.program_us, ssd.channel_mb_s) = (ssd.program_us * more, ssd.channel_mb_s / more);
                ssd.channels = channels;
                out.push(other);
            }
        }
        for page_kib in [ssd.page_kib * 2, ssd.page_kib / 2] {
            if (4..=128).contains(&page_kib) {
                let mut other = profile.clone();
                let ssd = other.ssd.as_mut().expect("just seen");
                ssd.program_us *= page_kib as f64 / ssd.page_kib as f64;
                ssd.page_kib = page_kib;
                out.push(other);
            }
        }
        for buffer_kib in [64, 1024, 32_768] {
            let mut other = profile.clone();
            other.ssd.as_mut().expect("just seen").buffer_kib = buffer_kib;
            out.push(other);
        }
    }
    if profile.hdd.is_some() {
        for rpm in [5400, 7200, 10_000, 15_000] {
            let mut other = profile.clone();
            other.hdd.as_mut().expect("just seen").rpm = rpm;
            out.push(other);
        }
    }
    out
}

fn better(profile: &mut Profile, other: Profile, best: &mut f64, taught: &[&Sample], span: ByteLen) {
    if other.check().is_err() {
        return;
    }
    let badness = badness(&other, taught, span);
    if badness < *best {
        (*best, *profile) = (badness, other);
    }
}

/// The model's figure by the measured one.
fn ratio(profile: &Profile, sample: &Sample, span: ByteLen) -> f64 {
    predict(profile, &sample.case, span).figure() / sample.figure().max(1.0)
}

/// So many requests of a case are enough for the search.
const SEARCHED: u32 = 100;

fn badness(profile: &Profile, taught: &[&Sample], span: ByteLen) -> f64 {
    let ratio = |sample: &Sample| {
        let case = Case { count: sample.case.count.min(SEARCHED), ..sample.case.clone() };
        predict(profile, &case, span).figure() / sample.figure().max(1.0)
    };
    taught.iter().map(|sample| ratio(sample).max(1e-9).ln().powi(2)).sum()
}

/// Figures to three places: more would pretend to be known.
fn round(profile: &mut Profile, searched: &[Figure]) {
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
