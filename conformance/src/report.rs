//! What a driver says about one step: a line of JSON. It tells what happened and judges nothing.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::Value;

/// The outcome of one step; fields that the call does not give are absent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Which step; 0 is the creation of the VM.
    pub step: usize,
    /// The call failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// The exit code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Standard output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout: Option<Blob>,
    /// Standard error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr: Option<Blob>,
    /// The pid of what was spawned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// One process, as the SDK shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<Value>,
    /// A message of the sidecar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Value>,
    /// A list, table or tree of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<Value>,
}

/// An error, as the SDK gives it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Failure {
    /// Its text.
    pub message: String,
    /// Its code, if it has one.
    pub code: Option<String>,
}

/// Bytes, in base64 on the wire.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Blob(pub Vec<u8>);

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map(Self).map_err(D::Error::custom)
    }
}
