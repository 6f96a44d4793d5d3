use super::*;
use crate::rng::Rng;
use alloc::collections::BTreeMap;

const VOLUME: VolumeId = VolumeId::new(0);

fn lines(frames: u32, line: u32, policy: &str) -> Lines {
    Lines::new(frames, line, &Choice::named(evict::POLICIES, policy).unwrap())
}

/// A fetch of the extent that begins and ends at once.
fn fetch(lines: &mut Lines, offset: u64, length: u64, ahead: bool) -> Vec<Copy> {
    let mut copies = Vec::new();
    let fill = lines.begin(VOLUME, Extent::new(offset, length), ahead);
    lines.end(fill, true, &mut copies);
    copies
}

fn read(lines: &mut Lines, offset: u64, length: u64) -> (Cover, Vec<Copy>) {
    let mut copies = Vec::new();
    (lines.read(VOLUME, Extent::new(offset, length), &mut copies), copies)
}

fn copy(frame: u32, at: u32, offset: u64, length: u32) -> Copy {
    Copy { frame: Frame::new(frame), at, offset, length }
}

/// A buffer with the bytes that the shell would keep: for each frame the version of each sector.
struct Rig {
    lines: Lines,
    frames: Vec<[Option<u64>; 64]>,
    /// What upstream has; a sector that is not here has version 0.
    upstream: BTreeMap<(VolumeId, u64), u64>,
    /// What each running fill has read.
    running: Vec<(FillId, VolumeId, Extent, Vec<u64>)>,
    version: u64,
}

impl Rig {
    fn new(frames: u32, line: u32, policy: &str) -> Self {
        Self {
            lines: lines(frames, line, policy),
            frames: alloc::vec![[None; 64]; frames as usize],
            upstream: BTreeMap::new(),
            running: Vec::new(),
            version: 0,
        }
    }

    fn now(&self, volume: VolumeId, extent: Extent) -> Vec<u64> {
        let sectors = extent.offset / SECTOR..extent.end().unwrap() / SECTOR;
        sectors.map(|sector| *self.upstream.get(&(volume, sector)).unwrap_or(&0)).collect()
    }

    fn write(&mut self, volume: VolumeId, extent: Extent) {
        self.version += 1;
        for sector in extent.offset / SECTOR..extent.end().unwrap() / SECTOR {
            self.upstream.insert((volume, sector), self.version);
        }
    }

    fn store(&mut self, copies: &[Copy], data: &[u64]) {
        for copy in copies {
            for n in 0..u64::from(copy.length) / SECTOR {
                let sector = u64::from(copy.at) / SECTOR + n;
                let version = data[(copy.offset / SECTOR + n) as usize];
                self.frames[copy.frame.index()][sector as usize] = Some(version);
            }
        }
    }

    /// A read: what it finds is the newest there is, in ascending order, and as much as it says.
    fn check(&mut self, volume: VolumeId, extent: Extent) {
        let mut copies = Vec::new();
        let cover = self.lines.read(volume, extent, &mut copies);
        let newest = self.now(volume, extent);
        let (mut end, mut bytes) = (0, 0);
        for copy in &copies {
            assert!(copy.length > 0 && copy.offset >= end, "{copies:?}");
            end = copy.offset + u64::from(copy.length);
            bytes += u64::from(copy.length);
            for n in 0..u64::from(copy.length) / SECTOR {
                let sector = u64::from(copy.at) / SECTOR + n;
                let found = self.frames[copy.frame.index()][sector as usize];
                assert_eq!(found, Some(newest[(copy.offset / SECTOR + n) as usize]), "{extent:?}");
            }
        }
        assert!(end <= extent.length, "{copies:?} of {extent:?}");
        assert_eq!(cover == Cover::All, bytes == extent.length);
        assert_eq!(cover == Cover::None, bytes == 0);
    }

