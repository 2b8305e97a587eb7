//! The rehearsal: what a spare does with a start, done once before anybody waits for it.
//!
//! A fresh child shares its memory with init. The first write to a page copies it, the first use of a piece of code maps
//! it, and some twenty of those together take a twentieth of the time that a short command takes.

use rustix::net::RecvFlags;
use rustix::process::chdir;

use super::client::now_ns;
use super::messages::{Start, Stream, Text};
use super::reap::now_ms;
use super::start::connect_streams;
use super::strings::Strings;
use crate::packet::{self, Packet};

/// Sends a start to this very process, reads it and goes on until there is no command to execute. Nothing comes of it:
/// what fails here fails again when it matters, and is told then.
pub(super) fn rehearse() {
    let Ok((there, here)) = packet::pair() else { return };
    let start = Start {
        arguments: 1,
        variables: 1,
        text: Text::Inline(b"/\0\0name\0argument\0variable=\0".to_vec()),
        streams: [Stream::Null, Stream::ToStdout, Stream::Null],
        script: false,
        deadline_ns: None,
        cpu_limit_us: None,
        memory: None,
        observed: false,
        watched: false,
    };
    let mut buffer = [0; packet::MAX_BYTES];
    if packet::send(&there, &packet::encode(&start), &[]).is_ok()
        && let Ok(Some(Packet { message, .. })) = packet::receive(&here, &mut buffer, RecvFlags::DONTWAIT)
        && let Ok(strings) = Strings::read(&message, None)
    {
        // Standard output becomes what it is, and the folder is changed again.
        let _ = connect_streams(message.streams, &[]);
        let _ = chdir(strings.cwd());
        let _ = (now_ms(), now_ns());
        strings.exec();
    }
}
