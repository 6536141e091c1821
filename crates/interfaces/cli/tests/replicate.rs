//! `weft replicate`: replicas of a file on a mounted file system, used by unmodified programs under `weft run`.

mod common;

use common::until;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

const BLOCK: usize = 4096;
const BLOCKS: usize = 256;
const RANKS: usize = 4;

/// A program that reads the file in strides, or runs statements on its descriptor `fd`.
const PROGRAM: &str = "
import os, sys, signal
path, statements = sys.argv[1:3]
fd = os.open(path, os.O_RDWR)
def strided():
    got = bytearray(os.fstat(fd).st_size)
    for rank in range(4):
        for block in range(rank, len(got) // 4096, 4):
            part = os.pread(fd, 4096, block * 4096)
            assert len(part) == 4096
            got[block * 4096:(block + 1) * 4096] = part
    return bytes(got)
exec(statements)
";

/// A directory with a file, its trace and its replica.
struct Setting {
    dir: tempfile::TempDir,
}

impl Setting {
    /// A directory with a file.
    fn bare() -> Self {
        let this = Self { dir: tempfile::tempdir().expect("a directory") };
        std::fs::write(this.path("program.py"), PROGRAM).expect("written");
        std::fs::write(this.path("field"), contents()).expect("written");
        this
    }

    fn new() -> Self {
        let this = Self::bare();
        let (trace, field) = (this.text("app.wtrace"), this.text("field"));
        let dir = this.dir.path().display().to_string();
        let arguments = ["run", "--no-cluster", "--trace", &trace, "--trace-paths", &dir, "--", "python3"];
        let program = [this.text("program.py"), field, "strided()".to_owned()];
        this.succeeds(&[&arguments[..], &program.each_ref().map(String::as_str)].concat());
        let plan = this.text("replicas.toml");
        let said = this.succeeds(&[
            "plan",
            &trace,
            "--replicas",
            "--policy",
            "cida",
            "--only",
            "field",
            "--output",
            &plan,
        ]);
        assert!(said.contains("weft replicate apply"), "{said}");
        let said = this.succeeds(&["replicate", "apply", &plan]);
        assert!(said.contains("copied 1.00 MiB"), "{said}");
        this
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn weft(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        command.args(arguments).env("HOME", self.path("home"));
        for name in ["XDG_STATE_HOME", "WEFT_CLUSTER", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"] {
            command.env_remove(name);
        }
        command.output().expect("weft runs")
    }

    #[track_caller]
    fn succeeds(&self, arguments: &[&str]) -> String {
        let output = self.weft(arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {}\n{text}{errors}", output.status);
        text
    }

    /// Runs the program under `weft run`.
    fn program(&self, statements: &str) -> Output {
        let (program, field) = (self.text("program.py"), self.text("field"));
        self.weft(&[
            "run",
            "--no-cluster",
            "--trace",
            &self.text("t.wtrace"),
            "--",
            "python3",
            &program,
            &field,
            statements,
        ])
    }

    #[track_caller]
    fn runs(&self, statements: &str) -> String {
        let output = self.program(statements);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}\n{errors}", output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn original(&self) -> Vec<u8> {
        std::fs::read(self.path("field")).expect("read")
    }

    fn replica(&self, file: &str) -> PathBuf {
        let inode = self.path("field").metadata().expect("attributes").ino();
        self.path(&format!(".weft/replicas/{inode:x}.{file}"))
    }

    fn state(&self) -> serde_json::Value {
        let text = self.succeeds(&["replicate", "list", "--json"]);
        serde_json::from_str(text.lines().next().expect("a replica")).expect("JSON")
    }
}

fn contents() -> Vec<u8> {
    (0..BLOCKS * BLOCK).map(|at| (at / BLOCK * 7 + at % 251) as u8).collect()
}

#[test]
fn programs_read_the_replica_and_a_difference_is_found() {
    let setting = Setting::new();
    // The replica has the blocks of each process in sequence: four slots for any number of blocks.
    let state = setting.state();
    assert_eq!(
        (&state["state"], &state["grids"], &state["bytes"]),
        (&"valid".into(), &1.into(), &(1 << 20).into())
    );
    let read = "sys.stdout.write(str(sum(strided()[::997])))";
    let sum: u64 = contents().iter().step_by(997).map(|byte| u64::from(*byte)).sum();
    assert_eq!(setting.runs(read), sum.to_string());
    assert!(setting.succeeds(&["replicate", "verify"]).contains("no difference"));
    // A damaged replica shows that the program reads it, and that the comparison works.
    let mut bytes = std::fs::read(setting.replica("data")).expect("the data");
    bytes[0] ^= 1;
    std::fs::write(setting.replica("data"), &bytes).expect("damaged");
    assert_eq!(setting.runs("sys.stdout.write(str(strided()[0]))"), (contents()[0] ^ 1).to_string());
    let output = setting.weft(&["replicate", "verify", &setting.text("field")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("1 bytes differ"), "{output:?}");
    let show = setting.succeeds(&["replicate", "show", &setting.text("field")]);
    assert!(show.contains("1 grids with 4 slots") && show.contains("[######"), "{show}");
    setting.succeeds(&["replicate", "drop", &setting.text("field")]);
    assert!(!setting.path(".weft").exists());
    assert_eq!(setting.runs(read), sum.to_string());
    assert!(setting.succeeds(&["replicate", "list"]).contains("no replicas"));
}

#[test]
fn writes_go_to_the_replica_and_reach_the_file_with_its_last_close() {
    let setting = Setting::new();
    let mut expected = contents();
    // Unaligned, over several blocks, beyond the end of the file and the mapping; buffered streams and appends, too.
    let statements = "import time
os.pwrite(fd, b'x' * 10000, 5000)
assert os.pread(fd, 10002, 4999) == strided()[4999:15001] and os.pread(fd, 3, 5000) == b'xxx'
open(path + '.ready', 'w').close()
while not os.path.exists(path + '.seen'):
    time.sleep(0.01)
stream = open(path, 'r+b')
stream.seek(100)
stream.write(b'stream')
other = os.open(path, os.O_WRONLY | os.O_APPEND)
os.write(other, b'appended')
assert os.fstat(fd).st_size == 256 * 4096 + 8 and os.pread(fd, 20, 256 * 4096) == b'appended'
child = os.fork()
if child == 0:
    os.pwrite(fd, b'child', 200)
    os.close(fd)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0 and os.pread(fd, 5, 200) == b'child'";
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let limit = Duration::from_secs(60);
            until(limit, "the program has written", || setting.path("field.ready").exists().then_some(()));
            let outside = setting.original();
            let state = setting.state();
            std::fs::write(setting.path("field.seen"), "").expect("written");
            assert!(outside == contents(), "programs outside see the bytes of the last synchronization");
            assert_eq!((&state["state"], &state["in_use"]), (&"written".into(), &true.into()));
        });
        setting.runs(statements);
    });
    expected[5000..15000].fill(b'x');
    expected[100..106].copy_from_slice(b"stream");
    expected[200..205].copy_from_slice(b"child");
    expected.extend(b"appended");
    let found = setting.original();
    let differing = found.iter().zip(&expected).position(|(found, expected)| found != expected);
    assert_eq!((found.len(), differing), (expected.len(), None), "the file after the last close");
    assert_eq!(setting.state()["state"], "valid");
    assert!(setting.succeeds(&["replicate", "verify"]).contains("no difference"));
    // Cut by path and by descriptor, then longer again: zeros.
    setting.runs("os.truncate(path, 9000); os.ftruncate(fd, 6000); os.ftruncate(fd, 20000)");
    expected.truncate(6000);
    expected.resize(20000, 0);
    assert!(setting.original() == expected);
    let tail = setting.runs("sys.stdout.write(str(any(os.pread(fd, 20000, 6000))))");
    assert_eq!(tail, "False");
}

