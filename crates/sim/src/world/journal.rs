//! Writes a run in the format of [`weir_flow::recording`].

use std::io::{self, Write};
use weir_flow::digest::Digest;
use weir_flow::pipeline::{Config, Input};
use weir_flow::recording::{Encoder, Entry};
use weir_flow::stage::Wake;

/// Bytes that are collected before they are written.
const BUFFER: usize = 1 << 16;

/// A recording that is being written.
pub(crate) struct Journal<'a> {
    out: &'a mut dyn Write,
    buffer: Vec<u8>,
    encoder: Encoder,
    /// Why nothing is written any more.
    error: Option<io::Error>,
}

impl<'a> Journal<'a> {
    /// Begins with the configuration.
    pub(crate) fn new(out: &'a mut dyn Write, config: &Config) -> io::Result<Self> {
        let mut buffer = Vec::with_capacity(BUFFER * 2);
        let encoder = Encoder::begin(&mut buffer, config);
        out.write_all(&buffer)?;
        buffer.clear();
        Ok(Self { out, buffer, encoder, error: None })
    }

    /// Takes one wake of the pipeline. An error is kept for [`end`](Self::end).
    pub(crate) fn wake(&mut self, wake: &Wake<Input>) {
        let entry = match wake {
            Wake::Input(at, input) => Entry::Input(*at, input.clone()),
            &Wake::Deadline(at) => Entry::Deadline(at),
            Wake::End => return,
        };
        self.encoder.entry(&mut self.buffer, &entry);
        if self.buffer.len() >= BUFFER && self.error.is_none() {
            self.error = self.out.write_all(&self.buffer).err();
            self.buffer.clear();
        }
    }

    /// Ends with the digest.
    pub(crate) fn end(mut self, digest: Digest) -> io::Result<()> {
        self.encoder.entry(&mut self.buffer, &Entry::End(digest));
        match self.error {
            Some(error) => Err(error),
            None => self.out.write_all(&self.buffer).and_then(|()| self.out.flush()),
        }
    }
}
