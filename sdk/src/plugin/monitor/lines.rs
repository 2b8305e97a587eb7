//! Lines of an output: bytes in, text out.
//!
//! `\n`, `\r\n` and a lone `\r` end a line. Lines are trimmed and blank ones dropped, so that `\r\n` needs no memory: it
//! is a line and a blank one.

/// One line, never blank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) text: String,
    /// It was longer, and this is its beginning.
    pub(super) truncated: bool,
}

/// Cuts an output into lines. A line over the limit is told as soon as it is over, and what follows of it is skipped.
#[derive(Debug)]
pub(super) struct Lines {
    max_bytes: usize,
    /// What has come of the current line, without blanks before it.
    begun: Vec<u8>,
    told: bool,
}

impl Lines {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, begun: Vec::new(), told: false }
    }

    /// Takes what was written next, cut anywhere.
    pub(super) fn push(&mut self, mut bytes: &[u8], lines: &mut Vec<Line>) {
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.extend(&bytes[..end], lines);
            self.end(lines);
            bytes = &bytes[end + 1..];
        }
        self.extend(bytes, lines);
    }

    /// The output has ended, or what comes next is not what follows.
    pub(super) fn end(&mut self, lines: &mut Vec<Line>) {
        if !std::mem::take(&mut self.told) {
            self.tell(false, lines);
        }
    }

    fn extend(&mut self, part: &[u8], lines: &mut Vec<Line>) {
        if self.told {
            return;
        }
        let part = if self.begun.is_empty() { part.trim_ascii_start() } else { part };
        let (fits, over) = part.split_at(part.len().min(self.max_bytes - self.begun.len()));
        self.begun.extend_from_slice(fits);
        // Blanks behind a line are no part of it.
        if !over.trim_ascii().is_empty() {
            self.tell(true, lines);
            self.told = true;
        }
    }

    fn tell(&mut self, truncated: bool, lines: &mut Vec<Line>) {
        let begun = std::mem::take(&mut self.begun);
        let cut = if truncated { whole_characters(&begun) } else { &begun };
        let text = String::from_utf8_lossy(cut).trim().to_owned();
        if !text.is_empty() {
            lines.push(Line { text, truncated });
        }
    }
}

/// Without a character at the end of which the rest was cut off.
fn whole_characters(bytes: &[u8]) -> &[u8] {
    let cut = bytes.utf8_chunks().last().map_or(0, |chunk| match std::str::from_utf8(chunk.invalid()) {
        Err(error) if error.error_len().is_none() => chunk.invalid().len(),
        _ => 0,
    });
    &bytes[..bytes.len() - cut]
}