#[test]
fn killed_programs_lose_nothing() {
    let setting = Setting::new();
    let mut expected = contents();
    let output = setting.program("os.pwrite(fd, b'k' * 9000, 4000); os.kill(os.getpid(), signal.SIGKILL)");
    assert_eq!(output.status.code(), Some(128 + 9));
    expected[4000..13000].fill(b'k');
    assert!(setting.original() == expected, "`weft run` synchronizes after its program");
    // With `weft run` itself, which the next one replaces.
    let output = setting.program(
        "os.pwrite(fd, b'l' * 9000, 14000); os.kill(os.getppid(), signal.SIGKILL); os.kill(os.getpid(), signal.SIGKILL)",
    );
    assert!(!output.status.success());
    // Programs end a moment after the command that waited for them.
    let has_ended = || (setting.state()["in_use"] == false).then_some(());
    until(Duration::from_secs(60), "the killed program has ended", has_ended);
    assert_eq!((&setting.state()["state"], setting.original() == expected), (&"written".into(), true));
    setting.succeeds(&["run", "--no-cluster", "--", "true"]);
    expected[14000..23000].fill(b'l');
    assert!(setting.original() == expected);
    assert_eq!(setting.state()["state"], "valid");
}

#[test]
fn a_file_that_another_program_changed_is_read_itself_until_it_is_copied_again() {
    let setting = Setting::new();
    let mut expected = contents();
    expected[77] ^= 0xff;
    std::fs::write(setting.path("field"), &expected).expect("changed");
    assert_eq!(setting.state()["state"], "outdated");
    let read = "sys.stdout.write(str(strided()[77]))";
    assert_eq!(setting.runs(read), expected[77].to_string());
    assert!(setting.succeeds(&["replicate", "sync"]).contains("copied 1.00 MiB to the replica"));
    assert_eq!(setting.state()["state"], "valid");
    assert_eq!(setting.runs(read), expected[77].to_string());
    // Another file under the same name has no replica.
    std::fs::write(setting.path("other"), contents()).expect("written");
    // While the replaced file is open, no new file gets its inode number.
    let _replaced = std::fs::File::open(setting.path("field")).expect("opened");
    std::fs::rename(setting.path("other"), setting.path("field")).expect("renamed");
    assert_eq!(setting.runs(read), contents()[77].to_string());
    assert_eq!(setting.state()["state"], "orphan");
}