    fn step(&mut self, rng: &mut Rng) {
        let volume = VolumeId::new(rng.below(2) as u32);
        let extent = Extent::new(rng.below(96) * SECTOR, (1 + rng.below(24)) * SECTOR);
        match rng.below(10) {
            0..3 => self.check(volume, extent),
            3..6 => {
                let fill = self.lines.begin(volume, extent, rng.below(3) == 0);
                self.running.push((fill, volume, extent, self.now(volume, extent)));
            }
            6..8 if !self.running.is_empty() => {
                let place = rng.below(self.running.len() as u64) as usize;
                let (fill, _, _, data) = self.running.swap_remove(place);
                let mut copies = Vec::new();
                let ok = rng.below(8) > 0;
                self.lines.end(fill, ok, &mut copies);
                assert!(ok || copies.is_empty());
                self.store(&copies, &data);
            }
            6..9 => {
                self.write(volume, extent);
                let mut copies = Vec::new();
                if rng.below(2) == 0 {
                    self.lines.wrote(volume, extent);
                } else {
                    self.lines.put(volume, extent, &mut copies);
                }
                self.store(&copies, &self.now(volume, extent));
            }
            _ if rng.below(20) == 0 => self.lines.forget(volume),
            _ => {}
        }
        assert!(self.lines.resident() as usize <= self.frames.len());
    }
}

/// Whatever is fetched, written and given up in any order: what a read finds is the newest data, wholly in
/// frames if the answer says so, and never more lines are here than there are frames.
#[test]
fn reads_find_the_newest() {
    for policy in evict::POLICIES {
        for (frames, line) in [(0, 4096), (1, 512), (3, 1024), (7, 4096), (40, 512), (5, 32768)] {
            let mut rng = Rng::stream(u64::from(frames), policy.name);
            let mut rig = Rig::new(frames, line, policy.name);
            for _ in 0..20_000 {
                rig.step(&mut rng);
            }
            let stats = *rig.lines.stats();
            assert_eq!(stats.installed > 0, frames > 0, "{stats:?}");
            let gone = stats.evicted + stats.dropped;
            assert_eq!(stats.installed - gone, u64::from(rig.lines.resident()), "{stats:?}");
        }
    }
}

/// Sectors are here one by one: a fetch of some of a line leaves the others absent, a second fetch copies
/// only what the first did not bring, and a write takes out exactly what it wrote.
#[test]
fn a_line_need_not_be_whole() {
    let mut lines = lines(2, 4096, "fifo");
    assert_eq!(fetch(&mut lines, 4096 + 512, 1024, false), [copy(0, 512, 0, 1024)]);
    assert_eq!(read(&mut lines, 4096 + 512, 1024), (Cover::All, [copy(0, 512, 0, 1024)].into()));
    let part = (Cover::Part, [copy(0, 512, 512, 1024)].into());
    assert_eq!(read(&mut lines, 4096, 2048), part);
    assert_eq!(read(&mut lines, 4096, 512), (Cover::None, Vec::new()));
    let both = [copy(0, 0, 0, 512), copy(0, 1536, 1536, 2560)];
    assert_eq!(fetch(&mut lines, 4096, 4096, false), both);
    lines.wrote(VOLUME, Extent::new(4096 + 1024, 512));
    let around = [copy(0, 0, 0, 1024), copy(0, 1536, 1536, 2560)];
    assert_eq!(read(&mut lines, 4096, 4096), (Cover::Part, around.into()));
    assert_eq!(lines.resident(), 1);
    lines.wrote(VOLUME, Extent::new(0, 8192));
    assert_eq!((lines.resident(), lines.stats().dropped), (0, 1));
}

/// A read over several lines is put together from their frames, and one that is not on sectors gets just
/// its bytes; of a fetch that is not, only whole sectors come in.
#[test]
fn pieces_are_cut_to_the_extent() {
    let mut lines = lines(3, 1024, "fifo");
    let copies = [copy(0, 0, 256, 1024), copy(1, 0, 1280, 512)];
    assert_eq!(fetch(&mut lines, 1024 - 256, 2000, false), copies);
    assert_eq!(read(&mut lines, 1024 + 100, 1200), {
        (Cover::All, [copy(0, 100, 0, 924), copy(1, 0, 924, 276)].into())
    });
    assert_eq!(read(&mut lines, 1024 - 100, 200), (Cover::Part, [copy(0, 0, 100, 100)].into()));
}

