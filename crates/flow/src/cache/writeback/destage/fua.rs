//! Chooses how a small epoch becomes durable upstream: by FUA on each of its writes, or by a flush behind them.
//!
//! | | |
//! |---|---|
//! | FUA    | one round trip; the upstream makes each write durable, at best several at once |
//! | Flush  | two round trips, one after the other; the upstream makes all of it durable at once |
//! | Choice | the faster one so far, of epochs with about as many writes (by powers of two), beside reads and alone; the other one is tried again after [`RETRY_MIN`] epochs, and after twice as many, up to [`RETRY_MAX`], as long as it stays the slower one, since distances and devices change |
//! | Cost   | O(1) for each epoch |
//!
//! Both are safe on every target: an epoch ends when each of its writes is durable. With a flush, a target that
//! ended one before the writes of the epoch had ended would be wrong, so the flush waits for all of them.

use crate::clock::Duration;

/// What the epochs of one volume took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FuaChoice {
    /// Of epochs that were written alone, and beside reads: there the gaps between bursts count, too.
    classes: [[Class; CLASSES]; 2],
}

/// Epochs with about as many writes.
#[derive(Clone, Copy, Debug, Default)]
struct Class {
    /// Mean times with a flush and with FUA; `None` before the first.
    means: [Option<Duration>; 2],
    /// Epochs since the slower one was tried, and after how many it is tried again.
    epochs: u32,
    retry: u32,
}

impl FuaChoice {
    /// Whether an epoch of this number of writes takes FUA; `shared` if it yields to reads.
    pub(crate) fn takes_fua(&mut self, writes: usize, shared: bool) -> bool {
        if writes > WRITES_MAX {
            return false;
        }
        let class = &mut self.classes[usize::from(shared)][class(writes)];
        let [Some(flush), Some(fua)] = class.means else { return class.means[1].is_none() };
        class.epochs += 1;
        let faster = fua <= flush;
        if class.epochs < class.retry.max(RETRY_MIN) {
            return faster;
        }
        class.epochs = 0;
        class.retry = (class.retry.max(RETRY_MIN) * 2).min(RETRY_MAX);
        !faster
    }

    /// An epoch of this number of writes took so long, from its first write to its end.
    pub(crate) fn ended(&mut self, writes: usize, shared: bool, fua: bool, took: Duration) {
        let class = &mut self.classes[usize::from(shared)][class(writes)];
        let [mean, other] = if fua { [1, 0] } else { [0, 1] };
        let before = class.means[mean];
        // The one that is tried seldom has a mean of long ago.
        let smoothed = before.map_or(took, |mean| {
            Duration::from_nanos((mean.as_nanos() * 3 + took.as_nanos()) / 4).min(took)
        });
        class.means[mean] = Some(smoothed);
        if let (Some(before), Some(other)) = (before, class.means[other])
            && (before <= other) != (smoothed <= other)
        {
            class.retry = RETRY_MIN;
        }
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

/// After how many epochs of a class the slower way is tried again: trying it costs a round trip.
const RETRY_MIN: u32 = 32;
const RETRY_MAX: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether most epochs take FUA, with these times of an epoch: with a flush, and with FUA.
    fn settles(flush: u64, fua: u64) -> bool {
        let (mut choice, mut count) = (FuaChoice::default(), 0);
        for _ in 0..320 {
            let takes = choice.takes_fua(20, false);
            count += u32::from(takes);
            choice.ended(20, false, takes, Duration::from_micros(if takes { fua } else { flush }));
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

    /// The slower way is tried less and less often: a full log loses a round trip by it.
    #[test]
    fn the_slower_way_is_tried_seldom() {
        let (mut choice, mut slow) = (FuaChoice::default(), 0);
        for round in 0..10_000 {
            let fua = choice.takes_fua(20, false);
            slow += u32::from(!fua && round >= 1000);
            choice.ended(20, false, fua, Duration::from_millis(if fua { 20 } else { 40 }));
        }
        assert!((1..=12).contains(&slow), "{slow} of 9000 epochs are slower than they could be");
    }

    /// When the other way becomes faster it is found out.
    #[test]
    fn a_change_is_noticed() {
        let mut choice = FuaChoice::default();
        let mut last = false;
        for round in 0..400 {
            last = choice.takes_fua(8, false);
            let fua = if round < 100 { 5 } else { 50 };
            choice.ended(8, false, last, Duration::from_millis(if last { fua } else { 20 }));
        }
        assert!(!last);
        let back = (0..RETRY_MAX * 2).find(|_| {
            last = choice.takes_fua(8, false);
            choice.ended(8, false, last, Duration::from_millis(if last { 5 } else { 20 }));
            last
        });
        assert!(back.is_some_and(|after| after <= RETRY_MAX), "{back:?}");
        assert!(choice.takes_fua(8, false), "one good sample is enough: {choice:?}");
        assert!(choice.takes_fua(8, true), "what epochs take beside reads is another thing");
        assert!(!choice.takes_fua(WRITES_MAX + 1, false));
    }
}
