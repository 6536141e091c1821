//! Rules of directories, and files that move to other layouts.

use super::{Actor, dir_path, place};
use crate::search::names::DIRS;
use crate::search::plan::{AMPLE, Fault, SCARCE, pick};
use weft_client::{Error, MoveOptions, MoveOutcome};
use weft_core::{
    ByteLen, ClassLayout, ClassPart, Component, FileId, FileOffset, Layout, Nanos, Placement, ServerId,
    Strip, TargetId,
};
use weft_env::Env;
use weft_wire::meta::{Forget, LayoutSpec, Rule};

/// Stripes of files that take rules are odd from here on; no other is.
const RULED_FROM: u64 = 4097;

/// Moves by one wish come to an end in fewer.
const MOVES_MAX: u32 = 20;

/// The stripe by which a rule is known again.
fn tag(rule: &LayoutSpec) -> Option<u64> {
    let of_parts = |parts: &ClassLayout| parts.parts()[0].stripes[0].1;
    rule.stripe_size.or_else(|| rule.by_class.as_ref().map(of_parts)).map(|size| size.0)
}

impl Actor {
    /// A layout of two parts or three, of which the last lies where room is ample; now and then.
    pub(super) fn some_parts(&mut self) -> Option<LayoutSpec> {
        if !self.cluster.plan.parts() || self.parter.below(2) == 0 {
            return None;
        }
        Some(self.some_classes())
    }

    /// Parts by class, of stripes that the plan has.
    pub fn some_classes(&mut self) -> LayoutSpec {
        let [first, last] = [0; 2].map(|_| ByteLen(pick(&mut self.parter, &self.cluster.plan.stripes)));
        self.parts_of(first, last)
    }

    fn parts_of(&mut self, first: ByteLen, last: ByteLen) -> LayoutSpec {
        let end = 1 + self.parter.below(self.cluster.plan.span);
        let part = |end: Option<u64>, stripes: &[(&str, ByteLen)]| ClassPart {
            end: end.map(FileOffset),
            stripes: stripes.iter().map(|(class, size)| ((*class).to_owned(), *size)).collect(),
        };
        let mut parts = vec![part(Some(end), &[(SCARCE, first)]), part(None, &[(AMPLE, last)])];
        if self.parter.below(3) == 0 {
            let to = end + 1 + self.parter.below(self.cluster.plan.span);
            parts.insert(1, part(Some(to), &[(SCARCE, first), (AMPLE, last)]));
        }
        let by_class = ClassLayout::new(parts).expect("parts that rise");
        LayoutSpec { by_class: Some(by_class), ..LayoutSpec::default() }
    }

