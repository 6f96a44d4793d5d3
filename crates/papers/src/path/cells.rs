//! The runs that the tables of the path study ask for, and their outcomes.

use super::Case;
use super::score::Outcome;
use crate::Settings;
use weir_sim::cores;

/// The cells to run.
pub(super) struct Plan {
    settings: Settings,
    /// Runs of a cell differ in their seeds; only the first may be asked for its course.
    cells: Vec<(Case, Vec<u64>, bool)>,
}

/// The place of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell(usize);

impl Plan {
    /// No cells yet.
    pub(super) const fn new(settings: Settings) -> Self {
        Self { settings, cells: Vec::new() }
    }

    /// Adds a case with its usual number of runs, which the operator may override; one run if the case
    /// draws nothing at random.
    pub(super) fn add(&mut self, case: Case, usual: u32) -> Cell {
        self.push(case, usual, false)
    }

    /// The same, and for the course of the first run.
    pub(super) fn add_with_course(&mut self, case: Case, usual: u32) -> Cell {
        self.push(case, usual, true)
    }

    fn push(&mut self, case: Case, usual: u32, course: bool) -> Cell {
        let settings = self.settings;
        let given = case.is_given();
        let settings = if given { Settings { seeds: Some(1), ..settings } } else { settings };
        self.cells.push((case, settings.seeds(usual).collect(), course));
        Cell(self.cells.len() - 1)
    }

    pub(super) fn run(self, progress: &(dyn Fn(f64) + Sync)) -> Found {
        let mut jobs = Vec::new();
        for (case, seeds, course) in &self.cells {
            let runs = seeds.iter().enumerate();
            jobs.extend(runs.map(|(place, &seed)| (case, seed, *course && place == 0)));
        }
        let play = |&(case, seed, course): &(&Case, u64, bool)| case.play(seed, course);
        let mut outcomes = cores::run(&jobs, progress, play).into_iter();
        let cells = self.cells.iter().map(|(_, seeds, _)| seeds.len());
        Found(cells.map(|runs| outcomes.by_ref().take(runs).collect()).collect())
    }
}

/// What the runs of each cell measured.
pub(super) struct Found(Vec<Vec<Outcome>>);

impl Found {
    pub(super) fn runs(&self, cell: Cell) -> &[Outcome] {
        &self.0[cell.0]
    }

    /// The mean of a figure over the runs of a cell.
    pub(super) fn mean(&self, cell: Cell, figure: impl Fn(&Outcome) -> f64) -> f64 {
        let runs = self.runs(cell);
        runs.iter().map(figure).sum::<f64>() / runs.len() as f64
    }

    pub(super) fn count(&self, cell: Cell) -> u32 {
        self.runs(cell).len() as u32
    }
}
