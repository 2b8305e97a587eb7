//! What an `execute` must look like; the client asks before sending, the sidecar before starting.

use std::collections::BTreeMap;

use super::{Execute, OutputMode, StdinMode};
use crate::{
    bytes64,
    error::{Code, Rejection},
    observer::Observe,
};

/// Longest single argument or `KEY=value`, without its NUL: Linux's `MAX_ARG_STRLEN` of 32 pages of 4 KiB, execve(2).
pub const MAX_STRING_BYTES: u64 = 131_071;

/// Arguments, environment and their pointers together: a quarter of an 8 MiB stack, execve(2).
pub const MAX_TOTAL_BYTES: u64 = 2 << 20;

/// Least memory limit of a process, 4 MiB: with less it could not be started.
pub const MIN_MEMORY_LIMIT_BYTES: u64 = 4 << 20;

impl Execute {
    /// Refuses what execve(2) could not take; needs no streams yet.
    pub fn validate(&self) -> Result<(), Rejection> {
        if self.command.is_empty() {
            return Err(Rejection::invalid("command", "command is empty"));
        }
        validate_env(&self.env)?;
        self.observe.as_ref().map_or(Ok(()), Observe::validate)?;
        if let Some(cwd) = &self.cwd
            && !cwd.starts_with('/')
        {
            return Err(Rejection::invalid("cwd", format!("Path must be absolute: {cwd}")));
        }
        if let Some(limit) = self.memory_limit_bytes.filter(|limit| *limit < MIN_MEMORY_LIMIT_BYTES) {
            let message = format!("memory_limit_bytes is {limit}, the least is {MIN_MEMORY_LIMIT_BYTES}");
            return Err(Rejection::invalid("memory_limit_bytes", message));
        }
        self.validate_strings()
    }

    /// Refuses modes that do not fit the streams that were opened for them.
    pub fn validate_streams(&self) -> Result<(), Rejection> {
        let fits = [
            ("streams.stdin", self.stdin == StdinMode::Pipe, self.streams.stdin.is_some()),
            ("streams.stdout", self.stdout == OutputMode::Pipe, self.streams.stdout.is_some()),
            ("streams.stderr", self.stderr == OutputMode::Pipe, self.streams.stderr.is_some()),
        ];
        for (field, piped, given) in fits {
            if piped != given {
                return Err(Rejection::invalid(field, "a stream id goes with mode pipe, and only with it"));
            }
        }
        if self.stdout == OutputMode::ToStdout {
            return Err(Rejection::invalid("stdout", "to_stdout is for stderr"));
        }
        Ok(())
    }

    fn validate_strings(&self) -> Result<(), Rejection> {
        let shown = self.arg0.as_deref().map(|arg0| ("arg0", arg0.as_bytes()));
        let args = self.args_bytes().map(|arg| ("args", arg));
        let cwd = self.cwd.as_deref().map(|cwd| ("cwd", bytes64::view(cwd, self.cwd_b64.as_ref())));
        let strings = std::iter::once(("command", self.command_bytes())).chain(shown).chain(args).chain(cwd);
        let mut total = 0;
        for (field, string) in strings {
            if string.contains(&0) {
                return Err(Rejection::invalid(field, format!("{field} contains NUL")));
            }
            total += check_string(field, string.len())?;
        }
        total += env_bytes(&self.env)?;
        if total > MAX_TOTAL_BYTES {
            return Err(too_big("args", "max_total_bytes", MAX_TOTAL_BYTES, total));
        }
        Ok(())
    }
}

/// Refuses variables that execve(2) could not take one by one.
pub(crate) fn validate_env(env: &BTreeMap<String, String>) -> Result<(), Rejection> {
    for (key, value) in env {
        let fault = match key {
            _ if key.is_empty() => "an environment variable has an empty name",
            _ if key.contains('=') => "an environment variable's name contains '='",
            _ if key.contains('\0') || value.contains('\0') => "an environment variable contains NUL",
            _ => continue,
        };
        return Err(Rejection::invalid(format!("env.{}", key.escape_debug()), fault));
    }
    env_bytes(env).map(drop)
}

/// What variables add to the total.
fn env_bytes(env: &BTreeMap<String, String>) -> Result<u64, Rejection> {
    env.iter().map(|(key, value)| check_string("env", key.len() + 1 + value.len())).sum()
}

/// What a string adds to the total: its bytes, its NUL and its pointer.
fn check_string(field: &str, len: usize) -> Result<u64, Rejection> {
    let len = len as u64;
    if len > MAX_STRING_BYTES {
        return Err(too_big(field, "max_string_bytes", MAX_STRING_BYTES, len));
    }
    Ok(len + 1 + 8)
}

fn too_big(field: &str, name: &str, limit: u64, observed: u64) -> Rejection {
    let mut rejection = Rejection::limit(Code::E2BIG, name, "bytes", limit, observed);
    rejection.details.field = Some(field.to_owned());
    rejection
}
