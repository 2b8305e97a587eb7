//! How much may be on its way in a session: the windows of its open streams, together.
//!
//! The client chooses the window of what a request opens, since it knows of every stream first and of its end last: what
//! it counts is never less than what the sidecar does, which holds it to the rule.

use super::Connection;
use crate::error::{Code, Rejection};

impl Connection {
    /// What a client says of the window of the streams it opens next: nothing, as long as all windows fit into
    /// `max_in_flight_bytes`; beyond that the least.
    pub fn choose_window(&self, streams: usize) -> Option<u64> {
        let fits = self.in_flight_with(self.limits.window_bytes, streams) <= self.limits.max_in_flight_bytes;
        (!fits).then_some(self.limits.min_window_bytes)
    }

    /// Whether a client may open streams with the window it chose.
    pub fn check_window(&self, chosen: Option<u64>, streams: usize) -> Result<(), Rejection> {
        let (least, most) = (self.limits.min_window_bytes, self.limits.window_bytes);
        let window = chosen.unwrap_or(most);
        if !(least..=most).contains(&window) {
            let message = format!("window_bytes is {window}, it may be from {least} to {most}");
            return Err(Rejection::invalid("window_bytes", message));
        }
        let (observed, limit) = (self.in_flight_with(window, streams), self.limits.max_in_flight_bytes);
        if observed > limit && window > least {
            let mut rejection =
                Rejection::limit(Code::RESOURCE_EXHAUSTED, "max_in_flight_bytes", "bytes", limit, observed);
            rejection.details.retryable = Some(true);
            return Err(rejection);
        }
        Ok(())
    }

    fn in_flight_with(&self, window: u64, streams: usize) -> u64 {
        self.sending.windows() + self.receiving.windows() + window.saturating_mul(streams as u64)
    }
}
