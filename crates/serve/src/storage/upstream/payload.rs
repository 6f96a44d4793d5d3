//! The data of writes to upstreams.

use crate::buffer::Shared;
use std::rc::Rc;

/// Bytes that wait in an outbox.
///
/// A buffer goes back to the pool only when no outbox refers to it any more, so handles to one command's
/// bytes are counted apart from all others.
#[derive(Clone, Debug)]
pub(super) struct Payload(Rc<Bytes>);

#[derive(Debug)]
enum Bytes {
    Pooled(Shared),
    Owned(Box<[u8]>),
}

impl Payload {
    /// A request's bytes.
    pub(super) fn pooled(buffer: Shared) -> Self {
        Self(Rc::new(Bytes::Pooled(buffer)))
    }

    /// The gateway's own.
    pub(super) fn owned(bytes: Box<[u8]>) -> Self {
        Self(Rc::new(Bytes::Owned(bytes)))
    }

    /// Whether this is the only handle to a request's bytes; the gateway's own bytes do no harm.
    pub(super) fn is_free(&self) -> bool {
        matches!(*self.0, Bytes::Owned(_)) || Rc::strong_count(&self.0) == 1
    }
}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        match &*self.0 {
            Bytes::Pooled(buffer) => buffer.bytes(),
            Bytes::Owned(bytes) => bytes,
        }
    }
}
