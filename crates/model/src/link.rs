//! A link: a transmitter that sends one message at a time, followed by a delay.

use weir_flow::clock::{Duration, Instant};
use weir_flow::settings;
use weir_flow::settings::{HOUR, PIB};
use weir_flow::units::Bandwidth;

settings! {
    /// The parameters of a link.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Config {
        /// Rate at which replies leave.
        pub bandwidth: Option<Bandwidth> = Bandwidth(1, PIB), else "infinite";
        /// Time in one direction; a closed loop waits for it twice.
        pub delay: Duration = Time(0, HOUR), 0;
    }
}

/// One direction of a link. Messages leave in the order in which they are given.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    config: Config,
    free: Instant,
}

/// The times of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The time at which its last byte is sent and the transmitter is free.
    pub left: Instant,
    /// The time at which its last byte arrives.
    pub arrived: Instant,
}

impl Link {
    /// An idle link.
    pub const fn new(config: Config) -> Self {
        Self { config, free: Instant::ZERO }
    }

    /// Gives the engine a message of `bytes`.
    pub fn send(&mut self, now: Instant, bytes: u64) -> Sent {
        let begin = now.max(self.free);
        let left = match self.config.bandwidth {
            Some(bandwidth) => begin + bandwidth.time_for(bytes),
            None => begin,
        };
        self.free = left;
        Sent { left, arrived: left + self.config.delay }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two messages at once: the second leaves a serialisation later, and the delay, which they
    /// share, is not paid twice. An idle engine starts at once.
    #[test]
    fn messages_leave_one_after_the_other() {
        let bandwidth = Bandwidth::per_second(1_000_000);
        let mut link = Link::new(Config { bandwidth, delay: Duration::from_micros(7) });
        let at = |micros| Instant::ZERO + Duration::from_micros(micros);
        assert_eq!(link.send(at(0), 10), Sent { left: at(10), arrived: at(17) });
        assert_eq!(link.send(at(0), 5), Sent { left: at(15), arrived: at(22) });
        assert_eq!(link.send(at(100), 1), Sent { left: at(101), arrived: at(108) });
    }

    /// Without a bandwidth only the delay is left.
    #[test]
    fn an_infinite_link_only_delays() {
        let mut link = Link::new(Config { bandwidth: None, delay: Duration::from_micros(7) });
        let sent = link.send(Instant::ZERO, u64::MAX);
        assert_eq!((sent.left, sent.arrived.as_nanos()), (Instant::ZERO, 7_000));
    }
}
