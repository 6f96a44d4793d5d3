//! The claims of the DQBS paper and their verdicts.

use super::study::{ExampleRow, Study, TraceRow};
use crate::claim::{Claim, least, most};

/// The verdicts.
pub(super) fn judge(study: &Study) -> Vec<Claim> {
    let mut claims = example(study);
    claims.extend(gains(study));
    claims.push(balance(study));
    claims.push(bound(study));
    claims.extend(known(study));
    claims.push(starvation(study));
    claims
}

/// How requests come in the worked example.
const EXAMPLE: &str = "worked";

/// A figure of the worked example: its name, what the paper prints, the exact value, and why they differ.
type Printed = (&'static str, &'static str, f64, f64, &'static str);

fn example(study: &Study) -> Vec<Claim> {
    let row = |policy: &str| {
        study.example.iter().find(|row| row.policy == policy).expect("every rule was played")
    };
    let (fifo, sjf, idling) = (row("fifo"), row("sjf"), row("by length, idling"));
    let pages: u64 = super::example::JOBS.iter().map(|job| job.bytes).sum();
    let ratio = |row: &ExampleRow| row.waited as f64 / pages as f64;
    let measured = [
        pages as f64,
        fifo.delays[4] as f64,
        fifo.responses[4] as f64,
        fifo.waited as f64 / 5.0,
        fifo.responded as f64,
        fifo.responded as f64 / pages as f64,
        ratio(fifo),
        idling.waited as f64,
        sjf.waited as f64,
    ];
    let printed: [Printed; 9] = [
        (
            "E-total",
            "31 ms of transfers",
            31.0,
            32.0,
            "the axis is labelled 0 to 31, which is 32 cells",
        ),
        ("E-last", "the fifth waits 18 ms", 18.0, 19.0, "right if it became ready at 10, not at 9"),
        ("E-ends", "it responds in 22 ms", 22.0, 23.0, "as before"),
        ("E-mean", "a mean delay of 10.4 ms", 10.4, 10.6, "52/5, which follows from the 18"),
        ("E-sum", "82 ms of responses", 82.0, 85.0, "its own five numbers add up to 84"),
        ("E-page", "2.64 ms for 512 bytes", 2.64, 85.0 / 32.0, "82/31; 85/32 is 2.66"),
        ("E-ratio", "delay is 1.6 transfers", 1.6, 53.0 / 32.0, "about, as it says"),
        ("E-4a", "51 ms by length, idling", 51.0, 53.0, "no time of arrival of the fifth gives 51"),
        (
            "E-4b",
            "36 ms by length of what is ready",
            36.0,
            35.0,
            "36 follows if the fifth is ready at 8",
        ),
    ];
    let mut claims = Vec::new();
    let mut wrong = 0_u32;
    for ((id, published, value, exact, why), measured) in printed.into_iter().zip(measured) {
        wrong += u32::from((measured - exact).abs() > 1e-9);
        // What is printed is rounded.
        let close = if id == "E-ratio" { 0.1 } else { 0.005 };
        let unit = if id == "E-ratio" { "transfers" } else { "ms" };
        let claim = Claim::new(id, "figures 3 and 4", EXAMPLE, published).measured(measured, unit);
        claims.push(claim.judged("as printed", (measured - value).abs() < close).note(why));
    }
    let sums = [
        ("fifo", 53),
        ("sjf", 35),
        ("dqbs literal", 35),
        ("dqbs dyn", 45),
        ("dqbs gate", 45),
        ("aged 1", 45),
        ("hrrn", 47),
        ("by length, idling", 53),
    ];
    wrong += sums.iter().filter(|&&(policy, waited)| row(policy).waited != waited).count() as u32;
    wrong += u32::from(fifo.delays != [0, 3, 12, 19, 19]);
    wrong += u32::from(fifo.responses != [4, 13, 20, 25, 23]);
    wrong += u32::from(sjf.order != [1, 4, 5, 3, 2] || idling.order != [1, 5, 4, 3, 2]);
    wrong += u32::from(idling.end != 37 || fifo.end != 32);
    claims.push(
        Claim::new("E-exact", "figures 3 and 4", EXAMPLE, "every figure, worked out by hand")
            .measured(wrong.into(), "figures that differ")
            .judged("= 0", wrong == 0)
            .required(true)
            .note("delays, responses, orders and sums under FIFO, by length, SJF, DQBS, aging and HRRN"),
    );
    claims
}

fn find<'a>(rows: &[&'a TraceRow], policy: &str) -> &'a TraceRow {
    rows.iter().find(|row| row.policy == policy).expect("every policy was played")
}

