//! A naive model of layouts. It assigns bytes one at a time, as the definition says, and shares no arithmetic with the
//! code under test.
#![allow(dead_code)]

use proptest::prelude::*;
use std::collections::BTreeMap;
use weft_core::{ByteLen, Component, FileOffset, Layout, ObjectId, Strip, TargetId};

/// Location of each of the first bytes of a file.
pub struct Dealt {
    /// By file offset: object, target, local offset.
    pub bytes: Vec<(ObjectId, TargetId, u64)>,
}

/// Assigns `size` bytes.
pub fn deal(layout: &Layout, size: u64) -> Dealt {
    let mut bytes = Vec::new();
    let mut held: BTreeMap<ObjectId, u64> = BTreeMap::new();
    for (index, component) in layout.components().iter().enumerate() {
        let (mut column, mut used) = (0, 0);
        while (bytes.len() as u64) < size.min(component.end.map_or(u64::MAX, |end| end.0)) {
            let object = ObjectId { component: index as u16, column: column as u16 };
            let local = held.entry(object).or_default();
            bytes.push((object, component.strips[column].target, *local));
            *local += 1;
            used += 1;
            if used == component.strips[column].stripe_size.0 {
                (column, used) = ((column + 1) % component.strips.len(), 0);
            }
        }
    }
    Dealt { bytes }
}

impl Dealt {
    /// Returns the length of `object` in a file of `size` bytes without holes, by counting.
    pub fn local_len(&self, object: ObjectId, size: u64) -> u64 {
        self.bytes[..size as usize].iter().filter(|(o, ..)| *o == object).count() as u64
    }
}

/// Small and odd stripe sizes, with powers of two among them.
fn stripe() -> impl Strategy<Value = u64> {
    prop_oneof![1u64..12, Just(4), Just(8), Just(16)]
}

fn strips() -> impl Strategy<Value = Vec<Strip>> {
    let strip = (0u32..4, stripe())
        .prop_map(|(target, size)| Strip { target: TargetId(target), stripe_size: ByteLen(size) });
    let variable = prop::collection::vec(strip, 1..6);
    let even = (prop::collection::vec(0u32..4, 1..6), stripe()).prop_map(|(targets, size)| {
        targets
            .into_iter()
            .map(|target| Strip { target: TargetId(target), stripe_size: ByteLen(size) })
            .collect()
    });
    prop_oneof![variable, even]
}

/// Layouts of 1 to 3 components; targets occur more than once.
pub fn layouts() -> impl Strategy<Value = Layout> {
    prop::collection::vec((strips(), 1u64..90), 1..4).prop_map(|parts| {
        let last = parts.len() - 1;
        let mut start = FileOffset::ZERO;
        let mut components = Vec::new();
        for (index, (strips, len)) in parts.into_iter().enumerate() {
            let end = (index < last).then(|| FileOffset(start.0 + len));
            components.push(Component { start, end, strips });
            start = end.unwrap_or(start);
        }
        Layout::from_components(components).expect("the strategy only makes valid layouts")
    })
}
