//! Check and repair of the whole namespace, for `weft fsck`.

use super::fault::Outcome;
use super::inline::lost_bytes;
use super::moves::move_destinations;
use super::op::{Op, file_type};
use super::owners;
use super::quotas;
use super::space_reservations::SpaceReservations;
use super::tables::{add_entry, dentry, file_of_key as id, inode, path_of, put_inode};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use weft_core::{ByteLen, FileId, QuotaId, QuotaUsage, RecordedLens, TargetId};
use weft_store::metadata::{
    DentryRow, InlineRow, Inode, Node, NodeKind, ReapRow, ReplicaRow, Scan, Snapshot, Table, Transaction,
    Untrusted, dentry_key, file_key,
};
use weft_wire::meta::{FileType, LIST_LIMIT_MAX, MetaReply, NamespaceReport, ROOT, ScannedInode};

/// Maximum number of problems reported as text. All are counted and repaired.
const PROBLEMS_MAX: usize = 1000;
/// Directory for inodes that no name leads to.
const LOST_AND_FOUND: &[u8] = b"lost+found";
/// Maximum depth of a path; a longer one counts as a cycle.
const PATH_NAMES_MAX: usize = 4096;
/// Remedy for a damaged row that repair cannot remove.
const RESTORE: &str = "restore the metadata from a dump (`weft meta restore`), then run `weft fsck`";
/// Approximate maximum size of a page of a scan.
const PAGE_BYTES_MAX: usize = 512 << 10;

/// Sort key: inode, then generation of its datafiles.
fn order(data: FileId) -> (FileId, u16) {
    (data.inode(), data.generation())
}

/// Facts about an inode that the check needs.
struct InodeFacts {
    kind: NodeKind,
    nlink: u32,
    entries: u64,
    parent: FileId,
    uid: u32,
    /// Size of an inline file.
    inline: Option<ByteLen>,
}

/// Contents of the whole namespace.
#[derive(Default)]
struct NamespaceContents {
    inodes: BTreeMap<FileId, InodeFacts>,
    /// Entries by directory.
    entries: Vec<(FileId, Vec<u8>, DentryRow)>,
    orphans: BTreeSet<FileId>,
    /// Replicas: file and inode of the data.
    replicas: Vec<(FileId, FileId)>,
    /// Lengths of the rows with the bytes of inline files.
    inline: BTreeMap<FileId, ByteLen>,
    /// Rows that fail their checksum.
    damaged: Vec<(Table, Vec<u8>)>,
}

