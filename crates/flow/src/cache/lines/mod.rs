//! The read buffer: which sectors of which lines are in which frame of memory.
//!
//! A line is an aligned piece of a volume, a frame the memory for one. A line need not be whole: each of
//! its 512-byte sectors is here or not, so that nothing is read in order to write. Bytes never come here;
//! the caller copies them, in the order of the copies that it gets.
//!
//! **Nothing old is installed over something new** (R24 of docs/reference/writeback.md, section 12). A fetch is a
//! [fill](Lines::begin) from its start to its end, and whatever [was written](Lines::wrote) meanwhile is
//! taken out of it. So a caller must tell of a write when it is handed on *and* when it has ended, as long
//! as reads of upstream could return what was there before: a fill that began between the two has seen
//! either.
//!
//! **Memory.** For each frame of 4 KiB 12 bytes for its line, 1 for its sectors, 1/8 for whether it was
//! fetched ahead, 4 for the list of free frames, 5.3 to 10.7 to find it, and what the policy needs: 55 to
//! 67 bytes in all with the default policy, 1.6 % of the data at most.

mod bits;
mod fills;

pub use fills::FillId;

use super::evict::{self, Evict, Frame, Index, Line};
use crate::policy::Choice;
use crate::request::VolumeId;
use crate::units::Extent;
use alloc::boxed::Box;
use alloc::vec::Vec;
use bits::Bits;
use core::fmt;
use core::ops::Range;
use fills::Fills;

/// Bytes that are here or not as one.
pub const SECTOR: u64 = 512;

/// Largest line, in bytes: the sectors of a line fit 64 bits.
pub const LARGEST_LINE: u32 = 32 << 10;

/// Bytes to be copied between a frame and the buffer of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The frame.
    pub frame: Frame,
    /// First byte in the frame.
    pub at: u32,
    /// First byte in the extent, counted from its beginning.
    pub offset: u64,
    /// Bytes, at least one.
    pub length: u32,
}

/// How much of an extent is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cover {
    /// Every byte.
    All,
    /// Some.
    Part,
    /// None.
    None,
}

impl Cover {
    /// Of an extent that is not empty.
    const fn of(some: bool, all: bool) -> Self {
        match (some, all) {
            (true, true) => Self::All,
            (true, false) => Self::Part,
            (false, _) => Self::None,
        }
    }
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Reads of which all was here.
    pub hits: u64,
    /// Reads of which something was here.
    pub partial: u64,
    /// Reads of which nothing was here.
    pub misses: u64,
    /// Lines that came.
    pub installed: u64,
    /// Lines that were given up for others.
    pub evicted: u64,
    /// Lines that were dropped because all that was here of them was written over.
    pub dropped: u64,
    /// Lines fetched ahead that were read.
    pub ahead_used: u64,
    /// Lines fetched ahead that went without having been read.
    pub ahead_wasted: u64,
}

/// What became of lines that were fetched ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Their volume.
    pub volume: VolumeId,
    /// Lines that were read.
    pub used: u32,
    /// Lines that went without.
    pub wasted: u32,
}

/// The read buffer.
pub struct Lines {
    /// Bytes of a line.
    line: u32,
    evict: Box<dyn Evict>,
    index: Index,
    /// The line in each frame; what a free frame has here means nothing.
    resident: Vec<Line>,
    /// Which sectors of the line are here; none for a free frame.
    sectors: Bits,
    /// Frames whose line was fetched ahead and not read yet.
    ahead: Bits,
    free: Vec<Frame>,
    fills: Fills,
    judged: Vec<Judged>,
    stats: Stats,
}

impl Lines {
    /// A buffer of `frames` frames of `line` bytes each, a power of two from 512 to [`LARGEST_LINE`], all of
    /// them free. Without frames everything misses.
    pub fn new(frames: u32, line: u32, evict: &Choice<evict::Build>) -> Self {
        let valid = line.is_power_of_two() && (SECTOR as u32..=LARGEST_LINE).contains(&line);
        assert!(valid, "a line is a power of two from 512 bytes to 32 KiB, not {line} bytes");
        Self {
            line,
            evict: (evict.policy().build)(evict.values(), frames),
            index: Index::new(frames),
            resident: alloc::vec![Line::default(); frames as usize],
            sectors: Bits::new(frames as usize, line / SECTOR as u32),
            ahead: Bits::new(frames as usize, 1),
            free: (0..frames).rev().map(Frame::new).collect(),
            fills: Fills::default(),
            judged: Vec::new(),
            stats: Stats::default(),
        }
    }

