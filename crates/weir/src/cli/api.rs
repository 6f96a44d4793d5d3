//! `weir api`: makes tokens for the HTTP interface, and prints its description.

use crate::config::gateway::users::{is_name, parse, text};
use crate::exit::{Exit, Failure};
use crate::output::print;
use clap::{Args, Subcommand, ValueEnum};
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use weir_serve::config::http::{Role, TokenHash, token_of};
use weir_serve::operator::openapi_document;

/// Make tokens for the HTTP interface, or print its `OpenAPI` document
#[derive(Debug, Args)]
pub(super) struct Api {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Token(Token),
    Openapi(Openapi),
}

/// Make a token, print it once, and add its hash to the `tokens_file` of `[http]`
///
/// The gateway knows it after `weir reload`. To revoke it, remove its line and reload.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
struct Token {
    /// Who will have it, for the log of the gateway
    name: String,
    /// What it allows; each role may do what those before it may
    #[arg(long, value_enum)]
    role: RoleName,
    /// The `tokens_file`; it is made with mode 0600 if it is missing
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
}

/// A role on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum RoleName {
    /// See the state of the gateway
    Read,
    /// Give orders to paths and to write-back
    Operate,
    /// Reload the configuration, stop the gateway, give up data
    Admin,
}

/// Print the `OpenAPI` 3.1 document of the REST interface
#[derive(Debug, Args)]
struct Openapi {}

impl Api {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        match self.command {
            Command::Token(token) => token.run()?,
            Command::Openapi(Openapi {}) => print(&openapi_document())?,
        }
        Ok(Exit::Success)
    }
}

impl Token {
    fn run(self) -> Result<(), Failure> {
        let Self { name, role, file } = self;
        if !is_name(&name) {
            let message = format!("`{}` cannot be the name of a token", name.escape_debug());
            return Err(Failure::new(
                Exit::Usage,
                message,
                "use letters, digits, `-`, `_` and `.`",
            ));
        }
        let role = match role {
            RoleName::Read => Role::Read,
            RoleName::Operate => Role::Operate,
            RoleName::Admin => Role::Admin,
        };
        let cannot = |error: io::Error| {
            let message = format!("cannot write `{}`: {error}", file.display());
            Failure::new(Exit::Unavailable, message, "name a file that can be written")
        };
        let known = match text(&file) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            known => known.map_err(cannot)?,
        };
        let users = parse(&known).map_err(|(line, problem)| {
            let message = format!("line {line} of `{}`: {problem}", file.display());
            Failure::new(Exit::Invalid, message, "correct it; docs/reference/http.md has the form")
        })?;
        if users.iter().any(|user| user.name == name) {
            let message = format!("`{name}` has a line in `{}`", file.display());
            return Err(Failure::new(
                Exit::Invalid,
                message,
                "use another name, or remove the line",
            ));
        }
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(|error| Failure::unexpected(error.to_string()))?;
        let token = token_of(&random);
        let end = if known.is_empty() || known.ends_with('\n') { "" } else { "\n" };
        let line = format!("{end}{name} {} sha256:{}\n", role.as_str(), TokenHash::of(&token));
        append(&file, &line).map_err(cannot)?;
        print(&format!("{token}\n"))
    }
}

/// Adds a line to a file that only its owner may access.
fn append(path: &Path, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let mode = file.metadata()?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let why = format!("other users may access it (mode {mode:04o}); chmod go= it");
        return Err(io::Error::other(why));
    }
    file.write_all(line.as_bytes())?;
    file.sync_all()
}
