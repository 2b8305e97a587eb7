//! Writes in place what is generated from the message types: `schema/`, `golden/`, and the examples in `PROTOCOL.md`.
//!
//! ```sh
//! cargo run -p agentvm-wire --features schema --example generate
//! ```

use std::{collections::BTreeMap, fs, io, path::Path};

use agentvm_wire::{golden, protocol_md, schema};

fn main() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    replace(&root.join("schema"), &schema::files())?;
    replace(&root.join("golden"), &golden::files())?;
    let protocol = root.join("PROTOCOL.md");
    fs::write(&protocol, protocol_md::with_examples(&fs::read_to_string(&protocol)?))
}

/// The folder holds these files afterwards and no others.
fn replace(folder: &Path, files: &BTreeMap<String, String>) -> io::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    for (name, text) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(path, text)?;
    }
    Ok(())
}
