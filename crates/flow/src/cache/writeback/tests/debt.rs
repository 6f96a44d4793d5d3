//! What bypassed the log: writes do not wait for it, flushes and write-back do.

use super::clocked::{Clocked, Costs};
use super::rig::{Rig, Running};
use super::small;
use crate::cache::writeback::format::Super;
use crate::cache::writeback::{DEBT, Kind, Phase, Why};
use crate::clock::{Duration, Instant};
use crate::error::IoError;
use crate::request::Op;

const MS: Duration = Duration::from_millis(1);

/// Runs everything but the upstream until nothing else is left to do at this time.
fn run_here(rig: &mut Rig) {
    while let Some(i) = rig.running.iter().position(|one| !matches!(one, Running::Upstream(..))) {
        rig.end(i);
    }
}

/// The writes that are on their way upstream.
fn writes_upstream(rig: &Rig) -> usize {
    let is_write = |one: &&Running| matches!(one, Running::Upstream(_, op, ..) if *op != Op::Flush);
    rig.running.iter().filter(is_write).count()
}

/// While the upstream is silent, the first writes of a new log are answered as soon as they are durable here. A flush
/// is not, nothing is written back, and the log opened again knows that it has the debt.
#[test]
fn first_writes_do_not_wait_for_the_upstream() {
    let mut rig = Rig::new(1, small(), 64);
    for i in 0..6 {
        rig.ask(Some(Kind::Write), i * 4, 4, i % 2 == 0);
        run_here(&mut rig);
        assert_eq!(rig.outstanding(), 0, "write {i} is answered");
    }
    let flush = rig.ask(None, 0, 0, false);
    let until = rig.now + MS * 500;
    while rig.now < until {
        rig.sleep(until);
        run_here(&mut rig);
    }
    assert!(rig.outstanding() == 1 && writes_upstream(&rig) == 0);
    let status = rig.log.status(rig.now);
    assert!(status.debt.is_some_and(|age| age >= MS * 200) && status.awaiting_debt == 1);
    let found = rig.recover().unwrap();
    assert!(found.bypassed && found.dirty().1 == 6);
    // A write that closes an epoch is not written back either.
    rig.ask(Some(Kind::Write), 40, 4, true);
    run_here(&mut rig);
    assert!(rig.outstanding() == 1 && writes_upstream(&rig) == 0);
    assert!(rig.pays_debt());
    run_here(&mut rig);
    assert!(rig.asked[flush as usize - 1].acked.is_some());
    rig.settle();
    assert!(!rig.recover().unwrap().bypassed, "the log says that the debt is paid");
}

/// A flush that has waited for the debt for as long as a write may wait for room is answered BUSY, and the wait has
/// a name.
#[test]
fn a_flush_does_not_wait_for_ever() {
    let mut rig = Rig::new(1, small(), 64);
    rig.refusal = Some((None, IoError::PathFailed));
    rig.ask(None, 0, 0, false);
    rig.until(10_000, |rig| rig.outstanding() == 0);
    let one = &rig.asked[0];
    assert!(one.busy && one.rule == Some(DEBT) && one.took == small().hold, "{one:?}");
    rig.refusal = None;
    rig.settle();
}

/// After a time of write-through a log is used at once, also while writes that bypass it are outstanding. Write-back
/// waits until these have ended and were flushed.
#[test]
fn a_log_is_used_again_at_once() {
    let costs = Costs { local: MS, upstream: MS * 50, sector: Duration::ZERO };
    let mut clocked = Clocked::new(small(), 64, costs);
    clocked.rig.log.drain(clocked.rig.now, true);
    clocked.run_until(Instant::ZERO + MS * 500);
    assert_eq!(clocked.rig.log.status(clocked.rig.now).phase, Phase::Through(Why::Asked));
    let past = clocked.write(0, 4);
    clocked.rig.log.drain(clocked.rig.now, false);
    let logged = clocked.write(8, 4);
    let flush = clocked.flush();
    let took = |clocked: &Clocked, number: u64| {
        let one = &clocked.rig.asked[number as usize - 1];
        one.acked.map(|_| one.took)
    };
    clocked.run_until(clocked.rig.now + MS * 10);
    assert_eq!((took(&clocked, past), took(&clocked, logged)), (None, Some(MS * 2)));
    clocked.run_until(clocked.rig.now + MS * 60);
    assert_eq!((took(&clocked, past), took(&clocked, flush)), (Some(MS * 50), None));
    assert_eq!(writes_upstream(&clocked.rig), 0);
    clocked.run_until(clocked.rig.now + MS * 60);
    assert_eq!(took(&clocked, flush), Some(MS * 100));
    clocked.rig.settle();
}

/// An update past a log in use begins when both super blocks say that everything before it is upstream, so that no rotten
/// header brings older records back over it. Until it has ended, a log that is opened again has the debt: some of it may be
/// in a cache of the upstream. One that fails leaves the debt to this log.
#[test]
fn an_update_is_announced_by_both_super_blocks() {
    for fails in [false, true] {
        let mut rig = Rig::new(1, small(), 64);
        assert!(rig.pays_debt());
        rig.ask(Some(Kind::Write), 4, 4, false);
        assert!(rig.until(50, |rig| rig.outstanding() == 0));
        let last = rig.log.status(rig.now).last;
        let key = rig.key();
        rig.log.await_update(rig.now, key);
        rig.pump();
        assert!(rig.until(1_000, |rig| rig.drained.contains(&key)));
        for at in [0, 4096] {
            let block = Super::decode(&rig.disk.durable[at..]).unwrap();
            assert!(block.applied >= last && block.bypassed, "super block at {at}: {block:?}");
        }
        assert!(rig.recover().unwrap().bypassed, "a crash leaves the debt");
        rig.log.update_ended(rig.now, if fails { Err(IoError::Medium) } else { Ok(()) });
        rig.pump();
        assert_eq!(rig.log.status(rig.now).debt.is_some(), fails);
        assert!(rig.pays_debt());
        rig.settle();
        assert!(rig.until(1_000, |rig| rig.recover().is_ok_and(|found| !found.bypassed)));
    }
}
