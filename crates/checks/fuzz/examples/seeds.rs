//! Writes the initial inputs of every target to `DIR/<target>/`, as a corpus for libFuzzer.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let dir = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("fuzz/corpus"), PathBuf::from);
    for target in weft_fuzz::TARGETS {
        let dir = dir.join(target.name);
        std::fs::create_dir_all(&dir)?;
        let seeds = (target.seeds)();
        for (number, seed) in seeds.iter().enumerate() {
            std::fs::write(dir.join(format!("seed-{number:03}")), seed)?;
        }
        println!("{}: {} inputs", dir.display(), seeds.len());
    }
    Ok(())
}
