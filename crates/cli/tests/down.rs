//! One server of a cluster is down, killed or stopped: what goes on, and what fails how soon and with which reason.

mod common;

use common::servers::Servers;
use std::time::{Duration, Instant};

/// A condition that must hold soon: longer than any time-out of these clusters.
const SOON: Duration = Duration::from_secs(30);

/// Waits until `is_so` gives something.
#[track_caller]
fn until<T>(what: &str, mut is_so: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(found) = is_so() {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {SOON:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Targets of a file, as `weft getstripe` shows them.
#[track_caller]
fn targets(servers: &Servers, path: &str) -> Vec<u32> {
    let told = servers.weft(["getstripe", path]);
    let of_row = |line: &str| line.split_whitespace().next()?.parse().ok();
    let mut targets: Vec<u32> = told.lines().filter_map(of_row).collect();
    assert!(!targets.is_empty(), "{told}");
    targets.sort_unstable();
    targets
}

/// Stops a server without a word: it keeps its connections and answers nothing.
fn freeze(servers: &Servers, id: usize) {
    servers.send(id, libc::SIGSTOP);
}

fn thaw(servers: &Servers, id: usize) {
    servers.send(id, libc::SIGCONT);
}

#[test]
fn new_files_are_placed_on_servers_that_answer() {
    let mut servers = Servers::of_classes(&["hdd", "hdd", "ssd", "ssd"], "", "", "", "");
    let source = servers.path("source");
    std::fs::write(&source, vec![7u8; 5 << 20]).expect("written");
    let source = source.to_str().expect("text").to_owned();
    servers.weft(["cp", &source, "/weft/before"]);
    assert_eq!(targets(&servers, "/weft/before"), [0, 1, 2, 3]);
    // The metadata server takes servers that never answered for ones that start.
    until("the log says that the server is down", || {
        if servers.is_running(2) {
            servers.kill(2);
        }
        servers
            .log(0)
            .contains("server s2 does not answer: new files are placed on other servers")
            .then_some(())
    });
    servers.weft(["cp", &source, "/weft/after"]);
    assert_eq!(targets(&servers, "/weft/after"), [0, 1, 3]);
    let back = servers.path("back");
    servers.weft(["cp", "/weft/after", back.to_str().expect("text")]);
    assert_eq!(std::fs::read(&back).expect("read"), vec![7u8; 5 << 20]);
    // A frozen server is down, too, after two time-outs.
    freeze(&servers, 3);
    until("a file keeps off the frozen server", || {
        servers.weft(["rm", "-f", "/weft/two"]);
        servers.weft(["touch", "/weft/two"]);
        (targets(&servers, "/weft/two") == [0, 1]).then_some(())
    });
    let refused = servers.fails(1, ["setstripe", "--class", "ssd", "/weft/none"]);
    for part in
        ["/weft/none", "of class ssd", "server s2 does not answer", "server s3 does not answer", "weft serve"]
    {
        assert!(refused.contains(part), "{refused}");
    }
    thaw(&servers, 3);
    servers.start(2);
    until("both get files again", || {
        servers.weft(["rm", "-f", "/weft/all"]);
        servers.weft(["touch", "/weft/all"]);
        (targets(&servers, "/weft/all") == [0, 1, 2, 3]).then_some(())
    });
    assert!(servers.log(0).contains("server s2 answers again: it gets new files"), "{}", servers.log(0));
}
