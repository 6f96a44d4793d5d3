//! Values as the reader hands them out: of the right type, in base units, within their limits.

use super::diagnostic::Code;
use super::schema::{Form as _, Kind};
use super::suggest::nearest;
use super::units::{SIZE, Scale, shorten};
use serde_json::json;
use std::fmt::Write as _;
use toml::de::DeValue;

/// A value of a key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// A text or a word.
    Text(String),
    /// Whole numbers and quantities, with how to show them.
    Number(u64, Option<Units>),
    /// A number with a fraction.
    Real(f64),
    /// Yes or no.
    Flag(bool),
    /// Several.
    List(Vec<Self>),
    /// An inline table.
    Pairs(Vec<(String, Self)>),
}

/// The units in which a number is shown.
pub(crate) type Units = &'static Scale;

impl PartialEq for Scale {
    fn eq(&self, other: &Self) -> bool {
        self.what == other.what
    }
}

/// Why a value was not taken: the diagnostic without its place.
#[derive(Clone, Debug)]
pub(crate) struct Rejected {
    /// Its kind.
    pub(crate) code: Code,
    /// What is wrong.
    pub(crate) message: String,
    /// What to do.
    pub(crate) help: Option<String>,
}

impl Rejected {
    fn new(code: Code, message: String, help: Option<String>) -> Self {
        Self { code, message, help }
    }
}

impl Value {
    /// The value of a key of this kind. Lists and forms of their own are read by the tree.
    pub(crate) fn read(kind: &Kind, raw: &DeValue<'_>) -> Result<Self, Rejected> {
        if let Some((scale, min, max)) = kind.scale() {
            let number = quantity(scale, raw)?;
            limits(number, min, max, |number| scale.show(number))?;
            return Ok(Self::Number(number, Some(scale)));
        }
        match *kind {
            Kind::Flag => raw.as_bool().map(Self::Flag).ok_or_else(|| wrong(kind, raw)),
            Kind::Word(words) => {
                let text = raw.as_str().ok_or_else(|| wrong(kind, raw))?;
                if words.contains(&text) {
                    return Ok(Self::Text(text.to_owned()));
                }
                let message = format!("there is no `{}` here", shorten(text));
                Err(Rejected::new(Code::BadValue, message, Some(one_of(text, words))))
            }
            Kind::Count(min, max) => {
                let number = whole(kind, raw)?;
                limits(number, min, max, |number| number.to_string())?;
                Ok(Self::Number(number, None))
            }
            Kind::OneOf(numbers) => {
                let number = whole(kind, raw)?;
                if numbers.contains(&number) {
                    return Ok(Self::Number(number, None));
                }
                let message = format!("{number} is not a value of this key");
                let help = format!("write one of: {}", kind.describe());
                Err(Rejected::new(Code::BadValue, message, Some(help)))
            }
            Kind::Real(min, max) => {
                let text = match raw {
                    DeValue::Float(float) => float.as_str(),
                    DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str(),
                    _ => return Err(wrong(kind, raw)),
                };
                let number: f64 = text.parse().map_err(|_| wrong(kind, raw))?;
                if !(min..=max).contains(&number) {
                    let message = format!("`{text}` is outside the limits of this key");
                    let help = format!("write {}", kind.describe());
                    return Err(Rejected::new(Code::OutOfRange, message, Some(help)));
                }
                Ok(Self::Real(number))
            }
            _ => {
                let text = raw.as_str().ok_or_else(|| wrong(kind, raw))?;
                if text.is_empty() || text.chars().any(char::is_control) {
                    let message = "a text here is neither empty nor has control characters";
                    let help = format!("write {}", kind.describe());
                    return Err(Rejected::new(Code::BadValue, message.to_owned(), Some(help)));
                }
                Ok(Self::Text(text.to_owned()))
            }
        }
    }

    /// The value that a number in the base unit of a kind stands for.
    pub(crate) fn of_number(kind: &Kind, number: u64) -> Self {
        match *kind {
            Kind::Flag => Self::Flag(number != 0),
            Kind::Word(words) => Self::Text(words[number as usize].to_owned()),
            _ => Self::Number(number, kind.scale().map(|(scale, ..)| scale)),
        }
    }

