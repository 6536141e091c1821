//! The worlds, and the checks that run in each.

pub mod conn;
pub mod dir;
pub mod file;
pub mod tasks;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use weft_core::Nanos;
use weft_env::real::{RealEnv, block_on};
use weft_env::sim::{Sim, SimEnv};
use weft_env::{Address, Dir, Env, Notify};

/// Input of a check: a world, an empty folder in it, and addresses to listen on.
pub struct Stage<E> {
    pub env: E,
    pub folder: PathBuf,
    pub addresses: Vec<Address>,
}

pub const SOON: Nanos = Nanos::from_ms(30);
pub const LONG: Nanos = Nanos::from_s(20);

pub fn run_real<F, Fut>(check: F)
where
    F: FnOnce(Stage<RealEnv>) -> Fut,
    Fut: Future<Output = ()>,
{
    let folder = tempfile::tempdir().expect("a temporary folder");
    let addresses = vec![Address::Unix(folder.path().join("socket")), Address::Tcp("127.0.0.1".into(), 0)];
    let data = folder.path().join("data");
    std::fs::create_dir(&data).expect("a folder for data");
    block_on(check(Stage { env: RealEnv::with_fd_floor(100), folder: data, addresses }));
}

pub fn run_sim<F, Fut>(check: F)
where
    F: Fn(Stage<SimEnv>) -> Fut,
    Fut: Future<Output = ()> + 'static,
{
    for seed in 0..20 {
        eprintln!("seed {seed}");
        let mut sim = Sim::with_seed(seed);
        let env = sim.node("node");
        let folder = PathBuf::from("/data");
        let addresses = vec![Address::Unix("/run/socket".into()), Address::Tcp("127.0.0.1".into(), 0)];
        let root = env.clone();
        sim.block_on(&env, async move {
            let dir = root.dir(Path::new("/")).await.expect("the root folder");
            dir.make_dir("data").await.expect("a folder for data");
        });
        sim.block_on(&env.clone(), check(Stage { env, folder, addresses }));
    }
}

/// Task whose result can be awaited.
pub struct Join<E: Env, T> {
    notify: E::Notify,
    slot: Arc<Mutex<Option<T>>>,
}

pub fn start<E: Env, T: Send + 'static, F, Fut>(env: &E, body: F) -> Join<E, T>
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = T> + 'static,
{
    let join: Join<E, T> = Join { notify: env.notify(), slot: Arc::new(Mutex::new(None)) };
    let (notify, slot) = (join.notify.clone(), Arc::clone(&join.slot));
    env.spawn("task", move || async move {
        let result = body().await;
        *slot.lock().expect("slot") = Some(result);
        notify.notify_all();
    })
    .expect("resources for a task");
    join
}

impl<E: Env, T> Join<E, T> {
    pub async fn join(self) -> T {
        loop {
            let seen = self.notify.epoch();
            if let Some(result) = self.slot.lock().expect("slot").take() {
                return result;
            }
            assert!(self.notify.wait(seen, Some(LONG)).await, "the task did not end");
        }
    }
}

/// Returns bytes that differ from position to position.
pub fn pattern(len: usize, salt: u64) -> Vec<u8> {
    (0..len as u64).map(|at| ((at ^ salt).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}