/// The set of claims about traces.
const TRACES: &str = "reads of a trace";

/// By name, its rows.
fn by_trace(study: &Study) -> impl Iterator<Item = (&str, Vec<&TraceRow>)> {
    study.points.iter().map(|point| {
        let rows = study.traces.iter().filter(|row| row.trace == point.trace);
        (point.trace.as_str(), rows.collect())
    })
}

fn gains(study: &Study) -> Vec<Claim> {
    let best = |figure: fn(&TraceRow) -> f64| {
        let dqbs = study.traces.iter().filter(|row| row.policy.starts_with("dqbs"));
        least(dqbs.map(figure))
    };
    let notes = |figure: fn(&TraceRow) -> f64| {
        let note = |(name, rows): (&str, Vec<&TraceRow>)| {
            let of = |policy| figure(find(&rows, policy));
            let (ins, sjf) = (of("dqbs literal, ins"), of("sjf"));
            let srpt = of("srpt 4 KiB");
            format!("{name} {ins:.1} % by literal, ins; {sjf:.1} % by SJF; {srpt:.1} % by SRPT")
        };
        let notes: Vec<_> = by_trace(study).map(note).collect();
        notes.join(". ") + ". SJF is the best that does not interrupt"
    };
    let (delay, response) = (best(|row| row.delay_change), best(|row| row.response_change));
    vec![
        Claim::new("T-delay", TRACES, "recorded", "mean delay 41.2 % less than FIFO's")
            .measured(delay, "%, best reading on any trace")
            .judged("<= -41", delay <= -41.0)
            .note(notes(|row| row.delay_change)),
        Claim::new("T-response", TRACES, "recorded", "mean response 18.1 % less than FIFO's")
            .measured(response, "%, best reading on any trace")
            .judged("<= -18", response <= -18.0)
            .note(notes(|row| row.response_change)),
    ]
}

fn balance(study: &Study) -> Claim {
    let mut notes = Vec::new();
    let leads: Vec<f64> = by_trace(study)
        .map(|(name, rows)| {
            let readings = rows.iter().filter(|row| row.policy.starts_with("dqbs"));
            let best = readings.min_by(|a, b| a.response_change.total_cmp(&b.response_change));
            let (best, slack) = (best.expect("five were played"), find(&rows, "slack whole, 10x"));
            notes.push(format!(
                "{name} {:.2} % by {}, {:.2} % by slack",
                best.response_change, best.policy, slack.response_change
            ));
            best.response_change - slack.response_change
        })
        .collect();
    let lead = least(leads);
    Claim::new("T-balance", TRACES, "recorded", "the dual queue strikes a good balance")
        .measured(lead, "points by which slack leads its best reading, least")
        .judged("< 0", lead < 0.0)
        .note(format!(
            "mean response to FIFO's: {}. Slack does not interrupt here and has a budget of 10 mean transfers",
            notes.join("; ")
        ))
}

fn bound(study: &Study) -> Claim {
    let over = study.traces.iter().chain(&study.overload).filter_map(|row| {
        let times = row.policy.strip_prefix("slack ")?.split(", ").nth(1)?.strip_suffix('x')?;
        Some(row.figures.late_most - times.parse::<f64>().ok()?)
    });
    let over = most(over);
    Claim::new(
        "S-bound",
        "all",
        "all",
        "no reply of slack is later than FIFO's by more than its budget",
    )
    .measured(over, "mean transfers over, most")
    .judged("<= 0", over <= 0.0)
    .required(true)
    .note("docs/reference/transfer.md, section 7; the property test tries random instances")
}

/// A policy on a trace, as docs/research/transfer.md has it: change of delay and of response
/// in per cent, and the largest lateness in mean transfers.
type Known = (&'static str, &'static str, [f64; 3]);

