use super::*;
use std::collections::BTreeMap;
use weir_flow::rng::Rng;
use weir_flow::settings::Settings as _;
use weir_flow::units::Extent;

/// A small device: two chips of 64 blocks of 8 pages.
fn small() -> Config {
    Config { chips: 2, blocks: 64, pages: 8, spare_permille: 250, ..Config::paper() }
}

fn at(micros: u64) -> Instant {
    Instant::ZERO + Duration::from_micros(micros)
}

fn io(id: u64, op: Op, page: u64, pages: u64) -> DeviceIo {
    DeviceIo { id, op, extent: Extent::new(page * 4_096, pages * 4_096), fua: false }
}

/// Everything that ends, in order, in microseconds.
fn ends(device: &mut Ssd) -> Vec<(u64, u64)> {
    let mut ends = Vec::new();
    while let Some(end) = device.next() {
        let (id, outcome) = device.finished(end).unwrap();
        assert_eq!(outcome, Ok(()));
        ends.push((id, end.as_nanos() / 1_000));
    }
    ends
}

/// Reads take 150 us and programs 1000 us on a chip, one after the other; four pages of a request meet
/// four chips of the paper's device.
#[test]
fn the_papers_device_is_as_by_hand() {
    let mut device = Ssd::new(Config::paper());
    device.start(at(0), io(0, Op::Read, 0, 4));
    device.start(at(0), io(1, Op::Read, 4, 1));
    device.start(at(0), io(2, Op::Write, 8, 4));
    device.start(at(0), io(3, Op::Read, 8, 1));
    device.start(at(0), io(4, Op::Flush, 0, 0));
    assert_eq!(ends(&mut device), [(0, 150), (1, 300), (2, 1_300), (4, 1_300), (3, 1_450)]);
}

/// With two registers reads follow each other by the register's 100 us, programs by the cells' 900 us.
#[test]
fn a_pipelined_chip_overlaps_register_and_cells() {
    let config = Config { chips: 1, pipelined: true, ..small() };
    let mut device = Ssd::new(config);
    for id in 0..3 {
        device.start(at(0), io(id, Op::Read, id, 1));
    }
    for id in 3..6 {
        device.start(at(1_000), io(id, Op::Write, id, 1));
    }
    let expected = [(0, 150), (1, 250), (2, 350), (3, 2_000), (4, 2_900), (5, 3_800)];
    assert_eq!(ends(&mut device), expected);
}

/// A buffer of two pages acknowledges two writes at once, the third when the first is programmed; a flush
/// waits for all.
#[test]
fn a_buffer_acknowledges_early_until_it_is_full() {
    let mut device = Ssd::new(Config { chips: 1, buffer: 2, ..small() });
    for id in 0..3 {
        device.start(at(0), io(id, Op::Write, id, 1));
    }
    device.start(at(0), io(3, Op::Flush, 0, 0));
    assert_eq!(ends(&mut device), [(0, 0), (1, 0), (2, 1_000), (3, 3_000)]);
}

/// A write that has to be durable when it ends waits for its own page, buffer or not, and for no other.
#[test]
fn a_buffer_ends_no_durable_write_early() {
    let mut device = Ssd::new(Config { chips: 2, buffer: 8, ..small() });
    let durable = |io| DeviceIo { fua: true, ..io };
    device.start(at(0), io(0, Op::Write, 0, 1));
    device.start(at(0), durable(io(1, Op::Write, 1, 1)));
    device.start(at(0), io(2, Op::Write, 2, 1));
    device.start(at(0), durable(io(3, Op::Write, 3, 2)));
    assert_eq!(ends(&mut device), [(0, 0), (2, 0), (1, 1_000), (3, 3_000)]);
}

