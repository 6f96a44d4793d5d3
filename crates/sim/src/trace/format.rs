//! The formats of trace files: how one is named, and how a file's is found.

use super::Problem;
use super::define::{Definition, Head};
use super::fields::shown;
use super::formats::{self, DEFINITIONS};
use super::units::{AddressUnit, Event, TimeUnit, Wait};
use std::fmt;
use std::fmt::Write as _;

/// A format of trace files.
#[derive(Clone, Copy)]
pub struct Format(&'static Definition);

impl Format {
    /// The names of all formats.
    pub const NAMES: [&'static str; DEFINITIONS.len()] = {
        let mut names = [""; DEFINITIONS.len()];
        let mut at = 0;
        while at < names.len() {
            names[at] = DEFINITIONS[at].name;
            at += 1;
        }
        names
    };

    /// Weir's own: `time_ns,op,dev,offset,size[,resp_ns]`.
    pub const WEIR: Self = Self(&formats::weir::DEFINITION);

    /// All formats, Weir's own first.
    pub fn all() -> impl Iterator<Item = Self> {
        DEFINITIONS.iter().copied().map(Self)
    }

    /// The format of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|format| format.as_str() == name)
    }

    /// Its name in configurations and messages.
    pub const fn as_str(self) -> &'static str {
        self.0.name
    }

    /// Where it comes from.
    pub const fn origin(self) -> &'static str {
        self.0.origin
    }

    /// What a record looks like.
    pub const fn record(self) -> &'static str {
        self.0.record
    }

    /// The unit of its times, and whether no files in other units are known.
    pub const fn time_unit(self) -> (TimeUnit, bool) {
        (self.0.time, self.0.certain)
    }

    /// The units of its offsets and sizes.
    pub const fn address_units(self) -> (AddressUnit, AddressUnit) {
        self.0.address
    }

    /// Whether traces can be written in it.
    pub const fn writable(self) -> bool {
        self.0.write.is_some()
    }

    pub(super) const fn definition(self) -> &'static Definition {
        self.0
    }

    /// The format of a file that begins so.
    pub(super) fn of(head: &Head<'_>) -> Result<Self, Problem> {
        let fits: Vec<Self> = Self::all().filter(|format| (format.0.recognise)(head)).collect();
        match fits[..] {
            [format] => Ok(format),
            [] => {
                let mut message = "this is no known trace".to_owned();
                if !head.first().is_empty() {
                    let _ = write!(message, ": it begins with `{}`", shown(head.first()));
                }
                let _ = write!(
                    message,
                    "; expected the header `{}`, or a format of {}",
                    formats::weir::HEADER,
                    Self::NAMES.join(", ")
                );
                Err(Problem::new(1, message).remedy("--format names one"))
            }
            _ => {
                let names: Vec<_> = fits.iter().map(|format| format.as_str()).collect();
                let problem = Problem::new(1, format!("this may be {}", names.join(" or ")));
                Err(problem.remedy("say which: --format"))
            }
        }
    }
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for Format {}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What is known about a file before it is read. The default: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Its format; without one it is found from the first 64 KiB.
    pub format: Option<Format>,
    /// The unit of its times; with one, times are not checked for a wrong unit.
    pub time_unit: Option<TimeUnit>,
    /// The units of its offsets and sizes; with them, neither is checked for a wrong unit.
    pub address: Option<(AddressUnit, AddressUnit)>,
    /// The meaning of `wait` in a fio iolog of version 2.
    pub wait: Option<Wait>,
    /// The event that is an arrival in a trace of the block layer.
    pub event: Option<Event>,
}

impl Options {
    /// Refuses an option that a format has no use for.
    pub(super) fn used_by(&self, definition: &Definition) -> Result<(), Problem> {
        let Definition { name, canonical, timeless, completions, .. } = *definition;
        let others = |uses: fn(&Definition) -> bool| {
            let others = DEFINITIONS.iter().filter(|other| uses(other)).map(|other| other.name);
            others.collect::<Vec<_>>().join(" and ")
        };
        let refused = if self.time_unit.is_some() && canonical {
            ("--time-unit", format!("its times are always in {}", definition.time))
        } else if self.time_unit.is_some() && timeless {
            ("--time-unit", "its times come from `wait`, whose meaning --wait says".to_owned())
        } else if self.address.is_some() && canonical {
            ("--address", "its offsets and sizes are always in bytes".to_owned())
        } else if self.wait.is_some() && !timeless {
            let others = others(|other| other.timeless);
            ("--wait", format!("only {others} has lines with `wait`"))
        } else if self.event.is_some() && !completions {
            let others = others(|other| other.completions);
            ("--event", format!("only {others} have events of the block layer"))
        } else {
            return Ok(());
        };
        let (option, reason) = refused;
        let message =
            format!("the file is of the format {name}, which does not use {option}: {reason}");
        Err(Problem::new(0, message).remedy(format!("leave {option} out")))
    }
}

impl From<Option<Format>> for Options {
    fn from(format: Option<Format>) -> Self {
        Self { format, ..Self::default() }
    }
}
