//! Naive namespace: the expected replies of the service, and the expected state after a power failure.

use std::collections::BTreeMap;
use weft_core::random::SplitMix64;
use weft_wire::meta::*;

/// Random choices of a run.
pub struct Rng(SplitMix64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound
    }
}

#[derive(Clone, Debug)]
pub enum Op {
    Mkdir(String),
    Create(String),
    Symlink(String),
    Link(String, String),
    Unlink(String),
    Rmdir(String),
    Rename(String, String, bool, bool),
    Chmod(String, u32),
    SetXattr(String, u8),
}

/// Result of an operation: success, an errno, or a walk through a link that leads out of the namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    Fine,
    Errno(i32),
    Elsewhere,
}

pub const ENOENT: Answer = Answer::Errno(2);
pub const EEXIST: Answer = Answer::Errno(17);
pub const ENOTDIR: Answer = Answer::Errno(20);
pub const EISDIR: Answer = Answer::Errno(21);
pub const EINVAL: Answer = Answer::Errno(22);
pub const EPERM: Answer = Answer::Errno(1);
pub const ENOTEMPTY: Answer = Answer::Errno(39);
pub const ELOOP: Answer = Answer::Errno(40);

#[derive(Clone, Debug)]
enum Kind {
    File,
    Link,
    Dir(BTreeMap<String, usize>),
}

#[derive(Clone, Debug)]
struct Node {
    kind: Kind,
    mode: u32,
    xattr: Option<u8>,
}

/// All nodes ever created; node 0 is the root. Nodes without a name are treated as removed.
#[derive(Clone, Debug)]
pub struct Model {
    nodes: Vec<Node>,
}

impl Model {
    pub fn new() -> Self {
        Self { nodes: vec![Node { kind: Kind::Dir(BTreeMap::new()), mode: 0o755, xattr: None }] }
    }

    fn dir(&self, node: usize) -> Result<&BTreeMap<String, usize>, Answer> {
        match &self.nodes[node].kind {
            Kind::Dir(names) => Ok(names),
            Kind::File => Err(ENOTDIR),
            Kind::Link => Err(Answer::Elsewhere),
        }
    }

    fn names(&mut self, node: usize) -> &mut BTreeMap<String, usize> {
        match &mut self.nodes[node].kind {
            Kind::Dir(names) => names,
            _ => panic!("a directory"),
        }
    }

    /// Returns the directory and last name of a path, and the node if it exists.
    fn find(&self, path: &str) -> Result<(usize, String, Option<usize>), Answer> {
        let parts: Vec<&str> = path.split('/').collect();
        let (last, before) = parts.split_last().expect("not empty");
        let mut at = 0;
        for part in before {
            at = *self.dir(at)?.get(*part).ok_or(ENOENT)?;
        }
        let found = self.dir(at)?.get(*last).copied();
        Ok((at, (*last).to_owned(), found))
    }

    fn is_dir(&self, node: usize) -> bool {
        matches!(self.nodes[node].kind, Kind::Dir(_))
    }

    fn add(&mut self, path: &str, kind: Kind, mode: u32) -> Result<(), Answer> {
        let (dir, name, found) = self.find(path)?;
        if found.is_some() {
            return Err(EEXIST);
        }
        self.nodes.push(Node { kind, mode, xattr: None });
        let node = self.nodes.len() - 1;
        self.names(dir).insert(name, node);
        Ok(())
    }

    fn holds(&self, outer: usize, inner: usize) -> bool {
        outer == inner
            || match &self.nodes[outer].kind {
                Kind::Dir(names) => names.values().any(|&child| self.holds(child, inner)),
                _ => false,
            }
    }

    pub fn apply(&mut self, op: &Op) -> Answer {
        match self.try_apply(op) {
            Ok(()) => Answer::Fine,
            Err(answer) => answer,
        }
    }

    fn try_apply(&mut self, op: &Op) -> Result<(), Answer> {
        match op {
            Op::Mkdir(path) => self.add(path, Kind::Dir(BTreeMap::new()), 0o755),
            Op::Create(path) => {
                let (_, _, found) = self.find(path)?;
                match found.map(|node| &self.nodes[node].kind) {
                    None => self.add(path, Kind::File, 0o644),
                    Some(Kind::File) => Ok(()),
                    Some(Kind::Dir(_)) => Err(EISDIR),
                    Some(Kind::Link) => Err(ELOOP),
                }
            }
            Op::Symlink(path) => self.add(path, Kind::Link, 0o777),
            Op::Link(from, to) => {
                let node = self.find(from)?.2.ok_or(ENOENT)?;
                let (dir, name, found) = self.find(to)?;
                if found.is_some() {
                    return Err(EEXIST);
                }
                if self.is_dir(node) {
                    return Err(EPERM);
                }
                self.names(dir).insert(name, node);
                Ok(())
            }
            Op::Unlink(path) => {
                let (dir, name, found) = self.find(path)?;
                if self.is_dir(found.ok_or(ENOENT)?) {
                    return Err(EISDIR);
                }
                self.names(dir).remove(&name);
                Ok(())
            }
            Op::Rmdir(path) => {
                let (dir, name, found) = self.find(path)?;
                match &self.nodes[found.ok_or(ENOENT)?].kind {
                    Kind::Dir(names) if names.is_empty() => {}
                    Kind::Dir(_) => return Err(ENOTEMPTY),
                    _ => return Err(ENOTDIR),
                }
                self.names(dir).remove(&name);
                Ok(())
            }
            Op::Rename(from, to, no_replace, exchange) => self.rename(from, to, *no_replace, *exchange),
            Op::Chmod(path, mode) => {
                let node = self.find(path)?.2.ok_or(ENOENT)?;
                self.nodes[node].mode = *mode;
                Ok(())
            }
            Op::SetXattr(path, value) => {
                let node = self.find(path)?.2.ok_or(ENOENT)?;
                if matches!(self.nodes[node].kind, Kind::Link) {
                    return Err(EPERM);
                }
                self.nodes[node].xattr = Some(*value);
                Ok(())
            }
        }
    }

