//! The memory a process may use, and whether it ended because there was no more.

use agentvm_wire::{
    error::{Code, Rejection},
    process::Execute,
};

use crate::{
    errno,
    init::{Commands, MemoryLimit},
    isolation::cgroup::{Controller, ExecGroup, Group},
};

/// What to look at when it has been killed.
#[derive(Debug)]
pub(crate) struct Memory {
    commands: Commands,
    /// The group that holds it to a limit of its own.
    group: Option<ExecGroup>,
    /// How many processes of the VM had been ended for want of memory before it started.
    earlier_kills: u64,
}

impl Memory {
    /// Makes what holds a process to its limit.
    pub(super) fn limit(
        commands: &Commands,
        execute: &Execute,
    ) -> Result<(Self, Option<MemoryLimit>), Rejection> {
        let earlier_kills = commands.group(Group::oom_kills).unwrap_or(0);
        let mut memory = Self { commands: commands.clone(), group: None, earlier_kills };
        let Some(bytes) = execute.memory_limit_bytes else { return Ok((memory, None)) };
        let missing: Option<Option<String>> =
            commands.group(|group| group.missing(Controller::Memory).map(str::to_owned));
        let limit = match missing.flatten() {
            None => {
                let made = commands.group(|group| group.exec(execute.process.0, bytes));
                let (group, entrance) = made.ok_or_else(Rejection::vm_not_found)?.map_err(|fault| {
                    let code = Code::from(errno::name(fault.errno));
                    Rejection::new(code, format!("no group for the process: {}", errno::text(fault.errno)))
                })?;
                memory.group = Some(group);
                MemoryLimit::Group(entrance)
            }
            Some(_) if execute.allow_best_effort => MemoryLimit::Each(bytes),
            Some(why) => return Err(unenforceable(why.as_str())),
        };
        Ok((memory, Some(limit)))
    }

    /// Whether the kernel has ended processes, in all likelihood this one, for want of memory.
    pub(super) fn has_run_out(&self) -> bool {
        self.group.as_ref().is_some_and(|group| group.oom_kills() > 0)
            || self.commands.group(Group::oom_kills).is_some_and(|kills| kills > self.earlier_kills)
    }
}

fn unenforceable(why: &str) -> Rejection {
    const FIELD: &str = "memory_limit_bytes";
    let message = format!(
        "nothing here enforces a memory limit ({why}); with allow_best_effort each process is held to it for itself"
    );
    let mut rejection = Rejection::invalid(FIELD, message);
    rejection.code = Code::UNSUPPORTED;
    rejection
}
