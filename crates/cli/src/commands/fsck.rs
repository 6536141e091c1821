//! `weft fsck`: does what the metadata says fit what the targets hold?

mod lost;

use super::session::{Weft, why};
use crate::failure::Failure;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;
use std::path::PathBuf;
use weft_core::{ByteLen, FileId, ObjectId, TargetId};
use weft_env::real::block_on;
use weft_wire::ClusterMap;
use weft_wire::data::DatafileId;
use weft_wire::meta::{FileType, LINEAGE_MAX, Place, ScannedInode};

/// Asked for at a time.
const PAGE: u32 = 4096;

/// Problems were found, and all of them are mended.
const MENDED: u8 = 1;
/// Problems were found, and some are there still.
const LEFT: u8 = 4;
/// The check could not be done, or not for all. Added to the others.
const UNCHECKED: u8 = 8;

const AFTER: &str = "\
Looks for damaged bytes of the metadata database; for names without inodes, inodes without names and wrong link counts;
for datafiles that belong to no file (orphans) or lie where the file's layout does not have them (strays); for lost bytes:
datafiles that are missing, or shorter than the metadata server has recorded; and for files whose length is not that of
their datafiles. The cluster stays in use meanwhile: what is open or being removed is left alone.

With --repair, orphans and strays without bytes are removed, files that are longer than recorded get their length, and the
namespace is mended: inodes without a name get their last one again, or one in /lost+found. Nothing is changed without it. A
file that has lost bytes stays as it is, and reads of them fail with EIO, until the disk is back, a copy is written over it,
or --repair --accept-loss turns what is lost into zeros.

Orphans and strays with bytes stay, unless --delete-orphans is given as well: they may be all that is left of a file. A
datafile whose file id this metadata never gave out belongs to another copy of the metadata and is never removed.

What could not be checked is listed last: targets whose server does not answer, and files with datafiles there.

With --scrub, all datafiles that have checksums at rest (`weft setstripe --integrity`) are read from the disks and
verified while programs use them, at most --rate bytes a second. Damaged files are named with the damaged ranges. Their
bytes are lost: restore the file from a backup, or write these bytes anew. --repair does not change them.

Only administrators may do this: root and the user who runs the servers on the servers' hosts, and holders of an
administrator's key (`weft key admin`).

Exit codes:
  0  nothing is wrong
  1  problems were found, and all of them are mended
  2  wrong arguments, cluster file or key
  4  problems were found, and some are there still (without --repair: all)
  8  not all could be checked, a server may be down; added to the others: 12 is 4 and 8

Examples:
  weft fsck
  weft fsck --repair
  weft fsck --repair --delete-orphans
  weft fsck --scrub --rate 200MiB";

/// Checks the whole cluster, and repairs it when asked to.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Fsck {
    /// Mend what is found
    #[arg(long)]
    repair: bool,
    /// With --repair: lost bytes become zeros, and can be read
    #[arg(long, requires = "repair")]
    accept_loss: bool,
    /// Read all datafiles that have checksums, and verify them
    #[arg(long)]
    scrub: bool,
    /// Verify at most so many bytes a second, such as 200MiB
    #[arg(long, value_name = "SIZE", value_parser = super::rate, requires = "scrub")]
    rate: Option<ByteLen>,
    /// With --repair: remove orphans and strays that hold bytes, too
    #[arg(long, requires = "repair")]
    delete_orphans: bool,
    /// No progress on standard error
    #[arg(short = 'q', long)]
    quiet: bool,
}

/// Datafiles of one file, with their lengths.
type Parts = BTreeMap<(ObjectId, TargetId), ByteLen>;

struct Check<'a> {
    weft: &'a Weft,
    map: ClusterMap,
    repair: bool,
    accept_loss: bool,
    delete_orphans: bool,
    bar: ProgressBar,
    found: u64,
    mended: u64,
    /// Targets whose datafiles could not be listed, with the number of files that have some there.
    unlisted: BTreeMap<TargetId, u64>,
    /// Unchecked parts of the cluster, each with the reason.
    unchecked: Vec<String>,
    /// Inodes that seem to have lost bytes.
    suspects: BTreeSet<FileId>,
}

fn place(inode: &ScannedInode) -> Place {
    Place::at_inode(inode.file.inode(), inode.proof)
}

