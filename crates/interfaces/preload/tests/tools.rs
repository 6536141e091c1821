//! Installed shells, coreutils and Python, with and without the library: their output must be equal.

mod support;
use std::process::Command;
use support::isolate::isolate;
use support::{World, library, run, same_output, text};

#[test]
fn coreutils_in_dash() {
    same_output(&World::new(), "dash", "tools.sh");
}

#[test]
fn coreutils_in_bash() {
    same_output(&World::new(), "bash", "tools.sh");
}

#[test]
fn redirections_in_dash() {
    same_output(&World::new(), "dash", "redirect.sh");
}

#[test]
fn redirections_in_bash() {
    same_output(&World::new(), "bash", "redirect.sh");
}

#[test]
fn python() {
    same_output(&World::new(), "python3", "program.py");
}

/// Scripts see their own paths, and interpreters may be on the file system.
#[test]
fn programs_and_scripts() {
    same_output(&World::new(), "dash", "programs.sh");
}

/// Files that are open and have no name stay over exec, and after the process that opened them.
#[test]
fn files_without_a_name() {
    same_output(&World::new(), "dash", "nameless.sh");
}

/// Libraries on the file system, and those that they need from their own directory.
#[test]
fn shared_libraries() {
    same_output(&World::new(), "dash", "libraries.sh");
}

/// A program that never names the mount must not notice the library: same output, descriptors, threads and working
/// directory, and no connection.
#[test]
fn a_program_that_does_not_touch_the_mount_sees_no_change() {
    let script = "ls /proc/self/fd | wc -l; ls /proc/self/task | wc -l; pwd; cat /proc/self/net/unix | wc -l >/dev/null; \
                  ls /weft 2>/dev/null || echo none";
    let plain = run(isolate(&mut Command::new("sh")).args(["-c", script]));
    // Without any configuration: a library that searched for a cluster would report an error.
    let served = run(isolate(&mut Command::new("sh"))
        .args(["-c", script])
        .env("LD_PRELOAD", library())
        .env("WEFT_MOUNT", "/other"));
    assert_eq!(text(&plain), text(&served));
    assert!(plain.stdout.ends_with(b"none\n"), "{}", text(&plain));
}

#[test]
fn another_mount_prefix_is_served_exclusively() {
    let script = "echo text > /some/where/f && cat /some/where/f && test ! -e /weft && test ! -e /some && test ! -e /some/wherever";
    let served = run(World::new()
        .serve(&mut Command::new("sh"))
        .args(["-c", script])
        .env("WEFT_MOUNT", "/some/where/"));
    assert_eq!(text(&served), "exit status: 0\n--- stdout\ntext\n\n--- stderr\n");
}

/// The prefix may lie several real directories deep, and one of them may be reached through a link.
#[test]
fn relative_paths_descend_into_a_mount_below_real_directories() {
    let room = tempfile::tempdir().expect("space for a test");
    let top = room.path().canonicalize().expect("the directory exists");
    std::fs::create_dir_all(top.join("real/weft-not/x")).expect("space for a test");
    std::os::unix::fs::symlink("real", top.join("link")).expect("space for a test");
    let script = "\
import os, sys
top = sys.argv[1]
def get(path, **how):
    fd = os.open(path, os.O_RDONLY, **how)
    text = os.read(fd, 100)
    os.close(fd)
    return text
os.chdir(top)
open('link/weft/f', 'w').write('text')
assert get('link/weft/f') == get('./link/weft/f') == get('real/../link/weft/f') == b'text'
for above in [top, top + '/link', top + '/real', '/']:
    os.chdir(above)
    dir = os.open(above, os.O_RDONLY | os.O_DIRECTORY)
    rest = 'weft/f' if above.endswith(('link', 'real')) else (top + '/link/weft/f')[len(above):].lstrip('/')
    assert get(rest) == get(rest, dir_fd=dir) == get('./' + rest, dir_fd=dir) == b'text', above
    os.mkdir(rest + '-dir', dir_fd=dir)
    assert os.listdir(top + '/link/weft/f-dir') == []
    os.rmdir(rest + '-dir')
os.chdir(top + '/real')
assert os.listdir('weft-not') == ['x'] and os.stat('weft-not/x').st_dev == os.stat('.').st_dev
assert not os.path.exists('weftx') and os.listdir('.') == ['weft-not']
";
    for mount in ["link/weft", "real/weft"] {
        let script =
            if mount.starts_with("real") { script.replace("link/weft", "real/weft") } else { script.into() };
        let world = World::new();
        let served = run(world
            .serve(&mut Command::new("python3"))
            .args(["-c", &script])
            .arg(&top)
            .env("WEFT_MOUNT", top.join(mount)));
        assert!(served.status.success(), "{mount}: {}", text(&served));
    }
}

