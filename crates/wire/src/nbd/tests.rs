//! A client against the server's end.

mod bounds;
mod commands;
mod fuzz;
mod harness;
mod options;
mod refusals;
mod tls;
mod writes;
