//! The sidecar as a client sees it: where to find one, launching it, sharing one connection.

pub(crate) mod launch;

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, LazyLock, Mutex, Weak},
};

use crate::{
    error::ClientError,
    link::{self, Driver, Link},
    transport::{Connector, Token, Transport},
};

/// Which sidecar a VM lives in.
///
/// ```no_run
/// # fn example() -> std::io::Result<()> {
/// use agentvm_sdk::{AgentOsConfig, SidecarConfig};
///
/// // A sidecar that runs already: `agentvm-sidecar serve --listen unix:/run/agentvm.sock --token-file token`.
/// let token = std::fs::read_to_string("token")?.trim_end().into();
/// let remote = SidecarConfig::Remote { url: "unix:/run/agentvm.sock".to_owned(), token };
/// let config = AgentOsConfig::new().sidecar(remote);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum SidecarConfig {
    /// `AGENTVM_SIDECAR` if set, else `agentvm-sidecar` beside the running executable or one folder up (only where
    /// file and folder belong to root or this user and nobody else may write them), else on `PATH`.
    #[default]
    Auto,
    /// The program launches *itself*: its `main` begins with `agentvm_sidecar::run_if_requested()`, or the program
    /// carries `agentvm_sidecar::before_main!()`.
    CurrentExe,
    /// This file.
    Binary(PathBuf),
    /// A sidecar that runs already and listens: `unix:PATH` of `agentvm-sidecar serve`. Handles with equal url and
    /// token share one connection.
    Remote {
        /// `unix:` and an absolute path.
        url: String,
        /// What the sidecar's token file holds.
        token: Token,
    },
    /// A sidecar that runs already, over a stream of your own; each handle has a connection of its own.
    Custom(Arc<dyn Transport>),
}

/// A connection to a sidecar, shared by any number of VMs. Cheap to clone; the last clone, VM handles included, ends
/// it and with it a launched sidecar.
#[derive(Debug, Clone)]
pub struct Sidecar(Arc<Driver>);

/// What makes two connections the same one: the program launched, or the socket and the token.
type Key = (PathBuf, Option<Token>);

/// Connections that handles of this program share.
static SHARED: LazyLock<Mutex<HashMap<Key, Weak<Driver>>>> = LazyLock::new(Mutex::default);

impl Sidecar {
    /// See [`AgentOs::create_sidecar`](crate::AgentOs::create_sidecar).
    pub(crate) async fn create(config: &SidecarConfig) -> Result<Self, ClientError> {
        link::start(config.connector()?).await.map(|driver| Self(Arc::new(driver)))
    }

    /// See [`AgentOs::shared_sidecar`](crate::AgentOs::shared_sidecar).
    pub(crate) async fn shared(config: &SidecarConfig) -> Result<Self, ClientError> {
        let connector = config.connector()?;
        let key: Key = match &connector {
            Connector::Launch(program) => (program.path().to_owned(), None),
            Connector::Unix(path, token) => (path.clone(), Some(token.clone())),
            Connector::Transport(_) => return Self::create(config).await,
        };
        if let Some(sidecar) = Self::alive(&key) {
            return Ok(sidecar);
        }
        let launched = Arc::new(link::start(connector).await?);
        // Two callers at once may both have launched: the first one kept serves both, the other ends.
        let mut shared = SHARED.lock().expect("no code panics under this lock");
        let kept = shared.get(&key).and_then(Weak::upgrade).filter(|driver| driver.link().ended().is_none());
        let driver = kept.unwrap_or_else(|| {
            shared.insert(key, Arc::downgrade(&launched));
            launched
        });
        Ok(Self(driver))
    }

    fn alive(key: &Key) -> Option<Self> {
        let shared = SHARED.lock().expect("no code panics under this lock");
        let driver = shared.get(key)?.upgrade()?;
        driver.link().ended().is_none().then_some(Self(driver))
    }

    /// The launched sidecar's pid; `None` for one that this program did not launch.
    pub fn pid(&self) -> Option<u32> {
        self.link().pid()
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        self.0.link()
    }
}

impl SidecarConfig {
    fn connector(&self) -> Result<Connector, ClientError> {
        if std::env::var_os(agentvm_wire::launch::LAUNCHED_ENV).is_some() {
            return Err(ClientError::HookMissing);
        }
        match self {
            Self::Remote { url, token } => match url
                .strip_prefix("unix:")
                .filter(|path| path.starts_with('/'))
            {
                Some(path) => Ok(Connector::Unix(path.into(), token.clone())),
                None => Err(ClientError::invalid("url", format!("{url} is not unix: and an absolute path"))),
            },
            Self::Custom(transport) => Ok(Connector::Transport(transport.clone())),
            Self::Auto => launch::Program::find().map(Connector::Launch),
            Self::CurrentExe => Ok(Connector::Launch(launch::Program::current())),
            Self::Binary(path) => Ok(Connector::Launch(launch::Program::at(path.clone()))),
        }
    }
}
