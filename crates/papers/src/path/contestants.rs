//! The selectors with the settings under which they are compared.

use crate::contestant::Contestant;

const RR: Contestant = Contestant::new("rr", "round-robin", &[]);
const QL: Contestant = Contestant::new("ql", "queue-length", &[]);
const ST: Contestant = Contestant::new("st", "service-time", &[]);
const ROUNG: Contestant = Contestant::new("roung", "roung", &[]);
const ROUNG_JOB: Contestant = Contestant::new("roung-job", "roung-job", &[]);
const JSW: Contestant = Contestant::new("jsw", "jsw", &[]);

/// Those of the paper: its rival, and both readings.
pub(super) const PAPER: [Contestant; 3] = [RR, ROUNG, ROUNG_JOB];

/// All, in the order of the tables.
pub(super) const ALL: [Contestant; 12] = [
    RR,
    // The multipath of Linux 2.6 kept a path for this many I/Os.
    Contestant::new("rr1000", "round-robin", &[("repeat", 1_000)]),
    QL,
    ST,
    Contestant::new("hst", "historical-service-time", &[]),
    Contestant::new("hst2", "historical-service-time", &[("threshold", 2)]),
    Contestant::new("p2c", "two-choices", &[]),
    Contestant::new("p2cb", "two-choices", &[]).words(&[("bytes", "true")]),
    Contestant::new("ewma", "ewma", &[]),
    ROUNG,
    ROUNG_JOB,
    JSW,
];

/// Service-time with the factor by which the first path is faster in its configuration.
pub(super) const CONFIGURED: [Contestant; 3] = [
    Contestant::new("st*", "service-time", &[("throughput", 2)]),
    Contestant::new("st*", "service-time", &[("throughput", 4)]),
    Contestant::new("st*", "service-time", &[("throughput", 10)]),
];

/// Rules of aging for more than two paths, with a rival before and two after them.
pub(super) fn rules(paths: u32) -> [Contestant; 6] {
    let wide = match paths {
        2 => &[("threshold", 4)],
        4 => &[("threshold", 12)],
        6 => &[("threshold", 20)],
        8 => &[("threshold", 28)],
        _ => &[("threshold", 60)],
    };
    [
        RR,
        Contestant::new("literal", "roung", &[]).words(&[("literal", "true")]),
        ROUNG,
        Contestant::new("roung 4(n-1)", "roung", wide),
        ST,
        JSW,
    ]
}

/// Numbers of paths for [`rules`].
pub(super) const PATHS: [u32; 5] = [2, 4, 6, 8, 16];

/// Thresholds that are tried on two paths.
pub(super) const THRESHOLDS: [(u32, Contestant); 6] = [
    (2, Contestant::new("roung", "roung", &[("threshold", 2)])),
    (3, Contestant::new("roung", "roung", &[("threshold", 3)])),
    (4, ROUNG),
    (6, Contestant::new("roung", "roung", &[("threshold", 6)])),
    (8, Contestant::new("roung", "roung", &[("threshold", 8)])),
    (16, Contestant::new("roung", "roung", &[("threshold", 16)])),
];

#[cfg(test)]
mod tests {
    use super::*;
    use weir_flow::path::POLICIES;

    /// Every contestant is a policy of the list with parameters in range, and no label means two.
    #[test]
    fn contestants_exist() {
        let rules = PATHS.into_iter().flat_map(rules);
        let thresholds = THRESHOLDS.map(|(_, contestant)| contestant);
        for contestant in ALL.into_iter().chain(CONFIGURED).chain(rules).chain(thresholds) {
            contestant.choice(POLICIES);
        }
        let mut labels = ALL.map(|contestant| contestant.label);
        labels.sort_unstable();
        assert!(labels.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
