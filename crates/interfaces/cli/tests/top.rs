//! `weft top`: attribution to users, clients, files and targets, what other users see, servers that are down, and the
//! terminal.

mod common;

use common::servers::Servers;
use common::shared_cluster::SharedCluster;
use common::{Embedded, needs, shown, succeeded, until};
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const ADA: u32 = 4711;
const BOB: u32 = 4712;
const MIB: u64 = 1 << 20;

/// Starts a server to which all requests go by messages; `None` without root.
fn shared() -> Option<SharedCluster> {
    let cluster = SharedCluster::new(&[&["leases = false"; 2]])?;
    needs("python3");
    Some(cluster)
}

/// Returns one object of `weft top` as a user sees it.
fn top_json(shared: &SharedCluster, uid: u32, interval: &str) -> Value {
    let text = succeeded(&mut shared.weft(uid, ["top", "--once", "--json", "--interval", interval]));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Starts a program of a user that reads or writes 64 KiB of a file at regular times, until its input ends. Waits
/// until it has begun.
fn paced(shared: &SharedCluster, uid: u32, path: &str, write: bool, pause_ms: u64) -> Paced {
    let program = format!(
        "
import os, select, sys, time
f = os.open('{path}', os.O_RDWR | os.O_CREAT, 0o644)
os.pwrite(f, bytes(1 << 20), 0)
begin, n = time.monotonic(), 0
print('begun', flush=True)
while time.monotonic() - begin < 120:
    at = (n % 16) << 16
    os.pwrite(f, bytes(1 << 16), at) if {write} else os.pread(f, 1 << 16, at)
    n += 1
    left = begin + n * {pause_ms} / 1000 - time.monotonic()
    if select.select([sys.stdin], [], [], max(left, 0))[0]:
        break
",
        write = if write { "True" } else { "False" },
    );
    let mut command = shared.weft(uid, ["run", "--", "python3", "-c", &program]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut begun = [0; 5];
    child.stdout.as_mut().expect("a pipe").read_exact(&mut begun).expect("begun");
    Paced(child)
}

/// A program that ends when its input does.
struct Paced(Child);

impl Drop for Paced {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn rows<'a>(top: &'a Value, table: &str) -> &'a Vec<Value> {
    top[table].as_array().unwrap_or_else(|| panic!("{table}: {top:#}"))
}

/// The row of a table in which a field has a value.
fn row<'a>(top: &'a Value, table: &str, field: &str, value: impl Into<Value>) -> &'a Value {
    let value = value.into();
    rows(top, table)
        .iter()
        .find(|row| row[field] == value)
        .unwrap_or_else(|| panic!("no {field} {value} in {table}: {top:#}"))
}

fn bytes(row: &Value) -> (u64, u64) {
    let total = &row["total"];
    (total["read_bytes"].as_u64().expect("a number"), total["written_bytes"].as_u64().expect("a number"))
}

/// Bytes read and written per second.
fn rate(row: &Value) -> (f64, f64) {
    let rate = &row["rate"];
    let number = |name: &str| rate[name].as_f64().unwrap_or_else(|| panic!("{name}: {row:#}"));
    (number("read_bytes_per_s"), number("written_bytes_per_s"))
}

