use super::*;
use alloc::vec::Vec;

const LIMITS: Limits = Limits { freeze: Duration::from_secs(2), grant: Duration::from_secs(1) };
const KEY: u64 = 0x0001_0000_0000_000a;
const OFFER: Event = Event::Offer(Order { number: 7, drain_within: Duration::from_secs(30) });
const GRANT: Event = Event::Grant { number: 7, key: KEY };

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

/// Gives events, each a second after the one before, and returns all that is to be done.
fn told(mover: &mut Mover, events: &[Event]) -> Vec<Action> {
    let mut step = |(seconds, &event)| mover.step(at(seconds), event).to_vec();
    (0..).zip(events).flat_map(&mut step).collect()
}

/// A move that meets no fault: the old owner drains, freezes, shows its key and leaves; the next one claims and serves.
#[test]
fn a_volume_moves() {
    let mut from = Mover::new(true, LIMITS);
    let mut to = Mover::new(false, LIMITS);
    assert_eq!(told(&mut from, &[OFFER, Event::Drained]), [Action::Drain, Action::Freeze]);
    assert!(!from.starts() && !to.starts());
    assert_eq!(from.step(at(2), Event::Quiet(KEY)), [Action::Watch]);
    assert_eq!(to.step(at(2), GRANT), [Action::Claim]);
    assert!(matches!(to.state(), State::Claiming { from: KEY, number: 7 }));
    assert_eq!(to.step(at(2), Event::Held), [Action::Serve]);
    assert_eq!(from.step(at(2), Event::Other), [Action::Leave]);
    assert_eq!((from.state(), to.state()), (State::Standby, State::Owner));
    assert!(to.starts() && !from.starts());
}

/// Every state with every event: the transitions that the table at the head of the file lists, and no others.
#[test]
fn every_state_has_an_answer_to_every_event() {
    let (number, until) = (7, at(10));
    let states = [
        State::Owner,
        State::Draining { number, until },
        State::Freezing { number, until },
        State::Granted { number, key: KEY, until },
        State::Revoking { number },
        State::Standby,
        State::Claiming { number, from: KEY },
        State::Fenced,
    ];
    let events = [
        OFFER,
        Event::Cancel(7),
        Event::Drained,
        Event::Quiet(KEY),
        GRANT,
        Event::Held,
        Event::Other,
    ];
    // A letter for the next state: O owner, D draining, F freezing, G granted, R revoking, S standby, C claiming,
    // X fenced; a point where nothing changes. The last two columns are time before the deadline and at it.
    let table = [
        "D.....X..", // Owner
        ".OF...X.O", // Draining
        ".O.G..X.O", // Freezing
        "......S.R", // Granted
        ".....OS..", // Revoking
        "....C....", // Standby
        ".....OS..", // Claiming
        ".........", // Fenced
    ];
    for (&state, row) in states.iter().zip(table) {
        let times = [(at(9), Event::Time), (at(10), Event::Time)];
        let all = events.iter().map(|&event| (at(5), event)).chain(times);
        for ((now, event), wanted) in all.zip(row.chars()) {
            let mut mover = Mover { state, limits: LIMITS };
            let actions = mover.step(now, event);
            let letter = match mover.state() {
                same if same == state => '.',
                State::Owner => 'O',
                State::Draining { .. } => 'D',
                State::Freezing { .. } => 'F',
                State::Granted { .. } => 'G',
                State::Revoking { .. } => 'R',
                State::Standby => 'S',
                State::Claiming { .. } => 'C',
                State::Fenced => 'X',
            };
            assert_eq!(letter, wanted, "{state:?} with {event:?} at {now:?}");
            assert_eq!(actions.is_empty(), letter == '.', "{state:?} with {event:?}");
        }
    }
}

/// Each state that waits for a courier or a host has a deadline; those that the reservation ends have none.
#[test]
fn waits_have_an_end() {
    let mut mover = Mover::new(true, LIMITS);
    assert_eq!(mover.deadline(), None);
    mover.step(at(0), OFFER);
    assert_eq!(mover.deadline(), Some(at(30)));
    mover.step(at(1), Event::Drained);
    assert_eq!(mover.deadline(), Some(at(3)));
    mover.step(at(1), Event::Quiet(KEY));
    assert_eq!(mover.deadline(), Some(at(2)));
    mover.step(at(2), Event::Time);
    assert!(matches!(mover.state(), State::Revoking { .. }) && mover.deadline().is_none());
}

/// The cancellation of another move, one that is over, ends nothing.
#[test]
fn an_old_cancellation_is_ignored() {
    let mut mover = Mover::new(true, LIMITS);
    assert_eq!(told(&mut mover, &[OFFER, Event::Cancel(6)]), [Action::Drain]);
    assert!(matches!(mover.state(), State::Draining { .. }));
}
