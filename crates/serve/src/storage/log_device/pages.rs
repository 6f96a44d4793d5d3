//! Reads a log in whole pages, as direct I/O needs, and ahead of a sequential reader.

use crate::buffer::{Pool, Shared};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

/// A log that is read almost sequentially: recovery reads the header of each batch, and a log of small writes has a
/// batch every few pages. One read for each header would cost the latency of as many reads; reading ahead is faster
/// until batches are far apart.
#[derive(Debug)]
pub(super) struct Pages<'a> {
    file: &'a File,
    pool: Pool,
    window: Option<Window>,
    /// How many bytes are read at once.
    ahead: usize,
}

/// What was read last.
#[derive(Debug)]
struct Window {
    start: u64,
    /// How many bytes of it are filled.
    length: usize,
    buffer: Shared,
}

impl<'a> Pages<'a> {
    pub(super) fn new(file: &'a File) -> Self {
        Self { file, pool: Pool::new(u64::MAX), window: None, ahead: PAGE }
    }

    /// Fills `bytes` with what is at `at`.
    pub(super) fn read(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let from = at.checked_add(done as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
            let rest = &mut bytes[done..];
            if let Some(window) = &self.window
                && let Some(within) =
                    from.checked_sub(window.start).filter(|&n| n < window.length as u64)
            {
                let have = &window.buffer.bytes()[within as usize..window.length];
                let length = have.len().min(rest.len());
                rest[..length].copy_from_slice(&have[..length]);
                done += length;
                continue;
            }
            let start = from / PAGE as u64 * PAGE as u64;
            let needed = ((from - start) as usize + rest.len()).next_multiple_of(PAGE).min(MOST);
            let end = self.window.as_ref().map(|window| window.start + window.length as u64);
            let near = end.is_some_and(|end| start.checked_sub(end).is_some_and(|gap| gap <= NEAR));
            self.ahead = if near { (2 * self.ahead).min(MOST) } else { PAGE };
            // What is ahead may be unreadable, and not be wanted.
            match self.fill(start, needed.max(self.ahead)) {
                Err(_) if self.ahead > needed => self.fill(start, needed)?,
                result => result?,
            }
            if self.window.as_ref().is_none_or(|window| from >= window.start + window.length as u64)
            {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// Reads a window; a shorter one at the end of the file.
    fn fill(&mut self, start: u64, length: usize) -> io::Result<()> {
        if let Some(window) = self.window.take() {
            self.pool.give(window.buffer);
        }
        let mut buffer = self.pool.take(length).expect("no larger than the largest");
        let memory =
            &mut Rc::get_mut(&mut buffer).expect("fresh from the pool").bytes_mut()[..length];
        let mut done = 0;
        while done < length {
            match self.file.read_at(&mut memory[done..], start + done as u64) {
                Ok(0) => break,
                // Direct I/O continues at a page.
                Ok(count) if count % PAGE > 0 => {
                    done += count;
                    break;
                }
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.pool.give(buffer);
                    return Err(error);
                }
            }
        }
        self.window = Some(Window { start, length: done, buffer });
        Ok(())
    }
}

/// The smallest read, and what every read is a multiple of.
const PAGE: usize = 4096;

/// The largest read, in bytes. It must not be above the largest buffer.
const MOST: usize = 1 << 20;

/// A read that starts at most this many bytes behind the last one is taken for sequential.
const NEAR: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Whatever order it is read in, it is what is in the file; and its end is an error.
    #[test]
    fn what_is_read_ahead_is_what_is_there() {
        let path = std::env::temp_dir().join(format!("weir-pages-{}", std::process::id()));
        let bytes: Vec<u8> = (0..3_000_100_u32).map(|i| (i / 7 % 251) as u8).collect();
        fs::write(&path, &bytes).unwrap();
        let file = File::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let mut pages = Pages::new(&file);
        let mut at = 1_u64;
        let (mut largest, mut smallest) = (0, usize::MAX);
        for turn in 0..4_000_u64 {
            let length = 1 + (turn * 37 % 9_000) as usize;
            let mut read = vec![0; length];
            let there = bytes.get(at as usize..at as usize + length);
            assert_eq!(
                pages.read(at, &mut read).is_ok(),
                there.is_some(),
                "{length} bytes at {at}"
            );
            assert!(there.is_none_or(|there| read == there), "{length} bytes at {at}");
            at = if turn % 500 < 400 { at + 8_192 } else { at * 31 } % 3_000_000;
            (largest, smallest) = (largest.max(pages.ahead), smallest.min(pages.ahead));
        }
        assert_eq!((smallest, largest), (PAGE, MOST), "both ways of reading are met");
        assert!(pages.read(u64::MAX - 1, &mut [0; 8]).is_err());
    }
}
