//! Recovers the log that a crash has left, and reads the volume through it.

use super::bug::Bug;
use super::content::{Image, SECTOR, Store};
use super::device::Device;
use super::history::{Broken, GONE};
use super::lasting::Lasting;
use super::lost::{Lost, sectors_of};
use super::plan::Plan;
use super::target::Target;
use super::tear::{self, Tear};
use std::convert::Infallible;
use weir_flow::cache::quarantine::LostRange;
use weir_flow::cache::writeback::format::{Span, crc32c};
use weir_flow::cache::writeback::{
    self, Damage, Dirty, Effect, Found, Log, Recovered, Refusal, Settings, assemble, recover,
};
use weir_flow::clock::Instant;
use weir_flow::units::Extent;

/// What may crash.
pub(super) struct World<'a> {
    pub(super) plan: &'a Plan,
    pub(super) bug: Option<Bug>,
    pub(super) lasting: &'a Lasting,
    pub(super) log: &'a Device,
    pub(super) target: &'a Target,
}

/// A log after recovery that has made what it found durable.
pub(super) struct Opened {
    pub(super) recovered: Recovered,
    log: Log,
    /// The log device, with what opening has written to it.
    bytes: Vec<u8>,
    /// Payload is read without its checksums.
    unchecked: bool,
    /// What is rotten, and the sectors that were given up.
    rotten: Lost,
    given: Vec<u32>,
}

fn read(plan: &Plan, bug: Option<Bug>, bytes: &mut [u8]) -> Result<Recovered, Broken> {
    match bug {
        Some(Bug::PayloadChecksumIgnored) => super::forge::believe_payload(plan, bytes),
        Some(Bug::OldSegmentReplayed) => super::forge::believe_old_batches(plan, bytes),
        Some(Bug::TornHeadersBelieved) => super::forge::believe_headers(plan, bytes),
        Some(Bug::TableUnbound) => super::forge::bind_tables(plan, bytes),
        Some(
            bug @ (Bug::CopiesForgotten | Bug::CopyTakenForWrite | Bug::OldestCopiesForgotten),
        ) => {
            super::cleaning::change_copies(plan, bytes, bug);
        }
        Some(Bug::DebtForgotten) => super::forge::forget_debt(bytes),
        Some(Bug::LogForgotten) => {
            return Ok(Recovered::empty(&plan.settings, plan.name(), 1, 1));
        }
        _ => {}
    }
    let size = bytes.len() as u64;
    let mut device = |at: u64, out: &mut [u8]| -> Result<(), Infallible> {
        out.copy_from_slice(&bytes[at as usize..at as usize + out.len()]);
        Ok(())
    };
    let refusal = match recover(&mut device, size, &plan.settings) {
        Ok(recovered) => return Ok(recovered),
        Err(refusal) => refusal,
    };
    match (bug, &refusal) {
        (Some(Bug::DamageMadeNew), Refusal::Damaged { .. }) => {
            Ok(Recovered::empty(&plan.settings, plan.name(), 1, 1))
        }
        (Some(Bug::DamageCutOff), Refusal::Damaged { at, seq, why: Damage::Batch(_) })
            if *seq > 0 =>
        {
            super::forge::cut_off(plan, bytes, *at as usize, *seq);
            read(plan, None, bytes)
        }
        _ => Err(Broken::Refused(refusal.to_string())),
    }
}

/// A log must not be opened with other sizes than it was made with.
pub(super) fn refuses_other_sizes(world: &World<'_>, image: &Image) -> Result<(), Broken> {
    let mut bytes = vec![0; image.len() * SECTOR];
    world.lasting.store.read(image, 0, &mut bytes);
    let settings = world.plan.settings;
    let larger = settings.segment * 2;
    let other_block = if settings.block == 512 { 4096 } else { 512 };
    for other in [
        Settings { segment: larger, capacity: settings.capacity * 2, ..settings },
        Settings { capacity: settings.capacity + settings.segment, ..settings },
        Settings { block: other_block, ..settings },
        Settings { volume: [7; 16], ..settings },
    ] {
        let mut device = |at: u64, out: &mut [u8]| -> Result<(), Infallible> {
            out.copy_from_slice(&bytes[at as usize..at as usize + out.len()]);
            Ok(())
        };
        let found = recover(&mut device, bytes.len() as u64, &other);
        if !matches!(found, Err(Refusal::Sizes { .. } | Refusal::WrongVolume { .. })) {
            return Err(Broken::Refused(format!("a log is opened as {other:?}")));
        }
    }
    Ok(())
}

/// Recovers a log and runs it until everything that it has can be read.
pub(super) fn open(
    world: &World<'_>,
    (image, tears): (&Image, &[Tear]),
    lost: &[LostRange],
) -> Result<Opened, Broken> {
    let mut bytes = vec![0; image.len() * SECTOR];
    world.lasting.store.read(image, 0, &mut bytes);
    tear::apply(tears, &world.lasting.store, &mut bytes);
    open_bytes(world, bytes, lost)
}