    /// The reverse of [`of_number`](Self::of_number); `None` for what is no such number.
    pub(crate) fn to_number(&self, kind: &Kind) -> Option<u64> {
        match (self, kind) {
            (Self::Number(number, _), _) => Some(*number),
            (Self::Flag(flag), _) => Some((*flag).into()),
            (Self::Text(text), Kind::Word(words)) => {
                words.iter().position(|word| word == text).map(|index| index as u64)
            }
            _ => None,
        }
    }

    /// A size in bytes.
    pub(crate) const fn size(bytes: u64) -> Self {
        Self::Number(bytes, Some(&SIZE))
    }

    /// The value as it would be written in a file.
    pub(crate) fn to_toml(&self) -> String {
        match self {
            Self::Text(text) => quote(text),
            Self::Number(number, None) => number.to_string(),
            Self::Number(number, Some(scale)) => quote(&scale.show(*number)),
            Self::Real(number) => format!("{number:?}"),
            Self::Flag(flag) => flag.to_string(),
            Self::List(items) => {
                let items: Vec<_> = items.iter().map(Self::to_toml).collect();
                format!("[{}]", items.join(", "))
            }
            Self::Pairs(pairs) => {
                let pairs: Vec<_> = pairs
                    .iter()
                    .map(|(key, value)| format!("{} = {}", bare(key), value.to_toml()))
                    .collect();
                format!("{{ {} }}", pairs.join(", "))
            }
        }
    }

    /// The value for programs: quantities as numbers in their base unit.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Number(number, _) => json!(number),
            Self::Real(number) => json!(number),
            Self::Flag(flag) => json!(flag),
            Self::List(items) => items.iter().map(Self::to_json).collect(),
            Self::Pairs(pairs) => {
                pairs.iter().map(|(key, value)| (key.clone(), value.to_json())).collect()
            }
        }
    }
}

/// What a value of the wrong type was, for messages.
pub(crate) const fn type_name(raw: &DeValue<'_>) -> &'static str {
    match raw {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// "did you mean", or all that there is.
pub(crate) fn one_of(word: &str, known: &[&str]) -> String {
    if let Some(name) = nearest(word, known.iter().copied()) {
        return format!("did you mean `{name}`?");
    }
    let known: Vec<_> = known.iter().map(|name| format!("`{name}`")).collect();
    format!("there is {}", known.join(", "))
}

fn wrong(kind: &Kind, raw: &DeValue<'_>) -> Rejected {
    let message = format!("{} where something else belongs", type_name(raw));
    Rejected::new(Code::WrongType, message, Some(format!("write {}", kind.describe())))
}

fn quantity(scale: Units, raw: &DeValue<'_>) -> Result<u64, Rejected> {
    // A whole number without quotes is read as the text that it is, so that both forms have one
    // meaning and one message.
    let text = match raw {
        DeValue::String(text) => text.as_ref(),
        DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str(),
        _ => {
            let message = format!("{} where {} belongs", type_name(raw), scale.what);
            let help = scale.parse("").map_or_else(|bad| bad.help, |_| String::new());
            return Err(Rejected::new(Code::WrongType, message, Some(help)));
        }
    };
    scale.parse(text).map_err(|bad| Rejected::new(Code::BadUnit, bad.message, Some(bad.help)))
}

/// A whole number, if it is one and fits.
fn whole(kind: &Kind, raw: &DeValue<'_>) -> Result<u64, Rejected> {
    let integer = raw.as_integer().ok_or_else(|| wrong(kind, raw))?;
    u64::from_str_radix(integer.as_str(), integer.radix()).map_err(|_| {
        let message = "a number must be from 0 to less than 2^64".to_owned();
        let help = format!("write {}", kind.describe());
        Rejected::new(Code::OutOfRange, message, Some(help))
    })
}

fn limits(number: u64, min: u64, max: u64, show: impl Fn(u64) -> String) -> Result<(), Rejected> {
    if (min..=max).contains(&number) {
        return Ok(());
    }
    let message = format!("`{}` is outside the limits of this key", show(number));
    let help = match max {
        u64::MAX => format!("write at least `{}`", show(min)),
        _ => format!("write a value from `{}` to `{}`", show(min), show(max)),
    };
    Err(Rejected::new(Code::OutOfRange, message, Some(help)))
}

/// A key of TOML, quoted if it must be.
fn bare(key: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !key.is_empty() && key.chars().all(plain) { key.to_owned() } else { quote(key) }
}

/// A basic string of TOML.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
