//! Counters and lists that every entry is part of.

use super::{Link, Map, NONE};
use crate::fragments::piece::State;

impl Map {
    /// Marks an entry as used and moves it to the end of its LRU list.
    pub fn touch(&mut self, id: u32) {
        self.entries.get_mut(id).label.is_used = true;
        if self.entry(id).label.is_evictable() && self.lru[self.entry(id).label.class.index()].tail != id {
            self.unlink_lru(id);
            self.link_lru(id);
        }
    }

    pub(super) fn link(&mut self, id: u32) {
        let entry = *self.entry(id);
        let len = u64::from(entry.len);
        let slot = &mut self.files[entry.file as usize];
        match entry.label.state {
            State::Dirty => slot.dirty += len,
            State::Clean | State::Copy => slot.clean += len,
            State::Lost => {
                slot.lost += len;
                self.lost += len;
                return;
            }
        }
        let total = &mut self.classes[entry.label.class.index()];
        total.entries += 1;
        total.gains += i128::from(entry.label.weight());
        total.puts += u64::from(entry.label.puts);
        let is_dirty = entry.label.state == State::Dirty;
        if is_dirty {
            total.dirty += len
        } else {
            total.clean += len
        }
        let segment = self.segments.get_mut(entry.location.segment);
        segment.live += len;
        segment.dirty += if is_dirty { len } else { 0 };
        let head = std::mem::replace(&mut segment.entries, id);
        self.entries.get_mut(id).in_segment = Link { prev: NONE, next: head };
        if head != NONE {
            self.entries.get_mut(head).in_segment.prev = id;
        }
        if !is_dirty {
            self.link_lru(id);
        }
    }

    pub(super) fn unlink(&mut self, id: u32) {
        let entry = *self.entry(id);
        let len = u64::from(entry.len);
        let slot = &mut self.files[entry.file as usize];
        match entry.label.state {
            State::Dirty => slot.dirty -= len,
            State::Clean | State::Copy => slot.clean -= len,
            State::Lost => {
                slot.lost -= len;
                self.lost -= len;
                return;
            }
        }
        let total = &mut self.classes[entry.label.class.index()];
        total.entries -= 1;
        total.gains -= i128::from(entry.label.weight());
        total.puts -= u64::from(entry.label.puts);
        let is_dirty = entry.label.state == State::Dirty;
        if is_dirty {
            total.dirty -= len
        } else {
            total.clean -= len
        }
        let segment = self.segments.get_mut(entry.location.segment);
        segment.live -= len;
        segment.dirty -= if is_dirty { len } else { 0 };
        let Link { prev, next } = entry.in_segment;
        match prev {
            NONE => segment.entries = next,
            prev => self.entries.get_mut(prev).in_segment.next = next,
        }
        if next != NONE {
            self.entries.get_mut(next).in_segment.prev = prev;
        }
        if !is_dirty {
            self.unlink_lru(id);
        }
    }

    pub(super) fn link_lru(&mut self, id: u32) {
        let list = &mut self.lru[self.entry(id).label.class.index()];
        let tail = std::mem::replace(&mut list.tail, id);
        match tail {
            NONE => list.head = id,
            tail => self.entries.get_mut(tail).lru.next = id,
        }
        self.entries.get_mut(id).lru = Link { prev: tail, next: NONE };
    }

    pub(super) fn unlink_lru(&mut self, id: u32) {
        let entry = self.entry(id);
        let (Link { prev, next }, class) = (entry.lru, entry.label.class.index());
        match prev {
            NONE => self.lru[class].head = next,
            prev => self.entries.get_mut(prev).lru.next = next,
        }
        match next {
            NONE => self.lru[class].tail = prev,
            next => self.entries.get_mut(next).lru.prev = prev,
        }
    }
}
