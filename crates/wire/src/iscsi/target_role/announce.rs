//! Asynchronous messages of the target (RFC 7143 section 11.9).

use super::Connection;
use super::connection::Phase;
use crate::iscsi::framing::Segment;
use crate::iscsi::pdu::{AsyncMessage, FINAL, RESERVED_TAG, opcode};

// RFC 7143 section 11.9.1.
/// The target asks for a logout.
const LOGOUT_REQUESTED: u8 = 1;
/// The target will drop all connections of the session.
const ALL_DROPPED: u8 = 3;

impl<P: AsRef<[u8]> + Clone> Connection<P> {
    /// Requests a logout within this many seconds. Commands that arrive until then are served; after that time the
    /// shell calls [`announce_drop`](Self::announce_drop) and closes. No effect outside of the full feature phase.
    pub fn request_logout(&mut self, seconds: u16) {
        self.push_async_message(AsyncMessage {
            event: LOGOUT_REQUESTED,
            parameter3: seconds.into(),
            ..AsyncMessage::default()
        });
    }

    /// Says that the session's connection is about to be closed; the shell writes what the outbox holds and closes
    /// it. The initiator may log in again after `time2wait` seconds, and `time2retain` is zero, since no task
    /// outlives its connection here. No effect outside of the full feature phase.
    pub fn announce_drop(&mut self, time2wait: u16, time2retain: u16) {
        self.push_async_message(AsyncMessage {
            event: ALL_DROPPED,
            parameter2: time2wait.into(),
            parameter3: time2retain.into(),
            ..AsyncMessage::default()
        });
    }

    fn push_async_message(&mut self, message: AsyncMessage) {
        if self.phase != Phase::FullFeature {
            return;
        }
        let numbers = self.numbers();
        let message = AsyncMessage {
            opcode: opcode::ASYNC_MESSAGE,
            flags: FINAL,
            itt: RESERVED_TAG.into(),
            stat_sn: self.window.next_stat_sn().into(),
            exp_cmd_sn: numbers.exp_cmd_sn,
            max_cmd_sn: numbers.max_cmd_sn,
            ..message
        };
        self.push(zerocopy::transmute!(message), Segment::Empty, None);
    }
}