impl Op<'_> {
    pub(super) fn scan_inodes(&self, s: &dyn Snapshot, after: FileId, limit: u32) -> Outcome<MetaReply> {
        let limit = limit.clamp(1, LIST_LIMIT_MAX) as usize;
        let is_later = |data: FileId| order(data) > order(after);
        let (mut found, mut bytes): (Vec<(FileId, Inode)>, usize) = (Vec::new(), 0);
        let mut copies = Vec::new();
        s.scan(Table::Inodes, Bound::Included(&file_key(after.inode())), &mut |key, value| {
            let inode: Inode = value.open(Table::Inodes, key)?;
            copies.extend(inode.unfinished_copy(id(key)).map(|(data, layout)| (data, layout.clone())));
            if !is_later(inode.data(id(key))) {
                return Ok(Scan::Next);
            }
            if let Node::Regular { layout, .. } = &inode.node {
                bytes += 15 * layout.objects().count();
            }
            bytes += 300;
            found.push((id(key), inode));
            Ok(if found.len() < limit && bytes < PAGE_BYTES_MAX { Scan::Next } else { Scan::Stop })
        })?;
        let full = found.len() >= limit || bytes >= PAGE_BYTES_MAX;
        let end = found.last().filter(|_| full).map(|(file, inode)| inode.data(*file));
        let mut scanned = Vec::with_capacity(found.len());
        for (file, inode) in found {
            let kind = file_type(inode.kind());
            let path = self.known_path(s, file, &inode)?;
            let data = inode.data(file);
            let epoch = self.core.epoch_of(&inode);
            let (integrity, compression) = (inode.integrity(), inode.compression());
            let is_inline = inode.is_inline();
            let (layout, is_size_valid, recorded) = match inode.node {
                Node::Regular { layout, is_size_valid, recorded, .. } => {
                    (Some(layout), is_size_valid, recorded)
                }
                _ => (None, true, RecordedLens::NONE),
            };
            scanned.push(ScannedInode {
                file: data,
                proof: self.core.secret.prove_walk(data, self.session),
                kind,
                size: inode.size,
                is_size_valid,
                layout,
                doomed: inode.nlink == 0,
                path,
                recorded,
                epoch,
                integrity,
                compression,
                is_inline,
            });
        }
        // Datafiles without an inode that await removal, and those that a move or the growth of an inline file is filling. A
        // page that ends before the last inode includes those up to its end.
        let doomed = |data: FileId, layout| ScannedInode {
            file: data,
            proof: self.core.secret.prove_walk(data, self.session),
            kind: FileType::Regular,
            size: ByteLen(0),
            is_size_valid: false,
            layout: Some(layout),
            doomed: true,
            path: Vec::new(),
            recorded: RecordedLens::NONE,
            epoch: 0,
            integrity: None,
            compression: None,
            is_inline: false,
        };
        let belongs = |data: FileId| is_later(data) && end.is_none_or(|end| order(data) <= order(end));
        let filled = move_destinations(s)?.into_iter().chain(copies).filter(|(data, _)| belongs(*data));
        scanned.extend(filled.map(|(data, layout)| doomed(data, layout)));
        // Those of generation 0 can be many and are sorted; those of later generations are few.
        let mut waiting = 0;
        s.scan(Table::Reap, Bound::Included(&file_key(after.inode())), &mut |key, value| {
            if id(key).generation() > 0 || end.is_some_and(|end| id(key) > end.inode()) || waiting >= limit {
                return Ok(Scan::Stop);
            }
            if belongs(id(key)) {
                let row: ReapRow = value.open(Table::Reap, key)?;
                waiting += 1;
                scanned.push(doomed(id(key), row.layout));
            }
            Ok(Scan::Next)
        })?;
        s.scan(Table::Reap, Bound::Included(&file_key(FileId(FileId::INODES_END))), &mut |key, value| {
            if belongs(id(key)) {
                let row: ReapRow = value.open(Table::Reap, key)?;
                scanned.push(doomed(id(key), row.layout));
            }
            Ok(Scan::Next)
        })?;
        scanned.sort_by_key(|inode| order(inode.file));
        // Entries cut off here come with the next page, which begins after the last entry of this one.
        scanned.truncate(limit);
        Ok(MetaReply::Inodes(scanned))
    }

    /// Path of an inode, if the name it was created or last renamed under still leads to it.
    fn known_path(&self, s: &dyn Snapshot, file: FileId, inode: &Inode) -> Outcome<Vec<u8>> {
        if file == ROOT || dentry(s, inode.parent, &inode.name)?.is_none_or(|entry| entry.file != file) {
            return Ok(Vec::new());
        }
        let mut path = path_of(s, inode.parent).unwrap_or_default();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&inode.name);
        Ok(path)
    }

    pub(super) fn check_namespace(&self, s: &dyn Snapshot) -> Outcome<MetaReply> {
        let found = scan_all(s)?;
        let mut plan = find_problems(&found);
        // The space reservations are computed from all layouts.
        if found.damaged.is_empty() {
            self.check_layouts(s, &found, &mut plan)?;
        }
        Ok(MetaReply::Checked(plan.report(&found, 0)))
    }

    pub(super) fn repair_namespace(&self, t: &mut dyn Transaction) -> Outcome<MetaReply> {
        let found = scan_all(t)?;
        let mut plan = find_problems(&found);
        // The space reservations are computed from all layouts, so unreadable rows are removed first.
        found
            .damaged
            .iter()
            .filter(|(table, _)| is_removable(*table))
            .for_each(|(table, key)| t.delete(*table, key));
        self.check_layouts(t, &found, &mut plan)?;
        let mended = plan.total - plan.kept;
        for (target, _, promised) in &plan.reservations {
            SpaceReservations::correct(t, *target, *promised);
        }
        for (uid, _, counted) in &plan.owners {
            owners::put(t, *uid, *counted);
        }
        for (id, _, usage) in &plan.quotas {
            quotas::correct(t, *id, *usage)?;
        }
        for file in &plan.uncharged {
            t.delete(Table::FileCharges, &file_key(*file));
        }
        for file in &plan.replicas {
            t.delete(Table::Replicas, &file_key(*file));
            self.core.opens.lock().set_replicated(*file, false);
        }
        for file in &plan.not_inline {
            t.delete(Table::Inline, &file_key(*file));
        }
        for dir in &plan.ruled {
            t.delete(Table::Rules, &file_key(*dir));
            self.core.rules.lock().forget(*dir);
        }
        for (dir, name) in &plan.dangling {
            t.delete(Table::Dentries, &dentry_key(*dir, name));
        }
        for (dir, name) in &plan.extra {
            t.delete(Table::Dentries, &dentry_key(*dir, name));
        }
        for (file, (nlink, entries)) in &plan.counts {
            if let Some(mut inode) = inode(t, *file)? {
                inode.nlink = *nlink;
                if let Node::Directory { entries: held, .. } = &mut inode.node {
                    *held = *entries;
                }
                put_inode(t, *file, &inode);
            }
        }
        for (file, (parent, name)) in &plan.parents {
            if let Some(mut inode) = inode(t, *file)? {
                (inode.parent, inode.name) = (*parent, name.clone());
                put_inode(t, *file, &inode);
            }
        }
        let mut shelter = None;
        for file in &plan.lost {
            if self.relink(t, *file)? {
                continue;
            }
            let dir = match shelter {
                Some(dir) => dir,
                None => *shelter.insert(self.lost_and_found(t)?),
            };
            self.move_to_lost_and_found(t, dir, *file)?;
        }
        Ok(MetaReply::Checked(plan.report(&found, mended)))
    }

    /// Checks space reservations, inode counts by owner, quotas, and rules of missing directories.
    fn check_layouts(&self, s: &dyn Snapshot, found: &NamespaceContents, plan: &mut Plan) -> Outcome<()> {
        plan.reservations = self.core.reservations.wrong(s)?;
        for (target, has, right) in plan.reservations.clone() {
            plan.problem(format!("{target}: {has} bytes are recorded as reserved, layouts reserve {right}"));
        }
        let mut counted = owners::Counts::new();
        found.inodes.values().for_each(|seen| *counted.entry(seen.uid).or_default() += 1);
        plan.owners = owners::wrong(s, &counted)?;
        for (uid, has, counted) in plan.owners.clone() {
            plan.problem(format!("{has} inodes are recorded for user {uid}, who owns {counted}"));
        }
        let wrong = quotas::wrong(s)?;
        (plan.quotas, plan.uncharged) = (wrong.usage, wrong.missing);
        for (id, has, right) in plan.quotas.clone() {
            plan.problem(format!(
                "quota of {}: {} bytes and {} inodes are recorded, the files have {} and {}",
                described(id),
                has.bytes,
                has.inodes,
                right.bytes,
                right.inodes
            ));
        }
        for file in plan.uncharged.clone() {
            plan.problem(format!("charge of missing inode {file}"));
        }
        s.scan(Table::Rules, Bound::Unbounded, &mut |key, _| {
            if !found.inodes.get(&id(key)).is_some_and(|seen| seen.kind == NodeKind::Directory) {
                plan.ruled.push(id(key));
                plan.problem(format!("rules of missing directory {}", id(key)));
            }
            Ok(Scan::Next)
        })?;
        Ok(())
    }

    fn lost_and_found(&self, t: &mut dyn Transaction) -> Outcome<FileId> {
        if let Some(entry) = dentry(t, ROOT, LOST_AND_FOUND)?
            && entry.kind == NodeKind::Directory
        {
            return Ok(entry.file);
        }
        // A file of that name stays, and the directory gets another name.
        let mut name = LOST_AND_FOUND.to_vec();
        while dentry(t, ROOT, &name)?.is_some() {
            name.push(b'_');
        }
        let file = super::tables::allocate(t, 0, None)?;
        let inode = Inode {
            mode: 0o700,
            uid: 0,
            gid: 0,
            nlink: 2,
            size: weft_core::ByteLen(0),
            blocks_512: 0,
            atime: self.now,
            mtime: self.now,
            ctime: self.now,
            mtime_set_at: self.now,
            parent: ROOT,
            name: name.clone(),
            xattrs: 0,
            node: Node::Directory { entries: 0, default: None },
        };
        put_inode(t, file, &inode);
        add_entry(t, ROOT, &name, DentryRow { file, kind: NodeKind::Directory }, self.now)?;
        Ok(file)
    }

    /// Links an inode under the name it was created or last renamed under, if that directory exists and the name is
    /// free. Returns whether it did.
    fn relink(&self, t: &mut dyn Transaction, file: FileId) -> Outcome<bool> {
        let Some(mut inode) = inode(t, file)? else { return Ok(true) };
        if inode.name.is_empty() || !is_below_root(t, inode.parent, file)? {
            return Ok(false);
        }
        if dentry(t, inode.parent, &inode.name)?.is_some() {
            return Ok(false);
        }
        if !inode.is_dir() {
            inode.nlink += 1;
        }
        put_inode(t, file, &inode);
        let entry = DentryRow { file, kind: inode.kind() };
        add_entry(t, inode.parent, &inode.name, entry, self.now)?;
        Ok(true)
    }

    fn move_to_lost_and_found(&self, t: &mut dyn Transaction, shelter: FileId, file: FileId) -> Outcome<()> {
        let Some(mut inode) = inode(t, file)? else { return Ok(()) };
        let name = format!("{file}").into_bytes();
        if !inode.is_dir() {
            inode.nlink += 1;
        }
        (inode.parent, inode.name) = (shelter, name.clone());
        put_inode(t, file, &inode);
        add_entry(t, shelter, &name, DentryRow { file, kind: inode.kind() }, self.now)
    }
}

