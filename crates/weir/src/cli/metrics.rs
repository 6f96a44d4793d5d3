//! `weir metrics`: prints the metrics of a gateway.

use super::ask::Ask;
use crate::exit::{Exit, Failure};
use clap::Args;
use weir_serve::operator::{Answer, Request};

/// Print the metrics of a running gateway
///
/// The format is that of a Prometheus scrape, for a textfile collector or an exporter. docs/reference/metrics.md
/// lists the families.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Metrics {
    /// Print `OpenMetrics` 1.0 instead of the text format 0.0.4
    #[arg(long)]
    openmetrics: bool,
    #[command(flatten)]
    ask: Ask,
}

impl Metrics {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let Self { openmetrics, ask } = self;
        ask.ask(Request::Metrics { openmetrics }, |answer| match answer {
            Answer::Metrics(page) => Some(page.clone()),
            _ => None,
        })
    }
}
