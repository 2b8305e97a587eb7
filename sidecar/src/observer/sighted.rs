//! What a keeper saw, as it is told to clients.

use agentvm_wire::{
    bytes64::{split, split_all},
    observer::{EventCategory, NetworkAddress, ObserverBackend, ObserverEvent, ObserverEventKind as Kind},
};
use rustix::fs::OFlags;

use crate::{
    init::{now_ms, now_ns},
    keeper::{Address, Backend, Executed, File, FileAct, Network, NetworkAct, Outcome, What},
    vm::inspect::access,
};

/// What the wire calls the means of a keeper.
pub(super) fn backend(backend: Backend) -> ObserverBackend {
    match backend {
        Backend::Ptrace => ObserverBackend::Ptrace,
        Backend::Notification => ObserverBackend::Notification,
        Backend::Polling => ObserverBackend::Polling,
    }
}

/// An event of the moment `at_ns` of the monotonic clock, about nobody yet.
pub(super) fn event(what: What, at_ns: u64, backend: ObserverBackend) -> ObserverEvent {
    let (category, kind, outcome) = match what {
        What::Forked { .. } => process(Kind::DescendantStarted { adopted: false }),
        What::Adopted { .. } => process(Kind::DescendantStarted { adopted: true }),
        What::Executed(executed) => process(exec(executed)),
        What::Stopped { signal } => process(Kind::DescendantStopped { signal }),
        What::Continued => process(Kind::DescendantContinued),
        What::Exited { code, signal } => process(Kind::DescendantExited { exit_code: code, signal }),
        What::File(seen) => (EventCategory::File, file(&seen), seen.outcome),
        What::Network(seen) => (EventCategory::Network, network(seen), Outcome::Attempt),
    };
    let mut event = ObserverEvent::new(category, kind);
    (event.mono_ns, event.backend) = (at_ns, backend);
    event.timestamp_ms = now_ms().saturating_sub(now_ns().saturating_sub(at_ns) / 1_000_000);
    match outcome {
        Outcome::Attempt => event.attempt = true,
        Outcome::Done => {}
        Outcome::Failed { errno } => event.errno = Some(errno),
    }
    event
}

fn process(kind: Kind) -> (EventCategory, Kind, Outcome) {
    (EventCategory::Process, kind, Outcome::Done)
}

fn exec(Executed { path, argv, cwd, truncated }: Executed) -> Kind {
    let ((path, path_b64), (argv, argv_b64)) = (split(path), split_all(argv));
    let (cwd, cwd_b64) = split(cwd);
    let cwd = Some(cwd).filter(|cwd| !cwd.is_empty());
    Kind::DescendantExec { path, path_b64, argv, argv_b64, truncated, cwd, cwd_b64 }
}

fn file(File { act, path, to, flags, .. }: &File) -> Kind {
    let (path, path_b64) = split(path.clone());
    let (to, to_b64) = split(to.clone().unwrap_or_default());
    match act {
        FileAct::Open => {
            let flags = OFlags::from_bits_retain(*flags);
            let (create, truncate) = (flags.contains(OFlags::CREATE), flags.contains(OFlags::TRUNC));
            Kind::FileOpen { path, path_b64, access: access(flags), create, truncate }
        }
        FileAct::Unlink => Kind::FileUnlink { path, path_b64 },
        FileAct::Rename => Kind::FileRename { from: path, from_b64: path_b64, to, to_b64 },
        FileAct::MakeFolder => Kind::FileMkdir { path, path_b64 },
        FileAct::RemoveFolder => Kind::FileRmdir { path, path_b64 },
        FileAct::Link => Kind::FileLink { from: path, from_b64: path_b64, to, to_b64 },
        FileAct::Symlink => Kind::FileSymlink { from: to, from_b64: to_b64, to: path, to_b64: path_b64 },
        FileAct::Truncate => Kind::FileTruncate { path, path_b64 },
    }
}

fn network(Network { act, address }: Network) -> Kind {
    let address = address.map_or_else(NetworkAddress::other, self::address);
    match act {
        NetworkAct::Connect => Kind::NetworkConnect { address },
        NetworkAct::Bind => Kind::NetworkBind { address },
        NetworkAct::Listen => Kind::NetworkListen,
        NetworkAct::Send => Kind::NetworkSend { address },
    }
}

fn address(address: Address) -> NetworkAddress {
    match address {
        Address::Inet(address) => NetworkAddress::ip(address),
        Address::Unix(mut path) => {
            // An abstract name.
            if let Some(first) = path.first_mut().filter(|first| **first == 0) {
                *first = b'@';
            }
            NetworkAddress::unix(path)
        }
        Address::Other(_) => NetworkAddress::other(),
    }
}
