//! What is sent to the client on a stream, whatever it comes from.

use std::fmt;

/// The sidecar's end of a stream to the client. It is asked for bytes when it is its stream's turn.
pub(crate) trait Outflow: fmt::Debug + Send + Sync {
    /// Writes what is there, at most as much as the buffer holds.
    fn take(&self, buffer: &mut [u8]) -> Taken;

    /// The client wants no more of it.
    fn stop(&self);

    /// The stream is closed: nothing follows.
    fn end(&self);
}

/// What a turn brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Bytes(usize),
    End,
    Nothing,
}
