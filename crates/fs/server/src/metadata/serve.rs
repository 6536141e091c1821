//! Dispatch of one request.

use super::fault::{Fault, Outcome};
use super::lineage;
use super::list::Page;
use super::locking::{LockRequest, byte_range};
use super::moves::MoveStart;
use super::op::Op;
use super::open::{OpenOrigin, OpenRequest, Urgency};
use super::opens::Mark;
use super::tables::{allocator, row};
use super::{ConnectionContext, Service};
use std::cell::Cell;
use std::sync::atomic::Ordering;
use weft_core::FileId;
use weft_core::ibridge::Report;
use weft_env::mutants::{Mutant, is_seeded};
use weft_env::{Dir, Env, Notify};
use weft_store::metadata::{Engine, ReplyRow, Table, Transaction, reply_key};
use weft_wire::hello::Identity;
use weft_wire::meta::{
    HandleId, LockKind, LockOwner, LockRange, LockSpace, MetaCall, MetaReply, MetaRequest, NamespaceReport,
    TargetVerdict, WriteSummary,
};
use weft_wire::{Errno, WireError};

/// Maximum number of problems in one reply to a check.
const PROBLEMS_MAX: usize = 1000;
/// Range of an append lock.
const WHOLE_FILE: LockRange = LockRange { start: 0, end: u64::MAX };

/// One call with its caller.
pub(super) struct Call<'a> {
    pub(super) ctx: &'a ConnectionContext,
    pub(super) caller: Identity,
    pub(super) seq: u64,
}

impl Call<'_> {
    /// Returns a request for a lock that names no process, and whose user has no limit.
    pub(super) fn lock_request(
        &self,
        file: FileId,
        (space, owner): (LockSpace, LockOwner),
        kind: LockKind,
        range: LockRange,
    ) -> Result<LockRequest, Errno> {
        let (session, host, uid) = (self.ctx.session, self.ctx.host, self.caller.uid);
        let range = byte_range(range)?;
        Ok(LockRequest { session, file, space, owner, kind, range, pid: 0, host, uid, user_max: None })
    }
}

impl<E: Env> Service<E> {
    /// Serves one request. Requests of one connection come one after the other.
    pub async fn call(&self, ctx: &ConnectionContext, call: MetaCall) -> MetaReply {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let MetaCall { seq, on_behalf, request } = call;
        let caller = match ctx.delegation.identity_for(&ctx.identity, on_behalf) {
            Ok(caller) => caller,
            Err(refusal) => return MetaReply::Failed(refusal),
        };
        if request.level() > ctx.level {
            const WHY: &str = "the request belongs to a later feature level than this connection";
            return MetaReply::Failed(WireError::new(Errno::EPROTO, WHY));
        }
        let call = Call { ctx, caller, seq };
        let mut reply = self.serve(&call, request).await;
        // A client writes to the new datafiles of a file as soon as it learns of them, so a crash must not undo the
        // switch.
        if self.core.moves.pending_switches.load(Ordering::SeqCst) > 0 {
            let durable = self.journal.durable(self.journal.now()).await;
            reply = durable.map_err(Fault::from).and(reply);
        }
        let reply = reply.unwrap_or_else(Fault::into_reply);
        self.wake_reaper();
        self.journal.await_device().await;
        reply
    }

