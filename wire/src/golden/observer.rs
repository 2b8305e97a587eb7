//! What an observation tells: a line for each kind of event.

use crate::{
    bytes64::{split, split_all},
    observer::{
        EventCategory, NetworkAddress, ObserverBackend, ObserverEvent, ObserverEventKind as Kind, ProcessKey,
    },
    process::FileAccess,
};

/// One line.
#[derive(Debug, Clone)]
pub struct Line {
    /// Its file, without folder and ending; begins with the name of its kind.
    pub name: &'static str,
    /// Its value.
    pub event: ObserverEvent,
}

impl Line {
    /// The line as it is in the stream, without its end.
    pub fn text(&self) -> String {
        serde_json::to_string(&self.event).expect("an event is plain JSON")
    }
}

const ROOT: ProcessKey = ProcessKey { pid: 2, start_ticks: 81_004 };
const CHILD: ProcessKey = ProcessKey { pid: 3, start_ticks: 81_006 };

/// Every kind of event.
pub fn observer() -> Vec<Line> {
    use EventCategory::{File, Lifecycle, Network, Process};
    let (path, path_b64) = split(b"/workspace/caf\xe9".into());
    let (argv, argv_b64) = split_all(vec![b"cat".to_vec(), b"caf\xe9".to_vec()]);
    let plain = || "/workspace/notes.txt".to_owned();
    let (from, to) = (plain(), "/workspace/notes.old".to_owned());
    let web =
        NetworkAddress { proto: Some("tcp".into()), ..NetworkAddress::ip(([127, 0, 0, 1], 8080).into()) };
    let socket = NetworkAddress::unix(b"/run/user/bus".to_vec());
    let events = vec![
        ("started", Lifecycle, Kind::Started { adopted: false }),
        ("exited", Lifecycle, Kind::Exited { exit_code: Some(0), signal: None }),
        ("exited_signaled", Lifecycle, Kind::Exited { exit_code: None, signal: Some(9) }),
        ("descendant-started", Process, Kind::DescendantStarted { adopted: false }),
        ("descendant-started_adopted", Process, Kind::DescendantStarted { adopted: true }),
        (
            "descendant-exec",
            Process,
            Kind::DescendantExec {
                path: "/usr/bin/cat".into(),
                path_b64: None,
                argv,
                argv_b64,
                truncated: true,
                cwd: Some("/workspace".into()),
                cwd_b64: None,
            },
        ),
        ("descendant-stopped", Process, Kind::DescendantStopped { signal: 19 }),
        ("descendant-continued", Process, Kind::DescendantContinued),
        ("descendant-exited", Process, Kind::DescendantExited { exit_code: Some(1), signal: None }),
        (
            "file-open",
            File,
            Kind::FileOpen { path, path_b64, access: FileAccess::Write, create: true, truncate: true },
        ),
        ("file-write", File, Kind::FileWrite { bytes: 4096 }),
        ("file-close", File, Kind::FileClose { path: plain(), path_b64: None }),
        ("file-unlink", File, Kind::FileUnlink { path: plain(), path_b64: None }),
        (
            "file-rename",
            File,
            Kind::FileRename { from: from.clone(), from_b64: None, to: to.clone(), to_b64: None },
        ),
        ("file-mkdir", File, Kind::FileMkdir { path: plain(), path_b64: None }),
        ("file-rmdir", File, Kind::FileRmdir { path: plain(), path_b64: None }),
        (
            "file-link",
            File,
            Kind::FileLink { from: from.clone(), from_b64: None, to: to.clone(), to_b64: None },
        ),
        ("file-symlink", File, Kind::FileSymlink { from, from_b64: None, to, to_b64: None }),
        ("file-truncate", File, Kind::FileTruncate { path: plain(), path_b64: None }),
        ("network-connect", Network, Kind::NetworkConnect { address: web.clone() }),
        ("network-bind", Network, Kind::NetworkBind { address: socket }),
        ("network-listen", Network, Kind::NetworkListen),
        (
            "network-send",
            Network,
            Kind::NetworkSend { address: NetworkAddress { proto: Some("udp".into()), ..web } },
        ),
        ("orphaned", Process, Kind::Orphaned),
        ("loss", Process, Kind::Loss { reason: Kind::OVERFLOW.into(), count: 1200 }),
        ("complete", Lifecycle, Kind::Complete),
    ];
    (1..)
        .zip(events)
        .map(|(seq, (name, category, kind))| Line { name, event: event(seq, category, kind) })
        .collect()
}

fn event(seq: u64, category: EventCategory, kind: Kind) -> ObserverEvent {
    let (pid, key, parent_key) = match (category, &kind) {
        (_, Kind::Loss { .. }) => (None, None, None),
        (EventCategory::Lifecycle, _) => (Some(1_000_000), Some(ROOT), None),
        _ => (Some(CHILD.pid), Some(CHILD), Some(ROOT)),
    };
    ObserverEvent {
        seq,
        pid,
        key,
        parent_key,
        timestamp_ms: 1_767_225_600_000 + seq,
        mono_ns: 810_040_000_000_000 + seq,
        backend: if category == EventCategory::Lifecycle {
            ObserverBackend::Spawn
        } else {
            ObserverBackend::Ptrace
        },
        attempt: matches!(kind, Kind::NetworkConnect { .. }),
        errno: matches!(kind, Kind::FileUnlink { .. }).then_some(2),
        ..ObserverEvent::new(category, kind)
    }
}
