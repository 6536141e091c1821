//! Traced MPI-IO operations, compared with the operations that programs report.

mod common;

use common::{Embedded, needs, root, succeeded, undisturbed};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const RANKS: usize = 3;

fn compiled(compiler: &str, source: &str, to: &Path) -> PathBuf {
    let source = root().join(source);
    let program = to.join(source.file_stem().expect("a name"));
    succeeded(Command::new(compiler).current_dir(to).args(["-O1", "-o"]).arg(&program).arg(source));
    program
}

/// One line of a trace as CSV.
struct Row {
    rank: u32,
    level: String,
    operation: String,
    collective: String,
    file: String,
    offset: u64,
    length: u64,
    start: u64,
    end: u64,
}

fn rows(csv: &str) -> Vec<Row> {
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("rank,host,level,operation,collective,file,offset,length,start_ns,end_ns"));
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            let number = |at: usize| cells[at].parse().unwrap_or_else(|_| panic!("{line}"));
            Row {
                rank: number(0) as u32,
                level: cells[2].into(),
                operation: cells[3].into(),
                collective: cells[4].into(),
                file: cells[5].into(),
                offset: number(6),
                length: number(7),
                start: number(8),
                end: number(9),
            }
        })
        .collect()
}

/// Runs `command` traced and returns the rows of the trace.
fn traced(cluster: &Embedded, command: &[&str]) -> Vec<Row> {
    let trace = cluster.local("run.wtrace");
    let mut run = undisturbed();
    run.arg("run").arg("--state").arg(cluster.state()).arg("--trace").arg(&trace).arg("--").args(command);
    succeeded(&mut run);
    rows(&cluster.weft(["trace", "export", trace.to_str().expect("text"), "--csv", "-"]))
}

/// Compares the trace of a program that makes each kind of access once on `dir` with its report.
fn traced_exactly(compiler: &str, launcher: &[&str], dir: impl FnOnce(&Embedded) -> PathBuf) {
    let cluster = Embedded::started();
    let said = cluster.local("said");
    let dir = dir(&cluster);
    std::fs::create_dir(&said).expect("made");
    let home = said.parent().expect("a directory");
    let program = compiled(compiler, "crates/interfaces/preload/tests/c/mpi_traced.c", home);
    let ranks = RANKS.to_string();
    let mut command = launcher.to_vec();
    command.extend(["-n", &ranks]);
    command.extend([&program, &dir, &said].map(|path| path.to_str().expect("text")));
    let rows = traced(&cluster, &command);
    let mut found: BTreeMap<u32, Vec<&Row>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.level == "mpi-io") {
        found.entry(row.rank).or_default().push(row);
    }
    assert_eq!(found.len(), RANKS, "ranks");
    for (rank, mut found) in found {
        found.sort_by_key(|row| row.start);
        let expected = std::fs::read_to_string(said.join(rank.to_string())).expect("the rank's report");
        let mut count = 0;
        for (line, row) in expected.lines().zip(&found) {
            let (line, least_ms) = line.rsplit_once(' ').expect("six words");
            let name = Path::new(&row.file).file_name().expect("a name").to_str().expect("text");
            let told = format!("{} {} {name} {} {}", row.operation, row.collective, row.offset, row.length);
            assert_eq!(told, line, "operation {count} of rank {rank}");
            let least_ns = least_ms.parse::<u64>().expect("a number") * 1_000_000;
            assert!(row.end >= row.start + least_ns, "{line}: {} to {}", row.start, row.end);
            assert_eq!(Path::new(&row.file).parent(), Some(dir.as_path()));
            count += 1;
        }
        assert_eq!((count, found.len()), (expected.lines().count(), found.len()), "of rank {rank}");
        assert!(count > 30, "{count} operations show little");
    }
    // The POSIX calls below the MPI calls are traced too, under the same file names, also as part of collective calls.
    let below =
        |row: &&Row| row.level == "posix" && row.file.ends_with("/shared") && row.operation == "write";
    assert!(rows.iter().filter(below).any(|row| row.collective == "yes"));
    assert!(rows.iter().filter(below).any(|row| row.collective == "no"));
}

fn on_weft(cluster: &Embedded) -> PathBuf {
    cluster.run(["mkdir", "/weft/traced"]);
    "/weft/traced".into()
}

fn elsewhere(cluster: &Embedded) -> PathBuf {
    let dir = cluster.local("elsewhere");
    std::fs::create_dir(&dir).expect("made");
    dir.canonicalize().expect("it is there")
}

#[test]
fn each_kind_of_access_is_traced_exactly_on_weft() {
    needs("mpicc.mpich");
    traced_exactly("mpicc.mpich", &["mpiexec.mpich"], on_weft);
}

