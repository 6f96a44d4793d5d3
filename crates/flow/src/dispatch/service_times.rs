//! Sums the service time of each stream: since the start, and in the last seconds.

use crate::clock::{Duration, Instant};
use crate::request::TenantId;
use alloc::vec::Vec;

/// Sums of service times. What is recent is of the last [`TURN`] to two of them.
#[derive(Debug, Default)]
pub(super) struct ServiceTimes {
    streams: Vec<Sums>,
    turned: Instant,
}

/// Nanoseconds of one stream.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    total: u64,
    /// Of this turn, and of the one before.
    turns: [u64; 2],
}

impl ServiceTimes {
    /// An operation of the stream has kept a backend busy for so long.
    pub(super) fn add(&mut self, now: Instant, stream: TenantId, service: Duration) {
        self.turn(now);
        if self.streams.len() <= stream.index() {
            self.streams.resize(stream.index() + 1, Sums::default());
        }
        let sums = &mut self.streams[stream.index()];
        sums.total = sums.total.saturating_add(service.as_nanos());
        sums.turns[0] = sums.turns[0].saturating_add(service.as_nanos());
        assert!(sums.turns[0] <= sums.total, "a stream had more lately than in all");
    }

    /// A stream is another one from now on.
    pub(super) fn forget(&mut self, stream: TenantId) {
        if let Some(sums) = self.streams.get_mut(stream.index()) {
            *sums = Sums::default();
        }
    }

    /// Ids of streams that have had something are below this.
    pub(super) const fn streams(&self) -> usize {
        self.streams.len()
    }

    fn turn(&mut self, now: Instant) {
        let turns = now.saturating_since(self.turned).as_nanos() / TURN.as_nanos();
        if turns == 0 {
            return;
        }
        self.turned = now;
        for sums in &mut self.streams {
            sums.turns = [0, if turns == 1 { sums.turns[0] } else { 0 }];
        }
    }

    /// What each stream has had since the start, and lately, by id.
    pub(super) fn sums(&self, now: Instant) -> impl Iterator<Item = (Duration, Duration)> {
        let turns = now.saturating_since(self.turned).as_nanos() / TURN.as_nanos();
        self.streams.iter().map(move |sums| {
            let recent = match turns {
                0 => sums.turns[0].saturating_add(sums.turns[1]),
                1 => sums.turns[0],
                _ => 0,
            };
            (Duration::from_nanos(sums.total), Duration::from_nanos(recent))
        })
    }
}

/// How long a turn is at least.
const TURN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    /// What is recent is forgotten after two turns, by a query as well; the total is kept.
    #[test]
    fn what_is_recent_is_forgotten() {
        let mut service_times = ServiceTimes::default();
        let (stream, at) = (TenantId::new(1), |s| Instant::ZERO + Duration::from_secs(s));
        let seen = |service_times: &ServiceTimes, now| {
            let sums = service_times.sums(at(now)).nth(1).unwrap();
            (sums.0.as_nanos() / 1_000_000, sums.1.as_nanos() / 1_000_000)
        };
        service_times.add(at(1), stream, Duration::from_millis(3));
        assert_eq!(seen(&service_times, 1), (3, 3));
        service_times.add(at(6), stream, Duration::from_millis(4));
        assert_eq!(seen(&service_times, 6), (7, 7));
        service_times.add(at(12), stream, Duration::from_millis(5));
        assert_eq!(seen(&service_times, 12), (12, 9));
        assert_eq!(seen(&service_times, 17), (12, 5));
        assert_eq!(seen(&service_times, 22), (12, 0));
        service_times.add(at(40), stream, Duration::from_millis(1));
        assert_eq!(seen(&service_times, 40), (13, 1));
    }

    /// The recent service of a stream is a part of its whole.
    #[test]
    #[should_panic(expected = "more lately than in all")]
    fn recent_is_a_part() {
        let mut service_times = ServiceTimes::default();
        service_times.add(Instant::ZERO, TenantId::new(0), Duration::from_nanos(5));
        service_times.streams[0].total = 0;
        service_times.add(Instant::ZERO, TenantId::new(0), Duration::from_nanos(1));
    }
}
