//! Layouts by class: the classes of targets that hold each range of a file, and what happens where space is limited.
//!
//! Plans and rules name classes; a file has targets. [`ClassLayout::place`] converts one to the other.

use crate::layout::{COMPONENTS_MAX, Component, Layout, STRIPE_SIZE_MAX, Strip};
use crate::placement::{Candidate, PlacementError, by_server, rotation};
use crate::units::{ByteLen, FileId, FileOffset, TargetId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum number of classes in a part.
pub const CLASSES_MAX: usize = 64;

/// A range of a file that begins where the previous part ends.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ClassPart {
    /// One past the last byte; `None` in the last part only.
    pub end: Option<FileOffset>,
    /// Classes over which the range is distributed, in the order in which a round visits them, with the stripe size
    /// per target. All targets of a class take part.
    pub stripes: Vec<(String, ByteLen)>,
}

/// An unchecked layout by class.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct RawClassLayout {
    /// Parts, in file order.
    pub parts: Vec<ClassPart>,
}

/// A layout by class: parts that cover the file.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "RawClassLayout", into = "RawClassLayout")]
pub struct ClassLayout {
    parts: Vec<ClassPart>,
}

/// Reason why parts do not form a layout.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClassLayoutError {
    /// There are no parts, or more than a layout may have.
    #[error("{0} parts: a layout has 1 to {COMPONENTS_MAX}")]
    Count(usize),
    /// A part ends at or before the end of the previous one.
    #[error("part {0} does not end after the previous one")]
    Backwards(usize),
    /// The last part has an end, or another one has none.
    #[error("part {0}: the last part, and only that, has no end")]
    Open(usize),
    /// A part has no classes, or too many.
    #[error("part {0} must name 1 to {CLASSES_MAX} classes")]
    Classes(usize),
    /// A part names a class twice.
    #[error("part {part} names class {class:?} twice")]
    Twice {
        /// Index of the part.
        part: usize,
        /// Name of the class.
        class: String,
    },
    /// A stripe size is zero or too large.
    #[error("part {part}: a stripe of {size} bytes for class {class:?}; it has 1 to {STRIPE_SIZE_MAX}")]
    Stripe {
        /// Index of the part.
        part: usize,
        /// Name of the class.
        class: String,
        /// Stripe size in bytes.
        size: ByteLen,
    },
}

impl RawClassLayout {
    /// Checks everything that placement relies on.
    ///
    /// # Errors
    /// The first fault, in file order.
    pub fn check(self) -> Result<ClassLayout, ClassLayoutError> {
        let count = self.parts.len();
        if count == 0 || count > COMPONENTS_MAX {
            return Err(ClassLayoutError::Count(count));
        }
        let mut covered = FileOffset::ZERO;
        for (index, part) in self.parts.iter().enumerate() {
            match part.end {
                Some(end) if index + 1 < count => {
                    if end <= covered {
                        return Err(ClassLayoutError::Backwards(index));
                    }
                    covered = end;
                }
                None if index + 1 == count => {}
                _ => return Err(ClassLayoutError::Open(index)),
            }
            if part.stripes.is_empty() || part.stripes.len() > CLASSES_MAX {
                return Err(ClassLayoutError::Classes(index));
            }
            for (at, (class, size)) in part.stripes.iter().enumerate() {
                let class = class.clone();
                if *size == ByteLen::ZERO || *size > STRIPE_SIZE_MAX {
                    return Err(ClassLayoutError::Stripe { part: index, class, size: *size });
                }
                if part.stripes[..at].iter().any(|(other, _)| *other == class) {
                    return Err(ClassLayoutError::Twice { part: index, class });
                }
            }
        }
        Ok(ClassLayout { parts: self.parts })
    }
}

impl TryFrom<RawClassLayout> for ClassLayout {
    type Error = ClassLayoutError;

    fn try_from(raw: RawClassLayout) -> Result<Self, ClassLayoutError> {
        raw.check()
    }
}

impl From<ClassLayout> for RawClassLayout {
    fn from(layout: ClassLayout) -> Self {
        Self { parts: layout.parts }
    }
}

/// Space left on targets with limited capacity; other targets have no entry.
pub type SpaceLeft = BTreeMap<TargetId, ByteLen>;

impl ClassLayout {
    /// Builds a layout from parts in file order.
    ///
    /// # Errors
    /// [`ClassLayoutError`].
    pub fn new(parts: Vec<ClassPart>) -> Result<Self, ClassLayoutError> {
        RawClassLayout { parts }.check()
    }

