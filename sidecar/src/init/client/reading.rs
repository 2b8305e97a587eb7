//! Asking for the process table, and for what else a helper reads.

use std::os::fd::AsFd as _;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use serde::de::DeserializeOwned;

use super::Commands;
use crate::init::messages::{ReadOutcome, Reading, Request};
use crate::init::rows::{self, Row};

/// Why something could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Not in time.
    #[error("/proc was not read within {0:?}")]
    TimedOut(Duration),
    /// Not even one row fits.
    #[error("one row is larger than {limit_bytes} bytes")]
    TooLarge {
        /// What was allowed.
        limit_bytes: usize,
    },
    /// There is no such process.
    #[error("no such process")]
    NotFound,
    /// The VM has ended.
    #[error("the VM has ended")]
    Ended,
    /// The helper that reads it failed; EINTR if processes of the VM kept killing it.
    #[error("reading /proc failed: {}", std::io::Error::from_raw_os_error(*errno))]
    Failed {
        /// A Linux errno.
        errno: i32,
    },
}

/// One page of what was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// In order.
    pub rows: Vec<T>,
    /// There are more behind the last.
    pub more: bool,
}

impl Commands {
    /// What runs in the VM with a pid above `after`, as far as it fits in `max_bytes`: init too, its helpers not. Needs
    /// [`Events::next`](super::Events::next) to be awaited meanwhile.
    ///
    /// Cancel safety: safe.
    pub async fn list(
        &self,
        after: u32,
        max_bytes: usize,
        deadline: Duration,
    ) -> Result<Page<Row>, ReadError> {
        self.read(Reading::Table { after }, max_bytes, deadline).await
    }

    /// Anything there is to read; the rest as for [`Commands::list`]. Behind as many others as init has helpers for, it
    /// waits; the deadline counts from its turn on.
    pub(crate) async fn read<T: DeserializeOwned>(
        &self,
        what: Reading,
        max_bytes: usize,
        deadline: Duration,
    ) -> Result<Page<T>, ReadError> {
        let failed = |errno: Errno| ReadError::Failed { errno: errno.raw_os_error() };
        let file = memfd_create(c"rows", MemfdFlags::CLOEXEC).map_err(failed)?;
        let passed = file.try_clone().map_err(|_| failed(Errno::MFILE))?;
        let (token, outcome) = self.connection.expect_reading().await;
        let request = Request::Read {
            token,
            what,
            max_bytes: max_bytes as u64,
            deadline_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
        };
        self.connection.send(&request, vec![passed]);
        let outcome = tokio::time::timeout(deadline, outcome).await;
        let more = match outcome.map_err(|_| ReadError::TimedOut(deadline))?.map_err(|_| ReadError::Ended)? {
            ReadOutcome::Complete => false,
            ReadOutcome::Truncated => true,
            ReadOutcome::Failed { errno: libc::ETIMEDOUT } => return Err(ReadError::TimedOut(deadline)),
            ReadOutcome::Failed { errno: libc::ESRCH } => return Err(ReadError::NotFound),
            ReadOutcome::Failed { errno } => return Err(ReadError::Failed { errno }),
        };
        let rows = rows::read(file.as_fd(), max_bytes).map_err(failed)?;
        if rows.is_empty() && more {
            return Err(ReadError::TooLarge { limit_bytes: max_bytes });
        }
        Ok(Page { rows, more })
    }
}
