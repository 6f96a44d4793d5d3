//! Types of persistent reservations, and the commands that each allows.

use crate::scsi::nexus::Access;

/// The type of a persistent reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    WriteExclusive,
    ExclusiveAccess,
    WriteExclusiveRegistrantsOnly,
    ExclusiveAccessRegistrantsOnly,
    WriteExclusiveAllRegistrants,
    ExclusiveAccessAllRegistrants,
}

/// The access of a nexus that does not hold the reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allowed {
    Nothing,
    Reads,
    All,
}

/// One line of the table.
struct Rule {
    kind: Kind,
    /// Its TYPE field.
    code: u8,
    /// Its bit in the PERSISTENT RESERVATION TYPE MASK field.
    mask: u16,
    /// For a registered nexus that is not a holder.
    registered: Allowed,
    /// For a nexus without a registration.
    stranger: Allowed,
}

const fn rule(kind: Kind, code: u8, mask: u16, registered: Allowed, stranger: Allowed) -> Rule {
    Rule { kind, code, mask, registered, stranger }
}

// SPC-4 section 6.15: the type codes, and the mask of REPORT CAPABILITIES. A holder has full access; with the last
// two types, every registered nexus is a holder.
#[rustfmt::skip]
const RULES: [Rule; 6] = [
    //   type                                  code   mask     registered        stranger
    rule(Kind::WriteExclusive,                 0x1, 0x0200, Allowed::Reads,   Allowed::Reads),
    rule(Kind::ExclusiveAccess,                0x3, 0x0800, Allowed::Nothing, Allowed::Nothing),
    rule(Kind::WriteExclusiveRegistrantsOnly,  0x5, 0x2000, Allowed::All,     Allowed::Reads),
    rule(Kind::ExclusiveAccessRegistrantsOnly, 0x6, 0x4000, Allowed::All,     Allowed::Nothing),
    rule(Kind::WriteExclusiveAllRegistrants,   0x7, 0x8000, Allowed::All,     Allowed::Reads),
    rule(Kind::ExclusiveAccessAllRegistrants,  0x8, 0x0001, Allowed::All,     Allowed::Nothing),
];

/// The PERSISTENT RESERVATION TYPE MASK field: every type there is.
pub(super) fn type_mask() -> u16 {
    RULES.iter().fold(0, |mask, rule| mask | rule.mask)
}

impl Kind {
    /// The type with this TYPE field.
    pub(super) fn from_code(code: u8) -> Option<Self> {
        RULES.iter().find(|rule| rule.code == code).map(|rule| rule.kind)
    }

    /// The type with this RTYPE field of NVMe, where types are numbered.
    pub(super) fn from_rtype(rtype: u8) -> Option<Self> {
        let place = usize::from(rtype).checked_sub(1)?;
        RULES.get(place).map(|rule| rule.kind)
    }

    /// Its RTYPE field of NVMe.
    pub(super) const fn rtype(self) -> u8 {
        self as u8 + 1
    }

    /// Its TYPE field.
    pub(super) const fn code(self) -> u8 {
        self.rule().code
    }

    /// Whether every registered nexus holds the reservation.
    pub(super) const fn is_all_registrants(self) -> bool {
        matches!(self, Self::WriteExclusiveAllRegistrants | Self::ExclusiveAccessAllRegistrants)
    }

    /// Whether every registered nexus loses access when the reservation ends.
    pub(super) const fn is_for_registrants(self) -> bool {
        matches!(self.rule().registered, Allowed::All)
    }

    /// Whether a nexus that does not hold the reservation has access.
    pub(super) const fn permits(self, is_registered: bool, access: Access) -> bool {
        let rule = self.rule();
        let allowed = if is_registered { rule.registered } else { rule.stranger };
        match access {
            Access::Free | Access::Query => true,
            Access::Read => !matches!(allowed, Allowed::Nothing),
            Access::Write => matches!(allowed, Allowed::All),
        }
    }

    const fn rule(self) -> &'static Rule {
        &RULES[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A type is found under its own line, code and bit of the mask.
    #[test]
    fn the_table_is_in_order() {
        for (at, rule) in RULES.iter().enumerate() {
            assert_eq!(rule.kind as usize, at);
            assert_eq!(Kind::from_code(rule.code), Some(rule.kind));
            assert_eq!(rule.kind.code(), rule.code);
            assert_eq!(Kind::from_rtype(at as u8 + 1), Some(rule.kind));
            assert_eq!(rule.kind.rtype(), at as u8 + 1);
        }
        assert_eq!((Kind::from_rtype(0), Kind::from_rtype(7)), (None, None));
        for code in [0, 2, 4, 9, 15, 0xff] {
            assert_eq!(Kind::from_code(code), None);
        }
        assert_eq!(type_mask(), 0xea01);
    }
}
