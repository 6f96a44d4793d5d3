//! Exports: the volumes that clients see, by name.

use super::protocol::{STRING_MAX, transmission};

/// Size constraints of an export, in bytes: section "Size constraints".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSize {
    /// Offsets and lengths are multiples of it: a power of two from 1 to 65536.
    pub minimum: u32,
    /// Smallest size that is efficient when aligned to itself: a power of two, at least 512 and at
    /// least `minimum`.
    pub preferred: u32,
    /// Longest payload of one request: at least 65536 and at least `preferred`.
    pub maximum: u32,
}

impl Default for BlockSize {
    /// The defaults that a client assumes without this information: 1, 4096 and 2^25.
    fn default() -> Self {
        Self { minimum: 1, preferred: 4096, maximum: 1 << 25 }
    }
}

/// One export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Export {
    /// The name that clients request; empty for the default export. At most 4096 bytes, without NUL.
    pub name: String,
    /// A text for people, may be empty. At most 4096 bytes, without NUL.
    pub description: String,
    /// Size in bytes. What lies behind the last whole minimum block cannot be reached.
    pub size: u64,
    /// Writes are refused with `NBD_EPERM`.
    pub read_only: bool,
    /// `NBD_CMD_TRIM` is offered.
    pub trim: bool,
    /// `NBD_CMD_FLAG_FAST_ZERO` is offered: the shell can tell quickly whether it is quick.
    pub fast_zero: bool,
    /// Size constraints.
    pub block_size: BlockSize,
    /// It is not found any more, and others may have its name. Its index stays.
    pub removed: bool,
}

impl Export {
    /// Transmission flags.
    // Section "Transmission flags": DF must be clear without structured replies. Flushes and FUA
    // hold for all connections, since there is one cache below all of them.
    pub(super) const fn flags(&self, structured: bool) -> u16 {
        let mut flags = transmission::HAS_FLAGS
            | transmission::SEND_FLUSH
            | transmission::SEND_FUA
            | transmission::CAN_MULTI_CONN;
        if structured {
            flags |= transmission::SEND_DF;
        }
        if self.read_only {
            return flags | transmission::READ_ONLY;
        }
        flags |= transmission::SEND_WRITE_ZEROES;
        if self.trim {
            flags |= transmission::SEND_TRIM;
        }
        if self.fast_zero {
            flags |= transmission::SEND_FAST_ZERO;
        }
        flags
    }

    fn check(&self) -> Result<(), ExportError> {
        let name = || self.name.clone();
        for text in [&self.name, &self.description] {
            if text.len() > STRING_MAX || text.contains('\0') {
                return Err(ExportError::Text { name: name() });
            }
        }
        let BlockSize { minimum, preferred, maximum } = self.block_size;
        if !minimum.is_power_of_two() || minimum > MINIMUM_BLOCK_MAX {
            return Err(ExportError::MinimumBlock { name: name(), minimum });
        }
        if !preferred.is_power_of_two() || preferred < minimum.max(PREFERRED_BLOCK_MIN) {
            return Err(ExportError::PreferredBlock { name: name(), preferred });
        }
        if maximum < preferred.max(UNFRAGMENTED_MIN) {
            return Err(ExportError::MaximumBlock { name: name(), maximum });
        }
        Ok(())
    }
}

/// All exports of a server, in the order in which they are listed.
#[derive(Clone, Debug, Default)]
pub struct Exports(Vec<Export>);

impl Exports {
    /// Exports whose names differ and whose numbers are in range.
    pub fn new(exports: Vec<Export>) -> Result<Self, ExportError> {
        for (index, export) in exports.iter().enumerate() {
            export.check()?;
            let same = |other: &Export| !other.removed && other.name == export.name;
            if !export.removed && exports[..index].iter().any(same) {
                return Err(ExportError::NameTwice { name: export.name.clone() });
            }
        }
        Ok(Self(exports))
    }

    /// The exports, by index, those that are removed as well.
    pub fn as_slice(&self) -> &[Export] {
        &self.0
    }

