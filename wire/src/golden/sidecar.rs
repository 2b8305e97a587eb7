//! What a sidecar says.

use super::{
    Sample,
    client::{execute_minimal, vm},
};
use crate::{
    bytes64::Bytes64,
    error::{Code, Details, Rejection},
    id::{ProcessId, RequestId, StreamId},
    message::{Envelope, Event, Response, Scope},
    observer::{
        CategoryCapability, EventCategory, ObserverBackend, ObserverCapabilities, Observing, Told, TraceScope,
    },
    process::{
        Cmdline, Execute, ExitCause, FileAccess, FileHandle, FileHandles, FileKind, OutputDrained,
        ProcessExited, ProcessRow, ProcessSignaled, ProcessStarted, ProcessStatus, ProcessTable, StreamEnds,
    },
    resource::{LimitWarning, Resource, ResourceUsage},
    session::{Limits, Peer, Welcome},
    vm::{
        GuestIdentity, IdMapping, Isolation, IsolationReport, LimitReport, Namespaces, Partial,
        SeccompReport, VmCreated, VmDisposed, VmState, VmStateChanged, Vms,
    },
};

/// Every response, every event and every control message of a sidecar.
pub fn sidecar() -> Vec<Sample> {
    let exited_ok = exited(ProcessId(1_000_000), 0);
    vec![
        response("welcome", 1, 1, Response::Welcome(welcome())),
        response("vm_created", 2, 2, Response::VmCreated(vm_created())),
        response("vms", 3, 4, Response::Vms(Vms { vms: vec![vm()] })),
        response(
            "process_started",
            4,
            5,
            Response::ProcessStarted(ProcessStarted { pid: 2, started_at_ms: 1_767_225_600_000 }),
        ),
        response("process_signaled", 5, 8, Response::ProcessSignaled(ProcessSignaled { delivered: 2 })),
        response("process_table", 6, 9, Response::ProcessTable(process_table())),
        response("cmdline", 16, 13, Response::Cmdline(cmdline())),
        response("file_handles", 17, 14, Response::FileHandles(file_handles())),
        response("resource_usage", 18, 15, Response::ResourceUsage(resource_usage())),
        response("observer_capabilities", 20, 16, Response::ObserverCapabilities(observer_capabilities())),
        response("observing", 21, 17, Response::Observing(Observing {})),
        response("vm_disposed", 7, 10, Response::VmDisposed(VmDisposed {})),
        response("rejected", 8, 6, Response::Rejected(missing_cwd())),
        response("rejected_limit", 9, 11, Response::Rejected(too_large())),
        response("rejected_vm_not_found", 10, 12, Response::Rejected(Rejection::vm_not_found())),
        event("process_exited", 11, Scope::vm(vm()), Event::ProcessExited(exited_ok)),
        event(
            "process_exited_signaled",
            12,
            Scope::vm(vm()),
            Event::ProcessExited(ProcessExited {
                signal: Some("SIGSEGV".into()),
                cause: ExitCause::Signaled,
                core_dumped: true,
                end: StreamEnds { stdout: Some(0), stderr: None },
                output_open: true,
                told: vec![Told { stream: StreamId(6), seq: 42 }],
                ..exited(ProcessId(1_000_001), 139)
            }),
        ),
        event(
            "output_drained",
            13,
            Scope::vm(vm()),
            Event::OutputDrained(OutputDrained {
                process: ProcessId(1_000_000),
                end: StreamEnds { stdout: Some(4096), stderr: Some(0) },
            }),
        ),
        event(
            "vm_state",
            14,
            Scope::vm(vm()),
            Event::VmState(VmStateChanged { state: VmState::Disposed, reason: None }),
        ),
        event(
            "vm_state_failed",
            15,
            Scope::vm(vm()),
            Event::VmState(VmStateChanged {
                state: VmState::Failed,
                reason: Some("init was killed by signal 9".into()),
            }),
        ),
        event(
            "limit_warning",
            19,
            Scope::vm(vm()),
            Event::LimitWarning(LimitWarning {
                limit: "max_processes".into(),
                observed: 3277,
                capacity: 4096,
                fill_percent: 80,
            }),
        ),
        Sample::new("credit", Envelope::Credit { stream: StreamId(1), received: 65_536, limit: 327_680 }),
        Sample::new(
            "reset",
            Envelope::Reset {
                stream: StreamId(2),
                code: Code::EIO,
                message: "reading the pipe failed".into(),
            },
        ),
        Sample::new("stop", Envelope::Stop { stream: StreamId(1), code: Code::EPIPE }),
    ]
}

