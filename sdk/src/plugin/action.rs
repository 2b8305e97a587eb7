//! What an action is: its name, its kind, and the types of its arguments and its answer.

use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// An action of a plugin, as a type: what [`PluginHost::invoke_typed`](super::PluginHost::invoke_typed) is called with.
pub trait PluginAction {
    /// Its name, `plugin.verb`.
    const NAME: &'static str;
    /// What it does, for a model that chooses among actions.
    const DESCRIPTION: &'static str;
    /// What it does to the session.
    const KIND: ActionKind;
    /// Whether a call names the session.
    const SESSION_PARAM: SessionParam;
    /// Its arguments.
    type Args: Serialize + DeserializeOwned + JsonSchema + Send + 'static;
    /// Its answer.
    type Output: Serialize + DeserializeOwned + JsonSchema + Send + 'static;
}

/// What an action does to the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ActionKind {
    /// It reads and changes nothing.
    Query,
    /// It changes something.
    Command,
    /// It may take long.
    Task,
}

/// Whether a call of an action names the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum SessionParam {
    Required,
    Optional,
    Forbidden,
}

/// What an agent framework shows its model of an action, from [`PluginHost::actions`](super::PluginHost::actions).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ActionInfo {
    /// What [`PluginHost::invoke`](super::PluginHost::invoke) is called with.
    pub name: &'static str,
    /// What it does.
    pub description: &'static str,
    /// What it does to the session.
    pub kind: ActionKind,
    /// Whether a call names the session.
    pub session_param: SessionParam,
    /// JSON schema of its arguments.
    pub args: Schema,
    /// JSON schema of its answer.
    pub output: Schema,
}

impl ActionInfo {
    pub(super) fn of<A: PluginAction>() -> Self {
        Self {
            name: A::NAME,
            description: A::DESCRIPTION,
            kind: A::KIND,
            session_param: A::SESSION_PARAM,
            args: schema_for!(A::Args),
            output: schema_for!(A::Output),
        }
    }
}
