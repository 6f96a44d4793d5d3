//! Prints the requests of a recording of `weir serve`, as the gateway saw them, one line each and in no
//! order: the tenant's number, when the request came and how long it took, in nanoseconds.
//!
//! `cargo run --release -p weir-sim --example recorded FILE`

use std::error::Error;
use std::fs::File;
use std::io::{BufReader, Write};
use weir_sim::explain::{self, Question, REQUESTS_MAX};
use weir_sim::replay::Verdict;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("which recording?")?;
    let question = Question { requests: REQUESTS_MAX, ..Question::default() };
    let source = BufReader::new(File::open(path)?);
    let (replay, explanation) = explain::recording(source, question, |_| {})?;
    if replay.verdict() != Verdict::Same {
        return Err("the recording gives other actions than it was made with".into());
    }
    if explanation.ended > REQUESTS_MAX as u64 {
        return Err(format!("more than {REQUESTS_MAX} requests").into());
    }
    let mut out = std::io::stdout().lock();
    for story in &explanation.requests {
        writeln!(out, "{} {} {}", story.tenant, story.arrived_ns, story.response_ns)?;
    }
    Ok(())
}
