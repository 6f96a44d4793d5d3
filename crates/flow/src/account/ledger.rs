//! Where a tenant's time went: by stage and rule, to the nanosecond.

use crate::clock::Duration;
use crate::event::{StageName, StageTimes};
use crate::policy::Rule;
use alloc::vec::Vec;
use core::ptr;

/// The response times of a tenant, divided by what they were spent on.
///
/// The times of the [`lines`](Self::lines) add up to `total`, and their late parts to `late`, exactly. A
/// request that was held in one stage several times counts there once, under the rule that held it last.
/// Memory is bounded by the rules that the program knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Requests that ended.
    pub total: Spent,
    /// Those of them that the contract counts as missed: they took longer than the last target of their
    /// row, or failed.
    pub late: Spent,
    /// The part of the late ones' time beyond that target, in nanoseconds.
    pub beyond_ns: u128,
    /// Requests that were turned away; they took no time.
    pub refused: u64,
    lines: Vec<Line>,
}

/// A number of requests, and their time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Requests.
    pub count: u64,
    /// Sum of their times in nanoseconds.
    pub nanos: u128,
}

/// One cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Where requests were.
    pub stage: StageName,
    /// What held them there.
    pub rule: Rule,
    /// Requests that it held, and for how long.
    pub all: Spent,
    /// Those of them that were late.
    pub late: Spent,
}

impl Spent {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.nanos += other.nanos;
    }
}

impl Ledger {
    /// The causes that took time, in order of stage and name.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Counts a request that has ended; `late` is the target that it should have met and did not.
    pub fn record(&mut self, times: &StageTimes, late: Option<Duration>) {
        let spent = |time: Duration| Spent { count: 1, nanos: u128::from(time.as_nanos()) };
        let total = times.total();
        self.total.add(spent(total));
        if let Some(target) = late {
            self.late.add(spent(total));
            self.beyond_ns += u128::from(total.as_nanos().saturating_sub(target.as_nanos()));
        }
        for (stage, rule, time) in times.held() {
            let held = spent(time);
            let line = self.line(stage, rule);
            line.all.add(held);
            if late.is_some() {
                line.late.add(held);
            }
        }
        self.check();
    }

    /// Counts everything that the other has counted.
    pub fn merge(&mut self, other: &Self) {
        self.total.add(other.total);
        self.late.add(other.late);
        self.beyond_ns += other.beyond_ns;
        self.refused += other.refused;
        for theirs in &other.lines {
            let line = self.line(theirs.stage, theirs.rule);
            line.all.add(theirs.all);
            line.late.add(theirs.late);
        }
    }

    /// The lines add up to the totals.
    fn check(&self) {
        if cfg!(debug_assertions) {
            let sum = |of: fn(&Line) -> Spent| self.lines.iter().map(|line| of(line).nanos).sum();
            let sums: [u128; 2] = [sum(|line| line.all), sum(|line| line.late)];
            let totals = [self.total.nanos, self.late.nanos];
            assert_eq!(sums, totals, "the lines of a ledger do not add up to its totals");
        }
    }

    /// Where the line with this text is, made if need be.
    fn find(&mut self, stage: StageName, rule: Rule) -> usize {
        let found = self.lines.binary_search_by_key(&(stage, rule), |line| (line.stage, line.rule));
        found.unwrap_or_else(|index| {
            let (all, late) = (Spent::default(), Spent::default());
            self.lines.insert(index, Line { stage, rule, all, late });
            index
        })
    }

    fn line(&mut self, stage: StageName, rule: Rule) -> &mut Line {
        // Rules are constants: mostly it is the same text in the same place.
        let is_same = |line: &Line| line.stage == stage && ptr::eq(line.rule.0, rule.0);
        let index = self.lines.iter().position(is_same).unwrap_or_else(|| self.find(stage, rule));
        &mut self.lines[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Rule = Rule(&"control/open");
    const BUCKET: Rule = Rule(&"control/bucket");
    const DEVICE: Rule = Rule(&"storage/device");

    fn times(control: (u64, Rule), store: u64) -> StageTimes {
        let mut times = StageTimes::default();
        times.charge(StageName::Control, Duration::from_nanos(control.0), control.1);
        times.charge(StageName::Storage, Duration::from_nanos(store), DEVICE);
        times
    }

    /// Lines add up to the totals, whole and late; a rule that held no request has none; two ledgers merged
    /// are the ledger of both.
    #[test]
    fn lines_add_up() {
        let stories = [
            (times((0, OPEN), 7), None),
            (times((5, BUCKET), 7), Some(Duration::from_nanos(10))),
            (times((u64::MAX / 2, BUCKET), 1), Some(Duration::from_nanos(u64::MAX))),
            (times((3, OPEN), 0), None),
        ];
        let (mut whole, mut parts) = (Ledger::default(), [Ledger::default(), Ledger::default()]);
        for (index, (times, late)) in stories.iter().enumerate() {
            whole.record(times, *late);
            parts[index % 2].record(times, *late);
        }
        let [mut one, other] = parts;
        one.merge(&other);
        assert_eq!(one, whole);
        let sum = |of: fn(&Line) -> Spent| whole.lines().iter().map(|line| of(line).nanos).sum();
        assert_eq!(whole.total, Spent { count: 4, nanos: sum(|line| line.all) });
        assert_eq!(whole.late, Spent { count: 2, nanos: sum(|line| line.late) });
        assert_eq!(whole.beyond_ns, 2);
        let rules: Vec<_> = whole.lines().iter().map(|line| (line.rule, line.all.count)).collect();
        assert_eq!(rules, [(BUCKET, 2), (OPEN, 1), (DEVICE, 3)]);
    }

    /// A line that is not part of the total is found out, in a debug build: the check adds up a list.
    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "do not add up to its totals")]
    fn a_wrong_line_is_noticed() {
        let mut ledger = Ledger::default();
        ledger.total.nanos = 1;
        ledger.record(&times((0, OPEN), 7), None);
    }
}
