//! What to run: a shell's command line, a program with its arguments, or a script.

use std::{ffi::OsStr, os::unix::ffi::OsStringExt as _, path::PathBuf};

use agentvm_wire::{bytes64, id::ProcessId, process::Execute};

use crate::error::ClientError;

/// The one shell that reads command lines. No PATH decides which it is.
const SHELL: &str = "/bin/sh";

/// A command line for the shell, which goes by its short name.
pub(super) fn shell(line: &str) -> Execute {
    Execute { arg0: Some("sh".to_owned()), ..text(SHELL, ["-c", line]) }
}

/// A program and its arguments.
pub(super) fn text(command: &str, args: impl IntoIterator<Item = impl Into<String>>) -> Execute {
    Execute { args: args.into_iter().map(Into::into).collect(), ..Execute::new(ProcessId(0), command) }
}

/// The same, none of which need be UTF-8.
pub(super) fn bytes(
    command: impl AsRef<OsStr>,
    args: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Execute {
    let owned = |text: &OsStr| text.to_os_string().into_vec();
    let (command, command_b64) = bytes64::split(owned(command.as_ref()));
    let args = args.into_iter().map(|arg| owned(arg.as_ref())).collect();
    let (args, args_b64) = bytes64::split_all(args);
    Execute { command_b64, args, args_b64, ..Execute::new(ProcessId(0), command) }
}

/// Runs a script in the place of the program, which must not be given then.
pub(super) fn replace_by_script(execute: &mut Execute, path: PathBuf) -> Result<(), ClientError> {
    if !execute.command_bytes().is_empty() {
        return Err(ClientError::invalid("file_path", "a command and a file path are both given"));
    }
    (execute.command, execute.command_b64) = bytes64::split(path.into_os_string().into_vec());
    execute.script = true;
    Ok(())
}