fn scan_all(s: &dyn Snapshot) -> Outcome<NamespaceContents> {
    let mut found = NamespaceContents::default();
    for table in Table::ALL {
        s.scan(table, Bound::Unbounded, &mut |key, value| {
            if !found.take(table, key, value) {
                found.damaged.push((table, key.to_vec()));
            }
            Ok(Scan::Next)
        })?;
    }
    Ok(found)
}

impl NamespaceContents {
    /// Records a row; false if it is damaged.
    fn take(&mut self, table: Table, key: &[u8], value: Untrusted) -> bool {
        match table {
            Table::Inodes => {
                let Ok(inode) = value.open::<Inode>(table, key) else { return false };
                let entries = match inode.node {
                    Node::Directory { entries, .. } => entries,
                    _ => 0,
                };
                let Inode { nlink, parent, uid, .. } = inode;
                let inline = inode.is_inline().then_some(inode.size);
                let seen = InodeFacts { kind: inode.kind(), nlink, entries, parent, uid, inline };
                self.inodes.insert(id(key), seen);
            }
            Table::Dentries => {
                let Ok(entry) = value.open(table, key) else { return false };
                self.entries.push((id(key), key.get(8..).unwrap_or_default().to_vec(), entry));
            }
            Table::Replicas => {
                let Ok(ReplicaRow { data, .. }) = value.open(table, key) else { return false };
                self.replicas.push((id(key), data));
            }
            Table::Inline => {
                let Ok(InlineRow { bytes }) = value.open(table, key) else { return false };
                self.inline.insert(id(key), ByteLen(bytes.len() as u64));
            }
            _ if value.verify(table, key).is_err() => return false,
            Table::Orphans => {
                self.orphans.insert(id(key));
            }
            _ => {}
        }
        true
    }

