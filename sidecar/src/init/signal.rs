//! Signalling a started process, its group or its tree.

use agentvm_wire::{id::ProcessId, process::SignalTarget};
use rustix::process::{kill_process, kill_process_group};

use super::messages::Reply;
use super::server::{Gone, Server};
use super::table::{HeldSignal, Stage};
use crate::sys::signals;

impl Server<'_> {
    /// Sends a signal; one that comes before the process has executed its command is kept until it has.
    pub(super) fn signal(
        &mut self,
        token: u64,
        id: ProcessId,
        number: i32,
        target: SignalTarget,
    ) -> Result<(), Gone> {
        let Some(signal) = signals::signal(number) else {
            return self.reply(&Reply::Signaled { token, delivered: 0 });
        };
        if let Some(process) = self.table.by_id(id)
            && let Stage::Starting { held, .. } = &mut process.stage
        {
            held.push_back(HeldSignal { token, signal: number, target });
            return Ok(());
        }
        if target == SignalTarget::Tree {
            return self.signal_tree(Some(token), id, signal);
        }
        // Not reaped yet, so both numbers are still its own: it leads its session and group.
        let sent = self.table.by_id(id).is_some_and(|process| match target {
            SignalTarget::Process => kill_process(process.pid, signal).is_ok(),
            SignalTarget::Group | SignalTarget::Tree => kill_process_group(process.pid, signal).is_ok(),
        });
        self.reply(&Reply::Signaled { token, delivered: u32::from(sent) })
    }
}
