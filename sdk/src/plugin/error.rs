//! [`PluginError`]: why an action, a registration or a snapshot failed.

use std::{io, sync::Arc};

use agentvm_wire::error::Code;

use crate::error::ClientError;

/// Why a call of a [`PluginHost`](super::PluginHost) failed. Cheap to clone.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PluginError {
    /// No plugin has such an action.
    #[error("unknown action: {action}")]
    UnknownAction {
        /// As it was asked for.
        action: String,
    },
    /// The action belongs to a session, and none was named.
    #[error("{action} needs a session")]
    MissingSession {
        /// Which.
        action: String,
    },
    /// The host serves another session.
    #[error("unknown session: {session}")]
    UnknownSession {
        /// As it was named.
        session: String,
    },
    /// The action belongs to no session, and one was named.
    #[error("{action} takes no session")]
    UnexpectedSession {
        /// Which.
        action: String,
    },
    /// The arguments do not have the form that the action's schema tells.
    #[error("{action}: {path}: {message}")]
    InvalidArguments {
        /// Which.
        action: String,
        /// Where in the arguments: `spec.timeout_ms`; `.` for the whole.
        path: String,
        /// What is wrong there.
        message: String,
    },
    /// An argument has the right form and a value that is refused.
    #[error("{field}: {message}")]
    Invalid {
        /// Which.
        field: String,
        /// What is wrong with it.
        message: String,
    },
    /// Nothing of that kind has the id.
    #[error("{kind} not found: {id}")]
    NotFound {
        /// `monitor`, `task`.
        kind: &'static str,
        /// As it was named.
        id: String,
    },
    /// Two plugins, or one of them twice, want an action of that name.
    #[error("action is registered twice: {action}")]
    DuplicateAction {
        /// Which.
        action: String,
    },
    /// Two factories build plugins of that id.
    #[error("plugin is given twice: {plugin}")]
    DuplicatePlugin {
        /// Which.
        plugin: String,
    },
    /// A bounded registry is full of live entries.
    #[error("{name} is {observed}, limit is {limit}")]
    ResourceLimit {
        /// Which.
        name: &'static str,
        /// How many there may be.
        limit: u64,
        /// How many there are.
        observed: u64,
    },
    /// A plugin's state cannot be written, or what was saved cannot be read by the plugins of this host.
    #[error("snapshot of {plugin}: {message}")]
    Snapshot {
        /// Whose state.
        plugin: String,
        /// What is wrong with it.
        message: String,
    },
    /// The store failed. What was asked for is in effect, but might not outlive the program.
    #[error("snapshot store failed")]
    Store(#[source] Arc<io::Error>),
    /// The host was shut down.
    #[error("plugin host is shut down")]
    ShutDown,
    /// The VM, the sidecar or a process.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A plugin's own failure.
    #[error("{message}")]
    Failed {
        /// As the plugin tells it.
        message: String,
    },
}

impl PluginError {
    /// The stable wire code nearest to this error.
    pub fn code(&self) -> Code {
        match self {
            Self::UnknownAction { .. } | Self::UnknownSession { .. } | Self::NotFound { .. } => {
                Code::NOT_FOUND
            }
            Self::MissingSession { .. }
            | Self::UnexpectedSession { .. }
            | Self::InvalidArguments { .. }
            | Self::Invalid { .. } => Code::INVALID_ARGUMENT,
            Self::DuplicateAction { .. } | Self::DuplicatePlugin { .. } | Self::ShutDown => {
                Code::FAILED_PRECONDITION
            }
            Self::ResourceLimit { .. } => Code::RESOURCE_EXHAUSTED,
            Self::Store(_) => Code::EIO,
            Self::Snapshot { .. } | Self::Failed { .. } => Code::INTERNAL,
            Self::Client(error) => error.code(),
        }
    }

    pub(super) fn invalid(field: &str, message: impl Into<String>) -> Self {
        Self::Invalid { field: field.to_owned(), message: message.into() }
    }
}

impl From<io::Error> for PluginError {
    fn from(error: io::Error) -> Self {
        Self::Store(Arc::new(error))
    }
}
