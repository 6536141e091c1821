//! A table of which a picture is taken in no time: its pages are shared with the picture, and copied when they change.

use std::sync::Arc;

/// So many rows are copied at once: some tens of kilobytes, a few microseconds.
const PAGE_ROWS: usize = 512;

/// Rows by their numbers. A clone shares all pages.
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

    /// Memory of so many rows is there.
    pub fn capacity(&self) -> usize {
        self.pages.len() * PAGE_ROWS
    }

    pub fn push(&mut self, row: T) {
        if self.len == self.capacity() {
            // The others are overwritten before anybody reads them.
            self.pages.push(vec![row; PAGE_ROWS].into());
        } else {
            *self.row_mut(self.len) = row;
        }
        self.len += 1;
    }

    /// The row of a number that is there.
    #[inline]
    pub fn get(&self, number: u32) -> &T {
        debug_assert!((number as usize) < self.len);
        &self.pages[number as usize / PAGE_ROWS][number as usize % PAGE_ROWS]
    }

    /// The same to be changed.
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
