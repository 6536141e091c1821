//! The C interface from C and C++, against real servers: the header compiles without a warning and matches the library,
//! and the calls behave as it says.

#[path = "../../preload/tests/support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use support::isolate::isolate;
use tempfile::TempDir;
use weft_config::{Cluster, EmbeddedOptions, Key};
use weft_env::real::{RealEnv, block_on};
use weft_server::{Hooks, Join, Limits, Server, ServerConfig, ServerHandle, TargetConfig, metadata};

/// Installation in a temporary directory.
struct Installed {
    dir: TempDir,
}

impl Installed {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("install.sh");
        run(Command::new(script).arg("--prefix").arg(dir.path()).arg("--from").arg(built()));
        Self { dir }
    }

    fn lib(&self) -> PathBuf {
        self.dir.path().join("lib")
    }

    /// Compiles a program; `with` is a compiler and its options.
    fn compile(&self, with: &[&str], source: &Path) -> PathBuf {
        let program = self.dir.path().join(source.file_name().expect("a name")).with_extension("run");
        let mut command = Command::new(with[0]);
        command.args(&with[1..]).args(["-Wall", "-Wextra", "-Werror", "-pedantic"]);
        command.arg("-I").arg(self.dir.path().join("include")).arg(source).arg("-o").arg(&program);
        command.arg("-L").arg(self.lib()).arg(format!("-Wl,-rpath,{}", self.lib().display()));
        run(command.args(["-lweft", "-lpthread"]));
        program
    }
}

/// Returns the directory of the libraries that cargo built for this test.
fn built() -> PathBuf {
    let deps = std::env::current_exe().expect("this program").parent().expect("its directory").to_owned();
    let near = [deps.parent().expect("the profile's directory").to_owned(), deps];
    // The tests' own build is in `deps`; libraries beside it from a build of the workspace may be older.
    let newest = near.into_iter().filter_map(|dir| {
        let built = std::fs::metadata(dir.join("libweft.so")).and_then(|meta| meta.modified()).ok()?;
        Some((built, dir))
    });
    newest.max().expect("libweft.so beside the tests").1
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}

/// Builds a compiled program in the environment of this test (see [`isolate()`]).
fn isolated(program: PathBuf) -> Command {
    let mut command = Command::new(program);
    isolate(&mut command);
    command
}

const C99: &[&str] = &["cc", "-std=c99", "-D_GNU_SOURCE"];

#[test]
fn every_call_rejects_null() {
    let installed = Installed::new();
    run(&mut isolated(installed.compile(C99, &source("tests/errors.c"))));
}

#[test]
fn the_header_is_cxx() {
    let installed = Installed::new();
    run(&mut isolated(installed.compile(&["c++", "-std=c++11"], &source("tests/cxx.cc"))));
}

#[test]
fn header_and_library_agree() {
    let header = std::fs::read_to_string(source("include/weft.h")).expect("the header");
    let mut comment = false;
    let code: String = header
        .lines()
        .filter(|line| {
            comment |= line.trim_start().starts_with("/*");
            let kept = !comment;
            comment &= !line.contains("*/");
            kept
        })
        .flat_map(|line| [line, "\n"])
        .collect();
    let declared: BTreeSet<&str> = code
        .match_indices("weft_")
        .filter_map(|(at, _)| {
            let name = &code[at..];
            let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
            name[end..].starts_with('(').then_some(&name[..end])
        })
        .collect();
    let symbols = run(Command::new("nm").args(["-D", "--defined-only"]).arg(built().join("libweft.so")));
    let exported: BTreeSet<&str> =
        symbols.lines().filter_map(|line| line.split_once(" T ")).map(|(_, name)| name).collect();
    assert_eq!(declared, exported);
    assert!(declared.len() > 40, "{declared:?}");
}

#[test]
fn pkg_config_flags_compile_a_program() {
    let installed = Installed::new();
    let file = std::fs::read_to_string(installed.lib().join("pkgconfig/weft.pc")).expect("weft.pc");
    assert!(file.contains(&format!("prefix={}\n", installed.dir.path().display())), "{file}");
    assert!(file.contains(&format!("Version: {}\n", env!("CARGO_PKG_VERSION"))), "{file}");
    assert!(!file.contains('@'), "{file}");
}

