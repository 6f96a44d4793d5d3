//! `weir completions` and `weir man`: generated from the definitions of the command line.

use super::Arguments;
use crate::exit::{Exit, Failure};
use crate::output::print;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::path::PathBuf;

/// Print a completion script for a shell
///
/// For bash: `weir completions bash > /etc/bash_completion.d/weir`.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Arguments::command(), "weir", &mut script);
        print(&String::from_utf8_lossy(&script))?;
        Ok(Exit::Success)
    }
}

/// Print the manual page of `weir`, or write the pages of all commands to a folder
///
/// To install them: `weir man --out /usr/local/share/man/man1`.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Man {
    /// Write one page per command to this folder, which must exist
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

impl Man {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let command = Arguments::command();
        if let Some(folder) = self.out {
            clap_mangen::generate_to(command, &folder).map_err(|error| {
                let message = format!("cannot write to `{}`: {error}", folder.display());
                Failure::new(Exit::Unexpected, message, "name a folder that can be written")
            })?;
            return Ok(Exit::Success);
        }
        let mut page = Vec::new();
        let rendered = clap_mangen::Man::new(command).render(&mut page);
        rendered.expect("memory takes every byte");
        print(&String::from_utf8_lossy(&page))?;
        Ok(Exit::Success)
    }
}
