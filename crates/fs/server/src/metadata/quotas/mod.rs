//! Accounts of users and directory trees, and their limits.
//!
//! An account begins with its first limit: all files that count in it are counted then. Afterwards it changes in the
//! transaction of each creation, removal, change of owner, rename and change of size, so it is exact after any crash.
//! Files of users without an account, outside of all trees, cost one look at an empty map.
//!
//! | subject | file counts by | a file changes the account |
//! |---|---|---|
//! | user | owner of the inode | `chown` |
//! | tree | [`FileChargeRow::tree`], inherited from the directory at creation | rename of a file with one name; other inodes cannot leave their tree (`EXDEV`) |
//!
//! A file is charged its size or, while that is not valid, the length up to which its writers may extend it
//! ([`Core::reserve`]). Capabilities carry that length, so data servers refuse bytes behind it. The charge falls to the
//! size when that becomes valid: no writer is left then.

mod check;
mod requests;

pub(in crate::metadata) use check::{correct, wrong};
pub(in crate::metadata) use requests::nearest_to_limits;

use super::fault::{Fault, Outcome};
use super::op::{Core, Op};
use super::open::Urgency;
use super::owners;
use super::tables::{file_of_key, known_inode, named_inode, path_of, put_row, row};
use std::collections::BTreeMap;
use std::ops::Bound;
use weft_core::quota::{CHARGE_AHEAD_MAX, charge_ahead};
use weft_core::units::human_bytes;
use weft_core::{ByteLen, FileId, FileOffset, QuotaId, QuotaLimits, QuotaUsage};
use weft_env::mutants::{Mutant, is_seeded};
use weft_store::metadata::{
    FileChargeRow, Inode, Node, QuotaRow, Scan, Snapshot, Table, Transaction, file_key, quota_key,
    quota_of_key,
};
use weft_wire::meta::{HandleId, MetaReply};
use weft_wire::{Capability, Errno, Rights, WriteLimit};

/// Bytes that a new or small file is charged in advance at most, so that most small files need no further message.
const CHARGE_OF_SMALL_MAX: u64 = 64 << 10;

/// Limits of all accounts, as in the database. Changed under its lock only.
#[derive(Default, Debug)]
pub(in crate::metadata) struct Quotas {
    accounts: BTreeMap<QuotaId, QuotaLimits>,
    /// Number of trees among them.
    trees: usize,
}

impl Quotas {
    /// Reads the limits of all accounts.
    pub(in crate::metadata) fn load(s: &dyn Snapshot) -> Outcome<Self> {
        let mut quotas = Self::default();
        s.scan(Table::Quotas, Bound::Unbounded, &mut |key, value| {
            let account: QuotaRow = value.open(Table::Quotas, key)?;
            if let Some(id) = quota_of_key(key) {
                quotas.put(id, account.limits);
            }
            Ok(Scan::Next)
        })?;
        Ok(quotas)
    }

    fn put(&mut self, id: QuotaId, limits: QuotaLimits) {
        let is_new = self.accounts.insert(id, limits).is_none();
        self.trees += usize::from(is_new && matches!(id, QuotaId::Tree(_)));
    }

    fn forget(&mut self, id: QuotaId) {
        let is_old = self.accounts.remove(&id).is_some();
        self.trees -= usize::from(is_old && matches!(id, QuotaId::Tree(_)));
    }
}

/// Accounts in which a file counts, and its charge.
#[derive(Clone, Default, Debug)]
pub(in crate::metadata) struct Charged {
    accounts: Vec<(QuotaId, QuotaLimits)>,
    row: FileChargeRow,
    bytes: ByteLen,
}

impl Charged {
    fn is_limited(&self) -> bool {
        self.accounts.iter().any(|(_, limits)| limits.bytes.is_some())
    }
}

fn account(s: &dyn Snapshot, id: QuotaId) -> Outcome<QuotaRow> {
    Ok(row(s, Table::Quotas, &quota_key(id))?.unwrap_or_default())
}

fn put_account(t: &mut dyn Transaction, id: QuotaId, account: &QuotaRow) {
    put_row(t, Table::Quotas, &quota_key(id), account);
}

fn charge_row(s: &dyn Snapshot, file: FileId) -> Outcome<FileChargeRow> {
    Ok(row(s, Table::FileCharges, &file_key(file))?.unwrap_or_default())
}

fn put_charge_row(t: &mut dyn Transaction, file: FileId, before: &FileChargeRow, now: &FileChargeRow) {
    if before == now {
        return;
    }
    match *now == FileChargeRow::default() {
        true => t.delete(Table::FileCharges, &file_key(file)),
        false => put_row(t, Table::FileCharges, &file_key(file), now),
    }
}

