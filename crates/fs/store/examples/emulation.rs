//! Accuracy of an emulated target in real time: the same closed loop of random requests on target and model.
//!
//! `cargo run --release -p weft-store --example emulation [PROFILE…]`

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use weft_core::{ByteLen, FileId, Integrity, LocalOffset, Nanos, ObjectId, TargetId};
use weft_env::device::{DeviceAction, DeviceModel, DeviceRequest, Ticket};
use weft_env::real::{RealEnv, block_on};
use weft_models::Profile;
use weft_store::datafile::DatafileKey;
use weft_store::emulate::Emulation;
use weft_store::target::{Module, Target, TargetSpec};

const SPAN: u64 = 8 << 30;

fn main() {
    let mut profiles: Vec<String> = std::env::args().skip(1).collect();
    if profiles.is_empty() {
        profiles = weft_models::profile::names().into_iter().map(str::to_owned).collect();
    }
    println!(
        "{:14} {:>5} {:>6} {:>12} {:>12} {:>7}",
        "profile", "depth", "bytes", "model us", "emulated us", "off by"
    );
    for name in profiles {
        for (depth, len) in [(1, 4096), (4, 65_536), (16, 4096)] {
            let profile = Profile::by_name(&name).unwrap_or_else(|error| panic!("{error}"));
            let count = if profile.is_hard_disk() { 150 } else { 4000 };
            let places: Vec<u64> = (0..count as u64).map(|n| n * 0x9e37_79b9 % (SPAN / len) * len).collect();
            let model = modelled(profile.build(1), depth, len, &places) as f64 / count as f64;
            let real = emulated(&profile, depth, len, &places) as f64 / count as f64;
            let off = 100.0 * (real / model - 1.0);
            println!("{name:14} {depth:5} {len:6} {:12.1} {:12.1} {off:+6.1}%", model / 1e3, real / 1e3);
        }
    }
}

/// Returns the nanoseconds according to the model.
fn modelled(mut model: Box<dyn DeviceModel>, depth: usize, len: u64, places: &[u64]) -> u64 {
    let (mut now, mut given, mut ended) = (0, 0, 0);
    let mut done = Vec::new();
    while ended < places.len() {
        while given < places.len() && given - ended < depth {
            let offset = LocalOffset(places[given]);
            let (action, len) = (DeviceAction::Read, ByteLen(len));
            let request = DeviceRequest { action, file: 1 << 20, offset, len, is_direct: false };
            model.submit(Nanos(now), Ticket(given as u64), &request);
            given += 1;
        }
        now = now.max(model.next_event().expect("a request is in flight").0);
        model.advance(Nanos(now), &mut done);
        ended += done.drain(..).count();
    }
    now
}

/// Returns the nanoseconds that threads take on an emulated target.
fn emulated(profile: &Profile, depth: usize, len: u64, places: &[u64]) -> u64 {
    let dir = std::env::temp_dir().join(format!("weft-emulation-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let (name, profile) = (profile.name.clone(), profile.clone());
    let spec = TargetSpec {
        id: TargetId(0),
        cluster: "emulation".into(),
        path: dir.clone(),
        module: Module::Null,
        open_datafiles_max: 10,
        emulate: Some(Emulation { profile: name, build: Arc::new(move || profile.build(1)) }),
        integrity: Integrity::Off,
    };
    let target = block_on(Target::open(&RealEnv::new(), &spec)).expect("a target");
    let key = DatafileKey::new(FileId(1), ObjectId { component: 0, column: 0 });
    let next = AtomicUsize::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..depth {
            scope.spawn(|| {
                let mut buf = vec![0; len as usize];
                while let Some(&place) = places.get(next.fetch_add(1, Ordering::Relaxed)) {
                    block_on(target.read(key, LocalOffset(place), &mut buf)).expect("read");
                }
            });
        }
    });
    let took = start.elapsed().as_nanos() as u64;
    drop(target);
    std::fs::remove_dir_all(&dir).expect("removed");
    took
}
