//! An outage of a server is a pause: programs and mounts wait, and then go on. A signal, a disk that is given up and
//! `WEFT_RETRY_FOR` end a wait early.

mod common;

use common::mounts::{Mounted, Watchdog};
use common::servers::Servers;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use weft_env::real::{RealEnv, block_on};

/// Limit for conditions that hold soon after a server is back.
const SOON: Duration = Duration::from_secs(60);
/// Limit for operations that do not wait for a server.
const AT_ONCE: Duration = Duration::from_secs(20);

/// Removes the limit that other tests have.
fn without_limit(command: &mut Command) -> &mut Command {
    command.env_remove("WEFT_RETRY_FOR")
}

/// A program, and the lines of its standard error.
struct Program {
    child: Child,
    lines: Receiver<String>,
    told: Vec<String>,
}

impl Program {
    /// Starts `weft run -- PROGRAM`, which waits for servers as long as usual.
    fn start(servers: &Servers, program: &[&str]) -> Self {
        let mut command = servers.command(["run", "--"].iter().chain(program));
        without_limit(&mut command).current_dir(servers.path(""));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("weft starts");
        let (send, lines) = channel();
        let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Self { child, lines, told: Vec::new() }
    }

    /// Waits until the program says that it waits for a server.
    #[track_caller]
    fn until_it_waits(&mut self) {
        loop {
            let line = self.lines.recv_timeout(SOON).unwrap_or_else(|_| panic!("{:?}", self.told));
            self.told.push(line);
            if self.told.last().is_some_and(|line| line.contains("requests wait for it")) {
                return;
            }
        }
    }

