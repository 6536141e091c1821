//! Runs a load with a power failure at each of its syncs.

use weft_env::sim::{Sim, SimEnv};

/// For several seeds, runs `load` once for each of its syncs, with a power failure at that sync, and then `look`, which
/// must complete. In every third run, the power fails again during `look`. `load` passes its acknowledged state to
/// `look` in a `P`. Returns the number of power failures.
pub fn power_cut_at_every_sync<P: Clone, Load: Future<Output = ()>, Look: Future<Output = ()>>(
    fresh: impl Fn() -> P,
    load: impl Fn(SimEnv, u64, P) -> Load,
    look: impl Fn(SimEnv, P, String) -> Look,
) -> u64 {
    let mut cuts = 0;
    for seed in 0..8 {
        for cut in 1.. {
            let mut sim = Sim::with_seed(seed);
            let node = sim.node("mds");
            sim.power_cut_at_sync(&node, cut);
            let progress = fresh();
            if sim.try_block_on(&node, load(node.clone(), seed, progress.clone())).is_some() {
                break;
            }
            cuts += 1;
            let again = (cut % 3 == 0).then_some(1 + cut % 5);
            let note = format!("seed {seed}, power cut at sync {cut}, then {again:?}");
            let mut node = sim.restart(&node);
            if let Some(again) = again {
                sim.power_cut_at_sync(&node, sim.sync_points(&node) + again);
                if sim.try_block_on(&node, look(node.clone(), progress.clone(), note.clone())).is_some() {
                    continue;
                }
                node = sim.restart(&node);
            }
            sim.block_on(&node, look(node.clone(), progress, note));
        }
    }
    cuts
}