#[test]
fn a_replica_in_use_is_not_removed_and_a_damaged_one_is_refused() {
    let setting = Setting::new();
    let field = setting.text("field");
    let statements = "import time
os.pwrite(fd, b'kept', 0)
open(path + '.ready', 'w').close()
while not os.path.exists(path + '.go'):
    time.sleep(0.01)";
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let limit = Duration::from_secs(60);
            until(limit, "the program has written", || setting.path("field.ready").exists().then_some(()));
            let drop = setting.weft(&["replicate", "drop", "--force", &field]);
            let sync = setting.weft(&["replicate", "sync", &field]);
            let verify = setting.weft(&["replicate", "verify", &field]);
            std::fs::write(setting.path("field.go"), "").expect("written");
            for output in [drop, sync, verify] {
                assert_eq!(output.status.code(), Some(3), "{output:?}");
            }
        });
        setting.runs(statements);
    });
    let mut expected = contents();
    expected[..4].copy_from_slice(b"kept");
    assert!(setting.original() == expected);
    // A program cannot know whether the missing bytes were newer.
    std::fs::remove_file(setting.replica("data")).expect("removed");
    let output = setting.program("strided()");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("a file of it is missing"), "{output:?}");
    assert_eq!(setting.weft(&["replicate", "drop", &field]).status.code(), Some(1));
    setting.succeeds(&["replicate", "drop", "--force", &field]);
    setting.runs("assert strided()[:4] == b'kept'");
    assert!(!setting.path(".weft").exists());
}

#[test]
fn programs_with_another_number_of_processes_use_the_file() {
    let setting = Setting::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    let (program, field) = (setting.text("program.py"), setting.text("field"));
    let write = "os.pwrite(fd, b'four', 0)";
    command.args(["run", "--no-cluster", "--", "python3", &program, &field, write]);
    let output = command.env("HOME", setting.path("home")).env("PMI_SIZE", RANKS.to_string()).output();
    assert!(output.expect("weft runs").status.success());
    let mut expected = contents();
    expected[..4].copy_from_slice(b"four");
    assert!(setting.original() == expected);
    assert_eq!(setting.state()["state"], "outdated");
    assert_eq!(setting.runs("sys.stdout.write(str(os.pread(fd, 4, 0)))"), "b'four'");
}

