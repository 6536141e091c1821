//! Which layout a new file gets, and how wishes about it are checked.

use super::closed::{Closed, Reason};
use super::fault::{Fault, Outcome};
use std::num::NonZeroU16;
use weft_core::parts::RoomLeft;
use weft_core::{
    ByteLen, Candidate, ClassFilter, ClassLayout, Component, Factor, FileId, FileOffset, Layout, Placement,
    PlacementError, Start, Strip, TargetId,
};
use weft_store::metadata::LayoutChoice;
use weft_wire::meta::LayoutSpec;
use weft_wire::{ClusterMap, Errno};

/// Number of consecutive file ids after which the rotation of new files over the targets repeats.
const ROTATED_IDS: u64 = 1 << 16;

/// The id by which `file` is placed. Ids grow with the clock from start to start; from file to file the low bits count.
pub fn placed_as(file: FileId) -> FileId {
    FileId(file.0 % ROTATED_IDS)
}

/// A target and its stripe size.
type Strips = (TargetId, ByteLen);

/// The targets of the cluster and its default.
#[derive(Clone, Debug)]
pub(super) struct Layouts {
    cluster: ClusterMap,
    default: Placement,
}

impl Layouts {
    pub(super) fn new(cluster: ClusterMap, default: Placement) -> Self {
        Self { cluster, default }
    }

    /// Refuses wishes that no file could get.
    pub(super) fn check(&self, wish: &Wish) -> Outcome<()> {
        for class in wish.by_class.iter().flat_map(ClassLayout::classes) {
            self.require_class(class)?;
        }
        self.choose(wish, None, None, (&RoomLeft::new(), &Closed::default()), FileId(0)).map(drop)
    }

    /// The layout of `file`: what `wish` leaves open is decided by the rule, then by the directory's default, then by the
    /// cluster. Targets of `left` take no more than that of parts by class that have an end. Closed targets take nothing,
    /// unless the wish names targets one by one.
    pub(super) fn choose(
        &self,
        wish: &Wish,
        rule: Option<&Wish>,
        directory: Option<&LayoutChoice>,
        (left, closed): (&RoomLeft, &Closed),
        file: FileId,
    ) -> Outcome<Layout> {
        let file = placed_as(file);
        let candidates = self.cluster.candidates();
        let open: Vec<Candidate<'_>> =
            candidates.iter().filter(|candidate| !closed.has(candidate.target)).copied().collect();
        // Blames closed targets where they are the cause; `of` are the classes that the file may use, `None` is all.
        let failed = |error: PlacementError, of: Option<&[&str]>| match &error {
            PlacementError::NoTarget { admitted } => {
                let admits = |found: &Candidate<'_>| of.is_none_or(|classes| classes.contains(&found.class));
                closed.refusal(&candidates, admits, admitted).unwrap_or_else(|| invalid(error))
            }
            PlacementError::Layout(_) => invalid(error),
        };
        if !wish.choice.tails.is_empty() && wish.choice.strips.is_none() {
            return Err(Fault::new(Errno::EINVAL, "a tail needs the strips that it follows"));
        }
        let directory = directory.map(|choice| Wish { choice: choice.clone(), by_class: None });
        let below = rule.into_iter().chain(&directory);
        let Wish { choice: wish, by_class } = below.fold(wish.clone(), Wish::over);
        if let Some(strips) = &wish.strips {
            return self.exactly(strips, &wish.tails, closed);
        }
        if let Some(by_class) = by_class {
            let placed = by_class.place(&open, left, file);
            return placed.map_err(|error| failed(error, Some(&by_class.last_classes())));
        }
        let class = wish.class.as_ref();
        if let Some(class) = class {
            self.require_class(class)?;
        }
        let LayoutChoice { stripe_count: count, first, .. } = wish;
        let stripe_size = wish.stripe_size.unwrap_or(self.default.stripe_size);
        let factor = match count {
            None => self.default.factor,
            // As in Lustre, 0 and -1 mean all.
            Some(0) | Some(u32::MAX) => Factor::All,
            Some(count) => {
                Factor::AtMost(u16::try_from(count).ok().and_then(NonZeroU16::new).ok_or_else(|| {
                    Fault::new(Errno::EINVAL, format!("{count} targets are more than a file may have"))
                })?)
            }
        };
        let placement = Placement {
            stripe_size,
            factor: if first.is_some() { Factor::All } else { factor },
            class: class.map_or(self.default.class.clone(), |class| ClassFilter::Only(vec![class.clone()])),
            start: if first.is_some() { Start::First } else { self.default.start },
        };
        let classes: Option<Vec<&str>> = match &placement.class {
            ClassFilter::Any => None,
            ClassFilter::Only(classes) => Some(classes.iter().map(String::as_str).collect()),
        };
        let failed = |error| failed(error, classes.as_deref());
        let Some(first) = first else { return placement.choose(&open, file).map_err(failed) };
        // Numbers of targets do not depend on what is closed.
        let layout = placement.choose(&candidates, file).map_err(invalid)?;
        let mut targets: Vec<TargetId> = layout.objects().map(|(_, target)| target).collect();
        let first = first as usize;
        if first >= targets.len() {
            let detail = format!("first target {first}: there are only {} to choose from", targets.len());
            return Err(Fault::new(Errno::EINVAL, detail));
        }
        targets.rotate_left(first);
        targets.retain(|target| !closed.has(*target));
        if targets.is_empty() {
            return Err(failed(PlacementError::NoTarget { admitted: "of those asked for".into() }));
        }
        if let Factor::AtMost(count) = factor {
            targets.truncate(usize::from(count.get()));
        }
        Layout::striped(&targets, stripe_size).map_err(invalid)
    }

