//! [`TaskHost`]: long work of plugins, owned and seen.
//!
//! ```text
//! pending ──► running ──► completed | failed
//!    │           │
//!    └───────────┴──► cancel_requested ──► cancelled | completed | failed
//! ```
//!
//! A terminal state never changes; a panic is a failure.

use std::{
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_task::Task;
use futures_util::FutureExt as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::error::PluginError;
use crate::callback;

/// Rows kept of tasks, live and ended, unless the host is told otherwise; the oldest ended ones make room.
pub(super) const MAX_TASKS: usize = 1024;

/// Runs tasks on the SDK's own threads and keeps a row of each. Cheap to clone; the tasks end with the host.
#[derive(Debug, Clone)]
pub struct TaskHost(Arc<Mutex<Tasks>>);

#[derive(Debug)]
struct Tasks {
    limit: usize,
    rows: BTreeMap<TaskId, Row>,
    made: u64,
    closed: bool,
}

#[derive(Debug)]
struct Row {
    info: TaskInfo,
    cancel: watch::Sender<bool>,
    task: Option<Task<()>>,
}

/// Names a task of one [`TaskHost`]; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct TaskId(pub u64);

/// A task as [`TaskHost::list_tasks`] shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TaskInfo {
    /// Which.
    pub id: TaskId,
    /// What it was called when it was made.
    pub name: String,
    /// Where it stands.
    pub state: TaskState,
    /// Why it failed.
    pub error: Option<String>,
    /// Wall clock, epoch milliseconds.
    pub made_at_ms: u64,
    /// Wall clock, epoch milliseconds.
    pub ended_at_ms: Option<u64>,
}

/// Where a task stands. The last three are terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum TaskState {
    Pending,
    Running,
    CancelRequested,
    Completed,
    Failed,
    Cancelled,
}

impl TaskState {
    /// Whether it stays so.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// Whether it may become `next`.
    fn leads_to(self, next: Self) -> bool {
        match self {
            Self::Pending => next != Self::Pending,
            Self::Running => !matches!(next, Self::Pending | Self::Running),
            Self::CancelRequested => next.is_terminal(),
            Self::Completed | Self::Failed | Self::Cancelled => false,
        }
    }
}

impl TaskHost {
    pub(super) fn new(limit: usize) -> Self {
        Self(Arc::new(Mutex::new(Tasks { limit, rows: BTreeMap::new(), made: 0, closed: false })))
    }

    /// Runs a task.
    ///
    /// ```no_run
    /// # fn example(context: &agentvm_sdk::plugin::PluginSessionContext) -> Result<(), agentvm_sdk::plugin::PluginError> {
    /// let vm = context.vm().clone();
    /// let id = context.tasks().spawn_managed_task("install", async move {
    ///     vm.exec("make install", agentvm_sdk::ExecOptions::new()).await?;
    ///     Ok(())
    /// })?;
    /// context.tasks().cancel_managed_task(id)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`PluginError::ResourceLimit`] where as many tasks live as rows are kept; [`PluginError::ShutDown`].
    pub fn spawn_managed_task(
        &self,
        name: &str,
        task: impl Future<Output = Result<(), PluginError>> + Send + 'static,
    ) -> Result<TaskId, PluginError> {
        let mut tasks = self.lock();
        tasks.make_room()?;
        tasks.made += 1;
        let id = TaskId(tasks.made);
        let (cancel, mut cancelled) = watch::channel(false);
        let info = TaskInfo {
            id,
            name: name.to_owned(),
            state: TaskState::Pending,
            error: None,
            made_at_ms: crate::now_ms(),
            ended_at_ms: None,
        };
        let host = self.clone();
        let task = callback::run(async move {
            host.lock().set(id, TaskState::Running, None);
            let (state, error) = {
                let work = AssertUnwindSafe(task).catch_unwind();
                tokio::select! {
                    biased;
                    _ = cancelled.wait_for(|cancelled| *cancelled) => (TaskState::Cancelled, None),
                    done = work => match done {
                        Ok(Ok(())) => (TaskState::Completed, None),
                        Ok(Err(error)) => (TaskState::Failed, Some(error.to_string())),
                        Err(_) => (TaskState::Failed, Some("the task panicked".to_owned())),
                    },
                }
            };
            host.lock().set(id, state, error);
        });
        tasks.rows.insert(id, Row { info, cancel, task: Some(task) });
        Ok(id)
    }

    /// Asks a task to end at its next await; a no-op on one that has ended.
    ///
    /// # Errors
    /// [`PluginError::NotFound`].
    pub fn cancel_managed_task(&self, id: TaskId) -> Result<(), PluginError> {
        let mut tasks = self.lock();
        if !tasks.rows.contains_key(&id) {
            return Err(PluginError::NotFound { kind: "task", id: id.0.to_string() });
        }
        tasks.cancel(id);
        Ok(())
    }

    /// The tasks, live and ended, in the order they were made.
    pub fn list_tasks(&self) -> Vec<TaskInfo> {
        self.lock().rows.values().map(|row| row.info.clone()).collect()
    }

    /// The host ends: so do the tasks.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Ends every task, takes no new one, and waits until nothing runs any more.
    pub(super) async fn close(&self) {
        for task in self.cancel_all() {
            task.await;
        }
    }

    /// Ends every task and takes no new one; dropping what is returned ends them where they await.
    pub(super) fn cancel_all(&self) -> Vec<Task<()>> {
        let mut tasks = self.lock();
        tasks.closed = true;
        let ids: Vec<TaskId> = tasks.rows.keys().copied().collect();
        for id in ids {
            tasks.cancel(id);
        }
        tasks.rows.values_mut().filter_map(|row| row.task.take()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Tasks> {
        // Each change is one assignment: right also after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tasks {
    fn make_room(&mut self) -> Result<(), PluginError> {
        if self.closed {
            return Err(PluginError::ShutDown);
        }
        if self.rows.len() < self.limit {
            return Ok(());
        }
        let ended = self.rows.values().find(|row| row.info.state.is_terminal()).map(|row| row.info.id);
        let (limit, observed) = (self.limit as u64, self.rows.len() as u64);
        let ended = ended.ok_or(PluginError::ResourceLimit { name: "plugin_tasks", limit, observed })?;
        self.rows.remove(&ended);
        Ok(())
    }

    fn cancel(&mut self, id: TaskId) {
        self.set(id, TaskState::CancelRequested, None);
        if let Some(row) = self.rows.get(&id) {
            row.cancel.send_replace(true);
        }
    }

    fn set(&mut self, id: TaskId, state: TaskState, error: Option<String>) {
        let Some(row) = self.rows.get_mut(&id).filter(|row| row.info.state.leads_to(state)) else { return };
        row.info.state = state;
        row.info.error = error;
        if state.is_terminal() {
            row.info.ended_at_ms = Some(crate::now_ms());
        }
    }
}
