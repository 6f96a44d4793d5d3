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
    }
}
