//! Byte streams: the header in front of every binary message.

use crate::id::StreamId;

/// Bytes in front of every payload.
pub const HEADER_BYTES: usize = 16;

/// Largest payload this crate sends in one message.
pub const CHUNK_BYTES: usize = 64 << 10;

const VERSION: u8 = 1;
const FIN: u8 = 1;

/// Header of a binary message: little endian `u8 version`, `u8 flags`, `u16 reserved`, `u32 stream`, `u64 offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Which stream.
    pub stream: StreamId,
    /// Offset of the first payload byte.
    pub offset: u64,
    /// Nothing follows.
    pub fin: bool,
}

/// Why a header could not be read; each closes the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "told by each message")]
pub enum HeaderError {
    #[error("binary message of {0} bytes is shorter than its {HEADER_BYTES} byte header")]
    Short(usize),
    #[error("frame version {0} is not {VERSION}")]
    Version(u8),
    #[error("frame flags {0:#04x} are not known")]
    Flags(u8),
    #[error("reserved bytes are not zero")]
    Reserved,
}

impl Header {
    /// The sixteen bytes.
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = VERSION;
        bytes[1] = if self.fin { FIN } else { 0 };
        bytes[4..8].copy_from_slice(&self.stream.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    /// Reads the header in front of a message.
    pub fn decode(message: &[u8]) -> Result<Self, HeaderError> {
        let Some(&[version, flags, r0, r1, s0, s1, s2, s3, o0, o1, o2, o3, o4, o5, o6, o7]) =
            message.first_chunk::<HEADER_BYTES>()
        else {
            return Err(HeaderError::Short(message.len()));
        };
        if version != VERSION {
            return Err(HeaderError::Version(version));
        }
        if flags & !FIN != 0 {
            return Err(HeaderError::Flags(flags));
        }
        if (r0, r1) != (0, 0) {
            return Err(HeaderError::Reserved);
        }
        Ok(Self {
            stream: StreamId(u32::from_le_bytes([s0, s1, s2, s3])),
            offset: u64::from_le_bytes([o0, o1, o2, o3, o4, o5, o6, o7]),
            fin: flags & FIN != 0,
        })
    }
}
