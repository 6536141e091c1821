//! Layout rules of directories, and moves of files to other layouts.

use super::{Actor, dir_path, inode_path};
use crate::search::names::DIRS;
use crate::search::plan::{CompressionPlan, Fault, LIMITED_CLASS, UNLIMITED_CLASS, pick};
use weft_client::{Error, MoveOptions, MoveOutcome};
use weft_core::{
    ByteLen, ClassLayout, ClassPart, Component, CompressionSetting, FileId, FileOffset, Layout, Nanos,
    Placement, ServerId, Strip, TargetId,
};
use weft_env::Env;
use weft_wire::meta::{LayoutSpec, Rule, RuleRemoval};

/// Stripe sizes of files that follow rules are odd and at least this. No other stripe size is.
const RULED_FROM: u64 = 4097;

/// Settings that programs request in addition to the setting of the plan.
const OTHER_SETTINGS: [&str; 3] = ["lz4/32KiB", "zstd:5/16KiB", "auto"];

/// Maximum number of moves by one wish until nothing is left to move.
const MOVE_ROUNDS_MAX: u32 = 20;

/// Returns the stripe size that identifies a rule.
fn tag(rule: &LayoutSpec) -> Option<u64> {
    let of_parts = |parts: &ClassLayout| parts.parts()[0].stripes[0].1;
    rule.stripe_size.or_else(|| rule.by_class.as_ref().map(of_parts)).map(|size| size.0)
}

impl Actor {
    /// Now and then, a layout of two or three components, the last one on unlimited targets.
    pub(super) fn draw_parts(&mut self) -> Option<LayoutSpec> {
        if !self.cluster.plan.parts() || self.parts_rng.below(2) == 0 {
            return None;
        }
        Some(self.draw_classes())
    }

    /// Draws components by class, with stripe sizes of the plan.
    pub fn draw_classes(&mut self) -> LayoutSpec {
        let [first, last] = [0; 2].map(|_| ByteLen(pick(&mut self.parts_rng, &self.cluster.plan.stripes)));
        self.parts_of(first, last)
    }

    fn parts_of(&mut self, first: ByteLen, last: ByteLen) -> LayoutSpec {
        let end = 1 + self.parts_rng.below(self.cluster.plan.span);
        let part = |end: Option<u64>, stripes: &[(&str, ByteLen)]| ClassPart {
            end: end.map(FileOffset),
            stripes: stripes.iter().map(|(class, size)| ((*class).to_owned(), *size)).collect(),
        };
        let mut parts =
            vec![part(Some(end), &[(LIMITED_CLASS, first)]), part(None, &[(UNLIMITED_CLASS, last)])];
        if self.parts_rng.below(3) == 0 {
            let to = end + 1 + self.parts_rng.below(self.cluster.plan.span);
            parts.insert(1, part(Some(to), &[(LIMITED_CLASS, first), (UNLIMITED_CLASS, last)]));
        }
        let by_class = ClassLayout::new(parts).expect("parts that rise");
        LayoutSpec { by_class: Some(by_class), ..LayoutSpec::default() }
    }

    /// Draws the compression of a new or moved file, if the cluster has compressed files; `None` to request none.
    pub(super) fn draw_compression(&mut self) -> Option<CompressionSetting> {
        let CompressionPlan { setting, .. } = self.cluster.plan.compression?;
        let on = CompressionSetting::On;
        match self.compression_rng.below(8) {
            0..4 => None,
            4..6 => Some(on(setting)),
            6 => Some(CompressionSetting::Off),
            _ => Some(on(pick(&mut self.compression_rng, &OTHER_SETTINGS).parse().expect("a setting"))),
        }
    }

    /// Queries the space reservations: layouts together must not reserve more than the capacity.
    pub(super) async fn query_capacity(&mut self) {
        let id = self.begins(|| "query capacity".into());
        self.judge.hit("op: query capacity");
        let result = self.client.status(ServerId(0)).await;
        self.ends(id, &result);
        match result {
            Ok(status) => {
                let reservations =
                    status.metadata.map(|metadata| metadata.space_reservations).unwrap_or_default();
                for reservation in reservations {
                    if reservation.reserved == reservation.capacity {
                        self.judge.hit("parts: no capacity left");
                    }
                    // Unfinished copies of inline files count until they are removed.
                    let may_exceed = self.cluster.plan.inline_max > 0;
                    if reservation.reserved > reservation.capacity && !may_exceed {
                        self.judge.violated(
                            "layouts reserve no more than the capacity",
                            format!("{reservation:?}"),
                        );
                    }
                }
            }
            Err(error) => {
                self.judge.check_excuse(&error, &[]);
            }
        }
    }