    /// Description of the object that a damaged row belongs to.
    fn about(table: Table, key: &[u8]) -> String {
        match table {
            Table::Dentries => {
                let name = String::from_utf8_lossy(key.get(8..).unwrap_or_default());
                format!("entry {name:?} of directory {}", id(key))
            }
            Table::Replies
            | Table::Sessions
            | Table::SpaceReservations
            | Table::Counters
            | Table::Owners
            | Table::Quotas => {
                let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("row {key} of table {}", table.name())
            }
            _ => format!("row of file {} in table {}", id(key), table.name()),
        }
    }
}

fn described(id: QuotaId) -> String {
    match id {
        QuotaId::User(uid) => format!("user {uid}"),
        QuotaId::Tree(dir) => format!("directory {dir}"),
    }
}

/// Whether a chain of names leads from the root to `dir` without passing through `file`.
fn is_below_root(s: &dyn Snapshot, dir: FileId, file: FileId) -> Outcome<bool> {
    let mut at = dir;
    for _ in 0..PATH_NAMES_MAX {
        if at == ROOT {
            return Ok(true);
        }
        let Some(inode) = inode(s, at)?.filter(|inode| inode.is_dir() && inode.nlink > 0 && at != file)
        else {
            return Ok(false);
        };
        if dentry(s, inode.parent, &inode.name)?.is_none_or(|entry| entry.file != at) {
            return Ok(false);
        }
        at = inode.parent;
    }
    Ok(false)
}

/// Whether a damaged row of this table can be removed. Without the counters, file ids would repeat. The bytes of an inline file
/// are nowhere else.
fn is_removable(table: Table) -> bool {
    !matches!(table, Table::Counters | Table::Inline)
}

/// Checks the rows of a database that this process does not serve, such as a dump.
#[derive(Default)]
pub struct NamespaceCheck {
    found: NamespaceContents,
    more: Vec<String>,
}

