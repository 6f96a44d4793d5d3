//! Loads an iSCSI logical unit with random reads or writes and reports throughput and response times.
//!
//! One thread and one event loop: each session keeps `--depth` commands outstanding and answers every
//! batch of replies with one write. The initiator is that of `weir-wire`; it costs little, so the result
//! describes the server.
//!
//! `--verify` and `--write` destroy what is on the logical unit.

mod arguments;
mod link;
mod login;
mod process;
mod session;
mod work;

use arguments::Arguments;
use clap::Parser;
use mio::{Events, Interest, Poll, Token};
use process::{cpu_seconds, now};
use serde::Serialize;
use session::Session;
use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use work::{Order, Tally, Work};

/// How long the servers warm up before anything is measured.
const WARM_UP: Duration = Duration::from_millis(500);

/// A server that sends nothing for this long while commands are outstanding has failed.
const STALL: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match Load::new(&arguments).and_then(|mut load| load.run(&arguments)) {
        Ok(report) => {
            say(&serde_json::to_string(&report).expect("numbers and words are JSON"));
            if let Some(problem) = &report.first_problem {
                complain(&format!("{} errors; the first: {problem}", report.errors));
            }
            if report.errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(problem) => {
            complain(&problem);
            ExitCode::FAILURE
        }
    }
}

/// The result: the object that is printed. Benchmarks read these keys.
#[derive(Debug, Serialize)]
struct Report {
    op: &'static str,
    block: u32,
    sessions: u32,
    depth: u32,
    seconds: f64,
    ios: u64,
    iops: u64,
    mb_per_s: f64,
    mean_us: f64,
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
    errors: u64,
    own_cpu_us_per_io: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_cpu_us_per_io: Option<f64>,
    #[serde(skip)]
    first_problem: Option<String>,
}

/// All sessions and their work.
struct Load {
    poll: Poll,
    events: Events,
    sessions: Vec<Session>,
    work: Work,
    tally: Tally,
}

impl Load {
    /// Logs all sessions in.
    fn new(arguments: &Arguments) -> Result<Self, String> {
        let poll = Poll::new().map_err(|error| format!("cannot make an event queue: {error}"))?;
        let mut sessions = Vec::new();
        let mut disk = None;
        for index in 0..arguments.sessions {
            let (link, size) = login::login(arguments, index)?;
            let first = *disk.get_or_insert(size);
            if first != size {
                return Err(String::from("two sessions see logical units of different size"));
            }
            let Arguments { url, depth, think, .. } = arguments;
            let mut session = Session::new(link, url.lun, *depth, *think)?;
            poll.registry()
                .register(
                    session.socket(),
                    Token(index as usize),
                    Interest::READABLE | Interest::WRITABLE,
                )
                .map_err(|error| format!("cannot watch a socket: {error}"))?;
            sessions.push(session);
        }
        let disk = disk.ok_or("there is no session")?;
        let block = arguments.block;
        if !block.is_multiple_of(disk.block_size) || disk.bytes() < u64::from(block) {
            return Err(format!(
                "--block {block} does not fit a logical unit of {} blocks of {} bytes; use a \
                 multiple of the block size",
                disk.blocks, disk.block_size
            ));
        }
        Ok(Self {
            poll,
            events: Events::with_capacity(64),
            sessions,
            work: Work::new(disk, block, arguments.seed),
            tally: Tally::default(),
        })
    }

    /// The whole run: fill, warm up, measure, drain, check, log out.
    fn run(&mut self, arguments: &Arguments) -> Result<Report, String> {
        if arguments.verify {
            self.work.start(Order::Sequential, true, false);
            self.until(None)?;
        }
        self.work.start(Order::Random, arguments.write, arguments.verify);
        self.until(Some(now() + WARM_UP))?;

        self.tally.clear();
        let server_before = arguments.server_pid.map(cpu_seconds).transpose()?;
        let own_before = cpu_seconds(std::process::id())?;
        let from = now();
        self.until(Some(from + Duration::from_secs(arguments.seconds)))?;
        let elapsed = now().duration_since(from).as_secs_f64();
        let own = cpu_seconds(std::process::id())? - own_before;
        let server_after = arguments.server_pid.map(cpu_seconds).transpose()?;
        let times = self.tally.times.clone();

        self.work.stop();
        self.until(None)?;
        if arguments.verify && arguments.write {
            self.work.start(Order::Sequential, false, true);
            self.until(None)?;
        }
        for session in &mut self.sessions {
            session.log_out();
        }
        self.until(None)?;

        let count = times.len();
        let per_io = |seconds: f64| rounded(seconds * 1e6 / count.max(1) as f64, 100.0);
        let micros = |nanos: f64| rounded(nanos / 1e3, 10.0);
        let iops = count as f64 / elapsed;
        let used = |(before, after): (f64, f64)| per_io(after - before);
        Ok(Report {
            op: if arguments.write { "write" } else { "read" },
            block: arguments.block,
            sessions: arguments.sessions,
            depth: arguments.depth,
            seconds: rounded(elapsed, 1e3),
            ios: count,
            iops: iops.round() as u64,
            mb_per_s: rounded(iops * f64::from(arguments.block) / 1e6, 10.0),
            mean_us: micros(times.mean()),
            p50_us: micros(times.value_at_quantile(0.5) as f64),
            p99_us: micros(times.value_at_quantile(0.99) as f64),
            max_us: micros(times.max() as f64),
            errors: self.tally.errors,
            own_cpu_us_per_io: per_io(own),
            server_cpu_us_per_io: server_before.zip(server_after).map(used),
            first_problem: self.tally.first_problem.take(),
        })
    }

    /// Drives the work to the deadline, or without one to its end.
    fn until(&mut self, deadline: Option<Instant>) -> Result<(), String> {
        let Self { poll, events, sessions, work, tally } = self;
        for session in &mut *sessions {
            session.refill(work, now());
            session.flush()?;
        }
        loop {
            let left = match deadline {
                None if sessions.iter().all(Session::is_idle) => return Ok(()),
                None => STALL,
                Some(deadline) => match deadline.checked_duration_since(now()) {
                    None | Some(Duration::ZERO) => return Ok(()),
                    Some(left) => left.min(STALL),
                },
            };
            let thinks = sessions.iter().filter_map(Session::thinks_until).min();
            let thinks = thinks.map(|until| until.saturating_duration_since(now()));
            match poll.poll(events, Some(thinks.map_or(left, |thinks| left.min(thinks)))) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    return Err(format!("the event queue has failed: {error}"));
                }
                Err(_) => continue,
                Ok(()) if events.is_empty() && left == STALL && thinks.is_none() => {
                    return Err(format!("the server has sent nothing for {STALL:?}"));
                }
                Ok(()) => {}
            }
            if thinks.is_some() {
                for session in &mut *sessions {
                    session.refill(work, now());
                    session.flush()?;
                }
            }
            for event in &*events {
                let session = &mut sessions[event.token().0];
                if event.is_writable() {
                    session.flush()?;
                }
                if event.is_readable() || event.is_read_closed() {
                    session.read(work, tally)?;
                }
            }
        }
    }
}

/// A number with as many decimals as `steps` has zeroes.
fn rounded(value: f64, steps: f64) -> f64 {
    (value * steps).round() / steps
}

#[expect(clippy::print_stdout, reason = "the report is this program's output")]
fn say(line: &str) {
    println!("{line}");
}

#[expect(clippy::print_stderr, reason = "a program says on stderr why it failed")]
fn complain(line: &str) {
    eprintln!("iscsi-load: {line}");
}
