//! Layouts: decoding, validation and lookups.

use crate::Outcome;
use crate::alloc::bounded;
use crate::rng::Rng;
use crate::seeds::encoded;
use weft_core::access::Access;
use weft_core::split::SplitPolicy;
use weft_core::{ByteLen, Component, Extent, FileOffset, Layout, RawLayout, Strip, TargetId};

pub fn layout(data: &[u8]) -> Outcome {
    let raw = bounded(data.len(), 64, (2 << 20) + 8192, || postcard::take_from_bytes::<RawLayout>(data));
    let Ok((raw, rest)) = raw else { return Outcome::Refused };
    let used = &data[..data.len() - rest.len()];
    let direct = postcard::from_bytes::<Layout>(used);
    match raw.clone().check() {
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(direct.is_err(), "decoding a layout validates it");
            Outcome::Refused
        }
        Ok(layout) => {
            assert_eq!(direct.as_ref(), Ok(&layout));
            assert_eq!(layout.to_raw(), raw);
            let again = encoded(&layout);
            assert_eq!(again, encoded(&raw), "a layout is written as its raw form");
            assert_eq!(postcard::from_bytes::<Layout>(&again).as_ref(), Ok(&layout));
            let mut rng = Rng::new(crc32fast::hash(data).into());
            for _ in 0..4 {
                lookups(&layout, &mut rng);
            }
            Outcome::Accepted
        }
    }
}

/// Asserts that lookups in a valid layout are consistent, whatever its numbers.
fn lookups(layout: &Layout, rng: &mut Rng) {
    let offset = (rng.next() >> rng.below(64)).min(u64::MAX - 1);
    // Short enough to visit every piece, even if a stripe is one byte long.
    let len = (rng.next() % 5_000).min(u64::MAX - offset);
    let subs = layout.split(Extent::new(offset, len), Access::Random, SplitPolicy::default());
    let mut covered = vec![false; len as usize];
    for sub in &subs {
        assert_eq!(layout.target(sub.object), Some(sub.target));
        assert!(sub.local.len.0 > 0 && sub.local.end().is_some());
        for piece in sub.pieces() {
            for byte in &mut covered[piece.range()] {
                assert!(!std::mem::replace(byte, true), "a byte is in two pieces");
            }
        }
        let end = layout.logical_end(sub.object, ByteLen(sub.local.end().expect("checked").0));
        assert!(end.0 > offset && end.0 <= offset + len, "the piece's last byte is within the range");
    }
    assert!(covered.iter().all(|byte| *byte), "a byte is in no piece");
    let at = layout.locate(FileOffset(offset));
    assert_eq!(layout.logical_end(at.object, ByteLen(at.local.0 + 1)), FileOffset(offset + 1));
    let objects: Vec<_> = layout.objects().take(100).collect();
    let size = layout.file_size(objects.iter().map(|&(object, _)| {
        let len = layout.local_len(object, FileOffset(offset));
        (object, len)
    }));
    assert!(size.0 <= offset, "the datafile lengths of a file of {offset} bytes give no larger size");
    for &(object, _) in &objects {
        layout.logical_end(object, ByteLen(rng.next())); // an invalid length must not panic
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let strips = |count: u32, size: fn(u32) -> u64| -> Vec<Strip> {
        (0..count).map(|n| Strip { target: TargetId(n), stripe_size: ByteLen(size(n)) }).collect()
    };
    let component = |start, end: Option<u64>, strips| Component {
        start: FileOffset(start),
        end: end.map(FileOffset),
        strips,
    };
    let raw = |components| encoded(&RawLayout { components });
    let many = (0..1000).map(|n| {
        component(n * 4096, (n < 999).then_some((n + 1) * 4096), strips(3, |n| u64::from(n) * 100 + 1))
    });
    vec![
        raw(vec![component(0, None, strips(4, |_| 65_536))]),
        raw(vec![component(0, None, strips(3, |n| 47_008 + u64::from(n)))]),
        raw(vec![
            component(0, Some(1 << 30), strips(2, |_| 1)),
            component(1 << 30, None, strips(2, |_| 1 << 46)),
        ]),
        raw(many.collect()),
        raw(vec![component(0, None, strips(65_535, |_| 1 << 46))]),
        raw(vec![]),
        raw(vec![component(0, Some(5), strips(1, |_| 1))]),
        raw(vec![component(1, None, strips(1, |_| 0))]),
    ]
}
