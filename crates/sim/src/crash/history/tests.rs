//! The laws on small histories.

use super::*;

/// Three writes to four sectors: 0..2, 1..3, and zeroes on 0..1.
fn history() -> (History, [u64; 2], [u64; 2]) {
    let mut history = History::new(4);
    history.arrive(0..2, false);
    history.arrive(1..3, false);
    history.arrive(0..1, true);
    let first = [history.written(0, 0), history.written(0, 1)];
    let second = [history.written(1, 1), history.written(1, 2)];
    (history, first, second)
}

fn some<const N: usize>(tokens: [u64; N]) -> [Option<u64>; N] {
    tokens.map(Some)
}

/// Every first part is one, with a write in pieces as far as its first sectors go, and nothing else is.
#[test]
fn prefixes_are_told() {
    let (mut history, [a, b], [c, d]) = history();
    for (volume, expected) in [
        ([0, 0, 0, 0], (0, 0)),
        ([a, 0, 0, 0], (0, 1)),
        ([a, b, 0, 0], (1, 0)),
        ([a, c, 0, 0], (1, 1)),
        ([a, c, d, 0], (2, 0)),
        ([0, c, d, 0], (3, 0)),
    ] {
        assert_eq!(history.prefix(&some(volume)), Ok(expected), "{volume:?}");
    }
    for volume in [[0, b, 0, 0], [a, b, d, 0], [0, c, 0, 0], [a, c, d, 7], [b, a, 0, 0]] {
        let broken = history.prefix(&some(volume)).unwrap_err();
        assert_eq!(broken.law(), "prefix", "{volume:?}");
    }
    assert_eq!(history.prefix(&[None, None, None, None]).unwrap_err().law(), "prefix");
    // Read of the second: its first sector.
    history.promise_seen(2, 1);
    assert_eq!(history.prefix(&some([a, b, 0, 0])).unwrap_err().law(), "promise");
    assert_eq!(history.prefix(&some([a, c, 0, 0])), Ok((1, 1)));
    history.promise(2);
    assert_eq!(history.prefix(&some([a, c, 0, 0])).unwrap_err().law(), "prefix");
    assert_eq!(history.prefix(&some([a, b, 0, 0])).unwrap_err().law(), "promise");
    assert_eq!(history.prefix(&some([a, c, d, 0])), Ok((2, 0)));
}

/// Between barriers anything goes, across one nothing; what must be upstream must be there.
#[test]
fn the_upstream_is_held_to_barriers() {
    let (mut history, [a, b], [c, d]) = history();
    for volume in [[0, 0, d, 0], [a, c, 0, 0], [0, b, d, 0]] {
        assert_eq!(history.legal(&some(volume)), Ok(()), "{volume:?}");
    }
    assert!(history.legal(&some([0, 0, 0, 5])).is_err());
    history.promise_upstream(1);
    assert!(history.legal(&some([0, 0, d, 0])).is_err());
    assert_eq!(history.legal(&some([0, b, 0, 0])), Ok(()));
    history.barrier(3);
    let place = history.arrive(3..4, false);
    let last = history.written(place, 3);
    assert_eq!(history.legal(&some([0, c, d, last])), Ok(()));
    assert_eq!(history.legal(&some([0, c, d, 0])), Ok(()));
    assert_eq!(history.legal(&some([0, c, 0, 0])), Ok(()));
    for volume in [[0, c, 0, last], [a, c, d, last], [0, b, d, last]] {
        assert_eq!(history.legal(&some(volume)).unwrap_err().law(), "upstream", "{volume:?}");
    }
}

/// A read returns what was acknowledged before it was asked, or something newer.
#[test]
fn reads_are_not_stale() {
    let (history, [a, b], [c, _]) = history();
    assert_eq!(history.read(1, Some(c), 1), Ok(2));
    assert_eq!(history.read(1, Some(b), 1), Ok(1));
    assert_eq!(history.read(1, Some(b), 2).unwrap_err().law(), "read");
    assert_eq!(history.read(0, Some(0), 0), Ok(0));
    assert_eq!(history.read(0, Some(0), 1), Ok(3));
    assert_eq!(history.read(0, Some(a), 3).unwrap_err().law(), "read");
    assert!(history.read(1, None, 0).is_err());
}

