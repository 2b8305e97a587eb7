//! What happened.

use std::{ffi::OsStr, fmt, os::unix::ffi::OsStrExt as _, path::Path};

use serde::{Deserialize, Serialize};

use super::choice;
use crate::{
    bytes64::{self, Bytes64},
    process::FileAccess,
};

/// What happened. Each has a stable name, [`ObserverEventKind::as_str`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", content = "body", rename_all = "kebab-case")]
#[non_exhaustive]
#[expect(missing_docs, reason = "what a field means is told once, where it first occurs")]
pub enum ObserverEventKind {
    /// A process that was started through the API has executed its program.
    Started {
        /// It ran already when the observation began.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        adopted: bool,
    },
    /// It has ended.
    Exited {
        /// Its exit status, where it ended by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<u8>,
        /// The number of the signal that ended it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
    },
    /// A descendant was made.
    DescendantStarted {
        /// It was there already when the observation began.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        adopted: bool,
    },
    /// A process has executed a program.
    DescendantExec {
        /// The file that runs; of a script its interpreter.
        path: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path_b64: Option<Bytes64>,
        /// Arguments with argv\[0\].
        argv: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        argv_b64: Option<Vec<Bytes64>>,
        /// Not all of this was kept.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        truncated: bool,
        /// Working directory, where it could be read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd_b64: Option<Bytes64>,
    },
    /// A signal has stopped a process.
    DescendantStopped {
        /// The signal's number.
        signal: i32,
    },
    /// A process that was stopped goes on.
    DescendantContinued,
    /// A descendant has ended.
    DescendantExited {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<u8>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
    },
    /// A file was opened.
    FileOpen {
        path: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path_b64: Option<Bytes64>,
        /// What for.
        access: FileAccess,
        /// It is made if it is missing.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        create: bool,
        /// What it held is dropped.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        truncate: bool,
    },
    /// A process has written so many bytes in all; told at its end.
    FileWrite { bytes: u64 },
    /// A file was closed.
    FileClose {
        path: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path_b64: Option<Bytes64>,
    },
    /// A file was removed.
    FileUnlink {
        path: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path_b64: Option<Bytes64>,
    },
    /// A file was renamed.
    FileRename {
        from: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from_b64: Option<Bytes64>,
        to: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to_b64: Option<Bytes64>,
    },
    /// A folder was made.
    FileMkdir {
        path: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path_b64: Option<Bytes64>,
    },
    /// A folder was removed.
    FileRmdir {
        path: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path_b64: Option<Bytes64>,
    },
    /// A second name was given to a file.
    FileLink {
        from: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from_b64: Option<Bytes64>,
        to: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to_b64: Option<Bytes64>,
    },
    /// A symbolic link was made: `to` is the new name, `from` what it leads to.
    FileSymlink {
        from: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from_b64: Option<Bytes64>,
        to: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to_b64: Option<Bytes64>,
    },
    /// A file was cut or grown by its name.
    FileTruncate {
        path: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path_b64: Option<Bytes64>,
    },
    /// A socket was connected.
    NetworkConnect {
        /// With whom.
        address: NetworkAddress,
    },
    /// A socket was given an address.
    NetworkBind { address: NetworkAddress },
    /// A socket takes connections.
    NetworkListen,
    /// Something was sent to an address.
    NetworkSend { address: NetworkAddress },
    /// A descendant outlives the process that was started: it goes on, and is watched on.
    Orphaned,
    /// Something was not seen, or is not told.
    Loss {
        /// Why: `overflow`, or what has failed.
        reason: String,
        /// How many events, where that is known.
        count: u64,
    },
    /// Nothing follows.
    Complete,
}

/// Where a socket leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct NetworkAddress {
    /// Which kind of address.
    pub family: AddressFamily,
    /// `tcp`, `udp`, …; where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proto: Option<String>,
    /// An IP address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addr: Option<String>,
    /// Its port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Of a Unix socket: its path, or `@` and its abstract name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// `path` where it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_b64: Option<Bytes64>,
}

choice! {
    /// Which kind of address a socket has.
    AddressFamily {
        /// IPv4.
        Inet = "inet",
        /// IPv6.
        Inet6 = "inet6",
        /// Unix.
        Unix = "unix",
        /// Netlink, vsock, …
        Other = "other",
    }
}

impl NetworkAddress {
    /// An IP address and its port.
    pub fn ip(address: std::net::SocketAddr) -> Self {
        let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let (addr, port) = (Some(address.ip().to_string()), Some(address.port()));
        Self { family, proto: None, addr, port, path: None, path_b64: None }
    }

    /// A Unix socket, by its path or by `@` and its abstract name.
    pub fn unix(path: Vec<u8>) -> Self {
        let (path, path_b64) = bytes64::split(path);
        let family = AddressFamily::Unix;
        Self { family, proto: None, addr: None, port: None, path: Some(path), path_b64 }
    }

