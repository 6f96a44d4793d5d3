//! The journal of atomic writes, a file of the gateway: at most one record, which a start applies.
//!
//! Its contract: a record is durable before its data is written in place, and gone before the write is answered. A record
//! that was on its way at a crash is whole or not there, since it has a checksum.

use super::content::{Content, Image};
use weir_flow::rng::Rng;

/// What an atomic write writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) first: u32,
    pub(super) contents: Vec<Content>,
}

/// What is on its way to a journal.
#[derive(Clone, Debug, Default)]
enum Coming {
    #[default]
    Nothing,
    Record(Record),
    /// That it has none.
    Clear,
}

/// The journal, which outlives gateways.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    durable: Option<Record>,
    /// What is on its way to it.
    coming: Coming,
}

impl Journal {
    /// It is to have this.
    pub(super) fn begin(&mut self, record: Option<Record>) {
        self.coming = record.map_or(Coming::Clear, Coming::Record);
    }

    /// What was on its way is durable.
    pub(super) fn end(&mut self) {
        match std::mem::take(&mut self.coming) {
            Coming::Nothing => {}
            Coming::Record(record) => self.durable = Some(record),
            Coming::Clear => self.durable = None,
        }
    }

    /// What a crash leaves.
    pub(super) fn left(&self, rng: &mut Rng) -> Option<Record> {
        match &self.coming {
            Coming::Record(record) if rng.below(2) == 0 => Some(record.clone()),
            Coming::Clear if rng.below(2) == 0 => None,
            _ => self.durable.clone(),
        }
    }

    /// A crash has left this.
    pub(super) fn restart(&mut self, record: Option<Record>) {
        *self = Self { durable: record, coming: Coming::Nothing };
    }
}

impl Record {
    /// Applies it to an image.
    pub(super) fn apply(&self, image: &mut Image) {
        let first = self.first as usize;
        image[first..first + self.contents.len()].copy_from_slice(&self.contents);
    }
}
