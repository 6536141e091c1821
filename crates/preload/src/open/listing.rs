//! What is read of an open directory.

use super::Open;
use crate::backend::{Name, backend};
use crate::errno::Res;
use crate::route::Spot;

/// Names of a directory, page by page.
pub struct Listing {
    spot: Spot,
    page: std::vec::IntoIter<Name>,
    more: bool,
    after: Vec<u8>,
    /// How many were told.
    pub told: u64,
}

impl Listing {
    pub fn new(open: &Open) -> Res<Self> {
        let spot = open.spot()?;
        let own = open.stat()?.st_ino;
        let dots = [b".".to_vec(), b"..".to_vec()];
        let dots = dots.map(|name| Name { name, inode: own, kind: libc::DT_DIR });
        Ok(Self { spot, page: Vec::from(dots).into_iter(), more: true, after: Vec::new(), told: 0 })
    }

    /// The next name that `fits`; it stays when it does not.
    pub fn next_if(&mut self, fits: impl FnOnce(&Name) -> bool) -> Res<Option<Name>> {
        while self.page.as_slice().is_empty() {
            if !self.more {
                return Ok(None);
            }
            let (page, more) = backend()?.list(&self.spot, &self.after)?;
            if let Some(last) = page.last() {
                self.after.clone_from(&last.name);
            }
            self.more = more && !page.is_empty();
            self.page = page.into_iter();
        }
        if !fits(&self.page.as_slice()[0]) {
            return Ok(None);
        }
        self.told += 1;
        Ok(self.page.next())
    }
}
