//! The memory of the read cache: one allocation, divided into frames.

use weir_flow::cache::evict::Frame;

/// Frames of equal size.
#[derive(Debug)]
pub(crate) struct Frames {
    /// Zeroed memory, which the kernel gives page by page as it is first touched.
    memory: Vec<u8>,
    line: usize,
}

impl Frames {
    /// This number of frames, of `line` bytes each.
    pub(crate) fn new(lines: u32, line: u32) -> Self {
        let line = line as usize;
        Self { memory: vec![0; lines as usize * line], line }
    }

    /// Bytes of a frame.
    pub(crate) fn bytes(&self, frame: Frame, at: u32, length: u32) -> &[u8] {
        let start = frame.index() * self.line + at as usize;
        &self.memory[start..start + length as usize]
    }

    /// Bytes of a frame, to be filled.
    pub(crate) fn bytes_mut(&mut self, frame: Frame, at: u32, length: u32) -> &mut [u8] {
        let start = frame.index() * self.line + at as usize;
        &mut self.memory[start..start + length as usize]
    }
}
