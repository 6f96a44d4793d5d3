//! Chooses how a small epoch becomes durable upstream: by FUA on each of its writes, or by a flush behind them.
//!
//! | | |
//! |---|---|
//! | FUA    | one round trip; the upstream makes each write durable, at best several at once |
//! | Flush  | two round trips, one after the other; the upstream makes all of it durable at once |
//! | Choice | the faster one so far, of epochs with about as many writes (by powers of two); every [`RETRY`] epochs the other one, since distances and devices change |
//! | Cost   | O(1) for each epoch |
//!
//! Both are safe on every target: an epoch ends when each of its writes is durable. With a flush, a target that
//! ended one before the writes of the epoch had ended would be wrong, so the flush waits for all of them.

use crate::clock::Duration;

/// What the epochs of one volume took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FuaChoice {
    classes: [Class; CLASSES],
}

/// Epochs with about as many writes.
#[derive(Clone, Copy, Debug, Default)]
struct Class {
    /// Mean times with a flush and with FUA; `None` before the first.
    means: [Option<Duration>; 2],
    epochs: u32,
}

impl FuaChoice {
    /// Whether an epoch of this number of writes takes FUA.
    pub(crate) fn takes_fua(&mut self, writes: usize) -> bool {
        if writes > WRITES_MAX {
            return false;
        }
        let class = &mut self.classes[class(writes)];
        class.epochs += 1;
        let fua = match class.means {
            [Some(flush), Some(fua)] => fua <= flush,
            [_, None] => true,
            [None, _] => false,
        };
        fua != class.epochs.is_multiple_of(RETRY)
    }

    /// An epoch of this number of writes took so long, from its first write to its end.
    pub(crate) fn ended(&mut self, writes: usize, fua: bool, took: Duration) {
        let mean = &mut self.classes[class(writes)].means[usize::from(fua)];
        *mean = Some(mean.map_or(took, |mean| {
            Duration::from_nanos((mean.as_nanos() * 3 + took.as_nanos()) / 4)
        }));
    }
}

const fn class(writes: usize) -> usize {
    let class = writes.ilog2() as usize;
    if class < CLASSES { class } else { CLASSES - 1 }
}

/// An epoch with more writes is flushed: a round trip is little to it.
pub(crate) const WRITES_MAX: usize = 128;

/// 1, 2 to 3, 4 to 7 writes, and so on.
const CLASSES: usize = WRITES_MAX.ilog2() as usize + 1;

/// After how many epochs of a class the slower way is tried again.
const RETRY: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether most epochs take FUA, with these times of an epoch: with a flush, and with FUA.
    fn settles(flush: u64, fua: u64) -> bool {
        let (mut choice, mut count) = (FuaChoice::default(), 0);
        for _ in 0..320 {
            let takes = choice.takes_fua(20);
            count += u32::from(takes);
            choice.ended(20, takes, Duration::from_micros(if takes { fua } else { flush }));
        }
        assert!(!(20..300).contains(&count), "one way is taken: {count}");
        count > 160
    }

    /// A remote upstream saves a round trip; a near disk that makes each write durable by itself does not.
    #[test]
    fn the_faster_way_is_taken() {
        assert!(settles(46_000, 26_000));
        assert!(!settles(4_000, 30_000));
    }

    /// When the other way becomes faster it is found out.
    #[test]
    fn a_change_is_noticed() {
        let mut choice = FuaChoice::default();
        let mut last = false;
        for round in 0..400 {
            last = choice.takes_fua(8);
            let fua = if round < 100 { 5 } else { 50 };
            choice.ended(8, last, Duration::from_millis(if last { fua } else { 20 }));
        }
        assert!(!last);
        assert!(!choice.takes_fua(WRITES_MAX + 1));
    }
}