    /// These strips, and from some offsets on others.
    fn exactly(
        &self,
        strips: &[Strips],
        tails: &[(FileOffset, Vec<Strips>)],
        closed: &Closed,
    ) -> Outcome<Layout> {
        for (target, _) in strips.iter().chain(tails.iter().flat_map(|(_, strips)| strips)) {
            self.require_target(*target)?;
            if let Some(Reason::State(why)) = closed.0.get(target) {
                let detail = format!("{target} {why}, so it takes no new files: name another one");
                return Err(Fault::new(Errno::EINVAL, detail));
            }
        }
        let part = |start, end, strips: &[Strips]| Component {
            start,
            end,
            strips: strips.iter().map(|&(target, stripe_size)| Strip { target, stripe_size }).collect(),
        };
        let mut parts = Vec::with_capacity(tails.len() + 1);
        let (mut start, mut strips) = (FileOffset(0), strips);
        for (from, after) in tails {
            parts.push(part(start, Some(*from), strips));
            (start, strips) = (*from, after);
        }
        parts.push(part(start, None, strips));
        Layout::from_components(parts).map_err(invalid)
    }

    fn require_target(&self, target: TargetId) -> Outcome<()> {
        if self.cluster.server_of(target).is_some() {
            return Ok(());
        }
        let known: Vec<String> = self.cluster.targets.iter().map(|entry| entry.id.0.to_string()).collect();
        Err(Fault::new(Errno::EINVAL, format!("no {target} here; there are {}", known.join(", "))))
    }

    fn require_class(&self, class: &str) -> Outcome<()> {
        let mut known: Vec<&str> = self.cluster.targets.iter().map(|entry| entry.class.as_str()).collect();
        known.sort_unstable();
        known.dedup();
        if known.contains(&class) {
            return Ok(());
        }
        Err(Fault::new(
            Errno::EINVAL,
            format!("no target of class {class:?}; there are {}", known.join(", ")),
        ))
    }
}

fn invalid(error: impl std::fmt::Display) -> Fault {
    Fault::new(Errno::EINVAL, error.to_string())
}

/// What somebody wants of a layout.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Wish {
    pub choice: LayoutChoice,
    /// Goes before the choice but for its strips.
    pub by_class: Option<ClassLayout>,
}

impl Wish {
    /// Whether it leaves all open.
    pub(super) fn is_open(&self) -> bool {
        *self == Self::default()
    }

    /// This, and where it leaves something open `below`. Strips and parts below give way to any wish that speaks of the same
    /// things.
    fn over(self, below: &Self) -> Self {
        if self.choice.strips.is_some() || self.by_class.is_some() {
            return self;
        }
        if self.is_open() {
            return below.clone();
        }
        let LayoutChoice { stripe_size, stripe_count, first, class, .. } = self.choice;
        let choice = LayoutChoice {
            stripe_size: stripe_size.or(below.choice.stripe_size),
            stripe_count: stripe_count.or(below.choice.stripe_count),
            first: first.or(below.choice.first),
            class: class.or_else(|| below.choice.class.clone()),
            ..LayoutChoice::default()
        };
        Self { choice, by_class: None }
    }
}

