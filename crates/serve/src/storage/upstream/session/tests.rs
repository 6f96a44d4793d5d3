//! What a session tells, and what is taken back from it.

use super::super::network::Tcp;
use super::super::path::Link;
use super::super::testing::{remotes, session};
use super::super::{StorageDone, Upstreams};
use super::*;
use crate::storage::io::{Whose, Work};
use weir_flow::request::{BackendId, PathId, RequestKey};

/// What the target says to a reset of the unit is told, be it that it will not.
#[test]
fn the_answer_to_a_reset_is_told() {
    let mut answers = Vec::new();
    let mut session = session();
    for response in [TmfResponse::Rejected, TmfResponse::Complete] {
        assert_eq!(session.reset_unit(Instant::ZERO), None);
        let tag = session.asked.keys().next().expect("it was asked").data().as_ffi();
        let mut told = Vec::new();
        let mut around = Around {
            terms: &mut None,
            owner: &mut None,
            told: &mut told,
            errors: &mut crate::limits::Tally::default(),
            who: "array path 0",
            now: Instant::ZERO,
        };
        session.deal(Came::Managed(tag, response), &mut around).expect("it goes on");
        answers.append(&mut told);
    }
    assert!(matches!(
        answers[..],
        [SessionEvent::NotReset(TmfResponse::Rejected), SessionEvent::Reset]
    ));
}

/// Operations and their keys, which flush: the first is put off, the second waits for room.
fn put_off(remotes: &mut Upstreams<Tcp>, keys: &mut SlotMap<RequestKey, ()>) -> [RequestKey; 2] {
    let keys = [(); 2].map(|()| keys.insert(()));
    let [later, waiting] = keys.map(flush);
    remotes.begin(0);
    let session = remotes.paths[0].session().expect("it was begun");
    session.stage = Stage::Ready;
    session.later.push((Instant::ZERO, later));
    session.waiting.push_back(waiting);
    keys
}

fn flush(key: RequestKey) -> Flight {
    Flight::new(Io {
        whose: Whose::Request(key),
        work: Work::Sync,
        offset: 0,
        length: 0,
        promise: None,
    })
}

fn is_up(remotes: &Upstreams<Tcp>) -> bool {
    matches!(remotes.paths[0].link, Link::Up(..))
}

/// A path is left for an operation that its target has put off, or for one that waits where none is begun
/// and none taken, and everything there may go another way at once; not for one that may have begun.
#[test]
fn what_was_not_begun_is_recalled() {
    let recall = |remotes: &mut Upstreams<Tcp>, key| {
        remotes.recall(BackendId::new(0), PathId::new(0), key);
    };
    for which in [0, 1] {
        let (_portal, mut remotes) = remotes(2);
        let mut keys = SlotMap::with_key();
        let put_off = put_off(&mut remotes, &mut keys);
        let begun = keys.insert(());
        let session = remotes.paths[0].session().expect("it is ready");
        let tag = session.asked.insert(Asked::Io { flight: flush(begun), itt: Itt(0) });
        recall(&mut remotes, begun);
        recall(&mut remotes, put_off[1]);
        assert!(is_up(&remotes), "what is begun may end, and make room");
        let session = remotes.paths[0].session().expect("it is ready");
        session.asked.remove(tag);
        recall(&mut remotes, begun);
        assert!(is_up(&remotes), "nothing is known of it any more");
        recall(&mut remotes, put_off[which]);
        assert!(!is_up(&remotes));
        let ended = remotes.done.iter().filter_map(|one| match one {
            StorageDone::Ended(ended) => Some((ended.whose, ended.outcome)),
            _ => None,
        });
        let ended: Vec<_> = ended.collect();
        assert_eq!(ended, [put_off[1], put_off[0]].map(|key| (Whose::Request(key), PATH_FAILED)));
    }
}
