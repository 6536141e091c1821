//! Operations on bytes: open, write, read, truncate, punch, sync.

use super::{Actor, Handle, inode_path, path};
use crate::search::bytes::{Fill, fill};
use crate::search::names::{Answer, Request};
use crate::search::plan::{Fault, pick};
use std::io::{IoSlice, IoSliceMut};
use weft_client::{Error, OpenFile};
use weft_core::{ByteLen, Extent, FileId, FileOffset};
use weft_env::sim::SimEnv;
use weft_wire::meta::{LayoutSpec, LockSpace, OpenFlags};

/// Maximum number of files that a program keeps open.
const OPEN_MAX: usize = 4;

impl Actor {
    pub(super) async fn open(&mut self) {
        if self.handles.len() >= OPEN_MAX {
            let at = self.draw_handle();
            return self.close(at).await;
        }
        if self.rng.below(5) == 0 && !self.handles.is_empty() {
            return self.open_again().await;
        }
        let at = self.draw_slot();
        let create = self.rng.below(4) > 0;
        let exclusive = create && self.rng.below(3) == 0;
        let write = self.rng.below(4) > 0;
        let read = !write || self.rng.below(5) > 0;
        let flags = OpenFlags { read, write, create, exclusive, ..OpenFlags::default() };
        let stripe = pick(&mut self.rng, &self.cluster.plan.stripes);
        let parts = self.draw_parts();
        let by_rule = parts.is_none() && self.cluster.plan.rules && self.rules_rng.below(4) > 0;
        // Only a file without a requested layout is inline.
        let is_inline = self.cluster.plan.inline_max > 0 && self.inline_rng.below(4) > 0;
        let stripe_size = (!by_rule && !is_inline).then_some(ByteLen(stripe));
        let plain = LayoutSpec { stripe_size, ..LayoutSpec::default() };
        let compression = if is_inline { None } else { self.draw_compression() };
        let spec = LayoutSpec { compression, ..parts.unwrap_or(plain) };
        let path = path(at);
        let id = self.begins(|| format!("open {path} {flags:?}"));
        self.judge.hit("op: open");
        self.judge.name_requested(id, Request::Open { at, create, exclusive });
        let began = self.judge.moment();
        let result = self.client.open(&inode_path(&path), flags, 0o644, &spec).await;
        let took = self.judge.ends(id, || match &result {
            Ok(file) => format!("file {} created {}", file.file(), file.created()),
            Err(error) => error.to_string(),
        });
        match result {
            Ok(file) => {
                self.judge.name_answered(id, &Answer::Opened { file: file.file().0, made: file.created() });
                if let Some(layout) = file.layout().filter(|_| by_rule && file.created()) {
                    self.created_by_rule(id, at.dir, began, layout);
                }
                self.opened(file, write, began);
            }
            Err(error) => self.end_failed_name_request(id, &error, took),
        }
    }

    fn opened(&mut self, file: OpenFile<SimEnv>, write: bool, began: u64) {
        let (known_at, is_its_own) = self.judge.file(file.file(), |model, _| {
            if model.layout.is_none() {
                model.layout = file.layout().cloned();
            }
            let mut may_be = model.layout.iter().chain(&model.moved_to);
            let is_its_own = file.layout().is_none_or(|layout| {
                may_be.any(|other| other == layout)
                    || model.moved_by.iter().any(|by| self.cluster.is_by_class(layout, by))
            });
            (model.known_at, is_its_own)
        });
        if !is_its_own {
            let what = format!("file {} has {:?}", file.file(), file.layout());
            self.judge.violated("only moves change layouts", what);
        }
        if file.created() && file.layout().is_some_and(|layout| layout.components().len() > 1) {
            self.judge.hit("parts: a file of several");
        }
        if file.created() && known_at < began {
            self.judge.violated("file ids are not reused", format!("file {}", file.file()));
        }
        let key = u64::from(self.judge.id());
        self.handles.push(Handle { file, key, write });
    }

    /// Opens an open file again, perhaps with truncation.
    async fn open_again(&mut self) {
        let at = self.draw_handle();
        let file = self.handles[at].file.file();
        let (write, truncate) = (self.rng.below(2) == 0, self.rng.below(2) == 0);
        // The file was removed, and an outage closed the last open file.
        if let Err(error) = self.reopen(file, write, truncate).await {
            self.check_error(at, &error, &[libc::ESTALE]).await;
        }
    }

    /// Opens a file by its number.
    pub(super) async fn reopen(&mut self, file: FileId, write: bool, truncate: bool) -> Result<(), Error> {
        let flags = OpenFlags { write, truncate, ..OpenFlags::READ };
        let id = self.begins(|| format!("open file {file} {flags:?}"));
        self.judge.hit(if truncate { "op: open with O_TRUNC" } else { "op: open by number" });
        let began = self.judge.moment();
        if truncate {
            self.judge.file(file, |model, now| model.begin_cut(id, 0, now));
        }
        let result = self.client.open(&self.by_number(file), flags, 0, &LayoutSpec::default()).await;
        self.ends(id, &result);
        let again = result?;
        if truncate {
            self.judge.file(file, |model, now| model.end_cut(id, began, now));
        }
        self.opened(again, write, began);
        Ok(())
    }