/// Bytes that a file is charged.
fn charge_of(inode: &Inode, row: &FileChargeRow) -> ByteLen {
    match inode.node {
        Node::Regular { .. } => inode.size.max(row.reserved),
        _ => ByteLen(0),
    }
}

/// Name of an account in messages.
fn name_of(s: &dyn Snapshot, id: QuotaId) -> String {
    match id {
        QuotaId::User(uid) => format!("user {uid}"),
        QuotaId::Tree(dir) => {
            format!("directory /{}", String::from_utf8_lossy(&path_of(s, dir).unwrap_or_default()))
        }
    }
}

const REMEDY: &str = "remove files, or ask an administrator to raise the quota (`weft quota set`)";

impl Core {
    /// Accounts in which a file counts, and its charge; `None` if it counts in none.
    pub(in crate::metadata) fn charged(
        &self,
        s: &dyn Snapshot,
        file: FileId,
        inode: &Inode,
    ) -> Outcome<Option<Charged>> {
        let quotas = self.quotas.lock();
        if quotas.accounts.is_empty() {
            return Ok(None);
        }
        let of = |id| quotas.accounts.get(&id).map(|limits| (id, *limits));
        let user = of(QuotaId::User(inode.uid));
        if user.is_none() && quotas.trees == 0 {
            return Ok(None);
        }
        let row = charge_row(s, file)?;
        let tree = row.tree.and_then(|tree| of(QuotaId::Tree(tree)));
        let accounts: Vec<_> = user.into_iter().chain(tree).collect();
        let bytes = charge_of(inode, &row);
        Ok((!accounts.is_empty()).then_some(Charged { accounts, row, bytes }))
    }

    /// Tree of the files in a directory.
    pub(in crate::metadata) fn tree_of(&self, s: &dyn Snapshot, dir: FileId) -> Outcome<Option<FileId>> {
        if self.quotas.lock().trees == 0 {
            return Ok(None);
        }
        Ok(self.counted_tree(&charge_row(s, dir)?))
    }

    /// Tree in which a file counts; `None` if its account has ended.
    fn counted_tree(&self, row: &FileChargeRow) -> Option<FileId> {
        row.tree.filter(|tree| self.quotas.lock().accounts.contains_key(&QuotaId::Tree(*tree)))
    }

    /// Whether the user's quota replaces the limit of inodes in the cluster file.
    pub(in crate::metadata) fn has_inode_quota(&self, uid: u32) -> bool {
        self.quotas.lock().accounts.get(&QuotaId::User(uid)).is_some_and(|limits| limits.inodes.is_some())
    }

    /// Checks that `more` fits below the limits of an account.
    fn require_quota(
        &self,
        s: &dyn Snapshot,
        (id, limits): (QuotaId, QuotaLimits),
        more: QuotaUsage,
    ) -> Outcome<()> {
        let usage = account(s, id)?.usage;
        if limits.admit(&usage, more) {
            return Ok(());
        }
        let name = name_of(s, id);
        let detail = match (limits.bytes, limits.inodes) {
            (Some(max), _) if !QuotaLimits { inodes: None, ..limits }.admit(&usage, more) => format!(
                "{name} uses {} of its quota of {} and needs {} more: {REMEDY}",
                human_bytes(usage.bytes.0),
                human_bytes(max.0),
                human_bytes(more.bytes.0)
            ),
            (_, max) => format!(
                "{name} uses {} of its quota of {} files and directories: {REMEDY}",
                usage.inodes,
                max.unwrap_or_default()
            ),
        };
        Err(Fault::new(Errno::EDQUOT, detail))
    }

    fn change_usage(
        &self,
        t: &mut dyn Transaction,
        id: QuotaId,
        change: impl FnOnce(&mut QuotaUsage),
    ) -> Outcome<()> {
        let mut row = account(t, id)?;
        change(&mut row.usage);
        put_account(t, id, &row);
        Ok(())
    }

