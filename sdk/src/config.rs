//! What a VM is created from.

use std::time::Duration;

use agentvm_wire::vm::{Isolation, VmConfig};

use crate::sidecar::{Sidecar, SidecarConfig};

/// What [`AgentOs::create`](crate::AgentOs::create) builds. The default is a sandboxed VM in the shared sidecar.
///
/// ```
/// use agentvm_sdk::{AgentOsConfig, ProcessLimits};
///
/// let mut limits = ProcessLimits::default();
/// limits.spawned = 4096;
/// let config = AgentOsConfig::new()
///     .env("LANG", "C.UTF-8")
///     .cwd("/workspace/project")
///     .hostname("builder")
///     .disk_bytes(4 << 30)
///     .pids(512)
///     .process_limits(limits);
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct AgentOsConfig {
    pub(crate) vm: VmConfig,
    pub(crate) sidecar: SidecarConfig,
    pub(crate) connection: Option<Sidecar>,
    pub(crate) limits: ProcessLimits,
}

impl AgentOsConfig {
    /// The default.
    pub fn new() -> Self {
        Self::default()
    }

    /// Which sidecar to find or launch; handles of one program share it.
    #[must_use]
    pub fn sidecar(mut self, sidecar: SidecarConfig) -> Self {
        self.sidecar = sidecar;
        self
    }

    /// A connection that exists already, from [`AgentOs::create_sidecar`](crate::AgentOs::create_sidecar) or [`AgentOs::sidecar`](crate::AgentOs::sidecar).
    #[must_use]
    pub fn connection(mut self, sidecar: Sidecar) -> Self {
        self.connection = Some(sidecar);
        self
    }

    /// Level of isolation, [`Isolation::Sandbox`] if not set. A weaker one is had only where it is asked for by name;
    /// [`AgentOs::isolation_report`](crate::AgentOs::isolation_report) says what it lacks.
    #[must_use]
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.vm.isolation = isolation;
        self
    }

    /// Sets a variable of the VM's environment, which every process starts with.
    #[must_use]
    pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.vm.env.insert(key.into(), value.into());
        self
    }

    /// Working directory of a process that names none, absolute; `/workspace` if not set. Created if missing.
    #[must_use]
    pub fn cwd(mut self, cwd: impl Into<String>) -> Self {
        self.vm.cwd = Some(cwd.into());
        self
    }

    /// Host name seen inside; derived from the VM's id if not set.
    #[must_use]
    pub fn hostname(mut self, hostname: impl Into<String>) -> Self {
        self.vm.hostname = Some(hostname.into());
        self
    }

    /// Guest processes run as uid 0 of the VM, with nine capabilities over the VM only; else as `agentos` (1000).
    #[must_use]
    pub fn root(mut self, root: bool) -> Self {
        self.vm.user.root = root;
        self
    }

    /// Size of everything the guest writes, bytes; 1 GiB if not set.
    #[must_use]
    pub fn disk_bytes(mut self, bytes: u64) -> Self {
        self.vm.writable_layer.size_bytes = Some(bytes);
        self
    }

    /// Files and folders the guest may make; 262 144 if not set.
    #[must_use]
    pub fn disk_inodes(mut self, inodes: u64) -> Self {
        self.vm.writable_layer.inodes = Some(inodes);
        self
    }

    /// Processes and threads of the guest at once; 1024 if not set.
    #[must_use]
    pub fn pids(mut self, pids: u64) -> Self {
        self.vm.limits.pids = Some(pids);
        self
    }

    /// Descriptors a guest process may hold.
    #[must_use]
    pub fn open_files(mut self, open_files: u64) -> Self {
        self.vm.limits.open_files = Some(open_files);
        self
    }

    /// Memory the guest may use in all, bytes, what it has written to its file system included: at least 16 MiB. The
    /// guest's largest process ends when it is met. Refused where this host has nothing that enforces it.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.vm.limits.memory_bytes = Some(bytes);
        self
    }

    /// Processor time the guest may use in all, in thousandths of a processor: at least 10. Refused where this host has
    /// nothing that enforces it.
    #[must_use]
    pub fn cpu_millicores(mut self, millicores: u64) -> Self {
        self.vm.limits.cpu_millicores = Some(millicores);
        self
    }

    /// Largest file a guest process may write, bytes.
    #[must_use]
    pub fn file_size_bytes(mut self, bytes: u64) -> Self {
        self.vm.limits.file_size_bytes = Some(bytes);
        self
    }

    /// Largest core a guest process may leave, bytes; none if not set. Refused while the host hands cores to a program
    /// of its own.
    #[must_use]
    pub fn core_bytes(mut self, bytes: u64) -> Self {
        self.vm.limits.core_bytes = Some(bytes);
        self
    }

    /// What the client itself keeps of processes.
    #[must_use]
    pub fn process_limits(mut self, limits: ProcessLimits) -> Self {
        self.limits = limits;
        self
    }
}

/// Bounds on what a handle keeps of its processes. [`AgentOsConfig`] shows how to set them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessLimits {
    /// Entries of spawned processes, live and ended: 1024. At the limit the oldest ended ones go; if all live,
    /// `spawn` is refused with [`ClientError::ResourceLimit`](crate::ClientError::ResourceLimit).
    pub spawned: u64,
    /// Output retained per stream for late subscribers: 512 KiB. Never less than 256 KiB.
    pub retained_output_bytes: u64,
    /// Output retained over all processes of the VM: 64 MiB. Beyond it ended processes lose theirs first, the oldest
    /// before the others; then live ones what they hold beyond an equal share.
    pub vm_retained_output_bytes: u64,
    /// Bytes that may wait to be written to one process's standard input: 1 MiB.
    pub stdin_queue_bytes: u64,
    /// How long after a call's timeout the sidecar may take to tell that its process has ended: 5 s. Then the call fails
    /// with [`ClientError::TerminationUnconfirmed`](crate::ClientError::TerminationUnconfirmed).
    pub kill_confirmation: Duration,
}

impl ProcessLimits {
    /// One window: what may arrive before anybody can read.
    const MIN_RETAINED_OUTPUT_BYTES: u64 = 256 << 10;

    pub(crate) fn retained_per_stream(&self) -> u64 {
        self.retained_output_bytes.max(Self::MIN_RETAINED_OUTPUT_BYTES)
    }
}

impl Default for ProcessLimits {
    fn default() -> Self {
        Self {
            spawned: 1024,
            retained_output_bytes: 512 << 10,
            vm_retained_output_bytes: 64 << 20,
            stdin_queue_bytes: 1 << 20,
            kill_confirmation: Duration::from_secs(5),
        }
    }
}
