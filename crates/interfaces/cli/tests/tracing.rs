//! `weft run --trace`: the trace has exactly the file operations of the program, on Weft and elsewhere.

mod common;

use common::{Embedded, WEFT, shown, succeeded, undisturbed};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use weft_trace::wtrace::Reader;
use weft_trace::{Operation, Record, RecordStream};

/// Compiles a program of tests/programs.
fn compiled(name: &str, to: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name).with_extension("c");
    let program = to.join(name);
    succeeded(Command::new("cc").args(["-O1", "-Wall", "-pthread", "-o"]).arg(&program).arg(source));
    program
}

/// A trace in memory.
struct Traced {
    records: Vec<Record>,
    files: Vec<String>,
    info: weft_trace::Info,
}

fn read(path: &Path) -> Traced {
    let mut reader = Reader::open(path).expect("a trace");
    let records = reader.by_ref().map(|record| record.expect("sound")).collect();
    let files = reader.names().all_files().map(str::to_owned).collect();
    Traced { records, files, info: reader.info().clone() }
}

impl Traced {
    /// Returns the records of files below `dir`, with file names relative to it.
    fn below<'a>(&'a self, dir: &'a str) -> impl Iterator<Item = (&'a str, &'a Record)> {
        let name = move |record: &Record| self.files[record.file.0 as usize].strip_prefix(dir);
        self.records.iter().filter_map(move |record| Some((name(record)?, record)))
    }

    /// Returns kind, offset and length of the records that move bytes.
    fn moved(&self, file: &str) -> Vec<(Operation, u64, u64)> {
        let records = self.below(file).filter(|(rest, record)| rest.is_empty() && record.op.moves_bytes());
        records.map(|(_, record)| (record.op, record.offset.get(), record.len.get())).collect()
    }
}

/// Builds `weft run --trace` without a cluster.
fn traced(trace: &Path) -> Command {
    // The preload library is built with the first cluster.
    drop(Embedded::new());
    let mut command = undisturbed();
    command.args(["run", "--no-cluster", "--trace"]).arg(trace).arg("--");
    command
}

fn trace_dir() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::Builder::new().prefix("weft-traced-").tempdir().expect("a directory");
    let path = dir.path().canonicalize().expect("it is there");
    (dir, path)
}

/// Compares the report of the program with its trace.
fn compare(output: &Output, trace: &Path, dir: &str, seed: u64) {
    assert!(output.status.success(), "seed {seed}: {}", shown(output));
    let reported = String::from_utf8(output.stdout.clone()).expect("text");
    let traced = read(trace);
    let recorded: Vec<String> = traced
        .below(&format!("{dir}/f"))
        .map(|(name, record)| format!("{} {name} {} {}", record.op, record.offset.get(), record.len.get()))
        .collect();
    let reported: Vec<&str> = reported.lines().collect();
    for (at, (reported, recorded)) in reported.iter().zip(&recorded).enumerate() {
        assert_eq!(reported, recorded, "seed {seed}, operation {at}");
    }
    assert_eq!(reported.len(), recorded.len(), "seed {seed}");
    assert!(reported.len() > 100, "seed {seed}: {}", reported.len());
}

#[test]
fn the_trace_matches_the_program_on_a_plain_directory() {
    let (_guard, dir) = trace_dir();
    let program = compiled("told", &dir);
    for seed in 0..6 {
        println!("seed {seed}");
        let trace = dir.join("a.wtrace");
        let mut command = traced(&trace);
        let output = command.arg(&program).arg(&dir).args([&seed.to_string(), "600"]).output().expect("runs");
        compare(&output, &trace, dir.to_str().expect("text"), seed);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("1 rank, ") && errors.contains("next: weft trace show"), "{errors}");
        assert!(!dir.join("a.wtrace.parts").exists(), "the parts are removed");
    }
}

#[test]
fn the_trace_matches_the_program_on_weft() {
    let (_guard, dir) = trace_dir();
    let cluster = Embedded::started();
    let program = compiled("told", &dir);
    for seed in 100..106 {
        println!("seed {seed}");
        let trace = dir.join("a.wtrace");
        let mut command = undisturbed();
        command.arg("run").arg("--state").arg(cluster.state()).arg("--trace").arg(&trace).arg("--");
        let output = command.arg(&program).args(["/weft", &seed.to_string(), "600"]).output().expect("runs");
        compare(&output, &trace, "/weft", seed);
    }
}

