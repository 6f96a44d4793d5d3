//! What is wrong with a file, as data; `render` makes text of it.

use std::fmt;
use std::ops::Range;

/// A range of bytes in a file.
pub(crate) type Span = Range<usize>;

/// The kind of a diagnostic: a stable name that can be searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// The file cannot be read as text.
    Unreadable,
    /// The text is not TOML.
    Syntax,
    /// The other kind of file: a plan where a configuration belongs, or the reverse.
    WrongFile,
    /// A key or table that nothing reads.
    UnknownKey,
    /// A key that must be there is not.
    MissingKey,
    /// A value of another type than the key's.
    WrongType,
    /// A number without a unit, or with one that does not exist here.
    BadUnit,
    /// A value that the key cannot have.
    BadValue,
    /// A number below or above the key's limits.
    OutOfRange,
    /// The same thing twice.
    Duplicate,
    /// A name that names nothing.
    Dangling,
    /// Two values that do not go together.
    Conflict,
    /// Something that is there and has no effect.
    Unused,
    /// A check that can be evaded.
    Exposed,
    /// A file with a secret that other users may access.
    Permissions,
}

impl Code {
    /// Its name in messages.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::Syntax => "syntax",
            Self::WrongFile => "wrong-file",
            Self::UnknownKey => "unknown-key",
            Self::MissingKey => "missing-key",
            Self::WrongType => "wrong-type",
            Self::BadUnit => "bad-unit",
            Self::BadValue => "bad-value",
            Self::OutOfRange => "out-of-range",
            Self::Duplicate => "duplicate",
            Self::Dangling => "dangling",
            Self::Conflict => "conflict",
            Self::Unused => "unused",
            Self::Exposed => "exposed",
            Self::Permissions => "permissions",
        }
    }

    /// Whether the file can be used all the same.
    pub(crate) const fn is_warning(self) -> bool {
        matches!(self, Self::Unused | Self::Exposed)
    }

    /// Whether it says that something is not there: no news where the text around it could not be
    /// read.
    pub(crate) const fn is_absence(self) -> bool {
        matches!(self, Self::MissingKey | Self::Dangling | Self::Unused)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One thing that is wrong, where it is, and what to do about it.
#[derive(Clone, Debug)]
pub(crate) struct Diagnostic {
    /// Its kind.
    pub(crate) code: Code,
    /// What is wrong, as a lower-case fragment.
    pub(crate) message: String,
    /// Where, and a few words to write beside the text.
    pub(crate) at: Option<(Span, String)>,
    /// Another place that explains it.
    pub(crate) see: Option<(Span, String)>,
    /// What to do.
    pub(crate) help: Option<String>,
}

impl Diagnostic {
    /// A diagnostic without a place.
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), at: None, see: None, help: None }
    }

    /// Points at the text.
    #[must_use]
    pub(crate) fn at(mut self, span: Span, label: impl Into<String>) -> Self {
        self.at = Some((span, label.into()));
        self
    }

    /// Points at the text if there is any: a default is not in the file.
    #[must_use]
    pub(crate) fn at_some(self, span: Option<&Span>, label: impl Into<String>) -> Self {
        match span {
            Some(span) => self.at(span.clone(), label),
            None => self,
        }
    }

    /// Points at a second place.
    #[must_use]
    pub(crate) fn see(mut self, span: Option<&Span>, label: impl Into<String>) -> Self {
        self.see = span.map(|span| (span.clone(), label.into()));
        self
    }

    /// Says what to do.
    #[must_use]
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}
