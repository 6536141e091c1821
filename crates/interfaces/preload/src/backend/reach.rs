//! Places as a session can reach them. A walk proof is valid in the session that got it, so a place found from an open
//! directory of another user needs another way.

use super::convert::place;
use super::{Backend, session};
use crate::errno::{Fail, Res};
use crate::route::{Named, WeftPath};
use std::borrow::Cow;
use weft_client::{Client, InodePath, ROOT};
use weft_env::real::RealEnv;

/// A place, and the session in which a request can name it.
pub(super) type Reached<'a> = (Cow<'a, Client<RealEnv>>, InodePath);

impl Backend {
    /// Returns how to name the place. The request has the rights of this file system's user in any case.
    pub(super) fn reach(&self, at: &WeftPath, follow: bool) -> Res<Reached<'_>> {
        match at.by {
            Named::Path => {}
            _ if !follow && !at.must_dir => return Err(Fail::Kernel),
            Named::ProcLink | Named::Symlink => {}
            Named::Unknown => {
                crate::sys::complain(
                    "open: a link in /proc leads to an open file of another process: use the path of the file",
                );
                return Err(libc::EACCES.into());
            }
        }
        let place = place(at, follow);
        match at.base {
            Some((base, start)) if base.session != self.client.session() => {
                let own = Cow::Borrowed(&self.client);
                if self.identity.is_root() {
                    // Root needs no proof.
                    return Ok((own, InodePath { proof: None, ..place }));
                }
                if let Some(other) = session(base.session)
                    && other.identity.is_root()
                    && base.session == other.client.session()
                {
                    // Root's session may act for other users.
                    let other = other.client.on_behalf(self.identity.clone());
                    return Ok((Cow::Owned(other), place));
                }
                let top = at.text[..start].strip_prefix(b"/").unwrap_or(&at.text[..start]);
                let top = InodePath { base: ROOT, proof: None, path: top.to_vec(), follow: true };
                let found = weft_env::real::block_on(self.client.stat_last_known(&top))?.attr;
                if found.file.0 != base.inode {
                    return Err(libc::ESTALE.into());
                }
                Ok((own, InodePath { base: found.file, proof: Some(found.proof), ..place }))
            }
            _ => Ok((Cow::Borrowed(&self.client), place)),
        }
    }

    /// Returns how to name two places in one request.
    pub(super) fn reach_both(&self, from: (&WeftPath, bool), to: &WeftPath) -> Res<(Reached<'_>, InodePath)> {
        let (a, b) = (self.reach(from.0, from.1)?, self.reach(to, false)?);
        let is_free = |place: &InodePath| place.proof.is_none();
        match (&a.0, &b.0) {
            (Cow::Owned(_), Cow::Borrowed(_)) if !is_free(&b.1) => Err(libc::EXDEV.into()),
            (Cow::Borrowed(_), Cow::Owned(_)) if !is_free(&a.1) => Err(libc::EXDEV.into()),
            (Cow::Borrowed(_), Cow::Owned(_)) => Ok(((b.0, a.1), b.1)),
            _ => Ok((a, b.1)),
        }
    }
}
