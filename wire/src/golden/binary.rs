//! Binary messages, with what they say.

use std::fmt::Write as _;

use crate::{
    id::StreamId,
    stdio::{HEADER_BYTES, Header},
};

/// A binary message.
#[derive(Debug, Clone)]
pub struct Frame {
    /// Its file, without folder and ending.
    pub name: &'static str,
    /// Its header.
    pub header: Header,
    /// What follows the header.
    pub payload: &'static [u8],
}

impl Frame {
    /// The message as it is on the wire.
    pub fn bytes(&self) -> Vec<u8> {
        [&self.header.encode()[..], self.payload].concat()
    }

    /// Two lines of hexadecimal digits: the header, and the payload if there is one.
    pub(super) fn hex(&self) -> String {
        let bytes = self.bytes();
        let (header, payload) = bytes.split_at(HEADER_BYTES);
        [header, payload].iter().filter(|part| !part.is_empty()).map(|part| hex(part) + "\n").collect()
    }
}

/// Two digits a byte, bytes apart.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().enumerate().fold(String::new(), |mut text, (at, byte)| {
        let gap = if at == 0 { "" } else { " " };
        write!(text, "{gap}{byte:02x}").expect("a string takes any text");
        text
    })
}

/// Frames of every shape.
pub fn binary() -> Vec<Frame> {
    let frame = |name, stream, offset, fin, payload| Frame {
        name,
        header: Header { stream: StreamId(stream), offset, fin },
        payload,
    };
    vec![
        frame("data", 2, 0, false, b"hello\n"),
        frame("data_at_offset", 2, 6, false, b"\x00\xff not text"),
        frame("data_and_fin", 2, 17, true, b"bye\n"),
        frame("fin", 1, 0, true, b""),
        frame("far_offset", 4_294_967_295, 0x0102_0304_0506_0708, false, b"."),
    ]
}
