use super::*;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

fn private() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).expect("set");
    dir
}

fn addresses(texts: &[&str]) -> Vec<Address> {
    texts.iter().map(|text| text.parse().expect("an address")).collect()
}

fn job(dir: &Path) -> Job {
    let delegates =
        vec![addresses(&["unix:/run/d0.sock", "tcp:node1:4001"]), addresses(&["tcp:[fd00::1]:4002"])];
    Job::new(dir, "job-1".into(), delegates, vec!["/mnt/a \"b\"".into(), "/mnt/c".into()])
}

#[test]
fn a_written_job_is_read_back() {
    let dir = private();
    let job = job(dir.path());
    job.write(dir.path()).expect("written");
    assert_eq!(Job::load(dir.path()).expect("read"), job);
    assert_eq!(job.delegates[1].name, "delegate 1");
    let names: Vec<_> = std::fs::read_dir(dir.path()).expect("listed").flatten().collect();
    assert_eq!(names.len(), 1, "no temporary file remains");
    job.write(dir.path()).expect("written again");
}

#[test]
fn invalid_files_are_rejected_with_a_remedy() {
    let parse = |text: &str| Job::parse(Path::new("/job/job.toml"), text).map_err(|error| error.to_string());
    let good = "name = \"a\"\n[[delegate]]\naddress = \"tcp:n:1\"\n";
    assert!(parse(good).is_ok());
    for (text, words) in [
        ("", "name"),
        ("name = \"a\"", "1 to 4096 delegates, not 0"),
        ("name = \"a\"\n[[delegate]]\n", "address"),
        ("name = \"a\"\n[[delegate]]\naddress = \"n:1\"\n", "tcp:host:port"),
        ("name = \"a\"\nofer = [\"/a\"]\n[[delegate]]\naddress = \"tcp:n:1\"\n", "did you mean over?"),
        ("name = \"a\"\n[[delegate]]\naddress = \"tcp:n:1\"\nhost = \"x\"\n", "does not know \"host\""),
        ("name = \"a\"\nover = [\"b\"]\n[[delegate]]\naddress = \"tcp:n:1\"\n", "absolute path"),
        ("name = \"a\"\nover = \"/a/../b\"\n[[delegate]]\naddress = \"tcp:n:1\"\n", "without .."),
        ("name", "not TOML"),
    ] {
        let error = parse(text).expect_err(text);
        assert!(error.contains(words), "{text}: {error}");
    }
}

#[test]
fn a_directory_that_others_can_enter_is_rejected() {
    let dir = private();
    job(dir.path()).write(dir.path()).expect("written");
    for mode in [0o755, 0o710, 0o701, 0o770] {
        std::fs::set_permissions(dir.path(), Permissions::from_mode(mode)).expect("set");
        let error = Job::load(dir.path()).expect_err("rejected").to_string();
        assert!(error.contains("chmod"), "{error}");
        assert!(job(dir.path()).write(dir.path()).is_err());
    }
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).expect("set");
    Job::load(dir.path()).expect("private again");
    let error = Job::load(&dir.path().join("none")).expect_err("missing").to_string();
    assert!(error.contains("weft run --delegates"), "{error}");
}

#[test]
fn all_processes_derive_the_same_secret_and_name() {
    let dir = private();
    let first = make_job_key(dir.path()).expect("made");
    let second = make_job_key(dir.path()).expect("read");
    assert_eq!(first.own_server_key(), second.own_server_key());
    assert_eq!(job_name(&first), job_name(&second));
    assert!(job_name(&first).starts_with("job-") && job_name(&first).len() == 16);
    let other = private();
    assert_ne!(job_name(&first), job_name(&make_job_key(other.path()).expect("made")));
    assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 1, "no temporary file remains");

    let job = Job::new(dir.path(), job_name(&first), vec![addresses(&["tcp:n:1"])], Vec::new());
    assert!(matches!(job.credentials().expect("with key").key, ClientKey::Cluster(_)));
    let keyless =
        Job::new(other.path().join("x").as_path(), "a".into(), vec![addresses(&["tcp:n:1"])], Vec::new());
    assert!(keyless.credentials().is_err(), "a delegate of another host needs a key");
}

#[test]
fn the_variable_names_a_directory_or_addresses() {
    let parse = |text: &str| Place::parse(OsStr::new(text));
    assert_eq!(parse("/run/job"), Ok(Place::Directory("/run/job".into())));
    let two = addresses(&["tcp:node1:40123", "tcp:10.0.0.2:5"]);
    assert_eq!(parse("node1:40123,10.0.0.2:5"), Ok(Place::Addresses(two)));
    for text in ["job", "node1", "node1:", "node1:99999", ",", "node1:1,,node2:2", "./job"] {
        let error = parse(text).expect_err(text).to_string();
        assert!(error.contains("WEFT_DELEGATES") && error.contains("node1:40123"), "{error}");
    }
}

#[test]
fn a_program_waits_for_its_delegates() {
    let dir = private();
    let error = Job::wait(dir.path(), Duration::from_millis(20)).expect_err("no delegate comes").to_string();
    assert!(error.contains("have not all come"), "{error}");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| Job::wait(dir.path(), WAIT));
        job(dir.path()).write(dir.path()).expect("written");
        assert_eq!(waiting.join().expect("no panic").expect("read"), job(dir.path()));
    });
}

#[test]
fn sockets_of_other_hosts_are_left_out() {
    let dir = private();
    let socket = dir.path().join("d0.sock");
    let both = vec![Address::Unix(socket.clone()), Address::Tcp("node1".into(), 4001)];
    let alone = vec![Address::Unix(socket.clone())];
    let job = Job::new(dir.path(), "job-1".into(), vec![both.clone(), alone.clone()], Vec::new());
    let found = |job: &Job| job.map().delegates.into_iter().map(|d| d.addresses).collect::<Vec<_>>();
    assert_eq!(found(&job), [both[1..].to_vec(), alone.clone()]);
    std::fs::write(&socket, "").expect("written");
    assert_eq!(found(&job), [both, alone]);
}
