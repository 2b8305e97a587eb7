//! The strings of a start, as they lie one behind the other in its text: working directory, command, argv\[0\],
//! arguments, variables, each ended by a NUL.

use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
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
        let expected = 3 + strings.arguments + strings.variables;
        if strings.count() == expected && strings.bytes.last() == Some(&0) {
            Ok(strings)
        } else {
            Err(Errno::INVAL)
        }
    }

    fn all(&self) -> impl Iterator<Item = &CStr> {
        self.bytes.split_inclusive(|byte| *byte == 0).filter_map(|part| CStr::from_bytes_with_nul(part).ok())
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.all().count()
    }

    pub(super) fn cwd(&self) -> &CStr {
        self.all().next().unwrap_or(c"/")
    }

    /// argv\[0\] and what follows it.
    fn arguments(&self) -> impl Iterator<Item = &CStr> {
        self.all().skip(2).take(1 + self.arguments)
    }

    fn variables(&self) -> impl Iterator<Item = &CStr> {
        self.all().skip(3 + self.arguments)
    }

    /// Executes the command; returns why that failed. A name without a slash is looked for in the PATH of this very
    /// call, by the rules of `execvp(3)` except that nothing is ever handed to a shell.
    pub(super) fn exec(&self) -> Errno {
        let command = self.all().nth(1).unwrap_or(c"");
        let arguments: StringArray<'_> = self.arguments().collect();
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

    /// Executes the command as a script: as the kernel does, or, where that needs a right to execute or a `#!` line
    /// that it has not, by the program that its first line names, or by a shell.
    pub(super) fn exec_script(&self) -> Errno {
        let script = self.all().nth(1).unwrap_or(c"");
        let variables: StringArray<'_> = self.variables().collect();
        let refused = exec(script, &self.arguments().collect(), &variables);
        if !matches!(refused, Errno::ACCESS | Errno::NOEXEC) {
            return refused;
        }
        let Ok(text) = read_head(script) else { return refused };
        if text.starts_with(b"\x7fELF") {
            return refused;
        }
        let (program, argument) = interpreter(&text).unwrap_or((c"/bin/sh".to_owned(), None));
        let leading = [Some(&*program), argument.as_deref(), Some(script)].into_iter().flatten();
        exec(&program, &leading.chain(self.arguments().skip(1)).collect(), &variables)
    }
}

/// As much of a file as the kernel looks at for a `#!` line.
fn read_head(path: &CStr) -> rustix::io::Result<Vec<u8>> {
    let file = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())?;
    let mut head = vec![0; 256];
    let len = pread(&file, &mut head, 0)?;
    head.truncate(len);
    Ok(head)
}

/// Which program a script names in its first line, and with which single argument, execve(2); `None` without such a
/// line.
pub(super) fn interpreter(script: &[u8]) -> Option<(CString, Option<CString>)> {
    let line = script.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?.trim_ascii();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (program, argument) = (&line[..end], line[end..].trim_ascii());
    let argument = (!argument.is_empty()).then(|| CString::new(argument)).transpose().ok()?;
    (!program.is_empty()).then_some((CString::new(program).ok()?, argument))
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