    /// Index and export of this name.
    pub(super) fn find(&self, name: &[u8]) -> Option<(usize, &Export)> {
        let found = |export: &Export| !export.removed && export.name.as_bytes() == name;
        self.0.iter().enumerate().find(|(_, export)| found(export))
    }
}

/// Why exports cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// Two have one name.
    #[error("export {name:?} is there twice")]
    NameTwice {
        /// The name.
        name: String,
    },
    /// Name or description cannot be sent.
    #[error("export {name:?}: name and description take at most 4096 bytes and no NUL")]
    Text {
        /// Name of the export.
        name: String,
    },
    /// The minimum block size is out of its range.
    #[error("export {name:?}: minimum block size {minimum} is no power of two from 1 to 65536")]
    MinimumBlock {
        /// Name of the export.
        name: String,
        /// Its value in bytes.
        minimum: u32,
    },
    /// The preferred block size is out of its range.
    #[error(
        "export {name:?}: preferred block size {preferred} is no power of two of at least 512 and \
         the minimum"
    )]
    PreferredBlock {
        /// Name of the export.
        name: String,
        /// Its value in bytes.
        preferred: u32,
    },
    /// The maximum payload is out of its range.
    #[error(
        "export {name:?}: maximum payload {maximum} is below 65536 or the preferred block size"
    )]
    MaximumBlock {
        /// Name of the export.
        name: String,
        /// Its value in bytes.
        maximum: u32,
    },
}

/// Largest minimum block size, in bytes.
const MINIMUM_BLOCK_MAX: u32 = 1 << 16;
/// Smallest preferred block size, in bytes.
const PREFERRED_BLOCK_MIN: u32 = 512;
/// Reads of this length must be possible in one chunk, in bytes.
// NBD_CMD_READ: unfragmented reads of up to 65536 bytes must be supported.
const UNFRAGMENTED_MIN: u32 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn export(name: &str) -> Export {
        Export { name: name.to_owned(), ..Export::default() }
    }

    /// Names must differ, and an index leads back to its export.
    #[test]
    fn names_are_unique() {
        let exports = Exports::new(vec![export(""), export("a"), export("b")]).unwrap();
        assert_eq!(exports.find(b"b").map(|found| found.0), Some(2));
        assert_eq!(exports.find(b"").map(|found| found.0), Some(0));
        assert!(exports.find(b"c").is_none());
        let twice = Exports::new(vec![export("a"), export("b"), export("a")]);
        assert_eq!(twice.unwrap_err(), ExportError::NameTwice { name: "a".to_owned() });
    }

    /// Strings that the protocol cannot carry are refused.
    #[test]
    fn strings_are_bounded() {
        for (text, good) in
            [("x".repeat(4096), true), ("x".repeat(4097), false), ("\0".into(), false)]
        {
            let described = Export { description: text.clone(), ..Export::default() };
            assert_eq!(Exports::new(vec![described]).is_ok(), good);
            assert_eq!(Exports::new(vec![export(&text)]).is_ok(), good);
        }
    }

    /// Size constraints obey the section "Size constraints".
    #[test]
    fn block_sizes_are_checked() {
        for (minimum, preferred, maximum, good) in [
            (1, 512, 65536, true),
            (65536, 65536, 65536, true),
            (512, 4096, u32::MAX, true),
            (0, 4096, 65536, false),
            (3, 4096, 65536, false),
            (1 << 17, 1 << 17, 1 << 20, false),
            (1, 256, 65536, false),
            (4096, 512, 65536, false),
            (512, 4097, 65536, false),
            (1, 512, 65535, false),
            (512, 1 << 17, 65536, false),
        ] {
            let block_size = BlockSize { minimum, preferred, maximum };
            let exports = Exports::new(vec![Export { block_size, ..Export::default() }]);
            assert_eq!(exports.is_ok(), good, "{block_size:?}: {exports:?}");
        }
        assert!(Exports::new(vec![Export::default()]).is_ok());
    }
}
