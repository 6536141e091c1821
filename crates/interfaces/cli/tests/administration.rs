//! Random sequences of administration beside writers: restarts, moves, drains, rebalancing and lost disks. After each step, a file
//! is either read as it was written, or its reads fail because bytes are lost, and `weft fsck` names it.

mod common;

use common::servers::Servers;
use common::{Random, shown};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

const STEPS: u32 = 24;
const TARGETS: u64 = 4;
const FILES_MAX: u64 = 6;
const HOLDERS_MAX: usize = 2;

/// A program that has a file open for writing.
struct Holder {
    path: String,
    child: Child,
}

/// A cluster and what its files must contain.
struct Model {
    servers: Servers,
    random: Random,
    /// Bytes of each file, by path.
    files: BTreeMap<String, Vec<u8>>,
    /// Files that may have lost bytes with a disk.
    suspects: BTreeSet<String>,
    holders: Vec<Holder>,
    steps: Vec<String>,
}

impl Model {
    fn new(seed: u64) -> Self {
        let servers = Servers::of_classes(&["hdd", "hdd", "ssd", "ssd"], "", "", "", "");
        servers.weft(["setstripe", "-S", "64K", "-c", "2", "/weft"]);
        Self {
            servers,
            random: Random::new(seed),
            files: BTreeMap::new(),
            suspects: BTreeSet::new(),
            holders: Vec::new(),
            steps: Vec::new(),
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = 1 + self.random.below(400_000);
        (0..len).map(|_| self.random.next() as u8 | 1).collect()
    }

    fn local(&self, bytes: &[u8]) -> String {
        let path = self.servers.path("local");
        fs::write(&path, bytes).expect("written");
        path.to_str().expect("text").to_owned()
    }

    /// Runs a command that may fail, because bytes are lost or a target takes no files. Returns whether it succeeded.
    fn tries(&mut self, args: &[&str]) -> bool {
        let output = self.servers.command(args).output().expect("weft starts");
        let is_done = output.status.success();
        self.steps.push(format!("weft {}: {}", args.join(" "), if is_done { "done" } else { "failed" }));
        is_done || {
            let text = shown(&output);
            assert!(!text.contains("panicked"), "{}", self.said(&text));
            false
        }
    }

    fn said(&self, what: &str) -> String {
        format!("{what}\nafter:\n{}", self.steps.join("\n"))
    }

    fn any_file(&mut self) -> Option<String> {
        let which = self.random.below(FILES_MAX) as usize;
        self.files.keys().nth(which % self.files.len().max(1)).cloned()
    }

    fn is_held(&self, path: &str) -> bool {
        self.holders.iter().any(|holder| holder.path == path)
    }

    fn copy(&mut self) {
        let path = format!("/weft/f{}", self.random.below(FILES_MAX));
        if self.is_held(&path) {
            return;
        }
        let bytes = self.bytes();
        let local = self.local(&bytes);
        // A new file, whose placement knows which targets may be used.
        self.tries(&["rm", "-f", &path]);
        if self.tries(&["cp", &local, &path]) {
            self.suspects.remove(&path);
            self.files.insert(path, bytes);
        } else {
            self.files.remove(&path);
            self.tries(&["rm", "-f", &path]);
        }
    }

    /// Appends to a file without closing or syncing it.
    fn hold(&mut self) {
        if self.holders.len() == HOLDERS_MAX {
            return;
        }
        let path = format!("/weft/f{}", self.random.below(FILES_MAX));
        if self.is_held(&path) || self.suspects.contains(&path) {
            return;
        }
        let bytes = self.bytes();
        let local = self.local(&bytes);
        let program = format!("exec 3>>{path}; cat {local} >&3 && echo done; read end; exec 3>&-");
        let mut command = self.servers.command(["run", "--", "sh", "-c", &program]);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().expect("weft starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("it runs");
        self.steps.push(format!("a program appends {} bytes to {path}: {}", bytes.len(), line.trim()));
        assert_eq!(line, "done\n", "{}", self.said("the program cannot append"));
        self.files.entry(path.clone()).or_default().extend(bytes);
        self.holders.push(Holder { path, child });
    }

    fn release(&mut self) {
        if let Some(mut holder) = self.holders.pop() {
            self.steps.push(format!("the program closes {}", holder.path));
            drop(holder.child.stdin.take());
            holder.child.wait().expect("waited for");
        }
    }

    fn restart(&mut self, id: usize) {
        match self.random.below(2) {
            0 => self.servers.kill(id),
            _ => self.servers.stop(id),
        }
        self.servers.start(id);
        self.steps.push(format!("server {id} is restarted"));
    }

    fn lose_disk(&mut self) {
        let target = self.random.below(TARGETS) as usize;
        if !self.tries(&["target", "replace", &target.to_string(), "--data-lost"]) {
            return;
        }
        self.servers.stop(target);
        let at = self.servers.path(&format!("target{target}"));
        fs::remove_dir_all(&at).expect("removed");
        fs::create_dir(&at).expect("a blank disk");
        self.servers.start(target);
        self.steps.push(format!("the disk of target {target} is blank"));
        self.suspects = self.files.keys().cloned().collect();
    }

    fn step(&mut self) {
        let target = self.random.below(TARGETS).to_string();
        match self.random.below(20) {
            0..5 => self.copy(),
            5..9 => self.hold(),
            9 => self.release(),
            10..13 => {
                let id = if self.random.below(2) == 0 { 0 } else { self.random.below(TARGETS) as usize };
                self.restart(id);
            }
            13..16 => {
                let class = ["hdd", "ssd"][self.random.below(2) as usize];
                if let Some(path) = self.any_file() {
                    self.tries(&["migrate", "-S", "64K", "-c", "2", "--class", class, &path]);
                }
            }
            16 => {
                self.tries(&["target", "drain", "-q", &target]);
                self.tries(&["target", "activate", &target]);
            }
            17 => {
                self.tries(&["rebalance", "-q"]);
            }
            _ => self.lose_disk(),
        }
    }

    /// Compares every file with the model, and `weft fsck` with the files that cannot be read.
    fn check(&mut self) {
        let mut unreadable = Vec::new();
        for (path, bytes) in &self.files {
            let output = self.servers.command(["cat", path]).output().expect("weft starts");
            if output.status.success() {
                let len = output.stdout.len();
                assert!(output.stdout == *bytes, "{}", self.said(&format!("{path}: {len} bytes are wrong")));
            } else {
                let text = String::from_utf8_lossy(&output.stderr);
                let may = self.suspects.contains(path) && text.contains("lost");
                assert!(may, "{}", self.said(&format!("{path}: {text}")));
                unreadable.push(path.clone());
            }
        }
        let output = self.servers.command(["fsck"]).output().expect("weft starts");
        let text = shown(&output);
        for path in &unreadable {
            assert!(text.contains(path.as_str()), "{}", self.said(&format!("fsck omits {path}:\n{text}")));
        }
    }
}

#[test]
fn no_documented_administration_turns_lost_bytes_into_others() {
    let (_, seed) = Random::seeded();
    let mut lost = 0;
    for number in 0..2 {
        let mut model = Model::new(seed.wrapping_add(number));
        model.copy();
        model.hold();
        for _ in 0..STEPS {
            model.step();
            model.check();
        }
        // At least once in each run, with files open and after a restart that forgot how long they are.
        model.hold();
        model.restart(0);
        model.lose_disk();
        model.check();
        while !model.holders.is_empty() {
            model.release();
        }
        model.check();
        lost += model.suspects.len();
        // After the loss is accepted, all files can be read.
        model.tries(&["fsck", "--repair", "--accept-loss"]);
        for path in model.files.keys().cloned().collect::<Vec<_>>() {
            assert!(model.tries(&["cat", &path]), "{}", model.said(&path));
        }
        assert!(model.servers.weft(["fsck"]).contains(" 0 problems"), "{}", model.said("fsck"));
    }
    assert!(lost > 0, "no disk was lost while there were files");
}
