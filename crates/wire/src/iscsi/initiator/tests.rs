//! The initiator against our own target, and against answers that are played by hand.

mod chap;
mod harness;
mod hostile;
mod login;
mod pairs;
mod requests;
