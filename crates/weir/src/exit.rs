//! The exit codes: an interface. A number never changes its meaning.

use crate::config::diagnostic::Diagnostic;
use crate::config::source::Source;
use crate::config::{events, render};
use std::borrow::Cow;
use std::process::ExitCode;
use std::slice::from_ref;
use tracing::{Level, error, event_enabled};

/// How the program ends.
///
/// A service manager must not retry after [`Invalid`](Self::Invalid) and
/// [`Damaged`](Self::Damaged): nothing will have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done, or the reader of the output has had enough (since 0.1.0).
    Success = 0,
    /// Something failed that has no other code, or a gateway refused an order (since 0.1.0).
    Unexpected = 1,
    /// The command line cannot be understood (since 0.1.0).
    Usage = 2,
    /// A configuration, plan or trace cannot be used as it is (since 0.1.0).
    Invalid = 3,
    /// An expectation of a plan was not met, or a claim that must hold (since 0.1.0).
    Expectation = 4,
    /// A replayed recording gave other actions than the recorded ones (since 0.1.0).
    Diverged = 5,
    /// A recording or log is damaged (since 0.1.0).
    Damaged = 6,
    /// An address, a device or a gateway cannot be had; trying again later may help (since 0.1.0).
    Unavailable = 7,
    /// A valid configuration changes what only a restart changes; nothing was changed (since 0.1.0).
    NeedsRestart = 8,
    /// A recording cannot answer the question (since 0.1.0).
    Unanswered = 9,
    /// A configuration is in force, but it was not saved as asked, or not in every respect (since 0.1.0).
    NotSaved = 10,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The end of a command that did not succeed: what to tell the person, and what the shell.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit status for the shell.
    pub(crate) exit: Exit,
    message: Message,
}

#[derive(Debug)]
enum Message {
    /// There is nothing to say.
    None,
    /// A lower-case fragment, and what to do about it.
    Plain(String, Option<Cow<'static, str>>),
    /// Why a file could not be read at all.
    Unreadable(Box<Diagnostic>),
    /// What is wrong with a file, and its text.
    Diagnostics(Vec<Diagnostic>, Box<Source>),
}

impl Failure {
    /// A failure in a few words, as a lower-case fragment, and what to do about it.
    pub(crate) fn new(
        exit: Exit,
        message: impl Into<String>,
        help: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { exit, message: Message::Plain(message.into(), Some(help.into())) }
    }

    /// An unexpected failure, about which nothing can be advised.
    pub(crate) fn unexpected(message: impl Into<String>) -> Self {
        Self { exit: Exit::Unexpected, message: Message::Plain(message.into(), None) }
    }

    /// The same failure, with what it means for something else.
    pub(crate) fn and(mut self, more: &str) -> Self {
        if let Message::Plain(message, _) = &mut self.message {
            message.push_str("; ");
            message.push_str(more);
        }
        self
    }

    /// A file that could not be read at all.
    pub(crate) const fn unreadable(diagnostic: Box<Diagnostic>) -> Self {
        Self { exit: Exit::Invalid, message: Message::Unreadable(diagnostic) }
    }

    /// Diagnostics of a file.
    pub(crate) fn invalid(diagnostics: Vec<Diagnostic>, source: Source) -> Self {
        Self { exit: Exit::Invalid, message: Message::Diagnostics(diagnostics, Box::new(source)) }
    }

    /// The reader of the output has closed it: nothing to say, and no failure.
    pub(crate) const fn closed_pipe() -> Self {
        Self { exit: Exit::Success, message: Message::None }
    }

    /// The same failure with nothing left to say, as it is in the log now; as it was if the log takes no errors.
    pub(crate) fn logged(self) -> Self {
        match &self.message {
            Message::Plain(message, help) if event_enabled!(Level::ERROR) => {
                error!(help = help.as_deref(), "{message}");
            }
            Message::Diagnostics(diagnostics, source) if events::takes_errors() => {
                for diagnostic in diagnostics {
                    events::log(diagnostic, source);
                }
            }
            _ => return self,
        }
        Self { message: Message::None, ..self }
    }

    /// What to write to standard error.
    pub(crate) fn text(&self, color: bool) -> String {
        match &self.message {
            Message::None => String::new(),
            Message::Plain(message, help) => render::plain(message, help.as_deref(), color),
            Message::Unreadable(diagnostic) => {
                render::diagnostics(from_ref(diagnostic), None, color)
            }
            Message::Diagnostics(diagnostics, source) => {
                render::diagnostics(diagnostics, Some(source), color)
            }
        }
    }
}