/// A write between the beginning and the end of a fetch keeps exactly its sectors out, however often and
/// in whichever parts; `exclude` does the same for one fetch, and other volumes are not concerned.
#[test]
fn what_was_written_is_not_filled() {
    let mut lines = lines(600, 512, "fifo");
    let extent = Extent::new(512 * 70, 512 * 300);
    let fills = [VOLUME, VOLUME, VolumeId::new(1)].map(|volume| lines.begin(volume, extent, false));
    lines.wrote(VOLUME, Extent::new(0, 512 * 71));
    lines.wrote(VOLUME, Extent::new(512 * 72, 512));
    lines.wrote(VOLUME, Extent::new(512 * 133 + 511, 2));
    lines.wrote(VOLUME, Extent::new(512 * 369, 512 * 1000));
    lines.wrote(VOLUME, Extent::new(512 * 370, 512));
    lines.exclude(fills[1], Extent::new(512 * 100, 512 * 2));
    let kept = [70, 72, 133, 134, 369];
    for (fill, out) in fills.into_iter().zip([kept.to_vec(), [100, 101].to_vec(), Vec::new()]) {
        let mut copies = Vec::new();
        lines.end(fill, true, &mut copies);
        // The first fill has brought everything that the second would, but for what it excludes.
        let sectors: Vec<u64> = copies.iter().map(|copy| copy.offset / 512 + 70).collect();
        let expected: Vec<u64> = match out.as_slice() {
            [] => (70..370).collect(),
            [100, 101] => Vec::new(),
            kept => (70..370).filter(|sector| !kept.contains(sector)).collect(),
        };
        assert_eq!(sectors, expected);
    }
}

/// A second reader finds the fetch that is in flight, but not of one that brings nothing it wants: of
/// another volume, of other bytes, of bytes that were written since, or of one that has ended.
#[test]
fn one_fetch_serves_all() {
    let mut lines = lines(8, 4096, "fifo");
    let fill = lines.begin(VOLUME, Extent::new(8192, 8192), false);
    let long = lines.begin(VOLUME, Extent::new(1 << 20, 1 << 20), true);
    let find = |lines: &Lines, offset, length| lines.filling(VOLUME, Extent::new(offset, length));
    assert_eq!(find(&lines, 0, 8193), Some(fill));
    assert_eq!(find(&lines, 16383, 512), Some(fill));
    assert_eq!(find(&lines, 0, 8192), None);
    assert_eq!(find(&lines, 16384, 512), None);
    assert_eq!(find(&lines, (2 << 20) - 512, 512), Some(long));
    assert_eq!(lines.filling(VolumeId::new(1), Extent::new(8192, 512)), None);
    lines.wrote(VOLUME, Extent::new(8192, 4096));
    assert_eq!(find(&lines, 8192, 4096), None);
    assert_eq!(find(&lines, 8192, 4097), Some(fill));
    lines.end(fill, false, &mut Vec::new());
    assert_eq!(find(&lines, 8192, 8192), None);
    assert_eq!(read(&mut lines, 8192, 8192).0, Cover::None);
}

/// What is lacking is in whole lines, without those at either end that are here or coming.
#[test]
fn lacking_is_what_nobody_brings() {
    let mut lines = lines(8, 4096, "fifo");
    let lacking = |lines: &Lines, offset, length| {
        let extent = lines.lacking(VOLUME, Extent::new(offset, length))?;
        Some((extent.offset, extent.length))
    };
    assert_eq!(lacking(&lines, 4096 + 512, 512), Some((4096, 4096)));
    fetch(&mut lines, 4096, 4096, false);
    assert_eq!(lacking(&lines, 4096 + 512, 512), None);
    assert_eq!(lacking(&lines, 0, 4 * 4096), Some((0, 4 * 4096)));
    assert_eq!(lacking(&lines, 4096, 3 * 4096), Some((2 * 4096, 2 * 4096)));
    lines.begin(VOLUME, Extent::new(3 * 4096, 4096), false);
    assert_eq!(lacking(&lines, 4096, 3 * 4096), Some((2 * 4096, 4096)));
    lines.wrote(VOLUME, Extent::new(3 * 4096 + 512, 512));
    assert_eq!(lacking(&lines, 3 * 4096, 512), None);
    assert_eq!(lacking(&lines, 3 * 4096, 1024), Some((3 * 4096, 4096)));
}

