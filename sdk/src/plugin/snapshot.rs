//! What is saved of a session, and how a plugin writes and reads its part.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::error::PluginError;

/// The state of a session's plugins, from [`PluginHost::snapshot`](super::PluginHost::snapshot). It may hold secrets:
/// the environments of monitors are in it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HostSnapshot {
    /// The session it was taken of.
    pub session: String,
    /// One for each plugin.
    pub plugins: Vec<PluginSnapshot>,
}

/// One plugin's part of a [`HostSnapshot`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PluginSnapshot {
    /// What the plugin says of it.
    pub meta: PluginSnapshotMeta,
    /// What the plugin wrote, by name.
    #[serde(default)]
    pub sections: BTreeMap<String, Value>,
}

/// What a plugin says of its snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PluginSnapshotMeta {
    /// Whose it is.
    pub plugin_id: String,
    /// Which form it has.
    pub plugin_version: String,
    /// [`SessionPlugin::snapshot_revision`](super::SessionPlugin::snapshot_revision) when it was taken.
    pub revision: u64,
    /// The state itself, where it is small.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Value>,
}

/// Where a plugin writes its state, by name.
#[derive(Debug, Default)]
pub struct SnapshotWriter {
    pub(super) plugin: String,
    pub(super) sections: BTreeMap<String, Value>,
}

impl SnapshotWriter {
    /// Writes a section; a later one of the same name replaces it.
    ///
    /// # Errors
    /// [`PluginError::Snapshot`] for what has no JSON form.
    pub fn write(&mut self, section: &str, value: &impl Serialize) -> Result<(), PluginError> {
        let value = serde_json::to_value(value).map_err(|error| PluginError::Snapshot {
            plugin: self.plugin.clone(),
            message: format!("{section}: {error}"),
        })?;
        self.sections.insert(section.to_owned(), value);
        Ok(())
    }
}

/// What a plugin wrote.
#[derive(Debug)]
pub struct SnapshotReader {
    pub(super) plugin: String,
    pub(super) sections: BTreeMap<String, Value>,
}

impl SnapshotReader {
    /// Reads a section; `None` if there is none of that name.
    ///
    /// # Errors
    /// [`PluginError::Snapshot`] for one that has another form.
    pub fn read<T: DeserializeOwned>(&self, section: &str) -> Result<Option<T>, PluginError> {
        let Some(value) = self.sections.get(section) else { return Ok(None) };
        let read = serde_path_to_error::deserialize(value);
        read.map(Some).map_err(|error| PluginError::Snapshot {
            plugin: self.plugin.clone(),
            message: format!("{section}: {error}"),
        })
    }
}
