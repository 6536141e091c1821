//! Choice of the layout of a new file, and validation of layout requests.

use super::closed_targets::{ClosedTargets, Reason};
use super::cluster_map::SharedMap;
use super::fault::{Fault, Outcome};
use std::num::NonZeroU16;
use weft_core::parts::SpaceLeft;
use weft_core::{
    ByteLen, Candidate, ClassFilter, ClassLayout, Component, Factor, FileId, FileOffset, Layout, Placement,
    PlacementError, Start, Strip, TargetId,
};
use weft_store::metadata::LayoutChoice;
use weft_wire::Errno;
use weft_wire::meta::LayoutSpec;

/// Number of consecutive file ids after which the rotation of new files over the targets repeats.
const ROTATED_IDS: u64 = 1 << 16;

/// The id used to place `file`. File ids grow with the clock from start to start, and only their low bits count up from
/// file to file.
pub fn placed_as(file: FileId) -> FileId {
    FileId(file.0 % ROTATED_IDS)
}

/// A target and its stripe size.
type Strips = (TargetId, ByteLen);

/// The targets of the cluster and its default placement.
#[derive(Clone, Debug)]
pub(super) struct Layouts {
    map: SharedMap,
    default: Placement,
}

impl Layouts {
    pub(super) fn new(map: SharedMap, default: Placement) -> Self {
        Self { map, default }
    }

    /// Refuses requests that no file could satisfy.
    pub(super) fn check(&self, request: &LayoutRequest) -> Outcome<()> {
        for class in request.by_class.iter().flat_map(ClassLayout::classes) {
            self.require_class(class)?;
        }
        self.choose(request, None, None, (&SpaceLeft::new(), &ClosedTargets::default()), FileId(0)).map(drop)
    }