    /// Waits for its end, and returns its success, standard output and standard error.
    #[track_caller]
    fn end(&mut self, limit: Duration) -> (std::process::ExitStatus, String, String) {
        let status = common::until(limit, "the program ends", || self.child.try_wait().expect("waited for"));
        let mut output = String::new();
        self.child.stdout.take().expect("a pipe").read_to_string(&mut output).expect("read");
        self.told.extend(self.lines.iter());
        (status, output, self.told.join("\n"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program that creates, appends, renames, compares and removes, in rounds, until there is a file `stop`.
const ROUNDS: &str = r#"
    exec 3>> /weft/log
    i=0
    while [ ! -e stop ]; do
        i=$((i + 1))
        echo "round $i" >&3 || exit 10
        head -c 300007 source > /weft/a$i || exit 11
        mv /weft/a$i /weft/b$i || exit 12
        cmp -n 300007 source /weft/b$i || exit 13
        ls -l /weft > /dev/null || exit 14
        rm /weft/b$i || exit 15
        echo $i > rounds
    done
    exec 3>&-
    [ "$(tail -n 1 /weft/log)" = "round $i" ] || exit 16
    [ "$(wc -l < /weft/log)" = $i ] || exit 17
"#;

fn source(servers: &Servers) {
    let bytes: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(servers.path("source"), bytes).expect("written");
}

#[test]
fn a_program_pauses_while_a_server_is_away() {
    let mut servers = Servers::started(2, "", "", "");
    source(&servers);
    let mut program = Program::start(&servers, &["sh", "-c", ROUNDS]);
    let rounds = servers.path("rounds");
    let next = || {
        let _ = std::fs::remove_file(&rounds);
        common::until(SOON, "another round", || rounds.exists().then_some(()));
    };
    next();
    for id in [0, 1] {
        servers.kill(id);
        program.until_it_waits();
        let last = program.told.last().expect("a line").clone();
        assert!(last.contains(&format!("server s{id} at ")) && last.contains("up to 15 min"), "{last}");
        servers.start(id);
        next();
        next();
    }
    std::fs::write(servers.path("stop"), "").expect("written");
    let (status, output, told) = program.end(SOON);
    assert!(status.success(), "{status}\n{output}\n{told}");
    assert_eq!(told.matches("requests wait for it").count(), told.matches("answers again").count(), "{told}");
}

#[test]
fn a_server_that_does_not_answer_is_asked_again_and_never_executes_an_old_request_late() {
    let servers = Servers::started(2, "", "", "[client]\nrequest_timeout = \"1 s\"\ntransport = \"socket\"");
    let write = "
        i=0
        while [ ! -e stop ]; do
            i=$((i + 1))
            printf '%08d' $i | dd of=/weft/f bs=8 seek=70000 conv=notrunc status=none || exit 10
            printf '%08d' $i | dd of=/weft/f bs=8 seek=200000 conv=notrunc status=none || exit 11
            [ \"$(dd if=/weft/f bs=8 skip=70000 count=1 status=none)\" = \"$(printf '%08d' $i)\" ] || exit 12
            [ \"$(dd if=/weft/f bs=8 skip=200000 count=1 status=none)\" = \"$(printf '%08d' $i)\" ] || exit 13
            echo $i > rounds
        done
        printf '%08d' $i";
    let mut program = Program::start(&servers, &["sh", "-c", write]);
    let rounds = servers.path("rounds");
    let next = || {
        let _ = std::fs::remove_file(&rounds);
        common::until(SOON, "another round", || rounds.exists().then_some(()));
    };
    for id in [1, 0, 1] {
        next();
        servers.send(id, libc::SIGSTOP);
        program.until_it_waits();
        servers.send(id, libc::SIGCONT);
        next();
    }
    std::fs::write(servers.path("stop"), "").expect("written");
    let (status, last, told) = program.end(SOON);
    assert!(status.success(), "{status}\n{told}");
    let bytes = servers.weft(["cat", "/weft/f"]);
    assert_eq!((&bytes[560_000..560_008], &bytes[1_600_000..]), (last.as_str(), last.as_str()), "{told}");
}

#[test]
fn a_wait_ends_by_a_signal_by_a_given_up_disk_or_by_the_time_that_the_job_chooses() {
    common::needs("python3");
    let mut servers = Servers::started(2, "", "", "");
    source(&servers);
    servers.weft(["setstripe", "-i", "1", "/weft/f"]);
    servers.weft(["cp", servers.path("source").to_str().expect("text"), "/weft/f"]);
    servers.kill(1);

    // A signal without a handler ends the program, one with a handler the call.
    let mut killed = Program::start(&servers, &["cat", "/weft/f"]);
    let script = "import os,signal,sys\n\
                  signal.signal(signal.SIGINT, signal.default_int_handler)\n\
                  fd = os.open('/weft/f', os.O_RDONLY)\n\
                  try:\n os.read(fd, 1000)\n\
                  except KeyboardInterrupt:\n sys.exit(7)";
    let mut interrupted = Program::start(&servers, &["python3", "-c", script]);
    killed.until_it_waits();
    interrupted.until_it_waits();
    let signal = |program: &Program, signal| {
        // SAFETY: a child of this test that has not been waited for.
        assert_eq!(unsafe { libc::kill(program.child.id() as i32, signal) }, 0);
    };
    signal(&killed, libc::SIGTERM);
    let (status, _, told) = killed.end(AT_ONCE);
    assert!(
        status.signal() == Some(libc::SIGTERM) || status.code() == Some(128 + libc::SIGTERM),
        "{status} {told}"
    );
    signal(&interrupted, libc::SIGINT);
    let (status, _, told) = interrupted.end(AT_ONCE);
    assert_eq!(status.code(), Some(7), "{told}");

    // A job that prefers errors.
    let began = Instant::now();
    let mut command = servers.command(["run", "--", "cat", "/weft/f"]);
    let output = command.env("WEFT_RETRY_FOR", "0").output().expect("weft starts");
    assert!(!output.status.success() && began.elapsed() < AT_ONCE, "{}", common::shown(&output));
    assert!(common::shown(&output).contains("server s1 at "), "{}", common::shown(&output));
    let mut command = servers.command(["ls", "/weft"]);
    let output = command.env("WEFT_RETRY_FOR", "5 minutes").output().expect("weft starts");
    assert_eq!(output.status.code(), Some(2), "{}", common::shown(&output));
    assert!(common::shown(&output).contains("WEFT_RETRY_FOR=5 minutes"), "{}", common::shown(&output));

    // Commands do not wait long, unless they transfer much data.
    let began = Instant::now();
    let mut command = servers.command(["stat", "/weft/f"]);
    without_limit(&mut command).output().expect("weft starts");
    assert!(began.elapsed() < AT_ONCE);

    // Nobody waits for a disk that is given up.
    let mut reader = Program::start(&servers, &["cat", "/weft/f"]);
    reader.until_it_waits();
    servers.weft(["target", "replace", "1", "--data-lost"]);
    let (status, _, told) = reader.end(AT_ONCE);
    assert!(!status.success() && told.contains("its disks were given up"), "{status} {told}");
}

#[test]
fn a_request_gives_up_in_time_while_no_server_answers() {
    // With one connection to each server, the search for the metadata server must not wait for that of the request.
    let mut servers = Servers::started(2, "", "", "[client]\nconnections_max = 1\n");
    let config = weft_config::Cluster::load(&servers.path("cluster.toml")).expect("a cluster file");
    let options =
        weft_client::ClientOptions { retry_for: weft_core::Nanos::from_s(4), ..config.client_options() };
    assert!(options.metadata_search.is_some() && options.connections_max == 1);
    let credentials = config.credentials().expect("no key is needed");
    let client = weft_client::Client::new(RealEnv::new(), config.map(), options, credentials);
    let root = weft_wire::meta::InodePath::from_root(Vec::new(), false);
    let stat = || block_on(client.stat(&root));
    stat().expect("the servers answer");
    for id in 0..servers.len() {
        servers.kill(id);
    }
    for _ in 0..3 {
        let began = Instant::now();
        assert_eq!(stat().expect_err("no server answers").errno(), libc::EIO);
        assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
    }
    for id in 0..servers.len() {
        servers.start(id);
    }
    common::until(SOON, "the servers are used again", || stat().ok());
}

#[test]
fn a_mount_pauses_and_serves_what_other_servers_have() {
    if !common::mounts::possible() {
        return;
    }
    const READERS: usize = 20;
    let mut servers = Servers::started(2, "", "", "");
    let dir = servers.path("mount");
    std::fs::create_dir(&dir).expect("made");
    let state = servers.path("state");
    let mut mount = servers.command(["mount", dir.to_str().expect("text")]);
    common::succeeded(without_limit(&mut mount).env("XDG_STATE_HOME", &state).env_remove("WEFT_STATE"));
    let mount = Mounted(dir);
    let log = state
        .join("weft/mounts")
        .join(format!("{}.log", mount.0.to_str().expect("text").trim_start_matches('/').replace('/', "-")));
    let told = || std::fs::read_to_string(&log).unwrap_or_default();
    let _watchdog = Watchdog::new([&mount], 240);
    for id in [0, 1] {
        let name = format!("/weft/on{id}");
        servers.weft(["setstripe", "-i", &id.to_string(), "-c", "1", &name]);
    }
    let bytes: Vec<u8> = (0..500_000u32).flat_map(u32::to_le_bytes).collect();
    for name in ["on0", "on1"] {
        std::fs::write(mount.at(name), &bytes).expect("written");
    }
    let waits = |id: usize| {
        common::until(SOON, "the log says that the mount waits", || {
            let line = format!("server s{id} at ");
            told()
                .lines()
                .rev()
                .any(|told| told.contains(&line) && told.contains("requests wait"))
                .then_some(())
        });
    };

    // The server of the data: everything else works meanwhile, and a reader can be killed.
    servers.kill(1);
    let readers: Vec<_> = (0..READERS)
        .map(|number| {
            let path = mount.at("on1");
            std::thread::spawn(move || {
                let file = std::fs::File::open(path)?;
                let mut buf = vec![0; 100_000];
                file.read_exact_at(&mut buf, number as u64 * 50_000).map(|()| buf)
            })
        })
        .collect();
    let mut killed =
        Command::new("cat").arg(mount.at("on1")).stdout(Stdio::null()).spawn().expect("cat starts");
    waits(1);
    let began = Instant::now();
    assert!(std::fs::read(mount.at("on0")).expect("read") == bytes);
    std::fs::create_dir(mount.at("directory")).expect("made");
    std::fs::rename(mount.at("directory"), mount.at("renamed")).expect("renamed");
    assert_eq!(std::fs::read_dir(&mount.0).expect("listed").count(), 3);
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
    killed.kill().expect("killed");
    let status = common::until(AT_ONCE, "the killed reader ends", || killed.try_wait().expect("waited for"));
    assert_eq!(status.signal(), Some(libc::SIGKILL));
    servers.start(1);
    for (number, reader) in readers.into_iter().enumerate() {
        let at = number * 50_000;
        assert!(
            reader.join().expect("no panic").expect("read") == bytes[at..at + 100_000],
            "reader {number}"
        );
    }

    // The metadata server.
    let (path, wanted) = (mount.at("on1"), bytes.len() as u64);
    servers.kill(0);
    let writer = std::thread::spawn(move || {
        let file = std::fs::OpenOptions::new().append(true).open(&path)?;
        std::io::Write::write_all(&mut &file, b"appended")?;
        file.sync_all()?;
        std::fs::metadata(&path).map(|found| found.len())
    });
    waits(0);
    servers.start(0);
    assert_eq!(writer.join().expect("no panic").expect("no error"), wanted + 8);
    assert!(told().contains("server s0 answers again"), "{}", told());
}