#[test]
fn each_kind_of_access_is_traced_exactly_elsewhere() {
    needs("mpicc.mpich");
    traced_exactly("mpicc.mpich", &["mpiexec.mpich"], elsewhere);
}

/// Open MPI's handles are pointers, and Debian's version lacks calls with large counts, which become small counts.
#[test]
fn each_kind_of_access_is_traced_exactly_with_open_mpi() {
    if common::skip::without("mpicc.openmpi") {
        return;
    }
    traced_exactly("mpicc.openmpi", &["mpiexec.openmpi", "--allow-run-as-root", "--oversubscribe"], on_weft);
}

/// MPICH's Fortran bindings call MPI by its `MPI_` names, Open MPI's by its `PMPI_` names.
#[test]
fn fortran_is_seen_by_either_name() {
    for (compiler, launcher) in [
        ("mpif90.mpich", &["mpiexec.mpich"][..]),
        ("mpif90.openmpi", &["mpiexec.openmpi", "--allow-run-as-root", "--oversubscribe"]),
    ] {
        if Command::new(compiler).arg("--version").output().is_ok_and(|output| output.status.success()) {
            fortran_is_seen(compiler, launcher);
        } else {
            common::skip::skip(format_args!("{compiler} is not installed; run make deps"));
        }
    }
}

fn fortran_is_seen(compiler: &str, launcher: &[&str]) {
    let cluster = Embedded::started();
    let home = cluster.local("home");
    std::fs::create_dir(&home).expect("made");
    let program = compiled(compiler, "crates/interfaces/preload/tests/c/mpi_traced.f90", &home);
    let mut command = launcher.to_vec();
    command.extend(["-n", "2", program.to_str().expect("text"), "/weft/fortran"]);
    let mut found: Vec<_> = traced(&cluster, &command)
        .into_iter()
        .filter(|row| row.level == "mpi-io")
        .map(|row| (row.rank, row.start, row.operation, row.collective, row.offset, row.length))
        .collect();
    found.sort();
    let found: Vec<_> = found
        .iter()
        .map(|(rank, _, op, collective, offset, length)| {
            format!("{rank} {op} {collective} {offset} {length}")
        })
        .collect();
    let expected: Vec<_> = (0..2)
        .flat_map(|rank| {
            let at = rank * 400;
            [
                format!("{rank} create yes 0 0"),
                format!("{rank} write yes {at} 400"),
                format!("{rank} read no {at} 200"),
                format!("{rank} write no {at} 40"),
                format!("{rank} close yes 0 0"),
            ]
        })
        .collect();
    assert_eq!(found, expected, "{compiler}");
}

#[test]
fn an_hdf5_program_moves_the_same_bytes_at_both_levels_and_can_be_planned_for() {
    needs("h5pcc.mpich");
    let cluster = Embedded::started();
    let home = cluster.local("home");
    std::fs::create_dir(&home).expect("made");
    let program = compiled("h5pcc.mpich", "examples/demo/hdf5_field.c", &home);
    let program = program.to_str().expect("text");
    let rows = traced(&cluster, &["mpiexec.mpich", "-n", "4", program, "/weft/field.h5"]);
    let bytes = |level: &str, operation: &str| -> u64 {
        let is =
            |row: &&Row| row.level == level && row.operation == operation && row.file == "/weft/field.h5";
        rows.iter().filter(is).map(|row| row.length).sum()
    };
    for operation in ["read", "write"] {
        assert_eq!(bytes("mpi-io", operation), bytes("posix", operation), "{operation}");
        assert!(bytes("mpi-io", operation) > 40 << 20, "{operation}");
    }
    let trace = cluster.local("run.wtrace");
    let trace = trace.to_str().expect("text");
    let shown: Value = serde_json::from_str(&cluster.weft(["trace", "show", trace, "--json"])).expect("JSON");
    assert_eq!((&shown["ranks"], &shown["levels"][0]["level"]), (&4.into(), &"mpi-io".into()));
    for level in 0..2 {
        assert_ne!(shown["levels"][level]["writes"]["collective"], 0, "{shown}");
    }
    let spec = cluster.local("twin.toml");
    std::fs::write(&spec, TWIN).expect("written");
    let plan = cluster.local("plan.toml");
    let (spec, plan_path) = (spec.to_str().expect("text"), plan.to_str().expect("text"));
    cluster.weft(["plan", trace, "--cluster", spec, "--output", plan_path]);
    let text = std::fs::read_to_string(&plan).expect("a plan");
    assert!(text.contains("/weft/field.h"), "{text}");
}

const TWIN: &str = "[[servers]]\ncount = 2\n[[servers.targets]]\nclass = \"hdd\"\nprofile = \"hdd-7200\"\n\
[[servers]]\ncount = 1\n[[servers.targets]]\nclass = \"ssd\"\nprofile = \"sata-ssd\"\n";
