use super::*;
use crate::accept::Cap;
use crate::testing;
use alloc::vec;
use proptest::prelude::*;

fn backend(part: usize) -> BackendId {
    BackendId::new(part as u32)
}

fn volume(layout: Layout, capacity: u64, max_transfer: u64) -> Volume {
    Volume { capacity, layout, max_transfer, cap: Cap::default() }
}

fn concat(lengths: &[u64]) -> Layout {
    let part = |(part, &length)| Part { backend: backend(part), length };
    Layout::Concat(lengths.iter().enumerate().map(part).collect())
}

fn stripe(parts: usize, chunk: u64) -> Layout {
    Layout::Stripe { backends: (0..parts).map(backend).collect(), chunk }
}

fn request(op: Op, offset: u64, length: u64) -> Request {
    Request { op, extent: Extent::new(offset, length), ..testing::request(0) }
}

fn cut(volume: &Volume, request: &Request) -> Vec<Piece> {
    let mut pieces = Vec::new();
    volume.cut(request, &mut pieces);
    pieces
}

/// Where a byte is, by counting: the oracle.
fn home(layout: &Layout, byte: u64) -> (u32, u64) {
    match layout {
        Layout::One(_) => (0, byte),
        Layout::Concat(parts) => {
            let mut start = 0;
            for (part, Part { length, .. }) in parts.iter().enumerate() {
                if byte < start + length {
                    return (part as u32, byte - start);
                }
                start += length;
            }
            unreachable!("the byte is in the volume")
        }
        Layout::Stripe { backends, chunk } => {
            let mut filled = vec![0; backends.len()];
            for turn in 0..byte / chunk {
                filled[turn as usize % backends.len()] += chunk;
            }
            let part = (byte / chunk) as usize % backends.len();
            (part as u32, filled[part] + byte % chunk)
        }
    }
}

fn layouts() -> impl Strategy<Value = Layout> {
    prop_oneof![
        Just(Layout::One(backend(0))),
        prop::collection::vec(1_u64..40, 1..6)
            .prop_map(|blocks| concat(&blocks.iter().map(|n| n * 512).collect::<Vec<_>>())),
        (2_usize..6, 0_u32..3).prop_map(|(parts, power)| stripe(parts, CHUNK_MIN << power)),
    ]
}

fn capacity(layout: &Layout) -> u64 {
    match layout {
        Layout::One(_) => 64 << 10,
        Layout::Concat(parts) => parts.iter().map(|part| part.length).sum(),
        Layout::Stripe { backends, chunk } => backends.len() as u64 * chunk * 3,
    }
}

proptest! {
    /// The pieces of a request cover each of its bytes once, in the place that counting gives; each is
    /// within its limit, and there are as many as were foretold.
    #[test]
    fn pieces_cover_the_request(
        layout in layouts(),
        (from, to) in (0.0..1.0_f64, 0.0..1.0_f64),
        max_transfer in prop_oneof![Just(u64::MAX), 512_u64..20_000],
        op in prop::sample::select(vec![Op::Read, Op::Write, Op::Verify, Op::Discard, Op::WriteZeroes]),
    ) {
        let capacity = capacity(&layout);
        let block = |share: f64| (share * capacity as f64) as u64 / 512 * 512;
        let (start, end) = (block(from.min(to)), block(from.max(to)));
        let volume = volume(layout, capacity, max_transfer);
        let layout = &volume.layout;
        let request = request(op, start, end - start);
        let pieces = cut(&volume, &request);
        prop_assert_eq!(pieces.len() as u64, volume.pieces(&request));
        prop_assert_eq!(pieces[0].extent.offset, start);
        let mut covered = Vec::new();
        for piece in &pieces {
            prop_assert_eq!(piece.backend, layout.backend(piece.part as usize));
            prop_assert_eq!(home(layout, piece.extent.offset.min(capacity - 1)).0, piece.part);
            prop_assert!(request.payload() == 0 || piece.extent.length <= max_transfer);
            let bytes = piece.at..piece.at + piece.extent.length;
            covered.extend(bytes.step_by(512).map(|byte| (piece.part, byte)));
        }
        let mut wanted: Vec<_> = (start..end).step_by(512).map(|byte| home(layout, byte)).collect();
        if request.payload() > 0 {
            // What has a payload comes in its order: the buffer's bytes go where they belong.
            let mut next = start;
            for piece in &pieces {
                prop_assert_eq!(piece.extent.offset, next);
                next += piece.extent.length;
            }
            if max_transfer == u64::MAX {
                prop_assert_eq!(&covered, &wanted);
            }
        }
        if request.payload() == 0 || max_transfer.is_multiple_of(512) || max_transfer == u64::MAX {
            covered.sort_unstable();
            wanted.sort_unstable();
            prop_assert_eq!(covered, wanted);
        }
    }

    /// No two bytes of a volume are in one place, and the parts of a stripe have equally many.
    #[test]
    fn bytes_have_places_of_their_own(layout in layouts()) {
        let capacity = capacity(&layout);
        let place = |byte| {
            let Place { part, at, .. } = layout.place(byte);
            (part as u32, at)
        };
        let mut places: Vec<_> = (0..capacity).step_by(512).map(place).collect();
        let counted: Vec<_> = (0..capacity).step_by(512).map(|byte| home(&layout, byte)).collect();
        prop_assert_eq!(&places, &counted);
        places.sort_unstable();
        places.dedup();
        prop_assert_eq!(places.len() as u64, capacity / 512);
        if let Layout::Stripe { backends, chunk } = &layout {
            let on = |part| places.iter().filter(|&&(one, _)| one == part).count() as u64;
            for part in 0..backends.len() as u32 {
                prop_assert_eq!(on(part), 3 * chunk / 512);
            }
        }
    }
}

