//! Text for people that holds pieces of what a peer sent: kept short, however much the peer sent.

/// At most `max_bytes` of a text, cut between characters; a cut is shown by `…`.
pub(crate) fn clip(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let room = max_bytes.saturating_sub(ELLIPSIS.len());
    let end = (0..=room).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    format!("{}{ELLIPSIS}", &text[..end])
}

const ELLIPSIS: &str = "…";
