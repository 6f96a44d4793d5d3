//! Events of a connection to its shell, and answers of the shell.

/// The result of [`receive`](super::Connection::receive).
#[derive(Debug)]
pub struct Received<'a> {
    /// Bytes consumed from the front of the input.
    pub consumed: usize,
    /// The event for the shell, if there is one. With zero bytes consumed and no event, more bytes are needed, or the
    /// connection [waits](super::Connection::is_waiting).
    pub event: Option<Event<'a>>,
}

/// An event that the shell must handle.
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
        /// Offset in bytes from the start of the request's data.
        offset: u32,
        /// The data, never empty.
        bytes: &'a [u8],
        /// Whether the data is complete.
        complete: bool,
    },
    /// The client disconnects. No more input is received; the connection wants to be closed when all outstanding
    /// requests have been answered.
    Disconnect,
}

/// A valid request: inside the export, aligned, allowed and not longer than negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Names the request until its reply is written; below
    /// [`Limits::requests`](super::Limits::requests).
    pub slot: u32,
    /// The command.
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

/// The command of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// `NBD_CMD_READ`.
    Read,
    /// `NBD_CMD_WRITE`. Its data comes as [`Event::Data`].
    Write,
    /// `NBD_CMD_FLUSH`: all writes answered before it are on permanent storage when it is answered.
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

/// The reason why the shell refuses an export to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Not this client, or not now: `NBD_REP_ERR_POLICY`.
    Policy,
    /// The export is gone: `NBD_REP_ERR_UNKNOWN`.
    Unknown,
    /// The server is being shut down: `NBD_REP_ERR_SHUTDOWN`.
    Shutdown,
}

/// A protocol violation that ends the connection. Every variant means: write what the outbox holds if that is
/// possible at once, then close.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// Flags were set that the server did not offer.
    #[error("client flags {flags:#x}, of which some are unknown (section \"Client flags\")")]
    ClientFlags {
        /// All client flags.
        flags: u32,
    },
    /// An option has a wrong magic number.
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
    /// Unencrypted bytes followed the request for TLS. They may be from an attacker.
    #[error("bytes behind NBD_OPT_STARTTLS that TLS does not cover")]
    PlaintextBehindStartTls,
    /// A request has a wrong magic number.
    #[error("no request where one was due (section \"Request message\")")]
    RequestMagic,
    /// The payload of a write is too long even to be skipped.
    #[error("write of {length} bytes, more than are skipped (section \"Size constraints\")")]
    PayloadTooLong {
        /// Length of the payload, in bytes.
        length: u32,
    },
}
