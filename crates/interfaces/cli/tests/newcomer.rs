//! The first steps of a new user: `weft run` with the embedded cluster, its messages and its help.

mod common;

use common::{Embedded, WEFT, needs, shown, succeeded};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_run_reads_files_of_the_previous_run() {
    let cluster = Embedded::new();
    cluster.run(["sh", "-c", "mkdir -p /weft/a && echo first > /weft/a/file && ls -l /weft/a"]);
    let before = cluster.pids();
    assert_eq!(cluster.run(["cat", "/weft/a/file"]), "first\n");
    assert_eq!(cluster.pids(), before, "the servers are reused");
    // Also after the servers have stopped.
    let stopped = cluster.weft(["stop"]);
    assert_eq!(stopped, "stopped s0, s1, s2, s3\n");
    assert_eq!(cluster.run(["cat", "/weft/a/file"]), "first\n");
    assert_eq!(cluster.weft(["cat", "/weft/a/file"]), "first\n");
    // A command that finds the embedded cluster stopped starts it.
    cluster.weft(["stop"]);
    assert_eq!(cluster.weft(["ls", "/weft"]), "a\n");
}

/// An embedded cluster is used whichever way it is named, also by runs within runs.
#[test]
fn a_named_embedded_cluster_is_used() {
    let cluster = Embedded::started();
    cluster.weft(["run", "--", "sh", "-c", "echo option > /weft/option"]);
    let mut by_variable = common::undisturbed();
    by_variable.env("WEFT_CLUSTER", cluster.file()).args([
        "run",
        "--",
        "cp",
        "/weft/option",
        "/weft/variable",
    ]);
    succeeded(&mut by_variable);
    cluster.run([WEFT, "run", "--", "cp", "/weft/variable", "/weft/nested"]);
    assert_eq!(cluster.weft(["ls", "/weft"]), "nested\noption\nvariable\n");
    assert_eq!(cluster.weft(["cat", "/weft/nested"]), "option\n");
}