/// After a crash what it took never was: the next change follows what it left.
#[test]
fn a_restart_forgets() {
    let (mut history, [a, _], [c, _]) = history();
    history.barrier(3);
    history.restart(&some([a, c, 0, 0])).unwrap();
    assert_eq!(history.changes.len(), 2);
    assert_eq!(history.prefix(&some([a, c, 0, 0])), Ok((2, 0)));
    assert_eq!(history.barriers[1], Barrier { before: 2, arrived: 2 });
    let place = history.arrive(2..3, false);
    let new = history.written(place, 2);
    assert_eq!(history.prefix(&some([a, c, new, 0])), Ok((3, 0)));
    history.refused(place);
    assert_eq!(history.prefix(&some([a, c, 0, 0])), Ok((3, 0)));
}

/// Where a volume differs from what an intact log would have left, it has what the last crash took back, sector by sector,
/// and nothing older or newer.
#[test]
fn a_restart_says_what_it_took_back() {
    let (mut history, [a, b], [c, d]) = history();
    history.restart(&some([a, c, 0, 0])).unwrap();
    let intact = some([a, c, 0, 0]);
    for volume in [[a, c, 0, 0], [0, c, 0, 0], [a, c, d, 0], [0, c, d, 0]] {
        assert!(history.took_back(&some(volume), &intact), "{volume:?}");
    }
    for volume in [[a, b, 0, 0], [a, 0, 0, 0], [a, c, 0, d], [a, c, 7, 0]] {
        assert!(!history.took_back(&some(volume), &intact), "{volume:?}");
    }
    // The next crash takes back less, and what the one before took is forgotten.
    history.restart(&intact).unwrap();
    assert!(history.took_back(&intact, &intact));
    assert!(!history.took_back(&some([a, c, d, 0]), &intact));
}

/// Changes that bypass the log may be lost one by one, and none of what is upstream before; so they may when the log is
/// used again, which keeps the order of what it has. What a flush covers is not lost, nor is anything of it when
/// something of the log is sent upstream.
#[test]
fn what_bypasses_the_log_is_a_debt() {
    let (mut history, [a, b], [c, d]) = history();
    history.acked(0);
    history.promise(1);
    history.passed(1);
    history.passed(2);
    for volume in [[a, b, 0, 0], [a, c, 0, 0], [a, b, d, 0], [0, b, d, 0]] {
        assert_eq!(history.survives(&some(volume)), Ok(()), "{volume:?}");
    }
    assert_eq!(history.survives(&some([a, 0, d, 0])).unwrap_err().law(), "prefix");
    // A crash: what has gone never was, what is there may go until it is flushed.
    assert_eq!(history.restart(&some([a, b, d, 0])).unwrap(), "what a disk may have");
    assert_eq!(history.survives(&some([a, b, 0, 0])), Ok(()));
    assert!(history.survives(&some([a, c, d, 0])).is_err());
    history.settle();
    let place = history.arrive(3..4, false);
    let last = history.written(place, 3);
    let next = history.arrive(0..2, false);
    let [low, high] = [history.written(next, 0), history.written(next, 1)];
    for volume in [[a, b, 0, 0], [a, b, d, last], [a, b, 0, last], [low, high, 0, last]] {
        assert_eq!(history.survives(&some(volume)), Ok(()), "{volume:?}");
    }
    for volume in [[0, b, d, last], [low, high, d, 0], [a, high, d, last]] {
        assert!(history.survives(&some(volume)).is_err(), "{volume:?}");
    }
    history.promise(place + 1);
    assert_eq!(history.survives(&some([a, b, d, 0])).unwrap_err().law(), "promise");
    let mut flushed = history.clone();
    flushed.flushed(place + 1, place + 1, false);
    history.written_back();
    for paid in [flushed, history] {
        assert!(!paid.is_in_debt());
        assert_eq!(paid.survives(&some([a, b, d, last])), Ok(()));
        assert!(paid.survives(&some([a, b, 0, last])).is_err());
        assert_eq!(paid.legal(&some([a, b, 0, 0])).unwrap_err().law(), "upstream");
    }
}

