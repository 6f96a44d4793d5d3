//! Several gateways around one home: who owns a volume, and how it changes hands.

mod moving;

pub use moving::{Action, Event, Limits, Mover, Order, State};
