//! The content of sectors, stored once per distinct content.

use std::collections::BTreeMap;
use weir_flow::rng::mix;

/// Bytes of a sector: what a device writes whole or not at all.
pub(super) const SECTOR: usize = 512;

/// One sector's bytes.
pub(super) type Bytes = [u8; SECTOR];

/// Names the bytes of a sector: equal ones have one name. Zero is a sector of zeroes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Content(u32);

/// A device's sectors, from its first.
pub(super) type Image = Vec<Content>;

/// All sectors that were ever written in a run.
pub(super) struct Store {
    bytes: Vec<Bytes>,
    hashes: Vec<u64>,
    tokens: Vec<Option<u64>>,
    names: BTreeMap<u64, Content>,
}

impl Store {
    pub(super) fn new() -> Self {
        let mut store = Self {
            bytes: Vec::new(),
            hashes: Vec::new(),
            tokens: Vec::new(),
            names: BTreeMap::new(),
        };
        store.name(&[0; SECTOR]);
        store
    }

    /// The name of these bytes.
    pub(super) fn name(&mut self, bytes: &Bytes) -> Content {
        let mut hash = hash(bytes);
        loop {
            match self.names.get(&hash) {
                Some(&name) if self.bytes[name.0 as usize] == *bytes => return name,
                // Two sectors with one hash: never seen, and not to be taken for each other.
                Some(_) => hash = mix(hash),
                None => break,
            }
        }
        let name = Content(self.bytes.len() as u32);
        self.bytes.push(*bytes);
        self.hashes.push(hash);
        self.tokens.push(token(bytes));
        self.names.insert(hash, name);
        name
    }

    /// The number of these bytes; what is made of several writes gets one that no host writes.
    pub(super) fn number(&mut self, bytes: &Bytes) -> u64 {
        let name = self.name(bytes).0;
        *self.tokens[name as usize].get_or_insert(OF_MIXTURES + u64::from(name))
    }

    pub(super) fn bytes(&self, content: Content) -> &Bytes {
        &self.bytes[content.0 as usize]
    }

    /// What a host wrote into these bytes, which may have no name.
    pub(super) fn known(&self, bytes: &Bytes) -> Option<u64> {
        match self.names.get(&hash(bytes)) {
            Some(&name) if self.bytes(name) == bytes => self.token(name),
            _ => token(bytes),
        }
    }

    /// What a host wrote into it, as [`token`] has it.
    pub(super) fn token(&self, content: Content) -> Option<u64> {
        self.tokens[content.0 as usize]
    }

    /// What hosts have written to each sector of an image.
    pub(super) fn all_tokens(&self, image: &[Content]) -> Vec<Option<u64>> {
        image.iter().map(|&content| self.token(content)).collect()
    }

    /// Reads bytes of an image. What is behind its end is zeroes.
    pub(super) fn read(&self, image: &[Content], at: u64, out: &mut [u8]) {
        let mut at = at as usize;
        let mut rest = out;
        while !rest.is_empty() {
            let (index, from) = (at / SECTOR, at % SECTOR);
            let length = (SECTOR - from).min(rest.len());
            let (part, behind) = rest.split_at_mut(length);
            let content = image.get(index).copied().unwrap_or_default();
            part.copy_from_slice(&self.bytes(content)[from..from + length]);
            (rest, at) = (behind, at + length);
        }
    }

    /// Names an image: equal images have equal names, and different ones hardly ever.
    pub(super) fn digest(&self, image: &[Content]) -> u64 {
        let sector = |(index, content): (usize, &Content)| {
            mix(self.hashes[content.0 as usize] ^ mix(index as u64 + 1))
        };
        image.iter().enumerate().map(sector).fold(0, u64::wrapping_add)
    }
}

/// Numbers of what is made of several writes are from here on.
const OF_MIXTURES: u64 = 1 << 58;

fn hash(bytes: &Bytes) -> u64 {
    let words = bytes.as_chunks::<8>().0.iter();
    words.fold(0, |hash, word| mix(hash ^ u64::from_le_bytes(*word)))
}

/// What a host writes to a sector: a number, other than 0, and what follows from it, so that half of one
/// such sector is not taken for another.
pub(super) fn fill(token: u64, out: &mut [u8]) {
    for (index, word) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *word = if index == 0 { token } else { mix(token ^ (index as u64) << 56) }.to_le_bytes();
    }
}

/// The number that was written to a sector; 0 for zeroes, and nothing for what no host has written.
fn token(bytes: &Bytes) -> Option<u64> {
    let token = u64::from_le_bytes(*bytes.first_chunk().expect("a sector has eight bytes"));
    let mut whole = [0; SECTOR];
    if token != 0 {
        fill(token, &mut whole);
    }
    (whole == *bytes).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sector has the number that it was filled with; any other byte in it, and it has none.
    #[test]
    fn numbers_are_found_again() {
        let mut bytes = [0; SECTOR];
        assert_eq!(token(&bytes), Some(0));
        fill(77, &mut bytes);
        assert_eq!(token(&bytes), Some(77));
        for at in 0..SECTOR {
            bytes[at] ^= 1;
            assert_eq!(token(&bytes), None, "byte {at}");
            bytes[at] ^= 1;
        }
    }

    /// What was made of two writes has another number, by which it is known from then on.
    #[test]
    fn mixtures_have_numbers() {
        let mut store = Store::new();
        let [mut one, mut two] = [[0; SECTOR]; 2];
        fill(1, &mut one);
        fill(2, &mut two);
        let both = std::array::from_fn(|at| one[at] | two[at]);
        assert_eq!((store.known(&both), store.number(&one)), (None, 1));
        let number = store.number(&both);
        assert!(number >= OF_MIXTURES);
        let name = store.name(&both);
        assert_eq!((store.known(&both), store.token(name)), (Some(number), Some(number)));
        assert_eq!(store.number(&both), number);
    }

    /// Equal bytes have one name; images differ in their digests by what is where.
    #[test]
    fn names_and_digests_tell_apart() {
        let mut store = Store::new();
        let mut sector = |token| {
            let mut bytes = [0; SECTOR];
            fill(token, &mut bytes);
            store.name(&bytes)
        };
        let (one, two, again) = (sector(1), sector(2), sector(1));
        assert_eq!((one, one == two), (again, false));
        let zero = Content::default();
        let digests = [[one, two], [two, one], [one, one], [zero, one], [one, zero], [zero, zero]];
        let digests: std::collections::BTreeSet<_> =
            digests.iter().map(|image| store.digest(image)).collect();
        assert_eq!(digests.len(), 6);
        let mut out = [9; 600];
        store.read(&[one, zero], 500, &mut out);
        assert_eq!((&out[..12], &out[12..]), (&store.bytes(one)[500..], &[0; 588][..]));
    }
}
