//! Lost bytes: datafiles that are shorter than the metadata server has recorded.

use super::{Check, Parts, inode_path};
use crate::commands::bytes::text;
use crate::commands::session::why;
use crate::failure::Failure;
use std::collections::{BTreeMap, BTreeSet};
use weft_config::Module;
use weft_core::{ByteLen, FileId, Layout, LocalExtent, ObjectId, TargetId};
use weft_env::real::block_on;
use weft_wire::meta::{FileType, ScannedInode};

/// Number of inodes requested to find one. Earlier rows may be datafiles of several generations.
const NEAR_MAX: u32 = 64;
/// Maximum number of rounds for files that are truncated during the check.
const ROUNDS_MAX: u32 = 5;
/// Maximum number of lost ranges listed for a datafile.
const RANGES_MAX: usize = 8;

/// A datafile that is shorter than recorded.
struct Lost {
    object: ObjectId,
    target: TargetId,
    held: ByteLen,
    recorded: ByteLen,
}

/// Returns the datafiles of `inode` that are shorter than recorded, on targets that were listed completely.
fn lost(inode: &ScannedInode, own: &Parts, listed: impl Fn(TargetId) -> bool) -> Vec<Lost> {
    let layout = match (&inode.layout, inode.kind) {
        (Some(layout), FileType::Regular) if !inode.doomed => layout,
        _ => return Vec::new(),
    };
    let held = |object, target| own.get(&(object, target)).copied().unwrap_or_default();
    inode
        .recorded
        .of(layout)
        .filter(|(object, target, recorded)| listed(*target) && held(*object, *target) < *recorded)
        .map(|(object, target, recorded)| Lost { object, target, held: held(object, target), recorded })
        .collect()
}

impl Check<'_> {
    /// Whether a target's datafiles were listed and it stores any.
    fn keeps(&self, target: TargetId) -> bool {
        let mut targets = self.weft.cluster.servers.iter().flat_map(|server| &server.targets);
        let is_null = targets.any(|entry| entry.id == target && entry.module == Module::Null);
        !is_null && !self.unlisted.contains_key(&target)
    }

    /// Whether bytes of the file may be lost. Checked again at the end, because the file may be truncated in between.
    pub(super) fn suspects(&mut self, inode: &ScannedInode, own: &Parts) -> bool {
        let is_suspect = !lost(inode, own, |target| self.keeps(target)).is_empty();
        if is_suspect {
            self.suspects.insert(inode.file.inode());
        }
        is_suspect
    }

    /// Reports the bytes that suspected files have lost.
    pub(super) fn lost_bytes(&mut self) -> Result<(), Failure> {
        let mut suspects: Vec<FileId> = std::mem::take(&mut self.suspects).into_iter().collect();
        for _ in 0..ROUNDS_MAX {
            if suspects.is_empty() {
                return Ok(());
            }
            self.bar.set_message("lost bytes");
            // A truncation first lowers the record and begins a new epoch, then shortens datafiles. A datafile that is
            // shorter than an earlier record has lost bytes if the epoch is still the same.
            let before = self.look_up(&suspects)?;
            let found = self.parts_of(&before)?;
            let after = self.look_up(&suspects)?;
            suspects.clear();
            for inode in before {
                let own = found.get(&inode.file).cloned().unwrap_or_default();
                let all = lost(&inode, &own, |target| self.keeps(target));
                let is_same = |now: &&ScannedInode| (now.file, now.epoch) == (inode.file, inode.epoch);
                match after.iter().find(is_same) {
                    _ if all.is_empty() => {}
                    Some(now) => self.report_loss(now, all, &own)?,
                    None => suspects.push(inode.file.inode()),
                }
            }
        }
        for file in suspects {
            self.unchecked.push(format!("inode {}: it is truncated repeatedly", file.0));
        }
        Ok(())
    }

    /// Returns the inodes of `files` that still exist.
    fn look_up(&self, files: &[FileId]) -> Result<Vec<ScannedInode>, Failure> {
        let mut found = Vec::new();
        for file in files {
            let before = FileId(file.0.saturating_sub(1));
            let page = block_on(self.weft.client.scan_inodes(before, NEAR_MAX))
                .map_err(|error| Failure::new("fsck", why(&error)))?;
            found.extend(page.into_iter().find(|inode| inode.file.inode() == *file && !inode.doomed));
        }
        Ok(found)
    }

    /// Returns the present datafiles of `inodes`.
    fn parts_of(&self, inodes: &[ScannedInode]) -> Result<BTreeMap<FileId, Parts>, Failure> {
        let files: BTreeSet<FileId> = inodes.iter().map(|inode| inode.file).collect();
        let layouts = inodes.iter().filter_map(|inode| inode.layout.as_ref());
        let targets: BTreeSet<_> = layouts.flat_map(Layout::objects).map(|(_, target)| target).collect();
        let mut found: BTreeMap<FileId, Parts> = BTreeMap::new();
        for target in targets.into_iter().filter(|target| self.keeps(*target)) {
            self.list(target, |file, object, len| {
                if files.contains(&file) {
                    found.entry(file).or_default().insert((object, target), len);
                }
            })?;
        }
        Ok(found)
    }

    fn report_loss(&mut self, inode: &ScannedInode, all: Vec<Lost>, own: &Parts) -> Result<(), Failure> {
        let Some(layout) = &inode.layout else { return Ok(()) };
        let name = self.name(inode);
        let mut repaired = false;
        if self.repair && self.accept_loss {
            // Truncate to the present length, so that missing bytes become a hole.
            let held = own
                .iter()
                .filter(|((object, _), len)| **len != ByteLen::UNKNOWN && layout.index_of(*object).is_some());
            let held = layout.file_size(held.map(|((object, _), len)| (*object, *len)));
            let size = inode.size.max(ByteLen(inode.recorded.file_size(layout).max(held).0));
            block_on(self.weft.client.accept_loss(&inode_path(inode), size))
                .map_err(|error| Failure::new(&name, why(&error)))?;
            repaired = true;
        }
        for Lost { object, target, held, recorded } in all {
            let server = self.map.server_of(target).map(|server| self.map.server(server).name.clone());
            let datafile = format!(
                "datafile {}.{object} on target {} of server {} has {}",
                inode.file,
                target.0,
                server.unwrap_or_default(),
                held.0
            );
            if recorded == ByteLen::UNKNOWN {
                let from = layout.file_pieces(object, LocalExtent::new(held.0, 1)).next();
                let text = format!(
                    "{name}: bytes from {} on may be lost: {datafile} bytes, and how many it had when the disk was given up \
                     is unknown",
                    from.map_or(0, |piece| piece.offset.0)
                );
                self.problem(&text, repaired);
                continue;
            }
            let local = LocalExtent::new(held.0, recorded.0 - held.0);
            let mut pieces = layout.file_pieces(object, local);
            let ranges: Vec<String> = (&mut pieces)
                .take(RANGES_MAX)
                .map(|piece| format!("{} to {}", piece.offset.0, piece.offset.0 + piece.len.0))
                .collect();
            let more = pieces.count();
            let more = if more > 0 { format!(" and {more} more ranges") } else { String::new() };
            let text = format!(
                "{name}: bytes {}{more} are lost: {datafile} of {} bytes",
                ranges.join(", "),
                recorded.0
            );
            self.problem(&text, repaired);
        }
        Ok(())
    }

    pub(super) fn name(&self, inode: &ScannedInode) -> String {
        match inode.path.is_empty() {
            true => format!("inode {}", inode.file.inode().0),
            false => self.weft.shown(&text(&inode.path)),
        }
    }
}
