//! The control policies with the settings under which they are compared.

use crate::contestant::Contestant;
use weir_flow::control::{Build, POLICIES};
use weir_flow::policy::Choice;

/// TA2 and TA3 as in their paper: they observe requests that have ended, not the oldest that has not.
const ENDED: &[(&str, &str)] = &[("oldest", "false")];

/// Those of the nine intervals, in the order of the tables.
pub(super) static INTERVALS: &[Contestant] = &[
    Contestant::new("TA0", "open", &[]),
    Contestant::new("TA1", "ta1", &[]),
    Contestant::new("TA2-75", "ta2", &[("hwm", 75), ("lwm", 70)]).words(ENDED),
    Contestant::new("TA2-85", "ta2", &[("hwm", 85), ("lwm", 80)]).words(ENDED),
    Contestant::new("TA2-95", "ta2", &[("hwm", 95), ("lwm", 90)]).words(ENDED),
    Contestant::new("TA3-75", "ta3", &[("hwm", 75), ("lwm", 70)]).words(ENDED),
    Contestant::new("TA3-85", "ta3", &[("hwm", 85), ("lwm", 80)]).words(ENDED),
    Contestant::new("TA3-95", "ta3", &[("hwm", 95), ("lwm", 90)]).words(ENDED),
    Contestant::new("Facade", "facade", &[]),
    Contestant::new("EDF(128)", "edf", &[("depth", 128)]),
    Contestant::new("EDF(64)", "edf", &[("depth", 64)]),
    Contestant::new("SFQ(128)", "sfq", &[("depth", 128)]),
    Contestant::new("SFQ(64)", "sfq", &[("depth", 64)]),
    Contestant::new("SFQ(32)", "sfq", &[("depth", 32)]),
    Contestant::new("mClock(64)", "mclock", &[("depth", 64)]),
    Contestant::new("TA4", "slack", &[]),
];

/// Those of the scenarios.
pub(super) static SCENARIOS: &[Contestant] = &[
    Contestant::new("TA0", "open", &[]),
    Contestant::new("TA1", "ta1", &[]),
    Contestant::new("TA2-85", "ta2", &[("hwm", 85), ("lwm", 80)]).words(ENDED),
    Contestant::new("TA3-85", "ta3", &[("hwm", 85), ("lwm", 80)]).words(ENDED),
    Contestant::new("TA3-85 p95", "ta3", &[("hwm", 85), ("lwm", 80)])
        .words(&[("oldest", "false"), ("estimator", "p95")]),
    Contestant::new("Facade", "facade", &[]),
    Contestant::new("SFQ(64)", "sfq", &[("depth", 64)]),
    Contestant::new("SFQ(128)", "sfq", &[("depth", 128)]),
    Contestant::new("mClock(64)", "mclock", &[("depth", 64)]),
    Contestant::new("TA4", "slack", &[]),
];

/// Parts of the capacity of the array that a policy is configured with.
pub(super) const STATED: [f64; 3] = [0.5, 1.0, 2.0];

/// Policies that are configured with this part of the array's capacity. mClock takes it as its depth, which is
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

/// The contestant of a table with this label.
pub(super) fn called(label: &str) -> Choice<Build> {
    let found = INTERVALS.iter().find(|contestant| contestant.label == label);
    found.expect("a label of the table").choice(POLICIES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every contestant is a policy of the list with parameters in range.
    #[test]
    fn contestants_exist() {
        for contestant in INTERVALS.iter().chain(SCENARIOS) {
            contestant.choice(POLICIES);
        }
        assert_ne!(told(0.5)[0], told(2.0)[0]);
    }
}
