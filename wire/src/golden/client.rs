//! What a client says.

use std::collections::BTreeMap;

use super::Sample;
use crate::{
    bytes64::{split, split_all},
    error::Code,
    id::{ProcessId, RequestId, StreamId, VmId},
    message::{Envelope, Request, Scope},
    observer::{EventCategory, Observe, ObserveVm, ReadObserverCapabilities, TraceScope},
    process::{
        Drain, Execute, OutputMode, ProcessRef, ProcessSnapshot, ReadCmdline, ReadFileHandles, Signal,
        SignalProcess, SignalTarget, StdinMode, StdioStreams,
    },
    resource::ReadResourceUsage,
    session::{Hello, Peer},
    vm::{DisposeVm, ListVms, VmConfig, VmLimits, VmUser, WritableLayer},
};

/// The VM of all samples.
pub(super) fn vm() -> VmId {
    VmId(uuid::Uuid::from_u128(0x7d1e_5a30_9c0b_4f0e_8a51_2b6c_9d3e_4f01))
}

/// Every request and every control message of a client.
pub fn client() -> Vec<Sample> {
    vec![
        request("hello", 1, Scope::SESSION, Request::Hello(hello())),
        request(
            "hello_token",
            1,
            Scope::SESSION,
            Request::Hello(Hello { token: Some("5b0e…, from the token file".into()), ..hello() }),
        ),
        request("create_vm", 2, Scope::SESSION, Request::CreateVm(create_vm())),
        request("create_vm_defaults", 3, Scope::SESSION, Request::CreateVm(VmConfig::default())),
        request("list_vms", 4, Scope::SESSION, Request::ListVms(ListVms {})),
        request("execute", 5, Scope::vm(vm()), Request::Execute(execute())),
        request("execute_bytes", 6, Scope::vm(vm()), Request::Execute(execute_bytes())),
        request("execute_minimal", 7, Scope::vm(vm()), Request::Execute(execute_minimal())),
        request(
            "signal_process",
            8,
            Scope::vm(vm()),
            Request::SignalProcess(SignalProcess {
                process: ProcessId(1_000_000),
                signal: Signal::TERM,
                target: SignalTarget::Group,
            }),
        ),
        request(
            "process_snapshot",
            9,
            Scope::vm(vm()),
            Request::ProcessSnapshot(ProcessSnapshot { after: Some(17), max_bytes: Some(65_536) }),
        ),
        request(
            "read_cmdline",
            13,
            Scope::vm(vm()),
            Request::ReadCmdline(ReadCmdline {
                of: ProcessRef::Process(ProcessId(1_000_000)),
                offset: Some(1_048_576),
            }),
        ),
        request(
            "read_file_handles",
            14,
            Scope::vm(vm()),
            Request::ReadFileHandles(ReadFileHandles { of: ProcessRef::Pid(3), after: Some(2) }),
        ),
        request("resource_usage", 15, Scope::vm(vm()), Request::ResourceUsage(ReadResourceUsage {})),
        request(
            "observer_capabilities",
            16,
            Scope::SESSION,
            Request::ObserverCapabilities(ReadObserverCapabilities {
                scope: TraceScope::LaunchedProcessTree,
            }),
        ),
        request(
            "observe",
            17,
            Scope::vm(vm()),
            Request::Observe(ObserveVm {
                observe: observe(6, &[EventCategory::Process]),
                reach: TraceScope::LaunchedProcessTree,
                window_bytes: Some(16_384),
            }),
        ),
        request(
            "observe_system_wide",
            18,
            Scope::vm(vm()),
            Request::Observe(ObserveVm {
                observe: Observe { require_exact: false, ..observe(7, &[EventCategory::Process]) },
                reach: TraceScope::SystemWide,
                window_bytes: None,
            }),
        ),
        request("dispose_vm", 10, Scope::vm(vm()), Request::DisposeVm(DisposeVm { grace_ms: 0 })),
        request("dispose_vm_grace", 11, Scope::vm(vm()), Request::DisposeVm(DisposeVm { grace_ms: 5000 })),
        Sample::new("cancel", Envelope::Cancel { id: RequestId(5) }),
        Sample::new("credit", Envelope::Credit { stream: StreamId(2), received: 131_072, limit: 327_680 }),
        Sample::new(
            "reset",
            Envelope::Reset {
                stream: StreamId(1),
                code: Code::CANCELLED,
                message: "the source of standard input failed".into(),
            },
        ),
        Sample::new("stop", Envelope::Stop { stream: StreamId(3), code: Code::CANCELLED }),
    ]
}

