//! Derives the service-time curve that the iBridge admission decision uses from a profile.

use crate::hdd::HddSpec;
use crate::profile::Profile;
use crate::ssd::SsdSpec;
use weft_core::ibridge::ServiceCurve;
use weft_core::{ByteLen, Nanos};

/// Typical distance between two datafiles, as a fraction of the disk. File systems spread directories over the used
/// part, in which two random places are a third apart on average.
const DATAFILE_DISTANCE: f64 = 1.0 / 32.0;
/// Points of the seek curve for each doubling of the distance. Linear interpolation then errs by less than one percent.
const POINTS_PER_OCTAVE: u32 = 2;

impl Profile {
    /// Returns the curves D_to_T, R and B of iBridge for the device, as a data sheet or `weft profile` gives them. They
    /// do not include the effects of queues, caches and zones. An SSD has no seeks and no rotation.
    ///
    /// # Panics
    /// If the profile was not [checked](Self::check).
    pub fn service_curve(&self) -> ServiceCurve {
        match (&self.hdd, &self.ssd) {
            (Some(hdd), _) => of_hdd(hdd),
            (None, Some(ssd)) => of_ssd(ssd),
            (None, None) => panic!("profile {:?} was not checked", self.name),
        }
    }
}

fn of_hdd(spec: &HddSpec) -> ServiceCurve {
    let turn_ns = 60e9 / f64::from(spec.rpm.max(1));
    let track_bytes = f64::midpoint(spec.outer_mb_s, spec.inner_mb_s) * 1e-3 * turn_ns;
    let cylinder = (track_bytes * f64::from(spec.heads)).max(1.0);
    let capacity = spec.capacity_gb * 1e9;
    let cylinders = (capacity / cylinder).max(2.0);
    let third = (cylinders / 3.0).max(2.0);
    let root = (spec.seek_average_us - spec.seek_track_us) / (third.sqrt() - 1.0);
    // Within a cylinder, the fraction of requests that cross to the next one grows with the distance.
    let mut seek = vec![(ByteLen(0), Nanos(0)), (ByteLen(cylinder as u64), time(spec.seek_track_us))];
    let mut push = |distance: f64, us: f64| {
        let (last, longest) = *seek.last().expect("there are two");
        let distance = ByteLen((distance * cylinder) as u64);
        if distance > last {
            seek.push((distance, time(us).max(longest)));
        }
    };
    let octaves = (1..).map(|step| 2f64.powf(f64::from(step) / f64::from(POINTS_PER_OCTAVE)));
    for distance in octaves.take_while(|distance| *distance < third) {
        push(distance, spec.seek_track_us + root * (distance.sqrt() - 1.0));
    }
    push(third, spec.seek_average_us);
    push(cylinders, spec.seek_full_us);
    let peak = bytes_per_s(spec.outer_mb_s.min(spec.interface_mb_s));
    let elsewhere = ByteLen((capacity * DATAFILE_DISTANCE) as u64);
    ServiceCurve::new(seek, time(turn_ns / 2e3), peak, peak, elsewhere).expect("distances and times rise")
}

fn of_ssd(spec: &SsdSpec) -> ServiceCurve {
    let peak = bytes_per_s(spec.interface_mb_s.min(spec.channel_mb_s * f64::from(spec.channels)));
    ServiceCurve::new(vec![(ByteLen(0), Nanos(0))], Nanos(0), peak, peak, ByteLen(0)).expect("a peak")
}

fn time(us: f64) -> Nanos {
    Nanos((us * 1e3).max(0.0) as u64)
}

fn bytes_per_s(mb_s: f64) -> u64 {
    ((mb_s * 1e6) as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ibridge_disk_has_the_curve_of_its_profile() {
        let curve = Profile::by_name("ibridge-hdd").unwrap().service_curve();
        // 7200 turns a minute: half a turn is 1/240 s.
        assert_eq!(curve.rotation(), Nanos(4_166_666));
        // 86 MB/s.
        assert_eq!(curve.transfer(ByteLen(86_000_000), true), Nanos::from_s(1));
        assert_eq!(curve.transfer(ByteLen(43_000), false), Nanos(500_000));
        // A cylinder is 4 heads of 67 MB/s over 1/120 s, 2.233 MB; a third of 500 GB is 8.5 ms, all of it 18 ms.
        let seek = |bytes: f64| curve.seek(ByteLen(bytes as u64)).0;
        assert_eq!(seek(0.0), 0);
        assert_eq!(seek(2.233_334e6) / 1000, 1000);
        assert_eq!(seek(1.116_667e6) / 1000, 500, "half a cylinder away, every other time one cylinder");
        assert_eq!(seek(500e9 / 3.0) / 10_000, 850);
        assert_eq!(seek(500e9) / 10_000, 1800);
        // seek(d) = 1 + 7.5 (sqrt(d) - 1) / (sqrt(C/3) - 1) ms; C/3 = 74,627 cylinders; 16 cylinders are 1.0827 ms.
        let sixteen = seek(16.0 * 2.233_334e6);
        assert!(sixteen.abs_diff(1_082_700) < 11_000, "{sixteen}");
        assert_eq!(curve.cross_file_distance(), ByteLen(15_625_000_000));
    }

    #[test]
    fn every_profile_has_a_curve_and_only_hard_disks_seek() {
        for name in crate::profile::names() {
            let profile = Profile::by_name(name).unwrap();
            let curve = profile.service_curve();
            assert_eq!(curve.rotation() > Nanos(0), profile.is_hard_disk(), "{name}");
            assert_eq!(curve.seek(curve.cross_file_distance()) > Nanos(0), profile.is_hard_disk(), "{name}");
            assert!(curve.transfer(ByteLen(1 << 20), true) > Nanos(0), "{name}");
        }
    }

    #[test]
    fn extreme_parameters_give_a_curve() {
        for (capacity_gb, heads, rpm) in [(1.0, 64, 60), (1e6, 1, 100_000), (1.0, 1, 60)] {
            let mut profile = Profile::by_name("hdd-7200").unwrap();
            let hdd = profile.hdd.as_mut().unwrap();
            (hdd.capacity_gb, hdd.heads, hdd.rpm) = (capacity_gb, heads, rpm);
            (hdd.outer_mb_s, hdd.inner_mb_s) = (1e6, 0.1);
            profile.check().unwrap();
            assert!(profile.service_curve().rotation() > Nanos(0));
        }
    }
}
