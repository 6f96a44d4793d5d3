//! Attributes: tag, length and value, as they are read and written (RFC 4171, section 5.2).

use super::codes::tag;
use super::fault::Fault;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// An attribute as it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attribute<'a> {
    pub(super) tag: u32,
    /// Padding is part of it.
    pub(super) value: &'a [u8],
}

impl Attribute<'_> {
    /// A number.
    pub(super) fn number(self) -> Option<u32> {
        Some(u32::from_be_bytes(self.value.try_into().ok()?))
    }

    /// A text, without its end.
    pub(super) fn text(self) -> Option<String> {
        let end = self.value.iter().position(|&byte| byte == 0).unwrap_or(self.value.len());
        std::str::from_utf8(&self.value[..end]).ok().map(str::to_owned)
    }

    /// An address.
    pub(super) fn address(self) -> Option<IpAddr> {
        let bytes: [u8; 16] = self.value.try_into().ok()?;
        Some(IpAddr::from(Ipv6Addr::from(bytes)).to_canonical())
    }
}

/// Reads the attributes of a payload, in order. Ends after an error.
#[derive(Clone, Debug)]
pub(super) struct Attributes<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<Attribute<'a>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let cut = |tag, length, left| Some(Err(Fault::Cut { tag, length, left }));
        let whole = std::mem::take(&mut self.0);
        let Some((head, rest)) = whole.split_at_checked(8) else { return cut(0, 0, whole.len()) };
        let word =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (tag, length) = (word(0), word(4));
        let Some((value, rest)) = rest.split_at_checked(length as usize) else {
            return cut(tag, length, rest.len());
        };
        self.0 = rest;
        Some(Ok(Attribute { tag, value }))
    }
}

/// All attributes of a payload, or the first fault.
pub(super) fn all(payload: &[u8]) -> Result<Vec<Attribute<'_>>, Fault> {
    Attributes(payload).collect()
}

/// The attributes behind the delimiter: those before it repeat the key of the request.
pub(super) fn operating<'a, 'b>(attributes: &'b [Attribute<'a>]) -> &'b [Attribute<'a>] {
    let delimiter = attributes.iter().position(|one| one.tag == tag::DELIMITER);
    delimiter.map_or(&[], |at| &attributes[at + 1..])
}

/// The portals among attributes: an address and the port that follows it.
pub(super) fn portals(attributes: &[Attribute<'_>]) -> impl Iterator<Item = SocketAddr> {
    attributes.windows(2).filter_map(|pair| {
        if (pair[0].tag, pair[1].tag) != (tag::PORTAL_ADDRESS, tag::PORTAL_PORT) {
            return None;
        }
        // Above the 16 bits of the port is a flag for UDP, which iSCSI does not use.
        let port = u16::try_from(pair[1].number()?).ok()?;
        Some(SocketAddr::new(pair[0].address()?, port))
    })
}

/// Attributes that are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    fn bytes(&mut self, tag: u32, value: &[u8]) {
        let padded = value.len().next_multiple_of(4);
        self.0.extend(tag.to_be_bytes());
        self.0.extend((padded as u32).to_be_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len() + padded - value.len(), 0);
    }

    pub(super) fn number(&mut self, tag: u32, value: u32) {
        self.bytes(tag, &value.to_be_bytes());
    }

    pub(super) fn text(&mut self, tag: u32, text: &str) {
        self.bytes(tag, &[text.as_bytes(), &[0]].concat());
    }

    /// An address and its port.
    pub(super) fn portal(&mut self, [address, port]: [u32; 2], portal: SocketAddr) {
        let bits = match portal.ip().to_canonical() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        self.bytes(address, &bits.octets());
        self.number(port, portal.port().into());
    }

    /// An attribute without a value: the delimiter, or one that is asked for.
    pub(super) fn empty(&mut self, tag: u32) {
        self.bytes(tag, &[]);
    }

    /// An attribute as it was received.
    pub(super) fn copy(&mut self, attribute: Attribute<'_>) {
        self.bytes(attribute.tag, attribute.value);
    }
}
