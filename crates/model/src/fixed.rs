//! # Device model: fixed service time
//!
//! | | |
//! |---|---|
//! | Model    | each I/O of any kind takes `service`; `servers` at once, the others wait in order of arrival |
//! | Ties     | order of arrival |
//! | Cost     | O(1) per I/O |
//! | Source   | the D of Kendall's notation: D/D/1, M/D/1, M/D/c are checked by hand against it |
//! | Not when | what is studied depends on sizes, positions or reads against writes |

use crate::PARTS_MAX;
use crate::device::{Device, DeviceIo};
use std::collections::VecDeque;
use weir_flow::clock::{Duration, Instant};
use weir_flow::request::Outcome;
use weir_flow::settings;
use weir_flow::settings::{HOUR, MICROSECOND};

settings! {
    /// The parameters of a device with a fixed service time. The default is an idle flash device.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Config {
        /// Time from the start of an I/O's service to its end.
        pub service: Duration = Time(1, HOUR), 100 * MICROSECOND;
        /// I/Os in service at once.
        pub servers: u32 = Count(1, PARTS_MAX), 32;
    }
}

/// A device with a fixed service time.
#[derive(Clone, Debug)]
pub struct Fixed {
    config: Config,
    /// When each server that has ever worked is free again, earliest first. With equal service
    /// times the server that is free first is always the one that was taken first.
    free: VecDeque<Instant>,
    /// Outstanding I/Os with their end times, earliest first.
    ends: VecDeque<(Instant, u64)>,
}

impl Fixed {
    /// An idle device. Panics without servers.
    pub fn new(config: Config) -> Self {
        assert!(config.servers > 0, "a device has a server");
        Self { config, free: VecDeque::new(), ends: VecDeque::new() }
    }
}

impl Device for Fixed {
    fn start(&mut self, now: Instant, io: DeviceIo) {
        let mut begin = now;
        if self.free.len() >= self.config.servers as usize {
            begin = begin.max(self.free.pop_front().unwrap_or(now));
        }
        let end = begin + self.config.service;
        self.free.push_back(end);
        self.ends.push_back((end, io.id));
    }

    fn next(&self) -> Option<Instant> {
        self.ends.front().map(|&(end, _)| end)
    }

    fn finished(&mut self, now: Instant) -> Option<(u64, Outcome)> {
        let &(end, id) = self.ends.front()?;
        if end > now {
            return None;
        }
        self.ends.pop_front();
        Some((id, Ok(())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_flow::request::Op;
    use weir_flow::rng::Rng;
    use weir_flow::units::Extent;

    fn io(id: u64) -> DeviceIo {
        DeviceIo { id, op: Op::Read, extent: Extent::new(0, 4_096), fua: false }
    }

    fn at(micros: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(micros)
    }

    /// D/D/2 by hand: two are served at once, the third waits for the first.
    #[test]
    fn two_servers_serve_two_at_once() {
        let mut device = Fixed::new(Config { service: Duration::from_micros(10), servers: 2 });
        for (id, arrival) in [(0, 0), (1, 4), (2, 5), (3, 30)] {
            device.start(at(arrival), io(id));
        }
        let mut ends = Vec::new();
        while let Some(end) = device.next() {
            let (id, outcome) = device.finished(end).unwrap();
            assert_eq!(outcome, Ok(()));
            ends.push((id, end));
        }
        assert_eq!(ends, [(0, at(10)), (1, at(14)), (2, at(20)), (3, at(40))]);
    }

    /// M/D/1: with rho = 0.8 the mean wait is `rho * service / (2 * (1 - rho))`, twice the service
    /// time.
    #[test]
    fn agrees_with_pollaczek_khinchine() {
        let (service, rho, count) = (1_000.0, 0.8, 1_000_000);
        let mut device = Fixed::new(Config { service: Duration::from_micros(1), servers: 1 });
        let mut gaps = Rng::stream(1, "gaps");
        let (mut arrival, mut sum) = (0.0, 0);
        for id in 0..count {
            arrival += -libm::log(1.0 - gaps.unit()) * service / rho;
            let now = Instant::from_nanos(arrival as u64);
            while device.finished(now).is_some() {}
            device.start(now, io(id));
            let end = device.ends.back().unwrap().0;
            sum += end.since(now).as_nanos();
        }
        let measured = sum as f64 / count as f64;
        let predicted = service + rho * service / (2.0 * (1.0 - rho));
        // The wait has a standard deviation of about 2.3 services; at rho = 0.8 about one value in
        // fifty is independent, so the standard error is 2.3 / sqrt(20 000) = 0.016 services.
        assert!((measured - predicted).abs() < 60.0, "predicted {predicted}, measured {measured}");
    }
}
