//! Measures the cost of one request for the data service: time, processor time and system calls of the server's
//! process.
//!
//! `cargo run --release -p weft-server --example data_path [seconds per case]`. Set `WEFT_SERVER_WRAPPER` to a command
//! such as `strace -f -c -o /tmp/calls` to run the server's process under it.

#[path = "../tests/support/mod.rs"]
mod support;

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::*;
use weft_core::LocalOffset;
use weft_env::real::{RealEnv, block_on};
use weft_env::{Address, Conn, Shared};
use weft_wire::data::{DataReply, DataRequest, IoHints, PayloadLocation};
use weft_wire::hello::{Role, Security};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).is_some_and(|arg| arg == "serve") {
        return serve(&args[2]);
    }
    let seconds: f64 = args.get(1).map_or(1.0, |arg| arg.parse().expect("seconds per case"));
    let folder = tempfile::tempdir().expect("a folder");
    let wrapper = std::env::var("WEFT_SERVER_WRAPPER").unwrap_or_default();
    let mut words: Vec<String> = wrapper.split_whitespace().map(str::to_owned).collect();
    words.push(args[0].clone());
    let mut child = Command::new(&words[0])
        .args(&words[1..])
        .args(["serve", folder.path().to_str().expect("UTF-8")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the server starts");
    let mut line = String::new();
    let mut output = std::io::BufReader::new(child.stdout.take().expect("piped"));
    std::io::BufRead::read_line(&mut output, &mut line).expect("its addresses");
    let mut words = line.split_whitespace();
    let pid: u32 = words.next().and_then(|word| word.parse().ok()).expect("its pid");
    let addresses: Vec<Address> = words.map(|word| word.parse().expect("an address")).collect();
    println!("{:6} {:5} {:>8} {:>10} {:>12} {:>10}", "over", "what", "bytes", "us", "server us", "MB/s");
    for address in &addresses {
        for len in [4096, 47_008, 65_536, 1 << 20] {
            for what in [What::Write, What::Shared, What::Read] {
                let local = matches!(address, Address::Unix(_));
                if local || what != What::Shared {
                    case(address, pid, len, what, seconds);
                }
            }
        }
    }
    drop(child.stdin.take());
    child.wait().expect("the server ends");
}

#[derive(Clone, Copy, PartialEq)]
enum What {
    /// The bytes are the payload.
    Write,
    /// The bytes are in shared memory, after a copy as a client needs it.
    Shared,
    Read,
}

fn case(address: &Address, pid: u32, len: usize, what: What, seconds: f64) {
    const SPAN: u64 = 64 << 20;
    let env = RealEnv::new();
    block_on(async {
        let key = secret().identity_key(&me());
        let mut client = Client::connect_as(&env, address, hello(Role::Client(me()), 1), key).await;
        let part = datafile(0, 1, 0);
        let bytes = pattern(len, 1);
        let slots = SPAN / len as u64;
        let area = match what {
            What::Shared => {
                let attach = DataRequest::AttachShared { payload_len: len as u32 };
                assert!(matches!(client.call(&attach, &[]).await.0, DataReply::Attached { .. }));
                Some(client.link.conn().take_shared(len).expect("shared memory"))
            }
            What::Write | What::Read => None,
        };
        if what == What::Read {
            for slot in 0..slots {
                client.write(part, slot * len as u64, &bytes).await;
            }
        }
        let (cpu, start, mut count) = (cpu_s(pid), Instant::now(), 0_u64);
        while start.elapsed() < Duration::from_secs_f64(seconds) {
            let offset = count % slots * len as u64;
            match (what, &area) {
                (What::Read, _) => assert_eq!(client.read(part, offset, len as u32).await.1.len(), len),
                (_, None) => assert_eq!(client.write(part, offset, &bytes).await, DataReply::Written),
                (_, Some(area)) => {
                    area.copy_in(0, &bytes);
                    let write = DataRequest::Write {
                        datafile: part,
                        cap: client.cap(1),
                        offset: LocalOffset(offset),
                        len: len as u32,
                        place: PayloadLocation::Shared(0),
                        hints: IoHints::default(),
                    };
                    assert_eq!(client.call(&write, &[]).await.0, DataReply::Written);
                }
            }
            count += 1;
        }
        let (us, cpu) = (start.elapsed().as_secs_f64() * 1e6 / count as f64, cpu_s(pid) - cpu);
        println!(
            "{:6} {:5} {len:8} {us:10.1} {:12.1} {:10.0}",
            if matches!(address, Address::Unix(_)) { "unix" } else { "tcp" },
            match what {
                What::Write => "write",
                What::Shared => "share",
                What::Read => "read",
            },
            cpu * 1e6 / count as f64,
            len as f64 / us
        );
    });
}

/// Returns the processor time of a process so far, including threads that have ended.
fn cpu_s(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("its stat");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    (fields[11].parse::<f64>().expect("utime") + fields[12].parse::<f64>().expect("stime")) / 100.0
}

fn serve(folder: &str) {
    let folder = std::path::Path::new(folder);
    block_on(async {
        let tcp = Address::Tcp("127.0.0.1".into(), 0);
        let mut config = config(folder, vec![unix(folder), tcp], false);
        if std::env::var_os("WEFT_ENCRYPT").is_some() {
            config.security = Security::Encrypt;
        }
        make_folders(&config);
        let server = start(&RealEnv::new(), config).await;
        let mut stdout = std::io::stdout();
        let addresses: Vec<String> = server.addresses().iter().map(ToString::to_string).collect();
        writeln!(stdout, "{} {}", std::process::id(), addresses.join(" ")).expect("told");
        stdout.flush().expect("told");
        let _ = std::io::stdin().read(&mut [0]); // until the parent is done
        server.stop().await;
    });
}
