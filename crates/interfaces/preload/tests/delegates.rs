//! Programs whose files go through I/O delegates: over a directory of the host, and over Weft.

mod support;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::{World, compile, compile_with, delegated, fresh_directory, run, text};

/// Settings of `weft run` under which every program must see the same.
const SETTINGS: [&[&str]; 2] =
    [&["--delegates", "2"], &["--delegates", "3", "--delegate-policy", "first-touch"]];

/// Creates an empty directory, which programs name by its real path.
fn empty(room: &Path, name: &str) -> PathBuf {
    let dir = room.join(name);
    std::fs::create_dir(&dir).expect("an empty directory");
    dir.canonicalize().expect("the directory exists")
}

/// Runs a program on a directory of the host that delegates serve.
fn over(dir: &Path, settings: &[&str], program: &Path) -> Output {
    let mut command = delegated(None);
    command.args(settings).arg("--over").arg(dir).arg("--").arg(program).arg(dir);
    run(&mut command)
}

/// Runs a C program without the library, over a directory through delegates, and over Weft through delegates.
fn everywhere(name: &str) {
    let room = tempfile::tempdir().expect("space for a test");
    let program = compile(name, room.path());
    let plain = run(Command::new(&program).arg(empty(room.path(), "plain")));
    assert!(plain.status.success(), "without the library: {}", text(&plain));
    for settings in SETTINGS {
        let dir = empty(room.path(), settings[1]);
        let output = over(&dir, settings, &program);
        assert!(output.status.success(), "over a directory, {settings:?}: {}", text(&output));
    }
    let world = World::new();
    let dir = fresh_directory(&world, name);
    let mut command = delegated(Some(&world));
    let output = run(command.args(SETTINGS[0]).arg("--").arg(&program).arg(dir));
    assert!(output.status.success(), "over Weft: {}", text(&output));
}

macro_rules! programs {
    ($($name:ident),*) => { $(
        #[test]
        fn $name() {
            everywhere(concat!(stringify!($name), ".c"));
        }
    )* };
}
programs!(
    delegates,
    descriptors,
    names,
    directories,
    streams,
    processes,
    locks,
    shared_locks,
    limits,
    shared_positions,
    wide_streams,
    bad_pointers,
    flags,
    transfers,
    libaio
);

#[test]
fn shared_writable_mappings_are_refused_or_written_back() {
    let room = tempfile::tempdir().expect("space for a test");
    let program = compile("memory.c", room.path());
    for (name, settings) in [("refused", None), ("written", Some("writeback"))] {
        let dir = empty(room.path(), name);
        let mut command = delegated(None);
        command.args(SETTINGS[0]).arg("--over").arg(&dir).arg("--").arg(&program).arg(&dir);
        command.env("WEFT_TEST_SERVED", "1");
        match settings {
            Some(value) => command.env("WEFT_MMAP_SHARED", value),
            None => command.env("WEFT_TEST_REFUSED", "1"),
        };
        let output = run(&mut command);
        let shown = text(&output);
        assert!(output.status.success(), "{name}: {shown}");
        // A refusal says what to do.
        assert_eq!(
            shown.contains("or set WEFT_MMAP_SHARED=writeback"),
            settings.is_none(),
            "{name}: {shown}"
        );
    }
}

#[test]
fn bytes_go_through_delegates_and_reach_the_file() {
    let room = tempfile::tempdir().expect("space for a test");
    let dir = empty(room.path(), "served");
    let script = "dd if=/dev/zero of=file bs=1000 count=3 status=none; printf end >> file; \
                  wc -c < file; \"$WEFT\" delegate status --json";
    let mut command = delegated(None);
    command.env("WEFT", support::weft()).args(["--delegates", "2", "--over"]).arg(&dir);
    let output = run(command.args(["--", "sh", "-c", script]).current_dir(&dir));
    let shown = text(&output);
    assert!(output.status.success() && shown.contains("3003\n"), "{shown}");
    assert!(shown.contains("\"bytes_written\": 3000"), "{shown}");
    let written = std::fs::read(dir.join("file")).expect("the program wrote it");
    assert!(written.len() == 3003 && written.ends_with(b"\0end"), "{} bytes", written.len());
}

#[test]
fn links_relative_paths_and_foreign_files_are_told_apart() {
    let room = tempfile::tempdir().expect("space for a test");
    let (dir, other) = (empty(room.path(), "served"), empty(room.path(), "other"));
    std::os::unix::fs::symlink(dir.join("target"), other.join("link")).expect("a link");
    let script = "echo one > link; cd ../served; cat target; echo two >> ../served/./target; cat ../other/link; \
                  echo foreign > ../other/file; cat ../other/file";
    let mut command = delegated(None);
    command.args(["--delegates", "1", "--over"]).arg(&dir).args(["--", "sh", "-c", script]);
    let output = run(command.current_dir(&other));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "one\none\ntwo\nforeign\n", "{}", text(&output));
}