impl From<&LayoutSpec> for Wish {
    fn from(spec: &LayoutSpec) -> Self {
        let choice = LayoutChoice {
            stripe_size: spec.stripe_size,
            stripe_count: spec.stripe_count,
            first: spec.first,
            class: spec.class.clone(),
            strips: spec.strips.clone(),
            tails: spec.tails.clone(),
        };
        Self { choice, by_class: spec.by_class.clone() }
    }
}

pub(super) fn spec(wish: &Wish) -> LayoutSpec {
    let Wish { choice, by_class } = wish.clone();
    LayoutSpec {
        stripe_size: choice.stripe_size,
        stripe_count: choice.stripe_count,
        first: choice.first,
        class: choice.class,
        strips: choice.strips,
        tails: choice.tails,
        by_class,
    }
}

/// A layout in one line, for people: `0-67108864: 3x4096 4x65536; 67108864-: 0x1048576`.
pub(super) fn describe(layout: &Layout) -> String {
    let component = |c: &weft_core::Component| {
        let strips: Vec<String> =
            c.strips.iter().map(|strip| format!("{}x{}", strip.target.0, strip.stripe_size)).collect();
        let end = c.end.map_or(String::new(), |end| end.to_string());
        format!("{}-{end}: {}", c.start, strips.join(" "))
    };
    layout.components().iter().map(component).collect::<Vec<_>>().join("; ")
}

