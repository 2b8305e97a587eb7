//! Asking for the process table.

use std::os::fd::AsFd as _;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;

use super::Commands;
use crate::init::messages::{ListOutcome, Request};
use crate::init::rows::{self, Row};

/// Why there is no list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// Not in time.
    #[error("the process table was not read within {0:?}")]
    TimedOut(Duration),
    /// Not even one row fits.
    #[error("a row of the process table is larger than {limit_bytes} bytes")]
    TooLarge {
        /// What was allowed.
        limit_bytes: usize,
    },
    /// The VM has ended.
    #[error("the VM has ended")]
    Ended,
    /// The helper that reads it failed; EINTR if processes of the VM kept killing it.
    #[error("reading the process table failed: {}", std::io::Error::from_raw_os_error(*errno))]
    Failed {
        /// A Linux errno.
        errno: i32,
    },
}

/// One page of the process table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// By rising pid.
    pub rows: Vec<Row>,
    /// There are more behind the last.
    pub more: bool,
}

impl Commands {
    /// What runs in the VM with a pid above `after`, as far as it fits in `max_bytes`: init too, its helpers not. Needs
    /// [`Events::next`](super::Events::next) to be awaited meanwhile.
    ///
    /// Cancel safety: safe.
    pub async fn list(&self, after: u32, max_bytes: usize, deadline: Duration) -> Result<Listing, ListError> {
        let failed = |errno: Errno| ListError::Failed { errno: errno.raw_os_error() };
        let file = memfd_create(c"rows", MemfdFlags::CLOEXEC).map_err(failed)?;
        let passed = file.try_clone().map_err(|_| failed(Errno::MFILE))?;
        let (token, outcome) = self.connection.expect_listing();
        let request = Request::List {
            token,
            after,
            max_bytes: max_bytes as u64,
            deadline_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
        };
        self.connection.send(&request, vec![passed]);
        let outcome = tokio::time::timeout(deadline, outcome).await;
        let more = match outcome.map_err(|_| ListError::TimedOut(deadline))?.map_err(|_| ListError::Ended)? {
            ListOutcome::Complete => false,
            ListOutcome::Truncated => true,
            ListOutcome::Failed { errno: libc::ETIMEDOUT } => return Err(ListError::TimedOut(deadline)),
            ListOutcome::Failed { errno } => return Err(ListError::Failed { errno }),
        };
        let rows = rows::read(file.as_fd(), max_bytes).map_err(failed)?;
        if rows.is_empty() && more {
            return Err(ListError::TooLarge { limit_bytes: max_bytes });
        }
        Ok(Listing { rows, more })
    }
}
