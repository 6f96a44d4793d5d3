//! The command line: one file per command.

mod api;
mod apply;
mod ask;
mod builtin;
mod config;
mod crash;
mod explain;
mod generate;
mod log;
mod metrics;
mod moment;
mod path;
mod progress;
mod reload;
mod replay;
mod report;
mod reproduce;
mod serve;
mod sim;
mod slow;
mod status;
mod stop;
mod successor;
mod top;
mod trace;
mod volume;
mod volume_move;

use crate::exit::{Exit, Failure};
use crate::output::Color;
use clap::{Parser, Subcommand};

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "weir",
    version,
    about = "A block-storage gateway with response-time objectives, and its simulator",
    long_about = LONG,
    after_long_help = EXIT_CODES,
    after_help = "`--help` prints more, `weir COMMAND --help` describes one command."
)]
pub(crate) struct Arguments {
    /// Colour messages: `auto` (on a terminal, unless `NO_COLOR` is set), `always` or `never`
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "WHEN",
        hide_short_help = true,
        hide_possible_values = true,
        hide_default_value = true
    )]
    pub(crate) color: Color,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Serve),
    Status(status::Status),
    Path(path::Path),
    Volume(volume::Volume),
    Reload(reload::Reload),
    Apply(apply::Apply),
    Metrics(metrics::Metrics),
    Slow(slow::SlowRequests),
    Top(top::Top),
    Stop(stop::Stop),
    Api(api::Api),
    Log(log::Log),
    Sim(sim::Sim),
    Replay(Box<replay::Replay>),
    Explain(explain::Explain),
    Reproduce(reproduce::Reproduce),
    Crash(crash::Crash),
    Config(config::Config),
    Trace(trace::Trace),
    Completions(generate::Completions),
    Man(generate::Man),
}

const LONG: &str = "\
A block-storage gateway with response-time objectives, and its simulator

`weir serve` is a gateway: hosts connect over iSCSI, NBD or NVMe/TCP, and the gateway caches, admits, orders and
routes every I/O so that each tenant meets its response-time objectives. `weir sim` and `weir replay`
run the same policies under a virtual clock, on synthetic workloads or a recorded trace, to test a
policy before it is used. Equal seeds give equal runs.

Start with `weir serve`: it creates a disk, serves it on this machine and prints how to connect.";

const EXIT_CODES: &str = "\
Exit codes:
  0  success; also when the reader of the output closes it
  1  an unexpected failure, or a gateway refused a request
  2  invalid command line
  3  an invalid configuration, plan or trace
  4  an expectation of a plan, a required claim, or a law of `weir crash` was not met
  5  a replayed recording gave actions that differ from the recorded ones
  6  a recording or log is damaged
  7  an address, a device or a gateway is not available
  8  the configuration is valid, but needs a restart; nothing was changed

Every command that prints a report takes `--json` and prints one object with a `version`; the text
format may change.";

/// Runs the command.
pub(crate) fn run(arguments: Arguments) -> Result<Exit, Failure> {
    let color = arguments.color;
    match arguments.command {
        Command::Serve(command) => command.run(color),
        Command::Status(command) => command.run(),
        Command::Path(command) => command.run(),
        Command::Volume(command) => command.run(),
        Command::Reload(command) => command.run(),
        Command::Apply(command) => command.run(),
        Command::Metrics(command) => command.run(),
        Command::Slow(command) => command.run(),
        Command::Top(command) => command.run(),
        Command::Stop(command) => command.run(),
        Command::Api(command) => command.run(),
        Command::Log(command) => command.run(),
        Command::Sim(command) => command.run(color),
        Command::Replay(command) => command.run(color),
        Command::Explain(command) => command.run(color),
        Command::Reproduce(command) => command.run(),
        Command::Crash(command) => command.run(),
        Command::Config(command) => command.run(color),
        Command::Trace(command) => command.run(),
        Command::Completions(command) => command.run(),
        Command::Man(command) => command.run(),
    }
}