    /// Sets a key that hosts do not know, before anything is here, so that they cannot choose lines that are
    /// slow to find. No decision depends on it: with another key a run repeats.
    pub fn set_key(&mut self, key: u64) {
        self.index.set_key(key);
        self.evict.set_key(key);
    }

    /// Bytes of a line.
    pub const fn line(&self) -> u32 {
        self.line
    }

    /// How many frames hold a line.
    pub const fn resident(&self) -> u32 {
        (self.resident.len() - self.free.len()) as u32
    }

    /// Looks an extent up for a host's read and says what to copy out of frames, in ascending order. Every
    /// line that is here counts as used.
    pub fn read(&mut self, volume: VolumeId, extent: Extent, out: &mut Vec<Copy>) -> Cover {
        let cover = self.resume(volume, extent, out);
        match cover {
            Cover::All => self.stats.hits += 1,
            Cover::Part => self.stats.partial += 1,
            Cover::None => self.stats.misses += 1,
        }
        cover
    }

    /// The same for a read that has been counted and has waited for a fill since. Lines that came ahead of
    /// it were not for nothing.
    pub fn resume(&mut self, volume: VolumeId, extent: Extent, out: &mut Vec<Copy>) -> Cover {
        let (mut some, mut all) = (false, true);
        for piece in pieces(self.line, volume, extent) {
            let (frame, here) = self.find(piece);
            (some, all) = (some || here != 0, all && here == piece.sectors);
            let Some(frame) = frame else { continue };
            copies(frame, piece, here, extent, out);
            if self.ahead.take(frame.index()) {
                self.judge(volume, true);
            } else {
                self.evict.hit(piece.line, frame);
            }
        }
        Cover::of(some, all)
    }

    /// The same without counting or using anything: for callers that are not a host.
    pub fn look(&self, volume: VolumeId, extent: Extent, out: &mut Vec<Copy>) -> Cover {
        let (mut some, mut all) = (false, true);
        for piece in pieces(self.line, volume, extent) {
            let (frame, here) = self.find(piece);
            (some, all) = (some || here != 0, all && here == piece.sectors);
            if let Some(frame) = frame {
                copies(frame, piece, here, extent, out);
            }
        }
        Cover::of(some, all)
    }

    /// A running fill that will bring some sector of the extent, the one with the lowest offset: a read
    /// that wants it waits for the end of the fill and looks again. `None` without frames, where nothing that
    /// is fetched stays.
    pub fn filling(&self, volume: VolumeId, extent: Extent) -> Option<FillId> {
        if self.resident.is_empty() { None } else { self.fills.find(volume, extent) }
    }

    /// The smallest extent of whole lines that has every line of `extent` that is neither wholly here nor
    /// wholly on its way: what a fetch of it should ask for. It may reach past the volume's end.
    pub fn lacking(&self, volume: VolumeId, extent: Extent) -> Option<Extent> {
        let mut lacking: Option<Range<u64>> = None;
        for piece in pieces(self.line, volume, extent) {
            let (_, here) = self.find(piece);
            if here == piece.sectors || self.fills.bring(volume, piece.bytes()) {
                continue;
            }
            let end = piece.start.saturating_add(u64::from(self.line));
            lacking = Some(lacking.map_or(piece.start, |range| range.start)..end);
        }
        lacking.map(|range| Extent::new(range.start, range.end - range.start))
    }

    /// A fetch of the extent from upstream begins; `ahead` for a prefetch.
    pub fn begin(&mut self, volume: VolumeId, extent: Extent, ahead: bool) -> FillId {
        self.fills.begin(volume, extent, ahead)
    }

    /// These bytes of a running fill will not be installed: what upstream has there is not the newest.
    pub fn exclude(&mut self, fill: FillId, extent: Extent) {
        self.fills.exclude(fill, extent);
    }

    /// Other data than before is, or may be, in the extent from now on: it is taken out of the buffer and
    /// out of all running fills.
    pub fn wrote(&mut self, volume: VolumeId, extent: Extent) {
        self.fills.exclude_all(volume, extent);
        for piece in pieces(self.line, volume, extent) {
            if let (Some(frame), _) = self.find(piece) {
                self.take_out(frame, piece.sectors);
            }
        }
    }

