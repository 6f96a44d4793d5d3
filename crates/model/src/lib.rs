//! Models of devices and links, driven by whatever clock the caller has.
//!
//! A model says how long something takes; it moves no bytes. It owns no clock: `weir sim` drives it
//! with a virtual one, `weir serve` with the real one. Its chance comes from named streams of one
//! seed, so a run can be repeated. All times that leave a model are whole nanoseconds.
//!
//! * [`device`]: what every device model can do;
//! * [`mod@array`]: eight disks behind four buses and two links, M1;
//! * [`mech`]: the same with seeks, rotation and a queue that the disk orders, M2;
//! * [`fixed`]: a constant service time, some in parallel;
//! * [`link`]: a bandwidth and a delay.

pub mod array;
pub mod device;
mod fabric;
pub mod fixed;
pub mod link;
pub mod mech;
