//! The claims about ejection: healthy paths stay, slow ones are left, repaired ones return.

use super::ejection::{CalmRow, FACTORS, SlowRow};
use crate::claim::{Claim, most};
use weir_flow::path::POLICIES;

/// The verdicts of docs/decisions/0023-slow-paths.md.
pub(super) fn judge(calm: &[CalmRow], slow: &[SlowRow]) -> [Claim; 3] {
    let far = || slow.iter().filter(|row| row.factor == 20);
    // A row for each selector, and for each factor.
    let (has_calm, has_far) = (calm.len() == POLICIES.len(), far().count() == POLICIES.len());
    let has_slow = slow.len() == POLICIES.len() * FACTORS.len();
    let ejections = most(calm.iter().map(CalmRow::ejections_in_a_day));
    let left = most(far().map(|row| row.left_s.0));
    let back = most(slow.iter().map(|row| row.back_s.0));
    let named = |row: &CalmRow| format!("{} {:.2}", row.selector, row.ejections_in_a_day());
    let taken = |row: &SlowRow| format!("{} {:.1}/{:.1}", row.selector, row.left_s.0, row.left_s.1);
    let returned =
        |row: &SlowRow| format!("{} {:.1}/{:.1}", row.selector, row.back_s.0, row.back_s.1);
    [
        Claim::new(
            "E-calm",
            "sizes change",
            "rest, load",
            "pauses eject a healthy path at most once in a day",
        )
        .measured(ejections, "ejections of a path in a day, most")
        .judged("<= 1", has_calm && calm.iter().all(is_rare))
        .required(true)
        .note(calm.iter().map(named).collect::<Vec<_>>().join(", ")),
        Claim::new(
            "E-left",
            "sizes change",
            "closed, 8",
            "a path that is 20 times slower is left within a second",
        )
        .measured(left, "s until its share is a tenth, median of the slowest selector")
        .judged("<= 1", has_far && left <= 1.0)
        .required(true)
        .note(far().map(taken).collect::<Vec<_>>().join(", ")),
        Claim::new("E-back", "sizes change", "closed, 8", "a repaired path returns within seconds")
            .measured(back, "s until it is in use, median of the slowest selector")
            .judged("<= 6", has_slow && back <= 6.0)
            .required(true)
            .note(far().map(returned).collect::<Vec<_>>().join(", ")),
    ]
}

/// Whether a path is ejected at most once in a day, or once at all in a shorter time.
fn is_rare(row: &CalmRow) -> bool {
    row.ejections as f64 <= row.days().ceil()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each claim fails when one figure is too large, and when a selector was not run.
    #[test]
    fn claims_can_fail() {
        let calm =
            |ejections| CalmRow { selector: "jsw", hours: 24.0, ios: 1, ejections, silent: 0 };
        let slow = |factor, left, back| SlowRow {
            selector: "jsw",
            factor,
            runs: 1,
            ejected: 1,
            left_s: (left, left),
            back_s: (back, back),
        };
        let holds = |count: usize, last: CalmRow, (left, back)| {
            let mut calm = vec![calm(2); count];
            calm[count - 1] = last;
            let mut rows: Vec<_> = FACTORS
                .iter()
                .flat_map(|&factor| (0..count).map(move |_| slow(factor, 1.0, 6.0)))
                .collect();
            let far = rows.iter().rposition(|row| row.factor == 20).expect("it is one of them");
            (rows[far].left_s, rows[far].back_s) = ((left, left), (back, back));
            judge(&calm, &rows).map(|claim| claim.holds)
        };
        let all = POLICIES.len();
        assert_eq!(holds(all, calm(2), (1.0, 6.0)), [true; 3]);
        assert_eq!(holds(all, calm(3), (1.0, 6.0)), [false, true, true]);
        assert_eq!(holds(all, calm(2), (1.1, 6.0)), [true, false, true]);
        assert_eq!(holds(all, calm(2), (1.0, 6.1)), [true, true, false]);
        assert_eq!(holds(all - 1, calm(2), (1.0, 6.0)), [false; 3]);
    }
}