    /// A fill has ended. Says which of the fetched bytes go where, in this order; nothing if it went
    /// wrong, and never a byte that was excluded.
    pub fn end(&mut self, fill: FillId, ok: bool, out: &mut Vec<Copy>) {
        let fill = self.fills.end(fill);
        if ok {
            for piece in pieces(self.line, fill.volume, fill.extent) {
                let sectors = whole_sectors(piece, fill.extent) & !fill.excluded(piece);
                self.install(piece, sectors, fill.extent, fill.ahead, out);
            }
        }
    }

    /// The payload of a write that holds from now on goes to frames: says which of its bytes go where, in
    /// this order. All else is as if it [was written](Self::wrote), but that a line which is here stays and
    /// counts as used.
    pub fn put(&mut self, volume: VolumeId, extent: Extent, out: &mut Vec<Copy>) {
        self.fills.exclude_all(volume, extent);
        for piece in pieces(self.line, volume, extent) {
            let (frame, _) = self.find(piece);
            let whole = whole_sectors(piece, extent);
            match frame {
                None => self.install(piece, whole, extent, false, out),
                Some(frame) if whole == 0 => self.take_out(frame, piece.sectors),
                Some(frame) => {
                    let here = self.sectors.get(frame.index()) & !piece.sectors;
                    self.sectors.set(frame.index(), here | whole);
                    self.evict.hit(piece.line, frame);
                    if self.ahead.take(frame.index()) {
                        self.judge(volume, false);
                    }
                    copies(frame, piece, whole, extent, out);
                }
            }
        }
    }

    /// Drops everything of a volume, and what is on its way.
    pub fn forget(&mut self, volume: VolumeId) {
        self.fills.exclude_all(volume, Extent::new(0, u64::MAX));
        for frame in 0..self.resident.len() {
            if self.sectors.get(frame) != 0 && self.resident[frame].volume() == volume {
                self.stats.dropped += 1;
                self.drop_line(Frame::new(frame as u32));
            }
        }
    }

    /// What happened so far.
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// What became of lines fetched ahead since it was last asked: one volume at a time.
    pub fn take_judged(&mut self) -> Option<Judged> {
        self.judged.pop()
    }

    /// Bytes of memory that it holds without the frames themselves and running fills.
    pub fn memory(&self) -> usize {
        self.evict.memory()
            + self.index.memory()
            + self.resident.capacity() * size_of::<Line>()
            + self.free.capacity() * size_of::<Frame>()
            + self.sectors.memory()
            + self.ahead.memory()
    }

    /// Where the line of a piece is, and which of the piece's sectors are there.
    fn find(&self, piece: Piece) -> (Option<Frame>, u64) {
        let frame = self.index.find(piece.line, &self.resident).map(Frame::new);
        (frame, frame.map_or(0, |frame| self.sectors.get(frame.index())) & piece.sectors)
    }

    /// Makes sectors of a line, those that are not here yet, resident.
    fn install(
        &mut self,
        piece: Piece,
        sectors: u64,
        extent: Extent,
        ahead: bool,
        out: &mut Vec<Copy>,
    ) {
        if sectors == 0 || self.resident.is_empty() {
            return;
        }
        assert!(sectors & !piece.sectors == 0, "a fill installs what it has read: {sectors:x}");
        let (frame, _) = self.find(piece);
        let frame = frame.unwrap_or_else(|| self.admit(piece.line, ahead));
        let here = self.sectors.get(frame.index());
        self.sectors.set(frame.index(), here | sectors);
        copies(frame, piece, sectors & !here, extent, out);
    }

    fn admit(&mut self, line: Line, ahead: bool) -> Frame {
        let frame = self.free.pop().unwrap_or_else(|| {
            let victim = self.evict.victim(line, &self.resident);
            let frame = victim.expect("no frame is free, so every frame has a line");
            self.stats.evicted += 1;
            self.vacate(frame);
            frame
        });
        assert!(self.sectors.get(frame.index()) == 0, "a free frame holds nothing: {frame:?}");
        self.resident[frame.index()] = line;
        self.index.insert(frame.index() as u32, &self.resident);
        self.evict.admit(line, frame);
        self.ahead.set(frame.index(), u64::from(ahead));
        self.stats.installed += 1;
        self.check();
        frame
    }

    /// Drops sectors of a line, and the line when none is left.
    fn take_out(&mut self, frame: Frame, sectors: u64) {
        let left = self.sectors.get(frame.index()) & !sectors;
        self.sectors.set(frame.index(), left);
        if left == 0 {
            self.stats.dropped += 1;
            self.drop_line(frame);
        }
    }

