//! `weir top`: shows the load of a gateway by volume and tenant, once a second.

use super::ask::Ask;
use super::status::age;
use crate::config::units;
use crate::exit::{Exit, Failure};
use crate::output::print;
use crate::table::{Column, Table, numbers, words};
use clap::Args;
use std::fmt::Write as _;
use std::io::{IsTerminal, stdout};
use std::thread::sleep;
use std::time::Duration;
use weir_serve::operator::{Answer, Bucket, Load, Request, Sample};

/// Show the load of a running gateway by volume and tenant, renewed once a second
///
/// Requests and bytes a second, response times, objectives, and the rule that held the latest requests for longest. Ctrl-C ends it.
/// The first page comes after one interval.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Top {
    /// Print one page and exit
    #[arg(long)]
    once: bool,
    /// The time between pages, 100ms to 1h; rates are means over it
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Print at most this many volumes, and as many tenants
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    rows: u32,
    #[command(flatten)]
    ask: Ask,
}

impl Top {
    #[expect(clippy::disallowed_methods, reason = "the command does nothing but wait")]
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let Self { once, interval, rows, ask } = self;
        let mut before = sample(&ask)?;
        loop {
            sleep(interval);
            let now = sample(&ask)?;
            let page = Page::between(&before, &now, rows as usize);
            if ask.is_json() {
                print(&page.json())?;
            } else if stdout().is_terminal() && !once {
                // Home, the page, and nothing behind it.
                let lines = page.text().replace('\n', "\x1b[K\n");
                print(&format!("\x1b[H{lines}\x1b[J"))?;
            } else {
                print(&page.text())?;
            }
            if once {
                return Ok(Exit::Success);
            }
            before = now;
        }
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let nanos = units::TIME.parse(text).map_err(|bad| format!("{}: {}", bad.message, bad.help))?;
    let interval = Duration::from_nanos(nanos);
    if (MIN..=MAX).contains(&interval) {
        Ok(interval)
    } else {
        Err("an interval is from 100ms to 1h".to_owned())
    }
}

fn sample(ask: &Ask) -> Result<Sample, Failure> {
    match ask.question(Request::Sample {})? {
        Answer::Sample(sample) => Ok(*sample),
        _ => Err(Failure::unexpected("the gateway answered a different request".to_owned())),
    }
}

/// A gateway between two samples.
struct Page<'a> {
    now: &'a Sample,
    all: Row,
    volumes: Vec<Row>,
    tenants: Vec<Row>,
    left_out: [u64; 2],
}

/// One line: a volume or a tenant in the time between.
#[derive(Debug, PartialEq)]
struct Row {
    name: String,
    /// A second.
    requests: f64,
    bytes: f64,
    refused: f64,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    objective_ns: Option<u64>,
    /// Missed share over the share that may be missed.
    burn: Option<f64>,
    held_by: String,
}

impl<'a> Page<'a> {
    fn between(before: &Sample, now: &'a Sample, rows: usize) -> Self {
        let over = now.up_ns.saturating_sub(before.up_ns).max(1) as f64 / 1e9;
        let list = |before: &[Load], now: &[Load]| -> Vec<Row> {
            let of = |name: &str| before.iter().find(|load| load.name == name);
            // What was left out before begins with the next page.
            let known = now.iter().filter_map(|load| Some((of(&load.name)?, load)));
            let fresh = now.iter().filter(|load| of(&load.name).is_none() && before.len() < 100);
            let none = Load::default();
            let fresh = fresh.map(|load| (&none, load));
            let mut rows: Vec<_> =
                known.chain(fresh).map(|(before, now)| Row::between(before, now, over)).collect();
            rows.sort_by(|one, other| other.requests.total_cmp(&one.requests));
            rows
        };
        let mut volumes = list(&before.volumes, &now.volumes);
        let mut tenants = list(&before.tenants, &now.tenants);
        let all = Row::between(&before.all, &now.all, over);
        let left_out = [
            now.volumes_left_out + volumes.len().saturating_sub(rows) as u64,
            now.tenants_left_out + tenants.len().saturating_sub(rows) as u64,
        ];
        volumes.truncate(rows);
        tenants.truncate(rows);
        Self { now, all, volumes, tenants, left_out }
    }

    fn text(&self) -> String {
        let Self { now, all, volumes, tenants, left_out } = self;
        let mut text = format!(
            "weir up {}, thread {:.0} % busy, {} outstanding; {:.0} requests/s, {:.1} MB/s, p50 {}, p99 {}\n",
            age(now.up_ns),
            now.busy * 100.0,
            now.outstanding,
            all.requests,
            all.bytes / 1e6,
            millis(all.p50_ns),
            millis(all.p99_ns),
        );
        for (heading, rows, left_out) in
            [("Volumes", volumes, left_out[0]), ("Tenants", tenants, left_out[1])]
        {
            let columns = if heading == "Volumes" { VOLUMES } else { TENANTS };
            let _ = write!(text, "\n{heading}\n{}", Table::of(columns, rows).render("  "));
            if left_out > 0 {
                let _ = writeln!(text, "  and {left_out} more");
            }
        }
        text
    }

    fn json(&self) -> String {
        let row = |row: &Row| {
            serde_json::json!({
                "name": row.name, "requests_per_s": row.requests, "bytes_per_s": row.bytes,
                "refused_per_s": row.refused, "p50_ns": row.p50_ns, "p99_ns": row.p99_ns,
                "objective_ns": row.objective_ns, "burn": row.burn, "held_by": row.held_by,
            })
        };
        let rows = |rows: &[Row]| rows.iter().map(row).collect::<Vec<_>>();
        let page = serde_json::json!({
            "version": 1, "up_ns": self.now.up_ns, "busy": self.now.busy, "outstanding": self.now.outstanding,
            "all": row(&self.all), "volumes": rows(&self.volumes), "volumes_left_out": self.left_out[0],
            "tenants": rows(&self.tenants), "tenants_left_out": self.left_out[1],
        });
        format!("{page}\n")
    }
}

