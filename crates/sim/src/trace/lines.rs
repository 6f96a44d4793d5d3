//! Lines of a file that may be compressed, one at a time, none longer than a bound.

use super::Problem;
use std::io::{self, BufRead, BufReader, Read};

/// The longest line in bytes. No format comes near it; what is longer is not a trace.
const MAX_LINE: usize = 4_096;

/// The first bytes of a zstd frame.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

pub(super) struct Lines {
    source: Box<dyn BufRead>,
    line: Vec<u8>,
    number: u64,
}

impl Lines {
    /// Looks at the first bytes to see whether they are compressed.
    pub(super) fn new(mut source: Box<dyn Read>) -> Result<Self, Problem> {
        let mut start = Vec::with_capacity(ZSTD.len());
        let mut head = source.by_ref().take(ZSTD.len() as u64);
        head.read_to_end(&mut start).map_err(|error| unreadable(&error))?;
        let compressed = start == ZSTD;
        let whole = io::Cursor::new(start).chain(source);
        let source: Box<dyn BufRead> = if compressed {
            let decoder = zstd::Decoder::new(whole).map_err(|error| unreadable(&error))?;
            Box::new(BufReader::with_capacity(1 << 16, decoder))
        } else {
            Box::new(BufReader::with_capacity(1 << 16, whole))
        };
        Ok(Self { source, line: Vec::with_capacity(256), number: 0 })
    }

    /// The number of the current line, from 1; 0 before the first.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// Goes to the next line; false at the end of the file.
    pub(super) fn advance(&mut self) -> Result<bool, Problem> {
        self.line.clear();
        self.number += 1;
        let mut bounded = self.source.by_ref().take(MAX_LINE as u64 + 1);
        let read = bounded.read_until(b'\n', &mut self.line).map_err(|e| unreadable(&e))?;
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
            if self.line.last() == Some(&b'\r') {
                self.line.pop();
            }
        } else if self.line.len() > MAX_LINE {
            let message = format!("the line is longer than {MAX_LINE} bytes");
            return Err(Problem::new(MAX_LINE as u64 + 1, message));
        }
        self.number -= u64::from(read == 0);
        Ok(read > 0)
    }

    /// The current line without its end.
    pub(super) fn text(&self) -> Result<&str, Problem> {
        std::str::from_utf8(&self.line).map_err(|error| {
            let column = error.valid_up_to() as u64 + 1;
            Problem::new(column, "the line is not text (invalid UTF-8)")
        })
    }
}

fn unreadable(error: &io::Error) -> Problem {
    Problem::new(0, format!("cannot be read: {error}"))
}
