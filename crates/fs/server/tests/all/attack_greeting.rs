//! An attacker that connects and sends nothing: it costs the server little and blocks no other client. In a separate
//! test program, because it counts threads.

use crate::support::*;
use std::io::{self, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use weft_core::Nanos;
use weft_env::Address;
use weft_env::real::{RealEnv, block_on};
use weft_wire::data::DataReply;
use weft_wire::hello::Role;

const SOUND: &[u8] = b"sound bytes";

/// Opens connections from the address `from` that send nothing.
fn silent_peers(count: usize, from: [u8; 4], server: &Address) -> Vec<TcpStream> {
    use std::os::fd::{FromRawFd, OwnedFd};
    let Address::Tcp(_, port) = server else { unreachable!("a network address") };
    let inet = |ip: [u8; 4], port: u16| libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(ip) },
        sin_zero: [0; 8],
    };
    let connect = || {
        let len = size_of::<libc::sockaddr_in>() as u32;
        let (here, there) = (inet(from, 0), inet([127, 0, 0, 1], *port));
        // SAFETY: the addresses live until the calls return and have the given length; this process owns the
        // descriptor.
        unsafe {
            let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
            assert!(fd >= 0, "a socket: {}", io::Error::last_os_error());
            let fd_owned = OwnedFd::from_raw_fd(fd);
            assert_eq!(libc::bind(fd, (&raw const here).cast(), len), 0, "{}", io::Error::last_os_error());
            assert_eq!(
                libc::connect(fd, (&raw const there).cast(), len),
                0,
                "{}",
                io::Error::last_os_error()
            );
            TcpStream::from(fd_owned)
        }
    };
    (0..count).map(|_| connect()).collect()
}

fn threads() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("Threads:")).expect("the field");
    line.trim().parse().expect("a number")
}

#[test]
fn silent_peers_cost_few_threads_and_block_no_client() {
    let folder = tempfile::tempdir().expect("a folder");
    let env = RealEnv::new();
    block_on(async {
        let mut config = config(folder.path(), vec![Address::Tcp("127.0.0.1".into(), 0)], false);
        config.limits.greeting_timeout = Nanos::from_s(3);
        make_folders(&config);
        let server = start(&env, config).await;
        let tcp = server.addresses()[0].clone();
        let before = threads();
        let silent = silent_peers(200, [127, 0, 0, 2], &tcp);
        let greet = async || {
            let begun = Instant::now();
            let key = secret().identity_key(&me());
            let greeting = hello(Role::Client(me()), 3);
            let mut client = Client::connect_as(&env, &tcp, greeting, key).await;
            assert_eq!(client.write(datafile(0, 6, 0), 0, SOUND).await, DataReply::Written);
            (client, begun.elapsed())
        };
        // The first greeting after them is accepted after all of them were.
        let (_held, took) = greet().await;
        let grown = threads().saturating_sub(before);
        assert!(grown < 40, "200 silent peers cost {grown} threads");
        assert!(took < Duration::from_secs(2), "{took:?}");
        let mut held = Vec::new();
        for _ in 0..50 {
            held.push(greet().await);
        }
        // Also from the client's own address, where slow greetings are dropped.
        let own = silent_peers(200, [127, 0, 0, 1], &tcp);
        for _ in 0..5 {
            let (client, took) = greet().await;
            assert!(took < Duration::from_secs(5), "{took:?}");
            held.push((client, took));
        }
        // All clients still work, and the silent connections are closed in time.
        for (client, _) in &mut held {
            assert_eq!(client.read(datafile(0, 6, 0), 0, 100).await.1, SOUND);
        }
        for peer in silent.iter().chain(&own) {
            peer.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
            let ended = (&*peer).read(&mut [0]);
            assert!(
                matches!(ended, Ok(0)) || ended.is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock)
            );
        }
        drop(held);
        assert_eq!(server.panics(), 0);
        server.stop().await;
    });
}
