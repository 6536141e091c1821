//! Measures the cost of an SSD beside a disk where it gains nothing, and the cost of samples: requests to servers on
//! real directories, alternating with requests to a server without the option.
//!
//! ```text
//! cargo run --release -p weft-server --example option_costs [ssd|samples]
//! ```
//! Without an argument it measures both.

#[path = "../tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::time::{Duration, Instant};
use support::*;
use weft_core::ibridge::{Policy, ServiceCurve};
use weft_core::{ByteLen, LocalOffset, Nanos};
use weft_env::real::{RealEnv, block_on};
use weft_server::{IbridgeConfig, ServerConfig};
use weft_wire::data::{DataReply, DataRequest, IoHints, PayloadLocation};

/// Number of consecutive requests of one kind, first on one server and then on the other.
const BLOCK: u32 = 200;
const ROUNDS: u32 = 60;
const FILE_LEN: u64 = 64 << 20;

fn with_log(folder: &Path, mut config: ServerConfig, policy: Policy) -> ServerConfig {
    let seek = vec![(ByteLen(0), Nanos(0)), (ByteLen(1 << 30), Nanos::from_ms(8))];
    let curve = ServiceCurve::new(seek, Nanos::from_ms(4), 100_000_000, 100_000_000, ByteLen(1 << 30))
        .expect("a curve");
    let path = folder.join("log");
    std::fs::create_dir_all(&path).expect("a folder");
    config.targets[0].ibridge =
        Some(IbridgeConfig { policy, ..IbridgeConfig::new(path, ByteLen::from_mib(512), curve) });
    config
}

async fn requests(client: &mut Client<RealEnv>, write: bool, len: u32, stride: u64, first: u64) -> Duration {
    let bytes = vec![7; len as usize];
    let part = datafile(0, 1, 0);
    let cap = client.cap(1);
    let began = Instant::now();
    for request in 0..u64::from(BLOCK) {
        let offset = LocalOffset((first + request * stride) % (FILE_LEN - u64::from(len)) / stride * stride);
        let hints = IoHints { siblings: 1, ..IoHints::default() };
        let reply = match write {
            true => {
                let place = PayloadLocation::Payload;
                let write = DataRequest::Write { datafile: part, cap, offset, len, place, hints };
                client.call(&write, &bytes).await.0
            }
            false => client.call(&DataRequest::Read { datafile: part, cap, offset, len, hints }, &[]).await.0,
        };
        assert!(matches!(reply, DataReply::Written | DataReply::Read { .. }), "{reply:?}");
    }
    began.elapsed()
}

fn main() {
    let what = std::env::args().nth(1);
    match what.as_deref() {
        None => {
            measure_ssd();
            measure_samples();
        }
        Some("ssd") => measure_ssd(),
        Some("samples") => measure_samples(),
        Some(other) => panic!("{other}: no such measurement; write ssd or samples"),
    }
}

/// Prints the cost of requests that the disk serves, without an SSD beside it and with one, for each policy.
fn measure_ssd() {
    for policy in [Policy::Ibridge, Policy::Threshold, Policy::DETOUR] {
        let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        block_on(async {
            let env = RealEnv::new();
            let mut clients = Vec::new();
            let mut servers = Vec::new();
            for (number, folder) in folders.iter().enumerate() {
                let plain = config(folder.path(), vec![unix(folder.path())], false);
                make_folders(&plain);
                let config = if number == 1 { with_log(folder.path(), plain, policy) } else { plain };
                servers.push(start(&env, config).await);
                let mut client = Client::connect(&env, &unix(folder.path())).await;
                for at in (0..FILE_LEN).step_by(1 << 20) {
                    client.write(datafile(0, 1, 0), at, &vec![1; 1 << 20]).await;
                }
                clients.push(client);
            }
            for (write, len) in
                [(true, 1 << 20), (true, 65_536), (false, 65_536), (true, 10_000), (false, 10_000)]
            {
                let mut best = [Duration::MAX; 2];
                for round in 0..ROUNDS {
                    for (number, client) in clients.iter_mut().enumerate() {
                        let first = u64::from(round) * 977 * u64::from(len);
                        let time = requests(client, write, len, u64::from(len), first).await;
                        best[number] = best[number].min(time);
                    }
                }
                let each = best.map(|time| time.as_secs_f64() * 1e6 / f64::from(BLOCK));
                println!(
                    "{policy}: {} of {len} bytes: {:.2} us without, {:.2} us with, {:+.1} %",
                    if write { "writes" } else { "reads" },
                    each[0],
                    each[1],
                    100.0 * (each[1] / each[0] - 1.0)
                );
            }
            drop(clients);
            for server in servers {
                server.skip_writeback();
                server.stop().await;
            }
        });
    }
}

/// Prints the cost of requests without samples and with them.
fn measure_samples() {
    // Outside and inside of the sampled time slices: the cost of 1/64 lies between them, close to the former.
    const PARTS: [Option<u32>; 3] = [None, Some(65_536), Some(1)];
    block_on(async {
        let env = RealEnv::new();
        let folders = PARTS.map(|_| tempfile::tempdir().expect("a folder"));
        let mut servers = Vec::new();
        for (part, folder) in PARTS.iter().zip(&folders) {
            let plain = config(folder.path(), vec![unix(folder.path())], false);
            make_folders(&plain);
            let config = ServerConfig { sample: part.and_then(std::num::NonZeroU32::new), ..plain };
            servers.push(start(&env, config).await);
            let mut client = Client::connect(&env, &unix(folder.path())).await;
            for at in (0..FILE_LEN).step_by(1 << 20) {
                client.write(datafile(0, 1, 0), at, &vec![1; 1 << 20]).await;
            }
        }
        for (write, len) in [(false, 4096), (true, 4096), (false, 65_536), (false, 1 << 20)] {
            let mut best = [Duration::MAX; PARTS.len()];
            for round in 0..4 * ROUNDS {
                for (number, folder) in folders.iter().enumerate() {
                    // Reconnect, so that the system chooses processors for client and server again.
                    let mut client = Client::connect(&env, &unix(folder.path())).await;
                    let first = u64::from(round) * 977 * u64::from(len);
                    let time = requests(&mut client, write, len, u64::from(len), first).await;
                    best[number] = best[number].min(time);
                }
            }
            let each = best.map(|time| time.as_secs_f64() * 1e6 / f64::from(BLOCK));
            let way = if write { "writes" } else { "reads" };
            print!("{way} of {len} bytes: {:.2} us without samples", each[0]);
            for (part, time) in PARTS.iter().zip(each).skip(1) {
                print!(", 1/{} {:+.1} %", part.unwrap_or(0), 100.0 * (time / each[0] - 1.0));
            }
            println!();
        }
        for server in servers {
            server.stop().await;
        }
    });
}
