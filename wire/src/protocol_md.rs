//! The examples in `PROTOCOL.md`: each stands behind a line that names its golden file.

use std::collections::BTreeMap;

use crate::golden;

const BEGIN: &str = "<!-- golden/";
const END: &str = " -->";
const FENCE: &str = "```";

/// The document with every example brought up to date.
///
/// A line `<!-- golden/client/hello.json -->` is followed by a fenced block, which is replaced; the block must be there,
/// so that no text is lost to a slip.
pub fn with_examples(document: &str) -> String {
    let files = golden::files();
    let mut lines = document.lines();
    let mut out = String::with_capacity(document.len());
    while let Some(line) = lines.next() {
        push(&mut out, line);
        if let Some(name) = line.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(END)) {
            let fence = lines.next().unwrap_or_default();
            assert!(fence.starts_with(FENCE), "a fenced block follows {line}");
            push(&mut out, fence);
            out.push_str(example(&files, name));
            push(&mut out, FENCE);
            lines.by_ref().find(|line| *line == FENCE).expect("a fenced block ends");
        }
    }
    out
}

fn example<'a>(files: &'a BTreeMap<String, String>, name: &str) -> &'a str {
    files.get(name).unwrap_or_else(|| panic!("golden/{name} is not generated"))
}

fn push(out: &mut String, line: &str) {
    out.push_str(line);
    out.push('\n');
}
