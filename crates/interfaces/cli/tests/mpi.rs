//! The unmodified MPI programs of the demonstration, with Debian's MPICH.

mod common;

use common::{Embedded, needs, root, succeeded};
use std::path::PathBuf;
use std::process::Command;

/// Compiles a program of the demonstration.
fn compiled(cluster: &Embedded, compiler: &str, name: &str) -> PathBuf {
    needs(compiler);
    let program = cluster.local(name);
    let source = root().join("examples/demo").join(format!("{name}.c"));
    let dir = program.parent().expect("a directory");
    succeeded(Command::new(compiler).current_dir(dir).args(["-O1", "-o"]).arg(&program).arg(source));
    program
}

#[test]
fn an_mpi_io_program_writes_and_reads_one_shared_file() {
    needs("mpiexec.mpich");
    let cluster = Embedded::started();
    let program = compiled(&cluster, "mpicc.mpich", "mpiio_records");
    let program = program.to_str().expect("text");
    let said = cluster.run(["mpiexec.mpich", "-n", "4", program, "/weft/records"]);
    assert!(said.contains("every byte is right"), "{said}");
    let expected = succeeded(Command::new("sh").arg("-c").arg(format!("{program} --expected 4 | sha256sum")));
    let found = cluster.run(["sh", "-c", "sha256sum < /weft/records"]);
    assert_eq!(found, expected);
    let shown = cluster.weft(["getstripe", "-v", "/weft/records"]);
    assert!(shown.contains("36102144 bytes") && shown.contains("stripe count: 4"), "{shown}");
}

#[test]
fn a_parallel_hdf5_program_writes_and_reads_one_shared_file() {
    needs("mpiexec.mpich");
    needs("h5dump");
    let cluster = Embedded::started();
    let program = compiled(&cluster, "h5pcc.mpich", "hdf5_field");
    let program = program.to_str().expect("text");
    let said = cluster.run(["mpiexec.mpich", "-n", "4", program, "/weft/field.h5"]);
    assert!(said.contains("every value is right"), "{said}");
    let reference = cluster.local("reference.h5");
    succeeded(Command::new("mpiexec.mpich").args(["-n", "4", program]).arg(&reference));
    cluster.run(["h5diff", reference.to_str().expect("text"), "/weft/field.h5"]);
    let dumped = cluster.run(["h5dump", "-a", "/particles/steps", "/weft/field.h5"]);
    assert!(dumped.contains("(0): 64"), "{dumped}");
}

#[test]
fn ranks_that_are_started_inside_find_the_same_cluster() {
    needs("mpiexec.mpich");
    let cluster = Embedded::started();
    let each = "echo rank $PMI_RANK > /weft/rank.$PMI_RANK";
    cluster.run(["mpiexec.mpich", "-n", "4", "sh", "-c", each]);
    assert_eq!(cluster.run(["sh", "-c", "cat /weft/rank.*"]), "rank 0\nrank 1\nrank 2\nrank 3\n");
}