    /// Counts a new inode in `dir`.
    ///
    /// # Errors
    /// `EDQUOT`, unless the caller is exempt.
    pub(in crate::metadata) fn charge_new_inode(
        &self,
        t: &mut dyn Transaction,
        (file, inode): (FileId, &Inode),
        dir: FileId,
        is_exempt: bool,
    ) -> Outcome<()> {
        if self.quotas.lock().accounts.is_empty() {
            return Ok(());
        }
        let row = FileChargeRow { tree: self.tree_of(t, dir)?, reserved: ByteLen(0) };
        put_charge_row(t, file, &FileChargeRow::default(), &row);
        let Some(charged) = self.charged(t, file, inode)? else { return Ok(()) };
        let one = QuotaUsage { bytes: ByteLen(0), inodes: 1 };
        for (id, limits) in charged.accounts {
            if !is_exempt {
                self.require_quota(t, (id, limits), one)?;
            }
            self.change_usage(t, id, |usage| usage.add(one))?;
        }
        Ok(())
    }

    /// Subtracts an inode that is being removed. The account of a tree ends with its root.
    pub(in crate::metadata) fn uncharge(
        &self,
        t: &mut dyn Transaction,
        file: FileId,
        inode: &Inode,
    ) -> Outcome<()> {
        if self.quotas.lock().accounts.is_empty() {
            return Ok(());
        }
        let charged = self.charged(t, file, inode)?.unwrap_or_default();
        let row = charge_row(t, file)?;
        put_charge_row(t, file, &row, &FileChargeRow::default());
        let gone = QuotaUsage { bytes: charged.bytes, inodes: 1 };
        for (id, _) in charged.accounts {
            if id == QuotaId::Tree(file) {
                self.end_tree_account(t, file)?;
            } else if !is_seeded(Mutant::KeptCharge) {
                self.change_usage(t, id, |usage| usage.subtract(gone))?;
            }
        }
        Ok(())
    }

    /// Ends the account of a tree whose root is being removed. Only removed files that are still open are left in it.
    fn end_tree_account(&self, t: &mut dyn Transaction, tree: FileId) -> Outcome<()> {
        let mut orphans = Vec::new();
        t.scan(Table::Orphans, Bound::Unbounded, &mut |key, _| {
            orphans.push(file_of_key(key));
            Ok(Scan::Next)
        })?;
        for file in orphans {
            let row = charge_row(t, file)?;
            if row.tree == Some(tree) {
                let inode = known_inode(t, file)?;
                self.put_tree(t, (file, &inode), &row, None)?;
            }
        }
        t.delete(Table::Quotas, &quota_key(QuotaId::Tree(tree)));
        self.quotas.lock().forget(QuotaId::Tree(tree));
        Ok(())
    }

    /// Gives a file another tree.
    fn put_tree(
        &self,
        t: &mut dyn Transaction,
        (file, inode): (FileId, &Inode),
        before: &FileChargeRow,
        tree: Option<FileId>,
    ) -> Outcome<()> {
        let now = FileChargeRow { tree, ..*before };
        put_charge_row(t, file, before, &now);
        self.end_charge_if_uncounted(t, (file, inode), &now)
    }

    /// Ends the charge of a file that counts in no account any more, so that nobody keeps it up to date.
    fn end_charge_if_uncounted(
        &self,
        t: &mut dyn Transaction,
        (file, inode): (FileId, &Inode),
        row: &FileChargeRow,
    ) -> Outcome<()> {
        if self.charged(t, file, inode)?.is_none() {
            put_charge_row(t, file, row, &FileChargeRow { reserved: ByteLen(0), ..*row });
        }
        Ok(())
    }

    /// Adapts the accounts to the size in the inode, which has changed. `before` is the charge before that.
    ///
    /// The charge falls only if the size is valid. Otherwise, bytes that writers may still add, or that an unfinished
    /// truncation has not removed yet, remain charged.
    pub(in crate::metadata) fn recharge(
        &self,
        t: &mut dyn Transaction,
        file: FileId,
        before: Option<Charged>,
        inode: &Inode,
    ) -> Outcome<()> {
        let Some(Charged { accounts, row, bytes }) = before else { return Ok(()) };
        let after = match inode.node {
            Node::Regular { is_size_valid: true, .. } => inode.size,
            Node::Regular { .. } => inode.size.max(bytes),
            _ => return Ok(()),
        };
        let reserved = if after > inode.size { after } else { ByteLen(0) };
        put_charge_row(t, file, &row, &FileChargeRow { reserved, ..row });
        if after != bytes {
            for (id, _) in accounts {
                self.change_usage(t, id, |usage| usage.change_bytes(bytes, after))?;
            }
        }
        Ok(())
    }