#[test]
fn two_first_runs_at_once_share_one_cluster() {
    let cluster = Embedded::new();
    let runs: Vec<_> = (0..6)
        .map(|index| {
            let mut command = cluster.running(["sh", "-c", &format!("echo {index} > /weft/{index}")]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("weft starts")
        })
        .collect();
    for run in runs {
        let output = run.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", shown(&output));
    }
    let names = cluster.run(["sh", "-c", "cat /weft/*"]);
    assert_eq!(names, "0\n1\n2\n3\n4\n5\n");
}

#[test]
fn programs_that_cannot_load_the_library_are_named() {
    let cluster = Embedded::started();
    let said = |program: &std::path::Path| {
        let output = cluster.running([program]).output().expect("weft starts");
        assert!(output.status.success(), "{}", shown(&output));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let source = cluster.local("tiny.c");
    std::fs::write(&source, "int main(void) { return 0; }").expect("written");
    for (kind, warned) in [("-static", true), ("-static-pie", true), ("-pie", false), ("-no-pie", false)] {
        let program = cluster.local("tiny");
        succeeded(Command::new("cc").arg(kind).arg("-o").arg(&program).arg(&source));
        let warning = said(&program);
        assert_eq!(warning.contains("will not see /weft"), warned, "{kind}: {warning}");
        assert!(!warned || warning.contains("weft mount") && warning.contains("statically"), "{warning}");
        // A script counts as its interpreter.
        let script = cluster.local("script");
        std::fs::write(&script, format!("#!{}\n", program.display())).expect("written");
        succeeded(Command::new("chmod").arg("+x").arg(&script));
        assert_eq!(said(&script).contains("will not see /weft"), warned, "{kind}, script");
        // A program that another one starts: named only if it is given a path of Weft.
        let starts = |program: &[&str]| {
            let output = cluster.running(program).output().expect("weft starts");
            assert!(output.status.success(), "{}", shown(&output));
            String::from_utf8_lossy(&output.stderr).matches("will not see /weft").count()
        };
        let program = program.to_str().expect("text");
        let spawn = "import os, sys; os.waitpid(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0)";
        for with in [&["sh", "-c", "\"$@\"; :", "sh"][..], &["python3", "-c", spawn]] {
            for (argument, names_weft) in [("/weft/a", true), ("--to=/weft", true), ("/wefta", false)] {
                let count = starts(&[with, &[program, argument]].concat());
                assert_eq!(count, usize::from(warned && names_weft), "{kind} by {with:?}: {argument}");
            }
        }
    }
    // A program of musl, whose loader is not installed here.
    let program = cluster.local("musl");
    let loader = "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1";
    succeeded(Command::new("cc").arg(loader).arg("-o").arg(&program).arg(&source));
    let output = cluster.running([&program]).output().expect("weft starts");
    let text = shown(&output);
    assert!(
        text.contains("will not see /weft") && text.contains("musl") && text.contains("weft mount"),
        "{text}"
    );
    // A set-group-id program of another group, which only root can create reliably.
    let program = cluster.local("tiny");
    if Command::new("chgrp").arg("1").arg(&program).output().is_ok_and(|output| output.status.success()) {
        succeeded(Command::new("chmod").arg("2755").arg(&program));
        assert!(said(&program).contains("other privileges than yours"));
    }
}

#[test]
fn a_program_on_weft_is_run_by_its_path() {
    let cluster = Embedded::started();
    cluster.run([
        "sh",
        "-c",
        "mkdir /weft/bin && cp /bin/echo /weft/bin/say && cp /bin/echo /weft/bin/closed",
    ]);
    cluster.run([
        "sh",
        "-c",
        "chmod 644 /weft/bin/closed; printf '#!/bin/sh\necho script \"$@\"\n' > /weft/bin/script",
    ]);
    cluster.run(["chmod", "755", "/weft/bin/script"]);
    assert_eq!(cluster.run(["/weft/bin/say", "a  b", "$0", "-n"]), "a  b $0 -n\n");
    assert_eq!(cluster.run(["/weft/bin/script", "a  b"]), "script a  b\n");
    let mut along_path = cluster.running(["say", "found"]);
    let path = std::env::var("PATH").expect("a path");
    let output = along_path.env("PATH", format!("{path}:/weft/bin")).output().expect("weft starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "found\n", "{}", shown(&output));
    for (program, code) in [("/weft/bin/none", 127), ("/weft/bin/closed", 126)] {
        let output = cluster.running([program]).output().expect("weft starts");
        let text = shown(&output);
        assert!(output.status.code() == Some(code) && text.contains(program), "{program}: {text}");
    }
}

#[test]
fn exit_codes_and_signals_are_passed_on() {
    let cluster = Embedded::new();
    let code = |program: &[&str]| {
        cluster.running(program).stderr(Stdio::null()).status().expect("weft starts").code()
    };
    assert_eq!(code(&["sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code(&["sh", "-c", "kill -KILL $$"]), Some(128 + libc::SIGKILL));
    assert_eq!(code(&["there-is-no-such-program"]), Some(127));
    assert_eq!(code(&["/dev/null"]), Some(126));

    let mut run = cluster
        .running(["sh", "-c", "trap 'echo stopped; exit 5' TERM; echo ready; while :; do sleep 0.05; done"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("weft starts");
    let mut lines = BufReader::new(run.stdout.take().expect("a pipe")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "ready");
    succeeded(Command::new("kill").arg("-TERM").arg(run.id().to_string()));
    assert_eq!(lines.next().expect("a line").expect("text"), "stopped");
    let status = run.wait().expect("it ends");
    assert_eq!((status.code(), status.signal()), (Some(5), None));
}

#[test]
fn fresh_empties_only_an_embedded_cluster() {
    let cluster = Embedded::new();
    cluster.run(["sh", "-c", "echo old > /weft/file"]);
    let mut again = common::undisturbed();
    again
        .arg("run")
        .arg("--state")
        .arg(cluster.state())
        .args(["--fresh", "--yes", "--", "ls", "-A", "/weft"]);
    assert_eq!(succeeded(&mut again), "");
    // A directory with a cluster of another kind is refused.
    let foreign = cluster.local("foreign");
    std::fs::create_dir(&foreign).expect("a directory");
    std::fs::copy(cluster.file(), foreign.join("cluster.toml")).expect("a copy");
    let text = std::fs::read_to_string(cluster.file()).expect("text");
    let text = text.lines().skip(2).collect::<Vec<_>>().join("\n");
    std::fs::write(foreign.join("cluster.toml"), text).expect("written");
    let mut refused = common::undisturbed();
    refused.arg("run").arg("--state").arg(&foreign).args(["--fresh", "--yes", "--", "true"]);
    let output = refused.output().expect("weft starts");
    assert_eq!(output.status.code(), Some(2), "{}", shown(&output));
    assert!(foreign.join("cluster.toml").exists());
}

#[test]
fn a_cluster_in_use_is_not_emptied() {
    let cluster = Embedded::new();
    let mut user =
        cluster.running(["sh", "-c", "echo kept > /weft/file; echo ready; read wait; cat /weft/file"]);
    let mut user = user.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("weft starts");
    let mut lines = BufReader::new(user.stdout.take().expect("a pipe")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "ready");
    let mut fresh = common::undisturbed();
    fresh.arg("run").arg("--state").arg(cluster.state()).args(["--fresh", "--yes", "--", "true"]);
    let output = fresh.output().expect("weft starts");
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is not emptied"), "{}", shown(&output));
    drop(user.stdin.take());
    assert_eq!(lines.next().expect("a line").expect("text"), "kept");
    user.wait().expect("it ends");
    succeeded(&mut fresh);
}

#[test]
fn a_misspelled_option_is_not_run_as_a_program() {
    let cluster = Embedded::new();
    let mut run = common::undisturbed();
    run.arg("run").arg("--state").arg(cluster.state()).args(["--frehs", "--", "true"]);
    let output = run.output().expect("weft starts");
    assert_eq!(output.status.code(), Some(2), "{}", shown(&output));
    assert!(!cluster.file().exists(), "nothing was started");
    // Options after the program belong to the program, with and without dashes before it.
    assert_eq!(cluster.run(["echo", "-n", "--fresh"]), "--fresh");
    let mut run = common::undisturbed();
    run.arg("run").arg("--state").arg(cluster.state()).args(["echo", "-n", "--fresh"]);
    assert_eq!(succeeded(&mut run), "--fresh");
}

#[test]
fn servers_stop_when_idle_but_not_while_a_program_runs() {
    let [cluster, idle] = [Embedded::new(), Embedded::new()];
    let run = |cluster: &Embedded, program: &[&str]| {
        let mut run = common::undisturbed();
        run.arg("run")
            .arg("--state")
            .arg(cluster.state())
            .args(["--idle-exit", "500 ms", "--"])
            .args(program);
        run
    };
    // A connection would restart the idle limit, so the processes are watched.
    let wait_until_stopped =
        |cluster: &Embedded| common::servers::wait_until_ended(&cluster.file(), Duration::from_secs(60));
    let mut program = run(&cluster, &["sh", "-c", "echo ready; read wait; echo still > /weft/file"]);
    let mut program = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("weft starts");
    let mut lines = BufReader::new(program.stdout.take().expect("a pipe")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "ready");
    // A second cluster without a program shows when the limit has passed.
    succeeded(&mut run(&idle, &["true"]));
    wait_until_stopped(&idle);
    assert_eq!(common::servers::running(&cluster.file()).len(), 4);
    drop(program.stdin.take());
    assert!(program.wait().expect("it ends").success());
    wait_until_stopped(&cluster);
    assert_eq!(cluster.weft(["cat", "/weft/file"]), "still\n");
}

#[test]
fn a_dead_server_is_shown_in_bounded_time_and_turns_into_an_error_that_names_it() {
    let cluster = Embedded::started();
    let all = cluster.weft(["status"]);
    assert!(all.contains("s3") && !all.contains("DOWN"), "{all}");
    cluster.weft(["setstripe", "-c", "4", "-S", "64K", "/weft/wide"]);
    cluster.run(["dd", "if=/dev/zero", "of=/weft/wide", "bs=1M", "count=1", "conv=notrunc", "status=none"]);

    let pid = cluster.pids()[2].expect("s2 runs");
    succeeded(Command::new("kill").arg("-KILL").arg(pid.to_string()));
    let began = Instant::now();
    let output = cluster.command(["status"]).output().expect("weft starts");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let text = shown(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("server s2 is down"), "{text}");

    // A frozen server is shown as well.
    let pid = cluster.pids()[3].expect("s3 runs");
    succeeded(Command::new("kill").arg("-STOP").arg(pid.to_string()));
    let began = Instant::now();
    let output = cluster.command(["status", "--json"]).output().expect("weft starts");
    let took = began.elapsed();
    succeeded(Command::new("kill").arg("-CONT").arg(pid.to_string()));
    assert!(took < Duration::from_secs(20), "{took:?}");
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let up: Vec<_> =
        status["servers"].as_array().expect("servers").iter().map(|s| s["up"].as_bool()).collect();
    assert_eq!(up, [Some(true), Some(true), Some(false), Some(false)]);

    // A program that needs the server gets an error in bounded time. The busy socket prevents a restart of the server.
    let file = cluster.file();
    let mut read = common::isolated("cat");
    read.arg("/weft/wide").env("WEFT_CLUSTER", &file);
    read.env("LD_PRELOAD", std::path::Path::new(WEFT).with_file_name("libweft_preload.so"));
    let began = Instant::now();
    let output = read.output().expect("cat starts");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let text = shown(&output);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("Input/output error") && text.contains("server s2"), "{text}");
}

#[test]
fn shells_complete_commands_paths_targets_and_experiments() {
    let cluster = Embedded::started();
    cluster.run(["sh", "-c", "mkdir /weft/results && touch /weft/results/one /weft/reads"]);
    for shell in ["bash", "zsh", "fish"] {
        let text = succeeded(common::undisturbed().args(["completions", shell]));
        assert!(text.contains("WEFT_COMPLETE"), "{shell}: {text}");
        let completed = |words: &[&str]| {
            let mut command = common::undisturbed();
            command.env("WEFT_COMPLETE", shell).env("WEFT_CLUSTER", cluster.file());
            command.env("_CLAP_COMPLETE_INDEX", words.len().to_string()).env("_CLAP_IFS", "\n");
            succeeded(command.args(["--", "weft"]).args(words))
        };
        let commands = completed(&[""]);
        for word in ["getstripe", "apply", "migrate"] {
            assert!(commands.contains(word), "{shell}: {commands}");
        }
        assert!(!commands.contains("darshan-reader"), "{shell}: an internal command");
        assert!(completed(&["plan", "--w"]).contains("--watch"));
        for (words, expected) in [
            (&["ls", "/we"][..], "/weft/"),
            (&["ls", "/weft/re"], "/weft/results/"),
            (&["setstripe", "-c", "2", "/weft/re"], "/weft/reads"),
            (&["cat", "/weft/results/"], "/weft/results/one"),
            (&["target", "drain", ""], "3"),
            (&["lab", "run", "ibridge-fig2"], "ibridge-fig2a"),
        ] {
            let found = completed(words);
            assert!(found.contains(expected), "{shell} {words:?}: {found}");
        }
        assert_eq!(completed(&["ls", "/weft/none/x"]).trim(), "", "{shell}");
    }
    // A completion starts no servers.
    cluster.weft(["stop"]);
    let mut command = common::undisturbed();
    command.env("WEFT_COMPLETE", "fish").env("WEFT_CLUSTER", cluster.file());
    assert_eq!(succeeded(command.args(["--", "weft", "ls", "/weft/re"])).trim(), "");
    assert!(common::servers::running(&cluster.file()).is_empty());
}

#[test]
fn help_has_examples_and_pages_are_written() {
    let help = succeeded(common::undisturbed().args(["help", "run"]));
    assert!(help.contains("Examples:") && help.contains("--fresh"), "{help}");
    let dir = tempfile::tempdir().expect("a directory");
    succeeded(common::undisturbed().args(["man", "--out"]).arg(dir.path()));
    let page = std::fs::read_to_string(dir.path().join("weft-setstripe.1")).expect("a page");
    assert!(page.contains("stripe\\-size"), "{page}");
    assert!(dir.path().join("weft.1").exists());
    for page in
        ["run", "plan", "apply", "migrate", "profile", "trace-merge", "trace-plot", "twin-search", "lab-run"]
    {
        assert!(dir.path().join(format!("weft-{page}.1")).exists(), "no page about {page}");
    }
    needs("bash");
    let example = succeeded(common::undisturbed().args(["config", "example"]));
    let file = dir.path().join("cluster.toml");
    std::fs::write(&file, &example).expect("written");
    let checked = succeeded(common::undisturbed().args(["config", "check"]).arg(&file));
    assert!(checked.contains("2 servers, 4 targets"), "{checked}");
    std::fs::write(&file, example.replace("class = \"hdd\"\n# A", "clas = \"hdd\"\n# A")).expect("written");
    let output = common::undisturbed().args(["config", "check"]).arg(&file).output().expect("weft starts");
    assert_eq!(output.status.code(), Some(2));
    let text = shown(&output);
    assert!(text.contains("cluster.toml:") && text.contains("does not know \"clas\""), "{text}");
}

#[test]
fn files_are_not_removed_without_a_question() {
    let cluster = Embedded::started();
    cluster.run(["touch", "/weft/kept"]);
    let mut fresh = common::undisturbed();
    fresh.arg("run").arg("--state").arg(cluster.state()).args(["--fresh", "--", "true"]);
    let output = fresh.stdin(std::process::Stdio::null()).output().expect("weft starts");
    assert_eq!(output.status.code(), Some(2), "{}", common::shown(&output));
    let said = common::shown(&output);
    assert!(said.contains("removes all files of the cluster in") && said.contains("--yes"), "{said}");
    assert_eq!(cluster.weft(["ls", "/weft"]), "kept\n");
}
