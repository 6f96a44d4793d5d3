//! The dispatch policies with the settings under which they are compared.

use crate::contestant::Contestant;

/// A policy, and the service times that it gets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rival {
    pub(super) policy: Contestant,
    /// Nominal nanoseconds of every operation, instead of those of its kind.
    pub(super) flat: Option<u64>,
    /// Whether it gets the actual service times.
    pub(super) corrects: bool,
    /// Whether streams owe for garbage collection.
    pub(super) debts: bool,
}

/// Half a millisecond for everything: neither a read's nor a program's.
const FLAT: Option<u64> = Some(500_000);

const fn rival(
    label: &'static str,
    policy: &'static str,
    settings: &'static [(&'static str, u64)],
) -> Rival {
    let policy = Contestant::new(label, policy, settings);
    Rival { policy, flat: None, corrects: true, debts: false }
}

/// The paper's policy, with its depth of four.
pub(super) const FOG: Rival = rival("fog", "fog", &[("depth", 4)]);

/// Ours.
pub(super) const FAIR_TIME: Rival = Rival { debts: true, ..rival("fair-time", "fair-time", &[]) };

/// Ours with the paper's depth: what is compared is then the order alone.
pub(super) const FAIR_TIME_4: Rival =
    Rival { debts: true, ..rival("fair-time, depth 4", "fair-time", &[("depth", 4)]) };

/// The same with the clock of all chips alone.
const ONE_CLOCK: Rival = Rival {
    debts: true,
    ..rival("fair-time, one clock", "fair-time", &[("depth", 4), ("lead", 3_600_000_000_000)])
};

pub(super) const FIFO: Rival = rival("fifo", "fifo", &[("depth", 4)]);

/// Of the figures.
pub(super) const ALL: &[Rival] = &[
    FOG,
    Rival { flat: FLAT, ..rival("fog, flat nominal", "fog", &[("depth", 4)]) },
    Rival {
        flat: FLAT,
        corrects: false,
        ..rival("fog, flat, uncorrected", "fog", &[("depth", 4)])
    },
    FAIR_TIME,
    FAIR_TIME_4,
    ONE_CLOCK,
    rival("wfq", "wfq", &[("depth", 4)]),
    Rival { flat: FLAT, ..rival("wfq, flat", "wfq", &[("depth", 4)]) },
    rival("sfq", "sfq", &[("depth", 4)]),
    rival("drr", "deficit-round-robin", &[("depth", 4), ("quantum", 4_096)]),
    rival("rr", "round-robin", &[("depth", 4)]),
    FIFO,
];

/// Where reads wait behind programs.
pub(super) const PROBED: &[Rival] = &[
    rival("fifo, depth 16", "fifo", &[("depth", 16)]),
    rival("fog, depth 16", "fog", &[("depth", 16)]),
    FOG,
    rival("fog, depth 1", "fog", &[("depth", 1)]),
    FAIR_TIME,
];
