//! The data path of Weir: what happens to an I/O between a host and shared storage.
//!
//! A request meets seven stages, in alphabetical order:
//!
//! 1. [`accept`]: a session's command becomes requests;
//! 2. [`cache`]: is it cached?
//! 3. [`control`]: may it go to shared storage now?
//! 4. [`dispatch`]: who goes next, and to which backend?
//! 5. [`path`]: on which path?
//! 6. storage: the device behind, which has no policy;
//! 7. [`transfer`]: which finished reply is sent first?
//!
//! [`pipeline`] joins them into one state machine that takes inputs and gives actions. It has no
//! clock, does no I/O, starts no threads and draws no random numbers: time, chance and
//! configuration are arguments. So `weir serve` and `weir sim` run the same code, and a recorded
//! run can be replayed to the same digest. Read [`stage`] and [`pipeline`] first.
//!
//! # Example
//!
//! A read goes through the pipeline; the caller plays the device and the network.
//!
//! ```
//! use weir_flow::accept::{Layout, Volume};
//! use weir_flow::clock::Instant;
//! use weir_flow::pipeline::{Action, Backend, Config, Input, Limits, Pipeline, Policies};
//! use weir_flow::request::{BackendId, LinkId, Op, Request, Tag, TenantId, VolumeId};
//! use weir_flow::stage::Stage;
//! use weir_flow::units::Extent;
//!
//! let volume = Volume {
//!     capacity: 1 << 30,
//!     layout: Layout::One(BackendId::new(0)),
//!     max_transfer: u64::MAX,
//!     cap: Default::default(),
//! };
//! let config = Config {
//!     volumes: vec![volume],
//!     backends: vec![Backend::alike(1)],
//!     promises: Default::default(),
//!     shares: Default::default(),
//!     limits: Limits::default(),
//!     paths: Default::default(),
//!     cache: Default::default(),
//!     policies: Policies::default(),
//! };
//! let mut pipeline = Pipeline::new(&config, ());
//! let read = Request {
//!     tag: Tag(7),
//!     tenant: TenantId::new(0),
//!     volume: VolumeId::new(0),
//!     link: LinkId::new(0),
//!     op: Op::Read,
//!     extent: Extent::new(0, 4096),
//!     fua: false,
//!     ordered: false,
//!     job: false,
//! };
//! let at = Instant::from_nanos;
//!
//! pipeline.handle(at(0), Input::Arrive(read));
//! let Some(Action::Store(io)) = pipeline.poll(at(0)) else { panic!("the read goes to the device") };
//! assert_eq!(io.extent, read.extent);
//! assert_eq!(pipeline.poll(at(0)), None);
//!
//! pipeline.handle(at(900_000), Input::Stored { key: io.key, outcome: Ok(()) });
//! let Some(Action::Transfer { tag, outcome, .. }) = pipeline.poll(at(900_000)) else {
//!     panic!("the reply goes to the host")
//! };
//! assert_eq!((tag, outcome), (Tag(7), Ok(())));
//! ```

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod accept;
pub mod account;
pub mod attribution;
pub mod cache;
pub mod clock;
pub mod control;
pub mod digest;
pub mod dispatch;
pub mod error;
pub mod event;
pub mod path;
pub mod pipeline;
pub mod policy;
pub mod recording;

pub mod request;
pub mod rng;
pub mod settings;
pub mod site;
pub mod stage;
#[cfg(test)]
mod testing;
pub mod transfer;
pub mod units;
