//! Requests whose answer has to be read from the kernel first.

use std::{future::Future, sync::Arc, time::Duration};

use agentvm_wire::{
    error::{Code, Rejection},
    id::{ProcessId, RequestId},
    message::Response,
};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::Vm;
use crate::{
    errno,
    init::{Page, ReadError, Reading},
};

/// How long init's helper may take.
const DEADLINE: Duration = Duration::from_secs(5);
/// How long what is read may wait for earlier starts: only a guest that stops everything it sees delays one that long.
const STARTS_LIMIT: Duration = Duration::from_secs(1);

impl Vm {
    /// Answers a request with what a future brings, or with the VM's end.
    pub(super) fn answer_later<F>(
        self: &Arc<Self>,
        request: RequestId,
        answer: impl FnOnce(Arc<Self>) -> F + Send + 'static,
    ) where
        F: Future<Output = Result<Response, Rejection>> + Send + 'static,
    {
        let starts: Vec<ProcessId> = {
            let mut state = self.lock();
            if state.gone {
                return self.link.reject(request, Rejection::vm_not_found());
            }
            state.waiting.push(request);
            state.starting.keys().copied().collect()
        };
        let vm = self.clone();
        self.add(Box::pin(async move {
            // What was asked to start before is there, or is known to have failed.
            let _ = timeout(STARTS_LIMIT, vm.settle(starts)).await;
            let answer = answer(vm.clone()).await;
            vm.lock().answered(request);
            match answer {
                Ok(response) => vm.link.respond(request, &response),
                Err(rejection) => vm.link.reject(request, rejection),
            }
        }));
    }

    async fn settle(&self, mut starts: Vec<ProcessId>) {
        loop {
            let settled = self.settled.notified();
            {
                let state = self.lock();
                starts.retain(|start| state.starting.contains_key(start));
            }
            if starts.is_empty() {
                return;
            }
            settled.await;
        }
    }

    /// Has init read something.
    pub(super) async fn read<T: DeserializeOwned>(
        &self,
        what: Reading,
        max_bytes: usize,
    ) -> Result<Page<T>, ReadError> {
        self.commands.read(what, max_bytes, DEADLINE).await
    }
}

/// What the client is told where reading failed.
pub(super) fn rejection(error: &ReadError) -> Rejection {
    let code = match error {
        ReadError::TimedOut(_) => Code::DEADLINE_EXCEEDED,
        ReadError::TooLarge { .. } => Code::TOO_LARGE,
        ReadError::NotFound => Code::NOT_FOUND,
        ReadError::Ended => return Rejection::vm_not_found(),
        ReadError::Failed { errno } => Code::from(errno::name(*errno)),
    };
    Rejection::new(code, error.to_string())
}