fn response(name: &'static str, seq: u64, id: u64, response: Response) -> Sample {
    Sample::new(name, Envelope::Response { seq, id: RequestId(id), response: Some(response) })
}

fn event(name: &'static str, seq: u64, scope: Scope, event: Event) -> Sample {
    Sample::new(name, Envelope::Event { seq, scope, event: Some(event) })
}

fn welcome() -> Welcome {
    Welcome {
        protocol: 1,
        sidecar: Peer {
            name: "agentvm-sidecar".into(),
            version: "0.1.0".into(),
            build: Some("0.1.0+53f1c2a8e97b0d46".into()),
        },
        os: "linux".into(),
        arch: "x86_64".into(),
        session: "2f1c9a7e-6b0d-4c58-9f43-d1a0b7e85c62".into(),
        grace_ms: 0,
        limits: Limits::default(),
        features: Vec::new(),
    }
}

fn vm_created() -> VmCreated {
    VmCreated { vm: vm(), isolation: isolation_report(), boot_us: 1480 }
}

fn isolation_report() -> IsolationReport {
    let mapping = |outside| vec![IdMapping { inside: 0, outside, count: 65_536 }];
    let inode = |last: u8| format!("40265324{last:02}");
    IsolationReport {
        isolation: Isolation::Sandbox,
        hostname: "build-7".into(),
        namespaces: Some(Namespaces {
            user: inode(11),
            pid: inode(14),
            mnt: inode(12),
            net: inode(16),
            uts: inode(13),
            ipc: inode(15),
            cgroup: inode(17),
        }),
        uid_map: mapping(1_073_741_824),
        gid_map: mapping(1_073_741_824),
        guest: GuestIdentity {
            uid: 0,
            gid: 0,
            home: "/root".into(),
            capabilities: vec!["CHOWN".into(), "DAC_OVERRIDE".into(), "KILL".into()],
        },
        no_new_privs: true,
        seccomp: SeccompReport { mode: 2, filters: Some(5) },
        landlock: None,
        limits: vec![
            LimitReport {
                name: "pids".into(),
                requested: Some(256),
                effective: Some(256),
                enforced_by: "cgroup".into(),
                missing: None,
            },
            LimitReport {
                name: "pid_max".into(),
                requested: None,
                effective: None,
                enforced_by: "none".into(),
                missing: None,
            },
            LimitReport {
                name: "memory_bytes".into(),
                requested: None,
                effective: None,
                enforced_by: "none".into(),
                missing: Some("make /sys/fs/cgroup/memory/agentvm-7f21: Permission denied".into()),
            },
            LimitReport {
                name: "disk_bytes".into(),
                requested: Some(268_435_456),
                effective: Some(268_435_456),
                enforced_by: "tmpfs".into(),
                missing: None,
            },
        ],
        partial: vec![Partial {
            what: "pid_max".into(),
            why: "a pid namespace has a pid limit of its own only since Linux 6.14".into(),
        }],
    }
}

fn exited(process: ProcessId, exit_code: i32) -> ProcessExited {
    ProcessExited {
        process,
        exit_code,
        signal: None,
        cause: ExitCause::Exited,
        core_dumped: false,
        end: StreamEnds { stdout: Some(4096), stderr: Some(0) },
        output_open: false,
        told: Vec::new(),
        user_us: 1250,
        sys_us: 830,
        max_rss_bytes: 3_538_944,
        exited_at_ms: 1_767_225_600_042,
    }
}