impl NamespaceCheck {
    /// Adds a row.
    pub fn row(&mut self, table: Table, key: &[u8], value: Vec<u8>) {
        if !self.found.take(table, key, Untrusted::new(value)) {
            self.found.damaged.push((table, key.to_vec()));
        }
    }

    /// Adds problems found by another check. A problem that both find is reported once.
    pub fn add(&mut self, problems: Vec<String>) {
        self.more.extend(problems);
    }

    /// Report of the check.
    pub fn report(self) -> NamespaceReport {
        let mut report = find_problems(&self.found).report(&self.found, 0);
        let more: Vec<_> =
            self.more.into_iter().filter(|problem| !report.problems.contains(problem)).collect();
        report.problems.extend(more);
        report
    }
}

/// Problems found, and their repairs.
#[derive(Default)]
struct Plan {
    problems: Vec<String>,
    total: u64,
    /// Number of problems that cannot be repaired; they are reported last.
    kept: u64,
    last: Vec<String>,
    /// Entries of missing directories or with missing inodes.
    dangling: Vec<(FileId, Vec<u8>)>,
    /// Second names of directories, and names that close a cycle.
    extra: Vec<(FileId, Vec<u8>)>,
    /// Inodes without a name, which go to `lost+found`.
    lost: Vec<FileId>,
    /// Correct counts, where they are wrong: links and, for directories, entries.
    counts: BTreeMap<FileId, (u32, u64)>,
    /// Correct parents of directories, where they are wrong.
    parents: BTreeMap<FileId, (FileId, Vec<u8>)>,
    /// Wrong space reservations: target, recorded bytes, correct bytes.
    reservations: Vec<(TargetId, ByteLen, ByteLen)>,
    /// Wrong inode counts: user, recorded count, correct count.
    owners: Vec<(u32, u64, u64)>,
    /// Wrong accounts: account, recorded usage, correct usage.
    quotas: Vec<(QuotaId, QuotaUsage, QuotaUsage)>,
    /// Missing files that have a charge.
    uncharged: Vec<FileId>,
    /// Missing directories that have rules.
    ruled: Vec<FileId>,
    /// Files whose replicas are incomplete.
    replicas: Vec<FileId>,
    /// Rows with bytes of files that are not inline.
    not_inline: Vec<FileId>,
}

impl Plan {
    fn problem(&mut self, sentence: String) {
        self.total += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(sentence);
        }
    }

    /// Adds a problem that cannot be repaired.
    fn lasting_problem(&mut self, sentence: String) {
        (self.total, self.kept) = (self.total + 1, self.kept + 1);
        self.last.push(sentence);
    }

    fn report(&self, found: &NamespaceContents, mended: u64) -> NamespaceReport {
        NamespaceReport {
            inodes: found.inodes.len() as u64,
            entries: found.entries.len() as u64,
            problems: [&self.problems[..], &self.last].concat(),
            mended,
        }
    }
}

