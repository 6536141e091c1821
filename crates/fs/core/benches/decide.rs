//! Nanoseconds per decision of iBridge, as one row per policy. Every request pays for a decision.
//!
//! `cargo bench -p weft-core --bench decide` measures; `cargo test` runs a few rounds, so that it cannot rot.

use std::hint::black_box;
use std::time::Instant;
use weft_core::ibridge::{
    Arrival, Decider, DeciderSpec, DiskRequest, Policy, Report, ServiceCurve, Thresholds, Verdict, Weight,
};
use weft_core::{ByteLen, LocalOffset, Nanos, TargetId};

const REPEATS: usize = 5;

fn main() {
    let calls = if std::env::args().any(|arg| arg == "--bench") { 2_000_000 } else { 1_000 };
    let seek = (0..40).map(|n| (ByteLen(n << 28), Nanos(n * 400_000))).collect();
    let curve = ServiceCurve::new(seek, Nanos(4_166_666), 86_000_000, 86_000_000, ByteLen(15 << 30));
    let curve = curve.expect("a disk");
    let siblings: Vec<_> = (0..7).map(TargetId).collect();
    println!("{:<24} {:>12} {:>10}", "policy", "ns/decision", "on SSD");
    for policy in [Policy::Off, Policy::Ibridge, Policy::Threshold, Policy::DETOUR] {
        let mut decider = Decider::new(DeciderSpec {
            target: TargetId(9),
            policy,
            thresholds: Thresholds::default(),
            weight: Weight::default(),
            curve: curve.clone(),
            stale: Nanos::from_s(5),
            has_page_cache: false,
        });
        let reports =
            siblings.iter().map(|&target| Report { target, average: Nanos(5_000_000), age: Nanos(0) });
        decider.peer_averages_mut().take(&reports.collect::<Vec<_>>(), Nanos(0));
        let (mut best, mut on_ssd) = (f64::INFINITY, 0);
        for _ in 0..REPEATS {
            let start = Instant::now();
            for call in 0..calls {
                // Small and large requests of a hundred processes, alternating.
                let len = if call % 2 == 0 { 5_000 } else { 60_000 };
                let offset = LocalOffset(black_box(call % 100 * (1 << 30) + call * 65_000));
                let request = DiskRequest { file: 1, offset, len: ByteLen(len), write: true };
                let arrival = Arrival { request, pieces: 8, siblings: &siblings };
                match decider.decide(black_box(&arrival), Nanos(1)) {
                    Verdict::Disk | Verdict::Outgrown { .. } => decider.served_by_disk(&request),
                    Verdict::Ssd { .. } | Verdict::Edges { .. } => on_ssd += 1,
                }
            }
            best = best.min(start.elapsed().as_nanos() as f64 / calls as f64);
        }
        let share = f64::from(on_ssd) / (calls * REPEATS as u64) as f64;
        println!("{:<24} {best:>12.1} {:>9.0}%", policy.to_string(), share * 100.0);
        assert_eq!(on_ssd > 0, policy != Policy::Off);
    }
}
