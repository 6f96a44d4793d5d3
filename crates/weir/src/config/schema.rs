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
    /// The keys that its reader asks for by name.
    pub(crate) keys: &'static [Key],
    /// The keys that are declared with the structs that they fill.
    pub(crate) settings: &'static [Part],
}

/// Keys of a struct that is declared with its table.
#[derive(Debug)]
pub(crate) struct Part {
    /// The words of `model` with which the keys are read, and what their values are then if nothing is
    /// written. Empty: the keys are always read.
    pub(crate) models: &'static [(&'static str, Presets)],
    /// The keys.
    pub(crate) keys: &'static [Key],
}

/// The value of a key in its base unit where nothing is written.
pub(crate) type Presets = fn(&str) -> Option<u64>;

impl Part {
    /// Keys that are read whatever the others say.
    pub(crate) const fn always(keys: &'static [Key]) -> Self {
        Self { models: &[], keys }
    }

    /// Whether the keys are read with this `model`.
    pub(crate) fn is_of(&self, model: &str) -> bool {
        self.models.iter().any(|(name, _)| *name == model)
    }
}

/// How often a table may appear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Many {
    /// Once, as `[name]`.
    Once,
    /// As `[[name]]`, with the least and the largest number of them.
    Times(usize, usize),
}

impl Schema {
    /// The table of this name.
    pub(crate) fn section(&self, name: &str) -> Option<&'static Section> {
        self.sections.iter().copied().find(|section| section.name == name)
    }

    /// The names that may stand at the top of the file.
    pub(crate) fn top_names(&self) -> impl Iterator<Item = &'static str> {
        let top = self.section("").into_iter().flat_map(Section::all);
        let tables = self.sections.iter().map(|section| section.name);
        tables.filter(|name| !name.is_empty()).chain(top.map(|(key, _)| key.name))
    }
}

impl Section {
    /// The key of this name.
    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.all().map(|(key, _)| key).find(|key| key.name == name)
    }

    /// All keys, each with the part that declares it. A name may be there once for each `model`.
    pub(crate) fn all(
        &self,
    ) -> impl Iterator<Item = (&'static Key, Option<&'static Part>)> + use<> {
        let parts = self.settings.iter();
        let parts = parts.flat_map(|part| part.keys.iter().map(move |key| (key, Some(part))));
        self.keys.iter().map(|key| (key, None)).chain(parts)
    }

    /// The same with the keys of a part together whose names begin with the same word. The order of a
    /// declared table is that of the recording's codec.
    pub(crate) fn related(&self) -> Vec<(&'static Key, Option<&'static Part>)> {
        let mut keys: Vec<_> = Vec::new();
        for (key, part) in self.all() {
            let word = |key: &Key| key.name.split('_').next();
            let same = |&(other, of): &(&'static Key, Option<&'static Part>)| {
                part.is_some()
                    && of.map(std::ptr::from_ref) == part.map(std::ptr::from_ref)
                    && word(other) == word(key)
            };
            let at = keys.iter().rposition(same).map_or(keys.len(), |last| last + 1);
            keys.insert(at, (key, part));
        }
        keys
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
