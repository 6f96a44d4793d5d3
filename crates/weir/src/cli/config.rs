//! `weir config`: checks a configuration or plan, and prints its effective values.

use super::builtin;
use super::serve;
use crate::config::diagnostic::Diagnostic;
use crate::config::source::Source;
use crate::config::tree::Effective;
use crate::config::{self, Kind, json_schema, reference, render, show};
use crate::exit::{Exit, Failure};
use crate::output::{Color, complain, print, print_json};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Check configurations and plans, and show their effective values
#[derive(Debug, Args)]
pub(super) struct Config {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check a file and report all of its errors
    ///
    /// Each error is printed with its line and a remedy; nothing is started. The exit code is 3
    /// if the file is invalid. If it is valid, the addresses, certificates, files and folders
    /// that it names are checked on this machine; the exit code is 7 if one of them is not
    /// available.
    #[command(verbatim_doc_comment)]
    Check {
        #[command(flatten)]
        given: Given,
        /// Check only the file: for another machine, or while the gateway is running
        #[arg(long)]
        file_only: bool,
    },
    /// Print the effective values and the source of each
    ///
    /// The output is in the syntax of the file; the comment after each value names the line that sets it, or says
    /// that it is a default.
    #[command(verbatim_doc_comment)]
    Show {
        #[command(flatten)]
        given: Given,
        /// Print the reference of all keys instead, or of one table: value, default and effect
        #[arg(
            long,
            value_name = "SECTION",
            num_args = 0..=1,
            default_missing_value = "",
            conflicts_with = "config"
        )]
        defaults: Option<String>,
    },
    /// Print the reference of all keys and policies, in Markdown
    Reference,
    /// Print a JSON Schema of all keys, for completion and checks in editors
    ///
    /// The schema has no rules across keys, such as names that must exist; `weir config check` checks those.
    #[command(verbatim_doc_comment)]
    Schema {
        /// The kind of file
        #[arg(default_value = "gateway")]
        kind: FileKind,
    },
}

/// The kinds of file on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum FileKind {
    Gateway,
    Plan,
}

#[derive(Debug, Args)]
struct Given {
    /// A gateway configuration or a plan [default: `WEIR_CONFIG`, else the built-in configuration]
    config: Option<PathBuf>,
    /// Read the file as a plan; by default its tables decide
    #[arg(long)]
    plan: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Config {
    pub(super) fn run(self, color: Color) -> Result<Exit, Failure> {
        match self.command {
            Command::Check { given, file_only } => check(&given, file_only, color),
            Command::Show { given, defaults: Some(section) } => print_reference(&given, &section),
            Command::Reference => {
                print(&reference::markdown())?;
                Ok(Exit::Success)
            }
            Command::Schema { kind } => {
                let kind = match kind {
                    FileKind::Gateway => Kind::Gateway,
                    FileKind::Plan => Kind::Plan,
                };
                print_json(&json_schema::schema(kind))?;
                Ok(Exit::Success)
            }
            Command::Show { given, defaults: None } => {
                let source = source(given.config.as_deref())?;
                let (kind, result) = load(&given, &source);
                let (values, warnings) =
                    result.map_err(|diagnostics| Failure::invalid(diagnostics, source.clone()))?;
                warn(&warnings, &source, color);
                if given.json {
                    print_json(&show::json(kind, &values, &source))?;
                } else {
                    print(&show::text(kind, &values, &source))?;
                }
                Ok(Exit::Success)
            }
        }
    }
}

/// Prints all keys, or those of one table.
fn print_reference(given: &Given, name: &str) -> Result<Exit, Failure> {
    let kind = if given.plan { Kind::Plan } else { Kind::Gateway };
    let (kind, only) = if name.is_empty() {
        (kind, None)
    } else {
        let found = reference::find(kind, name);
        let unknown =
            |help| Failure::new(Exit::Usage, format!("no table is called `{name}`"), help);
        let (kind, section) = found.map_err(unknown)?;
        (kind, Some(section))
    };
    if given.json {
        print_json(&reference::json(kind, only))?;
    } else {
        print(&reference::text(kind, only))?;
    }
    Ok(Exit::Success)
}

/// The file of the command line, that of `WEIR_CONFIG`, or the built-in configuration.
pub(super) fn source(path: Option<&Path>) -> Result<Source, Failure> {
    let environment = std::env::var_os("WEIR_CONFIG").filter(|path| !path.is_empty());
    match path.map(Path::to_owned).or_else(|| environment.map(PathBuf::from)) {
        Some(path) => Source::read(&path).map_err(Failure::unreadable),
        None => builtin::source(),
    }
}

/// Writes the warnings about a file to standard error.
pub(super) fn warn(warnings: &[Diagnostic], source: &Source, color: Color) {
    if !warnings.is_empty() {
        complain(&render::diagnostics(warnings, Some(source), color.on_stderr()));
    }
}

type Checked = Result<(Vec<Effective>, Vec<Diagnostic>), Vec<Diagnostic>>;

fn load(given: &Given, source: &Source) -> (Kind, Checked) {
    let kind = if given.plan { Kind::Plan } else { Kind::of(source) };
    let checked = match kind {
        Kind::Plan => config::plan(source).map(|loaded| (loaded.values, loaded.warnings)),
        Kind::Gateway => config::gateway(source).map(|loaded| (loaded.values, loaded.warnings)),
    };
    (kind, checked)
}

fn check(given: &Given, file_only: bool, color: Color) -> Result<Exit, Failure> {
    let source = source(given.config.as_deref())?;
    let (kind, result) = load(given, &source);
    let (valid, diagnostics) = match result {
        Ok((_, warnings)) => (true, warnings),
        Err(diagnostics) => (false, diagnostics),
    };
    let name = source.path.display().to_string();
    let obstacles: Vec<Failure> = match kind {
        Kind::Gateway if valid && !file_only => {
            let loaded = config::gateway(&source)
                .map_err(|diagnostics| Failure::invalid(diagnostics, source.clone()))?;
            weir_serve::preflight(&loaded.checked).iter().map(serve::failure).collect()
        }
        _ => Vec::new(),
    };
    if given.json {
        let obstacles: Vec<_> = obstacles.iter().map(|one| one.text(false)).collect();
        let diagnostics: Vec<_> =
            diagnostics.iter().map(|diagnostic| diagnostic_json(diagnostic, &source)).collect();
        print_json(&json!({
            "version": 1, "kind": kind.as_str(), "file": name, "valid": valid, "diagnostics": diagnostics,
            "obstacles": obstacles,
        }))?;
    } else if valid {
        warn(&diagnostics, &source, color);
        print(&format!("{name}: a valid {}\n", kind.schema().name))?;
        for one in &obstacles {
            complain(&one.text(color.on_stderr()));
        }
    } else {
        return Err(Failure::invalid(diagnostics, source));
    }
    Ok(match valid {
        false => Exit::Invalid,
        true if obstacles.is_empty() => Exit::Success,
        true => Exit::Unavailable,
    })
}

fn diagnostic_json(diagnostic: &Diagnostic, source: &Source) -> Value {
    let place = |span: &std::ops::Range<usize>| {
        let (line, column) = source.position(span.start);
        json!({ "line": line, "column": column, "start": span.start, "end": span.end })
    };
    json!({
        "code": diagnostic.code.as_str(),
        "warning": diagnostic.code.is_warning(),
        "message": diagnostic.message,
        "help": diagnostic.help,
        "at": diagnostic.at.as_ref().map(|(span, _)| place(span)),
        "see": diagnostic.see.as_ref().map(|(span, _)| place(span)),
    })
}
