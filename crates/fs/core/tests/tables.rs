//! Expected offsets, computed by hand, for the layouts of the papers; and the limits of 64-bit numbers.

use weft_core::{
    Access, ByteLen, Component, Extent, FileOffset, Layout, LayoutError, ObjectId, SplitPolicy, Strip,
    TargetId,
};

const KIB: u64 = 1024;

fn targets(n: u32) -> Vec<TargetId> {
    (0..n).map(TargetId).collect()
}

/// (component, column, local offset, local length, pieces as (buffer offset, length), fragment)
type Row = (u16, u16, u64, u64, Vec<(u64, u64)>, bool);

fn rows(layout: &Layout, offset: u64, len: u64) -> Vec<Row> {
    layout
        .split(Extent::new(offset, len), Access::Sequential, SplitPolicy::default())
        .iter()
        .map(|sub| {
            let pieces = sub.pieces().map(|p| (p.offset.0, p.len.0)).collect();
            let ObjectId { component, column } = sub.object;
            (component, column, sub.local.offset.0, sub.local.len.0, pieces, sub.flags.fragment)
        })
        .collect()
}

#[track_caller]
fn places(layout: &Layout, table: &[(u64, u16, u16, u64)]) {
    for &(offset, component, column, local) in table {
        let found = layout.locate(FileOffset(offset));
        let expected = (ObjectId { component, column }, local);
        assert_eq!((found.object, found.local.0), expected, "offset {offset}");
        assert_eq!(layout.logical_end(found.object, ByteLen(local + 1)), FileOffset(offset + 1));
    }
}

#[test]
fn def_over_four_targets() {
    let layout = Layout::striped(&targets(4), ByteLen::from_kib(64)).unwrap();
    places(
        &layout,
        &[
            (0, 0, 0, 0),
            (64 * KIB - 1, 0, 0, 64 * KIB - 1),
            (64 * KIB, 0, 1, 0),
            (255 * KIB, 0, 3, 63 * KIB),
            (256 * KIB, 0, 0, 64 * KIB),
            (1024 * KIB + 65 * KIB + 7, 0, 1, 257 * KIB + 7),
        ],
    );
    // Aligned: one target each.
    assert_eq!(rows(&layout, 128 * KIB, 64 * KIB), [(0, 2, 0, 64 * KIB, vec![(0, 64 * KIB)], false)]);
    // 65 KiB: the 1 KiB after the stripe is a fragment.
    assert_eq!(
        rows(&layout, 0, 65 * KIB),
        [(0, 0, 0, 64 * KIB, vec![(0, 64 * KIB)], false), (0, 1, 0, KIB, vec![(64 * KIB, KIB)], true),]
    );
    // 47,008 bytes at 47,008: the second transfer of IO500's ior-hard.
    assert_eq!(
        rows(&layout, 47_008, 47_008),
        [(0, 0, 47_008, 18_528, vec![(0, 18_528)], true), (0, 1, 0, 28_480, vec![(18_528, 28_480)], false)]
    );
    // More than a round, from the middle of a stripe: the first target's local range is contiguous, its buffer is not.
    assert_eq!(
        rows(&layout, 224 * KIB, 320 * KIB),
        [
            (0, 3, 32 * KIB, 96 * KIB, vec![(0, 32 * KIB), (224 * KIB, 64 * KIB)], false),
            (0, 0, 64 * KIB, 96 * KIB, vec![(32 * KIB, 64 * KIB), (288 * KIB, 32 * KIB)], false),
            (0, 1, 64 * KIB, 64 * KIB, vec![(96 * KIB, 64 * KIB)], false),
            (0, 2, 64 * KIB, 64 * KIB, vec![(160 * KIB, 64 * KIB)], false),
        ]
    );
}

#[test]
fn variable_stripes_of_psa() {
    // PSA's <120 KB, 8 KB> on 4 + 4: a round is one 512 KiB request.
    let strips: Vec<_> =
        (0..8).map(|t| (TargetId(t), ByteLen::from_kib(if t < 4 { 120 } else { 8 }))).collect();
    let layout = Layout::variable(&strips).unwrap();
    places(
        &layout,
        &[
            (119 * KIB, 0, 0, 119 * KIB),
            (120 * KIB, 0, 1, 0),
            (480 * KIB, 0, 4, 0),
            (488 * KIB, 0, 5, 0),
            (511 * KIB, 0, 7, 7 * KIB),
            (512 * KIB, 0, 0, 120 * KIB),
            (512 * KIB * 3 + 481 * KIB, 0, 4, 25 * KIB),
        ],
    );
    assert_eq!(
        rows(&layout, 476 * KIB, 20 * KIB),
        [
            (0, 3, 116 * KIB, 4 * KIB, vec![(0, 4 * KIB)], true),
            (0, 4, 0, 8 * KIB, vec![(4 * KIB, 8 * KIB)], true),
            (0, 5, 0, 8 * KIB, vec![(12 * KIB, 8 * KIB)], true),
        ]
    );
    let whole = rows(&layout, 512 * KIB, 512 * KIB);
    assert_eq!(whole.len(), 8);
    assert!(whole.iter().all(|row| row.4.len() == 1));
}

