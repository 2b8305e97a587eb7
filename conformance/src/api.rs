//! What the published SDKs and ours export, member by member, and what answers to what.
//!
//! `api/<target>.txt` lists the members of a published package, as `api/members.mjs` found them in its `.d.ts` files;
//! the items of our own crate are [read](surface) from its source. `api/map.yaml`, kept by hand, says which Rust item
//! [answers](map) to a member, or which step brings one, or what takes its place. `API.md` is the [page](page) that comes
//! of it. A member or an item that nobody has placed, and a place for one that is gone, are complaints.

pub mod map;
pub mod members;
pub mod page;
pub mod surface;
#[cfg(test)]
mod tests;

use std::{fs, path::Path};

use anyhow::{Context as _, Result};

use map::Map;
use members::Members;
use surface::Surface;

/// Both sides, and what stands between them.
#[derive(Debug)]
pub struct Api {
    /// Of the published packages.
    pub members: Members,
    /// Of our crate.
    pub surface: Surface,
    /// Kept by hand.
    pub map: Map,
}

impl Api {
    /// Reads everything; `folder` is that of conformance, beside which the crates lie.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join("api/map.yaml");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(Self {
            members: Members::read(folder)?,
            surface: Surface::read(&folder.join("../sdk"), &folder.join("../wire"))?,
            map: serde_saphyr::from_str(&text).with_context(|| path.display().to_string())?,
        })
    }
}
