//! State and counters for administrators.

use crate::service::Service;
use crate::underlying::Underlying;
use weft_core::ByteLen;
use weft_env::Env;
use weft_wire::delegate::{DelegateStatus, FileStatus, STATUS_FILES_MAX};

impl<E: Env, U: Underlying<E>> Service<E, U> {
    /// Returns the status.
    pub(crate) fn status(&self) -> DelegateStatus {
        let mut state = self.state.lock();
        let state = &mut *state;
        let counters = &state.counters;
        let mut files = Vec::new();
        for (number, open) in state.files.iter().take(STATUS_FILES_MAX) {
            let (pages, dirty) = state.pages.of(open.page_len).pages_of(*number);
            files.push(FileStatus {
                name: open.name.iter().copied().take(4096).collect(),
                sessions: open.opens.len() as u32,
                page_len: open.page_len,
                pages: pages as u64,
                dirty: ByteLen(dirty),
            });
        }
        DelegateStatus {
            index: self.config.settings.index,
            pid: self.config.hooks.pid,
            host: self.config.host.clone(),
            sessions: state.sessions.len() as u32,
            uptime: self.env.now().saturating_sub(self.started),
            memory_max: self.config.settings.memory,
            memory: ByteLen(state.pages.memory()),
            pages: state.pages.count(),
            dirty: ByteLen(state.pages.dirty()),
            requests: counters.requests,
            pieces: counters.pieces,
            bytes_read: ByteLen(counters.bytes_read),
            bytes_written: ByteLen(counters.bytes_written),
            hits: counters.hits,
            misses: counters.misses,
            read_ahead: counters.read_ahead,
            file_reads: counters.file_reads,
            file_writes: counters.file_writes,
            file_bytes_written: ByteLen(counters.file_bytes_written),
            forwarded: counters.forwarded,
            write_errors: counters.write_errors,
            files,
        }
    }
}
