//! Tests of the network models against times computed by hand.

use weft_core::{ByteLen, Nanos};
use weft_env::sim::NetworkModel;
use weft_models::network::{Network, NetworkSpec, names};

fn spec(name: &str) -> NetworkSpec {
    NetworkSpec::by_name(name).expect("a network that comes with Weft")
}

#[test]
fn every_built_in_network_parses() {
    for name in names() {
        assert_eq!(spec(name).name, name);
    }
    let error = NetworkSpec::by_name("token-ring").expect_err("no such network");
    assert!(error.to_string().contains("100gbe, gbe, ipoib"), "{error}");
}

#[test]
fn a_message_takes_two_processors_a_latency_and_a_transfer() {
    let mut gbe = Network::new(&spec("gbe"));
    // 4 us + 30 us + 64 KiB / 117.7 MB/s (556,805 ns) + 4 us
    assert_eq!(gbe.arrival(Nanos(0), 0, 1, ByteLen(65_536)), Nanos(4_000 + 30_000 + 556_805 + 4_000));
    // Behind the first on the sender's link, which is reserved from now: both transfers, one latency, one processor.
    let second = gbe.arrival(Nanos(0), 0, 2, ByteLen(65_536)).0;
    assert_eq!(second, 2 * 556_805 + 30_000 + 4_000);
    // The other direction is free.
    assert_eq!(gbe.arrival(Nanos(0), 2, 0, ByteLen(0)), Nanos(4_000 + 30_000 + 4_000));
    // Within a node: 8 us + 64 KiB / 2,500 MB/s.
    assert_eq!(gbe.arrival(Nanos(0), 3, 3, ByteLen(65_536)), Nanos(8_000 + 26_214));
}

/// Sends 256 KiB from each of `senders` to one receiver at once. Returns the total rate in 10^6 bytes per second.
fn fan_in(name: &str, senders: u32) -> (f64, u64) {
    let mut network = Network::new(&spec(name));
    let len = 256 << 10;
    let arrivals = (1..=senders).map(|from| network.arrival(Nanos(0), from, 0, ByteLen(len)).0);
    let last = arrivals.max().expect("some send");
    (f64::from(senders) * len as f64 * 1e3 / last as f64, network.timeouts())
}

#[test]
fn many_senders_overrun_an_ethernet_port_but_not_infiniband() {
    let (few, none) = fan_in("gbe", 8);
    assert!((100.0..117.7).contains(&few) && none == 0, "8 senders fill the link: {few:.0} MB/s");
    let (many, timeouts) = fan_in("gbe", 47);
    assert!(timeouts > 0 && many < few / 2.0, "47 senders wait for time-outs: {many:.0} MB/s");
    let (lossless, none) = fan_in("qdr-infiniband", 47);
    assert!(lossless > 3_000.0 && none == 0, "credits lose nothing: {lossless:.0} MB/s");
}

#[test]
fn short_messages_of_many_senders_fit_a_port() {
    let mut network = Network::new(&spec("100gbe"));
    // 1,024 requests of 200 bytes are 200 KiB, in a port of 512 KiB: each only waits for earlier ones.
    let last = (1..=1024).map(|from| network.arrival(Nanos(0), from, 0, ByteLen(200)).0).max();
    assert_eq!(network.timeouts(), 0);
    // The receiver's processor takes 1 us for each message, counted from the moment of sending.
    assert_eq!(last, Some(1_024 * 1_000));
}

#[test]
fn one_sender_fills_a_link() {
    for name in ["gbe", "ipoib", "qdr-infiniband", "100gbe"] {
        let spec = spec(name);
        let mut network = Network::new(&spec);
        let len = 1 << 20;
        let mut last = 0;
        for _ in 0..100 {
            last = network.arrival(Nanos(0), 0, 1, ByteLen(len)).0;
        }
        let mb_s = 100.0 * len as f64 * 1e3 / last as f64;
        assert!((0.95..1.0).contains(&(mb_s / spec.link_mb_s)), "{name}: {mb_s:.0} MB/s");
    }
}