/// If all descriptors are in use, the library cannot connect to another server. The error says so, instead of that the
/// server is unreachable; it comes at once and disappears when the program has closed some descriptors. With a few free
/// descriptors, the library works as far as possible.
#[test]
fn a_program_without_free_descriptors_gets_emfile() {
    let script = "\
import errno, os, resource, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
fd = os.open('/weft/f', os.O_RDWR | os.O_CREAT)
taken = []
try:
    while True: taken.append(os.dup(0))
except OSError as full:
    assert full.errno == errno.EMFILE
for free in range(int(sys.argv[1])): os.close(taken.pop())
begin = time.monotonic()
seen = set()
for part in range(8):
    try: seen.add(os.pwrite(fd, b'x' * 65536, part % 4 << 20))
    except OSError as error: seen.add(errno.errorcode[error.errno])
assert time.monotonic() - begin < 4, 'it waited'
assert seen <= {65536, 'EMFILE'}, seen
for number in taken: os.close(number)
print({os.pwrite(fd, b'x' * 65536, part << 20) for part in range(4)}, len(os.pread(fd, 65536, 1 << 20)))
print('all well' if seen == {65536} else 'told' if seen == {'EMFILE'} else 'some')
";
    let world = World::new();
    for transport in ["auto", "socket"] {
        for (free, outcome) in [(0, "told"), (1, ""), (2, ""), (3, ""), (5, ""), (30, "all well")] {
            let output = run(world
                .serve(&mut Command::new("python3"))
                .args(["-c", script, &free.to_string()])
                .env("WEFT_TRANSPORT", transport));
            let said = format!("{transport} with {free} free: {}", text(&output));
            assert!(output.status.success() && said.contains("{65536} 65536"), "{said}");
            assert!(said.contains(outcome) && !said.contains("weft status"), "{said}");
            assert_eq!(said.contains("ulimit -n"), !said.contains("all well"), "{said}");
        }
    }
}

/// The socket of an embedded server lies in a private folder of its user. A program that changes its user keeps its open
/// files, also on servers that it has not used yet, and gets the right error at once for a path.
#[test]
fn a_program_that_changes_its_user_keeps_open_files_only() {
    if !support::skip::unless_root("changing the user") {
        return;
    }
    let script = "\
import errno, os, threading, time
fd = os.open('/weft/f', os.O_RDWR | os.O_CREAT)
os.setuid(65534)
begin = time.monotonic()
print([os.pwrite(fd, b'x' * 65536, part << 20) for part in range(4)])
done = []
work = lambda part: done.append(os.pwrite(fd, b'y' * 65536, part << 18))
threads = [threading.Thread(target=work, args=(part,)) for part in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sum(done) >> 16, os.fstat(fd).st_size)
for path in '/weft/f', '/weft/new':
    try: os.open(path, os.O_RDWR | os.O_CREAT)
    except OSError as error: print(errno.errorcode[error.errno])
assert time.monotonic() - begin < 60, 'it waited'
";
    let world = World::new();
    for transport in ["auto", "socket"] {
        let output = run(world
            .serve(&mut Command::new("python3"))
            .args(["-c", script])
            .env("WEFT_TRANSPORT", transport));
        let said = text(&output);
        assert!(output.status.success() && !said.contains("EIO"), "{said}");
        let expected = "[65536, 65536, 65536, 65536]\n16 3997696\nEACCES\nEACCES\n";
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{said}");
        assert!(said.contains("as the user who runs the server") && !said.contains("weft status"), "{said}");
    }
}
