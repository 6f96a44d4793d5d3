//! Runs independent jobs on all cores and returns their results in order.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Runs every job, and gives what they found in the order of the jobs. They are begun in that order, so
/// what takes long belongs first. `progress` hears of the share that is done, from any thread.
pub fn run<J: Sync, R: Send>(
    jobs: &[J],
    progress: &(dyn Fn(f64) + Sync),
    work: impl Fn(&J) -> R + Sync,
) -> Vec<R> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let found: Mutex<Vec<Option<R>>> = Mutex::new(jobs.iter().map(|_| None).collect());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(index) else { break };
                    let result = work(job);
                    found.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(result);
                    let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                    progress(done as f64 / jobs.len() as f64);
                }
            });
        }
    });
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.into_iter().map(|result| result.expect("every job was run")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever thread ran a job, its result stands at its place, and the last word is that all is done.
    #[test]
    fn results_stand_in_order() {
        let jobs: Vec<u32> = (0..100).collect();
        let last = Mutex::new(0.0_f64);
        let progress = |share| {
            let mut last = last.lock().unwrap();
            *last = last.max(share);
        };
        let squares = run(&jobs, &progress, |job| job * job);
        assert_eq!(squares, jobs.iter().map(|job| job * job).collect::<Vec<_>>());
        assert!((last.into_inner().unwrap() - 1.0).abs() < 1e-12);
    }
}