    /// A file was created whose layout the rules decide.
    pub(super) fn created_by_rule(&self, id: u32, dir: u8, began: u64, layout: &Layout) {
        let stripe = layout.components()[0].strips[0].stripe_size.0;
        let default = Placement::DEFAULT_STRIPE_SIZE.0;
        self.judge.hit(if stripe == default { "rules: a file without one" } else { "rules: a file by one" });
        let may_be = self.judge.now(|state, _| state.rules.stripes(dir, began, default));
        if !may_be.contains(&stripe) {
            let what = format!("#{id} made a file with stripes of {stripe} bytes, of {may_be:?}");
            self.judge.violated("new files follow the rule of their directory", what);
        }
    }

    /// Changes or queries the rule of a directory.
    pub(super) async fn rule(&mut self) {
        let dir = self.rules_rng.below(u64::from(DIRS)) as u8;
        let at = inode_path(&dir_path(dir));
        let result = if self.rules_rng.below(4) == 0 {
            self.judge.hit("op: query rules");
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
                    let what = format!("#{id} got {value:?}, of {may_be:?}");
                    self.judge.violated("rules of directories are the latest ones", what);
                }
            })
        } else {
            self.judge.hit("op: change rules");
            // No other rule has this stripe size, nor has the default.
            let stripe = (self.rules_rng.below(4) > 0).then(|| RULED_FROM + 2 * u64::from(self.judge.id()));
            let layout = match stripe.map(ByteLen) {
                Some(stripe) if self.cluster.plan.parts() && self.parts_rng.below(2) == 0 => {
                    self.parts_of(stripe, stripe)
                }
                stripe_size => LayoutSpec { stripe_size, ..LayoutSpec::default() },
            };
            let layout = LayoutSpec { compression: self.draw_compression(), ..layout };
            let rule = |_| Rule { pattern: "**".parse().expect("a pattern"), layout: layout.clone() };
            let forget = if self.rules_rng.below(2) == 0 || stripe.is_none() {
                RuleRemoval::All
            } else {
                RuleRemoval::Replaced
            };
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
            self.judge.check_excuse(&error, if is_full { &[libc::ENOSPC] } else { &[] });
        }
    }

    /// Records the outcome of a change of a directory's rules.
    pub(super) fn rule_written<T>(&self, id: u32, result: &Result<T, Error>) {
        self.judge.now(|state, now| match result {
            Ok(_) => state.rules.done(id, now),
            Err(error) if [libc::ENOENT, libc::EEXIST, libc::ENOTEMPTY].contains(&error.errno()) => {
                state.rules.refused(id);
            }
            // The outcome is unknown.
            Err(_) => {}
        });
    }

    /// Moves a file to another layout while programs use it.
    pub(super) async fn move_file(&mut self) {
        if self.cluster.plan.parts() && self.parts_rng.below(4) == 0 {
            return self.move_by_class().await;
        }
        let file = self.handles[self.moves_rng.below(self.handles.len() as u64) as usize].file.file();
        let layout = self.draw_layout();
        if self.cluster.plan.stops {
            return self.move_in_pieces(file, layout).await;
        }
        let options = self.draw_move_options();
        // Now and then the move is asked to stop.
        let steps_max = pick(&mut self.moves_rng, &[u64::MAX, u64::MAX, 1]);
        let spec = LayoutSpec { compression: self.draw_compression(), ..LayoutSpec::exactly(&layout) };
        self.move_to(file, spec, layout, options, steps_max).await;
    }

    fn draw_move_options(&mut self) -> MoveOptions {
        MoveOptions {
            verify: self.moves_rng.below(2) == 0,
            last_step_bytes_max: pick(&mut self.moves_rng, &[None, Some(ByteLen(0)), Some(ByteLen(2000))]),
            ..MoveOptions::default()
        }
    }

    /// Draws some targets with one stripe size, perhaps in two components.
    fn draw_layout(&mut self) -> Layout {
        let count = self.cluster.plan.targets() as u32;
        let mut targets: Vec<u32> = (0..count).filter(|_| self.moves_rng.below(2) == 0).collect();
        if targets.is_empty() {
            targets.push(self.moves_rng.below(u64::from(count)) as u32);
        }
        let stripe = ByteLen(pick(&mut self.moves_rng, &self.cluster.plan.stripes));
        let strips = |targets: &[u32]| -> Vec<Strip> {
            targets.iter().map(|&target| Strip { target: TargetId(target), stripe_size: stripe }).collect()
        };
        let mut components = vec![Component { start: FileOffset(0), end: None, strips: strips(&targets) }];
        if self.cluster.plan.parts() && self.parts_rng.below(2) == 0 {
            // The first component on another target, perhaps one with limited capacity.
            let end = FileOffset(1 + self.parts_rng.below(self.cluster.plan.span));
            let first = strips(&[self.parts_rng.below(u64::from(count)) as u32]);
            components[0].start = end;
            components.insert(0, Component { start: FileOffset(0), end: Some(end), strips: first });
        }
        Layout::from_components(components).expect("components that cover a file")
    }

    /// Moves a file piece by piece. The file may be closed, the move may continue one that another program began, and
    /// it may stop at any piece and be resumed.
    async fn move_in_pieces(&mut self, mut file: FileId, layout: Layout) {
        match self.stops_rng.below(4) {
            0 => {
                let files: Vec<FileId> = self.judge.now(|state, _| state.files.keys().copied().collect());
                file = pick(&mut self.stops_rng, &files);
            }
            1 => {}
            // A move can only be resumed while no program writes to the file.
            _ => {
                while let Some(at) = self.handles.iter().position(|handle| handle.file.file() == file) {
                    self.close(at).await;
                }
            }
        }
        let compression = self.draw_compression();
        let (mut spec, mut to) = (LayoutSpec { compression, ..LayoutSpec::exactly(&layout) }, layout);
        for _ in 0..1 + self.stops_rng.below(3) {
            let begun = self.judge.file(file, |model, _| model.begun.clone());
            if let Some(begun) = begun.filter(|_| self.stops_rng.below(4) > 0) {
                (spec, to) = begun;
            }
            let span = self.cluster.plan.span;
            let piece = pick(&mut self.stops_rng, &[span / 50, 4096, 30_000]);
            let options = MoveOptions {
                rate_bytes_per_s: pick(
                    &mut self.stops_rng,
                    &[None, Some(ByteLen(span)), Some(ByteLen(20 * span))],
                ),
                piece_len: Some(ByteLen(piece)),
                checkpoint_interval: pick(&mut self.stops_rng, &[None, Some(ByteLen(2 * piece))]),
                ..self.draw_move_options()
            };
            let steps_max = match self.stops_rng.below(3) {
                0 => u64::MAX,
                _ => 1 + self.stops_rng.below(20),
            };
            self.move_to(file, spec.clone(), to.clone(), options, steps_max).await;
            let pause = self.stops_rng.below(self.cluster.plan.pause.0 + 1);
            self.client.env().sleep(Nanos(pause)).await;
        }
    }

    /// Moves a file to `layout`, as `spec` requests it, for a limited number of steps, and records the outcome.
    async fn move_to(
        &mut self,
        file: FileId,
        spec: LayoutSpec,
        layout: Layout,
        options: MoveOptions,
        mut steps_max: u64,
    ) {
        let mut go_on = |_| {
            steps_max = steps_max.saturating_sub(1);
            steps_max > 0
        };
        let id =
            self.begins(|| format!("move file {file} to {layout:?}, {:?}, {options:?}", spec.compression));
        self.judge.hit("op: move");
        if spec.compression.is_some() {
            self.judge.hit("op: move with a compression setting");
        }
        // From here on its datafiles may be there, whatever the reply.
        self.judge.file(file, |model, _| {
            model.begun = Some((spec.clone(), layout.clone()));
            model.moved_to.push(layout);
        });
        let result = self.client.migrate(&self.by_number(file), &spec, options, &mut go_on).await;
        self.moved(id, file, &result);
    }

    /// Moves a file to components by class, as far as capacity allows.
    async fn move_by_class(&mut self) {
        let file = self.handles[self.parts_rng.below(self.handles.len() as u64) as usize].file.file();
        let spec = LayoutSpec { compression: self.draw_compression(), ..self.draw_classes() };
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

    /// Repeats a move by one wish, without faults, until nothing is left to move. That must take few rounds.
    pub async fn move_until_done(&self, file: FileId, spec: &LayoutSpec) -> Result<(), Error> {
        for round in 0..MOVE_ROUNDS_MAX {
            let (id, result) = self.move_by(file, spec).await;
            self.ends(id, &result);
            if result? == MoveOutcome::Already {
                self.judge.hit(if round > 1 { "move: in several steps" } else { "move: until done" });
                return Ok(());
            }
            // The capacity that the old layout had reserved is released.
            self.client.env().sleep(Nanos::from_s(5)).await;
        }
        let what = format!("file {file} is moved by {spec:?} for the {MOVE_ROUNDS_MAX}th time");
        self.judge.violated("moves by one wish come to an end", what);
        Ok(())
    }

    /// Records the outcome of a move.
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
                let legal = self.legal_errors_of_copies(file);
                self.judge.check_excuse(error, &legal);
            }
        }
    }

    /// Error numbers of a move, or of work on a replica, that are no broken promise.
    pub(super) fn legal_errors_of_copies(&self, file: FileId) -> Vec<i32> {
        // Another program does the same, or the file was removed, or an outage closed it.
        let mut legal = vec![libc::EBUSY, libc::ENOENT, libc::ESTALE, libc::EAGAIN];
        if self.judge.had_outage() {
            legal.push(libc::EBADF);
        }
        if self.cluster.plan.faults.contains(&Fault::FullDisk) || self.cluster.plan.parts() {
            legal.push(libc::ENOSPC);
        }
        if self.cluster.plan.faults.contains(&Fault::DiskErrors)
            || self.judge.file(file, |model, _| model.lost_power_ever())
        {
            legal.push(libc::EIO);
        }
        legal
    }

    /// Discards the state that interrupted moves have left of a file.
    pub async fn cancel_move(&self, file: FileId) -> Result<(), Error> {
        self.client.cancel_move(&self.by_number(file)).await
    }
}
