//! Signalling a started process or its group.

use agentvm_wire::id::ProcessId;
use rustix::process::{Signal, kill_process, kill_process_group};

use super::messages::{Reply, SignalTarget};
use super::server::{Gone, Server};
use super::table::{HeldSignal, Stage};

impl Server<'_> {
    /// Sends a signal; one that comes before the process has executed its command is kept until it has.
    pub(super) fn signal(
        &mut self,
        token: u64,
        id: ProcessId,
        number: i32,
        target: SignalTarget,
    ) -> Result<(), Gone> {
        let delivered = match self.table.by_id(id) {
            None => 0,
            Some(process) => match &mut process.stage {
                Stage::Starting { held, .. } => {
                    held.push_back(HeldSignal { token, signal: number, target });
                    return Ok(());
                }
                Stage::Running => {
                    // Not reaped yet, so both numbers are still its own: it leads its session and group.
                    let sent = Signal::from_named_raw(number).is_some_and(|signal| match target {
                        SignalTarget::Process => kill_process(process.pid, signal).is_ok(),
                        SignalTarget::Group | SignalTarget::Tree => {
                            kill_process_group(process.pid, signal).is_ok()
                        }
                    });
                    u32::from(sent)
                }
            },
        };
        self.reply(&Reply::Signaled { token, delivered })
    }
}
