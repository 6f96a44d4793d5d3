//! A progress bar on standard error, shown only on a terminal. The only file that uses the drawing library.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// Steps of a full bar.
const STEPS: u64 = 1_000;

/// A bar, or a line of text if the end is unknown; hidden if standard error is not a terminal.
#[derive(Debug)]
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// A bar that has not moved yet.
    pub(super) fn new() -> Self {
        let target = if std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(STEPS), target);
        let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}");
        Self(bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
    }

    /// Shows the progress, 0 to 1, if it is known, and a short text.
    pub(super) fn show(&self, fraction: Option<f64>, message: String) {
        if let Some(fraction) = fraction {
            self.0.set_position((fraction.clamp(0.0, 1.0) * STEPS as f64) as u64);
        }
        self.0.set_message(message);
    }
}

/// Clears the bar.
impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