    /// A line goes without having been given up by the policy.
    fn drop_line(&mut self, frame: Frame) {
        assert!(self.free.len() < self.resident.len(), "a frame is freed once: {frame:?}");
        self.evict.remove(frame);
        self.vacate(frame);
        self.free.push(frame);
        self.check();
    }

    /// Every line that was installed is resident, or was evicted or dropped.
    fn check(&self) {
        let Stats { installed, evicted, dropped, .. } = self.stats;
        assert!(
            installed == evicted + dropped + u64::from(self.resident()),
            "a frame is free or holds a line: {self:?}"
        );
    }

    fn vacate(&mut self, frame: Frame) {
        self.index.remove(frame.index() as u32, &self.resident);
        self.sectors.set(frame.index(), 0);
        if self.ahead.take(frame.index()) {
            self.judge(self.resident[frame.index()].volume(), false);
        }
    }

    fn judge(&mut self, volume: VolumeId, used: bool) {
        let place = self.judged.iter().position(|judged| judged.volume == volume);
        let place = place.unwrap_or_else(|| {
            self.judged.push(Judged { volume, used: 0, wasted: 0 });
            self.judged.len() - 1
        });
        if used {
            self.judged[place].used += 1;
            self.stats.ahead_used += 1;
        } else {
            self.judged[place].wasted += 1;
            self.stats.ahead_wasted += 1;
        }
        let judged = self.stats.ahead_used + self.stats.ahead_wasted;
        assert!(judged <= self.stats.installed, "a prefetched line is judged once: {self:?}");
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lines({} of {} frames, {:?})", self.resident(), self.resident.len(), self.stats)
    }
}

/// The part of an extent that lies in one line.
#[derive(Clone, Copy, Debug)]
struct Piece {
    line: Line,
    /// Sectors of the line.
    sectors: u64,
    /// The line's first byte.
    start: u64,
}

impl Piece {
    /// From its first sector to its last.
    const fn bytes(self) -> Extent {
        let first = self.sectors.trailing_zeros() as u64;
        let end = 64 - self.sectors.leading_zeros() as u64;
        Extent::new(self.start + first * SECTOR, (end - first) * SECTOR)
    }
}

/// The lines that an extent touches, in ascending order, each with the sectors that it touches.
fn pieces(line: u32, volume: VolumeId, extent: Extent) -> impl Iterator<Item = Piece> {
    let end = extent.offset.saturating_add(extent.length);
    let sectors =
        if extent.length == 0 { 0..0 } else { extent.offset / SECTOR..end.div_ceil(SECTOR) };
    let per_line = u64::from(line) / SECTOR;
    (sectors.start / per_line..sectors.end.div_ceil(per_line)).map(move |index| {
        let first = sectors.start.max(index * per_line) - index * per_line;
        let last = sectors.end.min((index + 1) * per_line) - index * per_line;
        Piece {
            line: Line::new(volume, index),
            sectors: mask(first as u32..last as u32),
            start: index * u64::from(line),
        }
    })
}

/// Those sectors of a piece of an extent of which the extent has every byte.
fn whole_sectors(piece: Piece, extent: Extent) -> u64 {
    let end = extent.offset.saturating_add(extent.length);
    let mut sectors = piece.sectors;
    if extent.offset > piece.bytes().offset {
        sectors &= sectors - 1;
    }
    if sectors != 0 && end < piece.start + (64 - u64::from(sectors.leading_zeros())) * SECTOR {
        sectors &= !(1 << sectors.ilog2());
    }
    sectors
}

/// Says how these sectors of a line are copied, in pieces as long as can be, cut to the extent.
fn copies(frame: Frame, piece: Piece, sectors: u64, extent: Extent, out: &mut Vec<Copy>) {
    let mut rest = sectors;
    while rest != 0 {
        let first = rest.trailing_zeros();
        let count = (rest >> first).trailing_ones();
        rest &= !mask(first..first + count);
        let from = (piece.start + u64::from(first) * SECTOR).max(extent.offset);
        let to = (piece.start + u64::from(first + count) * SECTOR)
            .min(extent.offset.saturating_add(extent.length));
        out.push(Copy {
            frame,
            at: (from - piece.start) as u32,
            offset: from - extent.offset,
            length: (to - from) as u32,
        });
    }
}

/// These bits of 64.
const fn mask(bits: Range<u32>) -> u64 {
    if bits.start >= bits.end {
        return 0;
    }
    u64::MAX >> (64 - (bits.end - bits.start)) << bits.start
}

#[cfg(test)]
mod races;
#[cfg(test)]
mod tests;
