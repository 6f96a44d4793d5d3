//! How the study of the transfer policies is shown.

use crate::chapter::{Chapter, Part};
use crate::transfer::study::{ExampleRow, PointRow, Study, TraceRow};
use weir_sim::table::{Align, Table};

const EXAMPLE: &[(&str, Align)] = &[
    ("policy", Align::Left),
    ("order", Align::Left),
    ("delays", Align::Left),
    ("sum", Align::Right),
    ("responses", Align::Left),
    ("sum", Align::Right),
    ("end", Align::Right),
];

const POINTS: &[(&str, Align)] = &[
    ("trace", Align::Left),
    ("reads", Align::Right),
    ("mean pages", Align::Right),
    ("page us", Align::Right),
    ("FIFO delay", Align::Right),
];

const RIVALS: &[(&str, Align)] = &[
    ("policy", Align::Left),
    ("delay", Align::Right),
    ("%", Align::Right),
    ("response", Align::Right),
    ("%", Align::Right),
    ("p99", Align::Right),
    ("p99.9", Align::Right),
    ("most", Align::Right),
    ("slowdown", Align::Right),
    ("p99.9", Align::Right),
    ("most", Align::Right),
    ("late p99.9", Align::Right),
    ("most", Align::Right),
];

/// The study as a chapter.
pub fn chapter(name: &'static str, study: Study) -> serde_json::Result<Chapter> {
    let mut parts = vec![
        part("Figures 3 and 4, in ms", table(EXAMPLE, &study.example, example)),
        part("Links on which FIFO delays as in the paper", table(POINTS, &study.points, point)),
    ];
    for point in &study.points {
        let rows: Vec<_> = study.traces.iter().filter(|row| row.trace == point.trace).collect();
        let title = format!("Reads of {}, in mean transfers", point.trace);
        parts.push(part(&title, table(RIVALS, &rows, |row| rival(row))));
    }
    let title = "Replies of 4 KiB and one of 256 KiB among 2000, 1.03 of what the link can send";
    parts.push(part(title, table(RIVALS, &study.overload, rival)));
    let value = serde_json::to_value(&study)?;
    Ok(Chapter { name, seed: study.seed, claims: study.claims, parts, value })
}

fn part(title: &str, table: Table) -> Part {
    Part { title: title.to_owned(), pictures: Vec::new(), table: Some(table) }
}

fn table<T>(columns: &[(&str, Align)], rows: &[T], cells: impl Fn(&T) -> Vec<String>) -> Table {
    let mut table = Table::new(columns);
    for row in rows {
        table.row(cells(row));
    }
    table
}

fn list<T: ToString>(values: &[T]) -> String {
    let values: Vec<_> = values.iter().map(ToString::to_string).collect();
    values.join(" ")
}

fn example(row: &ExampleRow) -> Vec<String> {
    let ExampleRow { policy, order, delays, responses, waited, responded, end } = row;
    vec![
        (*policy).to_owned(),
        list(order),
        list(delays),
        waited.to_string(),
        list(responses),
        responded.to_string(),
        end.to_string(),
    ]
}

fn point(row: &PointRow) -> Vec<String> {
    let PointRow { trace, reads, pages, page_ns, delay, .. } = row;
    vec![
        trace.clone(),
        reads.to_string(),
        format!("{pages:.2}"),
        format!("{:.2}", page_ns / 1e3),
        format!("{delay:.4}"),
    ]
}

fn rival(row: &TraceRow) -> Vec<String> {
    let figures = &row.figures;
    let mut cells = vec![row.policy.to_owned()];
    for (value, change) in
        [(figures.delay, row.delay_change), (figures.response, row.response_change)]
    {
        cells.extend([format!("{value:.3}"), format!("{change:+.1}")]);
    }
    let times = [figures.p99, figures.p999, figures.longest];
    cells.extend(times.map(|time| format!("{time:.1}")));
    let slowdowns = [figures.slowdown, figures.slowdown_p999, figures.slowdown_most];
    cells.extend(slowdowns.map(|slowdown| format!("{slowdown:.1}")));
    cells.extend([figures.late_p999, figures.late_most].map(|late| format!("{late:.1}")));
    cells
}
