//! Gives the crate a build id: a hash of its own sources. Two ends that were built from different message
//! definitions must not talk, and `hello` tells them so.

use std::{fs, path::PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=src");
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::from("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the crate's own src is readable").flatten() {
            let path = entry.path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    let hash = files.iter().fold(FNV_OFFSET, |hash, path| {
        let text = fs::read(path).expect("the crate's own sources are readable");
        text.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME))
    });
    println!("cargo::rustc-env=AGENTVM_WIRE_HASH={hash:016x}");
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;
