//! The comma-separated fields of a line, with their columns for messages.

use super::Problem;
use weir_flow::units::Extent;

pub(super) struct Fields<'a> {
    line: &'a str,
    /// Where the next field begins; past the end of the line when there is none.
    at: usize,
}

/// One field and where it begins.
#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    pub(super) name: &'static str,
    pub(super) text: &'a str,
    pub(super) column: u64,
}

impl<'a> Fields<'a> {
    pub(super) const fn new(line: &'a str) -> Self {
        Self { line, at: 0 }
    }

    /// The next field, which is called `name` in messages.
    pub(super) fn next(&mut self, name: &'static str) -> Result<Field<'a>, Problem> {
        let column = self.at.min(self.line.len()) as u64 + 1;
        let Some(rest) = self.line.get(self.at..) else {
            return Err(Problem::new(column, format!("the line ends before its field `{name}`")));
        };
        let length = rest.bytes().position(|byte| byte == b',').unwrap_or(rest.len());
        self.at += length + 1;
        Ok(Field { name, text: &rest[..length], column })
    }

    /// Nothing may follow the last field.
    pub(super) fn end(&self) -> Result<(), Problem> {
        match self.line.get(self.at..) {
            None => Ok(()),
            Some(rest) => {
                let message = format!("`{}` follows the last field", shown(rest));
                Err(Problem::new(self.at as u64 + 1, message))
            }
        }
    }
}

impl Field<'_> {
    /// A problem with this field.
    pub(super) fn expected(self, what: &str) -> Problem {
        let Self { name, text, column } = self;
        Problem::new(column, format!("`{name}` is `{}`; expected {what}", shown(text)))
    }

    /// A whole number of 64 bits, digits only.
    pub(super) fn number(self) -> Result<u64, Problem> {
        if self.text.is_empty() || !self.text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(self.expected("a whole number"));
        }
        self.text.parse().map_err(|_| self.expected("a number of at most 64 bits"))
    }

    /// A device number.
    pub(super) fn device(self) -> Result<u32, Problem> {
        u32::try_from(self.number()?).map_err(|_| self.expected("a number of at most 32 bits"))
    }

    /// A device number, or the `major:minor` of Linux.
    pub(super) fn linux_device(self) -> Result<u32, Problem> {
        let Some((major, minor)) = self.text.split_once(':') else { return self.device() };
        let part = |text: &str, bits: u32| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|&part: &u32| digits && part < 1 << bits)
        };
        match (part(major, 12), part(minor, 20)) {
            (Some(major), Some(minor)) => Ok(major << 20 | minor),
            _ => Err(self.expected("`major:minor` of 12 and 20 bits, or a whole number")),
        }
    }
}

/// The range that the two fields describe.
pub(super) fn extent(offset: Field<'_>, size: Field<'_>) -> Result<Extent, Problem> {
    let extent = Extent::new(offset.number()?, size.number()?);
    if extent.length == 0 {
        return Err(size.expected("at least 1 byte"));
    }
    if extent.end().is_none() {
        return Err(size.expected("a range that ends within 2^64 bytes"));
    }
    Ok(extent)
}

/// The beginning of a text that may be long or odd, for a message.
fn shown(text: &str) -> String {
    let start: String = text.chars().take(40).flat_map(char::escape_debug).collect();
    if text.chars().nth(40).is_some() { start + "…" } else { start }
}
