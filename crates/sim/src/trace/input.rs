//! The bytes of a file that may be compressed: lines, none longer than a bound, or binary records.

use super::Problem;
use flate2::read::MultiGzDecoder;
use std::io::{self, BufRead, BufReader, Cursor, Read};

/// The longest line in bytes. No format comes near it; what is longer is not a trace.
pub(super) const MAX_LINE: usize = 4_096;

/// Bytes from which a format is found.
pub(super) const HEAD: usize = 1 << 16;

/// The first bytes of a zstd frame.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The first bytes of a gzip member.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Compressions that are not read: first bytes, name, command that decompresses.
const OTHERS: [(&[u8], &str, &str); 2] =
    [(&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz", "xz -dc"), (b"BZh", "bzip2", "bzip2 -dc")];

/// What some editors put before a text: the byte order mark in UTF-8.
const MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

pub(super) struct Input {
    source: Box<dyn BufRead>,
    /// The first bytes, decompressed: at most 64 KiB.
    head: Vec<u8>,
    line: Vec<u8>,
    number: u64,
    /// Bytes that were read as binary records.
    bytes: u64,
}

impl Input {
    /// Looks at the first bytes to see whether they are compressed, and reads the head.
    pub(super) fn new(source: Box<dyn Read>) -> Result<Self, Problem> {
        let (start, source) = ahead(source, 6)?;
        if let Some((_, name, command)) = OTHERS.iter().find(|(magic, ..)| start.starts_with(magic))
        {
            let remedy = format!(
                "decompress it first: `{command} FILE > PLAIN`, or recompress it with zstd"
            );
            let problem = Problem::new(0, format!("is compressed with {name}, which is not read"));
            return Err(problem.remedy(remedy));
        }
        let source: Box<dyn Read> = if start.starts_with(&ZSTD) {
            Box::new(zstd::Decoder::new(source).map_err(|error| unreadable(&error))?)
        } else if start.starts_with(&GZIP) {
            Box::new(MultiGzDecoder::new(source))
        } else {
            source
        };
        let (head, source) = ahead(source, HEAD)?;
        let source = Box::new(BufReader::with_capacity(HEAD, source));
        Ok(Self { source, head, line: Vec::with_capacity(256), number: 0, bytes: 0 })
    }

    /// The first bytes, decompressed: at most 64 KiB. Reading does not change them.
    pub(super) fn head(&self) -> &[u8] {
        &self.head
    }

    /// The number of the current line, from 1; 0 before the first.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// How many bytes were read as binary records.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
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
        if self.number == 1 && self.line.starts_with(&MARK) {
            self.line.drain(..MARK.len());
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

    /// The next binary record of `N` bytes, or `None` at the end of the file.
    pub(super) fn take<const N: usize>(&mut self) -> Result<Option<[u8; N]>, Problem> {
        let mut record = [0; N];
        let mut filled = 0;
        while filled < N {
            match self.source.read(&mut record[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => {
                    let message = format!(
                        "the file ends {filled} bytes into a record of {N}, at byte {}; it was cut",
                        self.bytes + filled as u64
                    );
                    return Err(Problem::new(0, message));
                }
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(unreadable(&error)),
            }
        }
        self.bytes += N as u64;
        Ok(Some(record))
    }

    /// Skips bytes of a binary file; false if it ends before.
    pub(super) fn skip(&mut self, bytes: usize) -> Result<bool, Problem> {
        let mut skipped = self.source.by_ref().take(bytes as u64);
        let skipped = io::copy(&mut skipped, &mut io::sink()).map_err(|e| unreadable(&e))?;
        self.bytes += skipped;
        Ok(skipped == bytes as u64)
    }
}

/// Reads up to `length` bytes ahead, and gives them back to the source.
fn ahead(mut source: Box<dyn Read>, length: usize) -> Result<(Vec<u8>, Box<dyn Read>), Problem> {
    let mut head = Vec::new();
    source.by_ref().take(length as u64).read_to_end(&mut head).map_err(|e| unreadable(&e))?;
    let whole = Box::new(Cursor::new(head.clone()).chain(source));
    Ok((head, whole))
}

fn unreadable(error: &io::Error) -> Problem {
    Problem::new(0, format!("cannot be read: {error}"))
}
