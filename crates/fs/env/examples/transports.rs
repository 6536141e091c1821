//! Compares ways in which a client's bytes reach a file of a server on the same machine.
//!
//! `cargo run --release -p weft-env --example transports [-- SECONDS [FOLDER]]`: four clients and four servers, one
//! outstanding request each; every client walks through 64 MiB of its own file. In the control run, the client accesses
//! the file directly. The ratio to the control is the result.

use std::io::{IoSlice, IoSliceMut};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use weft_core::{ByteLen, LocalOffset, Nanos};
use weft_env::real::{RealConn, RealEnv, RealFile, RealShared, block_on};
use weft_env::{Address, Attachment, Conn, Dir, Env, File, Listener, OpenMode, Shared};

const CLIENTS: usize = 4;
const FILE_BYTES: u64 = 64 << 20;
const LONG: Nanos = Nanos::from_s(60);
const SIZES: [usize; 5] = [4 << 10, 47_008, 64 << 10, 256 << 10, 1 << 20];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    Write = 1,
    Read = 2,
    WriteShared = 3,
    ReadShared = 4,
    ReadCopied = 5,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Local,
    Unix,
    UnixCopied,
    Tcp,
    Shared,
}

/// Encodes a request: action, offset, length.
fn encode(action: Action, offset: u64, len: usize) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&(action as u64).to_le_bytes());
    bytes[8..16].copy_from_slice(&offset.to_le_bytes());
    bytes[16..].copy_from_slice(&(len as u64).to_le_bytes());
    bytes
}

async fn serve(mut conn: RealConn, file: RealFile, shared: RealShared) {
    conn.set_timeout(None).expect("time-out");
    if matches!(conn.peer(), weft_env::Peer::Local { .. }) {
        conn.send_attached(b"s", &[Attachment::Shared(shared.clone())]).await.expect("send");
    }
    let mut head = [0; 24];
    let mut buffer = vec![0; 1 << 20];
    while conn.recv_exact(&mut [IoSliceMut::new(&mut head)]).await.is_ok() {
        let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"));
        let (action, offset, len) = (word(0), LocalOffset(word(8)), word(16) as usize);
        match action {
            1 => {
                conn.recv_exact(&mut [IoSliceMut::new(&mut buffer[..len])]).await.expect("payload");
                file.write_at(&[IoSlice::new(&buffer[..len])], offset).await.expect("write");
                conn.send(&[IoSlice::new(&head)]).await.expect("answer");
            }
            2 => conn
                .send_file(&[IoSlice::new(&head)], &file, offset, ByteLen(len as u64))
                .await
                .expect("answer"),
            3 => {
                file.write_shared_at(&shared, 0, len, offset).await.expect("write");
                conn.send(&[IoSlice::new(&head)]).await.expect("answer");
            }
            4 => {
                file.read_at(&mut [IoSliceMut::new(&mut buffer[..len])], offset).await.expect("read");
                shared.copy_in(0, &buffer[..len]);
                conn.send(&[IoSlice::new(&head)]).await.expect("answer");
            }
            _ => {
                file.read_at(&mut [IoSliceMut::new(&mut buffer[..len])], offset).await.expect("read");
                conn.send(&[IoSlice::new(&head), IoSlice::new(&buffer[..len])]).await.expect("answer");
            }
        }
    }
}

/// Client that executes one operation at a time.
struct Client {
    way: Way,
    file: RealFile,
    conn: Option<RealConn>,
    shared: Option<RealShared>,
    buffer: Vec<u8>,
}

impl Client {
    async fn run(&mut self, is_write: bool, offset: u64, len: usize) {
        let buffer = &mut self.buffer[..len];
        let at = LocalOffset(offset);
        let Some(conn) = &mut self.conn else {
            match is_write {
                true => self.file.write_at(&[IoSlice::new(buffer)], at).await.expect("write"),
                false => drop(self.file.read_at(&mut [IoSliceMut::new(buffer)], at).await.expect("read")),
            }
            return;
        };
        let mut head = [0; 24];
        let shared = self.shared.as_ref().filter(|_| self.way == Way::Shared);
        let action = match (is_write, shared.is_some()) {
            (true, true) => Action::WriteShared,
            (true, false) => Action::Write,
            (false, true) => Action::ReadShared,
            (false, false) if self.way == Way::UnixCopied => Action::ReadCopied,
            (false, false) => Action::Read,
        };
        let request = encode(action, offset, len);
        match action {
            Action::Write => conn.send(&[IoSlice::new(&request), IoSlice::new(buffer)]).await.expect("send"),
            Action::WriteShared => {
                shared.expect("shared").copy_in(0, buffer);
                conn.send(&[IoSlice::new(&request)]).await.expect("send");
            }
            _ => conn.send(&[IoSlice::new(&request)]).await.expect("send"),
        }
        match action {
            Action::Read | Action::ReadCopied => conn
                .recv_exact(&mut [IoSliceMut::new(&mut head), IoSliceMut::new(buffer)])
                .await
                .expect("answer"),
            _ => conn.recv_exact(&mut [IoSliceMut::new(&mut head)]).await.expect("answer"),
        }
        if action == Action::ReadShared {
            shared.expect("shared").copy_out(0, buffer);
        }
    }
}

