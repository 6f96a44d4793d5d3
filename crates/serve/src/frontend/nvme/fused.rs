//! Fused Compare and Write: two commands, one behind the other, that are one request.
//!
//! Both bring their data; then they are done as one COMPARE AND WRITE under the slot of the Compare. If one of them ends
//! by itself, the other one is aborted. Some hosts send other commands in between, and try
//! again: that ends the first, not the queue.

use super::{NvmeFrontend, media};
use crate::frontend::connection::{Connection, Speech};
use crate::frontend::nvme_fused::{First, Fused, Half, Pair};
use crate::frontend::nvme_part::Part;
use crate::frontend::nvme_queue::{Data, Queue, Waiting};
use weir_wire::nvme::io::{Blocks, Io, Target};
use weir_wire::nvme::{Completion, Sqe, Status, Transfer};
use weir_wire::scsi::cdb::MediaOp;

impl NvmeFrontend<'_> {
    /// Another command follows than the Write that a Compare waits for, or none does.
    pub(super) fn miss(&mut self, queue: &mut Queue, first: Option<First>) {
        if let Some((half, _)) = first.and_then(|first| first.half) {
            self.end(queue, half.slot, Completion::failed(Status::MISSING_FUSED));
        }
    }

    /// Ends a Compare that has waited too long.
    pub(super) fn miss_late(&mut self, connection: &mut Connection) {
        let Speech::Nvme(queue) = &mut connection.speech else { return };
        if queue.fused.is_late(self.engine.set.now) {
            let first = queue.fused.take_first();
            self.miss(queue, first);
        }
    }

    /// Handles a command of a pair. `first` is what has come before it.
    pub(super) fn fuse(
        &mut self,
        queue: &mut Queue,
        (slot, sqe, transfer): (u32, &Sqe, Transfer),
        decoded: Result<(Io, Target), Status>,
        first: Option<First>,
    ) {
        let wrong = decoded.as_ref().err().copied();
        let judged = decoded.and_then(|(io, target)| self.judge(queue, io, target, transfer));
        if sqe.fuse() == FIRST {
            let half = judged.map(|(part, length)| {
                queue.wire.gather(slot, *sqe, length);
                (Half { slot, data: None }, part)
            });
            if let Err(status) = half {
                queue.wire.respond(slot, Completion::failed(status));
            }
            queue.fused.first = Some(First { half: half.ok() });
            return;
        }
        let Some(First { half }) = first else {
            let status = wrong.unwrap_or(Status::MISSING_FUSED);
            return queue.wire.respond(slot, Completion::failed(status));
        };
        let Some((compare, before)) = half else {
            return queue.wire.respond(slot, Completion::failed(Status::ABORTED_FAILED_FUSED));
        };
        let place = |part: &Part| (part.volume, part.media.lba, part.media.blocks);
        let judged = judged.and_then(|(part, length)| {
            let fits = place(&part) == place(&before);
            fits.then_some((part, length)).ok_or(Status::INVALID_FIELD)
        });
        match judged {
            Ok((part, length)) => {
                queue.wire.gather(slot, *sqe, length);
                let (lead, write) = (compare.slot, Half { slot, data: None });
                queue.fused.pairs.insert(lead, Pair { compare, write, part });
            }
            Err(status) => {
                queue.wire.respond(slot, Completion::failed(status));
                self.end(queue, compare.slot, Completion::failed(Status::ABORTED_FAILED_FUSED));
            }
        }
    }

    /// What a command of a pair is a part of, and the length of its data, if the volume takes both.
    fn judge(
        &self,
        queue: &Queue,
        io: Io,
        target: Target,
        transfer: Transfer,
    ) -> Result<(Part, u32), Status> {
        let (Io::Compare(blocks) | Io::Write(blocks), Target::One(place)) = (io, target) else {
            return Err(Status::INVALID_FIELD);
        };
        let (facts, volume) = (&queue.namespaces.facts[place], queue.namespaces.volumes[place]);
        let part = Part { volume, media: media(MediaOp::CompareAndWrite, blocks) };
        if let Some(refusal) = self.refusal(queue, volume, part.media) {
            return Err(refusal);
        }
        io.check(transfer, facts, self.controllers.limits.max_transfer)?;
        let Blocks { count, .. } = blocks;
        if count > facts.fused_blocks {
            return Err(Status::INVALID_FIELD);
        }
        Ok((part, count << facts.block_shift))
    }

    /// The data of a command of a pair is whole. With that of both they begin.
    pub(super) fn fused_data(&mut self, connection: &mut Connection, slot: u32, data: &[u8]) {
        let now = self.engine.set.now;
        let Speech::Nvme(queue) = &mut connection.speech else { return };
        let Fused { first, pairs } = &mut queue.fused;
        let first = first.as_mut().and_then(|first| first.half.as_mut()).map(|(half, _)| half);
        let of_pairs = pairs.values_mut().flat_map(|pair| [&mut pair.compare, &mut pair.write]);
        if let Some(half) = first.into_iter().chain(of_pairs).find(|half| half.slot == slot) {
            half.data = Some((data.to_vec(), now));
        }
        let lead = queue.fused.lead(slot);
        let Some(Pair { compare, write, part }) = queue.fused.pairs.get_mut(&lead) else { return };
        if compare.data.is_none() || write.data.is_none() {
            return;
        }
        let halves = [compare.data.take(), write.data.take()].into_iter().flatten();
        let bytes: Vec<u8> = halves.flat_map(|(bytes, _)| bytes).collect();
        let data = Data::InCapsule { length: bytes.len() as u32, bytes, complete: true };
        let command = Waiting { slot: lead, part: *part, data };
        self.take_in(connection, command);
    }

    /// Answers the Write of a pair whose Compare ends so, if it is one.
    pub(super) fn answer_second(
        queue: &mut Queue,
        lead: u32,
        ended: Result<(), Status>,
    ) -> Option<u32> {
        let second = queue.fused.pairs.remove(&lead)?.write.slot;
        let completion = match ended {
            Ok(()) => Completion::SUCCESS,
            Err(_) => Completion::failed(Status::ABORTED_FAILED_FUSED),
        };
        queue.wire.respond(second, completion);
        Some(second)
    }
}

/// FUSE: the first command of a pair, and the second.
pub(super) const FIRST: u8 = 1;
pub(super) const SECOND: u8 = 2;