impl Fsck {
    /// Checks.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let weft = Weft::open(file)?;
        let bar = if self.quiet || !std::io::stderr().is_terminal() {
            ProgressBar::hidden()
        } else {
            let style = ProgressStyle::with_template("{spinner} {msg}: {human_pos}");
            ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
        };
        let mut check = Check {
            weft: &weft,
            map: weft.cluster.map(),
            repair: self.repair,
            accept_loss: self.accept_loss,
            delete_orphans: self.delete_orphans,
            bar,
            found: 0,
            mended: 0,
            unlisted: BTreeMap::new(),
            unchecked: Vec::new(),
            suspects: BTreeSet::new(),
        };
        let (files, datafiles) = check.all().map_err(|failure| failure.code(UNCHECKED))?;
        let mut scrubbed = String::new();
        if self.scrub {
            let report = super::scrub::all(&weft, self.rate, &check.bar);
            let report = report.map_err(|failure| failure.code(UNCHECKED))?;
            report.problems.iter().for_each(|problem| check.problem(problem, false));
            scrubbed = report.summary();
        }
        check.bar.finish_and_clear();
        if self.scrub {
            outln!("{scrubbed}");
        }
        let Check { found, mended, unlisted, unchecked, .. } = check;
        for (target, files) in unlisted.iter().filter(|(_, files)| **files > 0) {
            outln!("not checked: {files} files with datafiles on target {}", target.0);
        }
        unchecked.iter().for_each(|what| outln!("not checked: {what}"));
        let problems = format!("{found} problems, {mended} mended");
        match (unchecked.is_empty(), found) {
            (true, _) => outln!("{files} inodes, {datafiles} datafiles: {problems}"),
            (false, 0) => outln!("{files} inodes, {datafiles} datafiles: not all could be checked"),
            (false, _) => {
                outln!("{files} inodes, {datafiles} datafiles: {problems}; not all could be checked")
            }
        }
        let code = match (found, found - mended) {
            (0, _) => 0,
            (_, 0) => MENDED,
            _ => {
                if !self.repair {
                    outln!("nothing was changed; `weft fsck --repair` mends what can be mended");
                }
                LEFT
            }
        };
        Ok(code | if unchecked.is_empty() { 0 } else { UNCHECKED })
    }
}

