//! The fields of a line, with their columns for messages.

use super::units::{AddressUnit, TimeUnit};
use super::{Problem, names::Names};
use weir_flow::request::Op;
use weir_flow::units::Extent;

pub(super) struct Fields<'a> {
    line: &'a str,
    /// Where the next field begins; past the end of the line when there is none.
    at: usize,
    separator: Separator,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Separator {
    /// Exactly this byte.
    Byte(u8),
    /// One or more blanks or tabs.
    Blanks,
}

/// One field and where it begins.
#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    pub(super) name: &'static str,
    pub(super) text: &'a str,
    pub(super) column: u64,
}

impl<'a> Fields<'a> {
    /// Fields with commas between them.
    pub(super) const fn new(line: &'a str) -> Self {
        Self { line, at: 0, separator: Separator::Byte(b',') }
    }

    /// Fields with semicolons between them, and blanks around them.
    pub(super) const fn semicolons(line: &'a str) -> Self {
        Self { line, at: 0, separator: Separator::Byte(b';') }
    }

    /// Fields with blanks between them.
    pub(super) const fn blanks(line: &'a str) -> Self {
        Self { line, at: 0, separator: Separator::Blanks }
    }

    /// The next field, which is called `name` in messages.
    pub(super) fn next(&mut self, name: &'static str) -> Result<Field<'a>, Problem> {
        let rest = self.line.get(self.at..);
        let skipped = match (self.separator, rest) {
            (Separator::Byte(b','), _) | (_, None) => 0,
            (_, Some(rest)) => rest.len() - rest.trim_ascii_start().len(),
        };
        let column = (self.at + skipped).min(self.line.len()) as u64 + 1;
        let rest = rest.map(|rest| &rest[skipped..]);
        let Some(rest) = rest.filter(|r| self.separator != Separator::Blanks || !r.is_empty())
        else {
            return Err(Problem::new(column, format!("the line ends before its field `{name}`")));
        };
        let ends = |byte: u8| match self.separator {
            Separator::Byte(separator) => byte == separator,
            Separator::Blanks => byte.is_ascii_whitespace(),
        };
        let length = rest.bytes().position(ends).unwrap_or(rest.len());
        self.at += skipped + length + usize::from(self.separator != Separator::Blanks);
        let mut text = &rest[..length];
        if self.separator == Separator::Byte(b';') {
            text = text.trim_ascii_end();
        }
        Ok(Field { name, text, column })
    }

    /// Nothing may follow the last field.
    pub(super) fn end(&self) -> Result<(), Problem> {
        let blanks = self.separator == Separator::Blanks;
        match self.line.get(self.at..) {
            None => Ok(()),
            Some(rest) if blanks && rest.trim_ascii().is_empty() => Ok(()),
            Some(rest) => {
                let message = format!("`{}` follows the last field", shown(rest));
                Err(Problem::new(self.at as u64 + 1, message))
            }
        }
    }

    /// The texts of all fields.
    pub(super) fn all(mut self) -> Vec<&'a str> {
        std::iter::from_fn(|| self.next("").ok().map(|field| field.text)).collect()
    }
}

/// Whether a text is a whole number, digits only.
pub(super) fn whole(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a text is a number with a decimal point.
pub(super) fn decimal(text: &str) -> bool {
    text.split_once('.').is_some_and(|(a, b)| whole(a) && whole(b))
}

impl Field<'_> {
    /// A problem with this field.
    pub(super) fn expected(self, what: &str) -> Problem {
        let Self { name, text, column } = self;
        Problem::new(column, format!("`{name}` is `{}`; expected {what}", shown(text)))
    }

    /// Without blanks around it.
    pub(super) fn trimmed(self) -> Self {
        Self { text: self.text.trim(), ..self }
    }

    /// An operation, by what a read and a write are called.
    pub(super) fn op(self, read: &str, write: &str) -> Result<Op, Problem> {
        match self.text {
            text if text == read => Ok(Op::Read),
            text if text == write => Ok(Op::Write),
            _ => Err(self.expected(&format!("`{read}` for a read or `{write}` for a write"))),
        }
    }

    /// A whole number of 64 bits, digits only.
    pub(super) fn number(self) -> Result<u64, Problem> {
        if !whole(self.text) {
            return Err(self.expected("a whole number"));
        }
        self.text.parse().map_err(|_| self.expected("a number of at most 64 bits"))
    }

    /// A time in nanoseconds. Digits beyond the nanosecond are dropped.
    pub(super) fn time(self, unit: TimeUnit) -> Result<u64, Problem> {
        let (whole_part, fraction) = self.text.split_once('.').unwrap_or((self.text, "0"));
        if !whole(whole_part) || !whole(fraction) {
            return Err(self.expected("a time: digits, or digits with a decimal point"));
        }
        let mut scale = unit.nanos();
        let mut part = 0;
        for digit in fraction.bytes() {
            scale /= 10;
            part += u64::from(digit - b'0') * scale;
        }
        let units = whole_part.parse::<u64>().ok();
        let nanos = units.and_then(|units| units.checked_mul(unit.nanos())?.checked_add(part));
        nanos.ok_or_else(|| self.expected("less than 584 years"))
    }

    /// A device: a number, the `major:minor` of Linux, or a name.
    pub(super) fn device(self, names: &mut Names) -> Result<u32, Problem> {
        let linux = self.text.starts_with(|c: char| c.is_ascii_digit()) && self.text.contains(':');
        if linux || whole(self.text) {
            names.numbered().map_err(|expected| self.expected(expected))?;
        }
        if linux {
            return self.linux_device(':');
        }
        if whole(self.text) {
            let number = u32::try_from(self.number()?);
            return number.map_err(|_| self.expected("a number of at most 32 bits"));
        }
        names.number(self.text).map_err(|expected| self.expected(expected))
    }

    /// The major and minor number of Linux with this separator, as one number.
    pub(super) fn linux_device(self, separator: char) -> Result<u32, Problem> {
        let part = |text: &str, bits: u32| {
            text.parse().ok().filter(|&part: &u32| whole(text) && part < 1 << bits)
        };
        let (major, minor) = self.text.split_once(separator).unwrap_or_default();
        match (part(major, 12), part(minor, 20)) {
            (Some(major), Some(minor)) => Ok(major << 20 | minor),
            _ => Err(self.expected(&format!(
                "`major{separator}minor` of 12 and 20 bits, or a whole number"
            ))),
        }
    }

    /// A number in these units, in bytes.
    fn bytes(self, unit: AddressUnit) -> Result<u64, Problem> {
        let bytes = self.number()?.checked_mul(unit.bytes());
        bytes.ok_or_else(|| self.expected("a place within 2^64 bytes"))
    }
}

/// The range that the two fields describe, in bytes.
pub(super) fn extent(
    offset: Field<'_>,
    size: Field<'_>,
    units: (AddressUnit, AddressUnit),
) -> Result<Extent, Problem> {
    let extent = Extent::new(offset.bytes(units.0)?, size.bytes(units.1)?);
    if extent.length == 0 {
        return Err(size.expected(if units.1 == AddressUnit::Bytes {
            "at least 1 byte"
        } else {
            "at least 1 sector"
        }));
    }
    if extent.end().is_none() {
        return Err(size.expected("a range that ends within 2^64 bytes"));
    }
    Ok(extent)
}

/// The beginning of a text that may be long or odd, for a message.
pub(super) fn shown(text: &str) -> String {
    let start: String = text.chars().take(40).flat_map(char::escape_debug).collect();
    if text.chars().nth(40).is_some() { start + "…" } else { start }
}
