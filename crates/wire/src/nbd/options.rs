//! The data of options, taken apart.

use super::protocol::{context, info};

/// Data of `NBD_OPT_INFO` and `NBD_OPT_GO`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InfoRequest<'a> {
    pub(super) name: &'a [u8],
    pub(super) wanted: Wanted,
}

/// The optional information that the client requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) name: bool,
    pub(super) description: bool,
}

impl<'a> InfoRequest<'a> {
    /// `None` if the data does not add up.
    pub(super) fn parse(data: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(data);
        let name = fields.string()?;
        let mut wanted = Wanted::default();
        for _ in 0..fields.u16()? {
            // NBD_OPT_GO: requests that are not understood must be ignored.
            match fields.u16()? {
                info::NAME => wanted.name = true,
                info::DESCRIPTION => wanted.description = true,
                _ => {}
            }
        }
        fields.0.is_empty().then_some(Self { name, wanted })
    }
}

/// Data of `NBD_OPT_SET_META_CONTEXT` and `NBD_OPT_LIST_META_CONTEXT`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ContextQuery<'a> {
    pub(super) name: &'a [u8],
    /// There are no queries at all.
    pub(super) empty: bool,
    /// A query asks for `base:allocation`.
    pub(super) allocation: bool,
    /// A query asks for all of `base:`.
    pub(super) wildcard: bool,
}

impl<'a> ContextQuery<'a> {
    /// `None` if the data does not add up.
    // Section "Metadata querying": what is of an unknown namespace, or not recognized in `base:`,
    // must be ignored.
    pub(super) fn parse(data: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(data);
        let name = fields.string()?;
        let count = fields.u32()?;
        let mut query = Self { name, empty: count == 0, allocation: false, wildcard: false };
        for _ in 0..count {
            let text = fields.string()?;
            query.allocation |= text == context::ALLOCATION.as_bytes();
            query.wildcard |= text == context::WILDCARD.as_bytes();
        }
        fields.0.is_empty().then_some(query)
    }
}

/// The remaining data.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    /// A length of 32 bits and as many bytes.
    fn string(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()? as usize;
        let (string, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(string)
    }
}
