//! Every profile against published rates of its device, in 10^6 bytes per second.

mod common;

use common::{Runner, direct_read, direct_write, mb_s};
use weft_models::{Profile, ProfileError, profile};

/// Sequential read and write rate of each profile in its paper or data sheet.
const PUBLISHED: [(&str, f64, f64); 14] = [
    ("ceda-hdd", 76.0, 76.0),
    ("ceda-ssd", 540.0, 480.0),
    ("hdd-7200", 210.0, 210.0),
    ("hdd-nearline", 270.0, 270.0),
    ("ibridge-hdd", 85.0, 80.0),
    ("ibridge-ssd", 160.0, 140.0),
    ("nvme", 6500.0, 3500.0),
    ("psa-hdd", 76.0, 76.0),
    ("psa-ssd", 540.0, 480.0),
    ("sata-ssd", 550.0, 520.0),
    ("thesis-hdd", 72.0, 72.0),
    ("thesis-hdd-barrier", 72.0, 72.0),
    ("thesis-ssd", 250.0, 170.0),
    ("thesis-ssd-barrier", 250.0, 170.0),
];

fn near(profile: &str, what: &str, found: f64, published: f64) {
    let error = (found - published) / published;
    assert!(error.abs() <= 0.10, "{profile}: {what} {found:.1} MB/s, published {published}");
}

#[test]
fn sequential_throughput_is_within_a_tenth_of_the_published() {
    let len = 256 << 10;
    for (name, read, write) in PUBLISHED {
        let profile = Profile::by_name(name).expect("a profile that comes with Weft");
        let mut runner = Runner::new(profile.build(1));
        let (took, _) = runner.run(4, 2000, |i| direct_read(1, i as u64 * len, len));
        near(name, "sequential read", mb_s(2000 * len, took), read);
        let mut runner = Runner::new(profile.build(2));
        let (took, _) = runner.run(8, 4000, |i| direct_write(1, i as u64 * len, len));
        near(name, "sequential write", mb_s(4000 * len, took), write);
    }
}

#[test]
fn every_built_in_profile_round_trips() {
    assert_eq!(profile::names(), PUBLISHED.map(|(name, ..)| name));
    for name in profile::names() {
        let profile = Profile::by_name(name).expect("a profile that comes with Weft");
        assert_eq!(profile.name, name);
        assert_eq!(Profile::from_toml(&profile.to_toml()), Ok(profile));
    }
}

#[test]
fn an_unknown_name_lists_the_known_ones() {
    let error = Profile::by_name("hdd").expect_err("no such name");
    assert_eq!(error, ProfileError::Unknown { name: "hdd".into() });
    assert!(error.to_string().contains("hdd-7200, hdd-nearline, ibridge-hdd"), "{error}");
}