impl Row {
    fn between(before: &Load, now: &Load, over: f64) -> Self {
        let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / over;
        let times = difference(&before.times, &now.times);
        let missed = now.slo_missed.saturating_sub(before.slo_missed) as f64;
        let allowed = now.slo_allowed_ppm.saturating_sub(before.slo_allowed_ppm) as f64 / 1e6;
        Self {
            name: now.name.clone(),
            requests: rate(before.requests, now.requests),
            bytes: rate(before.bytes, now.bytes),
            refused: rate(before.refused, now.refused),
            p50_ns: quantile(&times, 50),
            p99_ns: quantile(&times, 99),
            objective_ns: now.objective_ns,
            burn: (allowed > 0.0).then(|| missed / allowed),
            held_by: now.held_by.clone(),
        }
    }
}

/// The requests that came to a histogram between two samples.
fn difference(before: &[Bucket], now: &[Bucket]) -> Vec<Bucket> {
    let of = |up_to_ns: u64| before.iter().find(|bucket| bucket.up_to_ns == up_to_ns);
    let difference = |bucket: &Bucket| Bucket {
        requests: bucket.requests
            - of(bucket.up_to_ns).map_or(0, |one| one.requests.min(bucket.requests)),
        ..*bucket
    };
    now.iter().map(difference).collect()
}

/// The time within which this share of the requests ended, in per cent.
fn quantile(times: &[Bucket], percent: u64) -> Option<u64> {
    let all: u64 = times.iter().map(|bucket| bucket.requests).sum();
    let wanted = (all * percent).div_ceil(100).max(1);
    let mut sum = 0;
    let found = times.iter().find(|bucket| {
        sum += bucket.requests;
        sum >= wanted
    });
    found.map(|bucket| bucket.up_to_ns)
}

const VOLUMES: &[Column<Row>] = &[
    words("volume", |row| row.name.clone()),
    numbers("requests/s", |row| format!("{:.0}", row.requests)),
    numbers("MB/s", |row| format!("{:.1}", row.bytes / 1e6)),
    numbers("p50", |row| millis(row.p50_ns)),
    numbers("p99", |row| millis(row.p99_ns)),
    numbers("refused/s", |row| format!("{:.0}", row.refused)),
    words("held by", |row| row.held_by.clone()),
];

const TENANTS: &[Column<Row>] = &[
    words("tenant", |row| row.name.clone()),
    numbers("requests/s", |row| format!("{:.0}", row.requests)),
    numbers("MB/s", |row| format!("{:.1}", row.bytes / 1e6)),
    numbers("p50", |row| millis(row.p50_ns)),
    numbers("p99", |row| millis(row.p99_ns)),
    numbers("objective", |row| millis(row.objective_ns)),
    numbers("burn", |row| row.burn.map_or_else(|| "-".to_owned(), |burn| format!("{burn:.1}"))),
    numbers("refused/s", |row| format!("{:.0}", row.refused)),
    words("held by", |row| row.held_by.clone()),
];

fn millis(nanos: Option<u64>) -> String {
    nanos.map_or_else(|| "-".to_owned(), |nanos| format!("{:.2} ms", nanos as f64 / 1e6))
}

const MIN: Duration = Duration::from_millis(100);
const MAX: Duration = Duration::from_hours(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn load(name: &str, requests: u64, times: &[(u64, u64)]) -> Load {
        let bucket = |&(up_to_ns, requests)| Bucket { up_to_ns, requests };
        let times = times.iter().map(bucket).collect();
        Load { name: name.to_owned(), requests, times, ..Load::default() }
    }

    /// Rates and quantiles are those of the time between the samples, not since the start.
    #[test]
    fn rates_are_differences() {
        let second = 1_000_000_000;
        let one =
            Load { slo_missed: 5, slo_allowed_ppm: 9_000_000, ..load("a", 1_000, &[(10, 1_000)]) };
        let two = Load {
            slo_missed: 7,
            slo_allowed_ppm: 10_000_000,
            bytes: 4_000_000,
            ..load("a", 1_400, &[(10, 1_000), (20, 390), (90, 10)])
        };
        let before = Sample {
            up_ns: second,
            all: load("", 5_000, &[(10, 5_000)]),
            volumes: vec![one.clone()],
            tenants: vec![one],
            ..Sample::default()
        };
        let now = Sample {
            up_ns: 3 * second,
            all: load("", 9_000, &[(10, 5_000), (30, 4_000)]),
            volumes: vec![two.clone(), load("b", 1_000, &[(30, 1_000)])],
            tenants: vec![two],
            ..Sample::default()
        };
        let page = Page::between(&before, &now, 1);
        let row = &page.tenants[0];
        assert_eq!((row.requests, row.bytes, row.burn), (200.0, 2e6, Some(2.0)));
        assert_eq!((row.p50_ns, row.p99_ns), (Some(20), Some(90)));
        assert_eq!((page.volumes[0].name.as_str(), page.volumes[0].requests), ("b", 500.0));
        assert_eq!(page.left_out, [1, 0]);
        // Also of volumes that the sample has left out.
        assert_eq!((page.all.requests, page.all.p50_ns), (2_000.0, Some(30)));
        assert_eq!(quantile(&[], 99), None);
    }
}
