//! Layouts: map each byte of a file to a target.
//!
//! A layout is a list of components that together cover `[0, end of file)`. A component distributes its range
//! round-robin over its strips, each a (target, stripe size) pair. Offsets are counted from the component's own start.
//! Each strip of each component is one datafile ([`ObjectId`]) with a contiguous offset space of its own, so a hole in
//! the file never moves the bytes behind it.

use crate::geometry::Geometry;
use crate::units::{ByteLen, FileOffset, ObjectId, TargetId};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;

/// Maximum number of components in a layout.
pub const COMPONENTS_MAX: usize = 1024;
/// Maximum number of strips in a layout, over all components.
pub const COLUMNS_MAX: usize = 65_535;
/// Unit of the stripe sizes that people choose: a page, and a block of checksums. Others would divide the pages of each
/// program between targets. Plans and programs may use any size.
pub const STRIPE_SIZE_UNIT: ByteLen = ByteLen(4096);
/// Maximum stripe size: 64 TiB. Keeps the length of a round far below 2^64.
pub const STRIPE_SIZE_MAX: ByteLen = ByteLen(1 << 46);

/// A column of a component: a target, and the number of bytes that it takes in each round.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Strip {
    /// Target that holds the datafile of this column.
    pub target: TargetId,
    /// Bytes of each round that belong to this column.
    pub stripe_size: ByteLen,
}

/// A range of the file, and the strips over which it is distributed.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Component {
    /// First byte of the file in this component.
    pub start: FileOffset,
    /// One past the last byte; `None` for the last component, which has no end.
    pub end: Option<FileOffset>,
    /// Columns, in the order in which a round visits them.
    pub strips: Vec<Strip>,
}

/// An unchecked layout from a file, a user or the network.
///
/// [`RawLayout::check`] is the only way to turn it into a [`Layout`].
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct RawLayout {
    /// Components in file order.
    pub components: Vec<Component>,
}

/// Reason why a layout is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LayoutError {
    /// There are no components.
    #[error("a layout needs at least one component")]
    Empty,
    /// There are more than [`COMPONENTS_MAX`] components.
    #[error("{count} components are more than the {COMPONENTS_MAX} that a layout may have")]
    TooManyComponents {
        /// Number of components.
        count: usize,
    },
    /// There are more than [`COLUMNS_MAX`] strips.
    #[error("{count} strips are more than the {COLUMNS_MAX} that a layout may have over all components")]
    TooManyColumns {
        /// Number of strips.
        count: usize,
    },
    /// A component has no strips.
    #[error("component {component} has no strips: give it at least one (target, stripe size) pair")]
    NoStrips {
        /// Index of the component.
        component: usize,
    },
    /// A stripe size is zero.
    #[error("component {component}, column {column}: a stripe size of 0; leave the target out instead")]
    ZeroStripe {
        /// Index of the component.
        component: usize,
        /// Index of the strip.
        column: usize,
    },
    /// A stripe size is above [`STRIPE_SIZE_MAX`].
    #[error("component {component}, column {column}: stripe size {stripe_size} is above {STRIPE_SIZE_MAX}")]
    StripeTooLarge {
        /// Index of the component.
        component: usize,
        /// Index of the strip.
        column: usize,
        /// Stripe size in bytes.
        stripe_size: ByteLen,
    },
    /// A component ends at or before its start.
    #[error("component {component} ends at {end}, not after its start {start}")]
    Backwards {
        /// Index of the component.
        component: usize,
        /// Start of the component.
        start: FileOffset,
        /// End of the component.
        end: FileOffset,
    },
    /// Some bytes belong to no component.
    #[error("bytes {from}..{to} before component {component} belong to no component")]
    Gap {
        /// Index of the component behind the gap.
        component: usize,
        /// First byte without a component.
        from: FileOffset,
        /// First byte of the next component.
        to: FileOffset,
    },
    /// A component begins before the previous one ends.
    #[error("component {component} starts at {start}, inside the component before it")]
    Overlap {
        /// Index of the later component.
        component: usize,
        /// Start of the later component.
        start: FileOffset,
    },
    /// The last component has an end, so the file could not grow past it.
    #[error("the last component ends at {end}: the last one must have no end")]
    Bounded {
        /// End of the last component.
        end: FileOffset,
    },
}

