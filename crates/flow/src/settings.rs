//! Tables of settings: kind, range, default and effect of each field are declared once.
//!
//! [`settings!`](crate::settings!) declares a struct with its table. `Default`, validation, the recording's
//! codec, the reader of configurations, its reference and its JSON Schema all work by [`Settings::TABLE`].

use crate::clock::Duration;
use crate::units::Bandwidth;
use core::fmt;

/// One setting as it is declared.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name: the field's, and the key's in a configuration.
    pub name: &'static str,
    /// What its value may be.
    pub kind: Kind,
    /// Its value where nothing is written.
    pub default: Preset,
    /// What it does, as a sentence or the beginning of one.
    pub effect: &'static str,
}

/// What a value may be. Limits are inclusive.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A text; the words say what it must be like.
    Text(&'static str),
    /// A list of texts.
    Texts(&'static str),
    /// One of these words. As a number it is the word's index.
    Word(&'static [&'static str]),
    /// One of these numbers.
    OneOf(&'static [u64]),
    /// `true` or `false`, as numbers 1 and 0.
    Flag,
    /// A whole number within these limits.
    Count(u64, u64),
    /// A number within these limits.
    Real(f64, f64),
    /// A length of time within these limits, in nanoseconds.
    Time(u64, u64),
    /// A size within these limits, in bytes.
    Size(u64, u64),
    /// A bandwidth within these limits, in bytes per second.
    Bandwidth(u64, u64),
    /// A rate within these limits, in thousandths per second.
    Rate(u64, u64),
    /// Another form; the words describe it.
    Other(&'static str),
}

/// The value of a setting that is not written.
#[derive(Clone, Copy, Debug)]
pub enum Preset {
    /// It must be written.
    Required,
    /// This number, in the base unit of its kind.
    Number(u64),
    /// This value, as it would be written without quotes.
    Is(&'static str),
    /// What the words say.
    Else(&'static str),
}

impl Kind {
    /// Whether a number in the base unit is within the limits. Texts, numbers with a fraction and forms
    /// of their own are no such numbers.
    pub const fn admits(&self, number: u64) -> bool {
        match *self {
            Self::Count(min, max)
            | Self::Time(min, max)
            | Self::Size(min, max)
            | Self::Bandwidth(min, max)
            | Self::Rate(min, max) => min <= number && number <= max,
            Self::Flag => number <= 1,
            Self::Word(words) => number < words.len() as u64,
            Self::OneOf(numbers) => {
                let mut index = 0;
                while index < numbers.len() {
                    if numbers[index] == number {
                        return true;
                    }
                    index += 1;
                }
                false
            }
            Self::Text(_) | Self::Texts(_) | Self::Real(..) | Self::Other(_) => false,
        }
    }
}

/// Why settings cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// The value of this setting is outside its range.
    Range(&'static str),
    /// The first of these two settings is above the second.
    Order(&'static str, &'static str),
    /// This setting does not go with the others; why, as the rest of a sentence about it.
    Rule(&'static str, &'static str),
}

impl Invalid {
    /// The setting that is wrong.
    pub const fn name(&self) -> &'static str {
        let (Self::Range(name) | Self::Order(name, _) | Self::Rule(name, _)) = *self;
        name
    }

    /// What is wrong, without the names of the settings.
    pub const fn reason(&self) -> &'static str {
        match *self {
            Self::Range(_) => "a setting is out of its range",
            Self::Order(..) => "a setting is above one that it must not exceed",
            Self::Rule(_, reason) => reason,
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range(name) => write!(f, "`{name}` is out of range"),
            Self::Order(low, high) => write!(f, "`{low}` is above `{high}`"),
            Self::Rule(name, reason) => write!(f, "`{name}` {reason}"),
        }
    }
}

impl core::error::Error for Invalid {}

/// A struct that a table declares.
pub trait Settings: Default {
    /// Its settings, in the order of the recording's codec.
    const TABLE: &'static [Setting];

    /// Pairs of settings of which the first must not be above the second.
    const ASCENDING: &'static [(&'static str, &'static str)];

    /// The value of a setting of the table in its base unit; `None` where there is none.
    fn number(&self, name: &str) -> Option<u64>;

    /// Changes a setting of the table to a number within its range.
    fn assign(&mut self, name: &str, number: u64);

    /// Changes a setting of the table, or says that the number is outside its range.
    fn set(&mut self, setting: &Setting, number: u64) -> Result<(), Invalid> {
        if !setting.kind.admits(number) {
            return Err(Invalid::Range(setting.name));
        }
        self.assign(setting.name, number);
        Ok(())
    }

    /// What settings that depend on each other must fulfil, beside ranges and order.
    fn check(&self) -> Result<(), Invalid> {
        Ok(())
    }

    /// Whether all values are within their ranges, in order and fit each other.
    fn validate(&self) -> Result<(), Invalid> {
        for setting in Self::TABLE {
            if self.number(setting.name).is_some_and(|number| !setting.kind.admits(number)) {
                return Err(Invalid::Range(setting.name));
            }
        }
        for &(low, high) in Self::ASCENDING {
            if self.number(low) > self.number(high) {
                return Err(Invalid::Order(low, high));
            }
        }
        self.check()
    }
}

/// The type of a field of a table.
pub trait Field {
    /// The value in the base unit of its kind; `None` where there is none.
    fn to_number(&self) -> Option<u64>;

    /// The value that a number in the base unit stands for. The number is within the setting's range.
    fn from_number(number: u64) -> Self;
}

impl Field for u64 {
    fn to_number(&self) -> Option<u64> {
        Some(*self)
    }

    fn from_number(number: u64) -> Self {
        number
    }
}

impl Field for u32 {
    fn to_number(&self) -> Option<u64> {
        Some(Self::into(*self))
    }

    fn from_number(number: u64) -> Self {
        Self::try_from(number).expect("the range of the setting fits its field")
    }
}

impl Field for u16 {
    fn to_number(&self) -> Option<u64> {
        Some(Self::into(*self))
    }

    fn from_number(number: u64) -> Self {
        Self::try_from(number).expect("the range of the setting fits its field")
    }
}

impl Field for bool {
    fn to_number(&self) -> Option<u64> {
        Some(Self::into(*self))
    }

    fn from_number(number: u64) -> Self {
        number != 0
    }
}

impl Field for Duration {
    fn to_number(&self) -> Option<u64> {
        Some(self.as_nanos())
    }

    fn from_number(number: u64) -> Self {
        Self::from_nanos(number)
    }
}

impl Field for Bandwidth {
    fn to_number(&self) -> Option<u64> {
        Some(self.bytes_per_second())
    }

    fn from_number(number: u64) -> Self {
        Self::per_second(number).expect("the range of a bandwidth begins above zero")
    }
}

impl<T: Field> Field for Option<T> {
    fn to_number(&self) -> Option<u64> {
        self.as_ref().and_then(T::to_number)
    }

    fn from_number(number: u64) -> Self {
        Some(T::from_number(number))
    }
}

/// Nanoseconds of a microsecond.
pub const MICROSECOND: u64 = 1_000;

/// Nanoseconds of a millisecond.
pub const MILLISECOND: u64 = 1_000_000;

/// Nanoseconds of a second.
pub const SECOND: u64 = 1_000 * MILLISECOND;

/// Nanoseconds of a minute.
pub const MINUTE: u64 = 60 * SECOND;

/// Nanoseconds of an hour.
pub const HOUR: u64 = 60 * MINUTE;

/// Nanoseconds of a day.
pub const DAY: u64 = 24 * HOUR;

/// Bytes of a kibibyte.
pub const KIB: u64 = 1 << 10;

/// Bytes of a mebibyte.
pub const MIB: u64 = 1 << 20;

/// Bytes of a gibibyte.
pub const GIB: u64 = 1 << 30;

/// Bytes of a tebibyte.
pub const TIB: u64 = 1 << 40;

/// Bytes of a pebibyte.
pub const PIB: u64 = 1 << 50;

/// Declares a struct of settings with its table.
///
/// ```
/// use weir_flow::clock::Duration;
/// use weir_flow::settings;
/// use weir_flow::settings::{Invalid, SECOND, Settings};
///
/// settings! {
///     /// When to give up.
///     #[derive(Clone, Copy, Debug)]
///     pub struct Patience {
///         /// Attempts before an error is reported.
///         pub attempts: u32 = Count(1, 9), 3;
///         /// The wait after the first attempt.
///         pub delay: Duration = Time(SECOND, 60 * SECOND), SECOND;
///         /// The longest wait.
///         pub delay_max: Duration = Time(SECOND, 60 * SECOND), 8 * SECOND;
///     }
///     ascending { delay <= delay_max }
/// }
///
/// let patience = Patience::default();
/// assert_eq!(patience.attempts, 3);
/// assert_eq!(Patience::TABLE[0].effect, "Attempts before an error is reported.");
/// assert_eq!(patience.validate(), Ok(()));
/// let bad = Patience { attempts: 10, ..patience };
/// assert_eq!(bad.validate(), Err(Invalid::Range("attempts")));
/// let bad = Patience { delay: Duration::from_secs(9), ..patience };
/// assert_eq!(bad.validate(), Err(Invalid::Order("delay", "delay_max")));
/// ```
///
/// The comment above a field is its effect. After `=` stand the [`Kind`] and the default, both in base
/// units: nanoseconds, bytes, bytes per second. The default of an `Option` is `None` and stands as
/// `else "the words of the reference"`. `check` names a function for what no table says. Fields under `also` have a default and are not in the table.
#[macro_export]
macro_rules! settings {
    (@value $number:expr) => { $crate::settings::Field::from_number($number) };
    (@value else $words:literal) => { None };
    (@preset $number:expr) => { $crate::settings::Preset::Number($number) };
    (@preset else $words:literal) => { $crate::settings::Preset::Else($words) };
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $(
                $(#[doc = $effect:literal])+
                pub $field:ident: $type:ty = $kind:ident $(($($range:expr),+))?
                    $(, $default:expr)? $(, else $words:literal)?;
            )+
        }
        $(also {
            $( $(#[$other_meta:meta])* pub $other:ident: $other_type:ty = $other_default:expr; )+
        })?
        $(ascending { $($low:ident <= $high:ident),+ $(,)? })?
        $(check $check:path;)?
    ) => {
        $(#[$meta])*
        pub struct $name {
            $( $(#[doc = $effect])+ pub $field: $type, )+
            $($( $(#[$other_meta])* pub $other: $other_type, )+)?
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $( $field: $crate::settings!(@value $($default)? $(else $words)?), )+
                    $($( $other: $other_default, )+)?
                }
            }
        }

        impl $crate::settings::Settings for $name {
            const TABLE: &'static [$crate::settings::Setting] = &[$(
                $crate::settings::Setting {
                    name: stringify!($field),
                    kind: $crate::settings::Kind::$kind $(($($range),+))?,
                    default: $crate::settings!(@preset $($default)? $(else $words)?),
                    effect: concat!($($effect),+).trim_ascii(),
                }
            ),+];

            const ASCENDING: &'static [(&'static str, &'static str)] =
                &[$($( (stringify!($low), stringify!($high)) ),+)?];

            $(
                fn check(&self) -> Result<(), $crate::settings::Invalid> {
                    $check(self)
                }
            )?

            fn number(&self, name: &str) -> Option<u64> {
                match name {
                    $( stringify!($field) => $crate::settings::Field::to_number(&self.$field), )+
                    _ => unreachable!("`{name}` is in the table"),
                }
            }

            fn assign(&mut self, name: &str, number: u64) {
                match name {
                    $( stringify!($field) => {
                        self.$field = $crate::settings::Field::from_number(number);
                    } )+
                    _ => unreachable!("`{name}` is in the table"),
                }
            }
        }
    };
}

/// Makes an enum a field of settings whose kind is [`Kind::Word`]: its words stand in the order of these
/// variants, which is that of the enum.
#[macro_export]
macro_rules! word_field {
    ($name:ident { $($variant:ident),+ $(,)? }) => {
        impl $crate::settings::Field for $name {
            fn to_number(&self) -> Option<u64> {
                Some(*self as u64)
            }

            fn from_number(number: u64) -> Self {
                [$(Self::$variant),+][number as usize]
            }
        }
    };
}
