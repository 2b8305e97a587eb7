//! Bytes as a scenario writes them.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Text as it stands, bytes in base64, a text many times over, or several of these one after another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Data {
    /// As it stands.
    Text(String),
    /// Bytes that are no text.
    Base64(Base64),
    /// Too long to be written out.
    Repeat(Repeat),
    /// One after another.
    Parts(Vec<Data>),
}

/// Bytes in base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Base64 {
    /// With padding.
    pub base64: String,
}

/// A text many times over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Repeat {
    /// The text.
    pub repeat: String,
    /// How often.
    pub times: usize,
}

impl Data {
    /// The bytes.
    pub fn bytes(&self) -> Result<Vec<u8>, base64::DecodeError> {
        match self {
            Self::Text(text) => Ok(text.clone().into_bytes()),
            Self::Base64(Base64 { base64 }) => STANDARD.decode(base64),
            Self::Repeat(Repeat { repeat, times }) => Ok(repeat.repeat(*times).into_bytes()),
            Self::Parts(parts) => {
                parts.iter().map(Self::bytes).collect::<Result<Vec<_>, _>>().map(|all| all.concat())
            }
        }
    }
}

impl Default for Data {
    fn default() -> Self {
        Self::Text(String::new())
    }
}