impl RawLayout {
    /// Checks everything that lookups rely on.
    ///
    /// # Errors
    /// The first fault, in file order.
    pub fn check(self) -> Result<Layout, LayoutError> {
        let components = &self.components;
        if components.is_empty() {
            return Err(LayoutError::Empty);
        }
        if components.len() > COMPONENTS_MAX {
            return Err(LayoutError::TooManyComponents { count: components.len() });
        }
        let columns = components.iter().map(|c| c.strips.len()).sum::<usize>();
        if columns > COLUMNS_MAX {
            return Err(LayoutError::TooManyColumns { count: columns });
        }
        // `None` after a component without an end.
        let mut covered = Some(FileOffset::ZERO);
        for (index, component) in components.iter().enumerate() {
            check_range(index, component, covered)?;
            check_strips(index, &component.strips)?;
            covered = component.end;
        }
        if let Some(end) = covered {
            return Err(LayoutError::Bounded { end });
        }
        let geometry = components.iter().map(Geometry::new).collect();
        Ok(Layout { components: self.components.into_boxed_slice(), geometry })
    }
}

fn check_range(index: usize, component: &Component, covered: Option<FileOffset>) -> Result<(), LayoutError> {
    let start = component.start;
    match covered {
        Some(from) if from < start => return Err(LayoutError::Gap { component: index, from, to: start }),
        Some(from) if from == start => {}
        _ => return Err(LayoutError::Overlap { component: index, start }),
    }
    match component.end {
        Some(end) if end <= start => Err(LayoutError::Backwards { component: index, start, end }),
        _ => Ok(()),
    }
}

fn check_strips(index: usize, strips: &[Strip]) -> Result<(), LayoutError> {
    if strips.is_empty() {
        return Err(LayoutError::NoStrips { component: index });
    }
    for (column, strip) in strips.iter().enumerate() {
        if strip.stripe_size == ByteLen::ZERO {
            return Err(LayoutError::ZeroStripe { component: index, column });
        }
        if strip.stripe_size > STRIPE_SIZE_MAX {
            let stripe_size = strip.stripe_size;
            return Err(LayoutError::StripeTooLarge { component: index, column, stripe_size });
        }
    }
    Ok(())
}

/// A checked layout, with precomputed values for fast lookups.
///
/// Serialized as its [`RawLayout`], and checked again when decoded.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "RawLayout")]
pub struct Layout {
    components: Box<[Component]>,
    geometry: Box<[Geometry]>,
}

impl Layout {
    /// Simple striping (DEF): every target takes `stripe_size` bytes of each round.
    ///
    /// # Errors
    /// As for [`RawLayout::check`]: no targets, or an invalid stripe size.
    pub fn striped(targets: &[TargetId], stripe_size: ByteLen) -> Result<Self, LayoutError> {
        Self::from_components(vec![endless(even_strips(targets, stripe_size))])
    }

    /// Variable stripes (PA, PSA): each target takes its own number of bytes of each round.
    ///
    /// # Errors
    /// As for [`RawLayout::check`]. Leave out a target that should hold nothing instead of giving it a stripe of 0.
    pub fn variable(strips: &[(TargetId, ByteLen)]) -> Result<Self, LayoutError> {
        Self::from_components(vec![endless(pair_strips(strips))])
    }

    /// The whole file on one target.
    pub fn single(target: TargetId) -> Self {
        Self::striped(&[target], ByteLen::from_mib(1)).expect("one strip of 1 MiB passes every check")
    }

    /// A two-part file (PSA with limited SSD capacity): variable stripes over `head` in `[0, boundary)`, then equal
    /// stripes over `tail`.
    ///
    /// The stripe size of the tail is `S / m`, where `S` is the length of a round of the head and `m` the number of
    /// tail targets. A request of one round is thus spread over all targets in both parts. `S / m` is rounded down,
    /// and is at least 1 byte.
    ///
    /// # Errors
    /// As for [`RawLayout::check`], for instance a boundary of 0.
    pub fn two_part(
        head: &[(TargetId, ByteLen)],
        boundary: FileOffset,
        tail: &[TargetId],
    ) -> Result<Self, LayoutError> {
        let round = head.iter().fold(0u64, |sum, (_, size)| sum.saturating_add(size.0));
        let stripe = ByteLen((round / tail.len().max(1) as u64).max(1));
        Self::from_components(vec![
            Component { start: FileOffset::ZERO, end: Some(boundary), strips: pair_strips(head) },
            Component { start: boundary, end: None, strips: even_strips(tail, stripe) },
        ])
    }