const PARALLEL: &str = r#"
import os, sys, threading, signal
dir, kill = sys.argv[1], sys.argv[2] == "kill"
def work(who):
    fd = os.open(f"{dir}/{who}", os.O_RDWR | os.O_CREAT)
    for n in range(3000):
        os.pwrite(fd, b"x" * (n % 50), n * 100)
    os.close(fd)
children = []
for child in range(3):
    pid = os.fork()
    if pid == 0:
        threads = [threading.Thread(target=work, args=(f"{child}.{t}",)) for t in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        if kill: os.kill(os.getpid(), signal.SIGKILL)
        os._exit(0)
    children.append(pid)
for pid in children: os.waitpid(pid, 0)
work("parent")
"#;

#[test]
fn forks_and_threads_are_recorded_completely_even_if_killed() {
    for how in ["exit", "kill"] {
        let (_guard, dir) = trace_dir();
        let trace = dir.join("a.wtrace");
        let text = dir.to_str().expect("text");
        succeeded(traced(&trace).args(["python3", "-c", PARALLEL, text, how]));
        let traced = read(&trace);
        let expected: Vec<_> = (0..3000).map(|n| (Operation::Write, n * 100, n % 50)).collect();
        let mut ranks = std::collections::BTreeSet::new();
        for who in
            (0..3).flat_map(|child| (0..4).map(move |t| format!("{child}.{t}"))).chain(["parent".into()])
        {
            let file = format!("{text}/{who}");
            assert!(traced.moved(&file) == expected, "{how}: {who}");
            ranks.extend(traced.below(&file).map(|(_, record)| record.rank));
        }
        // Three children and the parent, and sometimes a launcher of Python.
        assert_eq!(ranks.len(), 4, "{how}");
        assert_eq!(traced.info.notes, Vec::<String>::new(), "{how}");
        assert!(traced.info.program.starts_with("python3 -c"), "{}", traced.info.program);
    }
}

#[test]
fn descriptors_that_a_program_inherits_are_known_after_an_exec() {
    let (_guard, dir) = trace_dir();
    let (trace, text) = (dir.join("a.wtrace"), dir.to_str().expect("text"));
    std::fs::write(dir.join("in"), vec![b'x'; 300_000]).expect("written");
    let script = format!(
        "cat < {text}/in > {text}/out; echo end >> {text}/out; exec 3>&-; (exec head -c 10 {text}/in)"
    );
    succeeded(traced(&trace).args(["sh", "-c", &script]));
    let traced = read(&trace);
    let sum = |file: &str, op: Operation| -> u64 {
        let file = format!("{text}/{file}");
        traced.moved(&file).iter().filter(|(other, ..)| *other == op).map(|(.., len)| len).sum()
    };
    assert_eq!(sum("out", Operation::Write), 300_004);
    assert_eq!(traced.moved(&format!("{text}/out")).last(), Some(&(Operation::Write, 300_000, 4)));
    // `head` reads more than it needs.
    assert!(sum("in", Operation::Read) >= 300_010, "{}", sum("in", Operation::Read));
}

/// Parses the reads and writes of a strace log: file, kind and length.
fn by_strace(log: &str, dir: &str) -> Vec<(String, Operation, u64)> {
    let mut found = Vec::new();
    for line in log.lines() {
        let Some((call, rest)) = line.split_once('(') else { continue };
        let call = call.rsplit(' ').next().unwrap_or(call);
        let op = match call {
            "read" | "pread64" | "readv" => Operation::Read,
            "write" | "pwrite64" | "writev" => Operation::Write,
            _ => continue,
        };
        let Some(path) =
            rest.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map(|(path, _)| path)
        else {
            continue;
        };
        let result = line.rsplit_once("= ").and_then(|(_, result)| result.trim().parse().ok());
        if let (Some(name), Some(result)) = (path.strip_prefix(dir), result) {
            found.push((name.to_owned(), op, result));
        }
    }
    found
}

/// Sums bytes by file and operation.
fn summed(list: &[(String, Operation, u64)]) -> BTreeMap<(&str, Operation), u64> {
    let mut sums = BTreeMap::new();
    list.iter().for_each(|(name, op, len)| *sums.entry((&**name, *op)).or_default() += len);
    sums.retain(|_, sum| *sum > 0);
    sums
}

#[test]
fn coreutils_are_recorded_as_strace_sees_them() {
    let strace = Command::new("strace").args(["-o", "/dev/null", "true"]).status();
    if !strace.is_ok_and(|status| status.success()) {
        common::skip::skip("strace is missing or may not trace; run make deps, and allow ptrace");
        return;
    }
    let (_guard, dir) = trace_dir();
    let text = dir.join("data");
    std::fs::create_dir(&text).expect("made");
    let lines: String =
        (0..40_000u64).map(|n| format!("{}\n", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    std::fs::write(text.join("in"), lines).expect("written");
    let text = text.to_str().expect("text");
    for (number, command) in [
        format!("dd if={text}/in of={text}/out bs=4097 count=77 skip=3 seek=5"),
        format!("dd if=/dev/zero of={text}/out bs=64K count=9 conv=notrunc oflag=append"),
        format!("cat {text}/in {text}/out"),
        format!("tail -c 5000 {text}/in"),
        format!("sort -S 200K -T {text} -o {text}/sorted {text}/in"),
        format!("split -b 100000 {text}/in {text}/piece"),
        format!("tee {text}/tee1 {text}/tee2 < {text}/in"),
        format!("cmp {text}/in {text}/tee1"),
        format!("wc -l {text}/in"),
    ]
    .iter()
    .enumerate()
    {
        let (trace, log) = (dir.join(format!("{number}.wtrace")), dir.join(format!("{number}.strace")));
        let mut run = traced(&trace);
        run.args(["strace", "-f", "-y", "-e", "trace=read,write,pread64,pwrite64,readv,writev", "-o"])
            .arg(&log);
        let output =
            run.args(["sh", "-c", &format!("exec {command} > /dev/null")]).output().expect("it runs");
        assert!(output.status.success(), "{command}: {}", shown(&output));
        let expected = by_strace(&std::fs::read_to_string(&log).expect("a log"), text);
        let traced = read(&trace);
        let recorded: Vec<_> = traced
            .below(text)
            .filter(|(_, record)| record.op.moves_bytes())
            .map(|(name, record)| (name.to_owned(), record.op, record.len.get()))
            .collect();
        assert!(!recorded.is_empty(), "{command}");
        if command.starts_with("sort") {
            // Streams may split or join calls.
            assert_eq!(summed(&recorded), summed(&expected), "{command}");
            assert!(recorded.len() * 4 > expected.len() * 3, "{} of {}", recorded.len(), expected.len());
        } else {
            assert_eq!(recorded, expected, "{command}");
        }
    }
}

#[test]
fn only_chosen_paths_are_recorded() {
    let (_guard, dir) = trace_dir();
    for name in ["in", "out"] {
        std::fs::create_dir(dir.join(name)).expect("made");
    }
    let trace = dir.join("a.wtrace");
    // Access through a link to a chosen path is recorded.
    std::os::unix::fs::symlink(dir.join("in"), dir.join("link")).expect("made");
    drop(Embedded::new());
    let mut command = undisturbed();
    command.args(["run", "--no-cluster", "--trace"]).arg(&trace).arg("--trace-paths").arg(dir.join("link"));
    succeeded(command.args(["--", "sh", "-c", "echo a > in/a; echo b > out/b"]).current_dir(&dir));
    let traced = read(&trace);
    assert_eq!(traced.files, [dir.join("in/a").to_str().expect("text")]);
    assert_eq!(traced.records.len(), 3, "{:?}", traced.records);
}

#[test]
fn parts_of_several_hosts_are_merged_by_a_command_of_its_own() {
    let (_guard, dir) = trace_dir();
    drop(Embedded::new());
    let parts = dir.join("parts");
    std::fs::create_dir(&parts).expect("made");
    let library = Path::new(WEFT).with_file_name("libweft_preload.so");
    for rank in 0..3 {
        let script = format!("dd if=/dev/zero of=r{rank} bs=1000 count={}", rank + 1);
        let mut command = common::isolated("sh");
        command.args(["-c", &script]).env("WEFT_TRACE", &parts).env("LD_PRELOAD", &library);
        succeeded(command.env("PMI_RANK", rank.to_string()).current_dir(&dir));
    }
    let out = dir.join("all.wtrace");
    let output =
        undisturbed().args(["trace", "merge"]).arg(&parts).arg("-o").arg(&out).output().expect("runs");
    assert!(output.status.success(), "{}", shown(&output));
    assert!(String::from_utf8_lossy(&output.stderr).contains("3 ranks, 3 files"), "{}", shown(&output));
    let traced = read(&out);
    for rank in 0..3u64 {
        let file = dir.join(format!("r{rank}"));
        let expected: Vec<_> = (0..=rank).map(|n| (Operation::Write, n * 1000, 1000)).collect();
        assert_eq!(traced.moved(file.to_str().expect("text")), expected);
        let ranks: Vec<_> =
            traced.below(file.to_str().expect("text")).map(|(_, record)| record.rank.0).collect();
        assert!(ranks.iter().all(|other| u64::from(*other) == rank), "{ranks:?}");
    }
    let nothing = dir.join("nothing");
    std::fs::create_dir(&nothing).expect("made");
    let output =
        undisturbed().args(["trace", "merge"]).arg(&nothing).arg("-o").arg(&out).output().expect("runs");
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
}

#[test]
fn a_removed_file_keeps_its_name_in_the_trace() {
    let (_guard, dir) = trace_dir();
    let script = r#"
import os
fd = os.open("gone", os.O_RDWR | os.O_CREAT)
os.write(fd, b"x" * 10)
os.unlink("gone")
other = os.dup(fd)
os.write(other, b"x" * 20)
fd = os.open("kept (deleted)", os.O_RDWR | os.O_CREAT)
os.write(os.dup(fd), b"x" * 30)
"#;
    let trace = dir.join("a.wtrace");
    let output =
        traced(&trace).args(["python3", "-c", script]).current_dir(&dir).output().expect("weft starts");
    assert!(output.status.success(), "{}", shown(&output));
    let traced = read(&trace);
    let moved = |name: &str| traced.moved(dir.join(name).to_str().expect("text"));
    assert_eq!(moved("gone"), [(Operation::Write, 0, 10), (Operation::Write, 10, 20)]);
    assert_eq!(moved("kept (deleted)"), [(Operation::Write, 0, 30)]);
}

#[test]
fn a_full_disk_ends_the_trace_and_not_the_program() {
    let (_guard, dir) = trace_dir();
    let script = r#"
        mount -t tmpfs -o size=400k none "$1/small" || exit 77
        "$2" run --no-cluster --trace "$1/small/a.wtrace" -- python3 -c '
import os
fd = os.open("data", os.O_RDWR | os.O_CREAT)
for n in range(200000): os.pwrite(fd, b"x", n * n)
print(os.fstat(fd).st_size)' || exit 1
        test ! -e "$1/small/a.wtrace" || { echo "half a trace is left"; exit 1; }
        "$2" trace merge "$1/small/a.wtrace.parts" -o "$1/a.wtrace" || exit 1
    "#;
    std::fs::create_dir(dir.join("small")).expect("made");
    drop(Embedded::new());
    let mut command = common::isolated("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]).arg(&dir).arg(WEFT);
    let output = command.current_dir(&dir).output().expect("unshare (util-linux)");
    if output.status.code() == Some(77) || String::from_utf8_lossy(&output.stderr).contains("unshare failed")
    {
        common::skip::skip(format_args!("no small file system can be made here: {}", shown(&output)));
        return;
    }
    assert!(output.status.success(), "{}", shown(&output));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "39999600002");
    assert_eq!(
        errors.matches("; the program continues, and earlier records are kept").count(),
        1,
        "{errors}"
    );
    // There is no space to merge the parts, so they stay, and can be merged elsewhere.
    assert!(errors.contains("its parts are kept"), "{errors}");
    assert!(errors.contains("tracing ended early"), "{errors}");
    let traced = read(&dir.join("a.wtrace"));
    let moved = traced.moved(dir.join("data").to_str().expect("text"));
    assert!(moved.len() > 2000, "{}", moved.len());
    for (n, moved) in moved.iter().enumerate() {
        assert_eq!(*moved, (Operation::Write, (n * n) as u64, 1));
    }
}

const RESIDENT: &str = r#"
import os, sys
def resident():
    with open("/proc/self/statm") as file: return int(file.read().split()[1]) * 4096
fd = os.open("data", os.O_RDWR | os.O_CREAT)
os.pwrite(fd, b"x" * 8192, 0)
count = int(sys.argv[1])
for n in range(20000): os.pread(fd, n % 100, n % 7000)
before = resident()
for n in range(count): os.pread(fd, n % 100, n % 7000)
print(resident() - before)
"#;

/// Returns the growth of a program's memory while `count` operations are recorded.
fn grown(count: u64) -> i64 {
    let (_guard, dir) = trace_dir();
    let trace = dir.join("a.wtrace");
    let grown =
        succeeded(traced(&trace).args(["python3", "-c", RESIDENT, &count.to_string()]).current_dir(&dir));
    let mut reader = Reader::open(&trace).expect("a trace");
    let reads =
        reader.by_ref().filter(|record| record.as_ref().expect("sound").op == Operation::Read).count();
    assert!(reads as u64 >= count + 20_000, "{reads}");
    println!("{count} operations: {} KiB more", grown.trim().parse::<i64>().expect("a number") / 1024);
    grown.trim().parse().expect("a number")
}

#[test]
fn the_memory_of_a_traced_program_does_not_grow() {
    let grown = grown(300_000);
    assert!(grown < 512 << 10, "{grown} bytes more after 300,000 operations");
}

#[test]
#[ignore = "half a minute in release: cargo test --release -p weft-cli --test tracing -- --ignored --nocapture"]
fn the_memory_of_a_traced_program_does_not_grow_with_ten_million_operations() {
    let grown = grown(10_000_000);
    assert!(grown < 512 << 10, "{grown} bytes more after 10,000,000 operations");
}

#[test]
fn a_cleaned_environment_and_raw_calls_do_not_hide_a_program() {
    let (_guard, dir) = trace_dir();
    let (trace, text) = (dir.join("a.wtrace"), dir.to_str().expect("text"));
    let raw = "import ctypes, os, sys; libc = ctypes.CDLL(None)\n\
               fd = os.open(sys.argv[1] + '/raw', os.O_RDWR | os.O_CREAT)\n\
               libc.syscall(18, fd, b'x' * 100, ctypes.c_size_t(100), ctypes.c_long(7))\n";
    let python = succeeded(Command::new("python3").args(["-c", "import sys; print(sys.executable)"]));
    succeeded(traced(&trace).args(["env", "-i", python.trim(), "-c", raw, text]));
    let moved = read(&trace).moved(&format!("{text}/raw"));
    // The number 18 is pwrite on one architecture only.
    let expected = if cfg!(target_arch = "x86_64") { vec![(Operation::Write, 7, 100)] } else { Vec::new() };
    assert_eq!(moved, expected);
}

#[test]
fn an_unwritable_trace_is_reported_before_the_program_runs() {
    let (_guard, dir) = trace_dir();
    for (trace, word) in [("/weft/a.wtrace", "file system of this host"), ("missing/a.wtrace", "missing")] {
        let made = dir.join("made");
        let output =
            traced(Path::new(trace)).arg("touch").arg(&made).current_dir(&dir).output().expect("weft starts");
        assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
        assert!(String::from_utf8_lossy(&output.stderr).contains(word), "{}", shown(&output));
        assert!(!made.exists());
    }
    // No file is created before all arguments are checked.
    let mut asked = undisturbed();
    asked.args(["run", "--no-cluster", "--trace", "b.wtrace", "--trace-paths", "/a:b", "--", "true"]);
    let output = asked.current_dir(&dir).output().expect("weft starts");
    assert_eq!(output.status.code(), Some(2), "{}", shown(&output));
    assert_eq!(std::fs::read_dir(&dir).expect("a directory").count(), 0, "{}", shown(&output));
    let named = dir.join("my trace");
    let output =
        traced(&named).args(["sh", "-c", "echo x > file"]).current_dir(&dir).output().expect("weft starts");
    let next = format!("next: weft trace show '{}'\n", named.display());
    assert!(String::from_utf8_lossy(&output.stderr).ends_with(&next), "{}", shown(&output));
    // An existing trace stays until the next one is complete.
    let (here, there) = (dir.join("c.wtrace"), dir.join("link"));
    std::fs::write(&here, "old").expect("written");
    std::os::unix::fs::symlink("c.wtrace", &there).expect("made");
    let output = traced(&there).arg("./no such program").current_dir(&dir).output().expect("weft starts");
    assert_eq!(output.status.code(), Some(127), "{}", shown(&output));
    assert!(!shown(&output).contains("nothing was recorded"), "{}", shown(&output));
    let script = "cat c.wtrace; echo x > file";
    let output = traced(&there).args(["sh", "-c", script]).current_dir(&dir).output().expect("weft starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "old", "{}", shown(&output));
    assert!(there.is_symlink() && !read(&here).records.is_empty());
    let names = std::fs::read_dir(&dir).expect("a directory").map(|entry| entry.expect("one").file_name());
    let hidden: Vec<_> = names.filter(|name| name.to_string_lossy().contains(".weft-")).collect();
    assert!(hidden.is_empty(), "{hidden:?}");
    std::fs::create_dir(dir.join("a b.wtrace.parts")).expect("made");
    let output = traced(Path::new("a b.wtrace")).arg("true").current_dir(&dir).output().expect("weft starts");
    let merge = format!("weft trace merge '{}/a b.wtrace.parts' -o", dir.display());
    assert!(String::from_utf8_lossy(&output.stderr).contains(&merge), "{}", shown(&output));
}

#[test]
fn a_program_with_a_file_size_limit_is_traced() {
    let (_guard, dir) = trace_dir();
    let trace = dir.join("a.wtrace");
    // With a limit of 128 KiB a longer file ends the program with a signal.
    let script = "ulimit -f 128; for n in 1 2 3; do dd if=/dev/zero of=file$n bs=10 count=1; done";
    let output = traced(&trace).args(["bash", "-c", script]).current_dir(&dir).output().expect("weft starts");
    assert!(output.status.success(), "{}", shown(&output));
    let traced = read(&trace);
    assert!((1..4).all(|n| traced.moved(dir.join(format!("file{n}")).to_str().expect("text")).len() == 1));
    assert!(traced.info.notes.is_empty(), "{:?}", traced.info.notes);
}

#[test]
fn the_exit_code_of_the_program_is_passed_on() {
    let (_guard, dir) = trace_dir();
    let trace = dir.join("a.wtrace");
    let run =
        |script: &str| traced(&trace).args(["sh", "-c", script]).current_dir(&dir).output().expect("runs");
    for (script, code) in [("echo a > b; exit 7", 7), ("echo a > b; kill -9 $$", 137)] {
        let output = run(script);
        assert_eq!(output.status.code(), Some(code), "{}", shown(&output));
        assert_eq!(read(&trace).moved(dir.join("b").to_str().expect("text")), [(Operation::Write, 0, 2)]);
    }
    // A program without file operations is no failure.
    let output = run("exit 0");
    assert!(
        output.status.success() && String::from_utf8_lossy(&output.stderr).contains("nothing was recorded")
    );
}

#[test]
fn a_program_that_closes_all_descriptors_does_not_disturb_the_trace() {
    let (_guard, dir) = trace_dir();
    let (trace, text) = (dir.join("a.wtrace"), dir.to_str().expect("text"));
    let script = "import os, sys\n\
                  os.chdir(sys.argv[1])\n\
                  for turn in range(20):\n\
                  \u{20}   os.closerange(3, 3000)\n\
                  \u{20}   fds = [os.open(f'f{n}', os.O_RDWR | os.O_CREAT) for n in range(40)]\n\
                  \u{20}   for fd in fds:\n\
                  \u{20}       for n in range(20): os.pwrite(fd, b'x' * 10, (turn * 20 + n) * 10)\n";
    succeeded(traced(&trace).args(["python3", "-c", script, text]));
    let traced = read(&trace);
    for n in 0..40 {
        let file = dir.join(format!("f{n}"));
        // The file has only the program's bytes, and all of them are in the trace.
        assert!(std::fs::read(&file).expect("made") == vec![b'x'; 4000], "f{n}");
        let expected: Vec<_> = (0..400).map(|at| (Operation::Write, at * 10, 10)).collect();
        assert!(traced.moved(file.to_str().expect("text")) == expected, "f{n}");
    }
}
