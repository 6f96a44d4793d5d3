//! # Transfer policy: two queues (DQBS)
//!
//! Replies enter a queue in the order in which they became ready and move from there into one that sends
//! the shortest first, unless that would hold up the last of that queue.
//!
//! | | |
//! |---|---|
//! | Model    | queue 1 by arrival, queue 2 by key; `pop` = the smallest key of queue 2, whole. The head H of queue 1 moves unless the guard holds it; then nothing moves before L, the largest key of queue 2, has been sent |
//! | Guard    | E(L) = all bytes of queue 2; E(H) = those that would be before H, and H. 0 *literal*: hold if E(L) < E(H). 1 *inverse*: hold if H would be before L, which is `fifo`. 2 *gate*: all of queue 1 moves when queue 2 is empty. 3 *arrival order*: as 0 with H behind all of queue 2, which is `fifo` too. 4 *none*: never hold; `sjf` under key 1 |
//! | Key      | 0 *ins*: length - w wait, the wait until the move. 1 *len*: length. 2 *dyn*: as 0, the wait until now. 3 *ratio*: length / (1 + w wait / length), the wait until now. w = `weight`/100 |
//! | Ties     | order of becoming ready |
//! | Cost     | O(n): an experiment, not a default |
//! | Source   | a paper of Baekseok University, 2024, which gives no formula; readings and resolution in spec/transfer.md sections 2 and 3 |
//! | Not when | long replies must not starve: whatever the paper says, shorter ones that keep coming hold the longest up. A new longest reply closes the door to the short ones behind it. See `slack` |

use super::{Build, Grant, Reply, TransferPolicy, WEIGHT};
use crate::policy::{Parameter, Policy, Unit};
use crate::request::RequestKey;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

pub(super) const POLICY: Policy<Build> = Policy {
    name: "dqbs",
    summary: "the shortest of a queue that is refilled in order of arrival (DQBS)",
    parameters: &[WEIGHT, GUARD, KEY, EAGER],
    build: |values| {
        Box::new(Dqbs {
            weight: values[0].into(),
            guard: values[1],
            key: values[2],
            eager: values[3] == 1,
            came: 0,
            requests: VecDeque::new(),
            lengths: Vec::new(),
            barrier: None,
        })
    },
};

const GUARD: Parameter = Parameter {
    name: "guard",
    unit: Unit::Count,
    min: LITERAL,
    max: NONE,
    default: LITERAL,
    effect: "what keeps a reply in the queue by arrival: 0 literal, 1 inverse, 2 gate, 3 arrival order, 4 none",
};

const LITERAL: u64 = 0;
const INVERSE: u64 = 1;
const GATE: u64 = 2;
const NONE: u64 = 4;

const KEY: Parameter = Parameter {
    name: "key",
    unit: Unit::Count,
    min: INS,
    max: RATIO,
    default: INS,
    effect: "how waiting shortens a length: 0 at the move, 1 not at all, 2 all the time, 3 as a ratio",
};

const INS: u64 = 0;
const LEN: u64 = 1;
const DYN: u64 = 2;
const RATIO: u64 = 3;

const EAGER: Parameter = Parameter {
    name: "eager",
    unit: Unit::Count,
    min: 0,
    max: 1,
    default: 1,
    effect: "1 moves replies whenever one becomes ready or has been sent, 0 only when the link has room",
};

#[derive(Debug)]
struct Dqbs {
    /// Per cent.
    weight: i128,
    guard: u64,
    key: u64,
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
            INS => length * 100 - credit(entry.moved),
            LEN => length,
            DYN => length * 100 - credit(work),
            // In 2^-20 bytes, rounded down.
            _ => ((length * length * 100) << 20) / (length * 100 + credit(work)),
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
            LITERAL => {
                let before = &mut self.lengths.iter().filter(|&entry| rank(entry) < place);
                all < bytes(before) + head.grant.bytes
            }
            INVERSE => place < rank(last),
            NONE => false,
            // Both the gate and arrival order: there is something in queue 2.
            _ => true,
        };
        holds.then_some(last.grant)
    }

    fn refill(&mut self, work: u64) {
        if self.barrier.is_some() || self.guard == GATE && !self.lengths.is_empty() {
            return;
        }
        while let Some(&head) = self.requests.front() {
            if self.guard != GATE {
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
    fn push(&mut self, work: u64, Reply { key, bytes, .. }: Reply) {
        self.came += 1;
        let grant = Grant { key, bytes };
        self.requests.push_back(Entry { grant, came: self.came, since: work, moved: work });
        if self.eager {
            self.refill(work);
        }
    }

    fn pop(&mut self, work: u64) -> Option<Grant> {
        if self.lengths.is_empty() {
            // The window has room while the barrier is on its way: the link must not idle.
            self.barrier = None;
        }
        self.refill(work);
        let entries = self.lengths.iter().enumerate();
        let (index, _) = entries.min_by_key(|(_, entry)| self.rank(work, entry))?;
        Some(self.lengths.swap_remove(index).grant)
    }

    fn sent(&mut self, work: u64, key: RequestKey, bytes: u64) {
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
