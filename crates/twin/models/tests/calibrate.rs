//! A profile fitted to the output of another profile's model reproduces that model's behavior.

use weft_core::ByteLen;
use weft_models::Profile;
use weft_models::calibrate::{Case, Sample, fit, plan, predict};

/// Returns the greatest and the median error of the held-out cases, and whether the device was recognized as a disk.
fn refit(device: &Profile) -> (f64, f64, bool) {
    let span = ByteLen::from_mib(64);
    let less = |case: Case| Case { count: case.count.min(48), ..case };
    let samples: Vec<Sample> =
        plan(span).into_iter().map(|case| predict(device, &less(case), span)).collect();
    let found = fit("again", "a test", &samples, span, ByteLen(16_000_000_000)).expect("a profile");
    for (sample, error) in samples.iter().zip(&found.errors) {
        // Visible when the test fails.
        println!(
            "{:40} {:12.0} ns {:+.2} {}",
            sample.case.name,
            sample.figure(),
            error,
            sample.case.is_held_out
        );
    }
    println!("{}", found.profile.to_toml());
    let held = samples.iter().zip(&found.errors).filter(|(sample, _)| sample.case.is_held_out);
    let mut errors: Vec<f64> = held.map(|(_, error)| error.abs()).collect();
    errors.sort_by(f64::total_cmp);
    assert!(errors.len() > 5);
    assert_eq!(Profile::from_toml(&found.profile.to_toml()).as_ref(), Ok(&found.profile));
    (errors[errors.len() - 1], errors[errors.len() / 2], found.profile.is_hard_disk())
}

#[test]
fn an_ssd_is_fitted() {
    let mut device = Profile::by_name("ibridge-ssd").expect("a profile that comes with Weft");
    (device.files.write_back_ms, device.files.barrier) = (30_000.0, true);
    let ssd = device.ssd.as_mut().expect("a solid-state disk");
    (ssd.capacity_gb, ssd.used, ssd.map_kib, ssd.is_power_safe) = (16.0, 0.0, 4, true);
    let (worst, median, is_disk) = refit(&device);
    assert!(!is_disk && median < 0.10 && worst < 0.60, "median {median:.3}, worst {worst:.3}");
}

#[test]
fn a_hard_disk_is_fitted() {
    let mut device = Profile::by_name("hdd-7200").expect("a profile that comes with Weft");
    let hdd = device.hdd.as_mut().expect("a hard disk");
    (hdd.capacity_gb, hdd.outer_mb_s, hdd.inner_mb_s, hdd.rpm) = (16.0, 130.0, 65.0, 5400);
    let (worst, median, is_disk) = refit(&device);
    assert!(is_disk && median < 0.10 && worst < 0.60, "median {median:.3}, worst {worst:.3}");
}
