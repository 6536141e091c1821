//! Path lookup: from a base inode along names and symbolic links, with search permission checked at each step.
//!
//! The base is the root, or an inode that the session proves to have reached by a lookup
//! ([`WalkProof`](weft_wire::WalkProof)). Inode numbers are easy to guess, and a lookup from an unproven one would
//! bypass the permissions of the directories above it.
//!
//! | base of the request | proof | accepted |
//! |---|---|---|
//! | root | none | yes |
//! | any inode | valid for this inode and session | yes |
//! | any inode | wrong | no, `EACCES` |
//! | any inode | none | only from servers and root |
//!
//! Each reply with attributes carries the proof for its inode: a MAC over inode and session under the cluster secret.
//! The service stores none of them. See `docs/design/walk-proofs.md`.

use super::fault::{Fault, Outcome};
use super::op::Op;
use super::permit::{EXECUTE, require};
use super::tables::{dentry, inode as parent, known_inode, path_of};
use weft_core::FileId;
use weft_store::metadata::{Inode, Node, Snapshot};
use weft_wire::Errno;
use weft_wire::meta::{InodePath, NAME_LEN_MAX, PATH_LEN_MAX, ROOT};

/// Maximum number of symbolic links in one lookup, as on Linux.
const LINKS_MAX: u32 = 40;

/// Kind of the last part of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LastComponent {
    /// A name in a directory.
    Name,
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// Empty: the base itself.
    Base,
}

/// Result of a lookup.
#[derive(Debug)]
pub(super) struct Walked {
    pub last: LastComponent,
    /// Directory of the last name; for another `last`, that of the inode found.
    pub dir: FileId,
    pub dir_inode: Inode,
    /// The last name; empty for another `last`.
    pub name: Vec<u8>,
    /// Whether slashes follow the last name.
    pub slash: bool,
    pub found: Option<(FileId, Inode)>,
}

impl Walked {
    /// The inode found.
    pub(super) fn existing(self) -> Outcome<(FileId, Inode)> {
        self.found.ok_or_else(|| Errno::ENOENT.into())
    }
}

/// Whether a symbolic link at the end is followed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LinkPolicy {
    Follow,
    /// Only if slashes follow it.
    FollowBeforeSlash,
    /// Only if no slashes follow it.
    FollowWithoutSlash,
    Keep,
}

impl LinkPolicy {
    fn of(place: &InodePath) -> Self {
        if place.follow { Self::Follow } else { Self::FollowBeforeSlash }
    }
}

/// Looks up an object. The last name may be missing; a link there is followed if the place says so.
pub(super) fn walk(s: &dyn Snapshot, op: &Op<'_>, place: &InodePath) -> Outcome<Walked> {
    let walked = walk_to(s, op, place, LinkPolicy::of(place))?;
    match &walked.found {
        Some((_, inode)) if walked.slash && !inode.is_dir() => Err(Errno::ENOTDIR.into()),
        _ => Ok(walked),
    }
}

/// Looks up a name under which an open may create a file. As on Linux, slashes behind it are refused even if the file
/// exists, also those that a symbolic link brings. An exclusive open follows no link.
pub(super) fn walk_to_create(
    s: &dyn Snapshot,
    op: &Op<'_>,
    place: &InodePath,
    is_exclusive: bool,
) -> Outcome<Walked> {
    // Slashes behind a link are refused before it is followed.
    let tail = if is_exclusive || !place.follow { LinkPolicy::Keep } else { LinkPolicy::FollowWithoutSlash };
    let walked = walk_to(s, op, place, tail)?;
    if walked.slash { Err(Errno::EISDIR.into()) } else { Ok(walked) }
}

/// Looks up a name. A link at the end is not followed.
pub(super) fn walk_to_name(s: &dyn Snapshot, op: &Op<'_>, place: &InodePath) -> Outcome<Walked> {
    walk_to(s, op, place, LinkPolicy::Keep)
}

fn walk_to(s: &dyn Snapshot, op: &Op<'_>, place: &InodePath, tail: LinkPolicy) -> Outcome<Walked> {
    if place.path.len() >= PATH_LEN_MAX {
        return Err(Errno::ENAMETOOLONG.into());
    }
    // Before the inode is read, so that the error does not reveal which numbers are in use.
    op.require_reached(op.session, place.base, place.proof.as_ref())?;
    let mut rest = trim(&place.path).to_vec();
    let (mut at, mut inode) = match parent(s, place.base)? {
        Some(inode) => (place.base, inode),
        None if rest.is_empty() => return Err(Errno::ESTALE.into()),
        // A removed directory, which the caller has open or works in, contains no names.
        None => return Err(Errno::ENOENT.into()),
    };
    let mut links = 0;
    if rest.is_empty() {
        let slash = !place.path.is_empty();
        return Ok(Walked {
            last: LastComponent::Base,
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
        require(op.caller, &inode, EXECUTE)?;
        if name.len() > NAME_LEN_MAX {
            // No name is looked for in a removed directory.
            return Err(if inode.nlink == 0 { Errno::ENOENT } else { Errno::ENAMETOOLONG }.into());
        }
        if name.contains(&0) {
            return Err(Errno::EINVAL.into());
        }
        let last = match name.as_slice() {
            b"." => LastComponent::Dot,
            b".." => LastComponent::DotDot,
            _ => LastComponent::Name,
        };
        let found = match last {
            LastComponent::Dot => Some((at, inode.clone())),
            LastComponent::DotDot if at == ROOT => {
                return Err(Fault::Elsewhere { from: Vec::new(), target: name, rest: after });
            }
            // Missing if the directory and the one above it were removed while a process worked in it.
            LastComponent::DotDot => Some((inode.parent, parent(s, inode.parent)?.ok_or(Errno::ENOENT)?)),
            _ => match dentry(s, at, &name)? {
                None => None,
                Some(entry) => Some((entry.file, known_inode(s, entry.file)?)),
            },
        };
        if let Some((_, Inode { node: Node::Symlink { target }, .. })) = &found {
            let follow = !is_last
                || match tail {
                    LinkPolicy::Follow => true,
                    LinkPolicy::FollowBeforeSlash => slash,
                    LinkPolicy::FollowWithoutSlash => !slash,
                    LinkPolicy::Keep => false,
                };
            if follow {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::ELOOP.into());
                }
                if target.starts_with(b"/") {
                    let mut target = target.clone();
                    // The slash may be that of a link before this one, which the client has not seen.
                    if slash && is_last && !target.ends_with(b"/") {
                        target.push(b'/');
                    }
                    return Err(Fault::Elsewhere { from: path_of(s, at)?, target, rest: after });
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
            let name = if last == LastComponent::Name { name } else { Vec::new() };
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
