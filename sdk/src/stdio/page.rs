//! [`OutputPage`]: a look at what is kept of an output, without a subscription.

use std::ops::Range;

use bytes::Bytes;

use super::ring::Ring;

/// What is kept of an output from an offset on, from
/// [`AgentOs::read_process_output`](crate::AgentOs::read_process_output).
///
/// Read on at [`OutputPage::next_offset`]; everything was read once that is `received` and the state is not
/// [`OutputState::Open`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutputPage {
    /// Absolute offset of the first of `bytes`: what was asked for, or the end of what is gone.
    pub offset: u64,
    /// What was written there, cut anywhere.
    pub bytes: Bytes,
    /// The part of what was asked for that is no longer kept, if some of it is not.
    pub gone: Option<Range<u64>>,
    /// Offset behind the last byte that has arrived so far.
    pub received: u64,
    /// Whether more will arrive.
    pub state: OutputState,
}

/// How an output stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutputState {
    /// Somebody holds it open: more may come.
    Open,
    /// Nothing follows: every process that held it open has closed it.
    Ended,
    /// It broke: what would have followed is unknown.
    Lost,
}

impl OutputPage {
    /// Where the next page begins.
    pub fn next_offset(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    pub(crate) fn of(ring: &Ring, asked: u64, max_bytes: usize) -> Self {
        let (offset, bytes) = ring.page(asked, max_bytes);
        let state = match (ring.is_open(), ring.is_lost()) {
            (true, _) => OutputState::Open,
            (false, false) => OutputState::Ended,
            (false, true) => OutputState::Lost,
        };
        let gone = (asked < offset).then_some(asked..offset);
        Self { offset, bytes, gone, received: ring.head(), state }
    }

    /// Of an output that the process does not have.
    pub(crate) fn nothing(offset: u64) -> Self {
        Self { offset, bytes: Bytes::new(), gone: None, received: 0, state: OutputState::Ended }
    }
}
