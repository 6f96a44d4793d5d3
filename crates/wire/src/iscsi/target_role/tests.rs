//! A connection seen from the initiator's side: PDUs in, PDUs and events out.

mod access;
mod commands;
mod digests;
mod fuzz;
mod harness;
mod login;
mod text;
mod writes;
