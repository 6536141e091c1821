//! Rules of directories, and files that move to other layouts.

use super::{Actor, by_number, dir_path, place};
use crate::search::names::DIRS;
use crate::search::plan::{Fault, pick};
use weft_client::{Error, MoveOptions, MoveOutcome};
use weft_core::{ByteLen, FileId, Layout, Placement, TargetId};
use weft_wire::meta::{Forget, LayoutSpec, Rule};

/// Stripes of files that take rules are odd from here on; no other is.
const RULED_FROM: u64 = 4097;

impl Actor {
    /// A file was made that leaves its layout to rules.
    pub(super) fn made_by_rule(&self, id: u32, dir: u8, began: u64, layout: &Layout) {
        let stripe = layout.components()[0].strips[0].stripe_size.0;
        let default = Placement::DEFAULT_STRIPE_SIZE.0;
        self.judge.hit(if stripe == default { "rules: a file without one" } else { "rules: a file by one" });
        let may_be = self.judge.now(|state, _| state.rules.stripes(dir, began, default));
        if !may_be.contains(&stripe) {
            let what = format!("#{id} made a file with stripes of {stripe} bytes, of {may_be:?}");
            self.judge.violated("new files take the rule that there is", what);
        }
    }

    /// Changes the rule of a directory, or asks for it.
    pub(super) async fn rule(&mut self) {
        let dir = self.ruler.below(u64::from(DIRS)) as u8;
        let at = place(&dir_path(dir));
        let result = if self.ruler.below(4) == 0 {
            self.judge.hit("op: ask for rules");
            let id = self.begins(|| format!("rules of directory {dir}"));
            let began = self.judge.moment();
            let result = self.client.rules(&at).await;
            self.ends(id, &result);
            result.map(|ruled| {
                let own = ruled.iter().find(|ruled| ruled.path == dir_path(dir).as_bytes());
                let rule = own.and_then(|own| own.rules.first());
                let value = rule.and_then(|rule| rule.layout.stripe_size).map(|size| size.0);
                let may_be = self.judge.now(|state, _| state.rules.of(dir, began));
                if !may_be.contains(&value) {
                    let what = format!("#{id} was told {value:?}, of {may_be:?}");
                    self.judge.violated("rules of directories are those that were set last", what);
                }
            })
        } else {
            self.judge.hit("op: change rules");
            // No other rule, nor the default, has this stripe.
            let stripe = (self.ruler.below(4) > 0).then(|| RULED_FROM + 2 * u64::from(self.judge.id()));
            let layout = LayoutSpec { stripe_size: stripe.map(ByteLen), ..LayoutSpec::default() };
            let rule = |_| Rule { pattern: "**".parse().expect("a pattern"), layout: layout.clone() };
            let forget =
                if self.ruler.below(2) == 0 || stripe.is_none() { Forget::All } else { Forget::Replaced };
            let id = self.begins(|| format!("rules of directory {dir}: {stripe:?}"));
            self.judge.now(|state, now| state.rules.begin(id, dir, stripe, now));
            let result = self.client.change_rules(&at, forget, stripe.iter().map(rule).collect()).await;
            self.ends(id, &result);
            self.rule_written(id, &result);
            result
        };
        if let Err(error) = result
            && error.errno() != libc::ENOENT
        {
            let is_full = self.cluster.plan.faults.contains(&Fault::FullDisk);
            self.judge.excused(&error, if is_full { &[libc::ENOSPC] } else { &[] });
        }
    }

    /// What became of a change of a directory's rules.
    pub(super) fn rule_written<T>(&self, id: u32, result: &Result<T, Error>) {
        self.judge.now(|state, now| match result {
            Ok(_) => state.rules.done(id, now),
            Err(error) if [libc::ENOENT, libc::EEXIST, libc::ENOTEMPTY].contains(&error.errno()) => {
                state.rules.refused(id);
            }
            // Nobody knows.
            Err(_) => {}
        });
    }

    /// Has the bytes of a file go somewhere else while everybody uses it.
    pub(super) async fn move_file(&mut self) {
        let file = self.handles[self.mover.below(self.handles.len() as u64) as usize].file.file();
        let count = self.cluster.len() as u32;
        let mut targets: Vec<u32> = (0..count).filter(|_| self.mover.below(2) == 0).collect();
        if targets.is_empty() {
            targets.push(self.mover.below(u64::from(count)) as u32);
        }
        let stripe = ByteLen(pick(&mut self.mover, &self.cluster.plan.stripes));
        let strips: Vec<_> = targets.iter().map(|&target| (TargetId(target), stripe)).collect();
        let ids: Vec<TargetId> = targets.iter().copied().map(TargetId).collect();
        let layout = Layout::striped(&ids, stripe).expect("stripes have bytes");
        let spec = LayoutSpec { strips: Some(strips), ..LayoutSpec::default() };
        let options = MoveOptions {
            verify: self.mover.below(2) == 0,
            last: pick(&mut self.mover, &[None, Some(ByteLen(0)), Some(ByteLen(2000))]),
            ..MoveOptions::default()
        };
        // Now and then it is asked to stop.
        let mut patience = pick(&mut self.mover, &[u64::MAX, u64::MAX, 1]);
        let mut go_on = |_| {
            patience = patience.saturating_sub(1);
            patience > 0
        };
        let id = self.begins(|| format!("move file {file} to {targets:?} by {stripe}"));
        self.judge.hit("op: move");
        // From here on its parts may be there, whatever is heard of it.
        self.judge.file(file, |model, _| model.moved_to.push(layout));
        let result = self.client.migrate(&by_number(file), &spec, options, &mut go_on).await;
        self.judge.ends(id, || format!("{result:?}"));
        match result {
            Ok(MoveOutcome::Moved(report)) => {
                self.judge.hit("move: done");
                if report.rounds > 1 {
                    self.judge.hit("move: more than one round");
                }
            }
            Ok(MoveOutcome::Stopped) => self.judge.hit("move: stopped"),
            Ok(MoveOutcome::Already) => {}
            Err(error) => {
                self.judge.hit("move: failed");
                // Somebody else moves it, or it was removed, or forgotten in an outage.
                let mut legal = vec![libc::EBUSY, libc::ENOENT, libc::ESTALE, libc::EAGAIN];
                if self.judge.had_outage() {
                    legal.push(libc::EBADF);
                }
                if self.cluster.plan.faults.contains(&Fault::FullDisk) {
                    legal.push(libc::ENOSPC);
                }
                if self.cluster.plan.faults.contains(&Fault::DiskErrors) {
                    legal.push(libc::EIO);
                }
                if self.judge.file(file, |model, _| model.lost_power_ever()) {
                    legal.push(libc::EIO);
                }
                self.judge.excused(&error, &legal);
            }
        }
    }

    /// Gives up what movers have left of a file's moves.
    pub async fn forget_move(&self, file: FileId) -> Result<(), Error> {
        self.client.forget_move(&by_number(file)).await
    }
}