#[test]
fn two_part_file_of_psa() {
    let head: Vec<_> =
        (0..8).map(|t| (TargetId(t), ByteLen::from_kib(if t < 4 { 28 } else { 100 }))).collect();
    let layout = Layout::two_part(&head, FileOffset(1024 * KIB), &targets(4)).unwrap();
    // S = 512 KiB, m = 4.
    assert!(layout.components()[1].strips.iter().all(|s| s.stripe_size == ByteLen::from_kib(128)));
    assert_eq!(layout.objects().count(), 12);
    places(
        &layout,
        &[
            (112 * KIB, 0, 4, 0),
            (1024 * KIB - 1, 0, 7, 200 * KIB - 1),
            (1024 * KIB, 1, 0, 0),
            (1152 * KIB, 1, 1, 0),
            (1536 * KIB + 5, 1, 0, 128 * KIB + 5),
        ],
    );
    // Across the boundary: the last object of the head, then the first one of the tail.
    assert_eq!(
        rows(&layout, 1014 * KIB, 74 * KIB),
        [
            (0, 7, 190 * KIB, 10 * KIB, vec![(0, 10 * KIB)], true),
            (1, 0, 0, 64 * KIB, vec![(10 * KIB, 64 * KIB)], false),
        ]
    );
    // A file of 1.1 MiB: the head is full, the tail has begun.
    let size = FileOffset(1024 * KIB + 100 * KIB);
    let len = |component, column| layout.local_len(ObjectId { component, column }, size).0;
    assert_eq!((len(0, 0), len(0, 7), len(1, 0), len(1, 1)), (56 * KIB, 200 * KIB, 100 * KIB, 0));
    assert_eq!(layout.last_object(size).unwrap().0, ObjectId { component: 1, column: 0 });
}

#[test]
fn holes_do_not_move_later_bytes() {
    let layout = Layout::striped(&targets(4), ByteLen::from_kib(64)).unwrap();
    // One byte at 640 KiB + 3 in an otherwise empty file: third round, column 2.
    let size = layout.file_size([(ObjectId { component: 0, column: 2 }, ByteLen(128 * KIB + 4))]);
    assert_eq!(size, FileOffset(640 * KIB + 4));
    // Column 1 was written only up to its second stripe; the size is determined by column 2.
    let lens = [
        (ObjectId { component: 0, column: 1 }, ByteLen(70 * KIB)),
        (ObjectId { component: 0, column: 2 }, ByteLen(128 * KIB + 4)),
    ];
    assert_eq!(layout.file_size(lens), size);
    assert_eq!(layout.file_size([]), FileOffset::ZERO);
}

#[test]
fn one_target_is_one_piece() {
    let layout = Layout::single(TargetId(9));
    let request = rows(&layout, 5 * KIB, 4096 * KIB);
    assert_eq!(request, [(0, 0, 5 * KIB, 4096 * KIB, vec![(0, 4096 * KIB)], false)]);
}

#[test]
fn columns_on_one_target_are_not_fragments() {
    let layout = Layout::striped(&[TargetId(1), TargetId(1)], ByteLen::from_kib(4)).unwrap();
    let subs = layout.split(Extent::new(0, 8 * KIB), Access::Random, SplitPolicy::default());
    assert_eq!(subs.len(), 2);
    assert!(subs.iter().all(|sub| sub.siblings == 2 && !sub.flags.fragment && sub.flags.small_random));
}

#[test]
fn the_last_bytes_of_the_number_range() {
    const END: u64 = u64::MAX;
    for stripe in [1, 3, 4096, 47_008, 1 << 46] {
        let layout = Layout::striped(&targets(3), ByteLen(stripe)).unwrap();
        for len in [0, 1, 2, 5000, END] {
            let subs = layout.split(Extent::new(END - len, len), Access::Random, SplitPolicy::default());
            assert_eq!(subs.iter().map(|sub| u128::from(sub.local.len.0)).sum::<u128>(), u128::from(len));
            for sub in &subs {
                let held = layout.local_len(sub.object, FileOffset(END)).0;
                assert_eq!(sub.local.end().unwrap().0, held, "up to the object's last byte");
                assert_eq!(sub.pieces().next().unwrap().offset, sub.buffer_offset());
                let last = sub.pieces_after(ByteLen(sub.local.len.0 - 1)).last().unwrap();
                assert_eq!(last.len, ByteLen(1));
                let at = layout.logical_end(sub.object, ByteLen(held)).0 - 1;
                assert_eq!(
                    last.offset.0,
                    at - (END - len),
                    "the last piece's offset, computed by the inverse"
                );
            }
        }
        // Computed from the definition with 128-bit arithmetic.
        let last = u128::from(END - 1);
        let (round, within) = (last / (3 * u128::from(stripe)), last % (3 * u128::from(stripe)));
        let found = layout.locate(FileOffset(END - 1));
        assert_eq!(u128::from(found.object.column), within / u128::from(stripe));
        assert_eq!(u128::from(found.local.0), round * u128::from(stripe) + within % u128::from(stripe));
        assert_eq!(layout.logical_end(found.object, ByteLen(found.local.0 + 1)), FileOffset(END));
        let sum: u128 =
            layout.objects().map(|(o, _)| u128::from(layout.local_len(o, FileOffset(END)).0)).sum();
        assert_eq!(sum, u128::from(END));
    }
}

