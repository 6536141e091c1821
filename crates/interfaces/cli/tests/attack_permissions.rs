//! Programs of an unprivileged user beside programs of another user.
//!
//! Files of a user stay closed to others. The programs of the user keep working directories, open directories and open
//! files over a restart of the metadata server.

mod common;

use common::shared_cluster::SharedCluster;
use common::{accounts, mounts, needs, shown, skip, succeeded};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const ADA: u32 = 4711;
const BOB: u32 = 4712;

/// Starts the server; `None` without root.
fn shared() -> Option<SharedCluster> {
    SharedCluster::new(&[&[""]])
}

/// Creates a local directory that a user owns.
fn local(shared: &SharedCluster, name: &str, uid: u32) -> PathBuf {
    let path = shared.path(name);
    std::fs::create_dir(&path).expect("a directory");
    chown(&path, Some(uid), Some(uid)).expect("root may");
    path
}

/// Runs a script of the user ada under `weft run`, which must succeed, and returns its standard output. The server
/// is killed and restarted when the script asks for it.
fn script(shared: &mut SharedCluster, mut command: Command, sync: &Path) -> String {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut child = Ended(child);
    let end = Instant::now() + Duration::from_secs(120);
    let wait = |child: &mut Ended, what: &dyn Fn() -> bool| {
        while !what() && child.0.try_wait().expect("our own child").is_none() {
            assert!(Instant::now() < end, "the script still runs after two minutes");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    wait(&mut child, &|| sync.join("ready").exists());
    if sync.join("ready").exists() {
        shared.kill();
        shared.start();
        std::fs::write(sync.join("go"), "").expect("written");
    }
    wait(&mut child, &|| false);
    let output = child.output();
    assert!(output.status.success(), "{}", shown(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A child process that is killed if the test fails.
struct Ended(Child);

impl Ended {
    fn output(mut self) -> Output {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        self.0.stdout.take().expect("piped").read_to_end(&mut stdout).expect("read");
        self.0.stderr.take().expect("piped").read_to_end(&mut stderr).expect("read");
        Output { status: self.0.wait().expect("our own child"), stdout, stderr }
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Script that uses open directories, a working directory and files that children inherit, before and after a restart.
const SCRIPT: &str = r#"
set -eu
umask 077
mkdir -p "$TOP/ada/a/deep"
cd "$TOP/ada"
for n in 1 2 3; do echo $n >a/deep/$n; done
cp -r a b; mv b c; rm -r c
find a -type f -execdir cat {} + | sort | tr -d '\n'; echo
tar -cf - a | tar -tf - | wc -l
exec 3>>log
echo one >&3; (echo two >&3); sh -c 'echo three >&3'
python3 - "$SYNC" <<'END'
import os, sys, time
sync = sys.argv[1]
top = os.open("a", os.O_RDONLY | os.O_DIRECTORY)
deep = os.open("deep", os.O_RDONLY | os.O_DIRECTORY, dir_fd=top)
file = os.open("1", os.O_RDWR, dir_fd=deep)
os.chdir("a")
os.rename("deep", "renamed")
def look():
    assert sorted(os.listdir(deep)) == ["1", "2", "3"], os.listdir(deep)
    assert os.stat("2", dir_fd=deep).st_size == 2
    assert sorted(os.listdir(".")) == ["renamed"]
    assert os.pread(file, 9, 0) == b"1\n"
    assert os.stat("..", dir_fd=deep).st_ino == os.fstat(top).st_ino
    child = os.fork()
    if child == 0:
        try:
            assert os.pread(file, 9, 0) == b"1\n"
            assert os.stat("3", dir_fd=deep).st_size == 2
            os.close(os.open("made", os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o444, dir_fd=deep))
            os.unlink("made", dir_fd=deep)
        except BaseException as error:
            print(error, flush=True)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    # A file that was created without write permission is still open for writing, in a child as well.
    sealed = os.open("sealed", os.O_CREAT | os.O_WRONLY, 0o400, dir_fd=deep)
    child = os.fork()
    if child == 0:
        os._exit(0 if os.write(sealed, b"by the child") == 12 else 1)
    assert os.waitpid(child, 0)[1] == 0
    os.close(sealed)
    os.unlink("sealed", dir_fd=deep)
look()
open(sync + "/ready", "w").close()
end = time.monotonic() + 60
while not os.path.exists(sync + "/go"):
    assert time.monotonic() < end, "the server does not come back"
    time.sleep(0.01)
look()
os.pwrite(file, b"new", 0)
assert os.pread(file, 9, 0) == b"new"
END
echo four >&3; (echo five >&3)
cat log | tr '\n' ' '; echo
cat a/renamed/1
"#;

const SAID: &str = "123\n5\none two three four five \nnew";

#[test]
fn programs_of_a_user_keep_open_files_and_directories() {
    needs("python3");
    let Some(mut shared) = shared() else { return };
    let sync = local(&shared, "sync", ADA);
    let mut command = shared.weft(ADA, ["run", "--", "bash", "-c", SCRIPT]);
    command.env("TOP", "/weft/all").env("SYNC", &sync).env("TMPDIR", &sync);
    let said = script(&mut shared, command, &sync);
    assert_eq!(said.trim_end(), SAID);

    // Another user cannot see the files or change their names.
    for args in [
        &["ls", "/weft/all/ada"][..],
        &["run", "--", "cat", "/weft/all/ada/log"],
        &["run", "--", "ln", "/weft/all/ada/log", "/weft/all/stolen"],
        &["run", "--", "sh", "-c", "cd /weft/all/ada"],
    ] {
        let refused = shared.weft(BOB, args.iter().copied()).output().expect("weft starts");
        assert!(!refused.status.success(), "{args:?}: {}", shown(&refused));
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(text.contains("ermission denied") || text.contains("can't cd"), "{args:?}: {text}");
    }
    succeeded(
        &mut shared
            .weft(ADA, ["run", "--", "sh", "-c", "echo x >/weft/all/seen && chmod 644 /weft/all/seen"]),
    );
    let linked = shared.weft(BOB, ["run", "--", "ln", "/weft/all/seen", "/weft/all/stolen"]);
    let linked = { linked }.output().expect("weft starts");
    assert!(String::from_utf8_lossy(&linked.stderr).contains("not permitted"), "{}", shown(&linked));
}

#[test]
fn a_mount_of_a_user_keeps_open_files_and_directories() {
    needs("python3");
    if !mounts::possible() || !skip::unless_root("acting for several users") {
        return;
    }
    let device = std::fs::metadata("/dev/fuse").expect("there").permissions();
    if device.mode() & 0o006 != 0o006 {
        skip::skip("users may not open /dev/fuse; run make test, which lets them, or chmod 666 /dev/fuse");
        return;
    }
    // fusermount3 refuses a user without a name.
    accounts::with(&[("weft-ada", ADA)], mount_of_a_user);
}

fn mount_of_a_user() {
    let Some(mut shared) = shared() else { return };
    let (sync, dir) = (local(&shared, "sync", ADA), local(&shared, "mount", ADA));
    let place = dir.to_str().expect("text").to_owned();
    let log = sync.join("log");
    succeeded(&mut shared.weft(ADA, ["mount", "--log", log.to_str().expect("text"), &place]));
    let mounted = mounts::Mounted(dir.clone());
    let mut command = common::isolated("setpriv");
    let uid = ADA.to_string();
    command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "bash", "-c", SCRIPT]);
    command.env("TOP", dir.join("all")).env("SYNC", &sync).env("TMPDIR", &sync).stdin(Stdio::null());
    let said = script(&mut shared, command, &sync);
    assert_eq!(said.trim_end(), SAID);
    mounted.end();
}

#[test]
fn a_mount_of_root_serves_each_user_with_his_own_rights() {
    needs("python3");
    if !mounts::possible() {
        return;
    }
    let Some(mut shared) = shared() else { return };
    let (sync, dir) = (local(&shared, "sync", ADA), local(&shared, "mount", 0));
    let place = dir.to_str().expect("text").to_owned();
    succeeded(&mut shared.weft(0, ["mount", "--allow-other", &place]));
    let mounted = mounts::Mounted(dir.clone());
    let as_user = |uid: u32, program: &[&str]| {
        let (mut command, uid) = (common::isolated("setpriv"), uid.to_string());
        command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups"]).args(program);
        command.env("TOP", dir.join("all")).env("SYNC", &sync).env("TMPDIR", &sync).stdin(Stdio::null());
        command
    };
    let said = script(&mut shared, as_user(ADA, &["bash", "-c", SCRIPT]), &sync);
    assert_eq!(said.trim_end(), SAID);
    let refused = as_user(BOB, &["sh", "-c", "cat \"$TOP/ada/log\""]).output().expect("starts");
    assert!(!refused.status.success(), "{}", shown(&refused));
    mounted.end();
}