    /// Charges an open file for the bytes up to `end`, and `ahead` more at most. Returns the charge, or `None` if no
    /// quota limits the file.
    ///
    /// # Errors
    /// `EDQUOT`.
    fn reserve(
        &self,
        t: &mut dyn Transaction,
        (file, inode): (FileId, &Inode),
        end: ByteLen,
        ahead_max: u64,
    ) -> Outcome<Option<ByteLen>> {
        let Some(charged) = self.charged(t, file, inode)?.filter(Charged::is_limited) else {
            return Ok(None);
        };
        let Charged { accounts, row, bytes } = charged;
        let needed = ByteLen(end.0.saturating_sub(bytes.0));
        if needed.0 == 0 && ahead_max == 0 {
            return Ok(Some(bytes));
        }
        let more = QuotaUsage { bytes: needed, inodes: 0 };
        let mut ahead = ahead_max;
        for (id, limits) in &accounts {
            if !is_seeded(Mutant::UncheckedQuota) {
                self.require_quota(t, (*id, *limits), more)?;
            }
            if let Some(left) = limits.bytes_left(&account(t, *id)?.usage) {
                ahead = ahead.min(charge_ahead(ByteLen(left.0.saturating_sub(needed.0))).0);
            }
        }
        // Not ahead of the present charge: many clients of one file, and repeated requests, would add up.
        let after = bytes.max(ByteLen(end.0.saturating_add(ahead)));
        put_charge_row(t, file, &row, &FileChargeRow { reserved: after, ..row });
        for (id, _) in accounts {
            self.change_usage(t, id, |usage| usage.change_bytes(bytes, after))?;
        }
        Ok(Some(after))
    }

    /// Moves the charge of an inode to the account of its new owner, whom it may bring above the limit: only root
    /// changes owners.
    pub(in crate::metadata) fn change_charged_owner(
        &self,
        t: &mut dyn Transaction,
        (file, inode): (FileId, &Inode),
        uid: u32,
    ) -> Outcome<()> {
        if self.quotas.lock().accounts.is_empty() {
            return Ok(());
        }
        let row = charge_row(t, file)?;
        let part = QuotaUsage { bytes: charge_of(inode, &row), inodes: 1 };
        let has = |uid| self.quotas.lock().accounts.contains_key(&QuotaId::User(uid));
        if has(inode.uid) {
            self.change_usage(t, QuotaId::User(inode.uid), |usage| usage.subtract(part))?;
        }
        if has(uid) {
            self.change_usage(t, QuotaId::User(uid), |usage| usage.add(part))?;
        }
        self.end_charge_if_uncounted(t, (file, &Inode { uid, ..inode.clone() }), &row)
    }

    /// Adapts the accounts to a new name in the directory `to`. An inode that has or keeps other names must stay in its
    /// tree, and so must a directory, with all that is below it.
    ///
    /// # Errors
    /// `EXDEV` if it must stay in its tree and would leave it; `EDQUOT`, unless the caller is exempt.
    pub(in crate::metadata) fn change_tree(
        &self,
        t: &mut dyn Transaction,
        (file, inode): (FileId, &Inode),
        to: FileId,
        (must_stay, is_exempt): (bool, bool),
    ) -> Outcome<()> {
        if self.quotas.lock().trees == 0 {
            return Ok(());
        }
        let row = charge_row(t, file)?;
        // The root of a tree is moved with its tree, which no other tree may contain.
        let from = self.counted_tree(&row).filter(|tree| *tree != file);
        let to = self.tree_of(t, to)?;
        if from == to {
            return Ok(());
        }
        if must_stay {
            let detail =
                "a directory, or a file with several names, stays in the tree of its quota: copy it instead";
            return Err(Fault::new(Errno::EXDEV, detail));
        }
        let part = QuotaUsage { bytes: charge_of(inode, &row), inodes: 1 };
        if let Some(to) = to {
            let id = QuotaId::Tree(to);
            let limits = self.quotas.lock().accounts.get(&id).copied().unwrap_or_default();
            if !is_exempt {
                self.require_quota(t, (id, limits), part)?;
            }
            self.change_usage(t, id, |usage| usage.add(part))?;
        }
        if let Some(from) = from {
            self.change_usage(t, QuotaId::Tree(from), |usage| usage.subtract(part))?;
        }
        self.put_tree(t, (file, inode), &row, to)
    }
}