/// The payload of a write can be kept, and a fetch that began before it brings nothing of it.
#[test]
fn writes_can_stay() {
    let mut lines = lines(8, 4096, "fifo");
    let fill = lines.begin(VOLUME, Extent::new(0, 8192), false);
    let mut copies = Vec::new();
    lines.put(VOLUME, Extent::new(512, 4096), &mut copies);
    assert_eq!(copies, [copy(0, 512, 0, 3584), copy(1, 0, 3584, 512)]);
    copies.clear();
    lines.end(fill, true, &mut copies);
    assert_eq!(copies, [copy(0, 0, 0, 512), copy(1, 512, 4608, 3584)]);
}

/// A line that is written while it is here keeps its place, counts as used, and gets the payload; what was
/// fetched ahead and is written before it was read was fetched for nothing. Of a sector that is not written
/// as a whole nothing stays.
#[test]
fn a_written_line_keeps_its_place() {
    let mut lines = lines(2, 1024, "lru");
    fetch(&mut lines, 0, 1024, false);
    fetch(&mut lines, 1024, 1024, true);
    let mut copies = Vec::new();
    lines.put(VOLUME, Extent::new(0, 1024), &mut copies);
    assert_eq!(copies, [copy(0, 0, 0, 1024)]);
    assert_eq!((lines.stats().dropped, lines.stats().installed), (0, 2));
    fetch(&mut lines, 4096, 512, false);
    assert_eq!(read(&mut lines, 0, 1024).0, Cover::All);
    assert_eq!(lines.take_judged(), Some(Judged { volume: VOLUME, used: 0, wasted: 1 }));
    fetch(&mut lines, 1024, 1024, true);
    copies.clear();
    lines.put(VOLUME, Extent::new(700, 900), &mut copies);
    assert_eq!(copies, [copy(1, 0, 324, 512)]);
    assert_eq!(lines.take_judged(), Some(Judged { volume: VOLUME, used: 0, wasted: 1 }));
    let left = (Cover::Part, [copy(0, 0, 0, 512), copy(1, 0, 1024, 512)].into());
    assert_eq!(read(&mut lines, 0, 2048), left);
    copies.clear();
    lines.put(VOLUME, Extent::new(100, 200), &mut copies);
    assert_eq!((copies, read(&mut lines, 0, 1024).0), (Vec::new(), Cover::None));
}

/// A line that was fetched ahead is judged once: used when a host reads it first, wasted when it goes
/// before that, for whatever reason. Its first read is no use to the policy, its second is.
#[test]
fn lines_fetched_ahead_are_judged() {
    let mut lines = lines(2, 512, "lru");
    fetch(&mut lines, 0, 1024, true);
    assert_eq!(lines.take_judged(), None);
    read(&mut lines, 0, 512);
    read(&mut lines, 0, 512);
    assert_eq!(lines.take_judged(), Some(Judged { volume: VOLUME, used: 1, wasted: 0 }));
    // The second line goes, since the first has been used since.
    fetch(&mut lines, 1024, 512, true);
    assert_eq!(lines.take_judged(), Some(Judged { volume: VOLUME, used: 0, wasted: 1 }));
    assert_eq!(read(&mut lines, 0, 512).0, Cover::All);
    read(&mut lines, 1024, 512);
    // Read once, it has not been used: the first line has been used after it came, but before.
    fetch(&mut lines, 2048, 512, false);
    assert_eq!(read(&mut lines, 0, 512).0, Cover::All);
    fetch(&mut lines, 4096, 512, true);
    lines.wrote(VOLUME, Extent::new(4096, 512));
    assert_eq!(lines.take_judged(), Some(Judged { volume: VOLUME, used: 1, wasted: 1 }));
    assert_eq!((lines.stats().ahead_used, lines.stats().ahead_wasted), (2, 2));
}

