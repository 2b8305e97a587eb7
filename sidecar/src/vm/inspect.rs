//! What is told of one process.

use std::sync::Arc;

use agentvm_wire::{
    bytes64::{self, Bytes64},
    error::{Code, Rejection},
    id::RequestId,
    message::Response,
    process::{
        Cmdline, FileAccess, FileHandle, FileHandles, FileKind, ProcessRef, ReadCmdline, ReadFileHandles,
    },
};
use rustix::fs::{FileType, OFlags};

use super::{Vm, reading::rejection};
use crate::init::{Handle, ReadError, Reading};

/// Bytes of rows that init may write for a page: more than it puts there of arguments.
const ROWS_BYTES: usize = 2 << 20;

impl Vm {
    pub(crate) fn read_cmdline(self: &Arc<Self>, request: RequestId, body: ReadCmdline) {
        self.answer_later(request, async move |vm: Arc<Self>| {
            let ReadCmdline { of, offset } = body;
            let offset = offset.unwrap_or(0);
            let page = vm.read::<Vec<u8>>(Reading::Cmdline { of, offset }, ROWS_BYTES).await;
            let page = page.map_err(|error| not_read(of, &error))?;
            let bytes = page.rows.concat();
            let next = page.more.then_some(offset + bytes.len() as u64);
            Ok(Response::Cmdline(Cmdline { cmdline_b64: Bytes64(bytes), next }))
        });
    }

    pub(crate) fn read_file_handles(self: &Arc<Self>, request: RequestId, body: ReadFileHandles) {
        self.answer_later(request, async move |vm: Arc<Self>| {
            let ReadFileHandles { of, after } = body;
            let page = vm.read::<Handle>(Reading::FileHandles { of, after }, ROWS_BYTES).await;
            let page = page.map_err(|error| not_read(of, &error))?;
            let next = page.rows.last().filter(|_| page.more).map(|handle| handle.fd);
            let handles = page.rows.into_iter().map(wire_handle).collect();
            Ok(Response::FileHandles(FileHandles { handles, next }))
        });
    }
}

fn not_read(of: ProcessRef, error: &ReadError) -> Rejection {
    match (error, of) {
        (ReadError::NotFound, ProcessRef::Process(process)) => not_found(process),
        (ReadError::NotFound, ProcessRef::Pid(pid)) => not_found(pid),
        _ => rejection(error),
    }
}

fn not_found(process: impl std::fmt::Display) -> Rejection {
    Rejection::new(Code::NOT_FOUND, format!("Process not found: {process}"))
}

fn wire_handle(handle: Handle) -> FileHandle {
    let (target, target_b64) = bytes64::split(handle.target);
    let flags = OFlags::from_bits_retain(handle.flags);
    FileHandle {
        fd: handle.fd,
        kind: match FileType::from_raw_mode(handle.kind) {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Directory,
            FileType::Symlink => FileKind::Symlink,
            FileType::Fifo => FileKind::Pipe,
            FileType::Socket => FileKind::Socket,
            FileType::CharacterDevice => FileKind::CharacterDevice,
            FileType::BlockDevice => FileKind::BlockDevice,
            FileType::Unknown => FileKind::Other,
        },
        target,
        target_b64,
        access: access(flags),
        append: flags.contains(OFlags::APPEND),
        nonblocking: flags.contains(OFlags::NONBLOCK),
        close_on_exec: flags.contains(OFlags::CLOEXEC),
        position_bytes: handle.position,
    }
}

/// What flags of open(2) let a descriptor be used for.
pub(crate) fn access(flags: OFlags) -> FileAccess {
    match flags & OFlags::RWMODE {
        _ if flags.contains(OFlags::PATH) => FileAccess::Path,
        OFlags::WRONLY => FileAccess::Write,
        OFlags::RDWR => FileAccess::ReadWrite,
        _ => FileAccess::Read,
    }
}
