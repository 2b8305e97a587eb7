//! The strings of a start, as they lie one behind the other in its text: working directory, command, arguments,
//! variables, each ended by a NUL.

use std::borrow::Cow;
use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::fs::fstat;
use rustix::io::{Errno, pread};

use super::messages::{Start, Text};
use crate::sys::exec::{StringArray, exec};

/// The strings, all there.
pub(super) struct Strings<'a> {
    bytes: Cow<'a, [u8]>,
    arguments: usize,
    variables: usize,
}

impl<'a> Strings<'a> {
    /// Finds them in the request, or in the memfd that came with it.
    pub(super) fn read(start: &'a Start, memory: Option<&OwnedFd>) -> rustix::io::Result<Self> {
        let bytes = match &start.text {
            Text::Inline(bytes) => Cow::Borrowed(&bytes[..]),
            Text::Memory => Cow::Owned(read_all(memory.ok_or(Errno::BADF)?)?),
        };
        let strings =
            Self { bytes, arguments: start.arguments as usize, variables: start.variables as usize };
        // One NUL too many is one that was inside a string.
        let expected = 2 + strings.arguments + strings.variables;
        if strings.all().count() == expected && strings.bytes.last() == Some(&0) {
            Ok(strings)
        } else {
            Err(Errno::INVAL)
        }
    }

    fn all(&self) -> impl Iterator<Item = &CStr> {
        self.bytes.split_inclusive(|byte| *byte == 0).filter_map(|part| CStr::from_bytes_with_nul(part).ok())
    }

    pub(super) fn cwd(&self) -> &CStr {
        self.all().next().unwrap_or(c"/")
    }

    fn variables(&self) -> impl Iterator<Item = &CStr> {
        self.all().skip(2 + self.arguments)
    }

    /// Executes the command; returns why that failed. A name without a slash is looked for in the PATH of this very
    /// call, by the rules of `execvp(3)` except that nothing is ever handed to a shell.
    pub(super) fn exec(&self) -> Errno {
        let command = self.all().nth(1).unwrap_or(c"");
        let arguments: StringArray<'_> = self.all().skip(1).take(1 + self.arguments).collect();
        let variables: StringArray<'_> = self.variables().collect();
        if command.is_empty() {
            return Errno::NOENT;
        }
        if command.to_bytes().contains(&b'/') {
            return exec(command, &arguments, &variables);
        }
        let path = self.variables().find_map(|variable| variable.to_bytes().strip_prefix(b"PATH="));
        let mut denied = false;
        for folder in path.unwrap_or(b"/usr/bin:/bin").split(|byte| *byte == b':') {
            let mut candidate = folder.to_vec();
            if !candidate.is_empty() {
                candidate.push(b'/');
            }
            candidate.extend_from_slice(command.to_bytes_with_nul());
            let Ok(candidate) = CStr::from_bytes_with_nul(&candidate) else { return Errno::INVAL };
            match exec(candidate, &arguments, &variables) {
                Errno::ACCESS => denied = true,
                Errno::NOENT | Errno::NOTDIR | Errno::STALE | Errno::NODEV | Errno::TIMEDOUT => {}
                errno => return errno,
            }
        }
        if denied { Errno::ACCESS } else { Errno::NOENT }
    }
}

fn read_all(memory: &OwnedFd) -> rustix::io::Result<Vec<u8>> {
    let size = fstat(memory)?.st_size;
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
    let mut filled = 0;
    while filled < bytes.len() {
        match pread(memory, &mut bytes[filled..], filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(bytes)
}
