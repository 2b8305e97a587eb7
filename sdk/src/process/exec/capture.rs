//! What an `exec` keeps of its command's output: all of it, or the head and the tail of what is too much.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::stdio::OutputStream;

/// What happens when a command writes more than an `exec` may capture. Callbacks see everything all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OutputLimit {
    /// Its tree is killed, and the call fails with [`CaptureLimit`](crate::ClientError::CaptureLimit), which holds what
    /// was captured.
    #[default]
    Kill,
    /// What comes beyond the limit is dropped.
    KeepHead,
    /// The oldest is dropped.
    KeepTail,
    /// The first half and the last half of the limit are kept, what lies between is dropped.
    KeepHeadAndTail,
}

/// What is missing in a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Truncated {
    /// Bytes of both streams together. In text, the rest of a character that was cut counts too.
    pub dropped_bytes: u64,
}

/// Both streams share one limit; what is dropped first is decided by the order in which chunks arrived.
pub(super) struct Capture {
    policy: OutputLimit,
    limit: u64,
    head_limit: u64,
    tail_limit: u64,
    /// Of both heads, and of both tails.
    head_bytes: u64,
    tail_bytes: u64,
    stdout: Kept,
    stderr: Kept,
    /// Whose bytes the tails hold, oldest first, and how many; neighbours of one stream are one.
    order: VecDeque<(OutputStream, usize)>,
}

/// One stream: where bytes were dropped, they lay between head and tail.
#[derive(Debug, Default)]
pub(super) struct Kept {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    pub(super) dropped: u64,
}

/// The chunk did not fit, and nothing may be dropped.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full {
    /// Bytes both streams together have delivered.
    pub(super) observed: u64,
}

impl Capture {
    pub(super) fn new(policy: OutputLimit, limit: u64) -> Self {
        let (head_limit, tail_limit) = match policy {
            OutputLimit::Kill | OutputLimit::KeepHead => (limit, 0),
            OutputLimit::KeepTail => (0, limit),
            OutputLimit::KeepHeadAndTail => (limit.div_ceil(2), limit / 2),
        };
        Self {
            policy,
            limit,
            head_limit,
            tail_limit,
            head_bytes: 0,
            tail_bytes: 0,
            stdout: Kept::default(),
            stderr: Kept::default(),
            order: VecDeque::new(),
        }
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    pub(super) fn take_chunk(&mut self, stream: OutputStream, bytes: &[u8]) -> Result<(), Full> {
        let room = usize::try_from(self.head_limit - self.head_bytes).unwrap_or(usize::MAX);
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        self.kept(stream).head.extend_from_slice(head);
        self.head_bytes += head.len() as u64;
        if rest.is_empty() {
            return Ok(());
        }
        if self.policy == OutputLimit::Kill {
            return Err(Full { observed: self.head_bytes + rest.len() as u64 });
        }
        self.push_tail(stream, rest);
        Ok(())
    }

    fn push_tail(&mut self, stream: OutputStream, bytes: &[u8]) {
        self.kept(stream).tail.extend(bytes);
        self.tail_bytes += bytes.len() as u64;
        match self.order.back_mut() {
            Some((last, len)) if *last == stream => *len += bytes.len(),
            _ => self.order.push_back((stream, bytes.len())),
        }
        while self.tail_bytes > self.tail_limit
            && let Some((oldest, len)) = self.order.front_mut()
        {
            let excess = usize::try_from(self.tail_bytes - self.tail_limit).unwrap_or(usize::MAX);
            let dropped = excess.min(*len);
            *len -= dropped;
            let (oldest, is_used_up) = (*oldest, *len == 0);
            if is_used_up {
                self.order.pop_front();
            }
            let kept = self.kept(oldest);
            kept.tail.drain(..dropped);
            kept.dropped += dropped as u64;
            self.tail_bytes -= dropped as u64;
        }
    }

    fn kept(&mut self, stream: OutputStream) -> &mut Kept {
        match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        }
    }

    /// Standard output and standard error.
    pub(super) fn finish(self) -> (Kept, Kept) {
        (self.stdout, self.stderr)
    }
}

impl Kept {
    pub(super) fn into_bytes(self) -> Bytes {
        let mut all = self.head;
        all.extend(self.tail);
        all.into()
    }