    pub(super) async fn close(&mut self, at: usize) {
        let handle = self.handles.swap_remove(at);
        let file = handle.file.file();
        let id = self.begins(|| format!("close file {file}"));
        self.judge.hit("op: close");
        if self.handles.iter().all(|other| other.file.file() != file) {
            self.judge.now(|state, _| state.locks.closed(self.number, file));
        }
        let own = (self.number, handle.key);
        self.judge.now(|state, _| state.locks.released(own, file, LockSpace::Flock, (0, u64::MAX)));
        let result = handle.file.close().await;
        self.ends(id, &result);
        if let Err(error) = result {
            self.judge.check_excuse(&error, &[]);
        }
    }

    /// Draws the kind of bytes that a write has: also some that compress, if there are compressed files.
    fn draw_fill(&mut self) -> Fill {
        match self.cluster.plan.compression {
            Some(_) if self.compression_rng.below(3) > 0 => Fill::Repeating,
            _ => Fill::Positional,
        }
    }

    pub(super) async fn write(&mut self) {
        let Some(at) = self.draw_writer() else { return };
        let (offset, len) = (self.draw_offset(), self.draw_len());
        let (handle, key) = (self.handles[at].file.clone(), self.handles[at].key);
        let file = handle.file();
        let id = self.begins(|| format!("write file {file} {offset}..{}", offset + len as u64));
        self.judge.hit(if len == 0 { "op: write of nothing" } else { "op: write" });
        let mut bytes = vec![0; len];
        let kind = self.draw_fill();
        fill(id, kind, offset, &mut bytes);
        let end = offset + len as u64;
        let began = self.judge.file(file, |model, now| {
            if len > 0 {
                model.begin_write(id, kind, offset, end, now);
            }
            now
        });
        // Now and then as two buffers.
        let (first, second) = bytes.split_at(if self.rng.below(3) == 0 { len / 3 } else { len });
        let parts = [IoSlice::new(first), IoSlice::new(second)];
        let result = handle.write_at(&parts, FileOffset(offset)).await;
        let took = self.ends(id, &result);
        drop(handle);
        match result {
            Ok(count) => {
                if count > 0 {
                    self.judge.used(id, self.number, file, took);
                }
                if count < len && !self.cluster.plan.faults.contains(&Fault::FullDisk) {
                    self.judge.violated("writes are whole", format!("#{id}: {count} of {len}"));
                }
                self.judge.file(file, |model, now| {
                    if len > 0 {
                        model.end_write(id, key, (offset, end, count as u64), began, now);
                    }
                });
            }
            Err(error) => self.check_error(at, &error, &[]).await,
        }
    }

    pub(super) async fn append(&mut self) {
        let Some(at) = self.draw_writer() else { return };
        let len = self.draw_len().clamp(1, 9000);
        let (handle, key) = (self.handles[at].file.clone(), self.handles[at].key);
        let file = handle.file();
        let id = self.begins(|| format!("append to file {file} {len} bytes"));
        self.judge.hit("op: append");
        let mut bytes = vec![0; len];
        fill(id, Fill::Uniform, 0, &mut bytes);
        let began = self.judge.file(file, |model, now| {
            model.begin_append(id, now);
            model.reads.insert(now);
            now
        });
        let result = handle.append(&[IoSlice::new(&bytes)]).await;
        let took = self.judge.ends(id, || match &result {
            Ok((offset, count)) => format!("{count} bytes at {offset}"),
            Err(error) => error.to_string(),
        });
        drop(handle);
        match result {
            Ok((offset, count)) => {
                self.judge.used(id, self.number, file, took);
                self.judge.appended(id, file, began, offset.0, count as u64);
                self.judge.end_size_query(file, began);
                let (len, count) = (len as u64, count as u64);
                self.judge.file(file, |model, now| {
                    model.end_append(id, key, (offset.0, len, count), began, now);
                });
            }
            Err(error) => {
                self.judge.file(file, |model, _| model.fail_append(id, len as u64, began));
                self.judge.end_size_query(file, began);
                self.check_error(at, &error, &[]).await;
            }
        }
    }

    pub(super) async fn read(&mut self) {
        let at = self.draw_handle();
        let handle = self.handles[at].file.clone();
        if !handle.flags().read {
            return;
        }
        let (offset, len) = (self.draw_offset(), self.draw_len());
        if let Err(error) = self.read_range(&handle, offset, len).await {
            drop(handle);
            self.check_error(at, &error, &[]).await;
        }
    }

