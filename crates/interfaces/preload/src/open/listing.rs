//! Position and cached names of an open directory.

use super::Open;
use crate::backend::{Backend, Name, backend, session};
use crate::errno::Res;
use crate::route::WeftPath;

/// Names of a directory, page by page.
pub struct Listing {
    weft_path: WeftPath,
    page: std::vec::IntoIter<Name>,
    more: bool,
    after: Vec<u8>,
    /// Number of names returned.
    pub returned: u64,
}

impl Listing {
    pub fn new(open: &Open) -> Res<Self> {
        let weft_path = open.weft_path()?;
        let stat = open.stat()?;
        if stat.st_nlink == 0 {
            // A removed directory has no names, not even these two.
            return Err(libc::ENOENT.into());
        }
        let own = stat.st_ino;
        let dots = [b".".to_vec(), b"..".to_vec()];
        let dots = dots.map(|name| Name { name, inode: own, kind: libc::DT_DIR });
        Ok(Self { weft_path, page: Vec::from(dots).into_iter(), more: true, after: Vec::new(), returned: 0 })
    }

    /// Returns the file system of the user who opened the directory, whose rights it keeps.
    fn backend(&self) -> Res<&'static Backend> {
        match self.weft_path.base.and_then(|(base, _)| session(base.session)) {
            Some(opener) => Ok(opener),
            None => backend(),
        }
    }

    /// Returns the next name if it `fits`; otherwise keeps it.
    pub fn next_if(&mut self, fits: impl FnOnce(&Name) -> bool) -> Res<Option<Name>> {
        while self.page.as_slice().is_empty() {
            if !self.more {
                return Ok(None);
            }
            let (page, more) = self.backend()?.list(&self.weft_path, &self.after)?;
            if let Some(last) = page.last() {
                self.after.clone_from(&last.name);
            }
            self.more = more && !page.is_empty();
            self.page = page.into_iter();
        }
        if !fits(&self.page.as_slice()[0]) {
            return Ok(None);
        }
        self.returned += 1;
        Ok(self.page.next())
    }
}
