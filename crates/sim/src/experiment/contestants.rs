//! The control policies with the settings under which they are compared.

use weir_flow::control::{Build, POLICIES};
use weir_flow::policy::Choice;

/// A policy with settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contestant {
    /// Its name in tables.
    pub(super) label: &'static str,
    policy: &'static str,
    settings: &'static [(&'static str, u64)],
}

const fn with(
    label: &'static str,
    policy: &'static str,
    settings: &'static [(&'static str, u64)],
) -> Contestant {
    Contestant { label, policy, settings }
}

/// Those of the nine intervals, in the order of the tables. TA2 and TA3 as in their paper: they look at
/// requests that have ended, not at the oldest that has not.
pub(super) static INTERVALS: &[Contestant] = &[
    with("TA0", "open", &[]),
    with("TA1", "ta1", &[]),
    with("TA2-75", "ta2", &[("hwm", 75), ("lwm", 70), ("oldest", 0)]),
    with("TA2-85", "ta2", &[("hwm", 85), ("lwm", 80), ("oldest", 0)]),
    with("TA2-95", "ta2", &[("hwm", 95), ("lwm", 90), ("oldest", 0)]),
    with("TA3-75", "ta3", &[("hwm", 75), ("lwm", 70), ("oldest", 0)]),
    with("TA3-85", "ta3", &[("hwm", 85), ("lwm", 80), ("oldest", 0)]),
    with("TA3-95", "ta3", &[("hwm", 95), ("lwm", 90), ("oldest", 0)]),
    with("Facade", "facade", &[]),
    with("EDF(128)", "edf", &[("depth", 128)]),
    with("EDF(64)", "edf", &[("depth", 64)]),
    with("SFQ(128)", "sfq", &[("depth", 128)]),
    with("SFQ(64)", "sfq", &[("depth", 64)]),
    with("SFQ(32)", "sfq", &[("depth", 32)]),
    with("mClock(64)", "mclock", &[("depth", 64)]),
    with("TA4", "slack", &[]),
];

/// Those of the scenarios.
pub(super) static SCENARIOS: &[Contestant] = &[
    with("TA0", "open", &[]),
    with("TA1", "ta1", &[]),
    with("TA2-85", "ta2", &[("hwm", 85), ("lwm", 80), ("oldest", 0)]),
    with("TA3-85", "ta3", &[("hwm", 85), ("lwm", 80), ("oldest", 0)]),
    with("TA3-85 p95", "ta3", &[("hwm", 85), ("lwm", 80), ("oldest", 0), ("estimator", 1)]),
    with("Facade", "facade", &[]),
    with("SFQ(64)", "sfq", &[("depth", 64)]),
    with("SFQ(128)", "sfq", &[("depth", 128)]),
    with("mClock(64)", "mclock", &[("depth", 64)]),
    with("TA4", "slack", &[]),
];

/// Shares of what the array can do that a policy is told.
pub(super) const STATED: [f64; 3] = [0.5, 1.0, 2.0];

/// Policies that are told this share of what the array can do. mClock hears it as its depth, which is
/// proportional to it at one response time (Little), 64 being right; TA4 as the window that it begins
/// with, if it asks for one.
pub(super) fn told(share: f64) -> [(&'static str, Choice<Build>); 2] {
    let depth = (64.0 * share) as u64;
    let (mut mclock, mut slack) = (called("mClock(64)"), called("TA4"));
    mclock.set("depth", depth).expect("mClock has a depth");
    if slack.policy().parameters.iter().any(|parameter| parameter.name == "first") {
        slack.set("first", depth).expect("a window may begin so");
    }
    [("mClock", mclock), ("TA4", slack)]
}

impl Contestant {
    /// The policy, ready to be built.
    pub(super) fn choice(self) -> Choice<Build> {
        let mut choice = Choice::named(POLICIES, self.policy).expect("a policy of the list");
        for &(name, value) in self.settings {
            choice.set(name, value).expect("a parameter of the policy, in range");
        }
        choice
    }
}

/// The contestant of a table with this label.
pub(super) fn called(label: &str) -> Choice<Build> {
    let found = INTERVALS.iter().find(|contestant| contestant.label == label);
    found.expect("a label of the table").choice()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every contestant is a policy of the list with parameters in range.
    #[test]
    fn contestants_exist() {
        for contestant in INTERVALS.iter().chain(SCENARIOS) {
            contestant.choice();
        }
        assert_ne!(told(0.5)[0], told(2.0)[0]);
    }
}