/// Neighbouring chunks of a stripe are on different parts, in turn, and a part's own are neighbours there.
#[test]
fn neighbours_are_spread() {
    let volume = volume(stripe(3, 4_096), 9 * 4_096, u64::MAX);
    let pieces = cut(&volume, &request(Op::Read, 2_048, 6 * 4_096));
    let places: Vec<_> =
        pieces.iter().map(|piece| (piece.part, piece.at, piece.extent.length)).collect();
    assert_eq!(
        places,
        [
            (0, 2_048, 2_048),
            (1, 0, 4_096),
            (2, 0, 4_096),
            (0, 4_096, 4_096),
            (1, 4_096, 4_096),
            (2, 4_096, 4_096),
            (0, 8_192, 2_048)
        ]
    );
}

/// What has no payload is one piece for each part of a stripe, however many chunks that is.
#[test]
fn a_discard_is_one_piece_on_each_part() {
    let volume = volume(stripe(3, 4_096), 3 << 30, 512);
    let discard = request(Op::Discard, 4_096, (3 << 30) - 4_096);
    let pieces = cut(&volume, &discard);
    let places: Vec<_> =
        pieces.iter().map(|piece| (piece.part, piece.at, piece.extent.length)).collect();
    let all = 1 << 30;
    assert_eq!(places, [(1, 0, all), (2, 0, all), (0, 4_096, all - 4_096)]);
    assert_eq!(volume.pieces(&discard), 3);
}

/// A flush goes to every part, whatever it covers.
#[test]
fn a_flush_goes_to_every_part() {
    for (layout, parts) in
        [(Layout::One(backend(0)), 1), (concat(&[512, 512]), 2), (stripe(5, 4_096), 5)]
    {
        let volume = volume(layout, 1_024, u64::MAX);
        let flush = request(Op::Flush, 0, 0);
        let on: Vec<_> = cut(&volume, &flush).iter().map(|piece| piece.part).collect();
        assert_eq!(on, (0..parts).collect::<Vec<u32>>());
        assert_eq!(volume.pieces(&flush), u64::from(parts));
    }
}

/// An update within a chunk or part is taken whole, even past the largest transfer; one that would cross
/// an edge is not.
#[test]
fn updates_are_never_cut() {
    let striped = volume(stripe(2, 4_096), 16_384, 512);
    let inside = request(Op::Update, 4_096, 4_096);
    assert!(!striped.cannot_cut(&inside));
    assert_eq!(cut(&striped, &inside).len(), 1);
    assert_eq!(striped.pieces(&inside), 1);
    assert!(striped.cannot_cut(&request(Op::Update, 2_048, 2_560)));
    assert!(!striped.cannot_cut(&request(Op::Write, 2_048, 2_560)));
    let joined = volume(concat(&[1_024, 1_024]), 2_048, u64::MAX);
    assert!(joined.cannot_cut(&request(Op::Update, 512, 1_024)));
    assert!(!joined.cannot_cut(&request(Op::Update, 1_024, 1_024)));
}

/// A layout that no pipeline could keep is refused with its reason.
#[test]
fn impossible_layouts_are_faults() {
    let part = |length| Part { backend: backend(0), length };
    for (layout, said) in [
        (Layout::One(backend(7)), "not there"),
        (concat(&[1_024, 0]), "empty"),
        (Layout::Concat(vec![part(u64::MAX), part(1)]), "past the end"),
        (Layout::Concat(vec![]), "no part"),
        (concat(&[512]), "larger than its parts"),
        (stripe(1, 4_096), "only one part"),
        (stripe(2, 2_048), "power of two"),
        (stripe(2, 12_288), "power of two"),
        (stripe(2, 32 << 20), "power of two"),
        (Layout::Stripe { backends: vec![backend(0); 65], chunk: 4_096 }, "more than 64"),
    ] {
        let message = layout.validate(1_024, 5).unwrap_err();
        assert!(message.contains(said), "{layout:?}: {message}");
    }
    for layout in [Layout::One(backend(0)), concat(&[512, 512]), stripe(5, CHUNK_MAX)] {
        assert_eq!(layout.validate(1_024, 5), Ok(()), "{layout:?}");
    }
}
