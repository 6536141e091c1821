//! A program of root under `weft run` that changes its user: calls by path have the rights of the new user at once, open
//! files keep theirs.

mod common;

use common::shared_cluster::SharedCluster;
use common::{Embedded, isolated, needs, shown, succeeded};
use std::path::PathBuf;
use std::process::Stdio;

fn program() -> String {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/programs/change_user.py"].iter().collect();
    path.to_str().expect("text").to_owned()
}

/// The kernel's file system is the model: the program prints the same there.
#[test]
fn a_program_has_the_rights_of_the_user_that_it_becomes() {
    needs("python3");
    let Some(shared) = SharedCluster::new(&[&["", ""], &[""]]) else { return };
    let plain = shared.path("plain");
    std::fs::create_dir(&plain).expect("a directory");
    let model =
        isolated("python3").arg(program()).arg(&plain).stdin(Stdio::null()).output().expect("it starts");
    assert!(model.status.success(), "{}", shown(&model));

    let program = program();
    succeeded(&mut shared.weft(0, ["mkdir", "/weft/top"]));
    let mut served = shared.weft(0, ["run", "--", "python3", program.as_str(), "/weft/top"]);
    let served = served.output().expect("weft starts");
    assert!(served.status.success(), "{}", shown(&served));
    let lines = |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect::<Vec<_>>();
    let (model, said) = (lines(&model.stdout), lines(&served.stdout));
    for (number, (model, said)) in model.iter().zip(&said).enumerate() {
        assert_eq!(model, said, "line {number}\n{}", shown(&served));
    }
    assert_eq!(model.len(), said.len(), "{}", shown(&served));
    assert!(model.len() > 200, "the program did not come far");
}

/// The sockets of an embedded cluster lie in a private directory of its user, so another user gets a clear error.
#[test]
fn the_private_cluster_of_root_stays_closed_to_other_users() {
    needs("python3");
    if !common::skip::unless_root("changing the user") {
        return;
    }
    let cluster = Embedded::new();
    let script = "\
import errno, os
fd = os.open('/weft/f', os.O_RDWR | os.O_CREAT)
assert os.write(fd, b'x' * 100000) == 100000
os.setuid(4711)
for work in lambda: os.open('/weft/f', os.O_RDONLY), lambda: os.unlink('/weft/f'), lambda: os.mkdir('/weft/d'):
    try: work()
    except OSError as error: print(errno.errorcode[error.errno])
print(os.pwrite(fd, b'y' * 100000, 50000), os.pread(fd, 5, 49998), os.fstat(fd).st_size)
";
    let output = cluster.running(["python3", "-c", script]).output().expect("weft starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "EACCES\nEACCES\nEACCES\n100000 b'xxyyy' 150000\n", "{}", shown(&output));
}