    /// Layout of `file`. The rule, the directory's default and the cluster's default, in this order, fill in what
    /// `request` leaves open.
    ///
    /// Parts by class that have an end use no more than the space `left`. Closed targets take nothing, unless the
    /// request names targets one by one.
    pub(super) fn choose(
        &self,
        request: &LayoutRequest,
        rule: Option<&LayoutRequest>,
        directory: Option<&LayoutChoice>,
        (left, closed): (&SpaceLeft, &ClosedTargets),
        file: FileId,
    ) -> Outcome<Layout> {
        let file = placed_as(file);
        let map = self.map.get();
        let candidates = map.candidates();
        let open: Vec<Candidate<'_>> =
            candidates.iter().filter(|candidate| !closed.has(candidate.target)).copied().collect();
        // Blames closed targets if they are the cause. `of` are the classes that the file may use; `None` means all.
        let failed = |error: PlacementError, of: Option<&[&str]>| match &error {
            PlacementError::NoTarget { admitted } => {
                let admits = |found: &Candidate<'_>| of.is_none_or(|classes| classes.contains(&found.class));
                closed.refusal(&candidates, admits, admitted).unwrap_or_else(|| invalid(error))
            }
            PlacementError::Layout(_) => invalid(error),
        };
        if !request.choice.tails.is_empty() && request.choice.strips.is_none() {
            return Err(Fault::new(Errno::EINVAL, "a tail needs the strips that it follows"));
        }
        let directory = directory.map(|choice| LayoutRequest { choice: choice.clone(), by_class: None });
        let below = rule.into_iter().chain(&directory);
        let LayoutRequest { choice: request, by_class } = below.fold(request.clone(), LayoutRequest::over);
        if let Some(strips) = &request.strips {
            return self.explicit_layout(strips, &request.tails, closed);
        }
        if let Some(by_class) = by_class {
            let placed = by_class.place(&open, left, file);
            return placed.map_err(|error| failed(error, Some(&by_class.last_classes())));
        }
        let class = request.class.as_ref();
        if let Some(class) = class {
            self.require_class(class)?;
        }
        let LayoutChoice { stripe_count: count, first, .. } = request;
        let stripe_size = request.stripe_size.unwrap_or(self.default.stripe_size);
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
        // The numbering of targets does not depend on which are closed.
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

    /// Layout from explicit strips, with other strips from some offsets on.
    fn explicit_layout(
        &self,
        strips: &[Strips],
        tails: &[(FileOffset, Vec<Strips>)],
        closed: &ClosedTargets,
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
        let map = self.map.get();
        if map.server_of(target).is_some() {
            return Ok(());
        }
        let known: Vec<String> = map.targets.iter().map(|entry| entry.id.0.to_string()).collect();
        Err(Fault::new(Errno::EINVAL, format!("no {target} here; there are {}", known.join(", "))))
    }

    fn require_class(&self, class: &str) -> Outcome<()> {
        let map = self.map.get();
        let mut known: Vec<&str> = map.targets.iter().map(|entry| entry.class.as_str()).collect();
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

/// A request for a layout, in which anything may be left open.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct LayoutRequest {
    pub choice: LayoutChoice,
    /// Overrides the choice, except for explicit strips.
    pub by_class: Option<ClassLayout>,
}

impl LayoutRequest {
    /// Whether everything is left open.
    pub(super) fn is_open(&self) -> bool {
        *self == Self::default()
    }

    /// Fills open parts of this request from `below`. Strips and classes of `below` give way to any request that
    /// concerns them.
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

impl From<&LayoutSpec> for LayoutRequest {
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

/// The message of a request. It has no compression, on which layouts do not depend.
pub(super) fn spec(request: &LayoutRequest) -> LayoutSpec {
    let LayoutRequest { choice, by_class } = request.clone();
    LayoutSpec {
        stripe_size: choice.stripe_size,
        stripe_count: choice.stripe_count,
        first: choice.first,
        class: choice.class,
        strips: choice.strips,
        tails: choice.tails,
        by_class,
        compression: None,
    }
}

/// A layout in one line: `0-67108864: 3x4096 4x65536; 67108864-: 0x1048576`.
pub(super) fn describe(layout: &Layout) -> String {
    let component = |c: &weft_core::Component| {
        let strips: Vec<String> =
            c.strips.iter().map(|strip| format!("{}x{}", strip.target.0, strip.stripe_size)).collect();
        let end = c.end.map_or(String::new(), |end| end.to_string());
        format!("{}-{end}: {}", c.start, strips.join(" "))
    };
    layout.components().iter().map(component).collect::<Vec<_>>().join("; ")
}

/// Stripe size of the first column, and number of columns, of the first component.
pub(super) fn stripes(layout: &Layout) -> (ByteLen, usize) {
    let strips = &layout.components()[0].strips;
    (strips[0].stripe_size, strips.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::closed_targets::DownServer;
    use std::sync::Arc;
    use weft_core::{ClassPart, ServerId};
    use weft_wire::ClusterMap;
    use weft_wire::cluster::TargetEntry;

    fn layouts() -> Layouts {
        let target = |id, server, class: &str| TargetEntry {
            id: TargetId(id),
            server: ServerId(server),
            class: class.into(),
        };
        let targets =
            vec![target(0, 0, "hdd"), target(1, 1, "hdd"), target(2, 2, "ssd"), target(3, 3, "ssd")];
        let cluster = ClusterMap {
            domains: Vec::new(),
            name: "c".into(),
            version: 0,
            servers: vec![],
            targets,
            metadata: ServerId(0),
        };
        Layouts::new(SharedMap::new(cluster), Placement::default())
    }

    fn of(choice: &LayoutChoice) -> LayoutRequest {
        LayoutRequest { choice: choice.clone(), by_class: None }
    }

    fn targets(layout: &Layout) -> Vec<u32> {
        layout.objects().map(|(_, target)| target.0).collect()
    }

    #[test]
    fn the_request_overrides_the_directory_which_overrides_the_cluster() {
        let layouts = layouts();
        let directory = LayoutChoice {
            class: Some("ssd".into()),
            stripe_size: Some(ByteLen(4096)),
            ..Default::default()
        };
        let request =
            LayoutChoice { stripe_size: Some(ByteLen(65536)), first: Some(1), ..Default::default() };
        let layout = layouts
            .choose(
                &of(&request),
                None,
                Some(&directory),
                (&SpaceLeft::new(), &ClosedTargets::default()),
                FileId(9),
            )
            .expect("fits");
        assert_eq!((targets(&layout), stripes(&layout).0), (vec![3, 2], ByteLen(65536)));
        let one = LayoutChoice { stripe_count: Some(1), first: Some(2), ..Default::default() };
        assert_eq!(
            targets(
                &layouts
                    .choose(&of(&one), None, None, (&SpaceLeft::new(), &ClosedTargets::default()), FileId(9))
                    .expect("fits")
            ),
            [2]
        );
    }

    #[test]
    fn a_rule_is_between_the_request_and_the_directory() {
        let layouts = layouts();
        let choose = |request: &LayoutRequest, rule: &LayoutRequest, directory: &LayoutChoice| {
            layouts
                .choose(
                    request,
                    Some(rule),
                    Some(directory),
                    (&SpaceLeft::new(), &ClosedTargets::default()),
                    FileId(9),
                )
                .expect("fits")
        };
        let directory = LayoutChoice { class: Some("ssd".into()), ..Default::default() };
        let count = of(&LayoutChoice { stripe_count: Some(1), ..Default::default() });
        let one = choose(&LayoutRequest::default(), &count, &directory);
        assert_eq!(targets(&one).len(), 1);
        assert!(targets(&one)[0] >= 2, "the class is left to the directory");
        let part = |end, class: &str, size| ClassPart { end, stripes: vec![(class.into(), ByteLen(size))] };
        let by_class = ClassLayout::new(vec![part(Some(FileOffset(100)), "ssd", 10), part(None, "hdd", 20)])
            .expect("fits");
        let by_class = LayoutRequest { choice: LayoutChoice::default(), by_class: Some(by_class) };
        let placed = choose(&LayoutRequest::default(), &by_class, &directory);
        assert_eq!(describe(&placed), "0-100: 3x10 2x10; 100-: 1x20 0x20");
        assert_eq!(choose(&by_class, &count, &directory), placed);
        // A request that names a stripe size overrides all of it.
        let request = of(&LayoutChoice { stripe_size: Some(ByteLen(4096)), ..Default::default() });
        assert_eq!(describe(&choose(&request, &by_class, &directory)), "0-: 3x4096 2x4096");
        let explicit = LayoutRequest::from(&LayoutSpec::exactly(&placed));
        assert_eq!(choose(&explicit, &count, &directory), placed);
        assert!(layouts.check(&by_class).is_ok() && spec(&by_class).by_class.is_some());
        let unknown = ClassLayout::new(vec![part(Some(FileOffset(9)), "tape", 1), part(None, "hdd", 1)]);
        let unknown = LayoutRequest { by_class: unknown.ok(), ..LayoutRequest::default() };
        assert!(layouts.check(&unknown).is_err());
    }

    #[test]
    fn full_targets_get_nothing_new_unless_they_are_named() {
        let layouts = layouts();
        let full = |targets: &[u32]| {
            let reason = Reason::Full { free: ByteLen(5), reserve: ByteLen(100) };
            ClosedTargets(targets.iter().map(|id| (TargetId(*id), reason.clone())).collect())
        };
        let choose = |request: &LayoutRequest, full: &ClosedTargets| {
            layouts
                .choose(request, None, None, (&SpaceLeft::new(), full), FileId(9))
                .map(|layout| targets(&layout))
        };
        let refused = |request: &LayoutRequest, full: &ClosedTargets| match choose(request, full) {
            Err(Fault::Failed(error)) => {
                assert_eq!(error.errno, Errno::ENOSPC);
                error.detail
            }
            other => panic!("{other:?}"),
        };
        let any = LayoutRequest::default();
        let mut found = choose(&any, &full(&[1, 2])).expect("two are left");
        found.sort_unstable();
        assert_eq!(found, [0, 3]);
        let ssds = of(&LayoutChoice { class: Some("ssd".into()), ..Default::default() });
        assert_eq!(choose(&ssds, &full(&[1, 2])).expect("one is left"), [3]);
        let message = refused(&ssds, &full(&[2, 3]));
        assert!(
            message.contains("of class ssd") && message.contains("target 3 has 5 bytes free and keeps 100"),
            "{message}"
        );
        assert!(message.contains("lower their reserve in the cluster file"), "{message}");
        assert!(refused(&any, &full(&[0, 1, 2, 3])).contains("of any class"));
        // The number of a target in its list does not depend on which targets are full.
        let first = of(&LayoutChoice { first: Some(2), stripe_count: Some(1), ..Default::default() });
        let second = of(&LayoutChoice { first: Some(1), stripe_count: Some(2), ..Default::default() });
        let all = choose(
            &LayoutRequest { choice: LayoutChoice { first: Some(0), ..Default::default() }, by_class: None },
            &full(&[]),
        );
        let all = all.expect("four");
        assert_eq!(choose(&first, &full(&[])).expect("fits"), [all[2]]);
        assert_eq!(choose(&first, &full(&[all[2]])).expect("the next one"), [all[3]]);
        assert_eq!(choose(&second, &full(&[all[2]])).expect("fits"), [all[1], all[3]]);
        // Parts without targets are left out.
        let part = |end, class: &str, size| ClassPart { end, stripes: vec![(class.into(), ByteLen(size))] };
        let by_class = |last: &str| LayoutRequest {
            choice: LayoutChoice::default(),
            by_class: ClassLayout::new(vec![part(Some(FileOffset(100)), "ssd", 10), part(None, last, 20)])
                .ok(),
        };
        let placed = |full: &ClosedTargets| {
            let left = SpaceLeft::new();
            layouts
                .choose(&by_class("hdd"), None, None, (&left, full), FileId(9))
                .map(|layout| describe(&layout))
        };
        assert_eq!(placed(&full(&[3])).expect("fits"), "0-100: 2x10; 100-: 1x20 0x20");
        assert_eq!(placed(&full(&[2, 3, 1])).expect("fits"), "0-: 0x20");
        assert!(refused(&by_class("hdd"), &full(&[0, 1])).contains("of class hdd"));
        // A target that is named is used, and rules may name it, though it is full.
        let named = LayoutChoice { strips: Some(vec![(TargetId(1), ByteLen(64))]), ..Default::default() };
        assert_eq!(choose(&of(&named), &full(&[1])).expect("named"), [1]);
    }

    #[test]
    fn targets_of_servers_that_are_down_get_nothing_new_unless_they_are_named() {
        let layouts = layouts();
        let down = Arc::new(DownServer { server: "s9".into(), cause: "refused".into() });
        let closed = |down_targets: &[u32], full: &[u32]| {
            let of_down = down_targets.iter().map(|id| (TargetId(*id), Reason::Down(Arc::clone(&down))));
            let reason = Reason::Full { free: ByteLen(5), reserve: ByteLen(100) };
            ClosedTargets(of_down.chain(full.iter().map(|id| (TargetId(*id), reason.clone()))).collect())
        };
        let choose = |request: &LayoutRequest, closed: &ClosedTargets| {
            let chosen = layouts.choose(request, None, None, (&SpaceLeft::new(), closed), FileId(9));
            chosen.map(|layout| targets(&layout))
        };
        let refused = |request: &LayoutRequest, closed: &ClosedTargets| match choose(request, closed) {
            Err(Fault::Failed(error)) => (error.errno, error.detail),
            other => panic!("{other:?}"),
        };
        let of_class = |class: &str| of(&LayoutChoice { class: Some(class.into()), ..Default::default() });
        assert_eq!(choose(&of_class("ssd"), &closed(&[2], &[])).expect("one is left"), [3]);
        let (errno, message) = refused(&of_class("ssd"), &closed(&[2], &[3, 0]));
        assert_eq!(errno, Errno::EIO);
        assert!(
            message.contains("of class ssd")
                && message.contains("target 2: server s9 does not answer: refused"),
            "{message}"
        );
        assert!(message.contains("weft serve") && !message.contains("target 0"), "{message}");
        // The error is about the class that was requested, whatever another class lacks.
        assert_eq!(refused(&of_class("ssd"), &closed(&[0, 1], &[2, 3])).0, Errno::ENOSPC);
        assert_eq!(refused(&LayoutRequest::default(), &closed(&[0, 1], &[2, 3])).0, Errno::EIO);
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
            .choose(&of(&choice), None, None, (&SpaceLeft::new(), &ClosedTargets::default()), FileId(9))
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
    fn impossible_requests_are_refused_with_the_possible_choices() {
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
