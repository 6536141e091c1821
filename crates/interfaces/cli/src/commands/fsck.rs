//! `weft fsck`: checks the metadata against the datafiles of the targets.

mod lost;

use super::session::{Weft, why};
use crate::failure::Failure;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;
use std::path::PathBuf;
use weft_core::{ByteLen, FileId, ObjectId, ServerId, TargetId};
use weft_env::real::block_on;
use weft_wire::ClusterMap;
use weft_wire::data::DatafileId;
use weft_wire::meta::{FileType, InodePath, LINEAGE_MAX, ScannedInode};

/// Number of entries per request.
const PAGE: u32 = 4096;

/// Exit code: problems were found, and all of them are repaired.
const REPAIRED: u8 = 1;
/// Exit code: problems were found, and some remain.
const LEFT: u8 = 4;
/// Exit code: the check was not possible, or incomplete. Added to the others.
const UNCHECKED: u8 = 8;

const AFTER: &str = "\
Searches for damaged parts of the metadata database; names without inodes, inodes without names and wrong link counts;
datafiles that belong to no file (orphans) or not to the file's layout (strays); lost bytes, that is datafiles that
are missing or shorter than the metadata server has recorded; and files whose length differs from that of their
datafiles. The cluster stays in use: files that are open or being removed are skipped.

Without --repair, nothing is changed. With --repair, orphans and strays without bytes are removed, files that are
longer than recorded get their length, and the namespace is repaired: inodes without a name get their last one again,
or one in /lost+found. A file that has lost bytes stays as it is. Reads of these bytes fail with EIO until the disk is
back, a copy is written over the file, or --repair --accept-loss turns them into zeros.

Orphans and strays with bytes stay without --delete-orphans, because they may be all that is left of a file. A
datafile whose file id this metadata never allocated belongs to another copy of the metadata and is never removed.

Parts that could not be checked are listed last: targets whose server does not answer, files with datafiles there,
and without --scrub the contents of targets on which reads have found damage. Contents are verified with --scrub only.

With --scrub, all compressed datafiles and those with checksums at rest (`weft setstripe --compress` and
`--integrity`) are read from the disks and verified while programs use them, at most --rate bytes per second. Damaged
files are listed with the damaged ranges. Their bytes are lost: restore the file from a backup, or write these bytes
again. --repair does not change them.

Only administrators may do this: root and the user that runs the servers, on the servers' hosts, and holders of an
administrator's key (`weft key admin`).

Exit codes:
  0  no problems were found
  1  problems were found, and all of them are repaired
  2  wrong arguments, cluster file or key
  4  problems were found, and some remain (without --repair: all)
  8  the check is incomplete, a server may be down; added to the others: 12 is 4 and 8

Examples:
  weft fsck
  weft fsck --repair
  weft fsck --repair --delete-orphans
  weft fsck --scrub --rate 200MiB
  weft fsck --json | jq -r '.problems[] | select(.repaired | not) | .problem'";

/// Checks the whole cluster, and repairs it when asked to.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Fsck {
    /// Repair problems
    #[arg(long)]
    repair: bool,
    /// With --repair: turn lost bytes into zeros, so that the file is readable
    #[arg(long, requires = "repair")]
    accept_loss: bool,
    /// Read and verify all datafiles with checksums
    #[arg(long)]
    scrub: bool,
    /// Verify at most this many bytes per second, such as 200MiB
    #[arg(long, value_name = "SIZE", value_parser = super::rate, requires = "scrub")]
    rate: Option<ByteLen>,
    /// With --repair: remove orphans and strays that hold bytes, too
    #[arg(long, requires = "repair")]
    delete_orphans: bool,
    /// Show no progress
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Print one JSON document at the end
    #[arg(long)]
    json: bool,
}

/// Numbers of inodes and datafiles, and the result of `--scrub`.
type Counts = ((u64, u64), Option<super::scrub::Report>);

/// Datafiles of one file, with their lengths.
type Parts = BTreeMap<(ObjectId, TargetId), ByteLen>;

struct Check<'a> {
    weft: &'a Weft,
    map: ClusterMap,
    repair: bool,
    accept_loss: bool,
    delete_orphans: bool,
    /// Whether a scrub follows, which reports unreadable datafiles.
    scrubs: bool,
    bar: ProgressBar,
    /// Problems for the JSON document; `None` prints each at once.
    document: Option<Vec<Value>>,
    found: u64,
    repaired: u64,
    /// Targets whose datafiles could not be listed, with the number of files that have datafiles there.
    unlisted: BTreeMap<TargetId, u64>,
    /// Parts of the cluster that could not be checked, each with the reason.
    unchecked: Vec<String>,
    /// Inodes that may have lost bytes.
    suspects: BTreeSet<FileId>,
}

/// Describes the length of a datafile.
fn length(len: ByteLen) -> String {
    match len {
        ByteLen::UNKNOWN => "unknown length, because its map is missing or damaged,".to_owned(),
        ByteLen(bytes) => format!("{bytes} bytes"),
    }
}

