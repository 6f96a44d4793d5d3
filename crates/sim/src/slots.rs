//! A table with reused indexes: an index names an entry until it is removed.

/// Grows to the most that was ever held at once, then no more.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slots<T> {
    pub(crate) const fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(index) = self.free.pop() {
            self.places[index as usize] = Some(value);
            return index;
        }
        self.places.push(Some(value));
        u32::try_from(self.places.len() - 1).expect("what a plan keeps in flight is bounded")
    }

    /// Panics if the place is empty: indices come from `insert` alone.
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut T {
        self.places[index as usize].as_mut().expect("the place is taken")
    }

    /// Panics if the place is empty.
    pub(crate) fn remove(&mut self, index: u32) -> T {
        self.free.push(index);
        self.places[index as usize].take().expect("the place is taken")
    }

    /// What is in a place, if anything is.
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.places[index as usize].as_ref()
    }

    /// Everything that is held, in order of index.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.places).filter_map(|(index, place)| Some((index, place.as_ref()?)))
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.places.len() == self.free.len()
    }
}
