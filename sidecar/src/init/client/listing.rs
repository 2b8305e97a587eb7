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
    /// The rows do not fit, though arguments were cut.
    #[error("the process table is larger than {limit_bytes} bytes")]
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

impl Commands {
    /// Everything that runs in the VM, by rising pid: init too, its helpers not.
    ///
    /// `max_bytes` bounds the rows together: arguments are cut so that each process has its share. Needs
    /// [`Events::next`](super::Events::next) to be awaited meanwhile.
    ///
    /// Cancel safety: safe.
    pub async fn list(&self, max_bytes: usize, deadline: Duration) -> Result<Vec<Row>, ListError> {
        let failed = |errno: Errno| ListError::Failed { errno: errno.raw_os_error() };
        let file = memfd_create(c"rows", MemfdFlags::CLOEXEC).map_err(failed)?;
        let passed = file.try_clone().map_err(|_| failed(Errno::MFILE))?;
        let (token, outcome) = self.connection.expect_listing();
        let request = Request::List {
            token,
            max_bytes: max_bytes as u64,
            deadline_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
        };
        self.connection.send(&request, vec![passed]);
        let outcome = tokio::time::timeout(deadline, outcome).await;
        match outcome.map_err(|_| ListError::TimedOut(deadline))?.map_err(|_| ListError::Ended)? {
            ListOutcome::Complete => rows::read(file.as_fd(), max_bytes).map_err(failed),
            ListOutcome::Truncated => Err(ListError::TooLarge { limit_bytes: max_bytes }),
            ListOutcome::Failed { errno: libc::ETIMEDOUT } => Err(ListError::TimedOut(deadline)),
            ListOutcome::Failed { errno } => Err(ListError::Failed { errno }),
        }
    }
}
