//! What is told of one process: its arguments, whole, and what it holds open.

use serde::{Deserialize, Serialize};

use crate::{bytes64::Bytes64, id::ProcessId};

/// One process of a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProcessRef {
    /// One that was started by `execute`.
    Process(ProcessId),
    /// Any, by the pid it has inside the VM.
    Pid(u32),
}

/// Body of `read_cmdline`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReadCmdline {
    /// Of which process.
    pub of: ProcessRef,
    /// From this byte on: the `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
}

/// Body of `cmdline`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cmdline {
    /// The arguments, argv\[0\] first, each ended by a NUL; nothing for a zombie.
    pub cmdline_b64: Bytes64,
    /// More follows from this byte on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// Body of `read_file_handles`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReadFileHandles {
    /// Of which process.
    pub of: ProcessRef,
    /// Only descriptors above this one: the `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u32>,
}

/// Body of `file_handles`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct FileHandles {
    /// Rising by descriptor.
    pub handles: Vec<FileHandle>,
    /// More follow behind this descriptor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
}

/// One open descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileHandle {
    /// The descriptor.
    pub fd: u32,
    /// What it is open on.
    pub kind: FileKind,
    /// The path as the guest sees it (` (deleted)` behind one that was removed), or the kernel's word for what has
    /// none: `pipe:[7]`, `anon_inode:[eventfd]`.
    pub target: String,
    /// `target` where it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_b64: Option<Bytes64>,
    /// What it may be used for.
    pub access: FileAccess,
    /// Every write goes to the end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub append: bool,
    /// Reading and writing never wait.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nonblocking: bool,
    /// It is closed when the process executes another program.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub close_on_exec: bool,
    /// Where it stands in the file, bytes.
    pub position_bytes: u64,
}

/// What a descriptor is open on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the types of inode(7)")]
#[non_exhaustive]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    Pipe,
    Socket,
    CharacterDevice,
    BlockDevice,
    /// Something of the kernel's without a file: epoll, eventfd, a timer.
    #[serde(other)]
    Other,
}

/// What a descriptor may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "open(2)")]
#[non_exhaustive]
pub enum FileAccess {
    Read,
    Write,
    ReadWrite,
    /// For neither: it only names a place (`O_PATH`).
    Path,
}