const KNOWN: [Known; 26] = [
    ("linux-mysql", "sjf", [-16.5, -7.2, 19.0]),
    ("linux-mysql", "hrrn", [-16.0, -7.0, 19.0]),
    ("linux-mysql", "fsp", [-16.3, -7.2, 17.0]),
    ("linux-mysql", "aged 1/10", [-16.4, -7.2, 19.0]),
    ("linux-mysql", "rr 4 KiB", [-62.5, -11.6, 22.0]),
    ("linux-mysql", "srpt 4 KiB", [-56.3, -22.0, 20.0]),
    ("linux-mysql", "srpt-aged 1/10", [-56.1, -22.0, 19.0]),
    ("linux-mysql", "fsp 4 KiB", [-56.9, -21.9, 22.0]),
    ("linux-mysql", "slack whole, 10x", [-16.4, -7.2, 10.0]),
    ("linux-mysql", "slack 4 KiB, 10x", [-55.1, -21.5, 10.0]),
    ("linux-mysql", "slack 4 KiB, 40x", [-56.3, -22.0, 20.0]),
    ("linux-mysql", "dqbs literal, len", [-14.7, -6.4, 19.0]),
    ("linux-mysql", "dqbs literal, ins", [-12.9, -5.7, 9.0]),
    ("windows-mssql", "sjf", [-15.8, -6.9, 2.0]),
    ("windows-mssql", "hrrn", [-13.5, -5.9, 0.0]),
    ("windows-mssql", "fsp", [-15.8, -6.9, 0.0]),
    ("windows-mssql", "aged 1/10", [-15.8, -6.9, 2.0]),
    ("windows-mssql", "rr 4 KiB", [-71.8, 19.1, 6.0]),
    ("windows-mssql", "srpt 4 KiB", [-20.3, -8.4, 2.0]),
    ("windows-mssql", "srpt-aged 1/10", [-19.9, -8.4, 2.0]),
    ("windows-mssql", "fsp 4 KiB", [-20.5, -8.4, 0.0]),
    ("windows-mssql", "slack whole, 10x", [-15.8, -6.9, 2.0]),
    ("windows-mssql", "slack 4 KiB, 10x", [-20.3, -8.4, 2.0]),
    ("windows-mssql", "slack 4 KiB, 40x", [-20.3, -8.4, 2.0]),
    ("windows-mssql", "dqbs literal, len", [-8.9, -3.9, 2.0]),
    ("windows-mssql", "dqbs literal, ins", [-7.3, -3.2, 2.0]),
];

fn known(study: &Study) -> Vec<Claim> {
    let mut sum = 0.0;
    let mut worst = [(0.0_f64, String::new()), (0.0, String::new())];
    for (trace, policy, [delay, response, late]) in KNOWN {
        let is = |row: &&TraceRow| row.trace == trace && row.policy == policy;
        let row = study.known.iter().find(is).expect("every policy was played");
        let apart = [row.delay_change - delay, row.response_change - response].map(f64::abs);
        sum += apart[0] + apart[1];
        let gains = apart[0].max(apart[1]);
        for (worst, off) in worst.iter_mut().zip([gains, (row.figures.late_most - late).abs()]) {
            if off > worst.0 {
                *worst = (off, format!("{trace}, {policy}"));
            }
        }
    }
    let [gains, late] = worst;
    let mean = sum / (2 * KNOWN.len()) as f64;
    vec![
        Claim::new("T-known", "own traces", "recorded", "gains as another simulator has them")
            .measured(mean, "points apart, mean of 52")
            .judged("<= 0.05, what printing tenths costs at most", mean <= 0.05)
            .required(true)
            .note(format!(
                "26 pairs of the reference program (docs/research/transfer.md), which has whole nanoseconds for a page, so that FIFO delays \
                 by 0.773 on windows-mssql; most apart: {}, by {:.3}",
                gains.1, gains.0
            )),
        Claim::new("T-late", "own traces", "recorded", "lateness as another simulator has it")
            .measured(late.0, "mean transfers apart, most")
            .judged("<= 1", late.0 <= 1.0)
            .required(true)
            .note(format!("printed there in whole numbers; most apart: {}", late.1)),
    ]
}

fn starvation(study: &Study) -> Claim {
    let rows: Vec<_> = study.overload.iter().collect();
    let late = |policy: &str| find(&rows, policy).figures.late_most;
    let dqbs = late("dqbs literal, ins");
    Claim::new("T-starve", "overload", "1.03 of capacity", "long requests no longer starve")
        .measured(dqbs, "mean transfers later than FIFO, most")
        .judged("<= 100", dqbs <= 100.0)
        .note(format!(
            "SJF {:.0}, DQBS without weight {:.0}, slack with a budget of 10 {:.1}",
            late("sjf"),
            late("dqbs literal, len"),
            late("slack 4 KiB, 10x")
        ))
}
