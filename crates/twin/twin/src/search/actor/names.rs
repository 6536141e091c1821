//! Operations on names.

use super::{Actor, dir_path, inode_path, path};
use crate::search::names::{Answer, DIRS, NAMES, NameSlot, Request};
use crate::search::plan::Fault;
use weft_client::{Error, InodePath};
use weft_core::Nanos;

/// Name of the extended attribute.
const ATTRIBUTE: &str = "user.value";

impl Actor {
    pub(super) fn end_failed_name_request(&mut self, id: u32, error: &Error, took: Nanos) {
        match error.errno() {
            errno @ (libc::ENOENT | libc::EEXIST | libc::ENOTEMPTY) => {
                self.judge.name_answered(id, &Answer::Errno(errno));
            }
            _ => {
                self.judge.name_unanswered(id, took, error);
                let is_full = self.cluster.plan.faults.contains(&Fault::FullDisk);
                self.judge.check_excuse(error, if is_full { &[libc::ENOSPC] } else { &[] });
            }
        }
    }

    fn end_name_request(&mut self, id: u32, result: Result<Answer, Error>) {
        let took = self.judge.ends(id, || match &result {
            Ok(answer) => format!("{answer:?}"),
            Err(error) => error.to_string(),
        });
        match result {
            Ok(answer) => self.judge.name_answered(id, &answer),
            Err(error) => self.end_failed_name_request(id, &error, took),
        }
    }

    pub(super) async fn names(&mut self) {
        let (a, b) = (self.draw_slot(), self.draw_slot());
        let (from, to) = (inode_path(&path(a)), inode_path(&path(b)));
        let dir = 1 + self.rng.below(u64::from(DIRS - 1)) as u8;
        let request = match self.rng.below(16) {
            0..3 => Request::Rename(a, b),
            3..5 => Request::Link(a, b),
            5..8 => Request::Unlink(a),
            8 | 9 => Request::Mkdir(dir),
            10 => Request::Rmdir(dir),
            11 | 12 => Request::Stat(a),
            13 => Request::SetValue(a, self.judge.id()),
            14 => Request::GetValue(a),
            _ => Request::List(self.rng.below(u64::from(DIRS)) as u8),
        };
        let id = self.begins(|| format!("{request:?}"));
        self.judge.name_requested(id, request.clone());
        // A new directory has no rules.
        let renews = match request {
            Request::Mkdir(dir) | Request::Rmdir(dir) => Some(dir),
            _ => None,
        };
        if let Some(dir) = renews {
            self.judge.now(|state, now| state.rules.begin(id, dir, None, now));
        }
        let client = self.client.clone();
        let result = match request {
            Request::Rename(..) => {
                self.judge.hit("op: rename");
                client.rename(&from, &to, false, false).await.map(|()| Answer::Done)
            }
            Request::Link(..) => {
                self.judge.hit("op: link");
                client
                    .link(&from, &to)
                    .await
                    .map(|attr| Answer::Attr { file: attr.file.0, nlink: attr.nlink })
            }
            Request::Unlink(_) => {
                self.judge.hit("op: unlink");
                client.unlink(&from).await.map(|()| Answer::Done)
            }
            Request::Mkdir(dir) => {
                self.judge.hit("op: mkdir");
                client.mkdir(&inode_path(&dir_path(dir)), 0o755).await.map(|_| Answer::Done)
            }
            Request::Rmdir(dir) => {
                self.judge.hit("op: rmdir");
                client.rmdir(&inode_path(&dir_path(dir))).await.map(|()| Answer::Done)
            }
            Request::SetValue(_, value) => {
                self.judge.hit("op: set an attribute");
                let value = value.to_le_bytes();
                client.set_xattr(&from, ATTRIBUTE, &value, false, false).await.map(|()| Answer::Done)
            }
            Request::GetValue(_) => {
                self.judge.hit("op: get an attribute");
                match client.get_xattr(&from, ATTRIBUTE).await {
                    Ok(value) => Ok(Answer::Value(value.try_into().ok().map(u32::from_le_bytes))),
                    Err(error) if error.errno() == libc::ENODATA => Ok(Answer::Value(None)),
                    Err(error) => Err(error),
                }
            }
            Request::List(dir) => {
                self.judge.hit("op: list");
                self.list(dir).await
            }
            Request::Stat(_) | Request::Open { .. } => {
                self.judge.hit("op: stat");
                self.stat(id, &from).await
            }
        };
        if renews.is_some() {
            self.rule_written(id, &result);
        }
        self.end_name_request(id, result);
    }

    async fn stat(&self, id: u32, at: &InodePath) -> Result<Answer, Error> {
        let began = self.judge.begin_name_query();
        let stat = self.client.stat(at).await;
        if let Ok(attr) = &stat {
            self.judge.size_returned(id, attr.file, began, attr.size.0, true);
        }
        self.judge.end_name_query(began);
        let attr = stat?;
        Ok(Answer::Attr { file: attr.file.0, nlink: attr.nlink })
    }

    async fn list(&self, dir: u8) -> Result<Answer, Error> {
        let (entries, _) = self.client.list(&inode_path(&dir_path(dir)), b"", 100, false).await?;
        let names = entries.iter().filter_map(|entry| entry.name.strip_prefix(b"f"));
        Ok(Answer::Names(names.filter_map(|digit| digit.first().map(|digit| digit - b'0')).collect()))
    }

    /// Checks every name, without faults.
    pub async fn check_names(&mut self) {
        for dir in 0..DIRS {
            let id = self.begins(|| format!("list directory {dir}"));
            self.judge.name_requested(id, Request::List(dir));
            let result = self.list(dir).await;
            self.end_name_request(id, result);
            for name in 0..NAMES {
                let at = NameSlot { dir, name };
                let path = path(at);
                let id = self.begins(|| format!("stat {path}"));
                self.judge.name_requested(id, Request::Stat(at));
                let result = self.stat(id, &inode_path(&path)).await;
                self.end_name_request(id, result);
            }
        }
    }
}
