//! A closer look at one process of the VM: its arguments, whole, and what it holds open.

use std::{ffi::OsString, os::unix::ffi::OsStringExt as _};

use agentvm_wire::{
    bytes64,
    error::Code,
    message::{Request, Response},
    process::{self, FileAccess, FileKind, ProcessRef, ReadCmdline, ReadFileHandles},
};

use super::table::reference;
use crate::{agent_os::AgentOs, error::ClientError};

/// An open descriptor of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileHandle {
    /// The descriptor.
    pub fd: u32,
    /// What it is open on.
    pub kind: FileKind,
    /// The path as the guest sees it, with ` (deleted)` behind it if it was removed; or the kernel's word for what has
    /// no path, as in `pipe:[48211]`.
    pub target: OsString,
    /// What it may be used for.
    pub access: FileAccess,
    /// Every write goes to the end.
    pub append: bool,
    /// Reading and writing never wait.
    pub nonblocking: bool,
    /// It is closed when the process executes another program.
    pub close_on_exec: bool,
    /// Where it stands in the file, bytes.
    pub position_bytes: u64,
}

impl AgentOs {
    /// The arguments of a process, argv\[0\] first, exact and whole, also where its row of the table is cut. Any
    /// process of [`AgentOs::all_processes`], by the pid it has there; nothing for a zombie. A spawned process that has
    /// ended has those it was started with.
    ///
    /// ```no_run
    /// # async fn example(vm: &agentvm_sdk::AgentOs, pid: u32) -> Result<(), agentvm_sdk::ClientError> {
    /// println!("{:?}", vm.read_process_cmdline(pid).await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::ProcessNotFound`]; pid 0 is `invalid_argument`; [`ClientError::Disposed`] and its kin;
    /// [`ClientError::Rejected`] with `deadline_exceeded` if the guest keeps `/proc` from being read.
    ///
    /// # Cancel safety
    /// Cancel safe: reads only.
    #[doc(alias = "readProcessCmdline")]
    pub async fn read_process_cmdline(&self, pid: u32) -> Result<Vec<OsString>, ClientError> {
        let (of, mut text, mut offset) = (asked(pid)?, Vec::new(), None);
        loop {
            let request = Request::ReadCmdline(ReadCmdline { of, offset });
            match self.inspect(pid, &request).await {
                Ok(Response::Cmdline(page)) => {
                    text.extend(page.cmdline_b64.0);
                    offset = page.next;
                }
                Ok(other) => return Err(ClientError::unexpected("read_cmdline", &other)),
                Err(ClientError::ProcessNotFound(_)) => return self.cmdline_of_the_ended(pid),
                Err(error) => return Err(error),
            }
            if offset.is_none() {
                return Ok(split(&text));
            }
        }
    }

    /// What a process holds open, rising by descriptor. Any process of [`AgentOs::all_processes`], by the pid it has
    /// there; nothing for a zombie.
    ///
    /// Errors and cancel safety as [`AgentOs::read_process_cmdline`].
    ///
    /// ```no_run
    /// # async fn example(vm: &agentvm_sdk::AgentOs, pid: u32) -> Result<(), agentvm_sdk::ClientError> {
    /// for handle in vm.read_process_file_handles(pid).await? {
    ///     println!("{} {}", handle.fd, handle.target.display());
    /// }
    /// # Ok(()) }
    /// ```
    #[doc(alias = "readProcessFileHandles")]
    pub async fn read_process_file_handles(&self, pid: u32) -> Result<Vec<FileHandle>, ClientError> {
        let (of, mut handles, mut after) = (asked(pid)?, Vec::new(), None);
        loop {
            let request = Request::ReadFileHandles(ReadFileHandles { of, after });
            match self.inspect(pid, &request).await? {
                Response::FileHandles(page) => {
                    handles.extend(page.handles.into_iter().map(FileHandle::from));
                    after = page.next;
                }
                other => return Err(ClientError::unexpected("read_file_handles", &other)),
            }
            if after.is_none() {
                return Ok(handles);
            }
        }
    }

    async fn inspect(&self, pid: u32, request: &Request) -> Result<Response, ClientError> {
        self.vm().call(request).await.map_err(|error| match error {
            // The VM itself is there.
            ClientError::Rejected(rejection) if rejection.code == Code::NOT_FOUND => {
                ClientError::ProcessNotFound(pid)
            }
            error => error,
        })
    }

    fn cmdline_of_the_ended(&self, pid: u32) -> Result<Vec<OsString>, ClientError> {
        let entry = self.spawned_entry(pid)?;
        if entry.started_info().is_none() {
            return Err(ClientError::ProcessNotFound(pid));
        }
        Ok([&entry.command].into_iter().chain(&entry.args).map(OsString::from).collect())
    }
}

fn asked(pid: u32) -> Result<ProcessRef, ClientError> {
    if pid == 0 {
        return Err(ClientError::invalid("pid", "no process of a VM has the pid 0"));
    }
    Ok(reference(pid))
}

/// Arguments, each ended by a NUL.
fn split(text: &[u8]) -> Vec<OsString> {
    let arguments = text.strip_suffix(b"\0").unwrap_or(text);
    if text.is_empty() {
        return Vec::new();
    }
    arguments.split(|byte| *byte == 0).map(|argument| OsString::from_vec(argument.to_vec())).collect()
}

impl From<process::FileHandle> for FileHandle {
    fn from(handle: process::FileHandle) -> Self {
        Self {
            fd: handle.fd,
            kind: handle.kind,
            target: OsString::from_vec(bytes64::join(handle.target, handle.target_b64)),
            access: handle.access,
            append: handle.append,
            nonblocking: handle.nonblocking,
            close_on_exec: handle.close_on_exec,
            position_bytes: handle.position_bytes,
        }
    }
}
