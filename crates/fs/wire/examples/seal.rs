//! Measures the cost of message protection on one thread: `cargo run --release -p weft-wire --example seal`.

use std::hint::black_box;
use std::time::Instant;
use weft_core::ClusterId;
use weft_wire::header::{Family, Header, Kind, encode_message, payload_check};
use weft_wire::hello::{Identity, Names, Role, Security};
use weft_wire::secure::{Handshake, Sealing, SessionKeys, segments};

/// Approximate number of bytes that each round processes.
const ROUND_BYTES: usize = 50_000_000;
const ROUNDS: usize = 7;

/// Returns the time per run of `work` on `len` bytes in nanoseconds, from the fastest round.
fn time(len: usize, mut work: impl FnMut(&mut [u8])) -> f64 {
    let mut bytes: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
    let runs = (ROUND_BYTES / (len + 2000)).max(3);
    let round = |_| {
        let begun = Instant::now();
        (0..runs).for_each(|_| work(black_box(&mut bytes)));
        begun.elapsed().as_nanos() as f64 / runs as f64
    };
    (0..ROUNDS).map(round).fold(f64::MAX, f64::min)
}

fn report(name: &str, work: impl Fn(usize) -> f64) {
    print!("{name:34}");
    for len in [100, 4096, 1 << 20] {
        let ns = work(len);
        print!(" {len:>8} B {ns:>9.0} ns {:>6.2} GB/s", len as f64 / ns);
    }
    println!();
}

fn main() {
    let names = Names {
        levels: weft_wire::Levels::KNOWN,
        cluster: "physics".into(),
        cluster_id: ClusterId(1),
        server: "node0".into(),
        role: Role::Client(Identity { uid: 1000, gid: 1000, groups: vec![] }),
        key: None,
    };
    let greet = || -> SessionKeys {
        let (handshake, first) = Handshake::begin(&[1; 32], &names, [2; 32]);
        let (_, second) = Handshake::answer(&[1; 32], &names, &first, [3; 32]).expect("the same key");
        handshake.finish(&second).expect("the same key")
    };
    let ns = time(1, |_| {
        black_box(greet());
    });
    println!("handshake, both ends: {:.0} us", ns / 1000.0);
    report("XXH3 of a payload (Unix sockets)", |len| {
        time(len, |bytes| {
            black_box(payload_check([&*bytes].into_iter()));
        })
    });
    for security in [Security::Mac, Security::Encrypt] {
        let sealing = || {
            let mut sealing = Sealing::new(greet(), false);
            sealing.agree(security);
            sealing
        };
        // The head of a read request, without its encoding.
        let mut message = Vec::new();
        let header = Header { is_sealed: true, ..Header::new(Kind::Request, Family::Data, 1) };
        encode_message(&mut message, &header, &[7_u8; 32]);
        let mut heads = sealing();
        let ns = time(message.len(), |_| heads.seal_head(black_box(&mut message)));
        println!("{security:?}: head of {} B: {ns:.0} ns", message.len());
        let mut payloads = sealing();
        payloads.seal_head(&mut message);
        report(&format!("{security:?} of a payload"), |len| {
            time(len, |bytes| {
                for (index, range) in segments(bytes.len()).enumerate() {
                    let tag = match security {
                        Security::Encrypt => payloads.seal_segment(index, &mut bytes[range]),
                        _ => payloads.tag_of_segment(index, std::iter::once(&bytes[range])),
                    };
                    black_box(tag);
                }
            })
        });
    }
}