    /// Builds a layout from any list of components.
    ///
    /// # Errors
    /// As for [`RawLayout::check`].
    pub fn from_components(components: Vec<Component>) -> Result<Self, LayoutError> {
        RawLayout { components }.check()
    }

    /// Returns the components in file order.
    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// Returns the unchecked form, for editing.
    pub fn to_raw(&self) -> RawLayout {
        RawLayout { components: self.components.to_vec() }
    }

    /// Iterates over all datafiles that the file may have, by component and column, with their targets.
    pub fn objects(&self) -> impl Iterator<Item = (ObjectId, TargetId)> + '_ {
        self.components.iter().enumerate().flat_map(|(component, c)| {
            c.strips
                .iter()
                .enumerate()
                .map(move |(column, strip)| (object_id(component, column), strip.target))
        })
    }

    /// Returns the target that holds `object`; `None` if the layout has no such object.
    pub fn target(&self, object: ObjectId) -> Option<TargetId> {
        let component = self.components.get(usize::from(object.component))?;
        component.strips.get(usize::from(object.column)).map(|strip| strip.target)
    }

    /// Returns the index of `object` in [`Layout::objects`]; `None` if the layout has no such object.
    pub fn index_of(&self, object: ObjectId) -> Option<usize> {
        let (component, column) = (usize::from(object.component), usize::from(object.column));
        let before = self.components.get(..component)?.iter().map(|c| c.strips.len()).sum::<usize>();
        self.target(object).map(|_| before + column)
    }

    pub(crate) fn geometry(&self) -> &[Geometry] {
        &self.geometry
    }

    /// Returns the index of the component that covers `offset`.
    #[inline]
    pub(crate) fn component_at(&self, offset: u64) -> usize {
        // Almost every file has one component: no search.
        if self.geometry.len() == 1 {
            return 0;
        }
        self.geometry.partition_point(|g| g.start <= offset) - 1
    }
}

/// Returns the id of a column. The numbers fit, because the layout was checked.
pub(crate) fn object_id(component: usize, column: usize) -> ObjectId {
    ObjectId { component: component as u16, column: column as u16 }
}

fn endless(strips: Vec<Strip>) -> Component {
    Component { start: FileOffset::ZERO, end: None, strips }
}

/// Checks a stripe size that somebody has chosen.
///
/// # Errors
/// The possible sizes, as a text for users.
pub fn check_stripe_size(size: ByteLen) -> Result<(), String> {
    if size.0 == 0 || !size.0.is_multiple_of(STRIPE_SIZE_UNIT.0) || size > STRIPE_SIZE_MAX {
        let max_tib = STRIPE_SIZE_MAX.0 >> 40;
        let unit_kib = STRIPE_SIZE_UNIT.0 >> 10;
        return Err(format!(
            "stripe sizes are multiples of {unit_kib} KiB up to {max_tib} TiB, such as 64 KiB or 1 MiB"
        ));
    }
    Ok(())
}

fn even_strips(targets: &[TargetId], stripe_size: ByteLen) -> Vec<Strip> {
    targets.iter().map(|&target| Strip { target, stripe_size }).collect()
}

fn pair_strips(strips: &[(TargetId, ByteLen)]) -> Vec<Strip> {
    strips.iter().map(|&(target, stripe_size)| Strip { target, stripe_size }).collect()
}

impl TryFrom<RawLayout> for Layout {
    type Error = LayoutError;

    fn try_from(raw: RawLayout) -> Result<Self, LayoutError> {
        raw.check()
    }
}

impl Serialize for Layout {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename = "RawLayout")]
        struct Borrowed<'a> {
            components: &'a [Component],
        }
        Borrowed { components: &self.components }.serialize(serializer)
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layout").field("components", &self.components).finish()
    }
}
