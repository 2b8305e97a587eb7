//! What a guest, or an init that it has taken over, can say to our code.

use std::os::fd::AsFd as _;

use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Serialize, de::DeserializeOwned};

use super::messages::{Reply, Start, Text};
use super::strings::Strings;
use super::{Boot, Exit, Handle, Row, Used, inspect, list, rows, stat, strings};
use crate::packet;
use crate::sys::wait::{self, Usage};

/// A message from init, at its first word or later. What decodes means the same once encoded again.
pub(crate) fn packet(bytes: &[u8]) {
    fn decoded<M: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(bytes: &[u8]) -> Option<M> {
        let message: M = packet::decode(bytes).ok()?;
        let again: M = packet::decode(&packet::encode(&message)).expect("it was just encoded");
        assert_eq!(again, message);
        Some(message)
    }
    decoded::<Boot>(bytes);
    if let Some(Reply::Exited { exit, .. }) = decoded(bytes)
        && exit.is_sound()
    {
        ending(&exit);
    }
    if let Some(start) = decoded::<Start>(bytes)
        && matches!(start.text, Text::Inline(_))
        && let Ok(strings) = Strings::read(&start, None)
    {
        assert_eq!(strings.count(), 3 + start.arguments as usize + start.variables as usize);
    }
}

/// Rows, as a helper leaves them in a file.
pub(crate) fn rows(bytes: &[u8]) -> Vec<Row> {
    let file = memfd_create(c"rows", MemfdFlags::CLOEXEC).expect("there is memory");
    let header = (bytes.len() as u64 + 8).to_le_bytes();
    rustix::io::pwrite(&file, &[&header, bytes].concat(), 0).expect("there is room");
    let _ = rows::read::<Handle>(file.as_fd(), bytes.len());
    let _ = rows::read::<Used>(file.as_fd(), bytes.len());
    let _ = rows::read::<Vec<u8>>(file.as_fd(), bytes.len());
    rows::read::<Row>(file.as_fd(), bytes.len()).unwrap_or_default()
}

/// `/proc/PID/stat`, in which a guest chooses the name.
pub(crate) fn stat(bytes: &[u8]) {
    if let Some(found) = stat::parse(bytes) {
        assert!(found.comm.len() < bytes.len());
        assert_eq!(list::started_ms(u64::MAX, &found), u64::MAX);
    }
}

/// Other files of `/proc/PID`: arguments, which a guest writes, and lines with fields.
pub(crate) fn text(bytes: &[u8]) {
    let (args, truncated) = list::split_args(bytes.to_vec());
    assert!(args.len() <= super::MAX_ARGS);
    assert!(truncated || args.iter().map(|arg| arg.len() + 1).sum::<usize>() <= bytes.len() + 1);
    for (name, radix) in [("pos", 10), ("flags", 8)] {
        let _ = inspect::number(bytes, name, radix);
    }
}

/// The first line of a script.
pub(crate) fn script(bytes: &[u8]) {
    if let Some((program, argument)) = strings::interpreter(bytes) {
        assert!(!program.is_empty() && argument.is_none_or(|argument| !argument.is_empty()));
    }
}

/// What `waitid(2)` says of a child: code, status, and three numbers of what it used.
pub(crate) fn exit(bytes: &[u8]) {
    let mut words =
        bytes.chunks_exact(8).map(|word| i64::from_le_bytes(word.try_into().expect("eight bytes")));
    let mut word = || words.next().unwrap_or(0);
    #[expect(clippy::cast_possible_truncation, reason = "any bits will do")]
    let (code, status) = (word() as i32, word() as i32);
    let mut count = || word().cast_unsigned();
    let usage = Usage { user_us: count(), system_us: count(), max_rss_bytes: count() };
    if let Some(exit) = super::reap::exit(wait::kind(code, status, usage))
        && exit.is_sound()
    {
        ending(&exit);
    }
}

/// An exit that is believed has a code that a shell could have.
fn ending(exit: &Exit) {
    let code = exit.shell_code();
    assert!((0..=255).contains(&code), "{code}");
    assert!(exit.signal.is_none() || code > 128, "{code}");
}
