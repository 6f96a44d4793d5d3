//! Resets of the unit, when no portal confirms the end of a session.

use super::super::Upstreams;
use super::super::session::Stage;
use super::super::testing::{logged, upstreams};
use super::*;
use crate::storage::io::{Io, Whose, Work};
use mio::net::TcpStream;
use slotmap::SlotMap;
use weir_flow::request::RequestKey;
use weir_wire::iscsi::initiator::TmfResponse;

const LINE: &str = "the target does not reset the unit: writes of a lost session wait";

fn lines(logged: &[String], answer: &str) -> usize {
    logged.iter().filter(|line| line.contains(LINE) && line.contains(answer)).count()
}

/// A read is never held: it may be done again at once, and holding it would stall its host.
#[test]
#[should_panic(expected = "only writes are held")]
fn a_flush_is_not_held() {
    let key = SlotMap::<RequestKey, ()>::with_key().insert(());
    let whose = Whose::Request(key);
    let io = Io { whose, work: Work::Sync, offset: 0, length: 0, promise: None };
    HeldWrites::<TcpStream>::new().hold(vec![Operation::new(io)], Instant::ZERO);
}

/// A target that refuses to reset its unit is reported once, with what follows from it.
#[test]
fn a_refused_reset_is_told() {
    let (_portal, mut upstreams) = upstreams(2);
    let Upstreams { all, context, .. } = &mut upstreams;
    let logged = logged(|| {
        for _ in 0..3 {
            let refused = SessionEvent::NotReset(TmfResponse::NotSupported);
            all[0].session_event(context, 1, refused).expect("the session stays");
        }
    });
    assert_eq!(lines(&logged, "answer=\"NotSupported\""), 1, "{logged:?}");
}

/// So is one that does not answer before the unit would be reset again.
#[test]
fn an_unanswered_reset_is_told() {
    let (_portal, mut upstreams) = upstreams(2);
    let Upstreams { all, context, .. } = &mut upstreams;
    all[0].begin(context, 1);
    all[0].paths[1].session().expect("it was begun").stage = Stage::Ready;
    let asked = logged(|| {
        all[0].reset_unit(context, 0);
        context.now += HELP_INTERVAL;
        // Another path's writes may ask for the same.
        all[0].reset_unit(context, 0);
    });
    assert_eq!(lines(&asked, ""), 0, "{asked:?}");
    let late = logged(|| {
        for _ in 0..2 {
            context.now += RESET_INTERVAL;
            all[0].reset_unit(context, 0);
        }
    });
    assert_eq!(lines(&late, "no answer"), 1, "{late:?}");
}
