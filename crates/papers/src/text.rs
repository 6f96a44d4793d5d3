//! The results as text: claims, then tables.

use crate::Chapter;
use crate::claim::Claim;
use std::fmt::Write as _;
use weir_sim::table::{Align, Table};

const CLAIMS: &[(&str, Align)] = &[
    ("claim", Align::Left),
    ("set", Align::Left),
    ("arrivals", Align::Left),
    ("verdict", Align::Left),
    ("published", Align::Left),
    ("measured", Align::Right),
    ("unit", Align::Left),
    ("must be", Align::Left),
];

/// Everything.
pub fn text(chapters: &[Chapter]) -> String {
    let mut text = String::new();
    for Chapter { name, seed, claims, parts, .. } in chapters {
        let space = if text.is_empty() { "" } else { "\n" };
        let _ = writeln!(text, "{space}Experiment {name}: claims");
        text.push_str(&table(claims).render("  "));
        text.push_str("\nWhat is behind them\n");
        for claim in claims.iter().filter(|claim| !claim.note.is_empty()) {
            let (id, set, arrivals) = (claim.id, claim.set, claim.arrivals);
            let _ = writeln!(text, "  {id} {set} {arrivals}: {}", claim.note);
        }
        for part in parts {
            if let Some(table) = &part.table {
                let _ = writeln!(text, "\n{}", part.title);
                text.push_str(&table.render("  "));
            }
        }
        let kept = claims.iter().filter(|claim| claim.holds).count();
        let broken = claims.iter().filter(|claim| claim.required && !claim.holds).count();
        let all = claims.len();
        let _ = writeln!(
            text,
            "\n{kept} of {all} claims hold, {broken} that must hold do not; seed {seed}"
        );
    }
    text
}

/// A claim's verdict in a word or two.
const fn verdict(claim: &Claim) -> &'static str {
    match (claim.holds, claim.required) {
        (true, _) => "holds",
        (false, true) => "MUST HOLD, does not",
        (false, false) => "does not hold",
    }
}

/// A figure with as many decimals as it deserves.
fn figure(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

/// The claims as a table.
pub(super) fn table(claims: &[Claim]) -> Table {
    let mut table = Table::new(CLAIMS);
    for claim in claims {
        table.row(vec![
            claim.id.to_owned(),
            claim.set.to_owned(),
            claim.arrivals.to_owned(),
            verdict(claim).to_owned(),
            claim.published.to_owned(),
            figure(claim.measured),
            claim.unit.to_owned(),
            claim.tolerance.to_owned(),
        ]);
    }
    table
}