#[test]
fn wrong_plans_and_places_are_refused_with_a_remedy() {
    let setting = Setting::new();
    let refused = |arguments: &[&str], code: i32, words: &[&str]| {
        let output = setting.weft(arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(words.iter().all(|word| text.contains(word)), "{arguments:?}: {text}");
    };
    let plan = setting.text("bad.toml");
    std::fs::write(&plan, "version = 1\n").expect("written");
    refused(&["replicate", "apply", &plan], 2, &["bad.toml", "weft plan TRACE --replicas --output FILE"]);
    let good = std::fs::read_to_string(setting.path("replicas.toml")).expect("the plan");
    std::fs::write(&plan, good.replace("0+4096>0 4096+4096>262144", "0+4096>262144 4096+4096>0"))
        .expect("written");
    refused(&["replicate", "apply", &plan], 1, &["another replica", "--replace"]);
    std::fs::write(&plan, good.replace("0+4096>0", "0+4096>4096")).expect("written");
    refused(&["replicate", "apply", &plan], 2, &["bad.toml", "share byte"]);
    std::fs::write(&plan, good.replace(&setting.text("field"), "/weft/none")).expect("written");
    refused(&["replicate", "apply", &plan], 1, &["/weft/none"]);
    let again = setting.text("replicas.toml");
    refused(&["replicate", "apply", &again, "--replace", "--budget", "1MiB"], 1, &["budget has 0 B left"]);
    refused(&["replicate", "show", &setting.text("program.py")], 1, &["no replica", "weft replicate list"]);
    assert_eq!(setting.state()["state"], "valid", "nothing was changed");
}

/// Unmodified programs use the replica of a file of Weft, on the embedded cluster.
#[test]
fn a_file_of_weft_is_replicated_read_written_and_synchronized() {
    let setting = Setting::bare();
    let (trace, program) = (setting.text("weft.wtrace"), setting.text("program.py"));
    let stop = Command::new(env!("CARGO_BIN_EXE_weft"));
    let _stops = Stops(stop, setting.path("home"));
    setting.succeeds(&["run", "--", "cp", &setting.text("field"), "/weft/field"]);
    let run = |statements: &str, options: &[&str]| {
        let program = ["--", "python3", &program, "/weft/field", statements];
        setting.succeeds(&[&["run"], options, &program].concat())
    };
    let killed = |statements: &str| {
        let statements = format!("{statements}; os.kill(os.getpid(), signal.SIGKILL)");
        let output = setting.weft(&["run", "--", "python3", &program, "/weft/field", &statements]);
        assert!(!output.status.success(), "{output:?}");
    };
    run("strided()", &["--trace", &trace]);
    killed("os.pwrite(fd, os.pread(fd, 4096, 0), 0)");
    let plan = setting.text("weft.toml");
    let words = ["plan", &trace, "--replicas", "--policy", "cida", "--only", "field", "--output", &plan];
    setting.succeeds(&words);
    let said = setting.succeeds(&["replicate", "apply", &plan]);
    assert!(said.contains("/weft/field: copied 1.00 MiB"), "{said}");
    let said = setting.succeeds(&["replicate", "apply", &plan]);
    assert!(said.contains("/weft/field: the replica is valid"), "{said}");
    let state = || -> serde_json::Value {
        let text = setting.succeeds(&["replicate", "list", "--json"]);
        serde_json::from_str(text.lines().next().expect("a replica")).expect("JSON")
    };
    assert_eq!((&state()["file"], &state()["state"]), (&"/weft/field".into(), &"valid".into()));
    let compare = "import hashlib; print(hashlib.sha256(strided()).hexdigest())";
    let before = run(compare, &[]);
    killed("os.pwrite(fd, b'newer', 4094); os.fsync(fd)");
    assert_eq!(state()["state"], "written", "used from the first open on");
    // Every opener sees it, before and after the synchronization.
    let tail = |what: &str| {
        let said = setting.succeeds(&[
            "run",
            "--",
            "python3",
            "-c",
            "f = open('/weft/field', 'rb'); f.seek(4094); print(f.read(5))",
        ]);
        assert_eq!(said.trim(), "b'newer'", "{what}");
    };
    tail("in the replica");
    let refused = setting.weft(&["replicate", "drop", "/weft/field"]);
    assert_eq!(refused.status.code(), Some(3), "{}", String::from_utf8_lossy(&refused.stderr));
    let said = setting.succeeds(&["replicate", "sync", "/weft/field"]);
    assert!(said.contains("to the file"), "{said}");
    let said = setting.succeeds(&["replicate", "verify"]);
    assert!(said.contains("/weft/field: 1.00 MiB compared, no difference"), "{said}");
    let drawn = setting.succeeds(&["replicate", "show", "/weft/field"]);
    assert!(drawn.contains("[################"), "{drawn}");
    let fsck = setting.weft(&["fsck"]);
    assert!(
        fsck.status.success(),
        "{}{}",
        String::from_utf8_lossy(&fsck.stdout),
        String::from_utf8_lossy(&fsck.stderr)
    );
    setting.succeeds(&["replicate", "drop", "/weft/field"]);
    tail("in the file");
    assert_ne!(run(compare, &[]), before);
    let missing = setting.weft(&["replicate", "show", "/weft/field"]);
    assert_eq!(missing.status.code(), Some(1), "{}", String::from_utf8_lossy(&missing.stderr));
}

/// Stops the embedded cluster of this home directory.
struct Stops(Command, PathBuf);

impl Drop for Stops {
    fn drop(&mut self) {
        let stopped = self.0.arg("stop").env("HOME", &self.1).env_remove("XDG_STATE_HOME").output();
        assert!(stopped.is_ok(), "{stopped:?}");
    }
}
