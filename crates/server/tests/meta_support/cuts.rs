//! A load with the power cut at every sync in turn.

use weft_env::sim::{Sim, SimEnv};

/// For several seeds, runs `load` with the power cut at every sync of it in turn, and then `look`, which has to come to its end:
/// after a third of the cuts the power is cut once more meanwhile. What `load` was told it leaves in a `P` for `look`.
/// The number of cuts.
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
            let told = fresh();
            if sim.try_block_on(&node, load(node.clone(), seed, told.clone())).is_some() {
                break;
            }
            cuts += 1;
            let again = (cut % 3 == 0).then_some(1 + cut % 5);
            let note = format!("seed {seed}, power cut at sync {cut}, then {again:?}");
            let mut node = sim.restart(&node);
            if let Some(again) = again {
                sim.power_cut_at_sync(&node, sim.sync_points(&node) + again);
                if sim.try_block_on(&node, look(node.clone(), told.clone(), note.clone())).is_some() {
                    continue;
                }
                node = sim.restart(&node);
            }
            sim.block_on(&node, look(node.clone(), told, note));
        }
    }
    cuts
}
