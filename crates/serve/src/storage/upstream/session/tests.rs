//! What a session reports, and what is taken back from it.

use super::super::Upstreams;
use super::super::backend::Upstream;
use super::super::context::Context;
use super::super::network::Tcp;
use super::super::operation::Terms;
use super::super::path::Link;
use super::super::probe::Facts;
use super::super::testing::{session, upstreams};
use super::*;
use crate::storage::io::StorageDone;
use crate::storage::io::{Whose, Work};
use slotmap::{Key, SlotMap};
use weir_flow::clock::Duration;
use weir_flow::pipeline::Input;
use weir_flow::request::{BackendId, PathId};
use weir_wire::iscsi::initiator::Itt;

/// The session reports the target's answer to a reset of the unit, also a refusal.
#[test]
fn the_answer_to_a_reset_is_told() {
    let mut answers = Vec::new();
    let mut session = session();
    for response in [TmfResponse::Rejected, TmfResponse::Complete] {
        assert_eq!(session.reset_unit(Instant::ZERO), None);
        let tag = session.channel.in_flight().keys().next().expect("it was sent").data().as_ffi();
        let mut events = Vec::new();
        let mut unit = UnitState {
            terms: &mut None,
            owner: &mut None,
            events: &mut events,
            errors: &mut Tally::default(),
            who: "array path 0",
            now: Instant::ZERO,
        };
        session.handle(Incoming::Managed(tag, response), &mut unit).expect("the session stays");
        answers.append(&mut events);
    }
    assert!(matches!(
        answers[..],
        [SessionEvent::NotReset(TmfResponse::Rejected), SessionEvent::Reset]
    ));
}

/// A deferred error says that an acknowledged write is lost, and that the unit was reset says that some may be; the
/// command that reports it was not executed and is sent again.
#[test]
fn lost_writes_are_reported() {
    let sense = |deferred, key, asc, ascq| Sense { deferred, key, asc, ascq };
    let mut keys = SlotMap::with_key();
    for (sense, lost, reset) in [
        (sense(true, 3, 0x0c, 0), true, false),
        (sense(true, 6, 0x29, 0), true, false),
        (sense(false, 6, 0x29, 0), false, true),
        (sense(false, 6, 0x29, 7), false, false),
    ] {
        let mut session = session();
        session.stage = Stage::Ready;
        let operation = flush(keys.insert(()));
        let asked = Asked::Io { operation, itt: Itt(0) };
        let tag = session.channel.in_flight().insert(asked).data().as_ffi();
        let mut events = Vec::new();
        let mut unit = UnitState {
            terms: &mut Some(Terms::new(Facts::simple(512, 2048))),
            owner: &mut None,
            events: &mut events,
            errors: &mut Tally::default(),
            who: "array path 0",
            now: Instant::ZERO,
        };
        let done = Incoming::Done { tag, status: Some(CHECK_CONDITION), sense };
        session.handle(done, &mut unit).expect("the session stays");
        let has = |wanted: fn(&SessionEvent) -> bool| events.iter().any(wanted);
        assert_eq!(has(|event| matches!(event, SessionEvent::WriteLost(_))), lost, "{sense}");
        assert_eq!(has(|event| matches!(event, SessionEvent::WasReset)), reset, "{sense}");
        assert!(!has(|event| matches!(event, SessionEvent::Ended(_))), "{sense}");
        assert!(!session.is_idle(), "{sense}: the operation is to be done");
    }
}

/// Every session reports a reset of the unit before it executes another command: of two paths the second reports the same
/// reset, unless it has executed TEST UNIT READY since; and a unit without a volatile cache has nothing to lose.
#[test]
fn a_reset_is_told_once() {
    for cached in [true, false] {
        let (_portal, mut upstreams) = upstreams(2);
        let Upstreams { all, context, .. } = &mut upstreams;
        all[0].unit.probed(Facts { write_cache: cached, ..Facts::simple(512, 2048) }, "array");
        for path in [0, 1] {
            all[0].begin(context, path);
            all[0].paths[path].session().expect("it was begun").stage = Stage::Ready;
        }
        let mut told = |path: usize, event| {
            all[0].session_event(context, path, event).expect("the session stays");
            let reset = |one: &StorageDone| matches!(one, StorageDone::Input(Input::UnitReset(_)));
            let resets = context.done.iter().filter(|one| reset(one)).count();
            context.done.clear();
            resets
        };
        let once = usize::from(cached);
        assert_eq!(told(0, SessionEvent::WasReset), once);
        assert_eq!(told(1, SessionEvent::WasReset), 0, "the same reset");
        assert_eq!(told(1, SessionEvent::WasReset), once, "another one");
        assert_eq!(told(0, SessionEvent::Ready), 0);
        assert_eq!(
            told(0, SessionEvent::WasReset),
            once,
            "another one, since it has executed a command"
        );
    }
}