/// The same of the bytes of a device.
pub(super) fn open_bytes(
    world: &World<'_>,
    mut bytes: Vec<u8>,
    ranges: &[LostRange],
) -> Result<Opened, Broken> {
    let ranges = if world.bug == Some(Bug::QuarantineForgotten) { &[] } else { ranges };
    let recovered = read(world.plan, world.bug, &mut bytes)?;
    let mut log = Log::new(world.plan.settings, &recovered);
    let now = Instant::ZERO;
    for range in ranges {
        log.skip(now, range.extent, range.seq);
    }
    // Upstream nothing is done: what it has is what the crash has left.
    while log.readable() < recovered.last() {
        match log.poll(now) {
            Some(Effect::Write(write)) => {
                let at = write.at as usize;
                let out = &mut bytes[at..at + write.bytes as usize];
                assemble(&write, crc32c, |_, _| unreachable!("no host has written"), out);
                log.log_io_ended(now, write.io, Ok(()));
            }
            Some(Effect::Sync(io)) => log.log_io_ended(now, io, Ok(())),
            Some(_) => {}
            None => {
                let (to, last) = (log.readable(), recovered.last());
                let text = format!("after recovery records up to {to} can be read, of {last}");
                return Err(Broken::Stuck(text));
            }
        }
    }
    let unchecked = world.bug == Some(Bug::RottenPayloadServed);
    let given = ranges.iter().flat_map(sectors_of).collect();
    Ok(Opened { recovered, log, bytes, unchecked, rotten: world.lasting.lost.clone(), given })
}

impl Opened {
    fn read(&self, at: u64, out: &mut [u8]) {
        out.copy_from_slice(&self.bytes[at as usize..at as usize + out.len()]);
    }

    /// The whole volume as hosts would read it over this upstream.
    pub(super) fn volume(
        &self,
        store: &Store,
        mut volume: Vec<Option<u64>>,
    ) -> Result<Vec<Option<u64>>, Broken> {
        let mut dirty = Vec::new();
        self.log.look_up(Extent::new(0, (volume.len() * SECTOR) as u64), &mut dirty);
        for Dirty { extent, found } in dirty {
            let from = extent.offset as usize / SECTOR;
            let sectors = &mut volume[from..from + extent.length as usize / SECTOR];
            match found {
                Found::Zeroes => sectors.fill(Some(0)),
                Found::NotYet(seq) => {
                    return Err(Broken::Stuck(format!("record {seq} cannot be read")));
                }
                Found::Log(span) if self.rotten.spoils(span) => {
                    // Of a record that is rotten in part, the rest can be read.
                    let starts = (span.at..).step_by(SECTOR);
                    for (sector, at) in sectors.iter_mut().zip(starts) {
                        let one = Span { at, length: SECTOR as u64, ..span };
                        *sector = if self.rotten.spoils(one) {
                            GONE
                        } else {
                            let data = spanned(one, |at, out| self.read(at, out))?;
                            store.known(&data.as_chunks::<SECTOR>().0[0])
                        };
                    }
                }
                Found::Log(span) => {
                    let copy = |at: u64, out: &mut [u8]| self.read(at, out);
                    let data = if self.unchecked { raw(span, copy) } else { spanned(span, copy)? };
                    for (sector, bytes) in sectors.iter_mut().zip(data.as_chunks::<SECTOR>().0) {
                        *sector = store.known(bytes);
                    }
                }
            }
        }
        for &sector in &self.given {
            volume[sector as usize] = GONE;
        }
        Ok(volume)
    }
}

/// Reads payload in the log as it is.
pub(super) fn raw(span: writeback::format::Span, read: impl Fn(u64, &mut [u8])) -> Vec<u8> {
    let (sums, payload) = span.reads();
    let mut bytes = vec![0; payload.length as usize];
    read(payload.offset, &mut bytes);
    let right: Vec<u8> = bytes
        .chunks(writeback::format::SUMMED as usize)
        .flat_map(|piece| crc32c(piece).to_le_bytes())
        .take(sums.length as usize)
        .collect();
    span.check(&right, &bytes, crc32c).map(<[u8]>::to_vec).unwrap_or_default()
}

/// Reads and checks payload in the log.
pub(super) fn spanned(
    span: writeback::format::Span,
    read: impl Fn(u64, &mut [u8]),
) -> Result<Vec<u8>, Broken> {
    let (sums, payload) = span.reads();
    let [sums, payload] = [sums, payload].map(|extent| {
        let mut bytes = vec![0; extent.length as usize];
        read(extent.offset, &mut bytes);
        bytes
    });
    span.check(&sums, &payload, crc32c).map(<[u8]>::to_vec).map_err(|at| {
        Broken::Damaged(format!("payload at byte {at} of the log device has a wrong checksum"))
    })
}
