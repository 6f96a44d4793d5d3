//! The transfer policies with the settings under which they are compared.

use crate::contestant::Contestant;
use weir_flow::policy::Choice;
use weir_flow::transfer::{Build, POLICIES};

const CHUNK: u64 = 4 << 10;
const WHOLE: u64 = 1 << 40;

/// In the order of the tables; first in, first out is the one that all others are compared with.
const FIXED: [Contestant; 15] = [
    Contestant::new("fifo", "fifo", &[]),
    Contestant::new("sjf", "sjf", &[]),
    Contestant::new("hrrn", "hrrn", &[]),
    Contestant::new("fsp", "fsp", &[]),
    Contestant::new("aged 1/10", "aged", &[("weight", 10)]),
    Contestant::new("aged 1", "aged", &[("weight", 100)]),
    Contestant::new("dqbs literal, len", "dqbs", &[]).words(&[("key", "len")]),
    Contestant::new("dqbs literal, ins", "dqbs", &[]),
    Contestant::new("dqbs literal, dyn", "dqbs", &[]).words(&[("key", "dyn")]),
    Contestant::new("dqbs literal, ratio", "dqbs", &[]).words(&[("key", "ratio")]),
    Contestant::new("dqbs gate, len", "dqbs", &[]).words(&[("guard", "gate"), ("key", "len")]),
    Contestant::new("rr 4 KiB", "round-robin", &[("chunk", CHUNK)]),
    Contestant::new("srpt 4 KiB", "srpt", &[("chunk", CHUNK)]),
    Contestant::new("srpt-aged 1/10", "aged", &[("weight", 10), ("chunk", CHUNK)]),
    Contestant::new("fsp 4 KiB", "fsp", &[("chunk", CHUNK)]),
];

/// `slack` with a chunk and a budget in mean transfers.
const SLACK: [(&str, u64, u64); 4] = [
    ("slack whole, 10x", WHOLE, 10),
    ("slack 64 KiB, 10x", 64 << 10, 10),
    ("slack 4 KiB, 10x", CHUNK, 10),
    ("slack 4 KiB, 40x", CHUNK, 40),
];

/// All policies, for replies of this many bytes on average.
pub(super) fn all(mean: f64) -> Vec<(&'static str, Choice<Build>)> {
    let fixed = FIXED.iter().map(|one| (one.label, one.choice(POLICIES)));
    let slack = SLACK.iter().map(|&(label, chunk, times)| {
        let mut choice = Choice::named(POLICIES, "slack").expect("it is in the list");
        choice.set("chunk", chunk).expect("it is in range");
        let budget = libm::floor(mean * times as f64) as u64;
        choice.set("budget", budget).expect("it is in range");
        (label, choice)
    });
    fixed.chain(slack).collect()
}
