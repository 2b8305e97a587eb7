//! The request table: which requests still wait for their one answer.

use std::collections::HashSet;

use super::Violation;
use crate::{
    error::{Code, Rejection},
    id::RequestId,
};

#[derive(Debug, Default)]
pub(super) struct Requests {
    open: HashSet<RequestId>,
    highest: u64,
}

impl Requests {
    /// A new id of ours; refused where `limit` requests already wait.
    pub(super) fn send(&mut self, limit: u64) -> Result<RequestId, Rejection> {
        let waiting = self.open.len() as u64;
        if waiting >= limit {
            return Err(too_many(limit, waiting));
        }
        self.highest += 1;
        let id = RequestId(self.highest);
        self.open.insert(id);
        Ok(id)
    }

    /// A peer's id: must rise, or its answer could not be told from an earlier one's.
    pub(super) fn receive(&mut self, id: RequestId) -> Result<(), Violation> {
        if id.0 <= self.highest {
            return Err(Violation::protocol(format!("request id {} follows {}", id.0, self.highest)));
        }
        self.highest = id.0;
        self.open.insert(id);
        Ok(())
    }

    /// The rejection due if more than `limit` requests wait.
    pub(super) fn over(&self, limit: u64) -> Option<Rejection> {
        let waiting = self.open.len() as u64;
        (waiting > limit).then(|| too_many(limit, waiting))
    }

    pub(super) fn is_open(&self, id: RequestId) -> bool {
        self.open.contains(&id)
    }

    /// Whether the request was open.
    pub(super) fn close(&mut self, id: RequestId) -> bool {
        self.open.remove(&id)
    }
}

fn too_many(limit: u64, observed: u64) -> Rejection {
    let mut rejection =
        Rejection::limit(Code::RESOURCE_EXHAUSTED, "max_requests", "requests", limit, observed);
    rejection.details.retryable = Some(true);
    rejection
}