    /// Asks for the account of room: no layouts together may promise more than there is.
    pub(super) async fn ask_for_room(&mut self) {
        let id = self.begins(|| "ask for room".into());
        self.judge.hit("op: ask for room");
        let result = self.client.status(ServerId(0)).await;
        self.ends(id, &result);
        match result {
            Ok(status) => {
                let rooms = status.metadata.map(|metadata| metadata.rooms).unwrap_or_default();
                for room in rooms {
                    if room.promised == room.room {
                        self.judge.hit("parts: no room left");
                    }
                    if room.promised > room.room {
                        self.judge
                            .violated("layouts promise no more room than there is", format!("{room:?}"));
                    }
                }
            }
            Err(error) => {
                self.judge.excused(&error, &[]);
            }
        }
    }

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
                let value = rule.and_then(|rule| tag(&rule.layout));
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
            let layout = match stripe.map(ByteLen) {
                Some(stripe) if self.cluster.plan.parts() && self.parter.below(2) == 0 => {
                    self.parts_of(stripe, stripe)
                }
                stripe_size => LayoutSpec { stripe_size, ..LayoutSpec::default() },
            };
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
        if self.cluster.plan.parts() && self.parter.below(4) == 0 {
            return self.move_by_class().await;
        }
        let file = self.handles[self.mover.below(self.handles.len() as u64) as usize].file.file();
        let layout = self.some_layout();
        if self.cluster.plan.stops {
            return self.move_in_pieces(file, layout).await;
        }
        let options = self.some_options();
        // Now and then it is asked to stop.
        let patience = pick(&mut self.mover, &[u64::MAX, u64::MAX, 1]);
        self.move_to(file, LayoutSpec::exactly(&layout), layout, options, patience).await;
    }

    fn some_options(&mut self) -> MoveOptions {
        MoveOptions {
            verify: self.mover.below(2) == 0,
            last: pick(&mut self.mover, &[None, Some(ByteLen(0)), Some(ByteLen(2000))]),
            ..MoveOptions::default()
        }
    }

    /// Some targets, each with the same stripe; perhaps in two parts.
    fn some_layout(&mut self) -> Layout {
        let count = self.cluster.plan.targets() as u32;
        let mut targets: Vec<u32> = (0..count).filter(|_| self.mover.below(2) == 0).collect();
        if targets.is_empty() {
            targets.push(self.mover.below(u64::from(count)) as u32);
        }
        let stripe = ByteLen(pick(&mut self.mover, &self.cluster.plan.stripes));
        let strips = |targets: &[u32]| -> Vec<Strip> {
            targets.iter().map(|&target| Strip { target: TargetId(target), stripe_size: stripe }).collect()
        };
        let mut components = vec![Component { start: FileOffset(0), end: None, strips: strips(&targets) }];
        if self.cluster.plan.parts() && self.parter.below(2) == 0 {
            // The first part on others, perhaps on targets with little room.
            let end = FileOffset(1 + self.parter.below(self.cluster.plan.span));
            let first = strips(&[self.parter.below(u64::from(count)) as u32]);
            components[0].start = end;
            components.insert(0, Component { start: FileOffset(0), end: Some(end), strips: first });
        }
        Layout::from_components(components).expect("components that cover a file")
    }

    /// Moves a file piece by piece, perhaps one that nobody has open, perhaps on the way that somebody had begun; it may
    /// stop anywhere, and be taken up again.
    async fn move_in_pieces(&mut self, mut file: FileId, layout: Layout) {
        match self.stopper.below(4) {
            0 => {
                let files: Vec<FileId> = self.judge.now(|state, _| state.files.keys().copied().collect());
                file = pick(&mut self.stopper, &files);
            }
            1 => {}
            // Only what nobody writes is taken up again where it was.
            _ => {
                while let Some(at) = self.handles.iter().position(|handle| handle.file.file() == file) {
                    self.close(at).await;
                }
            }
        }
        let (mut spec, mut to) = (LayoutSpec::exactly(&layout), layout);
        for _ in 0..1 + self.stopper.below(3) {
            let begun = self.judge.file(file, |model, _| model.begun.clone());
            if let Some(begun) = begun.filter(|_| self.stopper.below(4) > 0) {
                (spec, to) = begun;
            }
            let span = self.cluster.plan.span;
            let piece = pick(&mut self.stopper, &[span / 50, 4096, 30_000]);
            let options = MoveOptions {
                rate: pick(&mut self.stopper, &[None, Some(ByteLen(span)), Some(ByteLen(20 * span))]),
                piece: Some(ByteLen(piece)),
                safe_after: pick(&mut self.stopper, &[None, Some(ByteLen(2 * piece))]),
                ..self.some_options()
            };
            let patience = match self.stopper.below(3) {
                0 => u64::MAX,
                _ => 1 + self.stopper.below(20),
            };
            self.move_to(file, spec.clone(), to.clone(), options, patience).await;
            let pause = self.stopper.below(self.cluster.plan.pause.0 + 1);
            self.client.env().sleep(Nanos(pause)).await;
        }
    }

    /// Moves a file to `layout`, by `spec`, until it was asked so often whether to go on; what it has come to is in the
    /// judge's hands.
    async fn move_to(
        &mut self,
        file: FileId,
        spec: LayoutSpec,
        layout: Layout,
        options: MoveOptions,
        mut patience: u64,
    ) {
        let mut go_on = |_| {
            patience = patience.saturating_sub(1);
            patience > 0
        };
        let id = self.begins(|| format!("move file {file} to {layout:?}, {options:?}"));
        self.judge.hit("op: move");
        // From here on its parts may be there, whatever is heard of it.
        self.judge.file(file, |model, _| {
            model.begun = Some((spec.clone(), layout.clone()));
            model.moved_to.push(layout);
        });
        let result = self.client.migrate(&self.by_number(file), &spec, options, &mut go_on).await;
        self.moved(id, file, &result);
    }

    /// Moves a file to parts by class, as far as room goes.
    async fn move_by_class(&mut self) {
        let file = self.handles[self.parter.below(self.handles.len() as u64) as usize].file.file();
        let spec = self.some_classes();
        let (id, result) = self.move_by(file, &spec).await;
        self.moved(id, file, &result);
    }

    async fn move_by(&self, file: FileId, spec: &LayoutSpec) -> (u32, Result<MoveOutcome, Error>) {
        let id = self.begins(|| format!("move file {file} to {spec:?}"));
        self.judge.hit("op: move by class");
        self.judge.file(file, |model, _| model.moved_by.extend(spec.by_class.clone()));
        let options = MoveOptions::default();
        (id, self.client.migrate(&self.by_number(file), spec, options, &mut |_| true).await)
    }

    /// Moves a file by one wish again and again while everything is quiet: that comes to an end, and soon.
    pub async fn move_until_done(&self, file: FileId, spec: &LayoutSpec) -> Result<(), Error> {
        for round in 0..MOVES_MAX {
            let (id, result) = self.move_by(file, spec).await;
            self.ends(id, &result);
            if result? == MoveOutcome::Already {
                self.judge.hit(if round > 1 { "move: in several steps" } else { "move: until done" });
                return Ok(());
            }
            // The room of what it had is given back.
            self.client.env().sleep(Nanos::from_s(5)).await;
        }
        let what = format!("file {file} is moved by {spec:?} for the {MOVES_MAX}th time");
        self.judge.violated("moves by one wish come to an end", what);
        Ok(())
    }

    /// What came of a move.
    fn moved(&self, id: u32, file: FileId, result: &Result<MoveOutcome, Error>) {
        self.judge.ends(id, || format!("{result:?}"));
        match result {
            Ok(MoveOutcome::Moved(report)) => {
                self.judge.hit("move: done");
                if report.rounds > 1 {
                    self.judge.hit("move: more than one round");
                }
                if report.kept > ByteLen::ZERO {
                    self.judge.hit("move: taken up again");
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
                if self.cluster.plan.faults.contains(&Fault::FullDisk) || self.cluster.plan.parts() {
                    legal.push(libc::ENOSPC);
                }
                if self.cluster.plan.faults.contains(&Fault::DiskErrors) {
                    legal.push(libc::EIO);
                }
                if self.judge.file(file, |model, _| model.lost_power_ever()) {
                    legal.push(libc::EIO);
                }
                self.judge.excused(error, &legal);
            }
        }
    }

    /// Gives up what movers have left of a file's moves.
    pub async fn forget_move(&self, file: FileId) -> Result<(), Error> {
        self.client.forget_move(&self.by_number(file)).await
    }
}
