//! Many idle connections to one server cost little.

mod support;

use support::*;
use weft_env::real::{RealEnv, block_on};
use weft_wire::data::DataReply;

const CONNECTIONS: u32 = 4096;
/// Maximum resident memory per idle connection in KiB, client and server together in this process: the touched part of
/// a thread's stack, and a buffer of 4 KiB on each side.
const KIB_PER_CONNECTION_MAX: u64 = if cfg!(debug_assertions) { 320 } else { 48 };

fn process_status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("the field");
    line.trim_start_matches(':').split_whitespace().next().and_then(|n| n.parse().ok()).expect("a number")
}

/// Raises the limit of descriptors: both ends of every connection are in this process.
fn allow_descriptors(wanted: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for reads and writes.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = limit.rlim_cur.max(wanted.min(limit.rlim_max));
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
    assert!(
        limit.rlim_cur >= wanted,
        "this test needs {wanted} descriptors: raise the hard limit (ulimit -Hn)"
    );
}

#[test]
fn thousands_of_idle_connections_fit_into_little_memory() {
    allow_descriptors(2 * u64::from(CONNECTIONS) + 200);
    let folder = tempfile::tempdir().expect("a folder");
    let env = RealEnv::new();
    block_on(async {
        let mut config = config(folder.path(), vec![unix(folder.path())], false);
        config.limits.connections_max = CONNECTIONS;
        make_folders(&config);
        let server = start(&env, config).await;
        let address = &server.addresses()[0];
        let (threads, resident) = (process_status("Threads"), process_status("VmRSS"));
        let mut clients = Vec::new();
        for index in 0..CONNECTIONS {
            let mut client = Client::connect(&env, address).await;
            // Each has executed a request, so that all its memory is allocated.
            let part = datafile(0, u64::from(index % 64), 0);
            assert_eq!(client.write(part, u64::from(index) * 8192, &[1; 8192]).await, DataReply::Written);
            clients.push(client);
        }
        assert_eq!(server.connections(), CONNECTIONS as usize);
        let threads = process_status("Threads") - threads;
        let grown_kib = process_status("VmRSS").saturating_sub(resident);
        eprintln!(
            "{CONNECTIONS} connections: {threads} threads, {} MiB more resident, {:.1} KiB each",
            grown_kib >> 10,
            grown_kib as f64 / f64::from(CONNECTIONS)
        );
        assert!(threads >= u64::from(CONNECTIONS));
        assert!(grown_kib < u64::from(CONNECTIONS) * KIB_PER_CONNECTION_MAX, "{grown_kib} KiB");
        // All of them still work.
        for (index, client) in clients.iter_mut().enumerate() {
            let part = datafile(0, index as u64 % 64, 0);
            assert_eq!(client.read(part, index as u64 * 8192, 8192).await.1, [1; 8192]);
        }
        let kept_kib = process_status("VmRSS").saturating_sub(resident);
        assert!(kept_kib < u64::from(CONNECTIONS) * KIB_PER_CONNECTION_MAX, "{kept_kib} KiB");
        drop(clients);
        server.stop().await;
    });
}
