//! A cluster of root on Unix sockets, which all users of this host share.

use super::{WEFT, built, isolated, needs, skip, succeeded, undisturbed};
use std::fmt::Write as _;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The cluster. Its server process is killed with the test. All users may create files in `/weft/all`.
pub struct SharedCluster {
    dir: tempfile::TempDir,
    serve: Option<Child>,
}

impl SharedCluster {
    /// Starts the cluster: one server for each part of `targets`, the first with the metadata, all in one process. Each part
    /// lists the targets of its server, with the settings of each. Returns `None` unless this test runs as root,
    /// because only root can act for several users.
    pub fn new(targets: &[&[&str]]) -> Option<Self> {
        if !skip::unless_root("acting for several users") {
            return None;
        }
        built();
        needs("setpriv");
        let dir = tempfile::Builder::new().prefix("weft-test-").tempdir().expect("a directory");
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).expect("mode");
        let at = dir.path().display();
        let mut text = format!("[cluster]\nname = \"shared\"\nkey_file = \"{at}/key\"\n");
        let mut id = 0;
        for (number, targets) in targets.iter().enumerate() {
            write!(text, "[[server]]\nname = \"s{number}\"\naddress = \"unix:{at}/s{number}.sock\"\n")
                .expect("text");
            if number == 0 {
                write!(text, "[server.metadata]\npath = \"{at}/metadata\"\n").expect("text");
            }
            for settings in *targets {
                write!(
                    text,
                    "[[server.target]]\nid = {id}\nclass = \"hdd\"\npath = \"{at}/target{id}\"\n{settings}\n"
                )
                .expect("text");
                id += 1;
            }
        }
        std::fs::write(dir.path().join("cluster.toml"), text).expect("written");
        succeeded(undisturbed().args(["key", "make"]).arg(dir.path().join("key")));
        let mut shared = Self { dir, serve: None };
        shared.start();
        succeeded(&mut shared.weft(0, ["mkdir", "-m", "1777", "/weft/all"]));
        Some(shared)
    }

    /// Returns a path in the directory of the cluster.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns a command that becomes this user; the program and its arguments follow.
    pub fn as_user(&self, uid: u32) -> Command {
        let mut command = isolated("setpriv");
        let uid = uid.to_string();
        command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups"]);
        command.env("HOME", "/nonexistent").stdin(Stdio::null());
        command
    }

    /// Returns `weft` of a user on this cluster.
    pub fn weft<'a>(&self, uid: u32, args: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = self.as_user(uid);
        command.args([WEFT, "--cluster"]).arg(self.path("cluster.toml")).args(args);
        command
    }

    /// Starts the servers, and waits until they are ready.
    pub fn start(&mut self) {
        let mut serve = self.weft(0, ["serve", "--format", "--announce"]);
        let mut serve = serve.stdout(Stdio::piped()).spawn().expect("weft starts");
        let mut ready = [0; 5];
        serve.stdout.as_mut().expect("a pipe").read_exact(&mut ready).expect("ready");
        assert!(ready.starts_with(b"ready"));
        self.serve = Some(serve);
    }

    /// Kills the servers.
    pub fn kill(&mut self) {
        if let Some(mut serve) = self.serve.take() {
            serve.kill().expect("our own child");
            serve.wait().expect("our own child");
        }
    }
}

impl Drop for SharedCluster {
    fn drop(&mut self) {
        self.kill();
    }
}
