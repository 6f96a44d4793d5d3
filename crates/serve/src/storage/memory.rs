//! Stores without a disk: one in memory, and one that keeps nothing. They are for measuring front ends and for tests.

use crate::buffer::{Shared, Use};
use std::cell::{Cell, RefCell};

/// Bytes that are in memory, or nowhere.
#[derive(Debug)]
pub(crate) struct Memory {
    capacity: Cell<u64>,
    /// `None`: writes are dropped, and reads give zeroes.
    pages: Option<RefCell<Pages>>,
}

impl Memory {
    /// A store of this many bytes, all of them zero. One that does not keep data drops what is written.
    pub(crate) fn new(capacity: u64, keeps: bool) -> Self {
        let pages = keeps.then(RefCell::default);
        Self { capacity: Cell::new(capacity), pages }
    }

    /// Its size in bytes.
    pub(crate) const fn capacity(&self) -> u64 {
        self.capacity.get()
    }

    /// Whether reads give what was written.
    pub(crate) const fn keeps(&self) -> bool {
        self.pages.is_some()
    }

    /// Makes it larger; it never gets smaller.
    pub(crate) fn grow(&self, capacity: u64) {
        self.capacity.set(self.capacity.get().max(capacity));
    }

    /// Fills `length` bytes of a buffer from `at` on.
    pub(super) fn read(&self, offset: u64, buffer: &Shared, at: usize, length: usize) {
        buffer.lend(at, length, Use::Fill);
        match &self.pages {
            None => zero(buffer, at, length),
            Some(pages) => {
                let pages = pages.borrow();
                for piece in pieces(offset, length as u64) {
                    let at = at + piece.done as usize;
                    match pages.get(piece.page) {
                        Some(page) => buffer.fill(at, &page[piece.begin..piece.end]),
                        None => zero(buffer, at, piece.end - piece.begin),
                    }
                }
            }
        }
        buffer.take_back(Use::Fill);
    }

    pub(super) fn write(&self, offset: u64, bytes: &[u8]) {
        let Some(pages) = &self.pages else { return };
        let mut pages = pages.borrow_mut();
        for piece in pieces(offset, bytes.len() as u64) {
            let from = piece.done as usize;
            let length = piece.end - piece.begin;
            pages.make(piece.page)[piece.begin..piece.end]
                .copy_from_slice(&bytes[from..from + length]);
        }
    }

    /// How many pages take memory, as counted in two ways.
    #[cfg(test)]
    pub(super) fn pages_held(&self) -> usize {
        let pages = self.pages.as_ref().expect("it keeps data").borrow();
        let used = pages.tables.iter().flatten().map(|table| table.used);
        let counted = pages.tables.iter().flatten().flat_map(|table| &table.pages).flatten();
        assert_eq!(used.clone().sum::<usize>(), counted.count());
        assert!(used.clone().all(|used| used > 0), "an empty table stays");
        used.sum()
    }

    /// Makes a range read as zeroes. Whole pages are freed.
    pub(super) fn clear(&self, offset: u64, length: u64) {
        let Some(pages) = &self.pages else { return };
        pages.borrow_mut().clear(offset, length);
    }
}

impl Drop for Memory {
    /// Freeing many pages takes long; the event loop does not wait for it.
    fn drop(&mut self) {
        let Some(pages) = self.pages.take() else { return };
        let pages = pages.into_inner();
        if pages.tables.len() > TABLES_FREED_AT_ONCE {
            let name = "weir-free".to_owned();
            // Without a thread the pages are freed here.
            let _ = std::thread::Builder::new().name(name).spawn(move || drop(pages));
        }
    }
}

/// The part of a range that is in one page.
struct Piece {
    page: u64,
    begin: usize,
    end: usize,
    /// Bytes of the range before it.
    done: u64,
}

fn pieces(offset: u64, length: u64) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let left = length - done;
        if left == 0 {
            return None;
        }
        let at = offset + done;
        let begin = at % PAGE as u64;
        let end = (begin + left).min(PAGE as u64);
        let piece =
            Piece { page: at / PAGE as u64, begin: begin as usize, end: end as usize, done };
        done += end - begin;
        Some(piece)
    })
}

fn zero(buffer: &Shared, at: usize, length: usize) {
    for done in (0..length).step_by(PAGE) {
        buffer.fill(at + done, &ZEROES[..PAGE.min(length - done)]);
    }
}

type Page = Box<[u8]>;

/// The pages that were written, in tables of as many as a table has places for.
#[derive(Debug, Default)]
struct Pages {
    tables: Vec<Option<Box<Table>>>,
}

#[derive(Debug)]
struct Table {
    pages: [Option<Page>; TABLE],
    used: usize,
}

impl Pages {
    fn get(&self, page: u64) -> Option<&Page> {
        let (table, place) = place(page);
        self.tables.get(table)?.as_ref()?.pages[place].as_ref()
    }

    fn make(&mut self, page: u64) -> &mut Page {
        let (table, place) = place(page);
        if self.tables.len() <= table {
            self.tables.resize_with(table + 1, || None);
        }
        let empty = || Box::new(Table { pages: [const { None }; TABLE], used: 0 });
        let table = self.tables[table].get_or_insert_with(empty);
        let Table { pages, used } = &mut **table;
        pages[place].get_or_insert_with(|| {
            *used += 1;
            vec![0; PAGE].into_boxed_slice()
        })
    }

    fn clear(&mut self, offset: u64, length: u64) {
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let (table, place) = place(at / PAGE as u64);
            let Some(one) = self.tables.get_mut(table).and_then(Option::as_mut) else {
                // Nothing up to the next table.
                at = (table as u64 + 1) * (TABLE * PAGE) as u64;
                continue;
            };
            let begin = (at % PAGE as u64) as usize;
            let next = (at - begin as u64 + PAGE as u64).min(end);
            let stop = begin + (next - at) as usize;
            let Table { pages, used } = &mut **one;
            if begin == 0 && stop == PAGE {
                *used -= usize::from(pages[place].take().is_some());
            } else if let Some(page) = &mut pages[place] {
                page[begin..stop].fill(0);
            }
            if one.used == 0 {
                self.tables[table] = None;
            }
            at = next;
        }
    }
}

/// The table of a page, and the place in it.
const fn place(page: u64) -> (usize, usize) {
    let page = page as usize;
    (page / TABLE, page % TABLE)
}

/// Bytes of a page: the unit in which memory is taken and freed.
pub(super) const PAGE: usize = 4_096;

/// Pages of a table: 2 MiB of the store.
const TABLE: usize = 512;

static ZEROES: [u8; PAGE] = [0; PAGE];

/// Tables, each of 2 MiB, that are freed without a thread for it.
const TABLES_FREED_AT_ONCE: usize = 16;