/// Until what a restart found is durable, a crash may show what was before it instead; then no more. Nor when
/// a host has seen what was found.
#[test]
fn what_was_found_can_be_lost_until_it_is_durable() {
    let (mut history, [a, b], [c, d]) = history();
    history.restart(&some([a, c, 0, 0])).unwrap();
    assert_eq!(history.survives(&some([a, c, d, 0])), Ok(()));
    let mut told = history.clone();
    told.promise_seen(2, 1);
    let mut settled = history.clone();
    settled.settle();
    for strict in [told, settled] {
        assert_eq!(strict.survives(&some([a, c, d, 0])).unwrap_err().law(), "prefix");
    }
    // The next restart finds that, and continues from there.
    history.restart(&some([0, c, d, 0])).unwrap();
    history.settle();
    assert_eq!(history.survives(&some([0, c, d, 0])), Ok(()));
    assert_eq!(history.survives(&some([a, b, 0, 0])), Ok(()));
}

/// A restart has found the first sectors of a change that was not acknowledged. A read of the first of them, which is
/// upstream, promises no other of them as long as they are not durable in the log; then it promises all.
#[test]
fn a_read_promises_what_it_may_have_seen() {
    let (mut history, [a, b], [c, d]) = history();
    history.restart(&some([a, c, d, 0])).unwrap();
    let mut durable = history.clone();
    durable.settle();
    for history in [&mut history, &mut durable] {
        history.promise_seen(2, 1);
        history.promise_seen(2, 1);
        assert_eq!(history.survives(&some([a, b, 0, 0])).unwrap_err().law(), "promise");
        assert_eq!(history.survives(&some([a, c, d, 0])), Ok(()));
    }
    assert_eq!(history.survives(&some([a, c, 0, 0])), Ok(()));
    assert!(durable.survives(&some([a, c, 0, 0])).is_err());
}

/// What memory shows of what the upstream has lost is no lie until the loss can be known; then it is.
#[test]
fn a_loss_that_nobody_knows_of_is_none() {
    let (mut history, [a, b], [c, _]) = history();
    history.acked(0);
    history.passed(0);
    history.passed(1);
    history.acked(1);
    history.lost(&some([a, b, 0, 0]));
    assert_eq!(history.read(1, Some(c), 2), Ok(2));
    history.found_out();
    assert_eq!(history.read(1, Some(c), 2).unwrap_err().law(), "read");
    assert_eq!(history.read(1, Some(b), 2), Ok(1));
}

/// Whether single sectors can be written one after the other, each with a version that the log still has, so that a
/// volume of two sectors ends with the newest ones and is legal at every step.
fn reaches(history: &History, kept: &[Vec<u64>; 2]) -> bool {
    let newest = [0, 1].map(|sector| history.newest(sector).unwrap());
    let (mut seen, mut next) = (std::collections::BTreeSet::new(), vec![[0, 0]]);
    while let Some(image) = next.pop() {
        if history.legal(&some(image)).is_err() || !seen.insert(image) {
            continue;
        }
        for sector in 0..2 {
            let written = kept[sector].iter().map(|&token| {
                let mut image = image;
                image[sector] = token;
                image
            });
            next.extend(written);
        }
    }
    seen.contains(&newest)
}

/// The least number of writes that the log must keep for that: `sectors` were written in turn, and a flush was answered
/// after each write that `flushed` says.
fn least_kept(sectors: &[u32], flushed: impl Fn(usize) -> bool) -> u32 {
    let mut history = History::new(2);
    let mut written = Vec::new();
    for (i, &sector) in sectors.iter().enumerate() {
        let place = history.arrive(sector..sector + 1, false);
        written.push((sector, history.written(place, sector)));
        if flushed(i) {
            history.barrier(i + 1);
        }
    }
    let suffices = |&set: &u32| {
        let kept = [0, 1].map(|sector| {
            let of =
                |&(i, &(other, _)): &(usize, &(u32, u64))| other == sector && set >> i & 1 == 1;
            written.iter().enumerate().filter(of).map(|(_, &(_, token))| token).collect()
        });
        reaches(&history, &kept)
    };
    let sets = (0..1_u32 << sectors.len()).filter(suffices);
    sets.map(u32::count_ones).min().expect("write-back in order is legal")
}

