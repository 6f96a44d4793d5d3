//! The event loop of a run: commands over two links, packet by packet.
//!
//! It does not drive `weir_flow::Pipeline`: the paper is about packets of a command on links, and the pipeline
//! knows neither. The cache lines and the prefetcher behind `target` are the gateway's.

use super::exchange::{Exchange, Kind};
use super::target::{Read, Target};
use super::work::Blocks;
use super::{Case, Forward, Outcome, Route};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use weir_flow::clock::Instant;
use weir_model::link::{Config, Link};

/// A command of the client that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) block: u64,
    pub(super) begun: Instant,
    /// When its last packet had arrived.
    pub(super) ended: Instant,
    pub(super) met: Met,
    /// Of a write through the intermediate target: when the storage had confirmed it there.
    pub(super) home: Option<Instant>,
}

/// What a command met in the intermediate target's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// Nothing looked.
    None,
    /// The block.
    Ready,
    /// A fetch of the block that had begun and not ended.
    InFlight,
    /// Neither.
    Missing,
}

/// The two ends of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leg {
    /// The client and the intermediate target.
    Near,
    /// The intermediate target and the storage.
    Far,
    /// The client and the storage, over both links.
    Whole,
}

impl Leg {
    /// The links that a packet crosses, in order: 0 is the near one.
    const fn links(self, up: bool) -> &'static [usize] {
        match (self, up) {
            (Self::Near, _) => &[0],
            (Self::Far, _) => &[1],
            (Self::Whole, true) => &[0, 1],
            (Self::Whole, false) => &[1, 0],
        }
    }
}

/// A command on its way.
#[derive(Clone, Copy, Debug)]
struct Command {
    kind: Kind,
    leg: Leg,
    /// Which of its packets is on its way.
    step: usize,
    block: u64,
    why: Why,
}

/// What a command is for; a number is the place in the list of what the client did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Client(usize),
    Forward(usize),
    Prefetch,
}

/// A packet has passed this many links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Arrived {
    command: usize,
    links: usize,
}

struct Play<'a> {
    case: &'a Case,
    blocks: Blocks,
    /// Near and far; up and down.
    links: [[Link; 2]; 2],
    /// Equal times in the order in which they were sent.
    events: BinaryHeap<Reverse<(Instant, u64, Arrived)>>,
    sent: u64,
    commands: Vec<Command>,
    done: Vec<Done>,
    target: Option<Target>,
    /// Writes that wait until the one that is being forwarded is home.
    behind: VecDeque<usize>,
    forwarding: bool,
}

/// Plays a case to its end.
pub(super) fn play(case: &Case) -> Outcome {
    let link = |bandwidth, delay| [Link::new(Config { bandwidth, delay }); 2];
    let target = match case.route {
        Route::Direct => None,
        Route::Through(buffer, _) => Some(Target::new(buffer)),
    };
    let mut play = Play {
        case,
        blocks: Blocks::new(case.follows, case.seed),
        links: [link(Some(case.bandwidth), case.near), link(case.far_bandwidth, case.far)],
        events: BinaryHeap::new(),
        sent: 0,
        commands: Vec::new(),
        done: Vec::new(),
        target,
        behind: VecDeque::new(),
        forwarding: false,
    };
    for _ in 0..case.depth {
        play.issue(Instant::ZERO);
    }
    while let Some(Reverse((now, _, arrived))) = play.events.pop() {
        play.arrived(now, arrived);
    }
    Outcome { followed: play.blocks.followed, done: play.done }
}