fn inode_path(inode: &ScannedInode) -> InodePath {
    InodePath::at_inode(inode.file.inode(), inode.proof)
}

impl Fsck {
    /// Runs the check.
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
            scrubs: self.scrub,
            bar,
            document: self.json.then(Vec::new),
            found: 0,
            repaired: 0,
            unlisted: BTreeMap::new(),
            unchecked: Vec::new(),
            suspects: BTreeSet::new(),
        };
        let checked = check.all();
        let checked = checked.and_then(|counts| {
            if !self.scrub {
                return Ok((counts, None));
            }
            let report = super::scrub::all(&weft, self.rate, &check.bar)?;
            report.problems.iter().for_each(|problem| check.problem(problem, false));
            Ok((counts, Some(report)))
        });
        check.bar.finish_and_clear();
        if self.json {
            outln!("{:#}", check.json(&checked));
        }
        let ((files, datafiles), scrubbed) = checked.map_err(|failure| failure.code(UNCHECKED))?;
        let (found, repaired, is_complete) = (check.found, check.repaired, check.unchecked.is_empty());
        if !self.json {
            if let Some(report) = scrubbed {
                outln!("{}", report.summary());
            }
            check.not_checked().iter().for_each(|what| outln!("not checked: {what}"));
            let problems = format!("{found} problems, {repaired} repaired");
            match (is_complete, found) {
                (true, _) => outln!("{files} inodes, {datafiles} datafiles: {problems}"),
                (false, 0) => outln!("{files} inodes, {datafiles} datafiles: not all could be checked"),
                (false, _) => {
                    outln!("{files} inodes, {datafiles} datafiles: {problems}; not all could be checked")
                }
            }
            if found > repaired && !self.repair {
                outln!("nothing was changed; run `weft fsck --repair` to repair");
            }
        }
        let code = match (found, found - repaired) {
            (0, _) => 0,
            (_, 0) => REPAIRED,
            _ => LEFT,
        };
        Ok(code | if is_complete { 0 } else { UNCHECKED })
    }
}