    fn rename(&mut self, from: &str, to: &str, no_replace: bool, exchange: bool) -> Result<(), Answer> {
        if no_replace && exchange {
            return Err(EINVAL);
        }
        let (from_dir, from_name, node) = self.find(from)?;
        let (to_dir, to_name, victim) = self.find(to)?;
        let node = node.ok_or(ENOENT)?;
        if no_replace && victim.is_some() {
            return Err(EEXIST);
        }
        if exchange && victim.is_none() {
            return Err(ENOENT);
        }
        if self.is_dir(node) && self.holds(node, to_dir) {
            return Err(EINVAL);
        }
        if let Some(victim) = victim
            && self.is_dir(victim)
            && victim != node
            && self.holds(victim, from_dir)
        {
            return Err(if exchange { EINVAL } else { ENOTEMPTY });
        }
        if victim == Some(node) {
            return Ok(());
        }
        if let Some(victim) = victim
            && !exchange
        {
            match (&self.nodes[victim].kind, self.is_dir(node)) {
                (Kind::Dir(_), false) => return Err(EISDIR),
                (Kind::Dir(names), true) if names.is_empty() => {}
                (Kind::Dir(_), true) => return Err(ENOTEMPTY),
                (_, true) => return Err(ENOTDIR),
                (_, false) => {}
            }
        }
        self.names(from_dir).remove(&from_name);
        self.names(to_dir).insert(to_name, node);
        if exchange {
            self.names(from_dir).insert(from_name, victim.expect("exists"));
        }
        Ok(())
    }

    /// Returns one line for each name: path, kind, mode, links, attribute, and the first path of the same inode.
    pub fn lines(&self) -> Vec<String> {
        let mut all = Vec::new();
        self.visit(0, "", &mut all);
        let lines = all.iter().map(|(path, node)| {
            let first = &all.iter().find(|(_, other)| other == node).expect("itself").0;
            let Node { kind, mode, xattr } = &self.nodes[*node];
            let (kind, links) = match kind {
                Kind::Dir(names) => ('d', 2 + names.values().filter(|&&child| self.is_dir(child)).count()),
                Kind::File => ('f', all.iter().filter(|(_, other)| other == node).count()),
                Kind::Link => ('l', all.iter().filter(|(_, other)| other == node).count()),
            };
            format!("{path} {kind} {mode:o} {links} {xattr:?} {first}")
        });
        lines.collect()
    }

    fn visit(&self, dir: usize, prefix: &str, out: &mut Vec<(String, usize)>) {
        let Kind::Dir(names) = &self.nodes[dir].kind else { return };
        for (name, &child) in names {
            let path = format!("{prefix}{name}");
            out.push((path.clone(), child));
            self.visit(child, &format!("{path}/"), out);
        }
    }
}

fn path(rng: &mut Rng) -> String {
    let depth = 1 + rng.below(3);
    (0..depth).map(|_| ["a", "b", "c"][rng.below(3) as usize]).collect::<Vec<_>>().join("/")
}

/// Returns a random operation.
pub fn op(rng: &mut Rng) -> Op {
    let (a, b) = (path(rng), path(rng));
    match rng.below(20) {
        0..4 => Op::Mkdir(a),
        4..9 => Op::Create(a),
        9 => Op::Symlink(a),
        10 => Op::Link(a, b),
        11 | 12 => Op::Unlink(a),
        13 => Op::Rmdir(a),
        14..17 => Op::Rename(a, b, rng.below(4) == 0, rng.below(4) == 0),
        17 | 18 => Op::Chmod(a, 0o700 | rng.below(0o100) as u32),
        _ => Op::SetXattr(a, rng.below(256) as u8),
    }
}

/// Returns the request that executes `op` below `top`.
pub fn request(op: &Op, top: &str, handle: HandleId) -> MetaRequest {
    let at = |path: &str| super::link_at(&format!("{top}/{path}"));
    match op {
        Op::Mkdir(path) => MetaRequest::Mkdir { at: at(path), mode: 0o755 },
        Op::Create(path) => MetaRequest::Open {
            at: at(path),
            flags: super::CREATE,
            mode: 0o644,
            handle,
            layout: LayoutSpec::default(),
            cache: false,
            ranks: None,
        },
        Op::Symlink(path) => MetaRequest::Symlink { at: at(path), target: b"/out".to_vec() },
        Op::Link(from, to) => MetaRequest::Link { from: at(from), to: at(to) },
        Op::Unlink(path) => MetaRequest::Unlink { at: at(path) },
        Op::Rmdir(path) => MetaRequest::Rmdir { at: at(path) },
        Op::Rename(from, to, no_replace, exchange) => {
            MetaRequest::Rename { from: at(from), to: at(to), no_replace: *no_replace, exchange: *exchange }
        }
        Op::Chmod(path, mode) => {
            let set = SetAttr { mode: Some(*mode), ..SetAttr::default() };
            MetaRequest::SetAttr { at: at(path), set }
        }
        Op::SetXattr(path, value) => MetaRequest::SetXattr {
            at: at(path),
            name: "user.x".into(),
            value: vec![*value],
            create: false,
            replace: false,
        },
    }
}

pub fn answer(reply: &MetaReply) -> Answer {
    match reply {
        MetaReply::Failed(error) => Answer::Errno(error.errno.0),
        MetaReply::Elsewhere { .. } => Answer::Elsewhere,
        _ => Answer::Fine,
    }
}
