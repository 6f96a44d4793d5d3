//! A host against the controller's end.

mod answers;
mod connect;
mod controller;
mod events;
mod faults;
mod harness;
mod identify;
mod io;
mod logs;
mod reservations;
mod transport;