#[test]
fn the_calls_behave_as_the_header_says() {
    let (installed, servers) = (Installed::new(), Servers::start());
    let program = installed.compile(C99, &source("tests/files.c"));
    let out = run(isolated(program).arg(&servers.cluster.file));
    assert_eq!(out, "all calls did what weft.h says\n");
    servers.stop();
}

#[test]
fn the_example_writes_a_checkpoint() {
    let (installed, servers) = (Installed::new(), Servers::start());
    let program = installed.compile(C99, &source("../../../examples/c/checkpoint.c"));
    let out = run(isolated(program).env("WEFT_CLUSTER", &servers.cluster.file));
    // The order of the two targets differs from file to file.
    let both = ["2 3", "3 2"].map(|targets| format!("checkpoint: 12034048 bytes on 2 targets: {targets}\n"));
    assert!(both.contains(&out), "{out}");
    servers.stop();
}

#[test]
fn bytes_go_through_the_delegates_of_the_job() {
    let (installed, world) = (Installed::new(), support::World::new());
    let program = installed.compile(C99, &source("tests/delegates.c"));
    let script = "\"$PROGRAM\" && \"$WEFT\" delegate status --json && cat /weft/shared";
    let mut command = support::delegated(Some(&world));
    command.args(["--delegates", "2", "--", "sh", "-c", script]);
    let output = support::run(command.env("PROGRAM", program).env("WEFT", support::weft()));
    let shown = support::text(&output);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.starts_with("both see the bytes of the other\n"), "{shown}");
    let status = text.split("\"bytes_written\": ").skip(1);
    let counts = status.map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default());
    let written: u64 = counts.map(|count| count.parse::<u64>().expect("a number")).sum();
    // 200 records of the C interface; the POSIX calls of the program write 5 bytes.
    assert!(written >= 200 * 4700, "{written} bytes: {shown}");
    assert!(text.ends_with("last"), "{shown}");
}

/// Servers of an embedded cluster, inside this process.
struct Servers {
    cluster: Cluster,
    running: Vec<ServerHandle<RealEnv>>,
    _state: TempDir,
}

impl Servers {
    fn start() -> Self {
        let state = tempfile::tempdir().expect("a temporary directory");
        let cluster =
            weft_config::write_embedded(&EmbeddedOptions::new(state.path().join("weft"))).expect("a cluster");
        let Key::Cluster(key) = weft_config::read_key(&cluster.key_file).expect("the key") else {
            panic!("the cluster's key is a user's key")
        };
        let secret = key.secret();
        let start = |(id, server): (_, &weft_config::Server)| {
            let target = |target: &weft_config::Target| TargetConfig {
                id: target.id,
                settings: weft_core::TargetSettings::default(),
                class: target.class.clone(),
                path: target.path.clone(),
                module: weft_store::target::Module::Buffered,
                queue_depth: target.queue_depth,
                leases: target.leases,
                integrity: weft_core::Integrity::Off,
                emulate: None,
                ibridge: None,
                cache: None,
            };
            let config = ServerConfig {
                levels: weft_wire::Levels::KNOWN,
                server: id,
                name: server.name.clone(),
                cluster: cluster.name.clone(),
                addresses: server.addresses.clone(),
                secret: secret.clone(),
                targets: server.targets.iter().map(target).collect(),
                metadata: server
                    .metadata
                    .as_ref()
                    .map(|found| metadata::Config::new(found.path.clone(), cluster.map())),
                metadata_server: Some(cluster.map().server(cluster.map().metadata).clone()),
                limits: Limits::default(),
                security: weft_wire::hello::Security::Mac,
                idle_exit: None,
                sample: None,
                registers: false,
                join: Join::Format,
                hooks: Hooks { log: Arc::new(|line| eprintln!("{line}")), ..Hooks::none() },
            };
            block_on(Server::start(RealEnv::new(), config)).expect("a server")
        };
        let running = cluster.numbered().map(start).collect();
        Self { cluster, running, _state: state }
    }

    fn stop(self) {
        self.running.iter().for_each(|server| block_on(server.stop()));
    }
}