/// A write of half a page reads the page first, and so do zeroes; discards and what is past the end do no
/// harm.
#[test]
fn odd_extents_are_served() {
    let config = small();
    let mut device = Ssd::new(config);
    device
        .start(at(0), DeviceIo { id: 0, op: Op::Write, extent: Extent::new(512, 512), fua: false });
    assert_eq!(ends(&mut device), [(0, 1_150)]);
    device.start(at(2_000), io(1, Op::Discard, 0, 700));
    device.start(at(2_000), io(2, Op::Read, config.capacity_pages() + 1, 1));
    assert_eq!(ends(&mut device), [(1, 2_000), (2, 2_150)]);
    let half = |id, op| DeviceIo { id, op, extent: Extent::new(512, 512), fua: false };
    device.start(at(4_000), half(3, Op::Discard));
    device.start(at(4_000), half(4, Op::WriteZeroes));
    assert_eq!(ends(&mut device), [(3, 4_000), (4, 5_150)]);
}

/// A page that was discarded needs not be moved: a device that is written again and again in full moves
/// fewer pages when half of it is discarded first.
#[test]
fn what_is_discarded_is_not_moved() {
    let moves = |discards: bool| {
        let config = Config { filled_permille: 1_000, ..small() };
        let mut device = Ssd::new(config);
        let pages = config.capacity_pages();
        if discards {
            device.start(at(0), io(0, Op::Discard, pages / 2, pages - pages / 2));
        }
        let mut rng = Rng::stream(3, "writes");
        for id in 1..20_000 {
            device.start(at(0), io(id, Op::Write, rng.below(pages / 2), 1));
        }
        device.wear().unwrap().moves
    };
    let (with, without) = (moves(true), moves(false));
    assert!(4 * with < without, "{with} moves, {without} without a discard");
}

/// Stores that share flash lie on whole pages one behind the other; of what has no addresses each has all.
#[test]
fn stores_share_flash_page_by_page() {
    let model = crate::Model::Ssd(small());
    assert_eq!(model.regions([4_096, 512, 8_192]), (vec![0, 4_096, 8_192], 16_384));
    assert_eq!(model.capacity(), Some(small().capacity()));
    let fixed = crate::Model::Fixed(crate::fixed::Config::default());
    assert_eq!(fixed.regions([4_096, 512]), (vec![0, 0], 0));
    assert_eq!(fixed.capacity(), None);
    assert_eq!(model.regions([u64::MAX, u64::MAX]).1, u64::MAX, "no sum passes the end");
}

/// After hundreds of overwrites in any pattern every page is where a simple model has it or was never
/// written, counts of valid pages are right, and no chip ever runs out.
#[test]
fn garbage_collection_loses_nothing() {
    for (seed, spare_permille) in [(1, 250), (2, 250), (3, 400)] {
        let config = Config { spare_permille, ..small() };
        let mut ftl = Ftl::new(&config);
        let mut rng = Rng::stream(seed, "ftl");
        let mut model = BTreeMap::new();
        let pages = ftl.capacity();
        for step in 0..40_000_u32 {
            // In turn everywhere, in a tenth, and all pages in order.
            let page = match step / 10_000 {
                0 | 3 => rng.below(u64::from(pages)) as u32,
                1 => rng.below(u64::from(pages / 10)) as u32,
                _ => step % pages,
            };
            if rng.below(20) == 0 {
                ftl.trim(page);
                model.remove(&page);
                continue;
            }
            let chip = ftl.place(rng.below(3) as usize);
            for _ in 0..ftl.moves_due(chip) {
                ftl.step(chip);
            }
            ftl.write(page, chip);
            model.insert(page, chip);
        }
        for page in 0..pages {
            let chip = model.get(&page).copied().unwrap_or(page % 2);
            assert_eq!(ftl.chip(page), chip, "page {page}");
        }
        ftl.check();
        let wear = ftl.wear();
        assert!(wear.erases > 1_000 && wear.amplification > 1.0, "{wear:?}");
        // The order in which blocks are used levels.
        let mean = wear.erases / u64::from(config.chips * config.blocks);
        assert!(u64::from(wear.most) < 4 * mean, "{wear:?}");
    }
}

