//! The task that carries out what the session wants of one monitor: one at a time for each monitor that has something
//! to do. It ends when there is nothing left to do.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt as _;

use super::{
    lifecycle::{End, Step},
    plugin::Shared,
    run::run,
};

/// Owns a monitor. Dropped before it is done, it says so: nothing that is dead shows as running. Where it is the host that
/// ends, what goes on is left for the next session to tell of.
struct Owner {
    shared: Arc<Shared>,
    id: String,
    done: bool,
}

/// Starts an owner, which the session has noted already.
pub(super) fn start(shared: &Arc<Shared>, id: String) {
    let mut owner = Owner { shared: shared.clone(), id, done: false };
    let name = format!("monitor {}", owner.id);
    let task = async move {
        owner.work().await;
        Ok(())
    };
    if let Err(error) = shared.context.tasks().spawn_managed_task(&name, task) {
        // The owner was dropped, and has said so.
        tracing::warn!(task = name, %error, "a monitor cannot be carried out");
    }
}

impl Owner {
    async fn work(&mut self) {
        let Self { shared, id, done } = self;
        let news = shared.news(id);
        loop {
            let step = shared.session().next(id);
            match step {
                Step::Rest => {
                    *done = true;
                    return;
                }
                Step::Run { run_id } => {
                    // A panic is told as the end of the run.
                    let end = AssertUnwindSafe(run(shared, id, run_id, &news)).catch_unwind().await;
                    let end = end.unwrap_or(End::Abandoned);
                    shared.change(|session, now_ms| session.ended(id, run_id, &end, now_ms));
                }
                Step::Skip { run_id } => {
                    shared.change(|session, now_ms| session.ended(id, run_id, &End::Unbegun, now_ms));
                }
                Step::BackOff(duration) => tokio::select! {
                    () = news.notified() => {}
                    () = shared.context.sleep(duration) => {
                        shared.change(|session, now_ms| session.backed_off(id, now_ms));
                    }
                },
            }
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if !self.done && !self.shared.context.tasks().is_closed() {
            self.shared.change(|session, now_ms| session.abandoned(&self.id, now_ms));
        }
    }
}
