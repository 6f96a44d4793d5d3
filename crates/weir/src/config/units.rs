//! Quantities as people write them: `10ms`, `4KiB`, `3500/s`, `1GiB/s`.
//!
//! A quantity is a decimal number and a unit, with at most one space between. The arithmetic is in
//! integers, so what is written is what is meant or an error.

use super::suggest::nearest;

/// The units of one kind of quantity.
#[derive(Debug)]
pub(crate) struct Scale {
    /// What is measured, with its article.
    pub(crate) what: &'static str,
    /// What the result counts, in the plural.
    pub(crate) base: &'static str,
    /// Each unit with its size in the base.
    units: &'static [(&'static str, u64)],
    /// Whether a number without a unit counts the base.
    bare: bool,
    /// Nothing of it.
    zero: &'static str,
    /// One that is right.
    example: &'static str,
}

/// Lengths of time, in nanoseconds.
pub(crate) static TIME: Scale = Scale {
    what: "a duration",
    base: "nanoseconds",
    units: &[
        ("ns", 1),
        ("µs", 1_000),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("min", 60 * 1_000_000_000),
        ("h", 3_600 * 1_000_000_000),
    ],
    bare: false,
    zero: "0s",
    example: "10ms",
};

/// Sizes, in bytes.
pub(crate) static SIZE: Scale = Scale {
    what: "a size",
    base: "bytes",
    units: &[
        ("B", 1),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("PiB", 1 << 50),
        ("EiB", 1 << 60),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
    ],
    bare: true,
    zero: "0B",
    example: "64KiB",
};

/// Speeds of links, in bytes per second.
pub(crate) static BANDWIDTH: Scale = Scale {
    what: "a bandwidth",
    base: "bytes per second",
    units: &[
        ("B/s", 1),
        ("KiB/s", 1 << 10),
        ("MiB/s", 1 << 20),
        ("GiB/s", 1 << 30),
        ("KB/s", 1_000),
        ("MB/s", 1_000_000),
        ("GB/s", 1_000_000_000),
        ("Mbit/s", 125_000),
        ("Gbit/s", 125_000_000),
    ],
    bare: false,
    zero: "0B/s",
    example: "100MB/s",
};

/// Frequencies, in thousandths per second.
pub(crate) static RATE: Scale = Scale {
    what: "a rate",
    base: "thousandths per second",
    units: &[("/s", 1_000)],
    bare: false,
    zero: "0/s",
    example: "3500/s",
};

/// Why a text is not a quantity, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bad {
    /// What is wrong.
    pub(crate) message: String,
    /// What to do.
    pub(crate) help: String,
}

impl Scale {
    /// A regular expression of the quantities as they are written.
    pub(crate) fn pattern(&self) -> String {
        let units: Vec<_> = self.units.iter().map(|&(name, _)| name).collect();
        let optional = if self.bare { "?" } else { "" };
        format!(r"^[0-9]+(\.[0-9]+)? ?({}){optional}$", units.join("|"))
    }

    /// Whether a number without a unit counts the base.
    pub(crate) const fn takes_bare_numbers(&self) -> bool {
        self.bare
    }

    /// The quantity in the base unit.
    pub(crate) fn parse(&self, text: &str) -> Result<u64, Bad> {
        let text = text.trim();
        let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = unit.strip_prefix(' ').unwrap_or(unit);
        let (mantissa, scale) = decimal(number).ok_or_else(|| self.bad(text))?;
        let size = self.unit(number, unit)?;
        let scaled = mantissa.checked_mul(u128::from(size)).ok_or_else(|| self.too_large())?;
        if !scaled.is_multiple_of(scale) {
            return Err(Bad {
                message: format!("`{text}` is not a whole number of {}", self.base),
                help: format!("write it in a smaller unit, such as `{}`", self.example),
            });
        }
        u64::try_from(scaled / scale).map_err(|_| self.too_large())
    }

    /// The quantity in the largest unit that loses nothing. Reading it gives the same value.
    pub(crate) fn show(&self, value: u64) -> String {
        if value == 0 {
            return self.zero.to_owned();
        }
        let whole = |&&(_, size): &&(&str, u64)| value.is_multiple_of(size);
        match self.units.iter().filter(whole).max_by_key(|(_, size)| *size) {
            Some((unit, size)) => format!("{}{unit}", value / size),
            None if self.units[0].1 == 1 => format!("{value}{}", self.units[0].0),
            None => format!("{}.{:03}{}", value / 1_000, value % 1_000, self.units[0].0),
        }
    }