fn request(name: &'static str, id: u64, scope: Scope, request: Request) -> Sample {
    Sample::new(name, Envelope::Request { id: RequestId(id), scope, request: Ok(request) })
}

fn observe(stream: u32, categories: &[EventCategory]) -> Observe {
    Observe { stream: StreamId(stream), categories: categories.to_vec(), require_exact: true }
}

fn hello() -> Hello {
    Hello {
        token: None,
        protocol_min: 1,
        protocol_max: 1,
        client: Peer {
            name: "agentvm-sdk".into(),
            version: "0.1.0".into(),
            build: Some("0.1.0+53f1c2a8e97b0d46".into()),
        },
    }
}

fn create_vm() -> VmConfig {
    VmConfig {
        env: BTreeMap::from([("EDITOR".into(), "vi".into())]),
        cwd: Some("/workspace/project".into()),
        hostname: Some("build-7".into()),
        user: VmUser { root: true },
        writable_layer: WritableLayer { size_bytes: Some(268_435_456), inodes: Some(65_536) },
        limits: VmLimits {
            pids: Some(256),
            open_files: Some(1024),
            memory_bytes: Some(536_870_912),
            cpu_millicores: Some(1500),
            file_size_bytes: Some(268_435_456),
            core_bytes: Some(1_048_576),
        },
        ..VmConfig::default()
    }
}

fn execute() -> Execute {
    Execute {
        command: "/bin/sh".into(),
        arg0: Some("sh".into()),
        args: vec!["-c".into(), "sort | tee sorted.txt".into()],
        env: BTreeMap::from([("LC_ALL".into(), "C".into())]),
        cwd: Some("/workspace".into()),
        stdin: StdinMode::Pipe,
        stdout: OutputMode::Pipe,
        stderr: OutputMode::Pipe,
        streams: StdioStreams {
            stdin: Some(StreamId(1)),
            stdout: Some(StreamId(2)),
            stderr: Some(StreamId(3)),
        },
        window_bytes: Some(65_536),
        drain: Some(Drain { quiet_ms: 50, max_ms: 1000 }),
        timeout_ms: Some(30_000),
        cpu_time_limit_ms: Some(10_000),
        memory_limit_bytes: Some(268_435_456),
        allow_best_effort: true,
        observe: Some(observe(4, &[EventCategory::Lifecycle, EventCategory::Process])),
        ..execute_minimal()
    }
}

/// A script, an argument and a folder whose names are no UTF-8.
fn execute_bytes() -> Execute {
    let (command, command_b64) = split(b"/workspace/caf\xe9".into());
    let (args, args_b64) = split_all(vec![b"plain".into(), b"\xff\xfe".to_vec()]);
    let (cwd, cwd_b64) = split(b"/workspace/na\xefve".into());
    Execute {
        process: ProcessId(1_000_001),
        command,
        command_b64,
        script: true,
        args,
        args_b64,
        cwd: Some(cwd),
        cwd_b64,
        stdout: OutputMode::Pipe,
        stderr: OutputMode::ToStdout,
        streams: StdioStreams { stdout: Some(StreamId(5)), ..StdioStreams::default() },
        ..execute_minimal()
    }
}

pub(super) fn execute_minimal() -> Execute {
    Execute::new(ProcessId(1_000_000), "true")
}