    /// As text, where a character that was cut in two is left out. What is no UTF-8 becomes U+FFFD.
    pub(super) fn into_text(mut self) -> (String, u64) {
        if self.dropped == 0 {
            return (text(self.into_bytes().into()), 0);
        }
        let cut = split_character(&self.head);
        self.head.truncate(self.head.len() - cut);
        let continued = self.tail.iter().take(3).take_while(|byte| is_continuation(**byte)).count();
        self.tail.drain(..continued);
        let dropped = self.dropped + (cut + continued) as u64;
        // Each by itself: the bytes on the two sides of the gap must not make a character together.
        (text(self.head) + &text(self.tail.into()), dropped)
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

/// How many bytes at the end are the beginning of a character whose rest is missing.
fn split_character(bytes: &[u8]) -> usize {
    match str::from_utf8(&bytes[bytes.len().saturating_sub(3)..]) {
        Ok(_) => 0,
        Err(_) => (1..=3.min(bytes.len()))
            .find(|len| {
                let end = &bytes[bytes.len() - len..];
                // Incomplete, not wrong.
                !is_continuation(end[0])
                    && str::from_utf8(end)
                        .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
            })
            .unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    use OutputStream::{Stderr, Stdout};

    fn capture(policy: OutputLimit, limit: u64, chunks: &[(OutputStream, &[u8])]) -> (Kept, Kept) {
        let mut capture = Capture::new(policy, limit);
        for (stream, bytes) in chunks {
            capture.take_chunk(*stream, bytes).unwrap();
        }
        capture.finish()
    }

    #[test]
    fn what_fits_is_kept_whole_by_every_policy() {
        for policy in
            [OutputLimit::Kill, OutputLimit::KeepHead, OutputLimit::KeepTail, OutputLimit::KeepHeadAndTail]
        {
            let chunks: [(_, &[u8]); 3] = [(Stdout, b"abc"), (Stderr, b"de"), (Stdout, b"fgh")];
            let (stdout, stderr) = capture(policy, 8, &chunks);
            assert_eq!((stdout.dropped, stderr.dropped), (0, 0));
            assert_eq!((&*stdout.into_bytes(), &*stderr.into_bytes()), (&b"abcfgh"[..], &b"de"[..]));
        }
    }

    #[test]
    fn the_limit_is_one_for_both_streams() {
        let chunks: [(_, &[u8]); 3] = [(Stdout, b"abc"), (Stderr, b"de"), (Stdout, b"fgh")];
        let kept = |policy, limit| {
            let (stdout, stderr) = capture(policy, limit, &chunks);
            let dropped = (stdout.dropped, stderr.dropped);
            (stdout.into_bytes().to_vec(), stderr.into_bytes().to_vec(), dropped)
        };
        assert_eq!(kept(OutputLimit::KeepHead, 4), (b"abc".to_vec(), b"d".to_vec(), (3, 1)));
        assert_eq!(kept(OutputLimit::KeepTail, 4), (b"fgh".to_vec(), b"e".to_vec(), (3, 1)));
        assert_eq!(kept(OutputLimit::KeepHeadAndTail, 4), (b"abgh".to_vec(), vec![], (2, 2)));
        assert_eq!(kept(OutputLimit::KeepTail, 0), (vec![], vec![], (6, 2)));
        let mut full = Capture::new(OutputLimit::Kill, 4);
        full.take_chunk(Stdout, b"abc").unwrap();
        assert_eq!(full.take_chunk(Stderr, b"de"), Err(Full { observed: 5 }));
        let (stdout, stderr) = full.finish();
        assert_eq!((&*stdout.into_bytes(), &*stderr.into_bytes()), (&b"abc"[..], &b"d"[..]));
    }

    #[test]
    fn a_cut_through_a_character_leaves_it_out_and_counts_it() {
        let text = "中".repeat(10);
        for (policy, limit, whole) in [
            (OutputLimit::KeepHead, 8, 2),
            (OutputLimit::KeepTail, 8, 2),
            (OutputLimit::KeepHeadAndTail, 8, 2),
            (OutputLimit::KeepHead, 9, 3),
            (OutputLimit::KeepTail, 1, 0),
        ] {
            let (stdout, _) = capture(policy, limit, &[(Stdout, text.as_bytes())]);
            let (kept, dropped) = stdout.into_text();
            assert_eq!((kept, dropped), ("中".repeat(whole), 30 - 3 * whole as u64), "{policy:?} {limit}");
        }
    }

    #[test]
    fn what_was_never_text_is_replaced_and_not_taken_for_a_cut() {
        let (stdout, _) = capture(OutputLimit::KeepHead, 4, &[(Stdout, b"ok\xe2\x9cXX")]);
        assert_eq!(stdout.into_text(), ("ok".to_owned(), 4), "the cut could have gone through a character");
        let (stdout, _) = capture(OutputLimit::KeepHead, 4, &[(Stdout, b"ok\xff\xffXX")]);
        assert_eq!(stdout.into_text(), ("ok\u{fffd}\u{fffd}".to_owned(), 2));
        let (stdout, _) = capture(OutputLimit::Kill, 9, &[(Stdout, b"ok\xe2\x9c")]);
        assert_eq!(stdout.into_text(), ("ok\u{fffd}".to_owned(), 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn head_and_tail_are_those_of_the_whole(
            chunks in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<u8>(), 0..20)), 0..12),
            limit in 0..64u64,
            policy in proptest::sample::select(vec![
                OutputLimit::KeepHead, OutputLimit::KeepTail, OutputLimit::KeepHeadAndTail,
            ]),
        ) {
            let stream = |is_stdout| if is_stdout { Stdout } else { Stderr };
            let all: Vec<(OutputStream, u8)> =
                chunks.iter().flat_map(|(of, bytes)| bytes.iter().map(|byte| (stream(*of), *byte))).collect();
            let mut capture = Capture::new(policy, limit);
            for (of, bytes) in &chunks {
                capture.take_chunk(stream(*of), bytes).unwrap();
            }
            let limit = usize::try_from(limit).unwrap();
            let (head, tail) = match policy {
                OutputLimit::KeepTail => (0, limit),
                OutputLimit::KeepHeadAndTail => (limit.div_ceil(2), limit / 2),
                _ => (limit, 0),
            };
            let kept = |of: OutputStream| -> Vec<u8> {
                let is_kept = |index: &usize| *index < head || *index + tail >= all.len();
                (0..all.len()).filter(is_kept).map(|index| all[index]).filter(|(s, _)| *s == of).map(|(_, b)| b).collect()
            };
            let (stdout, stderr) = capture.finish();
            prop_assert_eq!(stdout.dropped + stderr.dropped, all.len().saturating_sub(limit) as u64);
            prop_assert_eq!(stdout.into_bytes(), kept(Stdout));
            prop_assert_eq!(stderr.into_bytes(), kept(Stderr));
        }
    }
}
