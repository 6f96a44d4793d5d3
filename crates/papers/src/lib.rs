//! The experiments of five papers, for `weir reproduce`: each is run again, and every claim gets a verdict.
//!
//! * [`control`]: the control policies on the nine intervals of the token-bucket paper;
//! * [`dispatch`]: weighted shares over parallel flash chips, in the figures of the flash operation group
//!   paper and beyond them;
//! * [`path`]: the path selectors on the workloads of the `RounG` paper, and on paths that go bad;
//! * [`intermediate`]: a target between client and storage, with a buffer, prefetch and write-back;
//! * [`transfer`]: the order of replies on a busy link, in the examples and on the traces of the DQBS paper.
//!
//! An experiment is a folder: `study` runs it and gives rows, `claims` judges the rows, `page` lays them out.
//! Neither of the last two knows the other.

mod chapter;
pub mod claim;
mod contestant;
pub mod control;
pub mod dispatch;
pub mod html;
pub mod intermediate;
pub mod path;
#[cfg(test)]
mod tests;
pub mod text;
pub mod transfer;

pub use chapter::{Chapter, met, object};

/// Receives the share that is done, 0 to 1, from any thread.
pub type Progress<'a> = dyn Fn(f64) + Sync + 'a;

/// The seeds of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The first seed; further runs take those that follow.
    pub seed: u64,
    /// Runs of every cell; `None` leaves it to the study, which says how many it took.
    pub seeds: Option<u32>,
}

impl Settings {
    /// The seeds of a cell that has `usual` runs if nothing else is asked for.
    fn seeds(self, usual: u32) -> impl Iterator<Item = u64> {
        self.seed..self.seed + u64::from(self.seeds.unwrap_or(usual))
    }
}

/// The operator's traces and recordings, in the form that each experiment takes.
#[derive(Debug, Default)]
pub struct Traces {
    /// For `path`.
    pub path: Vec<path::Trace>,
    /// For `transfer`.
    pub transfer: Vec<transfer::Trace>,
    /// For `dispatch`: figures of recordings.
    pub live: Vec<dispatch::live::Live>,
}

/// An experiment that can be run.
#[derive(Debug)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// The paper.
    pub paper: &'static str,
    /// Its duration on two cores.
    pub takes: &'static str,
    run: fn(Settings, &Traces, &Progress) -> Chapter,
}

impl Experiment {
    /// Runs it on all cores.
    pub fn run(&self, settings: Settings, traces: &Traces, progress: &Progress) -> Chapter {
        (self.run)(settings, traces, progress)
    }
}

/// All experiments, in the order in which `weir reproduce` runs them.
pub const EXPERIMENTS: [Experiment; 5] = [
    Experiment {
        name: "control",
        paper: "Nam and Park: Token-bucket-based performance control, KIPS Transactions A 12(7), 2005",
        takes: "about six minutes",
        run: control::chapter,
    },
    Experiment {
        name: "dispatch",
        paper: "Flash operation groups (FOG), Journal of KIISE 42(12), 2015",
        takes: "about 40 seconds",
        run: dispatch::chapter,
    },
    Experiment {
        name: "path",
        paper: "The path selector RounG, Sejong University and Gluesys, about 2006",
        takes: "about five minutes",
        run: path::chapter,
    },
    Experiment {
        name: "intermediate",
        paper: "An iSCSI intermediate target for mobile clients, Korea University, about 2004",
        takes: "seconds",
        run: intermediate::chapter,
    },
    Experiment {
        name: "transfer",
        paper: "The dual queue DQBS for SSD replies, Baekseok University, 2024",
        takes: "seconds",
        run: transfer::chapter,
    },
];