/// Two flushes and their keys: the first is deferred, the second waits for room.
fn put_off(upstreams: &mut Upstreams<Tcp>, keys: &mut SlotMap<RequestKey, ()>) -> [RequestKey; 2] {
    let keys = [(); 2].map(|()| keys.insert(()));
    let [deferred, waiting] = keys.map(flush);
    let Upstreams { all, context, .. } = upstreams;
    all[0].begin(context, 0);
    let session = all[0].paths[0].session().expect("it was begun");
    session.stage = Stage::Ready;
    session.operations.put(deferred, waiting);
    keys
}

fn flush(key: RequestKey) -> Operation {
    Operation::new(Io {
        whose: Whose::Request(key),
        work: Work::Sync,
        offset: 0,
        length: 0,
        promise: None,
    })
}

fn is_up(upstreams: &Upstreams<Tcp>) -> bool {
    matches!(upstreams.all[0].paths[0].link, Link::Up(..))
}

/// A path is left for an operation that its target has put off, or for one that waits where none is begun
/// and none taken, and every operation there may take another path at once; not for one that may have begun.
#[test]
fn what_was_not_begun_is_recalled() {
    let recall = |upstreams: &mut Upstreams<Tcp>, key| {
        upstreams.recall(BackendId::new(0), PathId::new(0), key);
    };
    for which in [0, 1] {
        let (_portal, mut upstreams) = upstreams(2);
        let mut keys = SlotMap::with_key();
        let put_off = put_off(&mut upstreams, &mut keys);
        let begun = keys.insert(());
        let session = upstreams.all[0].paths[0].session().expect("it is ready");
        let tag =
            session.channel.in_flight().insert(Asked::Io { operation: flush(begun), itt: Itt(0) });
        recall(&mut upstreams, begun);
        recall(&mut upstreams, put_off[1]);
        assert!(is_up(&upstreams), "what is begun may end, and make room");
        let session = upstreams.all[0].paths[0].session().expect("it is ready");
        session.channel.in_flight().remove(tag);
        recall(&mut upstreams, begun);
        assert!(is_up(&upstreams), "nothing is known of it any more");
        recall(&mut upstreams, put_off[which]);
        assert!(!is_up(&upstreams));
        let ended = upstreams.context.done.iter().filter_map(|one| match one {
            StorageDone::Ended(ended) => Some((ended.whose, ended.outcome)),
            _ => None,
        });
        let ended: Vec<_> = ended.collect();
        assert_eq!(ended, [put_off[1], put_off[0]].map(|key| (Whose::Request(key), PATH_FAILED)));
    }
}

/// A path that does not answer the question for resets within the login timeout is given up, and a flush that has waited
/// for it ends.
#[test]
fn a_path_that_does_not_answer_is_given_up() {
    let (_portal, mut upstreams) = upstreams(2);
    let Upstreams { all, context, .. } = &mut upstreams;
    all[0].unit.probed(Facts { write_cache: true, ..Facts::simple(512, 2048) }, "array");
    for path in [0, 1] {
        all[0].begin(context, path);
        all[0].paths[path].session().expect("it was begun").stage = Stage::Ready;
    }
    let told = |all: &mut [Upstream<Tcp>], context: &mut Context<Tcp>, event| {
        all[0].session_event(context, 0, event).expect("the session stays");
    };
    told(all, context, SessionEvent::WasReset);
    let flush = SlotMap::<RequestKey, ()>::with_key().insert(());
    let ended =
        Ended { whose: Whose::Request(flush), outcome: Ok(()), flushed: false, promise: None };
    told(all, context, SessionEvent::FlushEnded(ended));
    let flushed = |context: &Context<Tcp>| {
        context.done.iter().any(|one| matches!(one, StorageDone::Ended(one) if *one == ended))
    };
    let timeout = all[0].paths.config.login_timeout;
    assert_eq!(all[0].next(), Some(context.now + timeout));
    context.now += timeout - Duration::from_nanos(1);
    all[0].tick_path(context, 1);
    assert!(all[0].paths[1].is_ready() && !flushed(context));
    context.now += Duration::from_nanos(1);
    all[0].tick_path(context, 1);
    assert!(!all[0].paths[1].is_ready() && !flushed(context), "the other path is asked once more");
    told(all, context, SessionEvent::Ready);
    assert!(flushed(context));
}
