//! The packets of one command.

/// How the packets of a command follow each other. In both each starts when the one before it, whichever side
/// sent that, has arrived; in which they differ is what a packet carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Exchange {
    /// As the paper has it: the status of a READ waits until the data has arrived. Three trips for a
    /// READ, four for a WRITE (docs/reference/intermediate.md, section 6.1).
    Lockstep,
    /// As iSCSI has it: data and status of a READ travel together (section 7, 2). Two trips for a READ.
    #[default]
    Together,
}

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    /// From the one who asks to the one who answers.
    pub(super) up: bool,
    pub(super) bytes: u64,
}

/// Bytes of a block.
pub(super) const BLOCK: u64 = 512;

/// Bytes of a packet without data: a basic header segment (RFC 7143, 11.1).
pub(super) const CONTROL: u64 = 48;

const ASK: Packet = Packet { up: true, bytes: CONTROL };
const ANSWER: Packet = Packet { up: false, bytes: CONTROL };

impl Exchange {
    /// All packets of a command, in order.
    pub(super) const fn packets(self, kind: Kind) -> &'static [Packet] {
        match (kind, self) {
            (Kind::Read, Self::Lockstep) => &[ASK, Packet { up: false, bytes: BLOCK }, ANSWER],
            (Kind::Read, Self::Together) => &[ASK, Packet { up: false, bytes: BLOCK + CONTROL }],
            (Kind::Write, _) => &[ASK, ANSWER, Packet { up: true, bytes: BLOCK }, ANSWER],
        }
    }

    /// Which of the packets brings the data.
    pub(super) const fn data(kind: Kind) -> usize {
        match kind {
            Kind::Read => 1,
            Kind::Write => 2,
        }
    }
}