/// Stripe size (of the first column) and number of columns of the first component.
pub(super) fn stripes(layout: &Layout) -> (ByteLen, usize) {
    let strips = &layout.components()[0].strips;
    (strips[0].stripe_size, strips.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::closed::Down;
    use std::sync::Arc;
    use weft_core::{ClassPart, ServerId};
    use weft_wire::cluster::TargetEntry;

    fn layouts() -> Layouts {
        let target = |id, server, class: &str| TargetEntry {
            id: TargetId(id),
            server: ServerId(server),
            class: class.into(),
        };
        let targets =
            vec![target(0, 0, "hdd"), target(1, 1, "hdd"), target(2, 2, "ssd"), target(3, 3, "ssd")];
        let cluster = ClusterMap { name: "c".into(), servers: vec![], targets, metadata: ServerId(0) };
        Layouts::new(cluster, Placement::default())
    }

    fn of(choice: &LayoutChoice) -> Wish {
        Wish { choice: choice.clone(), by_class: None }
    }

    fn targets(layout: &Layout) -> Vec<u32> {
        layout.objects().map(|(_, target)| target.0).collect()
    }

    #[test]
    fn the_wish_goes_before_the_directory_and_that_before_the_cluster() {
        let layouts = layouts();
        let directory = LayoutChoice {
            class: Some("ssd".into()),
            stripe_size: Some(ByteLen(4096)),
            ..Default::default()
        };
        let wish = LayoutChoice { stripe_size: Some(ByteLen(65536)), first: Some(1), ..Default::default() };
        let layout = layouts
            .choose(&of(&wish), None, Some(&directory), (&RoomLeft::new(), &Closed::default()), FileId(9))
            .expect("fits");
        assert_eq!((targets(&layout), stripes(&layout).0), (vec![3, 2], ByteLen(65536)));
        let one = LayoutChoice { stripe_count: Some(1), first: Some(2), ..Default::default() };
        assert_eq!(
            targets(
                &layouts
                    .choose(&of(&one), None, None, (&RoomLeft::new(), &Closed::default()), FileId(9))
                    .expect("fits")
            ),
            [2]
        );
    }

    #[test]
    fn a_rule_stands_between_the_wish_and_the_directory() {
        let layouts = layouts();
        let choose = |wish: &Wish, rule: &Wish, directory: &LayoutChoice| {
            layouts
                .choose(wish, Some(rule), Some(directory), (&RoomLeft::new(), &Closed::default()), FileId(9))
                .expect("fits")
        };
        let directory = LayoutChoice { class: Some("ssd".into()), ..Default::default() };
        let count = of(&LayoutChoice { stripe_count: Some(1), ..Default::default() });
        let one = choose(&Wish::default(), &count, &directory);
        assert_eq!(targets(&one).len(), 1);
        assert!(targets(&one)[0] >= 2, "the class is left to the directory");
        let part = |end, class: &str, size| ClassPart { end, stripes: vec![(class.into(), ByteLen(size))] };
        let by_class = ClassLayout::new(vec![part(Some(FileOffset(100)), "ssd", 10), part(None, "hdd", 20)])
            .expect("fits");
        let by_class = Wish { choice: LayoutChoice::default(), by_class: Some(by_class) };
        let placed = choose(&Wish::default(), &by_class, &directory);
        assert_eq!(describe(&placed), "0-100: 3x10 2x10; 100-: 1x20 0x20");
        assert_eq!(choose(&by_class, &count, &directory), placed);
        // A wish that speaks of stripes wins over all of it.
        let wish = of(&LayoutChoice { stripe_size: Some(ByteLen(4096)), ..Default::default() });
        assert_eq!(describe(&choose(&wish, &by_class, &directory)), "0-: 3x4096 2x4096");
        let exactly = Wish::from(&LayoutSpec::exactly(&placed));
        assert_eq!(choose(&exactly, &count, &directory), placed);
        assert!(layouts.check(&by_class).is_ok() && spec(&by_class).by_class.is_some());
        let unknown = ClassLayout::new(vec![part(Some(FileOffset(9)), "tape", 1), part(None, "hdd", 1)]);
        let unknown = Wish { by_class: unknown.ok(), ..Wish::default() };
        assert!(layouts.check(&unknown).is_err());
    }

    #[test]
    fn full_targets_get_nothing_new_unless_they_are_named() {
        let layouts = layouts();
        let full = |targets: &[u32]| {
            let reason = Reason::Full { free: ByteLen(5), reserve: ByteLen(100) };
            Closed(targets.iter().map(|id| (TargetId(*id), reason.clone())).collect())
        };
        let choose = |wish: &Wish, full: &Closed| {
            layouts
                .choose(wish, None, None, (&RoomLeft::new(), full), FileId(9))
                .map(|layout| targets(&layout))
        };
        let refused = |wish: &Wish, full: &Closed| match choose(wish, full) {
            Err(Fault::Failed(error)) => {
                assert_eq!(error.errno, Errno::ENOSPC);
                error.detail
            }
            other => panic!("{other:?}"),
        };
        let any = Wish::default();
        let mut found = choose(&any, &full(&[1, 2])).expect("two are left");
        found.sort_unstable();
        assert_eq!(found, [0, 3]);
        let ssds = of(&LayoutChoice { class: Some("ssd".into()), ..Default::default() });
        assert_eq!(choose(&ssds, &full(&[1, 2])).expect("one is left"), [3]);
        let told = refused(&ssds, &full(&[2, 3]));
        assert!(
            told.contains("of class ssd") && told.contains("target 3 has 5 bytes free and keeps 100"),
            "{told}"
        );
        assert!(told.contains("lower their reserve in the cluster file"), "{told}");
        assert!(refused(&any, &full(&[0, 1, 2, 3])).contains("of any class"));
        // A number among targets means the same one whatever is full.
        let first = of(&LayoutChoice { first: Some(2), stripe_count: Some(1), ..Default::default() });
        let second = of(&LayoutChoice { first: Some(1), stripe_count: Some(2), ..Default::default() });
        let all = choose(
            &Wish { choice: LayoutChoice { first: Some(0), ..Default::default() }, by_class: None },
            &full(&[]),
        );
        let all = all.expect("four");
        assert_eq!(choose(&first, &full(&[])).expect("fits"), [all[2]]);
        assert_eq!(choose(&first, &full(&[all[2]])).expect("the next one"), [all[3]]);
        assert_eq!(choose(&second, &full(&[all[2]])).expect("fits"), [all[1], all[3]]);
        // Parts without targets are left out.
        let part = |end, class: &str, size| ClassPart { end, stripes: vec![(class.into(), ByteLen(size))] };
        let by_class = |last: &str| Wish {
            choice: LayoutChoice::default(),
            by_class: ClassLayout::new(vec![part(Some(FileOffset(100)), "ssd", 10), part(None, last, 20)])
                .ok(),
        };
        let placed = |full: &Closed| {
            let left = RoomLeft::new();
            layouts
                .choose(&by_class("hdd"), None, None, (&left, full), FileId(9))
                .map(|layout| describe(&layout))
        };
        assert_eq!(placed(&full(&[3])).expect("fits"), "0-100: 2x10; 100-: 1x20 0x20");
        assert_eq!(placed(&full(&[2, 3, 1])).expect("fits"), "0-: 0x20");
        assert!(refused(&by_class("hdd"), &full(&[0, 1])).contains("of class hdd"));
        // Who names a target gets it, and rules may be set while it is full.
        let named = LayoutChoice { strips: Some(vec![(TargetId(1), ByteLen(64))]), ..Default::default() };
        assert_eq!(choose(&of(&named), &full(&[1])).expect("named"), [1]);
    }

    #[test]
    fn targets_of_servers_that_are_down_get_nothing_new_unless_they_are_named() {
        let layouts = layouts();
        let down = Arc::new(Down { server: "s9".into(), cause: "refused".into() });
        let closed = |down_targets: &[u32], full: &[u32]| {
            let of_down = down_targets.iter().map(|id| (TargetId(*id), Reason::Down(Arc::clone(&down))));
            let reason = Reason::Full { free: ByteLen(5), reserve: ByteLen(100) };
            Closed(of_down.chain(full.iter().map(|id| (TargetId(*id), reason.clone()))).collect())
        };
        let choose = |wish: &Wish, closed: &Closed| {
            let chosen = layouts.choose(wish, None, None, (&RoomLeft::new(), closed), FileId(9));
            chosen.map(|layout| targets(&layout))
        };
        let refused = |wish: &Wish, closed: &Closed| match choose(wish, closed) {
            Err(Fault::Failed(error)) => (error.errno, error.detail),
            other => panic!("{other:?}"),
        };
        let of_class = |class: &str| of(&LayoutChoice { class: Some(class.into()), ..Default::default() });
        assert_eq!(choose(&of_class("ssd"), &closed(&[2], &[])).expect("one is left"), [3]);
        let (errno, told) = refused(&of_class("ssd"), &closed(&[2], &[3, 0]));
        assert_eq!(errno, Errno::EIO);
        assert!(
            told.contains("of class ssd") && told.contains("target 2: server s9 does not answer: refused"),
            "{told}"
        );
        assert!(told.contains("weft serve") && !told.contains("target 0"), "{told}");
        // The class that is full says so, whatever another class lacks.
        assert_eq!(refused(&of_class("ssd"), &closed(&[0, 1], &[2, 3])).0, Errno::ENOSPC);
        assert_eq!(refused(&Wish::default(), &closed(&[0, 1], &[2, 3])).0, Errno::EIO);
        let named = LayoutChoice { strips: Some(vec![(TargetId(1), ByteLen(64))]), ..Default::default() };
        assert_eq!(choose(&of(&named), &closed(&[0, 1, 2, 3], &[])).expect("named"), [1]);
    }

    #[test]
    fn tails_follow_strips() {
        let strips = vec![(TargetId(0), ByteLen(64)), (TargetId(2), ByteLen(64))];
        let tails = vec![
            (FileOffset(1024), vec![(TargetId(0), ByteLen(128)), (TargetId(1), ByteLen(128))]),
            (FileOffset(4096), vec![(TargetId(3), ByteLen(32))]),
        ];
        let choice = LayoutChoice { strips: Some(strips), tails, ..Default::default() };
        let layout = layouts()
            .choose(&of(&choice), None, None, (&RoomLeft::new(), &Closed::default()), FileId(9))
            .expect("fits");
        assert_eq!(describe(&layout), "0-1024: 0x64 2x64; 1024-4096: 0x128 1x128; 4096-: 3x32");
        let mut falling = choice.clone();
        falling.tails.reverse();
        assert!(layouts().check(&of(&falling)).is_err());
        let alone = LayoutChoice { strips: None, ..choice.clone() };
        assert!(layouts().check(&of(&alone)).is_err());
        let nowhere = LayoutChoice { tails: vec![(FileOffset(1024), vec![])], ..choice.clone() };
        assert!(layouts().check(&of(&nowhere)).is_err());
        let strange = vec![(FileOffset(1), vec![(TargetId(9), ByteLen(1))])];
        let unknown = LayoutChoice { tails: strange, ..choice };
        assert!(layouts().check(&of(&unknown)).is_err());
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_can() {
        let refused = |choice: LayoutChoice| match layouts().check(&of(&choice)) {
            Err(Fault::Failed(error)) => {
                assert_eq!(error.errno, Errno::EINVAL);
                error.detail
            }
            other => panic!("{other:?}"),
        };
        let class = refused(LayoutChoice { class: Some("tape".into()), ..Default::default() });
        assert!(class.contains("hdd, ssd"), "{class}");
        let target =
            refused(LayoutChoice { strips: Some(vec![(TargetId(7), ByteLen(1))]), ..Default::default() });
        assert!(target.contains("0, 1, 2, 3"), "{target}");
        refused(LayoutChoice { stripe_size: Some(ByteLen(0)), ..Default::default() });
        refused(LayoutChoice { first: Some(4), ..Default::default() });
    }
}