impl Play<'_> {
    /// The client's next command, if there is one.
    fn issue(&mut self, now: Instant) {
        let index = self.done.len();
        if index == self.case.count {
            return;
        }
        let block = self.blocks.next();
        self.done.push(Done { block, begun: now, ended: now, met: Met::None, home: None });
        let kind = self.case.kind;
        // A write ends at the intermediate target. A read does not know yet.
        let near = self.target.is_some() && kind == Kind::Write;
        let leg = if near { Leg::Near } else { Leg::Whole };
        self.begin(now, kind, leg, block, Why::Client(index));
    }

    fn begin(&mut self, now: Instant, kind: Kind, leg: Leg, block: u64, why: Why) {
        self.commands.push(Command { kind, leg, step: 0, block, why });
        self.send(now, Arrived { command: self.commands.len() - 1, links: 0 });
    }

    /// Sends the packet that a command is at over its next link.
    fn send(&mut self, now: Instant, Arrived { command, links }: Arrived) {
        let Command { kind, leg, step, .. } = self.commands[command];
        let packet = self.case.exchange.packets(kind)[step];
        let link = &mut self.links[leg.links(packet.up)[links]][usize::from(!packet.up)];
        let arrived = link.send(now, packet.bytes).arrived;
        self.events.push(Reverse((arrived, self.sent, Arrived { command, links: links + 1 })));
        self.sent += 1;
    }

    fn arrived(&mut self, now: Instant, arrived: Arrived) {
        let Command { kind, leg, step, .. } = self.commands[arrived.command];
        let packet = self.case.exchange.packets(kind)[step];
        if arrived.links == leg.links(packet.up).len() {
            self.delivered(now, arrived.command);
        } else if step == 0 && self.target.is_some() {
            self.asked(now, arrived);
        } else {
            self.send(now, arrived);
        }
    }

    /// A read of the client is at the intermediate target.
    fn asked(&mut self, now: Instant, arrived: Arrived) {
        let command = &mut self.commands[arrived.command];
        let Why::Client(index) = command.why else { unreachable!("only clients ask over both") };
        let target = self.target.as_mut().expect("the caller has looked");
        let read = target.read(now, command.block, arrived.command);
        self.done[index].met = match read {
            Read::Ready => Met::Ready,
            Read::Waits => Met::InFlight,
            Read::Missing => Met::Missing,
        };
        match read {
            Read::Ready => self.answer(now, arrived.command),
            Read::Waits => {}
            Read::Missing => self.send(now, arrived),
        }
        while let Some(block) = self.target.as_mut().and_then(|target| target.prefetch(now)) {
            self.begin(now, Kind::Read, Leg::Far, block, Why::Prefetch);
        }
    }

    /// The intermediate target has what the client asked for.
    fn answer(&mut self, now: Instant, command: usize) {
        self.commands[command].leg = Leg::Near;
        self.commands[command].step = Exchange::data(Kind::Read);
        self.send(now, Arrived { command, links: 0 });
    }

    /// A packet is where it is to be.
    fn delivered(&mut self, now: Instant, id: usize) {
        let Command { kind, step, block, why, .. } = self.commands[id];
        if step == Exchange::data(kind) {
            self.brought(now, kind, block, why);
        }
        self.commands[id].step += 1;
        if self.commands[id].step < self.case.exchange.packets(kind).len() {
            self.send(now, Arrived { command: id, links: 0 });
            return;
        }
        match why {
            Why::Client(index) => {
                self.done[index].ended = now;
                self.issue(now);
            }
            Why::Forward(index) => {
                self.done[index].home = Some(now);
                self.forwarding = false;
                if let Some(next) = self.behind.pop_front() {
                    self.forward(now, next);
                }
            }
            Why::Prefetch => {}
        }
    }

    /// The data of a command has arrived.
    fn brought(&mut self, now: Instant, kind: Kind, block: u64, why: Why) {
        let Some(target) = &mut self.target else { return };
        match (kind, why) {
            (Kind::Read, Why::Prefetch) => {
                for waiting in target.fetched(now, block) {
                    self.answer(now, waiting);
                }
            }
            (Kind::Write, Why::Client(index)) => {
                target.wrote(block);
                self.forward(now, index);
            }
            _ => {}
        }
    }

    /// Sends a write on, or lets it wait for the one before it.
    fn forward(&mut self, now: Instant, index: usize) {
        let one = matches!(self.case.route, Route::Through(_, Forward::OneByOne));
        if one && self.forwarding {
            self.behind.push_back(index);
            return;
        }
        self.forwarding = true;
        self.begin(now, Kind::Write, Leg::Far, self.done[index].block, Why::Forward(index));
    }
}