#[test]
fn bytes_are_attributed_exactly_and_other_users_are_hidden() {
    let Some(shared) = shared() else { return };
    for (name, len) in [("ada", 8 * MIB), ("bob", 3 * MIB)] {
        let local = shared.path(name);
        std::fs::write(&local, vec![7; len as usize]).expect("written");
        std::fs::set_permissions(&local, PermissionsExt::from_mode(0o644)).expect("mode");
    }
    let (ada, bob) = (shared.path("ada").display().to_string(), shared.path("bob").display().to_string());
    succeeded(&mut shared.weft(ADA, ["cp", &ada, "/weft/all/of-ada"]));
    succeeded(&mut shared.weft(BOB, ["mkdir", "-m", "700", "/weft/all/private"]));
    succeeded(&mut shared.weft(BOB, ["cp", &bob, "/weft/all/private/of-bob"]));
    let read = shared.weft(BOB, ["cat", "/weft/all/private/of-bob"]).output().expect("weft starts");
    assert_eq!(read.stdout.len() as u64, 3 * MIB, "{}", read.status);

    let top = top_json(&shared, 0, "0.2");
    assert_eq!(top["all_users"], true);
    assert_eq!(bytes(row(&top, "users", "uid", ADA)), (0, 8 * MIB));
    assert_eq!(bytes(row(&top, "users", "uid", BOB)), (3 * MIB, 3 * MIB));
    let of_ada = row(&top, "files", "path", "/weft/all/of-ada");
    assert_eq!((bytes(of_ada), &of_ada["uid"]), ((0, 8 * MIB), &ADA.into()));
    let of_bob = row(&top, "files", "path", "/weft/all/private/of-bob");
    assert_eq!((bytes(of_bob), &of_bob["uid"]), ((3 * MIB, 3 * MIB), &BOB.into()));
    // One process wrote, another one read.
    let of = |uid: u32| rows(&top, "clients").iter().filter(move |row| row["uid"] == uid);
    let writers: Vec<_> = of(BOB).filter(|row| bytes(row).1 > 0).collect();
    let readers: Vec<_> = of(BOB).filter(|row| bytes(row).0 > 0).collect();
    assert_eq!((writers.len(), readers.len()), (1, 1), "{top:#}");
    assert_eq!((bytes(writers[0]), bytes(readers[0])), ((0, 3 * MIB), (3 * MIB, 0)));
    assert_ne!(writers[0]["pid"], readers[0]["pid"]);
    assert!(writers[0]["pid"].as_u64() > Some(1), "{}", writers[0]);
    assert_eq!((&writers[0]["program"], &readers[0]["program"]), (&"weft cp".into(), &"weft cat".into()));
    assert!(writers[0]["host"].as_str().is_some_and(|host| !host.is_empty()));

    // An unprivileged user sees own rows and totals.
    let top = top_json(&shared, ADA, "0.2");
    assert_eq!(top["all_users"], false);
    for table in ["clients", "users", "files"] {
        assert!(
            !rows(&top, table).is_empty() && rows(&top, table).iter().all(|row| row["uid"] == ADA),
            "{top:#}"
        );
    }
    assert!(!top.to_string().contains("of-bob") && !top.to_string().contains("private"));
    assert_eq!(bytes(row(&top, "files", "path", "/weft/all/of-ada")), (0, 8 * MIB));
    assert_eq!(rows(&top, "targets").len(), 2);
    // A file that ada used in a directory that ada can no longer list has no path for her.
    succeeded(&mut shared.weft(0, ["mkdir", "-m", "777", "/weft/all/once"]));
    succeeded(&mut shared.weft(BOB, ["cp", &bob, "/weft/all/once/open"]));
    succeeded(&mut shared.weft(ADA, ["cat", "/weft/all/once/open"]));
    let path = |uid: u32| {
        let top = top_json(&shared, uid, "0.1");
        let read =
            rows(&top, "files").iter().find(|row| row["uid"] == ADA && bytes(row).0 == 3 * MIB).cloned();
        read.unwrap_or_else(|| panic!("{top:#}"))["path"].clone()
    };
    assert_eq!(path(ADA), "/weft/all/once/open");
    succeeded(&mut shared.weft(0, ["run", "--", "chmod", "700", "/weft/all/once"]));
    assert_eq!((path(ADA), path(0)), (Value::Null, "/weft/all/once/open".into()));
}