impl Op<'_> {
    /// Whether no limit applies to the caller: root, and the user who runs the server.
    pub(in crate::metadata) fn is_exempt(&self) -> bool {
        self.bounds().is_none()
    }

    /// Length up to which the caller may write the file; `None` if no quota limits that.
    pub(in crate::metadata) fn write_limit(
        &self,
        s: &dyn Snapshot,
        file: FileId,
        inode: &Inode,
    ) -> Outcome<Option<WriteLimit>> {
        let Node::Regular { layout, .. } = &inode.node else { return Ok(None) };
        if self.is_exempt() {
            return Ok(None);
        }
        let charged = self.core.charged(s, file, inode)?.filter(Charged::is_limited);
        let limit = |Charged { bytes, .. }| WriteLimit {
            file_len: bytes,
            datafile_len: layout.datafile_len_max(bytes),
        };
        Ok(charged.map(limit))
    }

    /// The capability with the given limit, if it allows writes.
    pub(in crate::metadata) fn limited(&self, cap: Capability, limit: Option<WriteLimit>) -> Capability {
        match limit {
            Some(limit) if cap.rights.allow(Rights::WRITE) => {
                self.core.secret.limit(self.session, &cap, limit)
            }
            _ => cap,
        }
    }

    /// Charges a new file in advance, as far as its quotas allow that.
    pub(in crate::metadata) fn reserve_for_new(
        &self,
        t: &mut dyn Transaction,
        file: FileId,
        inode: &Inode,
    ) -> Outcome<()> {
        if !self.is_exempt() {
            self.core.reserve(t, (file, inode), ByteLen(0), CHARGE_OF_SMALL_MAX)?;
        }
        Ok(())
    }

    /// Charges a file for a new length, before a truncation extends it.
    pub(in crate::metadata) fn reserve_for_len(
        &self,
        t: &mut dyn Transaction,
        file: FileId,
        inode: &Inode,
        len: ByteLen,
    ) -> Outcome<Urgency> {
        if self.is_exempt() {
            return Ok(Urgency::Lazy);
        }
        let charge = self.core.reserve(t, (file, inode), len, 0)?;
        // Durable before the bytes, as in `reserve_space`.
        Ok(if charge.is_some() { Urgency::Durable } else { Urgency::Lazy })
    }

    /// Charges an open file for a write that ends at `end`. The new capability ends with the given one, so that it passes
    /// no fence which that would not pass.
    pub(in crate::metadata) fn reserve_space(
        &self,
        t: &mut dyn Transaction,
        handle: HandleId,
        cap: &Capability,
        end: FileOffset,
    ) -> Outcome<(MetaReply, Urgency)> {
        let open = self.core.opens.lock().get(self.session, handle).filter(|open| open.write);
        let open = open.ok_or(Errno::EBADF)?;
        let inode = named_inode(t, open.file)?;
        if cap.file != inode.data(open.file) || !self.holds(cap, open.file, Rights::WRITE) {
            return Err(Errno::ESTALE.into());
        }
        let unlimited = self.grant_until(cap.file, cap.rights, cap.expires_s);
        if self.is_exempt() {
            return Ok((MetaReply::Capability(unlimited), Urgency::Lazy));
        }
        // A charge may last after the close, until somebody asks for the size. So it is at most twice the size.
        let ahead_max = end.0.clamp(CHARGE_OF_SMALL_MAX, CHARGE_AHEAD_MAX);
        self.core.reserve(t, (open.file, &inode), ByteLen(end.0), ahead_max)?;
        let limit = self.write_limit(t, open.file, &inode)?;
        // Durable before the bytes: a restart must not forget what the file may contain.
        Ok((MetaReply::Capability(self.limited(unlimited, limit)), Urgency::Durable))
    }
}

fn charge_rows(s: &dyn Snapshot) -> Outcome<BTreeMap<FileId, FileChargeRow>> {
    let mut rows = BTreeMap::new();
    s.scan(Table::FileCharges, Bound::Unbounded, &mut |key, value| {
        rows.insert(file_of_key(key), value.open(Table::FileCharges, key)?);
        Ok(Scan::Next)
    })?;
    Ok(rows)
}

/// Maximum number of inodes of the caller by the cluster file; `None` if a quota decides.
pub(in crate::metadata) fn inodes_max(op: &Op<'_>) -> Option<u64> {
    let bounds = op.bounds()?;
    (!op.core.has_inode_quota(op.caller.uid)).then_some(bounds.inodes)
}

/// Gives an inode another owner: its count and its charge.
pub(in crate::metadata) fn change_owner(
    core: &Core,
    t: &mut dyn Transaction,
    (file, inode): (FileId, &Inode),
    uid: u32,
) -> Outcome<()> {
    owners::remove(t, inode.uid)?;
    // Only root changes owners, and may exceed the limits of the new owner.
    owners::add(t, uid, None)?;
    core.change_charged_owner(t, (file, inode), uid)
}
