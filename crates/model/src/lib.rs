//! Models of devices and links, driven by the caller's clock.
//!
//! A model computes the duration of an I/O; it moves no bytes. It has no clock: `weir sim` drives it with a virtual
//! clock, `weir serve` with the real one. Its random numbers come from named streams of one seed, so a run is
//! reproducible. All times that a model returns are whole nanoseconds.
//!
//! * [`device`]: the trait of all device models;
//! * [`mod@array`]: eight disks behind four buses and two links, M1;
//! * [`mech`]: the same with seeks, rotation and a queue that the disk orders, M2;
//! * [`fixed`]: a constant service time, with several servers in parallel;
//! * [`link`]: a bandwidth and a delay;
//! * [`ssd`]: flash chips behind a page-mapping translation layer.
//!
//! # Example
//!
//! A device of 2 ms that serves one I/O at a time ends the second of two after 4 ms.
//!
//! ```
//! use weir_flow::clock::{Duration, Instant};
//! use weir_flow::request::Op;
//! use weir_flow::units::Extent;
//! use weir_model::device::DeviceIo;
//! use weir_model::{Model, fixed};
//!
//! let config = fixed::Config { service: Duration::from_millis(2), servers: 1 };
//! let mut device = Model::Fixed(config).build(1, "disk");
//! for id in [1, 2] {
//!     let io = DeviceIo { id, op: Op::Read, extent: Extent::new(0, 4096), fua: false };
//!     device.start(Instant::ZERO, io);
//! }
//! let mut ended = Vec::new();
//! while let Some(now) = device.next() {
//!     while let Some((id, outcome)) = device.finished(now) {
//!         ended.push((now.as_nanos(), id, outcome));
//!     }
//! }
//! assert_eq!(ended, [(2_000_000, 1, Ok(())), (4_000_000, 2, Ok(()))]);
//! ```

pub mod array;
pub mod device;
mod fabric;
pub mod fixed;
pub mod link;
pub mod mech;
pub mod ssd;

use device::Device;
use weir_flow::settings::{Invalid, Settings};

/// Most parts of one kind in a device.
pub const PARTS_MAX: u64 = 65_536;

/// The model of a device, and its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// A constant service time.
    Fixed(fixed::Config),
    /// Array M1.
    Array(array::Config),
    /// Array M2.
    Mech(mech::Config),
    /// A flash device.
    Ssd(ssd::Config),
}

impl Model {
    /// An idle device. `name` and `seed` name its random streams: equal ones draw the same.
    pub fn build(self, seed: u64, name: &str) -> Box<dyn Device> {
        match self {
            Self::Fixed(config) => Box::new(fixed::Fixed::new(config)),
            Self::Array(config) => Box::new(array::Array::new(config, seed, name)),
            Self::Mech(config) => Box::new(mech::Mech::new(config, seed, name)),
            Self::Ssd(config) => Box::new(ssd::Ssd::new(config)),
        }
    }

    /// Whether its settings are within their ranges and fit each other.
    pub fn validate(&self) -> Result<(), Invalid> {
        match self {
            Self::Fixed(config) => config.validate(),
            Self::Array(config) => config.validate(),
            Self::Mech(config) => config.validate(),
            Self::Ssd(config) => config.validate(),
        }
    }

    /// Where each of several stores of these sizes begins on the device that they share, and where the last one
    /// ends: one behind the other. Of a device that knows no addresses each has all.
    pub fn regions(self, sizes: impl IntoIterator<Item = u64>) -> (Vec<u64>, u64) {
        let Self::Ssd(config) = self else {
            return (sizes.into_iter().map(|_| 0).collect(), 0);
        };
        let mut end = 0_u64;
        let begin = |size: u64| {
            let begin = end;
            // No page is in two of them.
            let pages = size.div_ceil(config.page.into());
            end = end.saturating_add(pages.saturating_mul(config.page.into()));
            begin
        };
        let begins = sizes.into_iter().map(begin).collect();
        (begins, end)
    }

    /// The bytes that the device has; `None` for one that knows no addresses.
    pub const fn capacity(self) -> Option<u64> {
        match self {
            Self::Ssd(config) => Some(config.capacity()),
            Self::Fixed(_) | Self::Array(_) | Self::Mech(_) => None,
        }
    }
}
