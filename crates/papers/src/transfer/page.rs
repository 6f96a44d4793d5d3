//! The tables of the transfer study.

use super::study::{ExampleRow, PointRow, Study, TraceRow};
use crate::chapter::Part;
use weir_sim::table::{Column, Table, numbers, words};

/// The tables of the study.
pub(crate) fn parts(study: &Study) -> Vec<Part> {
    let mut parts = vec![
        Part::table("Figures 3 and 4, in ms", Table::of(EXAMPLE, &study.example)),
        Part::table("Links on which FIFO delays as in the paper", Table::of(POINTS, &study.points)),
    ];
    for point in &study.points {
        let rows = study.traces.iter().filter(|row| row.trace == point.trace);
        let title = format!("Reads of {}, in mean transfers", point.trace);
        parts.push(Part::table(title, Table::of(RIVALS, rows)));
    }
    let title = "Replies of 4 KiB and one of 256 KiB among 2000, 1.03 of what the link can send";
    parts.push(Part::table(title, Table::of(RIVALS, &study.overload)));
    parts
}

const EXAMPLE: &[Column<ExampleRow>] = &[
    words("policy", |row| row.policy.to_owned()),
    words("order", |row| list(&row.order)),
    words("delays", |row| list(&row.delays)),
    numbers("sum", |row| row.waited.to_string()),
    words("responses", |row| list(&row.responses)),
    numbers("sum", |row| row.responded.to_string()),
    numbers("end", |row| row.end.to_string()),
];

const POINTS: &[Column<PointRow>] = &[
    words("trace", |row| row.trace.clone()),
    numbers("reads", |row| row.reads.to_string()),
    numbers("mean pages", |row| format!("{:.2}", row.pages)),
    numbers("page us", |row| format!("{:.2}", row.page_ns / 1e3)),
    numbers("FIFO delay", |row| format!("{:.4}", row.delay)),
];

const RIVALS: &[Column<TraceRow>] = &[
    words("policy", |row| row.policy.to_owned()),
    numbers("delay", |row| format!("{:.3}", row.figures.delay)),
    numbers("%", |row| format!("{:+.1}", row.delay_change)),
    numbers("response", |row| format!("{:.3}", row.figures.response)),
    numbers("%", |row| format!("{:+.1}", row.response_change)),
    numbers("p99", |row| format!("{:.1}", row.figures.p99)),
    numbers("p99.9", |row| format!("{:.1}", row.figures.p999)),
    numbers("most", |row| format!("{:.1}", row.figures.longest)),
    numbers("slowdown", |row| format!("{:.1}", row.figures.slowdown)),
    numbers("p99.9", |row| format!("{:.1}", row.figures.slowdown_p999)),
    numbers("most", |row| format!("{:.1}", row.figures.slowdown_most)),
    numbers("late p99.9", |row| format!("{:.1}", row.figures.late_p999)),
    numbers("most", |row| format!("{:.1}", row.figures.late_most)),
];

fn list<T: ToString>(values: &[T]) -> String {
    let values: Vec<_> = values.iter().map(ToString::to_string).collect();
    values.join(" ")
}
