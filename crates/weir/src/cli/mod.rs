//! The command line: one file per command.

mod ask;
mod config;
mod crash;
mod explain;
mod log;
mod path;
mod progress;
mod replay;
mod report;
mod reproduce;
mod serve;
mod sim;
mod status;
mod stop;
mod trace;
mod volume;

use crate::exit::{Exit, Failure};
use crate::output::Color;
use clap::{Parser, Subcommand};

/// What was asked for.
#[derive(Debug, Parser)]
#[command(
    name = "weir",
    version,
    about = "Block storage that keeps its promises, and the simulator to prove it",
    long_about = LONG,
    after_long_help = EXIT_CODES,
    after_help = "`--help` says more, `weir COMMAND --help` says it of one command."
)]
pub(crate) struct Arguments {
    /// Colour messages on standard error; `auto` honours `NO_COLOR`
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
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
    Stop(stop::Stop),
    Log(log::Log),
    Sim(sim::Sim),
    Replay(Box<replay::Replay>),
    Explain(explain::Explain),
    Reproduce(reproduce::Reproduce),
    Crash(crash::Crash),
    Config(config::Config),
    Trace(trace::Trace),
}

const LONG: &str = "\
Block storage that keeps its promises, and the simulator to prove it

`weir serve` is a gateway: hosts speak iSCSI to it, and it caches, admits, orders and routes every
I/O so that each tenant gets the response time that it was promised. `weir sim` and `weir replay`
run the same policies under a virtual clock, on synthetic work or on a recorded trace, so that a
policy can be tried before it is switched on. Equal seeds give equal runs.

Start with `weir serve`: it makes a disk, serves it on this machine and says how to connect.";

const EXIT_CODES: &str = "\
Exit codes:
  0  success; also when the reader of the output has closed it
  1  something unexpected failed, or a gateway refused an order
  2  the command line cannot be understood
  3  a configuration, plan or trace cannot be used as it is
  4  an expectation of a plan, a claim that must hold, or a law of crashes was not met
  5  a replayed recording gave other actions than the recorded ones
  6  a recording or log is damaged
  7  an address, a device or a gateway cannot be had

Every command that reports takes `--json` and prints one object with a `version`; the text is for
people and may change.";

/// Runs the command.
pub(crate) fn run(arguments: Arguments) -> Result<Exit, Failure> {
    let color = arguments.color;
    match arguments.command {
        Command::Serve(command) => command.run(color),
        Command::Status(command) => command.run(),
        Command::Path(command) => command.run(),
        Command::Volume(command) => command.run(),
        Command::Stop(command) => command.run(),
        Command::Log(command) => command.run(),
        Command::Sim(command) => command.run(color),
        Command::Replay(command) => command.run(),
        Command::Explain(command) => command.run(color),
        Command::Reproduce(command) => command.run(),
        Command::Crash(command) => command.run(),
        Command::Config(command) => command.run(color),
        Command::Trace(command) => command.run(),
    }
}
