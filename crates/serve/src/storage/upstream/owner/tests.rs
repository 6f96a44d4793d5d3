//! What becomes of an upstream whose unit is somebody else's.

use super::super::network::Tcp;
use super::super::session::Stage;
use super::super::testing::{logged, remotes};
use super::*;
use crate::storage::io::{Io, Whose, Work};
use slotmap::SlotMap;
use weir_flow::error::IoError;
use weir_flow::request::{BackendId, PathId, RequestKey};

const OURS: Holder = Holder { key: 0x1_0000_0000_0001, kind: 5 };
const OTHER: Holder = Holder { key: 0x2_0000_0000_0002, kind: 5 };

/// An upstream that is owned, with a session on its first path.
fn owned() -> ((std::net::TcpListener, Poll), Upstreams<Tcp>) {
    let (portal, mut remotes) = remotes(2);
    let mut owner = Owner::new(1, true, Vec::new());
    (owner.key, owner.holds) = (Some(OURS.key), true);
    remotes.all[0].owner = Some(owner);
    remotes.begin(0);
    remotes.paths[0].session().expect("it was begun").stage = Stage::Ready;
    (portal, remotes)
}

fn flush(remotes: &mut Upstreams<Tcp>, key: RequestKey) {
    let (whose, work) = (Whose::Request(key), Work::Sync);
    let io = Io { whose, work, offset: 0, length: 0, promise: None };
    remotes.submit(BackendId::new(0), PathId::new(1), io);
}

/// While the reservation is ours nothing happens; when it is not, whoever has it, everything that is asked for fails
/// at once and for good, no session is begun any more, and the log says once what to do.
#[test]
fn an_upstream_is_fenced_once_and_for_good() {
    for holder in [Some(OTHER), Some(Holder { kind: 1, ..OURS }), None] {
        let (_portal, mut remotes) = owned();
        remotes.owner_told(0, Some(OURS));
        assert!(!remotes.is_lost(0) && remotes.done.is_empty());
        let told = logged(|| {
            remotes.owner_told(0, holder);
            remotes.owner_told(0, holder);
        });
        let fenced = |line: &&String| line.contains("FENCED") && line.contains("--take-over");
        assert_eq!(told.iter().filter(fenced).count(), 1, "{told:?}");
        assert!(remotes.paths.iter().all(|path| matches!(path.link, Link::Down(_))));
        let happened = std::mem::take(&mut remotes.done);
        let ups =
            happened.iter().filter(|one| matches!(one, StorageDone::Input(Input::PathUp(..))));
        assert_eq!(ups.count(), 2, "{happened:?}");
        let told = happened.iter().filter(|one| matches!(one, StorageDone::Fenced(0)));
        assert_eq!(told.count(), 1, "{happened:?}");

        let mut keys = SlotMap::with_key();
        let key = keys.insert(());
        flush(&mut remotes, key);
        let Some(StorageDone::Ended(ended)) = remotes.done.pop() else { panic!("it has ended") };
        assert_eq!((ended.whose, ended.outcome), (Whose::Request(key), Err(IoError::Fenced)));
        remotes.check(BackendId::new(0), PathId::new(1));
        let answer = remotes.done.pop();
        assert!(matches!(answer, Some(StorageDone::Input(Input::Checked(..)))), "{answer:?}");
        remotes.now += Duration::from_secs(600);
        remotes.tick();
        assert!(remotes.paths.iter().all(|path| matches!(path.link, Link::Down(_))));
        assert_eq!(remotes.next_look(), None);
    }
}

/// A session that is refused the unit fences it only while it is owned; before that the start fails.
#[test]
fn a_denial_is_told_where_it_belongs() {
    let held = Denied::Held { key: OTHER.key, kind: Some(5) };
    let (_portal, mut remotes) = owned();
    remotes.denied(0, &Denied::Conflict("READ KEYS"));
    assert!(!remotes.is_lost(0), "it is tried again");
    remotes.lose(0, &Loss::Denied(held.clone()));
    assert!(remotes.is_lost(0));
    assert_eq!(
        remotes.ownership(0).and_then(|owner| owner.lost),
        Some((remotes.now, Some(OTHER.key)))
    );

    let (_portal, mut remotes) = owned();
    let owner = remotes.all[0].owner.as_mut().expect("it has one");
    owner.holds = false;
    remotes.lose(0, &Loss::Denied(held.clone()));
    let owner = remotes.all[0].owner.as_ref().expect("it has one");
    assert_eq!((owner.lost, owner.denied.clone()), (None, Some(held)));
}

/// The reservation is looked at once a second, on one way.
#[test]
fn the_reservation_is_looked_at() {
    let (_portal, mut remotes) = owned();
    remotes.look_at_owners();
    let next = remotes.next_look().expect("it is owned");
    assert_eq!(next, remotes.now + LOOK_EVERY);
    let idle =
        |remotes: &mut Upstreams<Tcp>| remotes.paths[0].session().expect("it works").is_idle();
    assert!(remotes.paths[0].is_ready());
    // The session of the test has never logged in, so there is no room for a command; nothing breaks.
    assert!(idle(&mut remotes));
}
