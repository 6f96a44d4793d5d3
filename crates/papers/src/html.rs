//! The results as one self-contained HTML page.

use crate::{Chapter, text};
use std::fmt::Write as _;
use weir_sim::table::{Align, Table};

/// The page.
pub fn page(chapters: &[Chapter]) -> String {
    let mut page = String::from(HEAD);
    for Chapter { name, seed, claims, parts, .. } in chapters {
        let _ = writeln!(page, "<h1>Experiment {name}, seed {seed}</h1><h2>Claims</h2>");
        table(&mut page, &text::table(claims));
        page.push_str("<details><summary>What is behind them</summary><ul>");
        for claim in claims.iter().filter(|claim| !claim.note.is_empty()) {
            let (id, set, arrivals) = (claim.id, claim.set, claim.arrivals);
            let _ = writeln!(page, "<li><b>{id} {set} {arrivals}</b> {}", escape(&claim.note));
        }
        page.push_str("</ul></details>");
        for part in parts {
            let _ = writeln!(page, "<h2>{}</h2>", escape(&part.title));
            for picture in &part.pictures {
                page.push_str(picture);
            }
            let Some(figures) = &part.table else { continue };
            if part.pictures.is_empty() {
                table(&mut page, figures);
            } else {
                page.push_str("<details><summary>All figures</summary>");
                table(&mut page, figures);
                page.push_str("</details>");
            }
        }
    }
    page.push_str("</body></html>\n");
    page
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn table(page: &mut String, table: &Table) {
    page.push_str("<table><tr>");
    for (name, align) in table.columns() {
        let _ = write!(page, "<th{}>{}</th>", class(*align), escape(name));
    }
    page.push_str("</tr>");
    for row in table.rows() {
        page.push_str("<tr>");
        for (cell, (_, align)) in row.iter().zip(table.columns()) {
            let _ = write!(page, "<td{}>{}</td>", class(*align), escape(cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n");
}

const fn class(align: Align) -> &'static str {
    match align {
        Align::Left => "",
        Align::Right => " class=n",
    }
}

const HEAD: &str = "<!doctype html>
<html lang=en><head><meta charset=utf-8><title>weir reproduce</title><style>
body { font: 14px sans-serif; margin: 2em; max-width: 110em }
table { border-collapse: collapse; margin: .5em 0 } th, td { padding: .1em .7em; text-align: left }
th { border-bottom: 1px solid } tr:nth-child(even) { background: #f4f4f4 } .n { text-align: right }
td:nth-child(-n+4) { white-space: nowrap }
figure { display: inline-block; margin: .5em } svg { font: 11px sans-serif } .t { font-weight: bold }
.good { fill: #4a90c2 } .bad { fill: #c8553d } .on { fill: #ddd }
polyline { fill: none; stroke-width: .8 } .flight { stroke: #2a6fa8 } .time { stroke: #c8553d }
.grid { stroke: #ddd; stroke-width: .5 } .phase { stroke: #2a6fa8; stroke-width: .3 }
</style></head><body>
";
