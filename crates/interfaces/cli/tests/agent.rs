//! `weft agent`: replicas are copied and files moved in the background, by processes that tests kill.

mod common;

use common::{Embedded, isolated, shown, until};
use serde_json::Value;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
/// Bytes of the file. A replica is filled in windows of 8 MiB.
const LEN: usize = 40 * MIB;
const LIMIT: Duration = Duration::from_secs(120);

/// A home directory, a file, and a plan of its replica with both halves exchanged.
struct Setting {
    dir: tempfile::TempDir,
}

/// An agent in the foreground, which is killed at the end of the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Running {
    fn kill(&mut self) {
        self.0.kill().expect("a child");
        self.0.wait().expect("ends");
    }
}

impl Setting {
    fn new() -> Self {
        common::built();
        let this = Self { dir: tempfile::tempdir().expect("a directory") };
        std::fs::write(this.path("field"), contents()).expect("written");
        let field = this.path("field").canonicalize().expect("a path");
        std::fs::write(this.path("replicas.toml"), plan(&field.display().to_string())).expect("written");
        this
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Path of a file of the agent.
    fn agent(&self, name: &str) -> PathBuf {
        self.path("home/.local/state/weft/agent").join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = isolated(common::WEFT);
        command.args(arguments).env("HOME", self.path("home")).stdin(Stdio::null());
        for name in ["XDG_STATE_HOME", "XDG_CONFIG_HOME", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"]
        {
            command.env_remove(name);
        }
        command
    }

    fn weft(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("weft runs")
    }

    #[track_caller]
    fn succeeds(&self, arguments: &[&str]) -> String {
        common::succeeded(&mut self.command(arguments))
    }

    /// Starts an agent in the foreground and waits until it runs.
    fn begin(&self, arguments: &[&str]) -> Running {
        let mut command = self.command(&["agent", "run"]);
        let child = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let running = Running(child.expect("weft starts"));
        until(LIMIT, "the agent runs", || (self.status()["pid"] == running.0.id()).then_some(()));
        running
    }

    fn apply(&self, options: &[&str]) -> String {
        let plan = self.path("replicas.toml").display().to_string();
        self.succeeds(&[&["replicate", "apply", "--background"], options, &[&plan]].concat())
    }

    fn status(&self) -> Value {
        let output = self.weft(&["agent", "status", "--json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", shown(&output)))
    }

    /// Returns the progress when a part is copied.
    #[track_caller]
    fn copying(&self) -> Value {
        until(LIMIT, "a part is copied", || {
            let current = self.status()["current"].clone();
            let (done, total) = (current["done_bytes"].as_u64()?, current["total_bytes"].as_u64()?);
            (done > 0 && done < total).then_some(current)
        })
    }

    fn wait_until_empty(&self) {
        let is_empty = || (self.status()["jobs"] == Value::Array(vec![])).then_some(());
        until(LIMIT, "the queue is empty", is_empty);
    }

    /// Returns the state of the replica.
    fn replica(&self) -> String {
        let text = self.succeeds(&["replicate", "list", "--json"]);
        let state: Value = serde_json::from_str(text.lines().next().expect("a replica")).expect("JSON");
        state["state"].as_str().expect("a state").to_owned()
    }

    /// Bytes of the replica in the order of the file.
    fn replicated(&self) -> Vec<u8> {
        let inode = self.path("field").metadata().expect("attributes").ino();
        let mut data = std::fs::read(self.path(&format!(".weft/replicas/{inode:x}.data"))).expect("the data");
        data.rotate_left(LEN / 2);
        data
    }

    /// Leaves a job that a killed agent has begun.
    fn interrupted(&self) {
        let mut agent = self.begin(&["--rate", "16M"]);
        self.apply(&["--rate", "64M"]);
        self.copying();
        agent.kill();
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        let stopped = self.weft(&["agent", "stop"]);
        if !std::thread::panicking() {
            assert!(stopped.status.success(), "{}", shown(&stopped));
        } else {
            eprintln!("{}", std::fs::read_to_string(self.agent("log")).unwrap_or_default());
        }
    }
}

fn contents() -> Vec<u8> {
    (0..LEN).map(|at| (at / 4096 * 7 + at % 251) as u8).collect()
}

/// A plan of the replica of `path` with both halves exchanged.
fn plan(path: &str) -> String {
    let half = LEN / 2;
    format!(
        "version = 1\ntrace = \"t\"\npolicy = \"best\"\n[[replica]]\npath = {path:?}\nranks = 1\nreason = \"\"\n\
         now_s = 1.0\nrun_s = 1.0\ncopy_s = 0.0\nmapping = [\"0+{half}>{half}\", \"{half}+{half}>0\"]\n"
    )
}

#[test]
fn a_job_survives_the_kill_of_its_agent() {
    let setting = Setting::new();
    setting.interrupted();
    let status = setting.status();
    assert_eq!((&status["running"], &status["current"]), (&false.into(), &Value::Null), "{status}");
    let job = &status["jobs"][0];
    assert_eq!((&job["kind"], &job["state"]), (&"replicate-fill".into(), &"waiting".into()), "{status}");
    assert_eq!(job["attempts"], 0, "a kill is no failed attempt");
    assert_eq!(setting.replica(), "incomplete");
    // An orderly end keeps the job, too.
    let agent = setting.begin(&["--rate", "4M"]);
    setting.copying();
    setting.succeeds(&["agent", "stop"]);
    let status = setting.status();
    assert_eq!((&status["running"], &status["jobs"][0]["attempts"]), (&false.into(), &0.into()), "{status}");
    drop(agent);
    setting.succeeds(&["agent", "run", "--once"]);
    assert_eq!(setting.status()["jobs"], Value::Array(vec![]));
    assert_eq!(setting.replica(), "valid");
    assert!(setting.replicated() == contents());
    assert!(setting.succeeds(&["replicate", "verify"]).contains("no difference"));
    // The same request again is done at once.
    setting.apply(&["--rate", "1G"]);
    setting.wait_until_empty();
    assert_eq!(setting.replica(), "valid");
}

#[test]
fn a_file_that_is_written_during_the_copy_is_copied_again() {
    let setting = Setting::new();
    let _agent = setting.begin(&[]);
    setting.apply(&["--rate", "16M"]);
    setting.copying();
    // The first bytes are copied already.
    let file = std::fs::OpenOptions::new().write(true).open(setting.path("field")).expect("opened");
    file.write_all_at(b"changed", 5).expect("written");
    file.sync_all().expect("synced");
    let mut expected = contents();
    expected[5..12].copy_from_slice(b"changed");
    let is_valid = || match setting.replica().as_str() {
        "incomplete" => None,
        state => Some(state.to_owned()),
    };
    assert_eq!(until(LIMIT, "the copy is complete", is_valid), "valid");
    assert!(setting.replicated() == expected, "a replica is valid only with all bytes of the file");
    setting.wait_until_empty();
}

#[test]
fn one_agent_runs_for_each_user() {
    let setting = Setting::new();
    let agent = setting.begin(&[]);
    let second = setting.weft(&["agent", "run"]);
    let text = shown(&second);
    assert_eq!(second.status.code(), Some(3), "{text}");
    assert!(text.contains(&format!("another agent runs: process {} on ", agent.0.id())), "{text}");
    assert!(text.contains("weft agent stop"), "{text}");
    assert!(setting.succeeds(&["agent", "start"]).contains("runs already"));
    let stopped = setting.succeeds(&["agent", "stop"]);
    assert!(stopped.contains(&format!("stopped process {}", agent.0.id())), "{stopped}");
    assert_eq!(setting.status()["running"], false);
    assert!(setting.succeeds(&["agent", "stop"]).contains("no agent runs"));
    // Detached, until it is stopped.
    let started = setting.succeeds(&["agent", "start"]);
    assert!(started.contains("the agent is process "), "{started}");
    assert_eq!(setting.status()["running"], true);
}

#[test]
fn a_damaged_job_is_set_aside_and_never_executed() {
    let setting = Setting::new();
    setting.interrupted();
    let job = std::fs::read_to_string(setting.agent("queue/1.toml")).expect("the job");
    let other = job.replace("version = 1", "version = 9");
    std::fs::write(setting.agent("queue/8.toml"), &other).expect("written");
    std::fs::write(setting.agent("queue/9.toml"), &job[..job.len() / 2]).expect("written");
    let output = setting.weft(&["agent", "run", "--once"]);
    let text = shown(&output);
    assert!(output.status.success() && text.contains("8.toml: it has version 9"), "{text}");
    assert!(text.contains("9.toml") && text.contains("was moved to"), "{text}");
    assert_eq!(setting.replica(), "valid", "the other job is done");
    assert_eq!(std::fs::read_to_string(setting.agent("damaged/8.toml")).expect("kept"), other);
    assert!(std::fs::read_dir(setting.agent("queue")).expect("a folder").next().is_none());
    let output = setting.weft(&["agent", "status"]);
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(shown(&output).contains("damaged, not executed: it has version 9"), "{}", shown(&output));
    for name in ["damaged/8.toml", "damaged/9.toml"] {
        std::fs::remove_file(setting.agent(name)).expect("removed");
    }
    setting.succeeds(&["agent", "status"]);
}

#[test]
fn a_cancelled_job_ends_and_its_agent_goes_on() {
    let setting = Setting::new();
    let _agent = setting.begin(&["--rate", "4M"]);
    setting.apply(&[]);
    let current = setting.copying();
    let id = current["job"].to_string();
    assert!(setting.succeeds(&["agent", "cancel", &id]).contains(&format!("job {id} is cancelled")));
    until(LIMIT, "the copy ends", || setting.status()["current"].is_null().then_some(()));
    let status = setting.status();
    assert_eq!((&status["running"], &status["jobs"]), (&true.into(), &Value::Array(vec![])), "{status}");
    assert_eq!(setting.replica(), "incomplete");
    let output = setting.weft(&["agent", "cancel", &id]);
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(shown(&output).contains("it is not in the queue"), "{}", shown(&output));
    assert_eq!(setting.weft(&["agent", "cancel", "x"]).status.code(), Some(2));
    assert!(setting.succeeds(&["agent", "cancel", "all"]).contains("no such job"));
}

#[test]
fn the_rate_bounds_a_copy() {
    const RATE: f64 = 16.0 * MIB as f64;
    const WINDOW: f64 = 8.0 * MIB as f64;
    let setting = Setting::new();
    let _agent = setting.begin(&["--rate", "16M"]);
    let begin = Instant::now();
    // The smaller one of both rates.
    setting.apply(&["--rate", "1G"]);
    let mut samples = 0;
    until(LIMIT, "the queue is empty", || {
        let status = setting.status();
        let current = &status["current"];
        if let (Some(done), Some(elapsed)) = (current["done_bytes"].as_f64(), current["elapsed_s"].as_f64())
            && done > 0.0
        {
            samples += 1;
            // A window is copied before the pause that it causes.
            assert!(done <= RATE * 1.25 * elapsed + WINDOW, "{current}");
            assert_eq!(current["rate_bytes_per_s"].as_f64(), Some(RATE), "{current}");
        }
        (status["jobs"] == Value::Array(vec![])).then_some(())
    });
    let (whole, took) = (LEN as f64, begin.elapsed().as_secs_f64());
    assert!(samples > 2, "{samples} samples");
    assert!(took >= whole / RATE * 0.8, "{whole} bytes in {took} s");
}

#[test]
fn a_failed_job_is_kept_until_it_is_tried_again() {
    let setting = Setting::new();
    setting.interrupted();
    std::fs::rename(setting.path("field"), setting.path("elsewhere")).expect("renamed");
    let output = setting.weft(&["agent", "run", "--once", "--retry-pause", "1ms"]);
    let text = shown(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("attempt 5 of 5") && text.contains("No such file"), "{text}");
    let job = setting.status()["jobs"][0].clone();
    assert_eq!((&job["state"], &job["attempts"]), (&"failed".into(), &5.into()), "{job}");
    assert!(job["last_error"].as_str().expect("an error").contains("field"), "{job}");
    let output = setting.weft(&["agent", "status"]);
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(shown(&output).contains("`weft agent retry 1` tries again"), "{}", shown(&output));
    std::fs::rename(setting.path("elsewhere"), setting.path("field")).expect("renamed");
    assert!(setting.succeeds(&["agent", "retry", "all"]).contains("job 1 is tried again"));
    setting.wait_until_empty();
    assert_eq!(setting.replica(), "valid");
    until(LIMIT, "the agent ends", || (setting.status()["running"] == false).then_some(()));
}

#[test]
fn a_run_starts_the_agent_for_queued_jobs() {
    let setting = Setting::new();
    setting.interrupted();
    let status = setting.succeeds(&["status"]);
    assert!(status.contains("queue of the agent: 1 waiting; no agent runs"), "{status}");
    setting.succeeds(&["run", "--no-cluster", "--no-replicas", "--", "true"]);
    assert_eq!(setting.status()["running"], false);
    assert_eq!(setting.replica(), "incomplete");
    let output = setting.weft(&["run", "--no-cluster", "--", "true"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", shown(&output));
    setting.wait_until_empty();
    assert_eq!(setting.replica(), "valid");
    // A changed file is copied again.
    std::fs::write(setting.path("field"), vec![7; LEN]).expect("written");
    assert_eq!(setting.replica(), "outdated");
    setting.succeeds(&["replicate", "sync", "--background", "--rate", "1G"]);
    setting.wait_until_empty();
    assert_eq!(setting.replica(), "valid");
    assert!(setting.replicated().iter().all(|byte| *byte == 7));
}

#[test]
fn a_job_waits_for_programs_that_use_its_file() {
    const PROGRAM: &str = "
import os, sys, time
path = sys.argv[1]
fd = os.open(path, os.O_RDWR)
os.pwrite(fd, b'written', 3)
open(path + '.ready', 'w').close()
while not os.path.exists(path + '.go'):
    time.sleep(0.01)";
    let setting = Setting::new();
    setting.apply(&["--rate", "1G"]);
    setting.wait_until_empty();
    let _agent = setting.begin(&["--retry-pause", "1ms"]);
    let field = setting.path("field").display().to_string();
    let mut program = setting
        .command(&["run", "--no-cluster", "--", "python3", "-c", PROGRAM, &field])
        .spawn()
        .expect("starts");
    until(LIMIT, "the program has written", || setting.path("field.ready").exists().then_some(()));
    setting.succeeds(&["replicate", "sync", "--background", "--rate", "1G"]);
    let job = until(LIMIT, "the job waits", || {
        let job = setting.status()["jobs"][0].clone();
        job["last_error"].is_string().then_some(job)
    });
    assert_eq!(job["attempts"], 0, "{job}");
    assert!(job["last_error"].as_str().expect("text").contains("programs use it"), "{job}");
    std::fs::write(setting.path("field.go"), "").expect("written");
    assert!(program.wait().expect("ends").success());
    setting.wait_until_empty();
    let mut expected = contents();
    expected[3..10].copy_from_slice(b"written");
    assert!(std::fs::read(setting.path("field")).expect("read") == expected);
    assert!(setting.replicated() == expected);
    assert_eq!(setting.replica(), "valid");
}

/// A cluster with a file `/weft/d/f`.
fn cluster_with_a_file() -> Embedded {
    let cluster = Embedded::started();
    std::fs::write(cluster.local("bytes"), contents()).expect("a local file");
    cluster.weft(["mkdir", "/weft/d"]);
    cluster.weft(["cp", &cluster.local("bytes").display().to_string(), "/weft/d/f"]);
    cluster
}

fn agent_status(cluster: &Embedded) -> Value {
    serde_json::from_str(&cluster.weft(["agent", "status", "--json"])).expect("JSON")
}

/// Starts the agent in the foreground.
fn begin_agent(cluster: &Embedded, options: &[&str]) -> Running {
    let mut command = cluster.command(["agent", "run"]);
    command.args(options).stdout(Stdio::null()).stderr(Stdio::null());
    let running = Running(command.spawn().expect("weft starts"));
    until(LIMIT, "the agent runs", || (agent_status(cluster)["pid"] == running.0.id()).then_some(()));
    running
}

/// Bytes of `/weft/d/f`.
fn bytes_on_weft(cluster: &Embedded) -> Vec<u8> {
    let back = cluster.local("back");
    cluster.weft(["cp", "/weft/d/f", &back.display().to_string()]);
    std::fs::read(back).expect("there")
}

#[test]
fn a_replica_on_weft_survives_the_kill_of_its_agent_and_is_synchronized_in_the_background() {
    let cluster = cluster_with_a_file();
    let status = || agent_status(&cluster);
    let done = || until(LIMIT, "no job is left", || (status()["jobs"] == Value::Array(vec![])).then_some(()));
    let replica = || -> Value {
        let text = cluster.weft(["replicate", "list", "--json"]);
        text.lines().next().map_or(Value::Null, |line| serde_json::from_str(line).expect("JSON"))
    };
    let planned = cluster.local("replicas.toml");
    std::fs::write(&planned, plan("/weft/d/f")).expect("written");
    let planned = planned.display().to_string();
    let refused = cluster.fails(2, ["replicate", "apply", "--only", "/weft/d/other", &planned]);
    assert!(refused.contains("no replica of /weft/d/other"), "{refused}");
    let mut agent = begin_agent(&cluster, &["--rate", "8M"]);
    let said = cluster.weft(["replicate", "apply", "--background", &planned]);
    assert!(said.contains("/weft/d/f: job 1 of the agent"), "{said}");
    until(LIMIT, "a part is copied", || (status()["current"]["done_bytes"].as_u64()? > 0).then_some(()));
    agent.kill();
    assert_eq!(status()["jobs"][0]["kind"], "replicate-apply");
    assert_ne!(replica()["state"], "valid");
    assert!(bytes_on_weft(&cluster) == contents());
    let _agent = begin_agent(&cluster, &["--rate", "1G", "--retry-pause", "1s"]);
    done();
    assert_eq!(replica()["state"], "valid");
    let write = "f = open('/weft/d/f', 'r+b'); f.seek(5); f.write(b'newer'); f.close()";
    cluster.run(["python3", "-c", write]);
    assert_eq!(replica()["state"], "written");
    let mut expected = contents();
    expected[5..10].copy_from_slice(b"newer");
    cluster.weft(["replicate", "sync", "--background", "/weft/d/f"]);
    done();
    assert_eq!(replica()["state"], "valid");
    assert!(cluster.weft(["replicate", "verify", "/weft/d/f"]).contains("no difference"));
    cluster.weft(["replicate", "drop", "/weft/d/f"]);
    assert!(bytes_on_weft(&cluster) == expected);
}

#[test]
fn idle_servers_start_the_agent_for_queued_jobs() {
    let cluster = cluster_with_a_file();
    let status = || agent_status(&cluster);
    let planned = cluster.local("replicas.toml");
    std::fs::write(&planned, plan("/weft/d/f")).expect("written");
    let mut agent = begin_agent(&cluster, &["--rate", "8M"]);
    cluster.weft(["replicate", "apply", "--background", "--rate", "1G", &planned.display().to_string()]);
    until(LIMIT, "a part is copied", || (status()["current"]["done_bytes"].as_u64()? > 0).then_some(()));
    agent.kill();
    assert_eq!(status()["jobs"][0]["kind"], "replicate-apply");
    // `weft agent status` asks no server, so that the servers have no clients until they start the agent.
    until(LIMIT, "an agent has done the job", || (status()["jobs"] == Value::Array(vec![])).then_some(()));
    until(LIMIT, "the agent ends", || (status()["running"] == false).then_some(()));
    let text = cluster.weft(["replicate", "list", "--json"]);
    let replica: Value = serde_json::from_str(text.lines().next().expect("a replica")).expect("JSON");
    assert_eq!(replica["state"], "valid", "{replica}");
    assert!(bytes_on_weft(&cluster) == contents());
}

#[test]
fn a_move_survives_the_kill_of_its_agent() {
    let cluster = cluster_with_a_file();
    let status = || agent_status(&cluster);
    let begin = |options: &[&str]| begin_agent(&cluster, options);
    let mut agent = begin(&["--rate", "8M"]);
    let refused = cluster.fails(1, ["migrate", "-c", "1", "--background", "/weft/d"]);
    assert!(refused.contains("-r moves all files"), "{refused}");
    let refused = cluster.fails(2, ["migrate", "--class", "tape", "--background", "/weft/d/f"]);
    assert!(refused.contains("classes here"), "{refused}");
    let refused = cluster.fails(1, ["migrate", "-c", "1", "--background", "/weft/none"]);
    assert!(refused.contains("/weft/none"), "{refused}");
    let said = cluster.weft(["migrate", "-r", "-c", "1", "-S", "64K", "--background", "/weft/d"]);
    assert!(said.contains("/weft/d: job 1 of the agent"), "{said}");
    until(LIMIT, "a part is moved", || (status()["current"]["done_bytes"].as_u64()? > 0).then_some(()));
    agent.kill();
    assert_eq!(status()["jobs"][0]["kind"], "migrate");
    assert!(!cluster.weft(["getstripe", "/weft/d/f"]).contains("stripe count: 1,"));
    // The process of the move may need a moment to end.
    let agent = begin(&["--rate", "1G", "--retry-pause", "1s"]);
    until(LIMIT, "the move is done", || (status()["jobs"] == Value::Array(vec![])).then_some(()));
    assert!(cluster.weft(["getstripe", "/weft/d/f"]).contains("stripe count: 1, stripe size: 64 KiB"));
    assert!(bytes_on_weft(&cluster) == contents());
    drop(agent);
}