    fn unit(&self, number: &str, unit: &str) -> Result<u64, Bad> {
        if unit.is_empty() && self.bare {
            return Ok(1);
        }
        if let Some(&(_, size)) = self.units.iter().find(|(name, _)| *name == unit) {
            return Ok(size);
        }
        let names = self.units.iter().map(|&(name, _)| name);
        let known: Vec<String> = names.clone().map(|name| format!("`{name}`")).collect();
        let message = if unit.is_empty() {
            format!("{} needs a unit", self.what)
        } else {
            format!("`{}` is not a unit of {}", shorten(unit), self.what)
        };
        let help = if unit.is_empty() {
            None
        } else {
            let meant = self.completions(unit).or_else(|| Some(vec![nearest(unit, names)?]));
            let written = |unit: &&str| format!("`{number}{unit}`");
            meant.map(|units| units.iter().map(written).collect::<Vec<_>>().join(" or "))
        };
        let help = match help {
            Some(meant) => format!("did you mean {meant}?"),
            None => format!("write `{}`; the units are {}", self.example, known.join(", ")),
        };
        Err(Bad { message, help })
    }

    /// The first two units that begin with `start`, letter case aside, unless there are none: `k` is
    /// the beginning of `KiB` and `KB`.
    fn completions(&self, start: &str) -> Option<Vec<&'static str>> {
        let begins = |name: &&str| {
            name.get(..start.len()).is_some_and(|front| front.eq_ignore_ascii_case(start))
        };
        let units = self.units.iter().map(|&(name, _)| name).filter(begins);
        let units: Vec<_> = units.take(2).collect();
        (!units.is_empty()).then_some(units)
    }

    fn bad(&self, text: &str) -> Bad {
        Bad {
            message: format!("`{}` is not {}", shorten(text), self.what),
            help: format!("write a number and a unit, such as `{}`", self.example),
        }
    }

    /// The error for a quantity past 64 bits.
    pub(crate) fn too_large(&self) -> Bad {
        Bad {
            message: format!("{} must be less than 2^64 {}", self.what, self.base),
            help: format!("write a smaller number, such as `{}`", self.example),
        }
    }
}

/// Text from a file, cut to what fits a message.
pub(crate) fn shorten(text: &str) -> String {
    const MAX_CHARS: usize = 60;
    match text.char_indices().nth(MAX_CHARS) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text.to_owned(),
    }
}

/// A decimal number as an integer and the power of ten that divides it. At most 18 digits.
fn decimal(text: &str) -> Option<(u128, u128)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 18 || whole.len() > 20 {
        return None;
    }
    let scale = 10_u128.pow(fraction.len() as u32);
    Some((whole.parse::<u128>().ok()? * scale + fraction.parse::<u128>().ok()?, scale))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The forms that the reference promises mean what they say.
    #[test]
    fn documented_forms_are_read() {
        assert_eq!(TIME.parse("10ms"), Ok(10_000_000));
        assert_eq!(TIME.parse("1.5s"), Ok(1_500_000_000));
        assert_eq!(TIME.parse("1.5 s"), Ok(1_500_000_000));
        assert_eq!(SIZE.parse("4KiB"), Ok(4_096));
        assert_eq!(SIZE.parse("1.5KiB"), Ok(1_536));
        assert_eq!(SIZE.parse("4096"), Ok(4_096));
        assert_eq!(RATE.parse("3500/s"), Ok(3_500_000));
        assert_eq!(BANDWIDTH.parse("1GiB/s"), Ok(1 << 30));
        assert_eq!(BANDWIDTH.parse("1Gbit/s"), Ok(125_000_000));
    }

    /// What cannot be meant is refused with the nearest thing that can.
    #[test]
    fn refusals_help() {
        let help = |scale: &Scale, text| scale.parse(text).unwrap_err().help;
        assert_eq!(help(&SIZE, "4kib"), "did you mean `4KiB`?");
        assert_eq!(help(&SIZE, "4k"), "did you mean `4KiB` or `4KB`?");
        assert_eq!(help(&SIZE, "1.5G"), "did you mean `1.5GiB` or `1.5GB`?");
        assert_eq!(help(&SIZE, "4kb"), "did you mean `4KB`?");
        assert_eq!(help(&TIME, "5m"), "did you mean `5ms` or `5min`?");
        assert_eq!(help(&BANDWIDTH, "10gbit"), "did you mean `10Gbit/s`?");
        assert!(help(&TIME, "10").starts_with("write `10ms`"));
        assert_eq!(TIME.parse("10").unwrap_err().message, "a duration needs a unit");
        for text in ["", "ms", "-1ms", "1e3ms", "1..5s", "0.5B", "1 ms s", "99999999999999999999h"]
        {
            assert!(TIME.parse(text).is_err(), "{text}");
            assert!(SIZE.parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        /// Whatever is shown is read back as the same value.
        #[test]
        fn shown_quantities_are_read_back(value: u64) {
            for scale in [&TIME, &SIZE, &BANDWIDTH, &RATE] {
                prop_assert_eq!(scale.parse(&scale.show(value)), Ok(value));
            }
        }

        /// Any text gives a value or an error, never a panic.
        #[test]
        fn any_text_is_an_answer(text: String, number: u64, unit in "[a-zA-Zµ/ .]{0,6}") {
            for scale in [&TIME, &SIZE, &BANDWIDTH, &RATE] {
                let _ = scale.parse(&text);
                let _ = scale.parse(&format!("{number}{unit}"));
            }
        }
    }
}