    /// Returns the parts in file order.
    pub fn parts(&self) -> &[ClassPart] {
        &self.parts
    }

    /// Returns all classes, without duplicates, in order of appearance.
    pub fn classes(&self) -> Vec<&str> {
        let mut classes = Vec::new();
        for (class, _) in self.parts.iter().flat_map(|part| &part.stripes) {
            if !classes.contains(&class.as_str()) {
                classes.push(class);
            }
        }
        classes
    }

    /// Returns the classes of the last part. A file needs a target of at least one of them.
    pub fn last_classes(&self) -> Vec<&str> {
        let last = self.parts.last().into_iter().flat_map(|part| &part.stripes);
        last.map(|(class, _)| class.as_str()).collect()
    }

    /// Returns the layout of `file` over the available targets, given in any order.
    ///
    /// All targets of a class take part; neighbors are on different servers where possible. Within each class, the
    /// first target rotates from file to file as in [`Placement::choose`](crate::Placement::choose). The order of
    /// classes is fixed, because the plan was evaluated with it.
    ///
    /// | part | treatment |
    /// | --- | --- |
    /// | bounded, enough space in `left` | as specified |
    /// | bounded, less space than needed | ends after the last round of stripes that fits; the next part begins there |
    /// | bounded, a target without space for one stripe | the target is left out |
    /// | bounded, no target with limited space remains, or no target at all | left out; the next part takes its range |
    /// | last | unbounded; reserves nothing and uses all targets of its classes |
    ///
    /// # Errors
    /// When no class of the last part has a target.
    pub fn place(
        &self,
        available: &[Candidate<'_>],
        left: &SpaceLeft,
        file: FileId,
    ) -> Result<Layout, PlacementError> {
        let mut left = left.clone();
        let mut components: Vec<Component> = Vec::new();
        let (mut start, mut left_out) = (FileOffset::ZERO, false);
        for part in &self.parts {
            let mut strips = strips(part, available, file);
            let limited = |strip: &Strip| left.contains_key(&strip.target);
            if part.end.is_none() && strips.is_empty() {
                let classes: Vec<&str> = part.stripes.iter().map(|(class, _)| class.as_str()).collect();
                let admitted = format!("of class {}", classes.join(", "));
                return Err(PlacementError::NoTarget { admitted });
            }
            if part.end.is_some() {
                let whole = strips.len();
                strips.retain(|strip| left.get(&strip.target).is_none_or(|left| *left >= strip.stripe_size));
                if strips.is_empty() || strips.len() < whole && !strips.iter().any(limited) {
                    left_out = true;
                    continue;
                }
            }
            let goes_on = left_out && !strips.iter().any(limited);
            left_out = false;
            let component = match part.end {
                None => Component { start, end: None, strips },
                end => fitting(Component { start, end, strips }, &left),
            };
            for (target, bytes) in reserved_bytes(&component) {
                if let Some(left) = left.get_mut(&target) {
                    left.0 -= bytes.0;
                }
            }
            start = component.end.unwrap_or(start);
            match components.last_mut() {
                // The parts on both sides of the omitted one may be equal: merge them.
                Some(last) if goes_on && last.strips == component.strips => last.end = component.end,
                _ => components.push(component),
            }
        }
        Ok(Layout::from_components(components)?)
    }
}

/// Returns the strips of a part, ignoring space.
fn strips(part: &ClassPart, available: &[Candidate<'_>], file: FileId) -> Vec<Strip> {
    let mut strips = Vec::new();
    for (class, stripe_size) in &part.stripes {
        let mut targets = by_server(available.iter().filter(|candidate| candidate.class == class));
        if !targets.is_empty() {
            let start = rotation(file, targets.len());
            targets.rotate_left(start);
        }
        strips.extend(targets.into_iter().map(|target| Strip { target, stripe_size: *stripe_size }));
    }
    strips
}

/// Cuts a component to the rounds that fit the space left; at least one does.
fn fitting(component: Component, left: &SpaceLeft) -> Component {
    let needs = reserved_bytes(&component);
    let over = |(target, bytes): (&TargetId, &ByteLen)| left.get(target).is_some_and(|left| bytes > left);
    if !needs.iter().any(over) {
        return component;
    }
    // A target occurs once in a part, because classes are disjoint and each is named once.
    let rounds = component
        .strips
        .iter()
        .filter_map(|strip| left.get(&strip.target).map(|left| left.0 / strip.stripe_size.0));
    let rounds = rounds.min().expect("a target has less than it needs");
    let round: u64 = component.strips.iter().map(|strip| strip.stripe_size.0).sum();
    let end = FileOffset(component.start.0 + rounds * round);
    debug_assert!(Some(end) <= component.end && end > component.start);
    Component { end: Some(end), ..component }
}

/// Returns the bytes that a bounded component reserves on each target; empty for an unbounded one.
pub fn reserved_bytes(component: &Component) -> BTreeMap<TargetId, ByteLen> {
    let mut bytes = BTreeMap::new();
    let Some(end) = component.end else { return bytes };
    let round: u128 = component.strips.iter().map(|strip| u128::from(strip.stripe_size.0)).sum();
    let len = u128::from(end.0 - component.start.0);
    let (rounds, mut rest) = (len / round, len % round);
    for strip in &component.strips {
        let stripe = u128::from(strip.stripe_size.0);
        let last = rest.min(stripe);
        rest -= last;
        if rounds == 0 && last == 0 {
            continue;
        }
        let entry = bytes.entry(strip.target).or_insert(ByteLen::ZERO);
        // At most the length of the part, which fits 64 bits.
        entry.0 += (rounds * stripe + last) as u64;
    }
    bytes
}

impl Layout {
    /// Returns the bytes that all bounded components together reserve on each target, as recorded in the space
    /// reservations. Unbounded components reserve nothing.
    pub fn space_reservations(&self) -> BTreeMap<TargetId, ByteLen> {
        let mut all = BTreeMap::new();
        if let [_] = self.components() {
            return all; // Almost every file.
        }
        for component in self.components() {
            for (target, bytes) in reserved_bytes(component) {
                let entry: &mut ByteLen = all.entry(target).or_insert(ByteLen::ZERO);
                entry.0 = entry.0.saturating_add(bytes.0);
            }
        }
        all
    }

    /// Returns true if this layout can result from `whole` when less space is left. Each component must have only
    /// strips of one component of `whole`, and must not end behind it.
    pub fn is_short_of(&self, whole: &Self) -> bool {
        let ends_within = |short: &Component, full: &Component| match (short.end, full.end) {
            (Some(end), Some(end_max)) => end <= end_max,
            (end, end_max) => end == end_max,
        };
        let is_part_of = |short: &Component, full: &Component| {
            ends_within(short, full) && short.strips.iter().all(|strip| full.strips.contains(strip))
        };
        self.components().iter().all(|short| whole.components().iter().any(|full| is_part_of(short, full)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::ServerId;
    use proptest::prelude::*;

    const KIB: u64 = 1024;

    fn candidate(target: u32, server: u32, class: &str) -> Candidate<'_> {
        Candidate { target: TargetId(target), server: ServerId(server), class }
    }

    fn hybrid() -> Vec<Candidate<'static>> {
        vec![
            candidate(1, 0, "hdd"),
            candidate(2, 1, "hdd"),
            candidate(3, 2, "hdd"),
            candidate(4, 0, "ssd"),
            candidate(5, 1, "ssd"),
        ]
    }

    fn part(end: Option<u64>, stripes: &[(&str, u64)]) -> ClassPart {
        let stripes = stripes.iter().map(|(class, size)| ((*class).to_owned(), ByteLen(*size))).collect();
        ClassPart { end: end.map(FileOffset), stripes }
    }

    /// Formats a layout as `start-end: TARGETxSTRIPE…`.
    fn describe(layout: &Layout) -> String {
        let component = |c: &Component| {
            let end = c.end.map_or(String::new(), |end| end.to_string());
            let strips: Vec<_> =
                c.strips.iter().map(|s| format!("{}x{}", s.target.0, s.stripe_size)).collect();
            format!("{}-{end}: {}", c.start, strips.join(" "))
        };
        layout.components().iter().map(component).collect::<Vec<_>>().join("; ")
    }

    fn placed(parts: Vec<ClassPart>, left: &[(u32, u64)], file: u64) -> String {
        let left = left.iter().map(|(target, bytes)| (TargetId(*target), ByteLen(*bytes))).collect();
        describe(&ClassLayout::new(parts).unwrap().place(&hybrid(), &left, FileId(file)).unwrap())
    }

    fn psa() -> Vec<ClassPart> {
        vec![part(Some(5120), &[("hdd", 1024), ("ssd", 1024)]), part(None, &[("hdd", 2048)])]
    }

    #[test]
    fn all_targets_of_each_class_take_part_and_the_first_rotates() {
        assert_eq!(
            placed(psa(), &[], 0),
            "0-5120: 1x1024 2x1024 3x1024 4x1024 5x1024; 5120-: 1x2048 2x2048 3x2048"
        );
        let mut begun = BTreeMap::new();
        for file in 0..60 {
            let layout =
                ClassLayout::new(psa()).unwrap().place(&hybrid(), &SpaceLeft::new(), FileId(file)).unwrap();
            let first =
                |component: usize, column: usize| layout.components()[component].strips[column].target.0;
            assert_eq!(first(0, 0), first(1, 0), "all parts of a file rotate alike");
            *begun.entry(first(0, 0)).or_insert(0) += 1;
            *begun.entry(first(0, 3)).or_insert(0) += 1;
        }
        assert_eq!(begun, BTreeMap::from([(1, 20), (2, 20), (3, 20), (4, 30), (5, 30)]));
    }

    #[test]
    fn a_part_ends_where_space_does() {
        let parts = || {
            vec![
                part(Some(100 * KIB), &[("hdd", 2 * KIB), ("ssd", 7 * KIB)]),
                part(None, &[("hdd", 4 * KIB)]),
            ]
        };
        assert_eq!(
            placed(parts(), &[(4, 1 << 20), (5, 1 << 20)], 0).split(';').next().unwrap().split(':').next(),
            Some("0-102400")
        );
        // Two rounds of 20 KiB fit the 15 KiB of target 5.
        assert!(placed(parts(), &[(4, 1 << 20), (5, 15 * KIB)], 0).starts_with("0-40960:"));
        // No target has space for a stripe: the next part takes all.
        assert_eq!(placed(parts(), &[(4, 7167), (5, 0)], 0), "0-: 1x4096 2x4096 3x4096");
        // Only one target has space.
        assert_eq!(
            placed(parts(), &[(4, 7 * KIB), (5, 0)], 0),
            format!("0-{}: 1x2048 2x2048 3x2048 4x7168; {}-: 1x4096 2x4096 3x4096", 13 * KIB, 13 * KIB)
        );
    }

    #[test]
    fn equal_parts_around_an_omitted_one_are_merged() {
        let parts = vec![
            part(Some(64 * KIB), &[("hdd", KIB)]),
            part(Some(128 * KIB), &[("ssd", KIB)]),
            part(None, &[("hdd", KIB)]),
        ];
        assert_eq!(placed(parts.clone(), &[(4, 0), (5, 0)], 0), "0-: 1x1024 2x1024 3x1024");
        assert!(
            placed(parts, &[(4, 8 * KIB), (5, 9 * KIB)], 0).contains("; 65536-81920: 4x1024 5x1024; 81920-:")
        );
    }

    #[test]
    fn space_reserved_by_one_part_is_unavailable_to_the_next() {
        let parts = vec![
            part(Some(16 * KIB), &[("ssd", KIB)]),
            part(Some(64 * KIB), &[("hdd", KIB), ("ssd", KIB)]),
            part(None, &[("hdd", KIB)]),
        ];
        let layout = placed(parts, &[(4, 10 * KIB), (5, 10 * KIB)], 0);
        assert!(layout.starts_with("0-16384: 4x1024 5x1024; 16384-26624: "), "{layout}");
    }

    #[test]
    fn classes_without_targets_are_left_out_where_possible() {
        let two = vec![part(Some(4096), &[("nvme", 512), ("hdd", 512)]), part(None, &[("hdd", 1024)])];
        assert!(placed(two, &[], 0).starts_with("0-4096: 1x512"));
        let alone = vec![part(Some(4096), &[("nvme", 512)]), part(None, &[("hdd", 1024)])];
        assert_eq!(placed(alone, &[], 0), "0-: 1x1024 2x1024 3x1024");
        let none = ClassLayout::new(vec![part(None, &[("nvme", 512)])]).unwrap();
        let error = none.place(&hybrid(), &SpaceLeft::new(), FileId(1)).unwrap_err().to_string();
        assert!(error.contains("of class nvme"), "{error}");
    }

    #[test]
    fn invalid_parts_are_rejected() {
        for parts in [
            vec![],
            vec![part(Some(1), &[("hdd", 1)])],
            vec![part(None, &[("hdd", 1)]), part(None, &[("hdd", 1)])],
            vec![part(Some(5), &[("hdd", 1)]), part(Some(5), &[("hdd", 1)]), part(None, &[("hdd", 1)])],
            vec![part(None, &[])],
            vec![part(None, &[("hdd", 0)])],
            vec![part(None, &[("hdd", 1), ("hdd", 2)])],
        ] {
            assert!(ClassLayout::new(parts.clone()).is_err(), "{parts:?}");
        }
    }

    #[test]
    fn other_strips_or_a_later_end_are_not_a_shortage() {
        let place = |end, size| {
            let parts = vec![part(Some(end), &[("ssd", size)]), part(None, &[("hdd", 8)])];
            ClassLayout::new(parts).unwrap().place(&hybrid(), &SpaceLeft::new(), FileId(0)).unwrap()
        };
        let whole = place(64, 4);
        assert!(whole.is_short_of(&whole) && place(8, 4).is_short_of(&whole));
        assert!(!place(65, 4).is_short_of(&whole) && !place(64, 2).is_short_of(&whole));
        let plain = Layout::striped(&[TargetId(1), TargetId(2), TargetId(3)], ByteLen(8)).unwrap();
        assert!(plain.is_short_of(&whole) && !whole.is_short_of(&plain));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn layouts_use_at_most_the_space_left_and_all_that_fits(
            stripes in prop::collection::vec((1u64..5, 0u64..5), 1..5),
            ends in prop::collection::btree_set(1u64..300, 4),
            left in prop::collection::vec(0u64..120, 2),
            file in 0u64..50,
        ) {
            let mut parts: Vec<ClassPart> = stripes.iter().zip(&ends).map(|((hdd, ssd), end)| {
                let all = [("hdd", *hdd), ("ssd", *ssd)];
                let some: Vec<_> = all.into_iter().filter(|(_, size)| *size > 0).collect();
                part(Some(*end), &some)
            }).collect();
            parts.push(part(None, &[("hdd", 7)]));
            let space: SpaceLeft = [4, 5].into_iter().map(TargetId).zip(left.into_iter().map(ByteLen)).collect();
            let requested = ClassLayout::new(parts.clone()).unwrap();
            let layout = requested.place(&hybrid(), &space, FileId(file)).unwrap();
            let unlimited = requested.place(&hybrid(), &SpaceLeft::new(), FileId(file)).unwrap();
            prop_assert!(layout.is_short_of(&unlimited), "{} of {}", describe(&layout), describe(&unlimited));
            for (target, bytes) in layout.space_reservations() {
                prop_assert!(space.get(&target).is_none_or(|left| bytes <= *left), "{target} has {bytes} of {space:?}");
            }
            // Reference: counted byte by byte.
            let end = layout.components().last().unwrap().start.0;
            let mut counted = BTreeMap::new();
            for offset in 0..end {
                *counted.entry(layout.locate(FileOffset(offset)).target).or_insert(ByteLen(0)) = ByteLen(
                    counted.get(&layout.locate(FileOffset(offset)).target).map_or(0, |b: &ByteLen| b.0) + 1);
            }
            prop_assert_eq!(counted, layout.space_reservations());
            // With space for one stripe to spare, nothing is limited.
            let promises = unlimited.space_reservations();
            let needs = |target| promises.get(target).map_or(0, |bytes: &ByteLen| bytes.0);
            if space.iter().all(|(target, left)| needs(target) + 4 <= left.0) {
                prop_assert_eq!(layout.clone(), unlimited);
            }
            // A part that was cut could not have had one more round.
            for (component, next) in layout.components().iter().zip(layout.components().iter().skip(1)) {
                let cut = !parts.iter().any(|part| part.end == component.end);
                if cut && next.strips != component.strips {
                    let round: u64 = component.strips.iter().map(|s| s.stripe_size.0).sum();
                    let end = component.end.map(|end| FileOffset(end.0 + round));
                    let longer = Component { end, ..component.clone() };
                    let before: BTreeMap<TargetId, u64> = layout.components().iter()
                        .take_while(|other| other.start < component.start)
                        .flat_map(reserved_bytes).fold(BTreeMap::new(), |mut sum, (target, bytes)| {
                            *sum.entry(target).or_insert(0) += bytes.0;
                            sum
                        });
                    let over = reserved_bytes(&longer).iter().any(|(target, bytes)| {
                        space.get(target).is_some_and(|left| bytes.0 + before.get(target).unwrap_or(&0) > left.0)
                    });
                    prop_assert!(over, "{component:?} of {space:?}");
                }
            }
        }
    }
}
