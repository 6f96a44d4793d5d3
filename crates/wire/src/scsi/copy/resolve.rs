//! Resolves a segment of a copy to the disks that it names.

use super::{HEADER_LENGTH, Plan, SEGMENT_LENGTH, SEGMENT_LENGTH_MAX, Segment, TARGET_LENGTH};
use crate::scsi::Sense;
use crate::scsi::disk::DiskInfo;
use crate::scsi::unmap::Extent;

/// Source and destination of a segment's blocks. Both are within their disks and are equally many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Number of the segment, from 0 on.
    pub segment: u16,
    /// The disk to read.
    pub source: usize,
    /// The disk to write.
    pub destination: usize,
    /// The blocks to read.
    pub from: Extent,
    /// The blocks to write.
    pub to: Extent,
}

/// One of a segment's two disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that is read.
    Source,
    /// The one that is written.
    Destination,
}

impl Move {
    /// Whether a shell that moves the blocks piece by piece must begin with the last piece, because an
    /// earlier one would overwrite blocks that are still to be read.
    pub fn from_the_end(&self) -> bool {
        let end = self.from.lba + u64::from(self.from.blocks);
        self.source == self.destination && self.to.lba > self.from.lba && self.to.lba < end
    }
}

impl Plan {
    /// The source and destination of segment `number`, after a check against its disks. `disks` are those that the
    /// initiator may use, `own` is the place in it of the one to which the command was sent.
    ///
    /// The error is the sense data of the CHECK CONDITION that ends the copy. All segments before are
    /// taken for done by the initiator, so a shell must have done them when it asks for this one.
    ///
    /// Panics if there is no such segment or no disk at `own`.
    pub fn resolve(&self, number: usize, own: usize, disks: &[&DiskInfo]) -> Result<Move, Sense> {
        let segment = &self.segments[number];
        let source = self.find(number, Side::Source, own, disks)?;
        let destination = self.find(number, Side::Destination, own, disks)?;
        let (read, written) = (disks[source], disks[destination]);
        let abort = |sense: Sense, offset: usize| {
            sense.in_segment(number as u16).at_parameter((self.start_of(number) + offset) as u16)
        };
        let counted = if segment.counts_destination { written } else { read };
        let bytes = u32::from(segment.blocks).saturating_mul(counted.block_size);
        if bytes > SEGMENT_LENGTH_MAX {
            return Err(abort(Sense::COPY_ABORTED_BY_PARAMETER, 10));
        }
        // SPC-4 table 116. PAD and CAT would make something of the rest; that is not done here.
        if !bytes.is_multiple_of(read.block_size) || !bytes.is_multiple_of(written.block_size) {
            return Err(abort(Sense::UNEXPECTED_INEXACT_SEGMENT, 10));
        }
        let from = Extent { lba: segment.source_lba, blocks: bytes / read.block_size };
        let to = Extent { lba: segment.destination_lba, blocks: bytes / written.block_size };
        // SPC-4 section 5.17.7.4: an error in the segment is pointed at; there is no code for it.
        if read.check_range(from.lba, from.blocks.into()).is_err() {
            return Err(abort(Sense::COPY_ABORTED, 12));
        }
        if written.check_range(to.lba, to.blocks.into()).is_err() {
            return Err(abort(Sense::COPY_ABORTED, 20));
        }
        let step = Move { segment: number as u16, source, destination, from, to };
        if written.read_only {
            return Err(self.failed(&step, Side::Destination, 0));
        }
        Ok(step)
    }

    /// The sense data of a copy that ends because a disk failed a command, after `written` blocks of
    /// the segment were written to the destination.
    pub fn failed(&self, step: &Move, side: Side, written: u32) -> Sense {
        let number = usize::from(step.segment);
        let sense = Sense::THIRD_PARTY_DEVICE_FAILURE
            .in_segment(step.segment)
            .at_parameter(self.blame(number, side));
        // SPC-4 section 5.17.7.4: the residual count, unless nothing was written.
        match written {
            0 => sense,
            _ => sense.with_information(step.to.blocks.saturating_sub(written).into()),
        }
    }

    /// The place of a segment's disk among `disks`.
    fn find(
        &self,
        number: usize,
        side: Side,
        own: usize,
        disks: &[&DiskInfo],
    ) -> Result<usize, Sense> {
        let abort = |sense: Sense, at| Err(sense.in_segment(number as u16).at_parameter(at));
        let index = side.of(&self.segments[number]);
        if index == Segment::OWN {
            return Ok(own);
        }
        let target = self.targets.get(usize::from(index));
        let found = target.and_then(|target| {
            let place = disks.iter().position(|disk| target.names(disk))?;
            Some((target, place))
        });
        let Some((target, place)) = found else {
            // SPC-4 section 6.4.6.1.
            return abort(Sense::UNREACHABLE_COPY_TARGET, self.blame(number, side));
        };
        if target.block_size != 0 && target.block_size != disks[place].block_size {
            return abort(Sense::COPY_ABORTED_BY_PARAMETER, self.blame(number, side) + 29);
        }
        Ok(place)
    }

    /// Offset in the list of the description of a segment's disk (SPC-4 section 5.17.7.4); the segment's own field if
    /// that is no index of a target.
    fn blame(&self, number: usize, side: Side) -> u16 {
        let index = usize::from(side.of(&self.segments[number]));
        let at = match side {
            _ if index < self.targets.len() => HEADER_LENGTH + index * TARGET_LENGTH,
            Side::Source => self.start_of(number) + 4,
            Side::Destination => self.start_of(number) + 6,
        };
        at as u16
    }

    /// Offset in the list of a segment's descriptor.
    const fn start_of(&self, number: usize) -> usize {
        HEADER_LENGTH + self.targets.len() * TARGET_LENGTH + number * SEGMENT_LENGTH
    }
}

impl Side {
    const fn of(self, segment: &Segment) -> u16 {
        match self {
            Self::Source => segment.source,
            Self::Destination => segment.destination,
        }
    }
}
