//! The connection to a server: its requests are answered, and one request of the client's is outstanding.

use crate::isns::callback::{self, OUTPUT_MAX};
use crate::isns::codes::Function;
use crate::isns::fault::Fault;
use crate::isns::message::{Assembler, Message};
use crate::isns::{Notice, Own};

/// See the file.
#[derive(Debug)]
pub(super) struct Channel {
    assembler: Assembler,
    output: Vec<u8>,
    /// Bytes of it up to the end of the request.
    request: usize,
    transaction: u16,
}

impl Default for Channel {
    fn default() -> Self {
        let (assembler, output) = (Assembler::new(ANSWER_MAX), Vec::new());
        Self { assembler, output, request: 0, transaction: 0 }
    }
}

impl Channel {
    /// Begins with another connection.
    pub(super) fn reset(&mut self) {
        *self = Self { transaction: self.transaction, ..Self::default() };
    }

    /// Takes received bytes: how many, and the message that they complete.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(usize, Option<Message>), Fault> {
        self.assembler.take(bytes)
    }

    /// Asks: the transaction.
    pub(super) fn ask(&mut self, function: Function, payload: Vec<u8>) -> u16 {
        let transaction = self.transaction.wrapping_add(1);
        Message { function, transaction, payload }.write(&mut self.output);
        (self.transaction, self.request) = (transaction, self.output.len());
        transaction
    }

    /// Whether the server can have the request: an answer before that is none.
    pub(super) const fn has_asked(&self) -> bool {
        self.request == 0
    }

    /// Answers a request of the server: what it says.
    pub(super) fn answer(&mut self, message: &Message, own: &Own) -> Result<Option<Notice>, Fault> {
        let (answer, notice) = callback::answer(message, own)?;
        if let Some(answer) = answer {
            if self.output.len() > OUTPUT_MAX {
                return Err(Fault::Unread(self.output.len()));
            }
            answer.write(&mut self.output);
        }
        Ok(notice)
    }

    pub(super) fn output(&self) -> &[u8] {
        &self.output
    }

    pub(super) fn wrote(&mut self, n: usize) {
        self.output.drain(..n);
        self.request = self.request.saturating_sub(n);
    }
}

/// The longest message of a server in bytes. The answer to a registration repeats it, and that to a check is short.
const ANSWER_MAX: usize = 64 << 10;
