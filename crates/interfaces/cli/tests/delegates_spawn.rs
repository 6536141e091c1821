//! `weft delegate --spawn`: delegates start the program with MPI_Comm_spawn, with MPICH (standard ABI) and Open MPI.

mod common;

use common::{Embedded, WEFT, built, isolate, isolated, needs, root, shown, succeeded, undisturbed, until};
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

/// Number of ranks.
const RANKS: usize = 3;
/// Lengths of the program's pieces, and their number for each rank.
const PIECE: usize = 1000;
const PIECES: usize = 100;
/// Maximum time that a job may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Compiler and launcher of an MPI library.
#[derive(Clone)]
struct Mpi {
    compiler: PathBuf,
    launcher: Vec<PathBuf>,
}

/// Returns the libraries that support MPI_Comm_spawn.
fn supported() -> Vec<Mpi> {
    mpich().into_iter().chain([open_mpi()]).collect()
}

/// Returns MPICH 5 with the standard ABI, `None` if WEFT_SKIP_MPICH skips it.
fn mpich() -> Option<Mpi> {
    if common::skip::requested("WEFT_SKIP_MPICH") {
        return None;
    }
    let dir = isolate::mpich().expect("MPICH is not installed: run `make deps`");
    Some(Mpi { compiler: dir.join("bin/mpicc_abi"), launcher: vec![dir.join("bin/mpiexec")] })
}

fn open_mpi() -> Mpi {
    needs("mpicc.openmpi");
    let launcher = ["mpiexec.openmpi", "--allow-run-as-root", "--oversubscribe"].map(PathBuf::from);
    Mpi { compiler: "mpicc.openmpi".into(), launcher: launcher.into() }
}

fn debian_mpich() -> Mpi {
    needs("mpicc.mpich");
    Mpi { compiler: "mpicc.mpich".into(), launcher: vec!["mpiexec.mpich".into()] }
}

/// A directory that two delegates serve, and the test program.
struct Place {
    dir: tempfile::TempDir,
    mpi: Mpi,
}

impl Place {
    fn new(mpi: Mpi) -> Self {
        built();
        let dir = tempfile::Builder::new().prefix("weft-test-").tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("data")).expect("created");
        let source = root().join("crates/interfaces/cli/tests/programs/spawned.c");
        let mut compiler = Command::new(&mpi.compiler);
        succeeded(compiler.args(["-O1", "-o"]).arg(dir.path().join("spawned")).arg(source));
        Self { dir, mpi }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn file(&self) -> PathBuf {
        self.path("data/file")
    }

    /// Starts delegates that start the test program, which then acts as `act` says.
    fn program(&self, act: &[&str]) -> Started {
        let program = [self.path("spawned"), self.file()].into_iter().chain(act.iter().map(PathBuf::from));
        self.start(&program.collect::<Vec<_>>())
    }

    /// Starts delegates of the directory that start a program.
    fn start(&self, program: &[PathBuf]) -> Started {
        let options = ["delegate", "--no-cluster", "--over"].map(PathBuf::from);
        self.launch(&[&options[..], &[self.path("data")]].concat(), program)
    }

    /// Runs `weft OPTIONS --spawn RANKS -- PROGRAM` twice with the launcher.
    fn launch(&self, options: &[PathBuf], program: &[PathBuf]) -> Started {
        let mut command = isolated(&self.mpi.launcher[0]);
        command.args(&self.mpi.launcher[1..]).args(["-n", "2", WEFT]).args(options);
        command.arg("--job").arg(self.path("job")).args(["--spawn", &RANKS.to_string(), "--"]).args(program);
        command.env("TMPDIR", self.dir.path()).env("WEFT", WEFT).env("STATUS", self.path("status"));
        // A process that remains would keep pipes open.
        let [out, errors] = ["out", "errors"].map(|name| self.path(name));
        let to = |file: &Path| File::create(file).expect("a file");
        command.stdin(Stdio::null()).stdout(to(&out)).stderr(to(&errors));
        Started { child: command.spawn().expect("the launcher starts"), out, errors }
    }

    /// Checks that the ranks have written all bytes through the two delegates.
    #[track_caller]
    fn delegates_were_used(&self) {
        let status = std::fs::read_to_string(self.path("status")).expect("the status during the run");
        let status: Value = serde_json::from_str(&status).expect("JSON");
        let delegates = status["delegates"].as_array().expect("delegates");
        assert_eq!(delegates.len(), 2, "{status}");
        let written: u64 = delegates.iter().filter_map(|delegate| delegate["bytes_written"].as_u64()).sum();
        assert_eq!(written as usize, RANKS * PIECES * PIECE, "{status}");
    }

    /// Checks that each byte is in the file.
    #[track_caller]
    fn is_whole(&self) {
        let bytes = std::fs::read(self.file()).expect("the file");
        assert_eq!(bytes.len(), RANKS * PIECES * PIECE);
        for (at, piece) in bytes.chunks(PIECE).enumerate() {
            let expected = b'a' + (at % RANKS) as u8;
            assert!(piece.iter().all(|byte| *byte == expected), "piece {at}");
        }
    }
}

/// A launcher with delegates.
struct Started {
    child: Child,
    out: PathBuf,
    errors: PathBuf,
}

impl Started {
    /// Waits until the launcher has ended.
    #[track_caller]
    fn ended(mut self) -> Output {
        let status = until(LIMIT, "the job has ended", || self.child.try_wait().expect("a status"));
        self.output(status)
    }

