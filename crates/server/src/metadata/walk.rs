//! The path walk: from a base inode along names and symbolic links, with permission to search at each step.
//!
//! The base is the root, or an inode that the session proves to have reached by a walk ([`WalkProof`](weft_wire::WalkProof)).
//! Inode numbers are easy to guess: a walk from any of them would pass by the permissions of the directories above it. See
//! `docs/decisions/handles.md`.

use super::fault::{Fault, Outcome};
use super::op::Op;
use super::permit::{EXECUTE, require};
use super::tables::{dentry, inode as parent, known_inode, path_of};
use weft_core::FileId;
use weft_store::metadata::{Inode, Node, Snapshot};
use weft_wire::Errno;
use weft_wire::meta::{NAME_LEN_MAX, PATH_LEN_MAX, Place, ROOT};

/// Most symbolic links in one walk, as on Linux.
const LINKS_MAX: u32 = 40;

/// What the last part of a path was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Last {
    /// A name in a directory.
    Name,
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// Nothing: the base itself.
    Base,
}

/// Where a walk ended.
#[derive(Debug)]
pub(super) struct Walked {
    pub last: Last,
    /// The directory of the last name; with another `last` that of what was found.
    pub dir: FileId,
    pub dir_inode: Inode,
    /// The last name; empty with another `last`.
    pub name: Vec<u8>,
    /// Whether slashes follow the last name.
    pub slash: bool,
    pub found: Option<(FileId, Inode)>,
}

impl Walked {
    /// What is there.
    pub(super) fn existing(self) -> Outcome<(FileId, Inode)> {
        self.found.ok_or_else(|| Errno::ENOENT.into())
    }
}

/// Whether a symbolic link at the very end is followed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tail {
    Follow,
    /// Only where slashes come after it.
    FollowBeforeSlash,
    Keep,
}

/// Walks to an object: the end may be missing, a link there is followed if the place says so.
pub(super) fn walk(s: &dyn Snapshot, op: &Op<'_>, place: &Place) -> Outcome<Walked> {
    let tail = if place.follow { Tail::Follow } else { Tail::FollowBeforeSlash };
    let walked = walk_to(s, op, place, tail)?;
    match &walked.found {
        Some((_, inode)) if walked.slash && !inode.is_dir() => Err(Errno::ENOTDIR.into()),
        _ => Ok(walked),
    }
}

/// Walks to a name: a link at the end is the link itself.
pub(super) fn walk_to_name(s: &dyn Snapshot, op: &Op<'_>, place: &Place) -> Outcome<Walked> {
    walk_to(s, op, place, Tail::Keep)
}

fn walk_to(s: &dyn Snapshot, op: &Op<'_>, place: &Place, tail: Tail) -> Outcome<Walked> {
    if place.path.len() >= PATH_LEN_MAX {
        return Err(Errno::ENAMETOOLONG.into());
    }
    // Before the inode is looked for, so that the answer does not tell which numbers are in use.
    op.require_reached(op.session, place.base, place.proof.as_ref())?;
    let mut rest = trim(&place.path).to_vec();
    let (mut at, mut inode) = match parent(s, place.base)? {
        Some(inode) => (place.base, inode),
        None if rest.is_empty() => return Err(Errno::ESTALE.into()),
        // A removed directory, which the caller has open or works in, has no names.
        None => return Err(Errno::ENOENT.into()),
    };
    let mut links = 0;
    if rest.is_empty() {
        let slash = !place.path.is_empty();
        return Ok(Walked {
            last: Last::Base,
            dir: at,
            dir_inode: inode.clone(),
            name: Vec::new(),
            slash,
            found: Some((at, inode)),
        });
    }
    loop {
        let len = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
        let (name, behind) = rest.split_at(len);
        let (name, after) = (name.to_vec(), trim(behind).to_vec());
        let (is_last, slash) = (after.is_empty(), !behind.is_empty());
        if !inode.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        require(op.who, &inode, EXECUTE)?;
        if name.len() > NAME_LEN_MAX {
            return Err(Errno::ENAMETOOLONG.into());
        }
        if name.contains(&0) {
            return Err(Errno::EINVAL.into());
        }
        let last = match name.as_slice() {
            b"." => Last::Dot,
            b".." => Last::DotDot,
            _ => Last::Name,
        };
        let found = match last {
            Last::Dot => Some((at, inode.clone())),
            Last::DotDot if at == ROOT => {
                return Err(Fault::Elsewhere { from: Vec::new(), target: name, rest: after });
            }
            // Gone when the directory and the one above it were removed while somebody stayed in it.
            Last::DotDot => Some((inode.parent, parent(s, inode.parent)?.ok_or(Errno::ENOENT)?)),
            _ => match dentry(s, at, &name)? {
                None => None,
                Some(entry) => Some((entry.file, known_inode(s, entry.file)?)),
            },
        };
        if let Some((_, Inode { node: Node::Symlink { target }, .. })) = &found {
            let follow = !is_last || tail == Tail::Follow || (slash && tail == Tail::FollowBeforeSlash);
            if follow {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::ELOOP.into());
                }
                if target.starts_with(b"/") {
                    return Err(Fault::Elsewhere {
                        from: path_of(s, at)?,
                        target: target.clone(),
                        rest: after,
                    });
                }
                let mut next = target.clone();
                if slash {
                    next.push(b'/');
                    next.extend_from_slice(&after);
                }
                if next.len() >= 2 * PATH_LEN_MAX {
                    return Err(Errno::ENAMETOOLONG.into());
                }
                rest = next;
                continue;
            }
        }
        if is_last {
            let name = if last == Last::Name { name } else { Vec::new() };
            return Ok(Walked { last, dir: at, dir_inode: inode, name, slash, found });
        }
        let Some((next, next_inode)) = found else { return Err(Errno::ENOENT.into()) };
        (at, inode) = (next, next_inode);
        rest = after;
    }
}

fn trim(path: &[u8]) -> &[u8] {
    let start = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
    &path[start..]
}
