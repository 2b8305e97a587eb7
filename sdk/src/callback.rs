//! Where a program's callbacks run: a blocking pool of the SDK's own, so that they need no runtime, may block, and
//! hold up nobody but their own process.
//!
//! A callback is a future polled on the pool whenever its waker is called; between two calls it occupies no thread.
//! At most [`MAX_THREADS`] callbacks run at once; further ones wait for a thread.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::LazyLock,
};

use async_task::Task;

/// Threads the pool may grow to, if that many callbacks block at once; idle ones end after ten seconds. A full registry
/// of the default size, with a relay behind every stream of every process, needs three quarters of them.
pub(crate) const MAX_THREADS: usize = 4096;

static POOL: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_current_thread()
        .thread_name("agentvm-callback")
        .max_blocking_threads(MAX_THREADS)
        .build()
        .expect("a runtime without drivers needs nothing from the system")
});

/// Runs a future on the pool. Dropping the task cancels it at its next await.
pub(crate) fn run<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> Task<T> {
    let (runnable, task) = async_task::spawn(future, |runnable: async_task::Runnable| {
        POOL.spawn_blocking(move || runnable.run());
    });
    runnable.schedule();
    task
}

/// Calls a program's code; a panic is reported and returned as `None`.
pub(crate) fn guarded<T>(what: &str, call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call))
        .inspect_err(|panic| {
            let text = panic
                .downcast_ref::<&str>()
                .copied()
                .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
                .unwrap_or("no message");
            tracing::error!(callback = what, panic = text, "a callback panicked and was removed");
        })
        .ok()
}

/// Keeps a handler alive; dropping it unsubscribes, [`Subscription::detach`] lets the handler live on.
#[derive(Debug)]
#[must_use = "dropping a subscription unsubscribes at once; call detach() to keep the handler"]
pub struct Subscription(Option<Task<()>>);

impl Subscription {
    pub(crate) fn new(task: Task<()>) -> Self {
        Self(Some(task))
    }

    /// Lets the handler live as long as what it listens to.
    pub fn detach(mut self) {
        if let Some(task) = self.0.take() {
            task.detach();
        }
    }
}
