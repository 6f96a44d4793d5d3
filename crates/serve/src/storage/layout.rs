//! The stores of volumes, and where in them the bytes of a volume are.
//!
//! The stores of all volumes are in one row, in the order of the volumes: a store is known by its place
//! there, a volume by the range of its stores.

use crate::config::{Config, FileStore, Layout, Places, Volume, Where};
use crate::storage::file::backing::{Backing, OpenError, remove_made};
use crate::storage::memory::Memory;
use crate::storage::store::{Store, Unit};
use crate::storage::upstream::Upstreams;
use crate::storage::upstream::network::Tcp;
use std::ops::Range;
use std::rc::Rc;
use tracing::{info, warn};
use weir_flow::units::ByteCount;

/// Each volume, and the range of its stores in the row of all.
pub(crate) fn ranges(volumes: &[Volume]) -> impl Iterator<Item = (&Volume, Range<usize>)> {
    volumes.iter().scan(0, |next, volume| {
        let first = *next;
        *next += volume.stores.len();
        Some((volume, first..*next))
    })
}

/// Opens what keeps the bytes of the volumes.
pub(crate) fn open(config: &Config, upstreams: &Upstreams<Tcp>) -> Result<Vec<Store>, OpenError> {
    let mut stores = Vec::new();
    for volume in &config.volumes {
        stores.extend(open_volume(volume, |index| upstreams.unit(index))?);
    }
    fit(config, &stores)?;
    Ok(stores)
}

/// Opens what keeps the bytes of a volume. `unit` is the logical unit of an upstream. After an error no file is there that
/// was not there before.
pub(crate) fn open_volume(
    volume: &Volume,
    unit: impl Fn(usize) -> Unit,
) -> Result<Vec<Store>, OpenError> {
    let open = |place: &Where| match place {
        Where::File(file) => Backing::open(volume, file).map(Store::File),
        Where::Upstream { index, size } => upstream(volume, unit(*index), *size),
        Where::Memory(memory) => Ok(Store::Memory(Rc::new(Memory::new(memory.size, memory.keeps)))),
    };
    let mut stores = Vec::new();
    let opened = volume.stores.iter().try_for_each(|place| open(place).map(|one| stores.push(one)));
    match opened.and_then(|()| check(volume, &stores)) {
        Ok(()) => Ok(stores),
        Err(problem) => {
            unmake(volume, stores);
            Err(problem)
        }
    }
}

/// Closes stores of a volume that were opened in vain, its first ones, and removes files that were made for them.
pub(crate) fn unmake(volume: &Volume, stores: Vec<Store>) {
    for (place, store) in volume.stores.iter().zip(stores) {
        if let (Store::File(backing), Where::File(file)) = (store, place)
            && backing.created
        {
            remove_made(&volume.name, &file.path);
        }
    }
}

/// Whether the modelled devices have room for what is on them.
fn fit(config: &Config, stores: &[Store]) -> Result<(), OpenError> {
    for (index, backend) in config.backends.iter().enumerate() {
        let places = config.volumes.iter().flat_map(|volume| &volume.stores);
        let here = |place: &Where| place.file().is_some_and(|file| file.backend == Some(index));
        let on = places.zip(stores).filter(|(place, _)| here(place));
        let (_, wanted) = backend.model.regions(on.map(|(_, store)| store.capacity()));
        if let Some(found) = backend.model.capacity().filter(|&capacity| wanted > capacity) {
            return Err(OpenError::SmallDevice {
                backend: backend.name.clone(),
                found: ByteCount(found),
                wanted: ByteCount(wanted),
            });
        }
    }
    Ok(())
}

/// The logical unit of an upstream, of which the volume has `size` bytes, or all.
fn upstream(volume: &Volume, unit: Unit, size: Option<u64>) -> Result<Store, OpenError> {
    let (found, block_size) = (unit.block_size, volume.block_size);
    let capacity = unit.capacity.get();
    let whole = size.is_some() || capacity.is_multiple_of(block_size.into());
    if !block_size.is_multiple_of(found) || !whole {
        return Err(OpenError::Blocks {
            volume: volume.name.clone(),
            upstream: unit.name.clone(),
            blocks: capacity / u64::from(found),
            found,
            block_size,
        });
    }
    if let Some(wanted) = size.filter(|&size| size > capacity) {
        return Err(OpenError::SmallUnit {
            volume: volume.name.clone(),
            upstream: unit.name,
            found: ByteCount(capacity),
            wanted: ByteCount(wanted),
        });
    }
    Ok(Store::Upstream(unit))
}

