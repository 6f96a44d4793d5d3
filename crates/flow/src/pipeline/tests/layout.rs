//! Volumes on several backends.

use super::*;
use crate::accept::Part;

/// Two backends of one path each, and one volume on both.
fn on_two(layout: Layout) -> Pipeline<Seen> {
    let volume = Volume { layout, max_transfer: 8 << 10, ..config().volumes[0].clone() };
    let backends = vec![Backend::alike(1); 2];
    Pipeline::new(&Config { volumes: vec![volume], backends, ..config() }, Seen::default())
}

fn backends() -> Vec<BackendId> {
    vec![BackendId::new(0), BackendId::new(1)]
}

fn striped() -> Pipeline<Seen> {
    on_two(Layout::Stripe { backends: backends(), chunk: 4 << 10 })
}

fn joined() -> Pipeline<Seen> {
    let part = |backend| Part { backend, length: 512 << 10 };
    on_two(Layout::Concat(backends().into_iter().map(part).collect()))
}

/// Part, backend, offset there, length, offset in the payload, in the order of the last: which backend is
/// served first is up to dispatch.
fn places(ios: &[StoreIo]) -> Vec<(u32, usize, u64, u64, u64)> {
    let place = |io: &StoreIo| {
        let Extent { offset, length } = io.extent;
        (io.part, io.backend.index(), offset, length, io.offset_in_request)
    };
    let mut places: Vec<_> = ios.iter().map(place).collect();
    places.sort_by_key(|&(.., offset)| offset);
    places
}

/// An action names the part and the bytes there, and where these are in the payload.
#[test]
fn pieces_go_to_their_parts() {
    let mut pipeline = striped();
    let write = request(1, Op::Write, 6 << 10, 8 << 10);
    let ios = ios(&step(&mut pipeline, 0, Input::Arrive(write)));
    let k = 1 << 10;
    let wanted =
        [(1, 1, 2 * k, 2 * k, 0), (0, 0, 4 * k, 4 * k, 2 * k), (1, 1, 4 * k, 2 * k, 6 * k)];
    assert_eq!(places(&ios), wanted);
    let mut pipeline = joined();
    let read = request(1, Op::Read, 508 << 10, 16 << 10);
    let actions = step(&mut pipeline, 0, Input::Arrive(read));
    let wanted = [(0, 0, 508 * k, 4 * k, 0), (1, 1, 0, 8 * k, 4 * k), (1, 1, 8 * k, 4 * k, 12 * k)];
    assert_eq!(places(&super::ios(&actions)), wanted);
}

/// A request that is on one part alone goes there whole.
#[test]
fn one_piece_knows_its_part() {
    let mut pipeline = striped();
    let read = request(1, Op::Read, 12 << 10, 4 << 10);
    let ios = ios(&step(&mut pipeline, 0, Input::Arrive(read)));
    assert_eq!(places(&ios), [(1, 1, 4 << 10, 4 << 10, 0)]);
}

/// A flush ends when the last part has flushed, and has failed if one of them has.
#[test]
fn a_flush_is_over_when_all_parts_are() {
    for mut pipeline in [striped(), joined()] {
        for (tag, failing) in [(1, None), (2, Some(0)), (3, Some(1))] {
            let flush = Request { op: Op::Flush, ..testing::request(tag) };
            let flush = Request { extent: Extent::default(), ..flush };
            let ios = ios(&step(&mut pipeline, 0, Input::Arrive(flush)));
            assert_eq!(places(&ios), [(0, 0, 0, 0, 0), (1, 1, 0, 0, 0)]);
            let outcome = |part| if failing == Some(part) { Err(IoError::Medium) } else { Ok(()) };
            let stored = |part: usize| Input::Stored { key: ios[part].key, outcome: outcome(part) };
            assert!(replies(&step(&mut pipeline, 0, stored(1))).is_empty(), "one part is left");
            let actions = step(&mut pipeline, 0, stored(0));
            let replies = replies(&actions);
            let wanted = failing.map_or(Ok(()), |_| Err(IoError::Medium));
            let [(_, Tag(told), outcome)] = replies[..] else { panic!("{replies:?}") };
            assert_eq!((told, outcome), (tag, wanted));
            step(&mut pipeline, 0, sent(&actions));
        }
    }
}

/// An update that is on two parts is refused, and leaves nothing behind; one within a part goes there.
#[test]
fn an_update_on_two_parts_is_refused() {
    let mut pipeline = striped();
    let across = request(1, Op::Update, 3 << 10, 2 << 10);
    let actions = step(&mut pipeline, 0, Input::Arrive(across));
    let [(_, Tag(1), Err(IoError::Unsupported))] = replies(&actions)[..] else {
        panic!("{actions:?}")
    };
    assert!(ios(&actions).is_empty());
    step(&mut pipeline, 0, sent(&actions));
    assert_eq!(pipeline.outstanding(), 0);
    let within = request(2, Op::Update, 5 << 10, 2 << 10);
    let ios = ios(&step(&mut pipeline, 0, Input::Arrive(within)));
    assert_eq!(places(&ios), [(1, 1, 1 << 10, 2 << 10, 0)]);
}

/// What overlaps in the volume keeps its order, wherever the bytes are.
#[test]
fn overlaps_are_of_the_volume() {
    let mut pipeline = striped();
    let write = ios(&step(&mut pipeline, 0, Input::Arrive(request(1, Op::Write, 0, 8 << 10))));
    assert_eq!(write.len(), 2);
    // The same bytes of the other part, which are others of the volume.
    let free = step(&mut pipeline, 0, Input::Arrive(request(2, Op::Write, 8 << 10, 8 << 10)));
    assert_eq!(ios(&free).len(), 2);
    let read = Input::Arrive(request(3, Op::Read, 4 << 10, 512));
    assert!(ios(&step(&mut pipeline, 0, read)).is_empty());
    let stored = |index: usize| Input::Stored { key: write[index].key, outcome: Ok(()) };
    assert!(ios(&step(&mut pipeline, 1, stored(1))).is_empty(), "the write is not over");
    let read = ios(&step(&mut pipeline, 2, stored(0)));
    assert_eq!(places(&read), [(1, 1, 0, 512, 0)]);
}
