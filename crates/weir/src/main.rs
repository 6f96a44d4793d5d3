//! `weir`: serves block storage, and simulates it.

mod cli;
mod config;
mod exit;
mod output;

use clap::Parser;
use exit::Exit;
use std::process::ExitCode;
use weir_sim::table;

fn main() -> ExitCode {
    let arguments = match cli::Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // A closed pipe is the only way in which this can fail, and that is success.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage } else { Exit::Success }.into();
        }
    };
    let color = arguments.color.on_stderr();
    match cli::run(arguments) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            output::complain(&failure.text(color));
            failure.exit.into()
        }
    }
}
