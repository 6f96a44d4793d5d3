//! # Transfer policy: two queues (DQBS)
//!
//! Replies enter a queue in the order in which they became ready and move from there into one that sends
//! the shortest first, unless that would hold up the last of that queue.
//!
//! | | |
//! |---|---|
//! | Model    | queue 1 by arrival, queue 2 by key; `pop` = the smallest key of queue 2, whole. The head H of queue 1 moves unless the guard holds it; then nothing moves before L, the largest key of queue 2, has been sent |
//! | Guard    | E(L) = all bytes of queue 2; E(H) = those that would be before H, and H. *literal*: hold if E(L) < E(H). *inverse*: hold if H would be before L, which is `fifo`. *gate*: all of queue 1 moves when queue 2 is empty. *arrival-order*: as *literal* with H behind all of queue 2, which is `fifo` too. *none*: never hold; `sjf` under key *len* |
//! | Key      | *ins*: length - w wait, the wait until the move. *len*: length. *dyn*: as *ins*, the wait until now. *ratio*: length / (1 + w wait / length), the wait until now. w = `weight`/100 |
//! | Ties     | order of becoming ready |
//! | Cost     | O(n): an experiment, not a default |
//! | Source   | a paper of Baekseok University, 2024, which gives no formula; readings and resolution in `docs/reference/transfer.md` sections 2 and 3 |
//! | Not when | long replies must not starve: whatever the paper says, shorter ones that keep coming hold the longest up. A new longest reply closes the door to the short ones behind it. See `slack` |

use crate::policy::{Parameter, Policy};
use crate::request::RequestKey;
use crate::transfer::{Build, Grant, LinkTime, Reply, TransferPolicy, WEIGHT};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

pub(in crate::transfer) const POLICY: Policy<Build> = Policy {
    name: "dqbs",
    summary: "the shortest of a queue that is refilled in order of arrival (DQBS)",
    properties: &[],
    parameters: &[WEIGHT, GUARD, KEY, EAGER],
    build: |values| {
        Box::new(Dqbs {
            weight: values.get("weight").into(),
            guard: match values.word("guard") {
                "literal" => Guard::Literal,
                "inverse" => Guard::Inverse,
                "gate" => Guard::Gate,
                "arrival-order" => Guard::ArrivalOrder,
                _ => Guard::None,
            },
            key: match values.word("key") {
                "ins" => Key::Ins,
                "len" => Key::Len,
                "dyn" => Key::Dyn,
                _ => Key::Ratio,
            },
            eager: values.flag("eager"),
            came: 0,
            requests: VecDeque::new(),
            lengths: Vec::new(),
            barrier: None,
        })
    },
};

const GUARD: Parameter = Parameter::word(
    "guard",
    &["literal", "inverse", "gate", "arrival-order", "none"],
    "what keeps a reply in the queue by arrival",
);

const KEY: Parameter = Parameter::word(
    "key",
    &["ins", "len", "dyn", "ratio"],
    "how waiting shortens a length: `ins` at the move, `len` not at all, `dyn` all the time, `ratio` in \
     proportion to the length",
);

const EAGER: Parameter = Parameter::flag(
    "eager",
    true,
    "true moves replies whenever one becomes ready or has been sent, false only when the link has room",
);

/// What keeps a reply in queue 1. See the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guard {
    Literal,
    Inverse,
    Gate,
    ArrivalOrder,
    None,
}

/// What queue 2 is ordered by. See the table above.
#[derive(Clone, Copy, Debug)]
enum Key {
    Ins,
    Len,
    Dyn,
    Ratio,
}

#[derive(Debug)]
struct Dqbs {
    /// Per cent.
    weight: i128,
    guard: Guard,
    key: Key,
    eager: bool,
    came: u64,
    /// Queue 1.
    requests: VecDeque<Entry>,
    /// Queue 2, in no order.
    lengths: Vec<Entry>,
    /// Before this reply has been sent nothing moves; with its bytes that have not left.
    barrier: Option<Grant>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    grant: Grant,
    /// Its place in the order of becoming ready.
    came: u64,
    /// The link's work then.
    since: u64,
    /// And when it moved.
    moved: u64,
}

impl Dqbs {
    /// Where an entry belongs in queue 2; the smallest goes first.
    fn rank(&self, work: u64, entry: &Entry) -> (i128, u64) {
        let length = i128::from(entry.grant.bytes);
        let credit = |until: u64| self.weight * i128::from(until - entry.since);
        let rank = match self.key {
            Key::Ins => length * 100 - credit(entry.moved),
            Key::Len => length,
            Key::Dyn => length * 100 - credit(work),
            // In 2^-20 bytes, rounded down.
            Key::Ratio => ((length * length * 100) << 20) / (length * 100 + credit(work)),
        };
        (rank, entry.came)
    }

    /// The entry of queue 2 before which nothing may move, if the guard holds back the head of queue 1.
    fn holds(&self, work: u64, head: &Entry) -> Option<Grant> {
        let rank = |entry: &Entry| self.rank(work, entry);
        let last = self.lengths.iter().max_by_key(|&entry| rank(entry))?;
        let place = rank(&Entry { moved: work, ..*head });
        let bytes = |entries: &mut dyn Iterator<Item = &Entry>| -> u64 {
            entries.map(|entry| entry.grant.bytes).sum()
        };
        let all = bytes(&mut self.lengths.iter());
        let holds = match self.guard {
            Guard::Literal => {
                let before = &mut self.lengths.iter().filter(|&entry| rank(entry) < place);
                all < bytes(before) + head.grant.bytes
            }
            Guard::Inverse => place < rank(last),
            Guard::None => false,
            // There is something in queue 2.
            Guard::Gate | Guard::ArrivalOrder => true,
        };
        holds.then_some(last.grant)
    }

    fn refill(&mut self, work: u64) {
        if self.barrier.is_some() || self.guard == Guard::Gate && !self.lengths.is_empty() {
            return;
        }
        while let Some(&head) = self.requests.front() {
            if self.guard != Guard::Gate {
                self.barrier = self.holds(work, &head);
                if self.barrier.is_some() {
                    return;
                }
            }
            self.requests.pop_front();
            self.lengths.push(Entry { moved: work, ..head });
        }
    }
}

impl TransferPolicy for Dqbs {
    fn push(&mut self, LinkTime { work, .. }: LinkTime, &Reply { key, bytes, .. }: &Reply) {
        self.came += 1;
        let grant = Grant { key, bytes };
        self.requests.push_back(Entry { grant, came: self.came, since: work, moved: work });
        if self.eager {
            self.refill(work);
        }
    }

    fn pop(&mut self, LinkTime { work, .. }: LinkTime) -> Option<Grant> {
        if self.lengths.is_empty() {
            // The window has room while the barrier is on its way: the link must not idle.
            self.barrier = None;
        }
        self.refill(work);
        let entries = self.lengths.iter().enumerate();
        let (index, _) = entries.min_by_key(|(_, entry)| self.rank(work, entry))?;
        Some(self.lengths.swap_remove(index).grant)
    }

    fn sent(&mut self, LinkTime { work, .. }: LinkTime, key: RequestKey, bytes: u64) {
        if let Some(barrier) = self.barrier.as_mut().filter(|barrier| barrier.key == key) {
            barrier.bytes -= bytes;
            if barrier.bytes == 0 {
                self.barrier = None;
            }
        }
        if self.eager {
            self.refill(work);
        }
    }
}