#[test]
fn rates_are_those_of_the_programs() {
    let Some(shared) = shared() else { return };
    // 64 KiB each 20 ms and each 40 ms.
    let (writes, reads) = (65_536.0 * 50.0, 65_536.0 * 25.0);
    let _ada = paced(&shared, ADA, "/weft/all/written", true, 20);
    let _bob = paced(&shared, BOB, "/weft/all/read", false, 40);
    let near = |found: f64, expected: f64| found > 0.5 * expected && found < 1.5 * expected;
    // A busy machine delays the programs, which then catch up.
    let top = until(Duration::from_secs(60), "rates of both programs", || {
        let top = top_json(&shared, 0, "3");
        let (of_ada, of_bob) = (rate(row(&top, "users", "uid", ADA)), rate(row(&top, "users", "uid", BOB)));
        (near(of_ada.1, writes) && near(of_bob.0, reads)).then_some(top)
    });
    let same = |a: f64, b: f64| (a - b).abs() <= 0.05 * a.max(b);
    let of = |table: &str, field: &str, value: Value| rate(row(&top, table, field, value));
    let (ada, bob) = (of("users", "uid", ADA.into()), of("users", "uid", BOB.into()));
    assert_eq!((ada.0, bob.1), (0.0, 0.0), "ada only writes, bob only reads: {top:#}");
    assert!(same(ada.1, of("files", "path", "/weft/all/written".into()).1), "{top:#}");
    assert!(same(bob.0, of("files", "path", "/weft/all/read".into()).0), "{top:#}");
    let client = |uid: u32| {
        let busy = |row: &&Value| row["uid"] == uid && (rate(row).0 > 0.0 || rate(row).1 > 0.0);
        let found: Vec<_> = rows(&top, "clients").iter().filter(busy).collect();
        assert_eq!(found.len(), 1, "{top:#}");
        assert_eq!(found[0]["program"], "python3", "{top:#}");
        rate(found[0])
    };
    assert!(same(ada.1, client(ADA).1) && same(bob.0, client(BOB).0), "{top:#}");
    let targets = rows(&top, "targets").iter().map(rate);
    let (read, written) = targets.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert!(same(read, bob.0) && same(written, ada.1), "{top:#}");
    let total = &top["total"];
    assert!(same(rate(total).0, bob.0) && same(rate(total).1, ada.1), "{top:#}");
    assert!(total["write_latency"]["p99_us"].as_f64() >= total["write_latency"]["p50_us"].as_f64());
    assert!(total["write_latency"]["p50_us"].as_f64() > Some(0.0), "{top:#}");
    // Tables have the same rows.
    let text = succeeded(&mut shared.weft(0, ["top", "--once", "--interval", "1", "--sort", "requests"]));
    for part in ["all users", "/weft/all/written", "/weft/all/read", "python3", "4711", "s0"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let filtered =
        succeeded(&mut shared.weft(0, ["top", "--count", "2", "--interval", "0.5", "--filter", "WRITTEN"]));
    assert!(filtered.contains("/weft/all/written") && !filtered.contains("/weft/all/read"), "{filtered}");
    assert_eq!(filtered.matches("cluster shared").count(), 2);
}

#[test]
fn a_killed_server_is_reported_and_the_others_are_shown() {
    let mut servers = Servers::started(2, "leases = false", "", "");
    let local = servers.path("bytes");
    std::fs::write(&local, vec![7; 8 * MIB as usize]).expect("written");
    servers.weft(["cp", &local.display().to_string(), "/weft/a"]);
    servers.kill(1);
    let begin = Instant::now();
    let output =
        servers.command(["top", "--json", "--count", "2", "--interval", "0.2"]).output().expect("starts");
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(begin.elapsed() < Duration::from_secs(20), "bounded time");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let objects: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(objects.len(), 2, "one object a line");
    for top in &objects {
        assert_eq!(row(top, "servers", "name", "s0")["up"], true);
        let down = row(top, "servers", "name", "s1");
        assert!(down["up"] == false && down["reason"].as_str().is_some_and(|why| !why.is_empty()), "{down}");
        assert!(row(top, "users", "uid", 0)["total"]["written_bytes"].as_u64() > Some(0));
    }
    let output = servers.command(["top", "--once", "--interval", "0.2"]).output().expect("starts");
    assert!(String::from_utf8_lossy(&output.stdout).contains("DOWN"), "{}", shown(&output));
    servers.kill(0);
    let said = servers.fails(1, ["top", "--once"]);
    assert!(said.contains("no server answers") && said.contains("weft serve"), "{said}");
    let said = servers.fails(2, ["top"]);
    assert!(said.contains("not a terminal") && said.contains("--once"), "{said}");
    let said = servers.fails(2, ["top", "--once", "--interval", "0.01"]);
    assert!(said.contains("at least 0.1"), "{said}");
}

#[test]
fn leases_of_an_embedded_cluster_are_counted_by_client_and_file() {
    needs("python3");
    let cluster = Embedded::started();
    let program = "
import os, sys
f = os.open('/weft/leased', os.O_RDWR | os.O_CREAT)
for n in range(20):
    os.pwrite(f, bytes(1 << 16), n << 16)
print('begun', flush=True)
sys.stdin.read()
";
    let mut command = cluster.running(["python3", "-c", program]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    child.stdout.as_mut().expect("a pipe").read_exact(&mut [0; 5]).expect("begun");
    let _child = Paced(child);
    let top: Value =
        serde_json::from_str(&cluster.weft(["top", "--once", "--json", "--interval", "0.2"])).expect("JSON");
    let file = row(&top, "files", "path", "/weft/leased");
    assert!(file["leases"].as_u64() > Some(0), "{top:#}");
    assert!(row(&top, "clients", "program", "python3")["leases"].as_u64() > Some(0), "{top:#}");
    assert!(top["total"]["leases"].as_u64() > Some(0));
    let text = cluster.weft(["top", "--once", "--interval", "0.2"]);
    assert!(text.contains("/weft/leased") && text.contains("bypass the servers"), "{text}");
}

/// A pseudo-terminal with a program.
struct Terminal {
    master: File,
    /// Keeps the terminal open after the program.
    slave: OwnedFd,
    child: Child,
    text: Arc<Mutex<Vec<u8>>>,
    /// Settings before the program.
    before: libc::termios,
}

fn settings(terminal: &impl AsRawFd) -> libc::termios {
    // SAFETY: zeros are a valid termios, which the call fills; the descriptor is open.
    unsafe {
        let mut found: libc::termios = std::mem::zeroed();
        assert_eq!(libc::tcgetattr(terminal.as_raw_fd(), &raw mut found), 0, "it is a terminal");
        found
    }
}

impl Terminal {
    fn start(mut command: Command) -> Self {
        let (mut master, mut slave) = (-1, -1);
        let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the pointers are to locals; name and settings may be null.
        let opened = unsafe {
            libc::openpty(
                &raw mut master,
                &raw mut slave,
                std::ptr::null_mut(),
                std::ptr::null(),
                &raw const size,
            )
        };
        assert_eq!(opened, 0, "a pseudo-terminal");
        // SAFETY: the descriptors are new, and nothing else closes them.
        let (master, slave) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
        let before = settings(&slave);
        let end = || Stdio::from(slave.try_clone().expect("a descriptor"));
        command.stdin(end()).stdout(end()).stderr(end()).env("TERM", "xterm-256color").env_remove("NO_COLOR");
        // SAFETY: setsid and ioctl are safe between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let child = command.spawn().expect("weft starts");
        drop(command);
        let text = Arc::new(Mutex::new(Vec::new()));
        let (mut from, to) = (master.try_clone().expect("a descriptor"), Arc::clone(&text));
        std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut some) {
                to.lock().expect("no panic").extend_from_slice(&some[..count]);
            }
        });
        Self { master, slave, child, text, before }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.text.lock().expect("no panic")).into_owned()
    }

    #[track_caller]
    fn wait_for(&self, part: &str) {
        until(Duration::from_secs(60), part, || self.text().contains(part).then_some(()));
    }

    fn press(&mut self, keys: &str) {
        self.text.lock().expect("no panic").clear();
        self.master.write_all(keys.as_bytes()).expect("written");
    }

    /// Waits for the end of the program, and checks that the terminal is as before.
    #[track_caller]
    fn end(mut self) -> std::process::ExitStatus {
        let status =
            until(Duration::from_secs(60), "the end", || self.child.try_wait().expect("our own child"));
        self.wait_for("\u{1b}[?1049l");
        self.wait_for("\u{1b}[?25h");
        let after = settings(&self.slave);
        let modes = |found: &libc::termios| (found.c_iflag, found.c_oflag, found.c_cflag, found.c_lflag);
        assert_eq!(modes(&after), modes(&self.before), "the settings of the terminal");
        status
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_terminal_shows_tables_follows_keys_and_is_restored() {
    let servers = Servers::started(1, "", "", "");
    let mut terminal = Terminal::start(servers.command(["top", "--interval", "0.2"]));
    terminal.wait_for("\u{1b}[?1049h");
    terminal.wait_for("weft top");
    terminal.wait_for("Clients");
    assert_eq!(settings(&terminal.slave).c_lflag & (libc::ICANON | libc::ECHO), 0, "keys arrive at once");
    terminal.press("5");
    terminal.wait_for("MEMORY");
    terminal.press("?");
    terminal.wait_for("Help");
    terminal.press("x ");
    terminal.wait_for("PAUSED");
    terminal.press("q");
    assert_eq!(terminal.end().code(), Some(0));
    // Ctrl-C is a key here.
    let mut terminal = Terminal::start(servers.command(["top"]));
    terminal.wait_for("Clients");
    terminal.press("\u{3}");
    assert_eq!(terminal.end().code(), Some(0));
    let terminal = Terminal::start(servers.command(["top"]));
    terminal.wait_for("Clients");
    // SAFETY: a process that this test started and has not waited for.
    unsafe { libc::kill(terminal.child.id() as i32, libc::SIGTERM) };
    assert_eq!(terminal.end().signal(), Some(libc::SIGTERM), "its parent sees the signal");
}