/// A volume that is forgotten leaves nothing, and what was on its way to it brings nothing; another volume
/// keeps all.
#[test]
fn a_volume_can_be_forgotten() {
    let mut lines = lines(8, 512, "s3-fifo");
    let other = VolumeId::new(1);
    fetch(&mut lines, 0, 1024, false);
    lines.put(other, Extent::new(0, 1024), &mut Vec::new());
    let fills = [VOLUME, other].map(|volume| lines.begin(volume, Extent::new(1024, 512), false));
    lines.forget(VOLUME);
    assert_eq!(lines.resident(), 2);
    for (fill, count) in fills.into_iter().zip([0, 1]) {
        let mut copies = Vec::new();
        lines.end(fill, true, &mut copies);
        assert_eq!(copies.len(), count);
    }
    assert_eq!(read(&mut lines, 0, 512).0, Cover::None);
    assert_eq!(lines.look(other, Extent::new(0, 1536), &mut Vec::new()), Cover::All);
}

/// Without frames everything misses, nothing stays, and no read waits for what will not stay.
#[test]
fn no_frames_no_hits() {
    let mut lines = lines(0, 4096, "s3-fifo");
    let fill = lines.begin(VOLUME, Extent::new(0, 4096), false);
    assert_eq!(lines.filling(VOLUME, Extent::new(0, 4096)), None);
    let mut copies = Vec::new();
    lines.end(fill, true, &mut copies);
    lines.put(VOLUME, Extent::new(0, 4096), &mut copies);
    assert_eq!((copies, read(&mut lines, 0, 4096).0), (Vec::new(), Cover::None));
}

/// Looking counts nothing and uses nothing: a line that is only looked at goes first.
#[test]
fn looking_is_not_using() {
    let mut lines = lines(2, 512, "lru");
    fetch(&mut lines, 0, 1024, false);
    lines.look(VOLUME, Extent::new(0, 512), &mut Vec::new());
    fetch(&mut lines, 1024, 512, false);
    assert_eq!(read(&mut lines, 0, 512).0, Cover::None);
    assert_eq!((lines.stats().misses, lines.stats().hits), (1, 0));
}

/// Memory for each line is what the documentation says, and nothing is added by use.
#[test]
fn memory_is_bounded() {
    for frames in [150_000, 175_000, 196_607, 196_608, 262_144] {
        let mut lines = lines(frames, 4096, "s3-fifo");
        let before = lines.memory();
        let each = before.div_ceil(frames as usize);
        assert!((55..=67).contains(&each), "{each} bytes for each of {frames} lines");
        for n in 0..1_000 {
            fetch(&mut lines, n * 7_777_777 / 4096 * 4096, 1 << 20, n % 2 == 0);
        }
        assert_eq!(lines.memory(), before);
    }
}

/// A line that is no power of two, or too small or large, is a bug of the caller that builds the buffer.
#[test]
#[should_panic(expected = "a line is a power of two from 512 bytes to 32 KiB, not 3072 bytes")]
fn odd_lines_are_refused() {
    lines(1, 3072, "fifo");
}

/// A frame that is freed twice would be given to two lines.
#[test]
#[should_panic(expected = "a frame is freed once")]
fn a_frame_is_freed_once() {
    let mut lines = lines(1, 4096, "lru");
    lines.drop_line(Frame::new(0));
}

/// A frame that was freed with sectors in it would show one line's bytes as another's.
#[test]
#[should_panic(expected = "a free frame holds nothing")]
fn a_free_frame_is_empty() {
    let mut lines = lines(1, 4096, "lru");
    lines.sectors.set(0, 1);
    lines.admit(Line::new(VOLUME, 0), false);
}

/// Sectors that a fill has not read are not installed.
#[test]
#[should_panic(expected = "a fill installs what it has read")]
fn a_fill_installs_what_it_has_read() {
    let mut lines = lines(1, 4096, "lru");
    let extent = Extent::new(0, 512);
    let piece = pieces(4096, VOLUME, extent).next().unwrap();
    lines.install(piece, 3, extent, false, &mut Vec::new());
}