/// Pages programmed for each page written, in the long run.
fn amplification(config: &Config, random: bool) -> f64 {
    let mut ftl = Ftl::new(config);
    let mut rng = Rng::stream(5, "amplification");
    let mut before = ftl.wear();
    for round in 0..7 {
        for page in 0..ftl.capacity() {
            let random = random && round > 0;
            let page = if random { rng.below(u64::from(ftl.capacity())) as u32 } else { page };
            let chip = ftl.place(0);
            for _ in 0..ftl.moves_due(chip) {
                ftl.step(chip);
            }
            ftl.write(page, chip);
        }
        if round == 3 {
            before = ftl.wear();
        }
    }
    let after = ftl.wear();
    let programs = (after.programs - before.programs) as f64;
    (programs + (after.moves - before.moves) as f64) / programs
}

/// Pages programmed for each page written when blocks of `pages` are collected by the fewest valid ones, the share
/// `utilisation` of all of them is valid, and writes are at random (Desnoyers 2012; Van Houdt 2013), for very many
/// blocks.
///
/// A block that has been written loses its valid pages one by one, each as soon as any other. As many blocks pass
/// each number i of valid pages, so that `c / i` of them have i; what has `least` is taken, or a page later if
/// that is gone first. Shares of blocks add up to one and their valid pages to the utilisation.
fn greedy(pages: u32, utilisation: f64) -> f64 {
    let all = f64::from(pages);
    for least in 1..pages {
        let (low, above) = (f64::from(least), (least + 1..=pages).map(|i| 1.0 / f64::from(i)));
        let above: f64 = above.sum();
        let c = (utilisation * all - low) / (all - low - low * above);
        let waits = low * (1.0 - c * above);
        if c > 0.0 && (0.0..=c).contains(&waits) {
            return all / (all - (low - waits / c));
        }
    }
    panic!("no block is taken at {utilisation}");
}

/// Written in order, again and again, nothing has to be moved; at random as much as has to be with the collector
/// that takes the block with the fewest valid pages.
#[test]
fn amplification_is_that_of_greedy_collection() {
    for spare_permille in [100, 200, 300] {
        let config = Config { chips: 1, blocks: 512, pages: 64, spare_permille, ..small() };
        let in_order = amplification(&config, false);
        assert!((in_order - 1.0).abs() < 1e-9, "{in_order}");
        // Three blocks are erased; on average the two open ones are half written, and the victim is half emptied.
        let written = 512.0 - 3.0 - 3.0 / 2.0;
        let utilisation = config.capacity_pages() as f64 / (written * 64.0);
        let (expected, measured) = (greedy(64, utilisation), amplification(&config, true));
        let ratio = measured / expected;
        assert!((0.99..1.01).contains(&ratio), "{spare_permille}: {measured}, not {expected}");
    }
}

/// The presets are in range, hold what they should, and keep the state per page small.
#[test]
fn presets_are_sound() {
    assert_eq!(Config::paper().pages_in_all() * 4_096, 16 << 30);
    for bytes in [16 << 30, 1 << 40, 7 << 40] {
        let config = Config::nvme(bytes);
        assert_eq!(config.validate(), Ok(()));
        assert!(config.capacity() >= bytes && config.capacity() < bytes + bytes / 8 + (1 << 30));
    }
    for config in [Config::paper(), Config::nvme(16 << 30), Config::nvme(256 << 30)] {
        let (bytes, pages) = (Ftl::new(&config).bytes() as u64, config.pages_in_all());
        assert!(bytes > 7 * pages && bytes <= 8 * pages, "{bytes} bytes for {pages} pages");
    }
    for (spare_permille, bytes) in [(20, 1), (70, 1 << 30), (900, 64 << 30)] {
        let config = Config { spare_permille, ..Config::paper() }.with_capacity(bytes);
        assert_eq!(config.validate(), Ok(()), "{config:?}");
        assert!(config.capacity() >= bytes, "{config:?}");
    }
    let huge = Config::paper().with_capacity(u64::MAX);
    assert!(huge.validate().is_err_and(|invalid| invalid.name() == "blocks"));
    let bad = Config { spare_permille: 20, ..small() };
    assert!(bad.validate().is_err_and(|invalid| invalid.name() == "spare_permille"));
    let bad = Config { chips: 0, ..small() };
    assert_eq!(bad.validate(), Err(Invalid::Range("chips")));
}
