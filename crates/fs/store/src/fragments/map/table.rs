//! A table with cheap snapshots: a snapshot shares its pages, and a page is copied when it changes.

use std::sync::Arc;

/// Rows per page: a page is some tens of kilobytes, copied in a few microseconds.
const PAGE_ROWS: usize = 512;

/// Rows indexed by number. A clone shares all pages.
#[derive(Clone)]
pub(in crate::fragments) struct Table<T> {
    pages: Vec<Arc<[T]>>,
    len: usize,
}

impl<T: Clone> Table<T> {
    pub const fn new() -> Self {
        Self { pages: Vec::new(), len: 0 }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of rows that fit the allocated pages.
    pub fn capacity(&self) -> usize {
        self.pages.len() * PAGE_ROWS
    }

    pub fn push(&mut self, row: T) {
        if self.len == self.capacity() {
            // The other rows are overwritten before they are read.
            self.pages.push(vec![row; PAGE_ROWS].into());
        } else {
            *self.row_mut(self.len) = row;
        }
        self.len += 1;
    }

    /// Returns a row that exists.
    #[inline]
    pub fn get(&self, number: u32) -> &T {
        debug_assert!((number as usize) < self.len);
        &self.pages[number as usize / PAGE_ROWS][number as usize % PAGE_ROWS]
    }

    /// Returns a row that exists, for modification.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> &mut T {
        debug_assert!((number as usize) < self.len);
        self.row_mut(number as usize)
    }

    #[inline]
    fn row_mut(&mut self, at: usize) -> &mut T {
        &mut Arc::make_mut(&mut self.pages[at / PAGE_ROWS])[at % PAGE_ROWS]
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flat_map(|page| page.iter()).take(self.len)
    }
}