    fn output(&self, status: ExitStatus) -> Output {
        let [stdout, stderr] = [&self.out, &self.errors].map(|file| std::fs::read(file).expect("read"));
        Output { status, stdout, stderr }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
    }
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn delegates_start_the_program_serve_it_and_end_with_it() {
    for mpi in supported() {
        let place = Place::new(mpi);
        let output = place.program(&[]).ended();
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
        place.is_whole();
        place.delegates_were_used();
        let names = std::fs::read_dir(place.path("job")).expect("listed").flatten();
        let left: Vec<_> = names.map(|entry| entry.file_name().into_string().expect("text")).collect();
        assert!(left.iter().all(|name| name == "job.key" || name.ends_with(".log")), "{left:?}");
    }
}

#[test]
fn files_of_weft_need_no_directory() {
    let cluster = Embedded::started();
    for mpi in supported() {
        let place = Place::new(mpi);
        let options = [PathBuf::from("--cluster"), cluster.file(), "delegate".into()];
        let output = place.launch(&options, &[place.path("spawned"), "/weft/file".into()]).ended();
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
        place.delegates_were_used();
        cluster.run(["cp", "/weft/file", place.file().to_str().expect("text")]);
        place.is_whole();
        cluster.run(["rm", "/weft/file"]);
    }
}

#[test]
fn the_exit_code_is_that_of_the_rank_that_failed() {
    for mpi in supported() {
        let place = Place::new(mpi);
        let output = place.program(&["fail"]).ended();
        assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
        assert!(errors(&output).contains("weft: rank 1: exit code 3\n"), "{}", shown(&output));
        place.is_whole();
        // The files about the ranks do not hinder the next program.
        let output = place.program(&[]).ended();
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    }
}

#[test]
fn a_killed_rank_ends_the_others_and_no_byte_is_lost() {
    for mpi in supported() {
        let place = Place::new(mpi);
        let output = place.program(&["die"]).ended();
        assert_eq!(output.status.code(), Some(137), "{}", shown(&output));
        assert!(
            errors(&output).contains("weft: rank 1: exit code 137 (128 + signal 9)\n"),
            "{}",
            shown(&output)
        );
        place.is_whole();
    }
}

/// MPICH's launcher kills the delegates. Open MPI's leaves them the time to write all bytes.
#[test]
fn the_job_ends_if_the_process_that_runs_a_rank_is_killed() {
    for mpi in supported() {
        let place = Place::new(mpi);
        let output = place.program(&["lose"]).ended();
        assert!(!output.status.success(), "{}", shown(&output));
    }
}

#[test]
fn delegates_that_are_stopped_write_all_bytes_and_end_the_program() {
    for mpi in supported() {
        let place = Place::new(mpi);
        let marker = place.path("marker");
        let started = place.program(&["hang", marker.to_str().expect("text")]);
        until(LIMIT, "rank 1 hangs", || marker.exists().then_some(()));
        succeeded(undisturbed().args(["delegate", "stop", "--job"]).arg(place.path("job")));
        let output = started.ended();
        assert!(!output.status.success(), "{}", shown(&output));
        assert!(errors(&output).contains("its delegates were ended before it"), "{}", shown(&output));
        place.is_whole();
    }
}

#[test]
fn a_program_without_mpi_is_refused_after_its_end() {
    for mpi in supported() {
        let place = Place::new(mpi);
        let output = place.start(&["true".into()]).ended();
        assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
        assert!(errors(&output).contains("ended without MPI_Init"), "{}", shown(&output));
        let output = place.start(&["no-such-program".into()]).ended();
        assert_eq!(output.status.code(), Some(127), "{}", shown(&output));
        assert!(errors(&output).contains("no-such-program: No such file"), "{}", shown(&output));
    }
}

#[test]
fn a_library_that_does_not_support_it_is_named_with_a_remedy() {
    let place = Place::new(debian_mpich());
    let output = place.program(&[]).ended();
    assert_eq!(output.status.code(), Some(2), "{}", shown(&output));
    for words in [
        "MPI library /",
        "libmpich.so.12: MPI_Comm_spawn failed: ",
        "; ",
        "weft run --delegates N -- mpiexec",
    ] {
        assert!(errors(&output).contains(words), "{words}: {}", shown(&output));
    }
    assert!(!place.file().exists());
}

#[test]
fn a_library_of_another_launcher_is_refused() {
    for (library, launcher, words) in [
        (open_mpi(), debian_mpich(), "libmpi.so.40: the launcher of this process is that of MPICH; "),
        (debian_mpich(), open_mpi(), "libmpich.so.12: the launcher of this process is that of Open MPI; "),
    ] {
        let place = Place { mpi: launcher, ..Place::new(library) };
        let output = place.program(&[]).ended();
        assert_eq!(output.status.code(), Some(2), "{}", shown(&output));
        assert!(errors(&output).contains(words), "{words}: {}", shown(&output));
    }
}

#[test]
fn wrong_options_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let job = dir.path().join("job");
    let job = job.to_str().expect("text");
    for (args, words) in [
        (&["--job", job, "--spawn", "2"][..], "PROGRAM"),
        (&["--spawn", "2", "--", "true"], "--job"),
        (&["--job", job, "--", "true"], "--spawn"),
        (&["--job", job, "--spawn", "0", "--", "true"], "0 is not in"),
        (
            &["--job", job, "--spawn", "2", "--mpi", "/nonexistent", "--", "true"],
            "MPI library /nonexistent: ",
        ),
        (&["--job", job, "--spawn", "2", "--mpi", "libc.so.6", "--", "true"], "it has no MPI_Init_thread"),
    ] {
        let output = undisturbed().arg("delegate").args(args).output().expect("weft starts");
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", shown(&output));
        assert!(errors(&output).contains(words), "{args:?}: {}", shown(&output));
    }
}
