//! What the VM uses, and how much of it it may.

use std::sync::Arc;

use agentvm_wire::{
    id::RequestId,
    message::Response,
    resource::{Resource, ResourceUsage},
};

use super::{MAX_PROCESSES, Vm, reading::rejection};
use crate::{
    init::{ReadError, Reading, Used},
    isolation::cgroup::Group,
};

/// Bytes of the one row that init writes.
const ROW_BYTES: usize = 4096;

impl Vm {
    pub(crate) fn resource_usage(self: &Arc<Self>, request: RequestId) {
        self.answer_later(request, async move |vm: Arc<Self>| {
            let resources = vm.resources().await.map_err(|error| rejection(&error))?;
            Ok(Response::ResourceUsage(ResourceUsage { resources }))
        });
    }

    /// Everything that is counted.
    pub(super) async fn resources(&self) -> Result<Vec<Resource>, ReadError> {
        let page = self.read::<Used>(Reading::Usage, ROW_BYTES).await?;
        let seen = page.rows.into_iter().next().unwrap_or_default();
        // Where a group counts, it counts exactly.
        let counted = self.commands.group(Group::usage).unwrap_or_default();
        let processes = Resource {
            name: MAX_PROCESSES.to_owned(),
            used: self.lock().processes.len() as u64,
            limit: Some(self.link.limits().max_processes),
            unit: "processes".to_owned(),
        };
        let resource = |name: &str, used, unit: &str| Resource {
            name: name.to_owned(),
            used,
            limit: self.limits.get(name).copied(),
            unit: unit.to_owned(),
        };
        let mut resources = vec![
            processes,
            resource("pids", seen.pids, "processes"),
            resource("memory_bytes", counted.memory_bytes.unwrap_or(seen.memory_bytes), "bytes"),
            resource("cpu_us", counted.cpu_us.unwrap_or(seen.cpu_us), "microseconds"),
        ];
        let [read, written] = seen.io;
        resources.push(resource("io_read_bytes", read, "bytes"));
        resources.push(resource("io_written_bytes", written, "bytes"));
        if let Some((bytes, inodes)) = seen.disk {
            resources.push(resource("disk_bytes", bytes, "bytes"));
            resources.push(resource("disk_inodes", inodes, "files"));
        }
        Ok(resources)
    }
}
