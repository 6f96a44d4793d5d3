//! Events of a connection to its shell, and answers of the shell.

/// What [`receive`](super::Connection::receive) made of the input.
#[derive(Debug)]
pub struct Received<'a> {
    /// Bytes at the front of the input that are dealt with.
    pub consumed: usize,
    /// What they mean to the shell, if anything. With zero bytes consumed and no event, more bytes
    /// are needed, or the connection [waits](super::Connection::is_waiting).
    pub event: Option<Event<'a>>,
}

/// Something that the shell must know or do.
#[derive(Debug)]
pub enum Event<'a> {
    /// The client goes over to TLS. The shell writes the outbox, performs the server's part of the
    /// TLS handshake, then calls [`tls_started`](super::Connection::tls_started); from then on input
    /// and output are what TLS carries.
    StartTls,
    /// The client has chosen an export and wants to use it. The shell answers by
    /// [`export_admitted`](super::Connection::export_admitted) or
    /// [`export_refused`](super::Connection::export_refused). Nothing is received before that.
    ExportChosen {
        /// Index into [`Exports`](super::Exports).
        index: usize,
    },
    /// A request. The shell answers it exactly once, by [`respond`](super::Connection::respond),
    /// [`respond_data`](super::Connection::respond_data) or
    /// [`respond_status`](super::Connection::respond_status).
    Request(Request),
    /// Write data of the newest request. Data comes in order, without gaps, and not any more once
    /// the request is answered.
    Data {
        /// Slot of the request.
        slot: u32,
        /// Where it belongs, in bytes from the start of the request's data.
        offset: u32,
        /// The data, never empty.
        bytes: &'a [u8],
        /// Everything is here.
        complete: bool,
    },
    /// The client takes its leave. Nothing is received any more; the connection wants to be closed
    /// when the requests that are outstanding have been answered.
    Disconnect,
}

/// A request that is sound: inside the export, aligned, allowed and not longer than agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Names the request until its reply is written; below
    /// [`Limits::requests`](super::Limits::requests).
    pub slot: u32,
    /// What to do.
    pub command: Command,
    /// First byte in the export; zero for a flush.
    pub offset: u64,
    /// Length in bytes, never zero but for a flush. At most the maximum payload for reads and
    /// writes.
    pub length: u32,
    /// The reply must wait until what the request writes is on permanent storage. False for
    /// requests that write nothing.
    pub fua: bool,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// `NBD_CMD_READ`.
    Read,
    /// `NBD_CMD_WRITE`. Its data comes as [`Event::Data`].
    Write,
    /// `NBD_CMD_FLUSH`: what was answered before is on permanent storage when this is.
    Flush,
    /// `NBD_CMD_TRIM`: the data is no longer needed.
    Trim,
    /// `NBD_CMD_WRITE_ZEROES`.
    WriteZeroes {
        /// A hole will do (`NBD_CMD_FLAG_NO_HOLE` is not set).
        may_punch: bool,
        /// Answer [`Error::Enotsup`] at once unless it is faster than writing
        /// (`NBD_CMD_FLAG_FAST_ZERO`).
        fast: bool,
    },
    /// `NBD_CMD_BLOCK_STATUS` in the context `base:allocation`.
    BlockStatus {
        /// One extent is enough (`NBD_CMD_FLAG_REQ_ONE`).
        one: bool,
    },
}

impl Command {
    /// Whether the request changes the export.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Trim | Self::WriteZeroes { .. })
    }
}

/// A part of an export in one state: section "`base:allocation` metadata context".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes, not zero.
    pub length: u32,
    /// Not allocated (`NBD_STATE_HOLE`): writing here may find no space.
    pub hole: bool,
    /// Reads as zeroes (`NBD_STATE_ZERO`).
    pub zero: bool,
}

/// Why a request failed: section "Error values", whose numbers these are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Error {
    /// Operation not permitted.
    Eperm = 1,
    /// Input/output error.
    Eio = 5,
    /// Cannot allocate memory. To be avoided if at all possible.
    Enomem = 12,
    /// Invalid argument.
    Einval = 22,
    /// No space left on device.
    Enospc = 28,
    /// Value too large.
    Eoverflow = 75,
    /// Operation not supported; only for a fast [`Command::WriteZeroes`] that would be slow.
    Enotsup = 95,
    /// The server is being shut down.
    Eshutdown = 108,
}

/// Why the shell does not let a client use an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Not this client, or not now: `NBD_REP_ERR_POLICY`.
    Policy,
    /// The export is gone: `NBD_REP_ERR_UNKNOWN`.
    Unknown,
    /// The server is being shut down: `NBD_REP_ERR_SHUTDOWN`.
    Shutdown,
}

/// The client did something that a connection does not survive. Every variant means: write what the
/// outbox holds if that is possible at once, then close.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// Flags were set that the server did not offer.
    #[error("client flags {flags:#x}, of which some are unknown (section \"Client flags\")")]
    ClientFlags {
        /// All client flags.
        flags: u32,
    },
    /// What should be an option does not begin like one.
    #[error("no option where one was due (section \"Newstyle negotiation\")")]
    OptionMagic,
    /// A client without `NBD_FLAG_C_FIXED_NEWSTYLE` has but one option.
    #[error("option {option} without fixed newstyle (section \"Newstyle negotiation\")")]
    NotFixedNewstyle {
        /// Number of the option.
        option: u32,
    },
    /// The data of an option is too long even to be skipped.
    #[error("option {option} with {length} bytes of data, more than are skipped")]
    OptionTooLong {
        /// Number of the option.
        option: u32,
        /// Length of its data, in bytes.
        length: u32,
    },
    /// There is no export of that name, and the option leaves no way to say so.
    #[error("unknown export in NBD_OPT_EXPORT_NAME, which cannot be answered with an error")]
    UnknownExport,
    /// TLS must be started first, and the option leaves no way to say so.
    #[error("NBD_OPT_EXPORT_NAME before TLS, which is required")]
    TlsRequired,
    /// Bytes that were not encrypted came behind the request to encrypt. They may be from
    /// an attacker.
    #[error("bytes behind NBD_OPT_STARTTLS that TLS does not cover")]
    PlaintextBehindStartTls,
    /// What should be a request does not begin like one.
    #[error("no request where one was due (section \"Request message\")")]
    RequestMagic,
    /// The payload of a write is too long even to be skipped.
    #[error("write of {length} bytes, more than are skipped (section \"Size constraints\")")]
    PayloadTooLong {
        /// Length of the payload, in bytes.
        length: u32,
    },
}
