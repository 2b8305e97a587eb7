//! Trees, drawn on a terminal.

use std::io::{self, Write};

/// Draws trees depth first, a line for each node. Without recursion: a guest decides how deep they are.
pub fn draw<'a, T: 'a>(
    output: &mut impl Write,
    roots: impl DoubleEndedIterator<Item = &'a T>,
    children: impl Fn(&'a T) -> Vec<&'a T>,
    line: impl Fn(&'a T) -> String,
) -> io::Result<()> {
    let mut pending: Vec<(&T, String, bool, bool)> = Vec::new();
    pending.extend(roots.rev().map(|node| (node, String::new(), true, true)));
    while let Some((node, indent, is_root, is_last)) = pending.pop() {
        let branch = match (is_root, is_last) {
            (true, _) => "",
            (false, true) => "└─ ",
            (false, false) => "├─ ",
        };
        writeln!(output, "{indent}{branch}{}", line(node))?;
        let deeper = match (is_root, is_last) {
            (true, _) => indent,
            (false, true) => indent + "   ",
            (false, false) => indent + "│  ",
        };
        let children = children(node);
        let last = children.len().saturating_sub(1);
        let deeper = children
            .into_iter()
            .enumerate()
            .rev()
            .map(|(index, child)| (child, deeper.clone(), false, index == last));
        pending.extend(deeper);
    }
    Ok(())
}
