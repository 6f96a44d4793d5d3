//! A number with one writer that other threads read without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter, or a gauge. Only the event loop writes it, so that adding is a plain load and a plain store.
///
/// A sum of nanoseconds wraps after 584 years; Prometheus takes that for a restart.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub(crate) fn add(&self, amount: u64) {
        self.0.store(self.get().wrapping_add(amount), Ordering::Relaxed);
    }

    /// Gives it another value.
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Its value.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