    /// Reads a range and checks the bytes.
    pub async fn read_range(
        &self,
        handle: &OpenFile<SimEnv>,
        offset: u64,
        len: usize,
    ) -> Result<usize, Error> {
        let file = handle.file();
        let id = self.begins(|| format!("read file {file} {offset}..{}", offset + len as u64));
        self.judge.hit("op: read");
        // Bytes that the read leaves alone must not look like written data.
        let mut buf = vec![0xee; len];
        let began = self.judge.begin_read(file);
        let result = handle.read_at(&mut [IoSliceMut::new(&mut buf)], FileOffset(offset)).await;
        let took = self.judge.ends(id, || match &result {
            Ok(count) => format!("{count} bytes"),
            Err(error) => error.to_string(),
        });
        match &result {
            Ok(count) => {
                if *count > 0 {
                    self.judge.used(id, self.number, file, took);
                }
                buf.truncate(*count);
                if *count < len {
                    self.judge.hit("op: read across the end");
                }
                self.judge.end_read(id, file, began, offset, len, &buf);
            }
            Err(_) => self.judge.fail_read(file, began),
        }
        result
    }

    pub(super) async fn truncate(&mut self) {
        let by_handle = self.rng.below(3) > 0;
        let at = if by_handle { self.draw_writer() } else { Some(self.draw_handle()) };
        let Some(at) = at else { return };
        let handle = self.handles[at].file.clone();
        let (file, size) = (handle.file(), self.draw_offset());
        let id = self.begins(|| format!("truncate file {file} to {size}, by handle {by_handle}"));
        self.judge.hit(if by_handle { "op: truncate" } else { "op: truncate by name" });
        let began = self.judge.file(file, |model, now| {
            model.begin_cut(id, size, now);
            now
        });
        let result = match by_handle {
            true => handle.truncate(ByteLen(size)).await,
            false => self.client.truncate(&self.by_number(file), ByteLen(size)).await,
        };
        self.ends(id, &result);
        drop(handle);
        match result {
            Ok(()) => self.judge.file(file, |model, now| model.end_cut(id, began, now)),
            Err(error) => self.check_error(at, &error, if by_handle { &[] } else { &[libc::ENOENT] }).await,
        }
    }

    pub(super) async fn punch(&mut self) {
        let Some(at) = self.draw_writer() else { return };
        let (start, len) = (self.draw_offset(), self.draw_len() as u64);
        let (handle, key) = (self.handles[at].file.clone(), self.handles[at].key);
        let (file, end) = (handle.file(), start + len);
        let id = self.begins(|| format!("punch file {file} {start}..{end}"));
        self.judge.hit("op: punch");
        let began = self.judge.file(file, |model, now| {
            model.begin_punch(id, start, end, now);
            now
        });
        let result = handle.punch(Extent::new(start, len)).await;
        self.ends(id, &result);
        drop(handle);
        match result {
            Ok(()) => self.judge.file(file, |model, now| model.end_punch(id, key, (start, end), began, now)),
            Err(error) => self.check_error(at, &error, &[]).await,
        }
    }

    pub(super) async fn sync(&mut self, and_close: bool) {
        let at = self.draw_handle();
        let (handle, key) = (self.handles[at].file.clone(), self.handles[at].key);
        let file = handle.file();
        let id = self.begins(|| format!("sync file {file}"));
        self.judge.hit("op: sync");
        let began = self.judge.file(file, |_, now| now);
        let result = handle.sync().await;
        self.ends(id, &result);
        self.judge.end_sync(file, key, began, result.is_ok());
        drop(handle);
        match result {
            Ok(()) if and_close => self.close(at).await,
            Ok(()) => {}
            // A datafile whose sync has failed once is never reported as durable again.
            Err(error) if self.cluster.plan.faults.contains(&Fault::DiskErrors) => {
                self.check_error(at, &error, &[libc::EIO]).await;
            }
            // Writes before a loss of power may be lost, and a sync must report that.
            Err(error) if self.judge.file(file, |model, _| model.lost_power_ever()) => {
                self.judge.hit("sync: reported lost writes");
                self.check_error(at, &error, &[libc::EIO]).await;
            }
            Err(error) => self.check_error(at, &error, &[]).await,
        }
    }

    pub(super) async fn size(&mut self) {
        let at = self.draw_handle();
        let handle = self.handles[at].file.clone();
        if let Err(error) = self.size_of(&handle).await {
            drop(handle);
            self.check_error(at, &error, &[]).await;
        }
    }

    /// Queries a file's length and checks it.
    pub async fn size_of(&self, handle: &OpenFile<SimEnv>) -> Result<u64, Error> {
        let file = handle.file();
        let by_stat = self.judge.moment().is_multiple_of(2);
        let id = self.begins(|| format!("size of file {file}, by stat {by_stat}"));
        self.judge.hit(if by_stat { "op: stat by handle" } else { "op: size" });
        let began = self.judge.begin_size_query(file);
        let result = match by_stat {
            true => handle.attr().await.map(|attr| attr.size.0),
            false => handle.size().await.map(|size| size.0),
        };
        self.judge.ends(id, || format!("{result:?}"));
        if let Ok(size) = &result {
            self.judge.size_returned(id, file, began, *size, by_stat);
        }
        self.judge.end_size_query(file, began);
        result
    }

    /// Opens a file by its number for reading.
    pub async fn open_to_read(&self, file: FileId) -> Result<OpenFile<SimEnv>, Error> {
        self.client.open(&self.by_number(file), OpenFlags::READ, 0, &LayoutSpec::default()).await
    }
}
