//! The form of the key tables: what exists, what it may be, and what it does.
//!
//! The reader looks keys up here and applies the defaults that are written here, so the printed
//! reference cannot part from what is read.

pub(crate) use weir_flow::settings::{Kind, Preset as Default, Setting as Key};

use super::units::{BANDWIDTH, RATE, SIZE, Scale, TIME};

/// All keys of one kind of file.
#[derive(Debug)]
pub(crate) struct Schema {
    /// What such a file is called.
    pub(crate) name: &'static str,
    /// Its tables; the one without a name has the keys before the first table.
    pub(crate) sections: &'static [&'static Section],
}

/// One table of a file.
#[derive(Debug)]
pub(crate) struct Section {
    /// Its name; empty for the keys before the first table.
    pub(crate) name: &'static str,
    /// How often it may appear.
    pub(crate) many: Many,
    /// What it describes.
    pub(crate) effect: &'static str,
    /// Its keys.
    pub(crate) keys: &'static [Key],
}

/// How often a table may appear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Many {
    /// Once, as `[name]`.
    Once,
    /// As `[[name]]`, at least and at most so many times.
    Times(usize, usize),
}

impl Schema {
    /// The table of this name.
    pub(crate) fn section(&self, name: &str) -> Option<&'static Section> {
        self.sections.iter().copied().find(|section| section.name == name)
    }

    /// The names that may stand at the top of the file.
    pub(crate) fn top_names(&self) -> impl Iterator<Item = &'static str> {
        let top = self.section("").map_or(&[][..], |section| section.keys);
        let tables = self.sections.iter().map(|section| section.name);
        tables.filter(|name| !name.is_empty()).chain(top.iter().map(|key| key.name))
    }
}

impl Section {
    /// The key of this name.
    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// The table as it is written in a file.
    pub(crate) fn heading(&self) -> String {
        match self.many {
            _ if self.name.is_empty() => "the top of the file".to_owned(),
            Many::Once => format!("[{}]", self.name),
            Many::Times(..) => format!("[[{}]]", self.name),
        }
    }
}

/// How a kind is written in a file.
pub(crate) trait Form {
    /// The units of a quantity, and its limits.
    fn scale(&self) -> Option<(&'static Scale, u64, u64)>;

    /// The kind in a few words, with its limits.
    fn describe(&self) -> String;
}

impl Form for Kind {
    fn scale(&self) -> Option<(&'static Scale, u64, u64)> {
        match *self {
            Self::Time(min, max) => Some((&TIME, min, max)),
            Self::Size(min, max) => Some((&SIZE, min, max)),
            Self::Bandwidth(min, max) => Some((&BANDWIDTH, min, max)),
            Self::Rate(min, max) => Some((&RATE, min, max)),
            _ => None,
        }
    }

    fn describe(&self) -> String {
        let range = |what: &str, min: String, max: String, open: bool| {
            if open {
                format!("{what} of at least {min}")
            } else {
                format!("{what}, {min} to {max}")
            }
        };
        if let Some((scale, min, max)) = self.scale() {
            return range(scale.what, scale.show(min), scale.show(max), max == u64::MAX);
        }
        match *self {
            Self::Text(like) | Self::Other(like) => like.to_owned(),
            Self::Texts(like) => format!("list: {like}"),
            Self::Word(words) => words.join(" | "),
            Self::OneOf(numbers) => {
                let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
                numbers.join(" | ")
            }
            Self::Flag => "true | false".to_owned(),
            Self::Count(min, max) => {
                range("a number", min.to_string(), max.to_string(), max == u64::MAX)
            }
            Self::Real(min, max) => range("a number", min.to_string(), max.to_string(), false),
            Self::Time(..) | Self::Size(..) | Self::Bandwidth(..) | Self::Rate(..) => String::new(),
        }
    }
}