impl Check<'_> {
    fn problem(&mut self, text: &str, repaired: bool) {
        self.found += 1;
        self.repaired += u64::from(repaired);
        if let Some(problems) = &mut self.document {
            problems.push(json!({ "problem": text, "repaired": repaired }));
            return;
        }
        let mark = if repaired { " (repaired)" } else { "" };
        self.bar.suspend(|| outln!("{text}{mark}"));
    }

    /// Describes the parts of the cluster that could not be checked.
    fn not_checked(&self) -> Vec<String> {
        let targets = self.unlisted.iter().filter(|(_, files)| **files > 0);
        let targets =
            targets.map(|(target, files)| format!("{files} files with datafiles on target {}", target.0));
        targets.chain(self.unchecked.iter().cloned()).collect()
    }

    /// The document of `--json`. After a failure it has what was found and repaired until then.
    fn json(&mut self, checked: &Result<Counts, Failure>) -> Value {
        let mut not_checked = self.not_checked();
        let counts = match checked {
            Ok(counts) => Some(counts),
            Err(failure) => {
                not_checked.push(failure.text().to_owned());
                None
            }
        };
        let scrub = counts.and_then(|(_, report)| report.as_ref()).map(|report| {
            json!({
                "verified": report.verified,
                "datafiles": report.checked,
                "datafiles_without_checksums": report.unchecked,
            })
        });
        json!({
            "problems": self.document.take().unwrap_or_default(),
            "not_checked": not_checked,
            "inodes": counts.map(|((inodes, _), _)| inodes),
            "datafiles": counts.map(|((_, datafiles), _)| datafiles),
            "found": self.found,
            "repaired": self.repaired,
            "scrub": scrub,
        })
    }

    /// Runs all checks. Returns the number of inodes and datafiles.
    fn all(&mut self) -> Result<(u64, u64), Failure> {
        self.namespace()?;
        // Datafiles first: the later scan then finds the inodes of files created in between.
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
        if !self.scrubs {
            self.damaged_targets();
        }
        Ok((files, datafiles))
    }

    /// Counts the contents of targets as unchecked on which servers have found damaged blocks. A server that does not
    /// answer was reported with the list of its datafiles.
    fn damaged_targets(&mut self) {
        for server in 0..self.map.servers.len() as u32 {
            let Ok(status) = block_on(self.weft.client.status(ServerId(server))) else { continue };
            for target in status.targets.iter().filter(|target| target.damaged > 0) {
                self.unchecked.push(format!(
                    "contents of files on target {}, where {} damaged blocks were found since the start of the \
                     server: `weft fsck --scrub` names the files",
                    target.target.0, target.damaged
                ));
            }
        }
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

    /// Compares every inode with its datafiles and removes these from `parts`. The remaining datafiles are orphans.
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

    fn inode(&mut self, inode: &ScannedInode, mut own: Parts) -> Result<(), Failure> {
        let name = self.name(inode);
        // A file being removed may have lost some of its datafiles already.
        if inode.doomed {
            return Ok(());
        }
        let layout = match (&inode.layout, inode.kind) {
            (Some(layout), FileType::Regular) if !inode.is_inline => layout,
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
                "{name}: a part of it lies on target {}, which is not part of the cluster: `weft target list` \
                 shows the targets",
                target.0
            );
            self.problem(&text, false);
        }
        if self.has_unreadable(inode.file, &name, &places, &mut own)? {
            return Ok(());
        }
        let is_lost = self.suspects(inode, &own);
        for target in &targets {
            if let Some(files) = self.unlisted.get_mut(target) {
                *files += 1;
            }
        }
        let is_listed = targets.iter().all(|target| !self.unlisted.contains_key(target));
        if is_lost || !inode.is_size_valid || !unnamed.is_empty() || !is_listed {
            return Ok(());
        }
        let lens = places.iter().map(|part| (part.0, own.get(part).copied().unwrap_or_default()));
        let size = layout.file_size(lens);
        if size.0 == inode.size.0 {
            return Ok(());
        }
        // A writer may have opened the file in between.
        let now = inode_path(inode);
        match block_on(self.weft.client.stat(&now)) {
            Ok(attr) if attr.size != inode.size => return Ok(()),
            Err(error) if error.errno() == libc::ENOENT => return Ok(()),
            _ => {}
        }
        let mut repaired = false;
        // If the end is lost, the file stays as it is.
        if self.repair && (size.0 > inode.size.0 || self.accept_loss) {
            // Truncating to the present length makes the metadata server query the targets again.
            block_on(self.weft.client.accept_loss(&now, ByteLen(size.0)))
                .map_err(|error| Failure::new(&name, why(&error)))?;
            repaired = true;
        }
        self.problem(
            &format!("{name}: recorded with {} bytes, its datafiles hold {}", inode.size.0, size.0),
            repaired,
        );
        Ok(())
    }

    /// Reports compressed datafiles of a file that have lost their maps, and with `--accept-loss` removes them. Returns
    /// true if some are left.
    fn has_unreadable(
        &mut self,
        file: FileId,
        name: &str,
        places: &BTreeSet<(ObjectId, TargetId)>,
        own: &mut Parts,
    ) -> Result<bool, Failure> {
        let unreadable = |part: &&(ObjectId, TargetId)| own.get(*part) == Some(&ByteLen::UNKNOWN);
        let all: Vec<_> = places.iter().filter(unreadable).copied().collect();
        for &(object, target) in &all {
            let text = super::scrub::without_map(file, object, target);
            if self.accept_loss {
                block_on(self.weft.client.remove_datafiles(&[DatafileId { target, file, object }]))
                    .map_err(|error| Failure::new(name, why(&error)))?;
                own.remove(&(object, target));
                self.problem(&format!("{name}: {text}"), true);
            } else if !self.scrubs {
                let remedy = "bring the map back, or remove the file and restore it from a backup";
                self.problem(&format!("{name}: {text}: {remedy}"), false);
            }
        }
        Ok(!all.is_empty() && !self.accept_loss)
    }

    fn strays(
        &mut self,
        file: FileId,
        name: &str,
        strays: Vec<((ObjectId, TargetId), ByteLen)>,
    ) -> Result<(), Failure> {
        for ((object, target), len) in strays {
            let repaired = self.remove(file, object, target, len)?;
            let part = format!("{}.{}", object.component, object.column);
            let text = format!(
                "{name}: datafile {part} of {} on target {} does not belong to its layout{}",
                length(len),
                target.0,
                self.kept(repaired, len)
            );
            self.problem(&text, repaired);
        }
        Ok(())
    }

    /// Describes why a datafile was not removed during a repair.
    fn kept(&self, repaired: bool, len: ByteLen) -> &'static str {
        match self.repair && !repaired && len.0 > 0 {
            true => "; it holds bytes: --delete-orphans removes it",
            false => "",
        }
    }

    /// Reports datafiles without an inode, unless they have been removed since.
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
                let own = block_on(self.weft.client.issued_by_this_database(files))
                    .map_err(|e| Failure::new("fsck", why(&e)))?;
                for ((file, object, len), own) in part.iter().zip(own) {
                    self.orphan((*file, *object, target), *len, own)?;
                }
            }
        }
        Ok(())
    }

    /// Reports a datafile without an inode. `own` says whether this metadata allocated the file's id.
    fn orphan(
        &mut self,
        (file, object, target): (FileId, ObjectId, TargetId),
        len: ByteLen,
        own: bool,
    ) -> Result<(), Failure> {
        let repaired = own && self.remove(file, object, target, len)?;
        let text = format!(
            "target {}: datafile {:016x}.{}.{} of {} belongs to no file",
            target.0,
            file.0,
            object.component,
            object.column,
            length(len)
        );
        let more = match own {
            true => self.kept(repaired, len),
            false => {
                " of this metadata, which never allocated its file id: it is kept, because another copy of \
                 the metadata may own it; restore that copy. If there is none, a loss of power undid the creation of \
                 the file: remove the datafile on its server"
            }
        };
        self.problem(&format!("{text}{more}"), repaired);
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
