//! Which layout a new file gets, and how wishes about it are checked.

use super::fault::{Fault, Outcome};
use std::num::NonZeroU16;
use weft_core::{
    ByteLen, ClassFilter, Component, Factor, FileId, FileOffset, Layout, Placement, Start, Strip, TargetId,
};
use weft_store::metadata::LayoutChoice;
use weft_wire::meta::LayoutSpec;
use weft_wire::{ClusterMap, Errno};

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
    pub(super) fn check(&self, choice: &LayoutChoice) -> Outcome<()> {
        self.choose(choice, None, FileId(0)).map(drop)
    }

    /// The layout of `file`: what `wish` leaves open is decided by `directory`, then by the cluster.
    pub(super) fn choose(
        &self,
        wish: &LayoutChoice,
        directory: Option<&LayoutChoice>,
        file: FileId,
    ) -> Outcome<Layout> {
        let none = LayoutChoice::default();
        let directory = directory.unwrap_or(&none);
        // Strips from the directory give way to any wish that speaks of the same things.
        let plain = wish.stripe_size.is_none() && wish.stripe_count.is_none() && wish.class.is_none();
        let strips =
            wish.strips.as_ref().or(directory.strips.as_ref().filter(|_| plain && wish.first.is_none()));
        if let Some(strips) = strips {
            // Tails belong to the strips: all come from the wish, or all from the directory.
            let tails = if wish.strips.is_some() { &wish.tails } else { &directory.tails };
            return self.exactly(strips, tails);
        }
        if !wish.tails.is_empty() {
            return Err(Fault::new(Errno::EINVAL, "a tail needs the strips that it follows"));
        }
        let class = wish.class.as_ref().or(directory.class.as_ref());
        if let Some(class) = class {
            self.require_class(class)?;
        }
        let count = wish.stripe_count.or(directory.stripe_count);
        let first = wish.first.or(directory.first);
        let stripe_size = wish.stripe_size.or(directory.stripe_size).unwrap_or(self.default.stripe_size);
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
        let layout = placement.choose(&self.cluster.candidates(), file).map_err(invalid)?;
        let Some(first) = first else { return Ok(layout) };
        let mut targets: Vec<TargetId> = layout.objects().map(|(_, target)| target).collect();
        let first = first as usize;
        if first >= targets.len() {
            let detail = format!("first target {first}: there are only {} to choose from", targets.len());
            return Err(Fault::new(Errno::EINVAL, detail));
        }
        targets.rotate_left(first);
        if let Factor::AtMost(count) = factor {
            targets.truncate(usize::from(count.get()));
        }
        Layout::striped(&targets, stripe_size).map_err(invalid)
    }

    /// These strips, and from some offsets on others.
    fn exactly(&self, strips: &[Strips], tails: &[(FileOffset, Vec<Strips>)]) -> Outcome<Layout> {
        for (target, _) in strips.iter().chain(tails.iter().flat_map(|(_, strips)| strips)) {
            self.require_target(*target)?;
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

pub(super) fn choice(spec: &LayoutSpec) -> LayoutChoice {
    LayoutChoice {
        stripe_size: spec.stripe_size,
        stripe_count: spec.stripe_count,
        first: spec.first,
        class: spec.class.clone(),
        strips: spec.strips.clone(),
        tails: spec.tails.clone(),
    }
}

pub(super) fn spec(choice: &LayoutChoice) -> LayoutSpec {
    LayoutSpec {
        stripe_size: choice.stripe_size,
        stripe_count: choice.stripe_count,
        first: choice.first,
        class: choice.class.clone(),
        strips: choice.strips.clone(),
        tails: choice.tails.clone(),
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
    use weft_core::ServerId;
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
        let layout = layouts.choose(&wish, Some(&directory), FileId(9)).expect("fits");
        assert_eq!((targets(&layout), stripes(&layout).0), (vec![3, 2], ByteLen(65536)));
        let one = LayoutChoice { stripe_count: Some(1), first: Some(2), ..Default::default() };
        assert_eq!(targets(&layouts.choose(&one, None, FileId(9)).expect("fits")), [2]);
    }

    #[test]
    fn tails_follow_strips() {
        let strips = vec![(TargetId(0), ByteLen(64)), (TargetId(2), ByteLen(64))];
        let tails = vec![
            (FileOffset(1024), vec![(TargetId(0), ByteLen(128)), (TargetId(1), ByteLen(128))]),
            (FileOffset(4096), vec![(TargetId(3), ByteLen(32))]),
        ];
        let choice = LayoutChoice { strips: Some(strips), tails, ..Default::default() };
        let layout = layouts().choose(&choice, None, FileId(9)).expect("fits");
        assert_eq!(describe(&layout), "0-1024: 0x64 2x64; 1024-4096: 0x128 1x128; 4096-: 3x32");
        let mut falling = choice.clone();
        falling.tails.reverse();
        assert!(layouts().check(&falling).is_err());
        let alone = LayoutChoice { strips: None, ..choice.clone() };
        assert!(layouts().check(&alone).is_err());
        let nowhere = LayoutChoice { tails: vec![(FileOffset(1024), vec![])], ..choice.clone() };
        assert!(layouts().check(&nowhere).is_err());
        let strange = vec![(FileOffset(1), vec![(TargetId(9), ByteLen(1))])];
        let unknown = LayoutChoice { tails: strange, ..choice };
        assert!(layouts().check(&unknown).is_err());
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_can() {
        let refused = |choice: LayoutChoice| match layouts().check(&choice) {
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
