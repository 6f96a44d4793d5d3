//! The claims about ejection: healthy paths stay, slow ones are left, repaired ones return.

use super::ejection::{CalmRow, SlowRow};
use crate::claim::{Claim, most};

/// The verdicts of docs/decisions/0023-slow-paths.md.
pub(super) fn judge(calm: &[CalmRow], slow: &[SlowRow]) -> [Claim; 3] {
    let far = || slow.iter().filter(|row| row.factor == 20);
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
        .judged("<= 1", !calm.is_empty() && calm.iter().all(is_rare))
        .required(true)
        .note(calm.iter().map(named).collect::<Vec<_>>().join(", ")),
        Claim::new(
            "E-left",
            "sizes change",
            "closed, 8",
            "a path that is 20 times slower is left within a second",
        )
        .measured(left, "s until its share is a tenth, median of the slowest selector")
        .judged("<= 1", far().next().is_some() && left <= 1.0)
        .required(true)
        .note(far().map(taken).collect::<Vec<_>>().join(", ")),
        Claim::new("E-back", "sizes change", "closed, 8", "a repaired path returns within seconds")
            .measured(back, "s until it is in use, median of the slowest selector")
            .judged("<= 6", !slow.is_empty() && back <= 6.0)
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

    /// Each claim fails when its figure is too large, and when no selector was run.
    #[test]
    fn claims_can_fail() {
        let calm =
            |ejections| CalmRow { selector: "jsw", hours: 24.0, ios: 1, ejections, silent: 0 };
        let slow = |left, back| SlowRow {
            selector: "jsw",
            factor: 20,
            runs: 1,
            ejected: 1,
            left_s: (left, left),
            back_s: (back, back),
        };
        let holds = |calm: &[CalmRow], slow: &[SlowRow]| judge(calm, slow).map(|claim| claim.holds);
        assert_eq!(holds(&[calm(2)], &[slow(1.0, 6.0)]), [true; 3]);
        assert_eq!(holds(&[calm(2), calm(3)], &[slow(1.0, 6.0)]), [false, true, true]);
        assert_eq!(holds(&[calm(2)], &[slow(1.1, 6.0)]), [true, false, true]);
        assert_eq!(holds(&[calm(2)], &[slow(1.0, 6.1)]), [true, true, false]);
        assert_eq!(holds(&[], &[]), [false; 3]);
    }
}