/// While the upstream is a legal image at every instant, the log keeps the newest data of every epoch but for one sector of
/// each, however often that was overwritten since. Only within an epoch, and between epochs that write one sector alone, can
/// superseded data go before its epoch (`docs/decisions/0035-log-limit.md`).
#[test]
fn flushes_keep_superseded_data_in_the_log() {
    let turns = [0, 1, 0, 1, 0, 1, 0, 1];
    assert_eq!(least_kept(&turns, |_| false), 2, "one epoch");
    assert_eq!(least_kept(&turns, |_| true), 8, "an epoch for each write");
    assert_eq!(least_kept(&turns, |i| i % 2 == 1), 4 * 2 - 3, "four epochs of two sectors");
    assert_eq!(least_kept(&turns, |i| i == 3), 2 * 2 - 1, "two of them");
    assert_eq!(least_kept(&[0, 0, 0, 1, 1, 0], |_| true), 3, "three runs on one sector");
}

/// An update is there or not whatever of the log is. Acknowledged, it must be there; found after a crash, it may go until a
/// flush is answered.
#[test]
fn updates_stand_apart() {
    let mut history = History::new(4);
    history.arrive(0..1, false);
    let tokens = [history.next_token(2)];
    let update = history.arrive_update(2..3, &tokens, false);
    let (without, mut with) = (vec![Some(0); 4], vec![Some(0); 4]);
    with[2] = Some(tokens[0]);
    assert!(history.survives(&with).is_ok() && history.survives(&without).is_ok());
    let mut found = history.clone();
    history.acked(update);
    assert!(history.survives(&with).is_ok() && history.survives(&without).is_err());
    found.restart(&with).unwrap();
    found.settle();
    assert!(found.survives(&with).is_ok() && found.survives(&without).is_ok());
    found.flushed(found.last_acked(), found.first_unacked(), false);
    assert!(found.survives(&with).is_ok() && found.survives(&without).is_err());
}

/// Of an atomic write that was not acknowledged all is there or nothing.
#[test]
fn a_torn_atomic_write_is_noticed() {
    let mut history = History::new(4);
    let tokens = [1, 2].map(|sector| history.next_token(sector));
    history.arrive_update(1..3, &tokens, true);
    let volume = |first, second| [Some(0), first, second, Some(0)];
    let [first, second] = tokens.map(Some);
    assert!(history.is_untorn(&volume(first, second)).is_ok());
    assert!(history.is_untorn(&volume(Some(0), Some(0))).is_ok());
    let torn = history.is_untorn(&volume(first, Some(0)));
    assert_eq!(torn.unwrap_err().law(), "atomic");
}

/// What was given up may be anything until it is overwritten.
#[test]
fn what_is_given_up_is_not_judged() {
    let mut history = History::new(2);
    let first = history.arrive(0..1, false);
    history.acked(first);
    history.promise(1);
    let gone = [GONE, Some(0)];
    assert!(history.survives(&gone).is_ok() && history.survives(&[Some(0); 2]).is_err());
    history.give_up([0].into_iter());
    let second = history.arrive(0..1, false);
    history.acked(second);
    assert!(!history.heals(second, &[0]), "it is still kept as lost");
    assert!(history.heals(second, &[]) && !history.is_given(0));
}

/// An OR reads what was left before it, of which the upstream may have lost something; what it leaves follows from that, and
/// made again it may find that.
#[test]
fn an_or_depends_on_what_is_there() {
    let mut history = History::new(1);
    let write = history.arrive(0..1, false);
    let token = history.written(write, 0);
    history.passed(write);
    history.acked(write);
    let or = history.arrive_update(0..1, &[token], false);
    let reads = |history: &History, again| {
        [0, token, 99].map(|has| history.may_read(or, (0, Some(has)), again))
    };
    assert_eq!(reads(&history, false), [false, true, false]);
    assert!(history.lost(&[Some(0)]));
    assert_eq!(reads(&history, false), [true, false, false]);
    let revision = history.revision();
    history.leaves(or, &[99]);
    assert_ne!(history.revision(), revision);
    assert_eq!(reads(&history, false), [true, false, false]);
    assert_eq!(reads(&history, true), [true, false, true]);
    history.acked(or);
    assert_eq!(history.whole(&[Some(99)]), Ok(()));
    assert!(history.whole(&[Some(token)]).is_err());
}
