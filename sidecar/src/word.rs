//! Numbers in what the kernel writes to memory.

/// The one of 32 bits at this place, if all of it is there.
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}