/// Returns the throughput of all clients in MB/s, and the median time of one operation in microseconds.
fn measure(
    way: Way,
    is_write: bool,
    len: usize,
    duration: Duration,
    clients: Vec<Client>,
) -> (f64, f64, Vec<Client>) {
    let threads: Vec<_> = clients
        .into_iter()
        .map(|mut client| {
            std::thread::spawn(move || {
                assert_eq!(client.way, way);
                let (start, mut times) = (Instant::now(), Vec::new());
                let mut offset = 0;
                while start.elapsed() < duration {
                    let before = Instant::now();
                    block_on(client.run(is_write, offset, len));
                    times.push(before.elapsed().as_nanos() as u64);
                    offset = if offset + 2 * len as u64 > FILE_BYTES { 0 } else { offset + len as u64 };
                }
                let rate = (times.len() * len) as f64 / start.elapsed().as_secs_f64() / 1e6;
                times.sort_unstable();
                (rate, times[times.len() / 2] as f64 / 1e3, client)
            })
        })
        .collect();
    let (mut rate, mut median, mut clients) = (0.0, 0.0, Vec::new());
    for thread in threads {
        let (one, time, client) = thread.join().expect("a client");
        rate += one;
        median += time / CLIENTS as f64;
        clients.push(client);
    }
    (rate, median, clients)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds: f64 = arguments.next().map_or(0.5, |text| text.parse().expect("seconds as a number"));
    let base = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(base).expect("a folder");
    let env = RealEnv::new();
    let dir = block_on(env.dir(folder.path())).expect("the folder");
    let files: Vec<RealFile> = (0..CLIENTS)
        .map(|client| {
            let file = block_on(dir.open(&client.to_string(), OpenMode::CREATE)).expect("file");
            let chunk = vec![1; 1 << 20];
            for at in 0..FILE_BYTES >> 20 {
                block_on(file.write_at(&[IoSlice::new(&chunk)], LocalOffset(at << 20))).expect("fill");
            }
            file
        })
        .collect();
    let start = |way: Way| -> Vec<Client> {
        (0..CLIENTS)
            .map(|client| {
                let file = files[client].clone();
                if way == Way::Local {
                    return Client { way, file, conn: None, shared: None, buffer: vec![2; 1 << 20] };
                }
                let address = match way {
                    Way::Tcp => Address::Tcp("127.0.0.1".into(), 0),
                    _ => Address::Unix(folder.path().join(format!("{way:?}{client}"))),
                };
                let mut listener = block_on(env.listen(&address)).expect("listen");
                let mut conn = block_on(env.connect(&listener.address(), LONG)).expect("connect");
                let server = block_on(listener.accept()).expect("accept");
                let memory = env.shared(1 << 20).expect("memory");
                let served = file.clone();
                env.spawn("server", move || serve(server, served, memory)).expect("a thread");
                let mut shared = None;
                if way != Way::Tcp {
                    block_on(conn.recv(&mut [0; 1])).expect("hello");
                    shared = Some(conn.take_shared(1 << 20).expect("memory"));
                }
                Client { way, file, conn: Some(conn), shared, buffer: vec![2; 1 << 20] }
            })
            .collect()
    };
    println!(
        "{CLIENTS} clients, {CLIENTS} servers, {seconds} s each; MB/s (p50 us; ratio to the local file)"
    );
    for is_write in [true, false] {
        for len in SIZES {
            print!("{:5} {:>8}", if is_write { "write" } else { "read" }, len);
            let mut control = 0.0;
            for way in [Way::Local, Way::Unix, Way::UnixCopied, Way::Tcp, Way::Shared] {
                if way == Way::UnixCopied && is_write {
                    continue;
                }
                let (rate, median, _) =
                    measure(way, is_write, len, Duration::from_secs_f64(seconds), start(way));
                if way == Way::Local {
                    control = rate;
                }
                print!("  {way:?} {rate:.0} ({median:.0}; {:.2})", rate / control);
            }
            println!();
        }
    }
}