fn process_table() -> ProcessTable {
    let (args, args_b64) = crate::bytes64::split_all(vec![b"cat".to_vec(), b"caf\xe9".to_vec()]);
    let init = ProcessRow {
        process: None,
        root: None,
        pid: 1,
        ppid: 0,
        pgid: 1,
        sid: 1,
        driver: "agentvm-sidecar".into(),
        command: "agentvm-init".into(),
        args: vec!["agentvm-init".into()],
        args_b64: None,
        args_truncated: false,
        cwd: None,
        status: ProcessStatus::Running,
        exit_code: None,
        signal: None,
        started_at_ms: 1_767_225_599_990,
        exited_at_ms: None,
        rss_bytes: 589_824,
        cpu_time_us: 410,
    };
    let process = Some(ProcessId(1_000_000));
    let shell = ProcessRow {
        process,
        root: process,
        pid: 2,
        ppid: 1,
        pgid: 2,
        sid: 2,
        command: "sh".into(),
        args: vec!["sh".into(), "-c".into(), "sort | tee sorted.txt".into()],
        cwd: Some("/workspace".into()),
        status: ProcessStatus::Exited,
        exit_code: Some(143),
        signal: Some("SIGTERM".into()),
        started_at_ms: 1_767_225_600_000,
        exited_at_ms: Some(1_767_225_600_042),
        rss_bytes: 0,
        cpu_time_us: 2080,
        ..init.clone()
    };
    let child = ProcessRow {
        root: process,
        pid: 3,
        pgid: 2,
        sid: 2,
        command: "cat".into(),
        args,
        args_b64,
        args_truncated: true,
        cwd: Some("/workspace".into()),
        status: ProcessStatus::Stopped,
        started_at_ms: 1_767_225_600_001,
        ..init.clone()
    };
    ProcessTable { rows: vec![init, shell, child], next: Some(3) }
}

fn cmdline() -> Cmdline {
    Cmdline { cmdline_b64: Bytes64(b"sh\0-c\0read line\0\0".to_vec()), next: None }
}

fn file_handles() -> FileHandles {
    let pipe = FileHandle {
        fd: 3,
        kind: FileKind::Pipe,
        target: "pipe:[48211]".into(),
        target_b64: None,
        access: FileAccess::Write,
        append: false,
        nonblocking: true,
        close_on_exec: true,
        position_bytes: 0,
    };
    let (target, target_b64) = crate::bytes64::split(b"/workspace/caf\xe9".into());
    let log = FileHandle {
        fd: 4,
        kind: FileKind::File,
        target,
        target_b64,
        access: FileAccess::ReadWrite,
        append: true,
        nonblocking: false,
        close_on_exec: false,
        position_bytes: 4096,
    };
    FileHandles { handles: vec![pipe, log], next: Some(4) }
}

fn resource_usage() -> ResourceUsage {
    let processes =
        Resource { name: "max_processes".into(), used: 3, limit: Some(4096), unit: "processes".into() };
    let memory =
        Resource { name: "memory_bytes".into(), used: 52_428_800, limit: None, unit: "bytes".into() };
    ResourceUsage { resources: vec![processes, memory] }
}

fn observer_capabilities() -> ObserverCapabilities {
    let (ptrace, notification) = (ObserverBackend::Ptrace, ObserverBackend::Notification);
    let categories = vec![
        CategoryCapability::supported(EventCategory::Lifecycle, ObserverBackend::Spawn),
        CategoryCapability::partial(
            EventCategory::File,
            notification,
            "io_uring passes the system calls by",
            vec!["io_uring".into()],
        ),
        CategoryCapability::unavailable(EventCategory::Network, "seccomp_unotify(2): EBUSY"),
        CategoryCapability::supported(EventCategory::Process, ptrace),
    ];
    ObserverCapabilities { scope: TraceScope::LaunchedProcessTree, categories }
}

fn missing_cwd() -> Rejection {
    Rejection {
        code: Code::from("ENOENT"),
        message: "cwd /workspace/gone: no such file or directory".into(),
        details: Box::new(Details {
            path: Some("/workspace/gone".into()),
            field: Some("cwd".into()),
            errno: Some(2),
            step: Some("cwd".into()),
            retryable: Some(false),
            ..Details::default()
        }),
    }
}

/// As the sidecar finds it: an argument longer than execve(2) takes.
fn too_large() -> Rejection {
    let execute = Execute { args: vec!["x".repeat(140_001)], ..execute_minimal() };
    execute.validate().expect_err("the argument is too long")
}