fn find_problems(found: &NamespaceContents) -> Plan {
    let mut plan = Plan::default();
    // Problems that can be repaired come first.
    for removable in [true, false] {
        for (table, key) in found.damaged.iter().filter(|(table, _)| is_removable(*table) == removable) {
            let about = NamespaceContents::about(*table, key);
            if removable {
                plan.problem(format!("{about} is damaged"));
            } else {
                plan.lasting_problem(format!("{about} is damaged: {RESTORE}"));
            }
        }
    }
    let mut children: BTreeMap<FileId, Vec<(Vec<u8>, DentryRow)>> = BTreeMap::new();
    for (dir, name, entry) in &found.entries {
        let shown = String::from_utf8_lossy(name);
        let fits = found.inodes.get(dir).is_some_and(|seen| seen.kind == NodeKind::Directory);
        if !fits || found.inodes.get(&entry.file).is_none_or(|seen| seen.kind != entry.kind) {
            plan.problem(format!(
                "entry {shown:?} of directory {dir} leads to a missing inode, or one of another type ({})",
                entry.file
            ));
            plan.dangling.push((*dir, name.clone()));
        } else {
            children.entry(*dir).or_default().push((name.clone(), *entry));
        }
    }
    // From the root down, then from each lost inode in the order of ids. Lost inodes without any name come first.
    let mut reached: BTreeMap<FileId, u32> = BTreeMap::from([(ROOT, 0)]);
    let mut names = Walker { found, children: &children, reached: &mut reached, plan: &mut plan };
    names.descend(ROOT);
    for (file, data) in &found.replicas {
        let is_regular = |file| found.inodes.get(file).is_some_and(|seen| seen.kind == NodeKind::Regular);
        if is_regular(file) && is_regular(data) && !names.reached.contains_key(data) {
            names.reached.insert(*data, 1);
        } else {
            names.plan.problem(format!("the replica of {file} lacks its file, or its data, {data}"));
            names.plan.replicas.push(*file);
        }
    }
    compare_inline(found, names.plan);
    let named: BTreeSet<FileId> = found.entries.iter().map(|(_, _, entry)| entry.file).collect();
    let unnamed = found.inodes.keys().copied().filter(|file| !named.contains(file));
    for file in unnamed.chain(found.inodes.keys().copied()) {
        if names.reached.contains_key(&file) || found.orphans.contains(&file) {
            continue;
        }
        names.plan.problem(format!("no path leads to inode {file}"));
        names.plan.lost.push(file);
        names.reached.insert(file, 0);
        names.descend(file);
    }
    let gone: BTreeSet<(FileId, Vec<u8>)> = plan.dangling.iter().chain(&plan.extra).cloned().collect();
    let lost: BTreeSet<FileId> = plan.lost.iter().copied().collect();
    for (file, seen) in &found.inodes {
        let links = reached.get(file).copied().unwrap_or(0);
        let of_dir = children.get(file).map_or(&[][..], Vec::as_slice);
        let kept = of_dir.iter().filter(|(name, _)| !gone.contains(&(*file, name.clone())));
        let (mut entries, mut directories) = (0u64, 0u32);
        for (_, entry) in kept {
            entries += 1;
            directories += u32::from(entry.kind == NodeKind::Directory);
        }
        let right = match seen.kind {
            NodeKind::Directory if found.orphans.contains(file) => (0, 0),
            NodeKind::Directory => (2 + directories, entries),
            _ => (links, 0),
        };
        if (seen.nlink, seen.entries) != right {
            if !lost.contains(file) || seen.kind == NodeKind::Directory {
                plan.problem(format!(
                    "inode {file} records {} links and {} entries, there are {} and {}",
                    seen.nlink, seen.entries, right.0, right.1
                ));
            }
            plan.counts.insert(*file, right);
        }
    }
    plan
}

/// Compares the rows with bytes of inline files with their inodes.
fn compare_inline(found: &NamespaceContents, plan: &mut Plan) {
    let size_of = |file| found.inodes.get(file).and_then(|seen| seen.inline);
    for (file, len) in found.inline.iter().filter(|(file, _)| size_of(*file).is_none()) {
        plan.problem(format!("{len} bytes are kept for inode {file}, which is missing or has datafiles"));
        plan.not_inline.push(*file);
    }
    for (file, size) in found.inodes.iter().filter_map(|(file, seen)| Some((file, seen.inline?))) {
        let held = found.inline.get(file).copied().unwrap_or_default();
        let is_damaged = || found.damaged.contains(&(Table::Inline, file_key(*file).to_vec()));
        if held != size && !is_damaged() {
            plan.lasting_problem(lost_bytes(*file, size, held, RESTORE));
        }
    }
}

struct Walker<'a> {
    found: &'a NamespaceContents,
    children: &'a BTreeMap<FileId, Vec<(Vec<u8>, DentryRow)>>,
    /// Number of names that lead to each inode from the starting points of the walk.
    reached: &'a mut BTreeMap<FileId, u32>,
    plan: &'a mut Plan,
}

impl Walker<'_> {
    fn descend(&mut self, from: FileId) {
        let mut open = vec![from];
        while let Some(dir) = open.pop() {
            for (name, entry) in self.children.get(&dir).map_or(&[][..], Vec::as_slice) {
                let seen_before = self.reached.contains_key(&entry.file);
                if entry.kind != NodeKind::Directory {
                    *self.reached.entry(entry.file).or_default() += 1;
                    continue;
                }
                let shown = String::from_utf8_lossy(name);
                if seen_before {
                    self.plan.problem(format!(
                        "entry {shown:?} of {dir} is a second name of directory {}",
                        entry.file
                    ));
                    self.plan.extra.push((dir, name.clone()));
                    continue;
                }
                self.reached.insert(entry.file, 1);
                if self.found.inodes.get(&entry.file).is_some_and(|seen| seen.parent != dir) {
                    self.plan.problem(format!("directory {} records another parent than {dir}", entry.file));
                    self.plan.parents.insert(entry.file, (dir, name.clone()));
                }
                open.push(entry.file);
            }
        }
    }
}