/// Whether the stores make a volume.
fn check(volume: &Volume, stores: &[Store]) -> Result<(), OpenError> {
    fits(volume, &parts(volume, stores), |index| store_name(volume, stores, index))
}

/// Whether stores of which the volume may use `parts` bytes make a volume. `store_name` is what one of them is called.
pub(crate) fn fits(
    volume: &Volume,
    parts: &[u64],
    store_name: impl Fn(usize) -> String,
) -> Result<(), OpenError> {
    let name = || volume.name.clone();
    if let Layout::Stripe { chunk } = volume.layout
        && let Some(small) = parts.iter().position(|&part| part < chunk)
    {
        let (store, chunk) = (store_name(small), ByteCount(chunk));
        return Err(OpenError::NoChunk { volume: name(), store, chunk });
    }
    let whole = parts.iter().copied().try_fold(0_u64, u64::checked_add);
    whole.filter(|&whole| whole <= CAPACITY_MAX).ok_or(OpenError::TooLarge { volume: name() })?;
    Ok(())
}

/// What is wrong with the stores of a volume, behind the place where the configuration names it.
pub(crate) fn at(places: &Places, volume: &Volume, problem: &OpenError) -> String {
    let store = problem.path().and_then(|path| volume.files().find(|file| file.path == path));
    store_at(places, volume, store, problem.keys(), &problem.to_string())
}

/// What is wrong with a store of a volume, or with all of them, behind the place of the first of these keys.
pub(crate) fn store_at(
    places: &Places,
    volume: &Volume,
    store: Option<&FileStore>,
    keys: &[&'static str],
    told: &str,
) -> String {
    match store.filter(|_| places.has("volume", &volume.name, "stores")) {
        Some(store) => places.at("store", &store.name, keys, told),
        None => places.at("volume", &volume.name, keys, told),
    }
}

/// What a store of a volume is called.
fn store_name(volume: &Volume, stores: &[Store], index: usize) -> String {
    match (&volume.stores[index], &stores[index]) {
        (Where::File(file), _) => file.name.clone(),
        (Where::Memory(memory), _) => memory.name.clone(),
        (_, Store::Upstream(unit)) => unit.name.clone(),
        (Where::Upstream { .. }, Store::File(_) | Store::Memory(_) | Store::Closed) => {
            unreachable!("opened as it is configured")
        }
    }
}

/// Bytes of each store that the volume may use.
fn parts(volume: &Volume, stores: &[Store]) -> Vec<u64> {
    let part = |(place, store): (&Where, &Store)| match place {
        Where::Upstream { size: Some(size), .. } => *size,
        _ => store.capacity(),
    };
    volume.stores.iter().zip(stores).map(part).collect()
}

/// Bytes of each store that the volume does use: of a stripe, as many of each in whole chunks.
pub(crate) fn used(volume: &Volume, stores: &[Store]) -> Vec<u64> {
    let mut parts = parts(volume, stores);
    if let Layout::Stripe { chunk } = volume.layout {
        let least = parts.iter().copied().min().unwrap_or(0);
        parts.fill(least - least % chunk);
    }
    parts
}

/// Bytes of a volume on these stores.
pub(crate) fn capacity(volume: &Volume, stores: &[Store]) -> u64 {
    used(volume, stores).into_iter().sum()
}

/// Warns of stores that keep nothing when the gateway stops.
pub(crate) fn warn_of_loss(volume: &Volume, stores: &[Store]) {
    let (name, size) = (&volume.name, ByteCount(capacity(volume, stores)));
    for store in stores {
        match store {
            Store::Memory(memory) if memory.keeps() => {
                warn!(volume = name, %size, "volume in memory: its data is gone when the gateway stops");
            }
            Store::Memory(_) => {
                warn!(volume = name, %size, "null volume: WRITES ARE DROPPED, and reads give zeroes");
            }
            Store::File(_) | Store::Upstream(_) | Store::Closed => {}
        }
    }
}

/// Says what of the stores is of no use to the volume.
pub(crate) fn log_unused(volume: &Volume, stores: &[Store]) {
    for (index, used) in used(volume, stores).into_iter().enumerate() {
        let found = stores[index].measure().unwrap_or(used);
        if found > used && stores.len() > 1 {
            let (store, unused) = (store_name(volume, stores, index), ByteCount(found - used));
            info!(volume = volume.name, store, %unused, "the end of a store is left unused");
        }
    }
}

/// The most bytes that a volume may have: what the offset of a file can be.
const CAPACITY_MAX: u64 = i64::MAX as u64;