    /// Of another family.
    pub fn other() -> Self {
        let family = AddressFamily::Other;
        Self { family, proto: None, addr: None, port: None, path: None, path_b64: None }
    }
}

impl fmt::Display for NetworkAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.path, &self.addr, self.port) {
            (Some(path), ..) => f.write_str(path),
            (_, Some(addr), Some(port)) if addr.contains(':') => write!(f, "[{addr}]:{port}"),
            (_, Some(addr), Some(port)) => write!(f, "{addr}:{port}"),
            _ => f.write_str(self.family.as_str()),
        }
    }
}

impl ObserverEventKind {
    /// The reason of a loss where events waited too long for their reader.
    pub const OVERFLOW: &str = "overflow";
    /// The reason of a loss where events came too fast for the sidecar.
    pub const UNSENT: &str = "unsent";

    /// Its stable name.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Started { .. } => "started",
            Self::Exited { .. } => "exited",
            Self::DescendantStarted { .. } => "descendant-started",
            Self::DescendantExec { .. } => "descendant-exec",
            Self::DescendantStopped { .. } => "descendant-stopped",
            Self::DescendantContinued => "descendant-continued",
            Self::DescendantExited { .. } => "descendant-exited",
            Self::FileOpen { .. } => "file-open",
            Self::FileWrite { .. } => "file-write",
            Self::FileClose { .. } => "file-close",
            Self::FileUnlink { .. } => "file-unlink",
            Self::FileRename { .. } => "file-rename",
            Self::FileMkdir { .. } => "file-mkdir",
            Self::FileRmdir { .. } => "file-rmdir",
            Self::FileLink { .. } => "file-link",
            Self::FileSymlink { .. } => "file-symlink",
            Self::FileTruncate { .. } => "file-truncate",
            Self::NetworkConnect { .. } => "network-connect",
            Self::NetworkBind { .. } => "network-bind",
            Self::NetworkListen => "network-listen",
            Self::NetworkSend { .. } => "network-send",
            Self::Orphaned => "orphaned",
            Self::Loss { .. } => "loss",
            Self::Complete => "complete",
        }
    }

    /// How a process ended, as one number: its exit status, or the number of the signal below zero.
    pub fn folded_code(&self) -> Option<i32> {
        match *self {
            Self::Exited { exit_code, signal } | Self::DescendantExited { exit_code, signal } => {
                signal.map(|signal| -signal).or(exit_code.map(i32::from))
            }
            _ => None,
        }
    }

    /// The file it is about: of two names the new one.
    pub fn path(&self) -> Option<&Path> {
        let (text, b64) = match self {
            Self::DescendantExec { path, path_b64, .. }
            | Self::FileOpen { path, path_b64, .. }
            | Self::FileClose { path, path_b64 }
            | Self::FileUnlink { path, path_b64 }
            | Self::FileMkdir { path, path_b64 }
            | Self::FileRmdir { path, path_b64 }
            | Self::FileTruncate { path, path_b64 } => (path, path_b64),
            _ => self.names().map(|[_, to]| to)?,
        };
        Some(as_path(text, b64.as_ref()))
    }

    /// Of two names the old one.
    pub fn from_path(&self) -> Option<&Path> {
        self.names().map(|[(text, b64), _]| as_path(text, b64.as_ref()))
    }

    /// The old name and the new one, where there are two.
    fn names(&self) -> Option<[(&String, &Option<Bytes64>); 2]> {
        match self {
            Self::FileRename { from, from_b64, to, to_b64 }
            | Self::FileLink { from, from_b64, to, to_b64 }
            | Self::FileSymlink { from, from_b64, to, to_b64 } => Some([(from, from_b64), (to, to_b64)]),
            _ => None,
        }
    }

    /// The arguments of an executed program, argv\[0\] first; none for anything else.
    pub fn argv(&self) -> impl Iterator<Item = &OsStr> {
        let (argv, b64) = match self {
            Self::DescendantExec { argv, argv_b64, .. } => (&argv[..], argv_b64.as_deref()),
            _ => (&[][..], None),
        };
        bytes64::view_all(argv, b64).map(OsStr::from_bytes)
    }

    /// Bytes of text in it, about.
    pub(super) fn text_bytes(&self) -> usize {
        let paths = self.path().map_or(0, |path| path.as_os_str().len())
            + self.from_path().map_or(0, |path| path.as_os_str().len());
        paths + self.argv().map(|argument| argument.len() + size_of::<String>()).sum::<usize>()
    }
}

fn as_path<'a>(text: &'a str, b64: Option<&'a Bytes64>) -> &'a Path {
    Path::new(OsStr::from_bytes(bytes64::view(text, b64)))
}
