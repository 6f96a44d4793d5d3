//! The event loop of a run: one link, one reply or chunk at a time.
//!
//! It does not drive `weir_flow::Pipeline`: the worked examples and the vectors count in ticks of one byte,
//! leave idle time out, and break ties between an arrival and an end in a fixed order.

use slotmap::{Key, KeyData};
use weir_flow::clock::Instant;
use weir_flow::policy::Choice;
use weir_flow::request::RequestKey;
use weir_flow::transfer::{Build, Grant, LinkTime, Reply};

/// A reply that becomes ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// When, in the time that a byte takes.
    pub at: u64,
    /// Its length, at least 1.
    pub bytes: u64,
}

/// How it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// When its first byte began.
    pub start: u64,
    /// When its last byte had left.
    pub end: u64,
}

/// Sends every job over a link that takes a unit of time for a byte and may interleave replies. Jobs are
/// given in the order in which they become ready; what becomes ready when something has left comes after
/// that.
///
/// Panics if a policy breaks a law of its trait.
pub fn play(choice: &Choice<Build>, jobs: &[Job]) -> Vec<Done> {
    let mut policy = (choice.policy().build)(choice.values());
    let mut done = vec![Done::default(); jobs.len()];
    let mut left: Vec<u64> = jobs.iter().map(|job| job.bytes).collect();
    let (mut now, mut idle, mut next) = (0, 0, 0);
    loop {
        let coming = jobs.get(next).map_or(u64::MAX, |job| job.at);
        if coming <= now {
            let reply = Reply::sized(key(next), jobs[next].bytes, false);
            policy.push(at(coming - idle), &reply);
            next += 1;
            continue;
        }
        let Some(Grant { key: granted, bytes }) = policy.pop(at(now - idle)) else {
            assert!(left[..next].iter().all(|&left| left == 0), "the link idles");
            if coming == u64::MAX {
                return done;
            }
            idle += coming - now;
            now = coming;
            continue;
        };
        let index = index(granted);
        if left[index] == jobs[index].bytes {
            done[index].start = now;
        }
        now += bytes;
        while let Some(job) = jobs.get(next).filter(|job| job.at < now) {
            policy.push(at(job.at - idle), &Reply::sized(key(next), job.bytes, false));
            next += 1;
        }
        policy.sent(at(now - idle), granted, bytes);
        left[index] -= bytes;
        if left[index] == 0 {
            done[index].end = now;
        }
    }
}

/// When the link has sent so much, at a byte in a nanosecond.
fn at(work: u64) -> LinkTime {
    LinkTime { now: Instant::from_nanos(work), work }
}

fn key(index: usize) -> RequestKey {
    RequestKey::from(KeyData::from_ffi(1 << 32 | (index as u64 + 1)))
}

fn index(key: RequestKey) -> usize {
    (key.data().as_ffi() & u64::from(u32::MAX)) as usize - 1
}