    async fn serve(&self, call: &Call<'_>, request: MetaRequest) -> Outcome<MetaReply> {
        use MetaRequest as R;
        if let Some(outdated) = self.core.registry.outdated()
            && !is_administration(&request)
        {
            return Err(outdated);
        }
        match request {
            R::Stat { at } => {
                let reply = self.read(call, |s, op| op.stat(s, &at))?;
                if let MetaReply::Attr(attr) = &reply {
                    self.wait_for_seen(call, [attr.file]).await?;
                }
                Ok(reply)
            }
            R::Readlink { at } => self.read(call, |s, op| op.readlink(s, &at)),
            R::Access { at, mask } => self.read(call, |s, op| op.access(s, &at, mask)),
            R::LookUp { at } => {
                let lease_at = self.may_lease_names(call).await.then(|| self.env.now());
                let reply = self.read(call, |s, op| op.look_up(s, &at, lease_at))?;
                if let MetaReply::LookedUp { attr, .. } = &reply {
                    self.wait_for_seen(call, [attr.file]).await?;
                }
                Ok(reply)
            }
            R::List { at, after, limit, with_attr, lease } => {
                let may_lease = lease && self.may_lease_names(call).await;
                let lease_at = may_lease.then(|| self.env.now());
                let page = Page { after: &after, limit, with_attr, lease_at };
                let reply = self.read(call, |s, op| op.list(s, &at, &page))?;
                if let (true, MetaReply::Entries { entries, .. }) = (with_attr, &reply) {
                    self.wait_for_seen(call, entries.iter().map(|entry| entry.file)).await?;
                }
                Ok(reply)
            }
            R::GetXattr { at, name } => self.read(call, |s, op| op.get_xattr(s, &at, &name)),
            R::ListXattr { at } => self.read(call, |s, op| op.list_xattr(s, &at)),
            R::GetLayout { at } => self.read(call, |s, op| op.get_layout(s, &at)),
            R::Record { handle, written } => {
                let record = |t: &mut dyn Transaction, op: &Op<'_>| {
                    op.record(t, handle, &written).map(|()| ((), Urgency::Lazy))
                };
                self.commit(call, record).await?;
                Ok(MetaReply::Done)
            }
            R::Recorded { handle } => self.read(call, |s, op| op.recorded(s, handle)),
            R::Renew { handle } => {
                let reply = self.read(call, |s, op| op.renew(s, handle))?;
                if let MetaReply::Relocated { cap, .. } = &reply {
                    // The client that grew the file may not have waited until that is durable.
                    self.wait_for_mark(call, cap.file.inode(), false).await?;
                }
                Ok(reply)
            }
            R::ReadInline { handle, offset, len } => self.read_inline(call, handle, offset, len).await,
            R::WriteInline { handle, offset, bytes } => self.write_inline(call, handle, offset, &bytes).await,
            R::Grow { handle } => self.grow(call, handle).await,
            R::Grown { handle, copied } => self.grown(call, handle, &copied).await,

            R::Mkdir { at, mode } => {
                self.change_with_space(call, Urgency::Name, |t, op| op.mkdir(t, &at, mode)).await
            }
            R::Mknod { at, kind, mode, rdev } => {
                let reply = self
                    .change_with_space(call, Urgency::Name, |t, op| op.mknod(t, &at, kind, mode, rdev))
                    .await?;
                if let MetaReply::Attr(attr) = &reply {
                    self.wait_for_mark(call, attr.file, true).await?;
                }
                Ok(reply)
            }
            R::Symlink { at, target } => {
                self.change_with_space(call, Urgency::Name, |t, op| op.symlink(t, &at, &target)).await
            }
            R::Link { from, to } => {
                self.change_with_space(call, Urgency::Name, |t, op| op.link(t, &from, &to)).await
            }
            R::Unlink { at } => {
                let reply = self.change_to(call, Urgency::Name, |t, op| op.unlink(t, &at)).await?;
                self.wake_reaper();
                self.wait_until_freed().await;
                Ok(reply)
            }
            R::Rmdir { at } => self.change_to(call, Urgency::Name, |t, op| op.rmdir(t, &at)).await,
            R::Rename { from, to, no_replace, exchange } => {
                self.change_to(call, Urgency::Name, |t, op| op.rename(t, &from, &to, no_replace, exchange))
                    .await
            }
            R::SetAttr { at, set } => {
                self.change_to(call, Urgency::Name, |t, op| op.set_attr(t, &at, &set)).await
            }
            R::SetXattr { at, name, value, create, replace } => {
                self.change_with_space(call, Urgency::Name, |t, op| {
                    op.set_xattr(t, &at, &name, &value, create, replace)
                })
                .await
            }
            R::RemoveXattr { at, name } => {
                self.change_to(call, Urgency::Name, |t, op| op.remove_xattr(t, &at, &name)).await
            }
            R::Rules { at } => self.read(call, |s, op| op.rules(s, &at)),
            R::ChangeRules { at, forget, add } => {
                self.change_with_space(call, Urgency::Durable, |t, op| op.change_rules(t, &at, &forget, &add))
                    .await
            }
            R::SetLayout { at, spec } => self.change(call, |t, op| op.set_layout(t, &at, &spec)).await,
            R::CheckNamespace { repair } => {
                self.require_administrator(call)?;
                self.check(call, repair).await
            }
            R::ScanInodes { after, limit } => {
                self.require_administrator(call)?;
                self.read(call, |s, op| op.scan_inodes(s, after, limit))
            }

            R::DumpBegin => {
                self.require_administrator(call)?;
                self.begin_dump(call.ctx).await
            }
            R::DumpPage { number, after } => {
                self.require_administrator(call)?;
                self.dump_page(call, number, after)
            }
            R::DumpEnd { number } => {
                self.end_dump(call, number);
                Ok(MetaReply::Done)
            }

            R::Open { at, flags, mode, handle, layout, cache, ranks } => {
                let free_space = self.require_space();
                let layout = &layout;
                let open =
                    OpenRequest { at: &at, flags, mode, handle, layout, cache, ranks, space: free_space };
                self.open(call, &open).await
            }
            R::Adopt { open, parent } => {
                let origin = OpenOrigin::Adopted(parent.bound_to(call.ctx.owner()));
                // Repeated as a whole, because its effect in memory is wanted.
                let mut reply = self.commit(call, |t, op| op.adopt(t, origin, &open)).await?;
                self.wait_for_mark(call, open.file, false).await?;
                if let MetaReply::Opened(opened) = &mut reply {
                    opened.mapped_elsewhere = self.is_mapped_elsewhere(call.ctx.session, open.file);
                }
                Ok(reply)
            }
            R::Close { handle, summary } => self.close(call, handle, summary).await,
            R::Truncate { at, handle, size } => {
                let (has_space, inline) = (!self.journal.is_low(), Cell::new(None));
                let truncate = |t: &mut dyn Transaction, op: &Op<'_>| {
                    let done = op.truncate(t, &at, handle, (size, has_space));
                    inline.set(op.changed_bytes.get());
                    done
                };
                let again = |t: &mut dyn Transaction, op: &Op<'_>, reply| match reply {
                    // The bytes of an inline file are cut, but mounts may still have their pages.
                    MetaReply::Done => {
                        inline.set(op.file_to_truncate(t, &at, handle).ok().map(|(file, _)| file));
                        Ok(reply)
                    }
                    // The effect in memory is wanted again.
                    _ => truncate(t, op).map(|(reply, _)| reply),
                };
                let change = async || self.change_once(call, truncate, again).await;
                let reply = self.when_not_held(change).await?;
                if let MetaReply::Truncate { file, .. } = &reply {
                    self.wait_for_mark(call, *file, false).await?;
                } else if let Some(file) = inline.get() {
                    // Of other files, the client tells mounts that cache pages.
                    self.closed_by_writer(call.ctx.session, file).await;
                }
                Ok(reply)
            }
            R::ValidateSize { file, epoch, cap, found } => {
                let validate = |t: &mut dyn Transaction, op: &Op<'_>| {
                    op.validate_size(t, file, epoch, &cap, &found).map(|ended| (ended, Urgency::Lazy))
                };
                if self.commit(call, validate).await? {
                    self.send_drop_events(call.ctx.session, file, 0, u64::MAX);
                }
                Ok(MetaReply::Done)
            }
            R::Flush => {
                self.journal.durable(self.journal.now()).await?;
                Ok(MetaReply::Done)
            }
            R::SyncNames => {
                self.sync_names().await?;
                Ok(MetaReply::Done)
            }
            R::StatFs { at } => {
                let (inodes, quotas) = self
                    .read(call, |s, op| Ok((allocator(s)?.inodes, op.quotas_that_apply(s, at.as_ref())?)))?;
                let space = self.dir.space().await.unwrap_or_default();
                Ok(MetaReply::StatFs { inodes, total: space.total, free: space.free, quotas })
            }

            R::Lock { handle, space, owner, kind, range, wait, ticket, pid } => {
                let pid = if pid == 0 { call.ctx.pid } else { pid };
                let file = self.lockable(call.ctx.session, handle, space, Some(kind))?;
                let (kind, range) = match space {
                    LockSpace::Append => (LockKind::Exclusive, WHOLE_FILE),
                    LockSpace::Record | LockSpace::Flock => (kind, range),
                };
                let user_max = self.core.bounds_of(&call.caller).map(|bounds| bounds.locks);
                let request = call.lock_request(file, (space, owner), kind, range)?;
                let request = LockRequest { pid, user_max, ..request };
                self.lock(call, handle, request, wait, ticket).await
            }
            R::Unlock { handle, space, owner, range } => {
                let file = self.lockable(call.ctx.session, handle, space, None)?;
                let range = if space == LockSpace::Append { WHOLE_FILE } else { range };
                let request = call.lock_request(file, (space, owner), LockKind::Shared, range)?;
                if self.locks.lock().unlock(&request)? {
                    self.wake_lockers(file);
                }
                Ok(MetaReply::Done)
            }
            R::AbandonAppend { handle, owner } => {
                let session = call.ctx.session;
                let file = self.lockable(session, handle, LockSpace::Append, None)?;
                let mut locks = self.locks.lock();
                if locks.holds_append_lock(session, file, Some(owner)) {
                    self.revoke_append_lock(&mut locks, file);
                }
                Ok(MetaReply::Done)
            }
            R::TestLock { handle, space, owner, kind, range } => {
                let file = self.lockable(call.ctx.session, handle, space, None)?;
                let request = call.lock_request(file, (space, owner), kind, range)?;
                Ok(MetaReply::Holder(self.locks.lock().test(&request)))
            }
            R::CancelLock { ticket } => {
                if self.locks.lock().cancel(call.ctx.session, ticket) {
                    self.lock_changed.iter().for_each(Notify::notify_all);
                }
                Ok(MetaReply::Done)
            }
            R::Reclaim { opens, locks } => self.reclaim(call, &opens, &locks).await,
            R::Invalidate { handle, start, end } => self.invalidate(call, handle, start, end).await,
            R::AwaitRecall { handle } => self.await_recall(call, handle).await,
            R::Averages { reports } => {
                let Call { ctx: ConnectionContext { is_server: true, .. }, .. } = call else {
                    return Err(Fault::new(Errno::EPERM, "only servers of the cluster report their disks"));
                };
                Ok(MetaReply::Averages(self.exchange_averages(reports)))
            }
            R::BeginMove { at, handle, layout, dry_run } => {
                self.require_space()?;
                loop {
                    let begin = |t: &mut dyn Transaction, op: &Op<'_>| {
                        op.begin_move(t, &at, handle, &layout, dry_run)
                    };
                    match self.commit(call, begin).await? {
                        MoveStart::Reply(reply) => return Ok(reply),
                        MoveStart::Retry { pending: None } => {}
                        MoveStart::Retry { pending: Some(pending) } => {
                            self.wait_until_reaped(pending).await?
                        }
                    }
                }
            }
            R::RenewMove { handle, copied, done, left } => {
                self.commit(call, |t, op| op.continue_move(t, handle, copied, (done, left))).await
            }
            R::BeginCutover { handle } => self.read(call, |s, op| op.move_over(s, handle)),
            R::CancelCutover { handle } => self.read(call, |s, op| op.move_back(s, handle)),
            R::CommitMove { handle, seal_s, size, lens, copied } => {
                self.core.moves.pending_switches.fetch_add(1, Ordering::SeqCst);
                let is_done = Cell::new(false);
                let switch = |t: &mut dyn Transaction, op: &Op<'_>| {
                    let reply = op.moved(t, handle, (seal_s, copied), size, lens.clone())?;
                    is_done.set(true);
                    Ok(reply)
                };
                let reply = self.change(call, switch).await;
                // If the log failed with it, no reply that may depend on it is sent any more.
                if reply.is_ok() || !is_done.get() {
                    self.core.moves.pending_switches.fetch_sub(1, Ordering::SeqCst);
                }
                reply
            }
            R::Moves { after } => self.read(call, |s, op| op.moves(s, after)),
            R::AbortMove { at } => self.change(call, |t, op| op.abandon_move(t, &at)).await,
            R::JudgeTarget { target, claim, format } => {
                self.require_server(call)?;
                let reply = self.read(call, |s, op| op.judge_target(s, target, &claim, format))?;
                if let MetaReply::TargetVerdict(TargetVerdict::Refused(refusal)) = &reply {
                    // New files go elsewhere at once, before the next poll of the server.
                    self.core.server_health.refuse(target, refusal.word());
                }
                // The target stores the token, so a crash of this service must not leave the record behind the target.
                self.journal.durable(self.journal.now()).await?;
                Ok(reply)
            }
            R::AttachTarget { target, uuid, from, to, place } => {
                self.require_server(call)?;
                let attach = |t: &mut dyn Transaction, op: &Op<'_>| {
                    op.attach_target(t, target, uuid, (from, to), place)
                };
                let reply = self.change(call, attach).await?;
                self.core.server_health.attached(target);
                self.map_changed.notify_all();
                Ok(reply)
            }
            R::ClusterMap => self.read(call, |_, op| Ok(op.cluster_map())),
            R::RegisterServer { name, addresses, targets, format, levels } => {
                self.require_server(call)?;
                let register = |t: &mut dyn Transaction, op: &Op<'_>| {
                    op.register_server(t, (&name, levels), &addresses, &targets, format)
                };
                let reply = Box::pin(self.change(call, register)).await?;
                // Data servers learn the addresses of the metadata server, which may have changed.
                self.watch_work.notify_all();
                Ok(reply)
            }
            R::ChangeServer { name, change } => {
                self.require_administrator(call)?;
                self.change(call, |t, op| op.change_server(t, &name, change)).await
            }
            R::SetDomain { name, change } => {
                self.require_administrator(call)?;
                Box::pin(self.change(call, |t, op| op.set_domain(t, &name, &change))).await
            }
            R::Levels => self.read(call, |s, op| op.levels(s)),
            R::RaiseLevel { to } => {
                self.require_administrator(call)?;
                Box::pin(self.change(call, |t, op| op.raise_level(t, to))).await
            }
            R::Targets => self.read(call, |_, op| Ok(op.targets())),
            R::ChangeTarget { target, change } => {
                self.require_administrator(call)?;
                self.change_target_state(call, target, change).await
            }
            R::Lineage { files } => {
                self.require_administrator(call)?;
                self.read(call, |s, _| Ok(MetaReply::Lineage(lineage::were_assigned(s, &files)?)))
            }
            R::RevokeKeys { keys } => {
                self.require_administrator(call)?;
                self.revoke_keys(call, &keys).await
            }
            R::RevokedKeys => {
                if !call.ctx.is_server {
                    self.require_administrator(call)?;
                }
                Ok(self.revoked_keys())
            }
            R::CreateReplica { handle, data_handle, spec, layout } => {
                self.require_space()?;
                let create = |t: &mut dyn Transaction, op: &Op<'_>| {
                    op.create_replica(t, (handle, data_handle), &spec, &layout)
                };
                let again = |t: &mut dyn Transaction, op: &Op<'_>, reply| {
                    op.create_replica_again(t, (handle, data_handle), reply)
                };
                let reply = self.change_once(call, create, again).await?;
                self.wait_for_durable_mark(call, &reply).await?;
                Ok(reply)
            }
            R::CopyReplica { handle, sealed_s } => {
                self.commit(call, |t, op| Ok((op.copy_replica(t, handle, sealed_s)?, Urgency::Lazy))).await
            }
            R::PublishReplica { handle } => self.change(call, |t, op| op.publish_replica(t, handle)).await,
            R::AbandonReplica { handle } => self.change(call, |t, op| op.abandon_replica(t, handle)).await,
            R::OpenReplica { handle, data_handle } => {
                let reply = self.commit(call, |t, op| op.open_replica(t, handle, data_handle)).await?;
                if let MetaReply::ReplicaOpened { opened, .. } = &reply {
                    self.wait_for_mark(call, opened.attr.file, false).await?;
                }
                Ok(reply)
            }
            R::BypassReplica { handle } => self.change(call, |t, op| op.bypass_replica(t, handle)).await,
            R::MarkReplica { handle, first, count } => {
                self.change(call, |t, op| op.mark_replica(t, handle, (first, count))).await
            }
            R::FenceFile { handle, kind } => self.read(call, |s, op| op.fence_file(s, handle, kind)),
            R::ReleaseSeal { handle } => self.read(call, |s, op| op.release_seal(s, handle)),
            R::SynchronizedReplica { handle, epoch, sealed_s } => {
                self.change(call, |t, op| op.synchronized_replica(t, handle, epoch, sealed_s)).await
            }
            R::DropReplica { at, force } => self.change(call, |t, op| op.drop_replica(t, &at, force)).await,
            R::Replica { at } => self.read(call, |s, op| op.replica(s, &at)),
            R::Replicas { after } => self.read(call, |s, op| op.replicas(s, after)),
            R::ReserveSpace { handle, cap, end } => {
                self.commit(call, |t, op| op.reserve_space(t, handle, &cap, end)).await
            }
            R::SetQuota { subject, limits } => {
                self.require_administrator(call)?;
                self.change_with_space(call, Urgency::Durable, |t, op| op.set_quota(t, &subject, limits))
                    .await
            }
            R::GetQuota { subject } => {
                let is_administrator = call.ctx.is_administrator;
                self.read(call, |s, op| op.get_quota(s, &subject, is_administrator))
            }
            R::ListQuotas { after } => {
                self.require_administrator(call)?;
                self.read(call, |s, op| op.list_quotas(s, after))
            }
            R::CountTree(step) => {
                self.require_administrator(call)?;
                self.require_space()?;
                self.commit(call, |t, op| op.count_tree(t, &step)).await
            }
            R::EndTreeCount { tree } => {
                self.require_administrator(call)?;
                self.change(call, |t, op| op.end_tree_count(t, tree)).await
            }
            R::Paths { files } => {
                // A mount of an administrator asks for its users.
                let sees_all = call.ctx.is_administrator && call.caller == call.ctx.identity;
                self.read(call, |s, op| Ok(op.paths(s, &files, sees_all)))
            }
            R::WaitEvents { done } => Ok(self.wait_events(call.ctx.session, done).await),
        }
    }

    /// Checks the file of the database, then the namespace.
    async fn check(&self, call: &Call<'_>, repair: bool) -> Outcome<MetaReply> {
        let base = self.journal.check_base(repair)?;
        let checked = if repair {
            self.change(call, |t, op| op.repair_namespace(t)).await
        } else {
            self.read(call, |s, op| op.check_namespace(s))
        };
        let file = self.journal.base_path();
        let (mended, left): (Vec<_>, Vec<_>) = base.damaged.iter().partition(|(_, mended)| *mended);
        let sentence = |(bytes, _): &(std::ops::Range<u64>, bool)| {
            format!("metadata database {file}: bytes {} to {} are damaged", bytes.start, bytes.end - 1)
        };
        match checked {
            Ok(MetaReply::Checked(mut report)) => {
                report.mended += mended.len() as u64;
                report.problems.splice(0..0, mended.into_iter().map(sentence));
                report.problems.extend(left.into_iter().map(sentence));
                report.problems.truncate(PROBLEMS_MAX);
                Ok(MetaReply::Checked(report))
            }
            // The error says which bytes prevent the check.
            Err(Fault::Failed(error)) if !left.is_empty() => {
                let mut problems: Vec<String> = mended.iter().chain(&left).copied().map(sentence).collect();
                problems.truncate(PROBLEMS_MAX);
                problems.push(format!("the namespace cannot be checked: {}", error.detail));
                let mended = mended.len() as u64;
                Ok(MetaReply::Checked(NamespaceReport { problems, mended, ..NamespaceReport::default() }))
            }
            other => other,
        }
    }

    /// Stores the averages that a data server reports, and returns those of all targets.
    fn exchange_averages(&self, mut reports: Vec<Report>) -> Vec<Report> {
        // No more entries than there are targets.
        let map = self.core.map.get();
        reports.retain(|report| map.server_of(report.target).is_some());
        let (mut board, now) = (self.averages.lock(), self.env.now());
        board.take(&reports, now);
        board.reports(now)
    }

    fn require_server(&self, call: &Call<'_>) -> Outcome<()> {
        if call.ctx.is_server {
            return Ok(());
        }
        Err(Fault::new(Errno::EPERM, "only servers of the cluster may do this"))
    }

    fn require_administrator(&self, call: &Call<'_>) -> Outcome<()> {
        if call.ctx.is_administrator {
            return Ok(());
        }
        const WHY: &str = "only administrators may do this: root and the user who runs the servers on their hosts, and \
                           holders of an administrator's key (`weft key admin`)";
        Err(Fault::new(Errno::EPERM, WHY))
    }

    async fn open(&self, call: &Call<'_>, open: &OpenRequest<'_>) -> Outcome<MetaReply> {
        let key = reply_key(call.ctx.session.0, call.ctx.slot);
        let unchanged = self.read(call, |s, op| {
            let stored = || row::<ReplyRow>(s, Table::Replies, &key);
            // A repeated creation gets the stored reply, not the present state.
            if open.flags.create && call.seq > 0 && stored()?.is_some_and(|stored| stored.seq >= call.seq) {
                return Ok(None);
            }
            op.open_unchanged(s, open)
        });
        let mut reply = match unchanged {
            Ok(Some(reply)) => reply,
            Err(fault) if open.flags.create => return Err(self.after_durable(call, fault).await),
            Err(fault) => return Err(fault),
            Ok(None) => {
                let again = |t: &mut dyn Transaction, op: &Op<'_>, reply| op.open_again(t, open, reply);
                self.when_not_held(async || self.change_once(call, |t, op| op.open(t, open), again).await)
                    .await?
            }
        };
        self.wait_for_durable_mark(call, &reply).await?;
        if let MetaReply::Opened(opened) = &mut reply {
            let file = opened.attr.file;
            // Not in the step before, so that no stored reply has them.
            opened.mapped_elsewhere = open.flags.write && self.is_mapped_elsewhere(call.ctx.session, file);
            if open.flags.read && opened.inline_max.is_some() && !opened.must_recall {
                opened.bytes = self.read(call, |s, op| op.lease_bytes(s, file, open.handle))?;
            }
            self.wait_for_seen(call, [file]).await?;
            if open.flags.truncate && !opened.created && opened.inline_max.is_some() {
                // As after a truncation.
                self.closed_by_writer(call.ctx.session, file).await;
            }
        }
        Ok(reply)
    }

    /// Waits until the creation of the file, or the mark that its size is invalid, is durable. A client that has the
    /// file open may write to its datafiles. So a crash must neither undo the creation nor restore a valid size, even
    /// if another session created or marked it.
    async fn wait_for_durable_mark(&self, call: &Call<'_>, reply: &MetaReply) -> Outcome<()> {
        let MetaReply::Opened(opened) = reply else { return Ok(()) };
        self.wait_for_mark(call, opened.attr.file, opened.created).await
    }

    /// Waits like [`Self::wait_for_durable_mark`]. A mark that `is_own` is of this call: of the creation of the file or of its
    /// growth, which the call has waited for as its client needs.
    pub(super) async fn wait_for_mark(&self, call: &Call<'_>, file: FileId, is_own: bool) -> Outcome<()> {
        if is_seeded(Mutant::ReusedIds) {
            return Ok(());
        }
        let Some(mark) = self.core.opens.lock().mark_of(file) else { return Ok(()) };
        match mark {
            _ if call.ctx.ends_with_host && is_own => {
                let (point, durable) = (self.journal.now(), self.journal.durable_point());
                self.core.opens.lock().set_written(file, point, durable);
                return Ok(());
            }
            Mark::Written(_) if call.ctx.ends_with_host => return Ok(()),
            _ if is_own => {}
            _ => self.journal.durable(self.journal.now()).await?,
        }
        self.core.opens.lock().set_durable(file, mark);
        Ok(())
    }

    async fn close(&self, call: &Call<'_>, handle: HandleId, summary: WriteSummary) -> Outcome<MetaReply> {
        let session = call.ctx.session;
        self.end_growths(session, Some(handle));
        let has_unreported = (summary.wrote || summary.unsure) && !summary.reported;
        let matters = self.core.opens.lock().close_matters(session, handle);
        let ended = if matters {
            let close = |t: &mut dyn Transaction, op: &Op<'_>| {
                op.close(t, handle, Some(summary)).map(|ended| (ended, Urgency::Lazy))
            };
            self.commit(call, close).await?
        } else {
            self.core.opens.lock().remove(session, handle, Some((&summary, true)))
        };
        let Some(ended) = ended else { return Err(Errno::EBADF.into()) };
        if self.core.byte_leases.lock().closed(ended.open.file, session, handle) {
            self.hold_ended.notify_all();
        }
        // The file may have lost its last name since the check above.
        if ended.is_orphaned && !matters {
            let end = |t: &mut dyn Transaction, op: &Op<'_>| {
                op.end_orphan(t, ended.open.file).map(|()| ((), Urgency::Lazy))
            };
            self.commit(call, end).await?;
        }
        let wakes = {
            let mut locks = self.locks.lock();
            let of = (!ended.last_of_session).then_some(LockOwner::Handle(handle));
            if locks.holds_append_lock(session, ended.open.file, of) {
                self.revoke_append_lock(&mut locks, ended.open.file);
            }
            locks.closed(session, ended.open.file, handle, ended.last_of_session)
        };
        if wakes {
            self.wake_lockers(ended.open.file);
        }
        if ended.open.changes() && has_unreported {
            self.closed_by_writer(session, ended.open.file).await;
        }
        Ok(MetaReply::Done)
    }
}

/// Whether administrators or servers need this request while the metadata must not be used.
fn is_administration(request: &MetaRequest) -> bool {
    use MetaRequest as R;
    matches!(
        request,
        R::JudgeTarget { .. }
            | R::AttachTarget { .. }
            | R::ClusterMap
            | R::RegisterServer { .. }
            | R::ChangeServer { .. }
            | R::Levels
            | R::Targets
            | R::ChangeTarget { .. }
            | R::Lineage { .. }
            | R::RevokeKeys { .. }
            | R::RevokedKeys
            | R::ScanInodes { .. }
            | R::CheckNamespace { .. }
            | R::Averages { .. }
            | R::StatFs { .. }
            | R::Flush
            | R::SyncNames
    )
}
