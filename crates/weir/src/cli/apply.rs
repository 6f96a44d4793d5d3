//! `weir apply`: has a gateway put another configuration into force.

use super::ask::Ask;
use super::reload::text;
use super::successor::Successor;
use crate::config::redact::has_secret;
use crate::config::source::Source;
use crate::exit::{Exit, Failure};
use crate::output::print;
use clap::Args;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use weir_serve::operator::{Answer, Request, Verdict};

/// Put a configuration into force in a running gateway, and print what changes
///
/// Paths in FILE are relative to the folder of the file that the gateway was started with, or of the disk of a gateway that
/// was started without one. Without `--save` a restart or `weir reload` puts that file into force again. A configuration
/// is put into force as a whole or not at all; the exit codes are those of `weir reload`, and 10 if it is in force but
/// was not saved as `--save` asks.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Apply {
    /// The configuration, a TOML file; `-` for standard input
    file: PathBuf,
    /// Check only whether the configuration can be put into force
    #[arg(long)]
    dry_run: bool,
    /// Take away volumes and exports even if hosts use them
    #[arg(long)]
    force: bool,
    /// Replace the file that the gateway was started with; what it was stays beside it, with `.bak` behind its name
    #[arg(long, conflicts_with = "dry_run")]
    save: bool,
    #[command(flatten)]
    ask: Ask,
}

impl Apply {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let source = self.source()?;
        if !self.save {
            return self.ask.ask(self.request(&source, self.dry_run), |answer| match answer {
                Answer::Reloaded(verdict) => Some(text(verdict) + &temporary(verdict)),
                _ => None,
            });
        }
        let would = self.ask.reply(self.request(&source, true))?;
        let Answer::Reloaded(Verdict { file, file_id, .. }) = would.answer else {
            return self.ask.show(would, |_| None);
        };
        let Some(file) = file else {
            let message = "--save: the gateway was started without a file";
            return Err(Failure::new(Exit::Usage, message, "start it with one: weir serve CONFIG"));
        };
        let successor = Successor::prepare((Path::new(&file), file_id), &source.text)?;
        let reply = self.ask.reply(self.request(&source, false));
        let reply = reply.map_err(|failure| failure.and(&format!("{file} was not replaced")))?;
        // It is in force now: the file is replaced whatever becomes of the output.
        let saved = matches!(reply.answer, Answer::Reloaded(_)).then(|| successor.replace());
        let shown = self.ask.show(reply, |answer| match answer {
            Answer::Reloaded(verdict) => Some(text(verdict)),
            _ => None,
        });
        let Some(old) = saved.transpose()? else { return shown };
        let exit = shown?;
        if !self.ask.is_json() {
            print(&format!("saved as {file}; what it was is in {}\n", old.display()))?;
        }
        Ok(exit)
    }

    /// The file, or standard input.
    fn source(&self) -> Result<Source, Failure> {
        if self.file != Path::new("-") {
            let source = Source::read(&self.file).map_err(Failure::unreadable)?;
            refuse_exposed(&self.file, &source.text)?;
            return Ok(source);
        }
        // It is open: a socket could not be opened again, nor a file that only who started this may read.
        let name = Path::new("(standard input)");
        let source = Source::read_from(name, io::stdin().lock()).map_err(Failure::unreadable)?;
        let input = io::stdin().as_fd().try_clone_to_owned().map(File::from);
        let input = input.and_then(|input| input.metadata()).ok();
        // Only files stay.
        let mode = input.filter(Metadata::is_file).map_or(0, |file| file.permissions().mode());
        refuse_mode(mode, name, &source.text, "remove their permissions from the file".to_owned())?;
        Ok(source)
    }

    fn request(&self, source: &Source, dry_run: bool) -> Request {
        let (name, text) = (source.path.display().to_string(), source.text.clone());
        Request::Apply { name, text, dry_run, force: self.force }
    }
}

/// Says how long a configuration is in force that is in no file of the gateway.
fn temporary(verdict: &Verdict) -> String {
    match &verdict.file {
        _ if verdict.dry_run => String::new(),
        Some(file) => format!(
            "a restart or `weir reload` puts {file} into force again, unless `weir apply --save` has replaced it\n"
        ),
        None => "a restart or `weir reload` puts the built-in configuration into force again\n"
            .to_owned(),
    }
}

/// Refuses a file with a secret that other users may access.
pub(super) fn refuse_exposed(path: &Path, text: &str) -> Result<(), Failure> {
    let mode = path.metadata().map_or(0, |metadata| metadata.permissions().mode());
    refuse_mode(
        mode,
        path,
        text,
        format!("remove their permissions: chmod go= '{}'", path.display()),
    )
}

fn refuse_mode(mode: u32, path: &Path, text: &str, help: String) -> Result<(), Failure> {
    let mode = mode & 0o777;
    if mode & OTHERS == 0 || !has_secret(text) {
        return Ok(());
    }
    let path = path.display();
    let message = format!(
        "the configuration has a secret, and users other than its owner may access `{path}` (mode {mode:04o})"
    );
    Err(Failure::new(Exit::Invalid, message, help))
}

/// The permissions of the group and of all other users.
const OTHERS: u32 = 0o077;
