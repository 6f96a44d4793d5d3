//! The published algorithms, word for word and slow: sequences that are searched from end to end.

use std::collections::VecDeque;
use weir_flow::cache::evict::Line;

/// A buffer with a policy.
pub(super) trait Model {
    /// A line is asked for; the one that had to go for it.
    fn access(&mut self, line: Line) -> Option<Line>;

    /// Whether the published algorithm says anything about a line that goes by itself.
    fn can_remove(&self) -> bool {
        true
    }

    /// A line goes by itself, if it is here.
    fn remove(&mut self, line: Line);
}

pub(super) fn named(name: &str, lines: usize) -> Box<dyn Model> {
    match name {
        "fifo" => Box::new(Recency { lines, renew: false, queue: Vec::new() }),
        "lru" => Box::new(Recency { lines, renew: true, queue: Vec::new() }),
        "clock" => Box::new(Ring { lines, slots: Vec::new(), hand: 0 }),
        "sieve" => Box::new(Sieve { lines, queue: Vec::new(), hand: None }),
        "s3-fifo" => Box::new(S3Fifo::new(lines)),
        "arc" => Box::new(Arc { lines, ..Arc::default() }),
        other => panic!("`{other}` needs a model here"),
    }
}

fn take(queue: &mut VecDeque<Line>, line: Line) -> bool {
    let place = queue.iter().position(|&other| other == line);
    place.is_some_and(|place| queue.remove(place).is_some())
}

/// FIFO and LRU: oldest first.
struct Recency {
    lines: usize,
    renew: bool,
    queue: Vec<Line>,
}

impl Model for Recency {
    fn access(&mut self, line: Line) -> Option<Line> {
        if let Some(place) = self.queue.iter().position(|&other| other == line) {
            if self.renew {
                self.queue[place..].rotate_left(1);
            }
            return None;
        }
        let gone = (self.queue.len() == self.lines).then(|| self.queue.remove(0));
        self.queue.push(line);
        gone
    }

    fn remove(&mut self, line: Line) {
        self.queue.retain(|&other| other != line);
    }
}

/// Corbató's clock: pages in a circle, a hand, a bit each. A page that comes takes the place of the one that
/// goes, and the hand moves on.
struct Ring {
    lines: usize,
    slots: Vec<(Line, bool)>,
    hand: usize,
}

impl Model for Ring {
    fn access(&mut self, line: Line) -> Option<Line> {
        if let Some((_, used)) = self.slots.iter_mut().find(|(other, _)| *other == line) {
            *used = true;
            return None;
        }
        if self.slots.len() < self.lines {
            self.slots.push((line, false));
            return None;
        }
        while self.slots[self.hand].1 {
            self.slots[self.hand].1 = false;
            self.hand = (self.hand + 1) % self.lines;
        }
        let gone = std::mem::replace(&mut self.slots[self.hand], (line, false)).0;
        self.hand = (self.hand + 1) % self.lines;
        Some(gone)
    }

    fn can_remove(&self) -> bool {
        false
    }

    fn remove(&mut self, _: Line) {}
}

/// SIEVE, algorithm 1: the head of the queue is the end of the vector.
struct Sieve {
    lines: usize,
    queue: Vec<(Line, bool)>,
    hand: Option<Line>,
}

impl Sieve {
    fn place(&self, line: Line) -> Option<usize> {
        self.queue.iter().position(|&(other, _)| other == line)
    }

    fn discard(&mut self, place: usize) -> Line {
        self.hand = self.queue.get(place + 1).map(|&(line, _)| line);
        self.queue.remove(place).0
    }
}

impl Model for Sieve {
    fn access(&mut self, line: Line) -> Option<Line> {
        if let Some(place) = self.place(line) {
            self.queue[place].1 = true;
            return None;
        }
        let mut gone = None;
        if self.queue.len() == self.lines {
            let mut place = self.hand.map_or(0, |hand| self.place(hand).expect("it is here"));
            while self.queue[place].1 {
                self.queue[place].1 = false;
                place = (place + 1) % self.queue.len();
            }
            gone = Some(self.discard(place));
        }
        self.queue.push((line, false));
        gone
    }

    fn remove(&mut self, line: Line) {
        if let Some(place) = self.place(line) {
            if self.hand == Some(line) {
                self.discard(place);
            } else {
                self.queue.remove(place);
            }
        }
    }
}

