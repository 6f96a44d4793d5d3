//! The data path of Weir: what happens to an I/O between a host and shared storage.
//!
//! A request meets seven stages, in alphabetical order:
//!
//! 1. [`accept`]: a session's command becomes requests;
//! 2. [`cache`]: is it cached?
//! 3. [`control`]: may it go to shared storage now?
//! 4. [`dispatch`]: who goes next, and to which backend?
//! 5. [`path`]: which way?
//! 6. storage: the device behind, which has no policy;
//! 7. [`transfer`]: which finished reply is sent first?
//!
//! [`pipeline`] joins them into one state machine that takes inputs and gives actions. It has no
//! clock, does no I/O, starts no threads and draws no random numbers of its own: time, chance and
//! configuration are arguments. So `weir serve` and `weir sim` run the same code, and a recorded
//! run can be replayed to the same digest. Read [`stage`] and [`pipeline`] first.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod accept;
pub mod account;
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
pub mod stage;
#[cfg(test)]
mod testing;
pub mod transfer;
pub mod units;
