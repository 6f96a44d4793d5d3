//! The memory of a gateway: frames of the read cache, payloads of requests and jobs, and batches of the log.

use super::super::content::SECTOR;
use super::super::plan::Plan;
use super::FRAMES;
use std::collections::BTreeMap;
use std::ops::Range;
use weir_flow::cache::stage::{Buffer, Copied};
use weir_flow::cache::writeback::LocalId;
use weir_flow::request::Tag;

/// The memory of one life.
pub(super) struct Memory {
    /// Bytes of a cache line.
    line: usize,
    frames: Vec<u8>,
    pub(super) payloads: BTreeMap<Tag, Vec<u8>>,
    /// The writes to the log device whose bytes the log may still need.
    pub(super) batches: BTreeMap<LocalId, Vec<u8>>,
    /// The bytes of the last job, for a planted bug that uses them for the next one.
    pub(super) stale: Vec<u8>,
}

impl Memory {
    pub(super) fn new(plan: &Plan) -> Self {
        let line = plan.line as usize * SECTOR;
        Self {
            line,
            frames: vec![0xee; FRAMES as usize * line],
            payloads: BTreeMap::new(),
            batches: BTreeMap::new(),
            stale: Vec::new(),
        }
    }

    /// A part of the payload of a request that has not ended.
    pub(super) fn payload(&mut self, tag: Tag, offset: u64, length: u64) -> &mut [u8] {
        let payload = self.payloads.get_mut(&tag).expect("its request has not ended");
        &mut payload[offset as usize..][..length as usize]
    }

    /// Memory for a job.
    pub(super) fn reserve(&mut self, tag: Tag, bytes: u64) {
        self.payloads.insert(tag, vec![0xdd; bytes as usize]);
    }

    pub(super) fn release(&mut self, tag: Tag) {
        self.stale = self.payloads.remove(&tag).expect("it is released once");
    }

    /// Bytes that a log keeps.
    pub(super) fn buffer(&self, buffer: Buffer, length: u64) -> &[u8] {
        let (bytes, offset) = match buffer {
            Buffer::Payload(tag, offset) => (self.payloads.get(&tag), offset),
            Buffer::Batch(io, offset) => (self.batches.get(&io), offset),
        };
        let bytes = bytes.expect("memory that the log names is kept");
        &bytes[offset as usize..][..length as usize]
    }

    /// Copies bytes that a log keeps into a payload.
    pub(super) fn copy_buffer(&mut self, from: Buffer, tag: Tag, offset: u64, length: u64) {
        let bytes = self.buffer(from, length).to_vec();
        self.payload(tag, offset, length).copy_from_slice(&bytes);
    }

    /// The bytes of the frames that a copy is about.
    pub(super) fn frame(&self, copied: &Copied) -> Range<usize> {
        let start = copied.frame.index() * self.line + copied.at as usize;
        start..start + copied.length as usize
    }

    /// Copies from a frame into a payload.
    pub(super) fn read_frame(&mut self, copied: &Copied) {
        let bytes = self.frames[self.frame(copied)].to_vec();
        self.payload(copied.tag, copied.offset, bytes.len() as u64).copy_from_slice(&bytes);
    }

    pub(super) fn fill_frame(&mut self, frame: Range<usize>, bytes: &[u8]) {
        self.frames[frame].copy_from_slice(bytes);
    }
}
