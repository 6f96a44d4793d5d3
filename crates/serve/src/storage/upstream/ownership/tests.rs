//! What follows when another gateway owns the unit of an upstream.

use super::super::Upstreams;
use super::super::network::Tcp;
use super::super::path::Link;
use super::super::session::{Loss, Stage};
use super::super::testing::{logged, upstreams};
use super::*;
use crate::storage::io::{Io, StorageDone, Whose, Work};
use mio::Poll;
use slotmap::SlotMap;
use weir_flow::error::IoError;
use weir_flow::pipeline::Input;
use weir_flow::request::{BackendId, PathId, RequestKey};

const OURS: Holder = Holder { key: 0x1_0000_0000_0001, kind: 5 };
const OTHER: Holder = Holder { key: 0x2_0000_0000_0002, kind: 5 };

/// An upstream that is owned, with a session on its first path.
fn owned() -> ((std::net::TcpListener, Poll), Upstreams<Tcp>) {
    let (portal, mut upstreams) = upstreams(2);
    let mut owner = Owner::new(1, true, Vec::new());
    (owner.key, owner.holds) = (Some(OURS.key), true);
    let Upstreams { all, context, .. } = &mut upstreams;
    all[0].unit.owner = Some(owner);
    all[0].begin(context, 0);
    all[0].paths[0].session().expect("it was begun").stage = Stage::Ready;
    (portal, upstreams)
}

/// The target of the first upstream reports the holder of the reservation.
fn report(upstreams: &mut Upstreams<Tcp>, holder: Option<Holder>) {
    upstreams.all[0].holder_reported(&mut upstreams.context, holder);
}

fn lose(upstreams: &mut Upstreams<Tcp>, denied: &Denied) {
    let loss = Loss::Denied(denied.clone());
    upstreams.all[0].lose(&mut upstreams.context, 0, &loss);
}

fn is_down(upstreams: &Upstreams<Tcp>) -> bool {
    upstreams.all[0].paths.iter().all(|path| matches!(path.link, Link::Down(_)))
}

fn flush(upstreams: &mut Upstreams<Tcp>, key: RequestKey) {
    let (whose, work) = (Whose::Request(key), Work::Sync);
    let io = Io { whose, work, offset: 0, length: 0, promise: None };
    upstreams.submit(BackendId::new(0), PathId::new(1), io);
}

/// While the reservation is ours nothing happens; when another gateway has it, or it is gone, every operation fails
/// at once and for good, no session is begun any more, and the log says once what to do.
#[test]
fn an_upstream_is_fenced_once_and_for_good() {
    for holder in [Some(OTHER), Some(Holder { kind: 1, ..OURS }), None] {
        let (_portal, mut upstreams) = owned();
        report(&mut upstreams, Some(OURS));
        assert!(!upstreams.all[0].unit.is_lost() && upstreams.context.done.is_empty());
        let told = logged(|| {
            report(&mut upstreams, holder);
            report(&mut upstreams, holder);
        });
        let fenced = |line: &&String| line.contains("FENCED") && line.contains("--take-over");
        assert_eq!(told.iter().filter(fenced).count(), 1, "{told:?}");
        assert!(is_down(&upstreams));
        let happened = std::mem::take(&mut upstreams.context.done);
        let ups =
            happened.iter().filter(|one| matches!(one, StorageDone::Input(Input::PathUp(..))));
        assert_eq!(ups.count(), 2, "{happened:?}");
        let told = happened.iter().filter(|one| matches!(one, StorageDone::Fenced(0)));
        assert_eq!(told.count(), 1, "{happened:?}");

        let mut keys = SlotMap::with_key();
        let key = keys.insert(());
        flush(&mut upstreams, key);
        let Some(StorageDone::Ended(ended)) = upstreams.context.done.pop() else {
            panic!("it has ended")
        };
        assert_eq!((ended.whose, ended.outcome), (Whose::Request(key), Err(IoError::Fenced)));
        upstreams.check(BackendId::new(0), PathId::new(1));
        let answer = upstreams.context.done.pop();
        assert!(matches!(answer, Some(StorageDone::Input(Input::Checked(..)))), "{answer:?}");
        upstreams.context.now += Duration::from_secs(600);
        upstreams.tick();
        assert!(is_down(&upstreams));
        assert_eq!(upstreams.all[0].unit.next_check(), None);
    }
}

/// A session that is refused the unit fences it only while it is owned; before that the start fails.
#[test]
fn a_denial_is_told_where_it_belongs() {
    let held = Denied::Held { key: OTHER.key, kind: Some(5) };
    let (_portal, mut upstreams) = owned();
    upstreams.all[0].denied(&mut upstreams.context, &Denied::Conflict("READ KEYS"));
    assert!(!upstreams.all[0].unit.is_lost(), "it is tried again");
    lose(&mut upstreams, &held);
    assert!(upstreams.all[0].unit.is_lost());
    let fenced = |upstreams: &Upstreams<Tcp>, why: Option<Denied>| {
        let since = upstreams.context.now;
        let standing = Standing::Fenced { since, holder: Some(OTHER.key), why };
        assert_eq!(upstreams.ownership(0).map(|owned| owned.standing), Some(standing));
    };
    fenced(&upstreams, None);

    let (_portal, mut upstreams) = owned();
    let owner = upstreams.all[0].unit.owner.as_mut().expect("it has one");
    owner.holds = false;
    lose(&mut upstreams, &held);
    let owner = upstreams.all[0].unit.owner.as_ref().expect("it has one");
    assert_eq!((owner.lost, owner.denied.clone()), (None, Some(held.clone())));

    // The same while the gateway serves: it has started without the upstream.
    let (_portal, mut upstreams) = owned();
    let now = upstreams.context.now;
    let owner = upstreams.all[0].unit.owner.as_mut().expect("it has one");
    (owner.holds, owner.dirty) = (false, false);
    owner.serve(now);
    assert!(owner.dirty, "the log may have data by then");
    let standing = upstreams.ownership(0).map(|owned| owned.standing);
    assert!(matches!(standing, Some(Standing::Unclaimed { since, .. }) if since == now));
    let told = logged(|| lose(&mut upstreams, &held));
    assert!(told.iter().any(|line| line.contains("FENCED")), "{told:?}");
    assert!(is_down(&upstreams));
    fenced(&upstreams, Some(held));
}

/// The reservation is read once a second, on one path.
#[test]
fn the_reservation_is_looked_at() {
    let (_portal, mut upstreams) = owned();
    upstreams.tick();
    let next = upstreams.all[0].unit.next_check().expect("it is owned");
    assert_eq!(next, upstreams.context.now + CHECK_INTERVAL);
    let idle = |upstreams: &mut Upstreams<Tcp>| {
        upstreams.all[0].paths[0].session().expect("it works").is_idle()
    };
    assert!(upstreams.all[0].paths[0].is_ready());
    // The session of the test has never logged in, so there is no room for a command; nothing breaks.
    assert!(idle(&mut upstreams));
}