#[test]
fn a_full_file_system_fails_the_program() {
    let room = tempfile::tempdir().expect("space for a test");
    let program = compile("full_disk.c", room.path());
    let dir = empty(room.path(), "small");
    let script = "mount -t tmpfs -o size=2m weft-test \"$1\" || exit 77; shift; exec \"$@\"";
    let inner = delegated(None);
    let mut command = Command::new("unshare");
    support::isolate::isolate(&mut command);
    command.args(["-m", "sh", "-c", script, "sh"]).arg(&dir).arg(inner.get_program()).args(inner.get_args());
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.args(["--delegates", "2", "--over"]).arg(&dir).arg("--").arg(&program).arg(&dir);
    let output = run(&mut command);
    if !output.status.success() && String::from_utf8_lossy(&output.stderr).contains("unshare:")
        || output.status.code() == Some(77)
    {
        support::skip::skip(format_args!("this user may not mount a file system: {}", text(&output)));
        return;
    }
    assert!(output.stdout.ends_with(b"no space\n"), "{}", text(&output));
}

/// Compilers of MPI and the launchers of their programs.
const MPICH: (&str, &[&str]) = ("mpicc.mpich", &["mpiexec.mpich"]);
const OPEN_MPI: (&str, &[&str]) =
    ("mpicc.openmpi", &["mpiexec.openmpi", "--allow-run-as-root", "--oversubscribe"]);

/// Runs an MPI program of four ranks under `weft run`.
fn ranks(world: Option<&World>, settings: &[&str], mpi: (&str, &[&str]), program: &Path) -> Command {
    let mut command = delegated(world);
    command.args(settings).arg("--").args(mpi.1).args(["-n", "4"]).arg(program);
    command
}

/// Runs a program over a directory and over Weft. `arguments` follow the directory, `expected` is its output.
fn check_mpi(mpi: (&str, &[&str]), name: &str, arguments: &[&str], expected: &str) {
    if support::skip::without(mpi.0) {
        return;
    }
    let room = tempfile::tempdir().expect("space for a test");
    let program = compile_with(mpi.0, name, room.path());
    for settings in SETTINGS {
        let dir = empty(room.path(), settings[1]);
        let text_of_dir = dir.to_str().expect("plain text");
        let settings: Vec<&str> = settings.iter().copied().chain(["--over", text_of_dir]).collect();
        let mut command = ranks(None, &settings, mpi, &program);
        let output = run(command.arg(&dir).args(replaced(arguments, settings[1])));
        assert!(
            output.status.success() && output.stdout == expected.as_bytes(),
            "{settings:?}: {}",
            text(&output)
        );
    }
    let world = World::new();
    let dir = fresh_directory(&world, name);
    let mut command = ranks(Some(&world), SETTINGS[0], mpi, &program);
    let output = run(command.arg(dir).args(replaced(arguments, SETTINGS[0][1])));
    assert!(output.status.success() && output.stdout == expected.as_bytes(), "over Weft: {}", text(&output));
}

/// Replaces `N` by the number of delegates.
fn replaced(arguments: &[&str], delegates: &str) -> Vec<String> {
    arguments.iter().map(|argument| if *argument == "N" { delegates } else { argument }.to_owned()).collect()
}

#[test]
fn mpi_io_of_mpich_goes_through_delegates() {
    check_mpi(MPICH, "mpi_delegates.c", &["N", "65536"], "all bytes are right\n");
}

#[test]
fn mpi_io_of_open_mpi_goes_through_delegates() {
    check_mpi(OPEN_MPI, "mpi_delegates.c", &["N", "65536"], "all bytes are right\n");
}

#[test]
fn collective_calls_are_direct_unless_the_program_asks_for_two_phases() {
    check_mpi(MPICH, "mpi_collective.c", &["disable", "-", "-"], "0 bytes are wrong\n");
    check_mpi(MPICH, "mpi_collective.c", &["enable", "-", "enable"], "0 bytes are wrong\n");
    check_mpi(OPEN_MPI, "mpi_collective.c", &["disable", "-", "-"], "0 bytes are wrong\n");
}

#[test]
fn collective_hdf5_goes_through_delegates() {
    check_mpi(("h5pcc.mpich", MPICH.1), "hdf5_delegates.c", &[], "0 values are wrong\n");
}
