//! Read-ahead for ranks that read in ascending order or with a stride.

use crate::service::{Service, Transfer};
use crate::state::State;
use crate::underlying::Underlying;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weft_core::delegates::ownership::{PageId, PageIndex, Policy, hashed_owner};
use weft_env::{Env, Notify};

/// Most pages that wait to be fetched ahead.
const QUEUE_MAX: usize = 64;
/// Pages fetched ahead of a sequential reader.
const SEQUENTIAL_PAGES: usize = 2;

impl<E: Env, U: Underlying<E>> Service<E, U> {
    /// Registers that a rank reads a page, and queues the pages that it will read next.
    pub(crate) fn note_access(&self, state: &mut State<E, U::File>, transfer: &Transfer<'_>, id: &PageId) {
        let Some(session) = transfer.session else { return };
        let Some(open) = state.files.get_mut(&transfer.file) else { return };
        let page_len = open.page_len;
        let Some(registration) = open.opens.get_mut(&session) else { return };
        let index = id.index.0;
        let Some(last) = registration.last_page.replace(index).filter(|last| *last != index) else { return };
        let stride = index.wrapping_sub(last).cast_signed();
        let was = std::mem::replace(&mut registration.last_stride, stride);
        let mut wanted = Vec::new();
        if self.owned_after(id.file, last).next() == Some(index) {
            wanted.extend(self.owned_after(id.file, index).take(SEQUENTIAL_PAGES));
        } else if stride == was {
            wanted.extend(index.checked_add_signed(stride).filter(|page| self.owns(id.file, *page)));
        }
        // While ranks fill the memory with dirty bytes, pages fetched ahead would push out those that they use.
        let room = (self.config.settings.memory.0 / 2).saturating_sub(state.pages.dirty());
        for page in wanted {
            let id = PageId::new(transfer.file, PageIndex(page));
            let is_queued = state.read_ahead.len() >= QUEUE_MAX || state.read_ahead.contains(&id);
            let is_present = state.pages.of(page_len).buffer(id).is_some();
            if !is_queued && !is_present && page_len * (state.read_ahead.len() as u64 + 1) <= room {
                state.read_ahead.push_back(id);
            }
        }
        if !state.read_ahead.is_empty() && state.idle_readers > 0 {
            self.ahead.notify_all();
        }
    }

    fn owns(&self, file: weft_core::delegates::ownership::FileNumber, page: u64) -> bool {
        let settings = &self.config.settings;
        let id = PageId::new(file, PageIndex(page));
        settings.policy == Policy::FirstTouch
            || hashed_owner(id, settings.delegates, settings.group_pages).0 == settings.index
    }

    /// Returns the pages behind `page` that a sequential reader asks this delegate for.
    fn owned_after(
        &self,
        file: weft_core::delegates::ownership::FileNumber,
        page: u64,
    ) -> impl Iterator<Item = u64> + '_ {
        let settings = &self.config.settings;
        // Each round of groups has one group of every delegate.
        let furthest = 2 * settings.group_pages.saturating_mul(u64::from(settings.delegates));
        let pages = (page.saturating_add(1)..=page.saturating_add(furthest)).take(4096);
        pages.filter(move |page| self.owns(file, *page))
    }

    /// Fetches queued pages until the delegate ends.
    pub(crate) async fn run_read_ahead(self: Arc<Self>) {
        while !self.is_stopping.load(Ordering::SeqCst) {
            let seen = self.ahead.epoch();
            let next = {
                let mut state = self.state.lock();
                let state = &mut *state;
                let next = state.read_ahead.pop_front().filter(|id| {
                    let is_open = state
                        .files
                        .get(&id.file)
                        .is_some_and(|open| open.reader.is_some() && open.holds.is_empty());
                    is_open && state.fetching.insert(*id)
                });
                let is_done = next.is_none() && state.read_ahead.is_empty();
                state.idle_readers += u32::from(is_done);
                state.counters.read_ahead += u64::from(next.is_some());
                if is_done { Err(()) } else { Ok(next) }
            };
            match next {
                // The request that needs the page fetches it again and reports the error.
                Ok(Some(id)) => drop(self.fetch(id).await),
                Ok(None) => {}
                Err(()) => {
                    self.ahead.wait(seen, None).await;
                    self.state.lock().idle_readers -= 1;
                }
            }
        }
    }
}