#[test]
fn impossible_lengths_count_as_full() {
    let head = [(TargetId(0), ByteLen(10)), (TargetId(1), ByteLen(10))];
    let layout = Layout::two_part(&head, FileOffset(15), &targets(1)).unwrap();
    assert_eq!(layout.logical_end(ObjectId { component: 0, column: 0 }, ByteLen(u64::MAX)), FileOffset(10));
    assert_eq!(layout.logical_end(ObjectId { component: 0, column: 1 }, ByteLen(u64::MAX)), FileOffset(15));
    let tail = ObjectId { component: 1, column: 0 };
    assert_eq!(layout.logical_end(tail, ByteLen(u64::MAX)), FileOffset(u64::MAX));
}

#[test]
#[should_panic(expected = "passes 2^64 - 1")]
fn a_range_past_the_maximum_panics() {
    Layout::single(TargetId(0)).split(Extent::new(u64::MAX, 1), Access::Random, SplitPolicy::Off);
}

#[test]
#[should_panic(expected = "object 0.1 is not one of this layout")]
fn an_object_of_another_layout_panics() {
    Layout::single(TargetId(0)).logical_end(ObjectId { component: 0, column: 1 }, ByteLen(1));
}

fn component(start: u64, end: Option<u64>, stripes: &[u64]) -> Component {
    let strip = |&size: &u64| Strip { target: TargetId(0), stripe_size: ByteLen(size) };
    Component {
        start: FileOffset(start),
        end: end.map(FileOffset),
        strips: stripes.iter().map(strip).collect(),
    }
}

#[test]
fn invalid_layouts_are_rejected_with_the_reason() {
    use LayoutError::*;
    let check = |components| Layout::from_components(components).unwrap_err();
    assert_eq!(check(vec![]), Empty);
    assert_eq!(check(vec![component(0, None, &[])]), NoStrips { component: 0 });
    assert_eq!(check(vec![component(0, None, &[4, 0])]), ZeroStripe { component: 0, column: 1 });
    assert_eq!(
        check(vec![component(0, None, &[(1 << 46) + 1])]),
        StripeTooLarge { component: 0, column: 0, stripe_size: ByteLen((1 << 46) + 1) }
    );
    assert_eq!(check(vec![component(0, Some(9), &[1])]), Bounded { end: FileOffset(9) });
    assert_eq!(
        check(vec![component(3, None, &[1])]),
        Gap { component: 0, from: FileOffset(0), to: FileOffset(3) }
    );
    assert_eq!(
        check(vec![component(0, Some(5), &[1]), component(7, None, &[1])]),
        Gap { component: 1, from: FileOffset(5), to: FileOffset(7) }
    );
    assert_eq!(
        check(vec![component(0, Some(5), &[1]), component(4, None, &[1])]),
        Overlap { component: 1, start: FileOffset(4) }
    );
    assert_eq!(
        check(vec![component(0, None, &[1]), component(4, None, &[1])]),
        Overlap { component: 1, start: FileOffset(4) }
    );
    assert_eq!(
        check(vec![component(0, Some(0), &[1]), component(0, None, &[1])]),
        Backwards { component: 0, start: FileOffset(0), end: FileOffset(0) }
    );
    assert_eq!(check(vec![component(0, None, &[1; 65_536])]), TooManyColumns { count: 65_536 });
    assert!(Layout::from_components(vec![component(0, None, &[1 << 46; 65_535])]).is_ok());
    let many: Vec<_> = (0..1025u64).map(|i| component(i, (i < 1024).then_some(i + 1), &[1])).collect();
    assert_eq!(check(many), TooManyComponents { count: 1025 });
}

#[test]
fn decoding_checks_and_round_trips() {
    let layout = Layout::two_part(&[(TargetId(3), ByteLen(7))], FileOffset(100), &targets(2)).unwrap();
    let bytes = postcard::to_allocvec(&layout).unwrap();
    assert_eq!(bytes, postcard::to_allocvec(&layout.to_raw()).unwrap());
    // Components; for each: start, end (1 = present), strips, and for each strip: target, stripe size.
    assert_eq!(bytes, [2, 0, 1, 100, 1, 3, 7, 100, 0, 2, 0, 3, 1, 3], "layouts on disk must stay readable");
    assert_eq!(postcard::from_bytes::<Layout>(&bytes).unwrap(), layout);
    let mut raw = layout.to_raw();
    raw.components[1].start = FileOffset(99);
    let bytes = postcard::to_allocvec(&raw).unwrap();
    assert!(postcard::from_bytes::<Layout>(&bytes).is_err());
}