impl Check<'_> {
    fn problem(&mut self, text: &str, mended: bool) {
        self.found += 1;
        self.mended += u64::from(mended);
        let mark = if mended { " (mended)" } else { "" };
        self.bar.suspend(|| outln!("{text}{mark}"));
    }

    /// All checks; the number of inodes and datafiles looked at.
    fn all(&mut self) -> Result<(u64, u64), Failure> {
        self.namespace()?;
        // Datafiles first: what is made meanwhile then has an inode that the later scan finds.
        let mut parts: BTreeMap<FileId, Parts> = BTreeMap::new();
        let mut datafiles = 0;
        for target in self.map.targets.clone() {
            self.bar.set_message(format!("datafiles on target {}", target.id.0));
            let listed = self.list(target.id, |file, object, len| {
                datafiles += 1;
                parts.entry(file).or_default().insert((object, target.id), len);
            });
            if let Err(failure) = listed {
                self.unlisted.insert(target.id, 0);
                self.unchecked.push(failure.text().to_owned());
            }
        }
        let files = self.inodes(&mut parts)?;
        self.lost_bytes()?;
        self.orphans(parts)?;
        Ok((files, datafiles))
    }

    fn namespace(&mut self) -> Result<(), Failure> {
        self.bar.set_message("names");
        let report = block_on(self.weft.client.check_namespace(self.repair))
            .map_err(|e| Failure::new("fsck", why(&e)))?;
        let mut left = report.mended;
        for problem in &report.problems {
            self.problem(problem, left > 0);
            left = left.saturating_sub(1);
        }
        Ok(())
    }

    fn list(&self, target: TargetId, mut each: impl FnMut(FileId, ObjectId, ByteLen)) -> Result<(), Failure> {
        let mut after = None;
        loop {
            let page = block_on(self.weft.client.list_datafiles(target, after, PAGE))
                .map_err(|error| Failure::new(format!("target {}", target.0), why(&error)))?;
            let Some((file, object, _)) = page.last() else { return Ok(()) };
            after = Some((*file, *object));
            self.bar.inc(page.len() as u64);
            page.into_iter().for_each(|(file, object, len)| each(file, object, len));
        }
    }

    /// Compares every inode with its datafiles, and takes those away from `parts`: orphans are left.
    fn inodes(&mut self, parts: &mut BTreeMap<FileId, Parts>) -> Result<u64, Failure> {
        self.bar.set_message("inodes");
        self.bar.set_position(0);
        let mut after = FileId(0);
        let mut count = 0;
        loop {
            let page = block_on(self.weft.client.scan_inodes(after, PAGE))
                .map_err(|e| Failure::new("fsck", why(&e)))?;
            let Some(last) = page.last() else { return Ok(count) };
            after = last.file;
            count += page.len() as u64;
            self.bar.inc(page.len() as u64);
            for inode in page {
                let own = parts.remove(&inode.file).unwrap_or_default();
                self.inode(&inode, own)?;
            }
        }
    }

    fn inode(&mut self, inode: &ScannedInode, own: Parts) -> Result<(), Failure> {
        let name = self.name(inode);
        // What is being removed may have lost some of its datafiles already.
        if inode.doomed {
            return Ok(());
        }
        let layout = match (&inode.layout, inode.kind) {
            (Some(layout), FileType::Regular) => layout,
            _ => return self.strays(inode.file, &name, own.into_iter().collect()),
        };
        let places: BTreeSet<_> = layout.objects().collect();
        let strays = own.iter().filter(|(part, _)| !places.contains(part)).map(|(part, len)| (*part, *len));
        let strays = strays.collect();
        self.strays(inode.file, &name, strays)?;
        let targets: BTreeSet<TargetId> = places.iter().map(|(_, target)| *target).collect();
        let unnamed: Vec<_> =
            targets.iter().filter(|target| self.map.server_of(**target).is_none()).collect();
        for target in &unnamed {
            let text = format!(
                "{name}: a part of it lies on target {}, which the cluster file does not name: use the servers' cluster \
                 file",
                target.0
            );
            self.problem(&text, false);
        }
        let is_lost = self.suspects(inode, &own);
        for target in &targets {
            if let Some(files) = self.unlisted.get_mut(target) {
                *files += 1;
            }
        }
        let is_listed = targets.iter().all(|target| !self.unlisted.contains_key(target));
        if is_lost || !inode.settled || !unnamed.is_empty() || !is_listed {
            return Ok(());
        }
        let lens = places.iter().map(|part| (part.0, own.get(part).copied().unwrap_or_default()));
        let size = layout.file_size(lens);
        if size.0 == inode.size.0 {
            return Ok(());
        }
        // A writer may have begun between the two looks.
        let now = place(inode);
        match block_on(self.weft.client.stat(&now)) {
            Ok(attr) if attr.size != inode.size => return Ok(()),
            Err(error) if error.errno() == libc::ENOENT => return Ok(()),
            _ => {}
        }
        let mut mended = false;
        // Where the end is lost, the file stays as it is.
        if self.repair && (size.0 > inode.size.0 || self.accept_loss) {
            // Cutting to what is there makes the metadata service ask the targets anew.
            block_on(self.weft.client.accept_loss(&now, ByteLen(size.0)))
                .map_err(|error| Failure::new(&name, why(&error)))?;
            mended = true;
        }
        self.problem(
            &format!("{name}: recorded with {} bytes, its datafiles hold {}", inode.size.0, size.0),
            mended,
        );
        Ok(())
    }

    fn strays(
        &mut self,
        file: FileId,
        name: &str,
        strays: Vec<((ObjectId, TargetId), ByteLen)>,
    ) -> Result<(), Failure> {
        for ((object, target), len) in strays {
            let mended = self.remove(file, object, target, len)?;
            let part = format!("{}.{}", object.component, object.column);
            let text = format!(
                "{name}: datafile {part} of {} bytes on target {} is not of its layout{}",
                len.0,
                target.0,
                self.kept(mended, len)
            );
            self.problem(&text, mended);
        }
        Ok(())
    }

    /// Why a datafile was not removed though repair was asked for.
    fn kept(&self, mended: bool, len: ByteLen) -> &'static str {
        match self.repair && !mended && len.0 > 0 {
            true => "; it holds bytes: --delete-orphans removes it",
            false => "",
        }
    }

    /// Datafiles without an inode, unless they have gone meanwhile.
    fn orphans(&mut self, parts: BTreeMap<FileId, Parts>) -> Result<(), Failure> {
        let targets: BTreeSet<_> =
            parts.values().flat_map(|own| own.keys().map(|(_, target)| *target)).collect();
        for target in targets {
            let mut there = Vec::new();
            self.list(target, |file, object, len| {
                if parts.get(&file).is_some_and(|own| own.contains_key(&(object, target))) {
                    there.push((file, object, len));
                }
            })?;
            for part in there.chunks(LINEAGE_MAX) {
                let files = part.iter().map(|(file, ..)| *file).collect();
                let own =
                    block_on(self.weft.client.gave_out(files)).map_err(|e| Failure::new("fsck", why(&e)))?;
                for ((file, object, len), own) in part.iter().zip(own) {
                    self.orphan((*file, *object, target), *len, own)?;
                }
            }
        }
        Ok(())
    }

    /// A datafile without an inode. `own` says whether this metadata gave the file's id out.
    fn orphan(
        &mut self,
        (file, object, target): (FileId, ObjectId, TargetId),
        len: ByteLen,
        own: bool,
    ) -> Result<(), Failure> {
        let mended = own && self.remove(file, object, target, len)?;
        let text = format!(
            "target {}: datafile {:016x}.{}.{} of {} bytes belongs to no file",
            target.0, file.0, object.component, object.column, len.0
        );
        let more = match own {
            true => self.kept(mended, len),
            false => {
                " of this metadata, which never gave its file id out: it is kept, as another copy of the metadata may own it; \
                 restore that copy, or remove the datafile on its server"
            }
        };
        self.problem(&format!("{text}{more}"), mended);
        Ok(())
    }

    fn remove(
        &self,
        file: FileId,
        object: ObjectId,
        target: TargetId,
        len: ByteLen,
    ) -> Result<bool, Failure> {
        if !self.repair || (len.0 > 0 && !self.delete_orphans) {
            return Ok(false);
        }
        block_on(self.weft.client.remove_datafiles(&[DatafileId { target, file, object }]))
            .map_err(|error| Failure::new(format!("target {}", target.0), why(&error)))?;
        Ok(true)
    }
}