/// S3-FIFO, algorithm 1, one victim at a time; the tail of a queue is its front.
struct S3Fifo {
    lines: usize,
    share: usize,
    small: VecDeque<(Line, u8)>,
    main: VecDeque<(Line, u8)>,
    ghosts: VecDeque<Line>,
}

impl S3Fifo {
    fn new(lines: usize) -> Self {
        let share = (lines / 10).max(1);
        let queue = VecDeque::new;
        Self { lines, share, small: queue(), main: queue(), ghosts: VecDeque::new() }
    }

    fn evict_small(&mut self) -> Option<Line> {
        while let Some((line, uses)) = self.small.pop_front() {
            if uses > 1 {
                self.main.push_back((line, 0));
                if self.main.len() > self.lines - self.share {
                    return self.evict_main();
                }
            } else {
                self.ghosts.push_back(line);
                if self.ghosts.len() > self.lines - self.share {
                    self.ghosts.pop_front();
                }
                return Some(line);
            }
        }
        self.evict_main()
    }

    fn evict_main(&mut self) -> Option<Line> {
        while let Some((line, uses)) = self.main.pop_front() {
            if uses == 0 {
                return Some(line);
            }
            self.main.push_back((line, uses - 1));
        }
        None
    }
}

impl Model for S3Fifo {
    fn access(&mut self, line: Line) -> Option<Line> {
        let both = self.small.iter_mut().chain(&mut self.main);
        if let Some((_, uses)) = both.into_iter().find(|(other, _)| *other == line) {
            *uses = 3.min(*uses + 1);
            return None;
        }
        let mut gone = None;
        if self.small.len() + self.main.len() == self.lines {
            let small = self.small.len() >= self.share;
            gone = if small { self.evict_small() } else { self.evict_main() };
        }
        if take(&mut self.ghosts, line) {
            self.main.push_back((line, 0));
        } else {
            self.small.push_back((line, 0));
        }
        gone
    }

    fn remove(&mut self, line: Line) {
        self.small.retain(|&(other, _)| other != line);
        self.main.retain(|&(other, _)| other != line);
    }
}

/// ARC, figure 4; the least recent page is at the front.
#[derive(Default)]
struct Arc {
    lines: usize,
    p: usize,
    t1: VecDeque<Line>,
    t2: VecDeque<Line>,
    b1: VecDeque<Line>,
    b2: VecDeque<Line>,
}

impl Arc {
    fn replace(&mut self, in_b2: bool) -> Line {
        let t1 = self.t1.len();
        let (from, to) = if t1 > 0 && (t1 > self.p || in_b2 && t1 == self.p) {
            (&mut self.t1, &mut self.b1)
        } else {
            (&mut self.t2, &mut self.b2)
        };
        let line = from.pop_front().expect("there is one to give up");
        to.push_back(line);
        line
    }
}

impl Model for Arc {
    fn access(&mut self, line: Line) -> Option<Line> {
        let c = self.lines;
        if take(&mut self.t1, line) || take(&mut self.t2, line) {
            self.t2.push_back(line);
            return None;
        }
        let full = self.t1.len() + self.t2.len() == c;
        let (b1, b2) = (self.b1.len(), self.b2.len());
        let mut gone = None;
        if self.b1.contains(&line) {
            if full {
                self.p = c.min(self.p + if b1 >= b2 { 1 } else { b2 / b1 });
                gone = Some(self.replace(false));
            }
            take(&mut self.b1, line);
            self.t2.push_back(line);
        } else if self.b2.contains(&line) {
            if full {
                self.p = self.p.saturating_sub(if b2 >= b1 { 1 } else { b1 / b2 });
                gone = Some(self.replace(true));
            }
            take(&mut self.b2, line);
            self.t2.push_back(line);
        } else {
            if full && self.t1.len() + b1 == c {
                if self.t1.len() < c {
                    self.b1.pop_front();
                    gone = Some(self.replace(false));
                } else {
                    gone = self.t1.pop_front();
                }
            } else if full {
                if b1 + b2 == c {
                    self.b2.pop_front();
                }
                gone = Some(self.replace(false));
            }
            self.t1.push_back(line);
            // Only after a removal: a page that came into a free place.
            if self.t1.len() + self.b1.len() > c {
                self.b1.pop_front();
            }
        }
        gone
    }

    fn remove(&mut self, line: Line) {
        take(&mut self.t1, line);
        take(&mut self.t2, line);
    }
}
