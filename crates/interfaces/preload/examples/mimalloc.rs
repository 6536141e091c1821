//! A program whose `malloc` is mimalloc, linked statically. It allocates in threads, and writes and reads files in the
//! given directory. A test runs it on the mount.

use std::path::Path;
use std::process::Command;

fn main() {
    // SAFETY: asks for a number. It also makes sure that the allocator is linked.
    let allocator_version = unsafe { mi_version() };
    assert!(allocator_version >= 100, "mimalloc reports its version");
    let dir = std::env::args().nth(1).expect("a directory");
    std::env::set_current_dir(&dir).expect("the directory exists");
    let threads: Vec<_> = (1..=4u32).map(|number| std::thread::spawn(move || work(number))).collect();
    for thread in threads {
        thread.join().expect("the thread succeeds");
    }
    for number in 1..=4 {
        assert_eq!(std::fs::read_to_string(format!("t{number}")).expect("was written"), format!("t{number}"));
    }
    assert!(!Path::new("/etc/there-is-no-such-file").exists());
    let copied = Command::new("cp").args(["t3", "copied"]).status().expect("cp runs");
    assert!(copied.success());
    assert_eq!(std::fs::read_to_string("copied").expect("was copied"), "t3");
}

/// Allocates and frees blocks of many sizes, then writes a file.
fn work(number: u32) {
    let mut state = number;
    let mut kept: Vec<Vec<u8>> = vec![Vec::new(); 64];
    for _ in 0..20_000 {
        state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        kept[(state >> 16 & 63) as usize] = vec![0; (state >> 20 & 0xfff) as usize];
    }
    std::fs::write(format!("t{number}"), format!("t{number}")).expect("space for a file");
}

// Linked only for its `malloc`.
use libmimalloc_sys as _;
unsafe extern "C" {
    fn mi_version() -> std::ffi::c_int;
}
