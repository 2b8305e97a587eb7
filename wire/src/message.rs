//! Every control message: requests, responses and events by name, and the envelope they travel in.

mod encode;
mod envelope;
mod integers;
mod malformed;

use serde::{Deserialize, Serialize};

pub use encode::{encode_cancel, encode_credit, encode_reset, encode_stop};
pub use encode::{encode_event, encode_request, encode_response};
pub use envelope::{Decoded, Envelope, decode};
pub use integers::MAX_INTEGER;
pub use malformed::MalformedText;

use crate::{error::Rejection, id::VmId, observer, process, resource, session, vm};

/// What a request or an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Scope {
    /// The VM; absent: the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<VmId>,
}

impl Scope {
    /// The session itself.
    pub const SESSION: Scope = Scope { vm: None };

    /// One VM.
    pub const fn vm(vm: VmId) -> Self {
        Self { vm: Some(vm) }
    }
}

/// Declares an adjacently tagged set of messages: serialised by serde, deserialised in two steps (by name, then the
/// raw body), so that an unknown name is a value and not an error.
macro_rules! messages {
    ($(#[$doc:meta])* $set:ident { $($(#[$item_doc:meta])* $variant:ident($body:ty) = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(tag = "type", content = "body")]
        pub enum $set {
            $($(#[$item_doc])* #[serde(rename = $name)] $variant($body),)*
        }

        impl $set {
            /// The `type` of every message of the set.
            pub const NAMES: &[&str] = &[$($name),*];

            /// The message's `type` on the wire.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name,)* }
            }

            /// Reads the body of the message called `name`; `None` if this version knows no such message.
            pub(crate) fn decode(name: &str, body: &str) -> Result<Option<Self>, MalformedText> {
                match name {
                    $($name => malformed::parse_body(body).map(|body| Some(Self::$variant(body))),)*
                    _ => Ok(None),
                }
            }
        }
    };
}

messages! {
    /// What a client asks.
    Request {
        /// Opens the session; first and once.
        Hello(session::Hello) = "hello",
        /// Builds a VM.
        CreateVm(vm::VmConfig) = "create_vm",
        /// Ends a VM.
        DisposeVm(vm::DisposeVm) = "dispose_vm",
        /// Names this session's VMs.
        ListVms(vm::ListVms) = "list_vms",
        /// Starts a process.
        Execute(process::Execute) = "execute",
        /// Signals a process, its group or its tree.
        SignalProcess(process::SignalProcess) = "signal_process",
        /// Reads the VM's process table.
        ProcessSnapshot(process::ProcessSnapshot) = "process_snapshot",
        /// Reads the arguments of a process, whole.
        ReadCmdline(process::ReadCmdline) = "read_cmdline",
        /// Reads what a process holds open.
        ReadFileHandles(process::ReadFileHandles) = "read_file_handles",
        /// Tells what a VM uses.
        ResourceUsage(resource::ReadResourceUsage) = "resource_usage",
        /// Tells what can be observed here.
        ObserverCapabilities(observer::ReadObserverCapabilities) = "observer_capabilities",
        /// Observes a VM.
        Observe(observer::ObserveVm) = "observe",
    }
}

messages! {
    /// What a sidecar answers: exactly one to each request.
    Response {
        /// To `hello`.
        Welcome(session::Welcome) = "welcome",
        /// To `create_vm`.
        VmCreated(vm::VmCreated) = "vm_created",
        /// To `dispose_vm`.
        VmDisposed(vm::VmDisposed) = "vm_disposed",
        /// To `list_vms`.
        Vms(vm::Vms) = "vms",
        /// To `execute`.
        ProcessStarted(process::ProcessStarted) = "process_started",
        /// To `signal_process`.
        ProcessSignaled(process::ProcessSignaled) = "process_signaled",
        /// To `process_snapshot`.
        ProcessTable(process::ProcessTable) = "process_table",
        /// To `read_cmdline`.
        Cmdline(process::Cmdline) = "cmdline",
        /// To `read_file_handles`.
        FileHandles(process::FileHandles) = "file_handles",
        /// To `resource_usage`.
        ResourceUsage(resource::ResourceUsage) = "resource_usage",
        /// To `observer_capabilities`.
        ObserverCapabilities(observer::ObserverCapabilities) = "observer_capabilities",
        /// To `observe`.
        Observing(observer::Observing) = "observing",
        /// To any: it was not carried out.
        Rejected(Rejection) = "rejected",
    }
}

messages! {
    /// What a sidecar tells unasked.
    Event {
        /// A process ended; never dropped.
        ProcessExited(process::ProcessExited) = "process_exited",
        /// What an ended process's descendants still wrote was awaited as asked.
        OutputDrained(process::OutputDrained) = "output_drained",
        /// A VM's state changed; never dropped.
        VmState(vm::VmStateChanged) = "vm_state",
        /// A limit is nearly met.
        LimitWarning(resource::LimitWarning) = "limit_warning",
    }
}
