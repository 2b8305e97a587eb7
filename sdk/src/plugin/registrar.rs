//! [`PluginRegistrar`]: where plugins say which actions they have.

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures_core::future::BoxFuture;
use serde_json::{Map, Value};

use super::{
    action::{ActionInfo, PluginAction},
    error::PluginError,
};

/// The actions of a host; each plugin adds its own in [`SessionPlugin::register`](super::SessionPlugin::register).
#[derive(Debug, Default)]
pub struct PluginRegistrar {
    pub(super) actions: BTreeMap<&'static str, Action>,
}

impl PluginRegistrar {
    /// Adds actions.
    pub fn actions(&mut self) -> ActionRegistrar<'_> {
        ActionRegistrar(self)
    }
}

/// Adds actions to a [`PluginRegistrar`].
#[derive(Debug)]
pub struct ActionRegistrar<'a>(&'a mut PluginRegistrar);

impl ActionRegistrar<'_> {
    /// Adds an action with the code that carries it out.
    ///
    /// # Errors
    /// [`PluginError::DuplicateAction`].
    pub fn typed<A, F, Fut>(&mut self, handler: F) -> Result<&mut Self, PluginError>
    where
        A: PluginAction,
        F: Fn(A::Args) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<A::Output, PluginError>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let run = move |args: Value| -> BoxFuture<'static, Result<Value, PluginError>> {
            let handler = handler.clone();
            Box::pin(async move { answer::<A>(handler(arguments::<A>(args)?).await?) })
        };
        let action = Action { info: ActionInfo::of::<A>(), run: Box::new(run) };
        if self.0.actions.insert(A::NAME, action).is_some() {
            return Err(PluginError::DuplicateAction { action: A::NAME.to_owned() });
        }
        Ok(self)
    }
}

/// An action and the code that carries it out.
pub(super) struct Action {
    pub(super) info: ActionInfo,
    pub(super) run: Box<dyn Fn(Value) -> BoxFuture<'static, Result<Value, PluginError>> + Send + Sync>,
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.info.fmt(f)
    }
}

/// Nothing at all stands for no arguments.
fn arguments<A: PluginAction>(args: Value) -> Result<A::Args, PluginError> {
    let args = if args.is_null() { Value::Object(Map::new()) } else { args };
    serde_path_to_error::deserialize(args).map_err(|error| PluginError::InvalidArguments {
        action: A::NAME.to_owned(),
        path: error.path().to_string(),
        message: error.into_inner().to_string(),
    })
}

fn answer<A: PluginAction>(output: A::Output) -> Result<Value, PluginError> {
    serde_json::to_value(output)
        .map_err(|error| PluginError::Failed { message: format!("{}: {error}", A::NAME) })
}
