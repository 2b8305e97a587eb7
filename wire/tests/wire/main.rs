//! What is promised to clients in other languages: the files beside this crate say exactly what is on the wire.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed; clippy spares only the test functions"
)]

mod bytes;
mod golden;
mod protocol;
mod schema;
mod seeds;

use std::{collections::BTreeMap, fs, path::Path};

/// Every file below a folder of this crate: its path in there and its bytes.
fn files(folder: &str) -> BTreeMap<String, Vec<u8>> {
    fn walk(folder: &Path, prefix: &str, found: &mut BTreeMap<String, Vec<u8>>) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            if entry.path().is_dir() {
                walk(&entry.path(), &format!("{name}/"), found);
            } else {
                found.insert(name, fs::read(entry.path()).unwrap());
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), "", &mut found);
    found
}

/// The same for text files.
fn texts(folder: &str) -> BTreeMap<String, String> {
    files(folder).into_iter().map(|(name, bytes)| (name, String::from_utf8(bytes).unwrap())).collect()
}

/// Compares what is committed with what the types say now.
fn assert_fresh(committed: &BTreeMap<String, String>, generated: &BTreeMap<String, String>) {
    let again = "cargo run -p agentvm-wire --features schema --example generate";
    let names = |files: &BTreeMap<String, String>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(committed), names(generated), "stale files: {again}");
    for (name, text) in generated {
        assert_eq!(&committed[name], text, "{name} is stale: {again}");
    }
}
