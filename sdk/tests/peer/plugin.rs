//! The plugin host: dispatch, registration, and what is saved when.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use agentvm_sdk::{
    AgentOs,
    plugin::{
        ActionKind, FileStore, HostSnapshot, PluginAction, PluginError, PluginFactory, PluginHost,
        PluginHostBuilder, PluginRegistrar, PluginSessionContext, PluginSnapshotMeta, SessionParam,
        SessionPlugin, SnapshotReader, SnapshotStore, SnapshotWriter, monitor::MonitorFactory,
    },
};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::scene::scene;

/// A plugin that counts, and keeps the count.
#[derive(Clone, Copy)]
struct Counting(&'static str);

struct Counter {
    id: &'static str,
    count: Arc<AtomicU64>,
    context: PluginSessionContext,
}

enum Add {}

impl PluginAction for Add {
    const NAME: &'static str = "counter.add";
    const DESCRIPTION: &'static str = "Adds.";
    const KIND: ActionKind = ActionKind::Command;
    const SESSION_PARAM: SessionParam = SessionParam::Optional;
    type Args = std::collections::BTreeMap<String, u64>;
    type Output = u64;
}

enum Free {}

impl PluginAction for Free {
    const NAME: &'static str = "counter.free";
    const DESCRIPTION: &'static str = "Belongs to no session.";
    const KIND: ActionKind = ActionKind::Query;
    const SESSION_PARAM: SessionParam = SessionParam::Forbidden;
    type Args = Value;
    type Output = Value;
}

impl PluginFactory for Counting {
    fn id(&self) -> &'static str {
        self.0
    }

    fn build(&self, context: &PluginSessionContext) -> Arc<dyn SessionPlugin> {
        Arc::new(Counter { id: self.0, count: Arc::default(), context: context.clone() })
    }
}

#[async_trait::async_trait]
impl SessionPlugin for Counter {
    fn id(&self) -> &'static str {
        self.id
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), PluginError> {
        let (count, context) = (self.count.clone(), self.context.clone());
        let add = move |args: <Add as PluginAction>::Args| {
            let (count, context) = (count.clone(), context.clone());
            async move {
                let sum = count.fetch_add(args.values().sum(), Ordering::Relaxed);
                context.changed();
                if args.contains_key("saved") {
                    context.saved().await?;
                }
                Ok(sum)
            }
        };
        registrar.actions().typed::<Add, _, _>(add)?.typed::<Free, _, _>(|args| async { Ok(args) })?;
        Ok(())
    }

    fn restore(&self, meta: PluginSnapshotMeta, reader: &SnapshotReader) -> Result<(), PluginError> {
        assert_eq!(meta.plugin_version, "1");
        self.count.store(reader.read("count")?.unwrap_or_default(), Ordering::Relaxed);
        Ok(())
    }

    async fn session_ready(&self) -> Result<(), PluginError> {
        Ok(())
    }

    fn snapshot(&self, writer: &mut SnapshotWriter) -> Result<PluginSnapshotMeta, PluginError> {
        writer.write("count", &*self.count)?;
        Ok(PluginSnapshotMeta {
            plugin_id: self.id.to_owned(),
            plugin_version: self.version().to_owned(),
            revision: self.snapshot_revision(),
            state: None,
        })
    }

    fn snapshot_revision(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    async fn shutdown(&self) {}
}

/// A store that remembers, and fails while it is told to.
#[derive(Clone, Default)]
struct Memory {
    saved: Arc<watch::Sender<Vec<HostSnapshot>>>,
    fails: Arc<AtomicBool>,
    wants: Arc<Mutex<Option<HostSnapshot>>>,
}

#[async_trait::async_trait]
impl SnapshotStore for Memory {
    async fn load(&self) -> io::Result<Option<HostSnapshot>> {
        Ok(self.wants.lock().unwrap().clone())
    }

    async fn save(&self, snapshot: &HostSnapshot) -> io::Result<()> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.saved.send_modify(|saved| saved.push(snapshot.clone()));
        Ok(())
    }
}

fn counting(vm: &AgentOs) -> PluginHostBuilder {
    PluginHost::builder(vm, "s").plugin(Counting("counter"))
}

fn count(snapshot: &HostSnapshot) -> &Value {
    &snapshot.plugins[0].sections["count"]
}

#[test]
fn each_fault_of_a_call_has_its_own_error() {
    scene(async |vm, _| {
        let host = counting(&vm).plugin(MonitorFactory::new()).start().await.unwrap();
        let call = async |action: &str, session: Option<&str>, args: Value| {
            host.invoke(action, session, args).await.unwrap_err()
        };
        let error = call("counter.zz", None, json!({})).await;
        assert!(matches!(error, PluginError::UnknownAction { .. }), "{error}");
        let error = call("monitor.status", None, json!({})).await;
        assert!(matches!(error, PluginError::MissingSession { .. }), "{error}");
        let error = call("monitor.status", Some("other"), json!({})).await;
        assert!(matches!(&error, PluginError::UnknownSession { session } if session == "other"), "{error}");
        let error = call("counter.free", Some("s"), json!({})).await;
        assert!(matches!(error, PluginError::UnexpectedSession { .. }), "{error}");
        let spec = json!({"spec": {"id": "a", "command": "c", "timeout_ms": "soon"}});
        let error = call("monitor.start", Some("s"), spec).await;
        let PluginError::InvalidArguments { action, path, .. } = &error else { panic!("{error}") };
        assert_eq!((action.as_str(), path.as_str()), ("monitor.start", "spec.timeout_ms"));
        assert_eq!(error.code().as_str(), "invalid_argument");

        assert_eq!(host.invoke("counter.add", None, json!({"n": 2})).await.unwrap(), 0);
        assert_eq!(host.invoke("counter.add", Some("s"), json!({"n": 1})).await.unwrap(), 2);
        assert_eq!(host.invoke("counter.add", None, Value::Null).await.unwrap(), 3, "no arguments at all");
        assert_eq!(host.invoke_typed::<Add>([("n".to_owned(), 1)].into()).await.unwrap(), 3);
        assert_eq!(host.invoke_typed::<Free>(json!({"a": 1})).await.unwrap(), json!({"a": 1}));
    });
}

#[test]
fn every_action_is_listed_with_its_schemas() {
    scene(async |vm, _| {
        let host = counting(&vm).plugin(MonitorFactory::new()).start().await.unwrap();
        let actions = host.actions();
        let names: Vec<&str> = actions.iter().map(|action| action.name).collect();
        let expected = [
            "counter.add",
            "counter.free",
            "monitor.ack_wake",
            "monitor.logs",
            "monitor.register_specs",
            "monitor.remove",
            "monitor.start",
            "monitor.status",
            "monitor.stop",
            "monitor.take_updates",
            "monitor.wait",
        ];
        assert_eq!(names, expected);
        let start = serde_json::to_value(&actions[6]).unwrap();
        assert_eq!((&start["kind"], &start["session_param"]), (&json!("command"), &json!("required")));
        assert!(start["description"].as_str().is_some_and(|text| !text.is_empty()));
        let fields = &start["args"]["$defs"]["MonitorSpec"]["properties"];
        assert_eq!(fields["timeout_ms"]["default"], 300_000);
        assert_eq!(fields["timeout_ms"]["maximum"], 3_600_000);
        assert_eq!(fields["stop_signal"]["type"], "string");
        assert_eq!(actions[10].kind, ActionKind::Task);
        assert_eq!(actions[7].kind, ActionKind::Query);
        assert!(start["output"]["properties"]["state"].is_object());
    });
}

#[test]
fn a_name_that_is_taken_is_an_error_of_the_registration() {
    scene(async |vm, _| {
        let error = counting(&vm).plugin(Counting("counter")).start().await.unwrap_err();
        assert!(matches!(&error, PluginError::DuplicatePlugin { plugin } if plugin == "counter"), "{error}");
        let error = counting(&vm).plugin(Counting("other")).start().await.unwrap_err();
        assert!(
            matches!(&error, PluginError::DuplicateAction { action } if action == "counter.add"),
            "{error}"
        );
    });
}

#[test]
fn a_session_goes_on_from_its_snapshot_and_from_nobody_elses() {
    scene(async |vm, _| {
        let host = counting(&vm).start().await.unwrap();
        host.invoke("counter.add", None, json!({"n": 5})).await.unwrap();
        let snapshot = host.snapshot().unwrap();
        let text = serde_json::to_string(&snapshot).unwrap();
        let snapshot: HostSnapshot = serde_json::from_str(&text).unwrap();
        let again = counting(&vm).restore(snapshot.clone()).start().await.unwrap();
        assert_eq!(again.invoke("counter.add", None, Value::Null).await.unwrap(), 5);

        let other = PluginHost::builder(&vm, "other").plugin(Counting("counter")).restore(snapshot.clone());
        let error = other.start().await.unwrap_err();
        assert!(matches!(error, PluginError::UnknownSession { .. }), "{error}");
        let error = PluginHost::builder(&vm, "s").restore(snapshot).start().await.unwrap_err();
        assert!(matches!(&error, PluginError::Snapshot { plugin, .. } if plugin == "counter"), "{error}");
    });
}

#[test]
fn changes_are_saved_together_and_at_once_where_somebody_waits() {
    scene(async |vm, _| {
        let store = Memory::default();
        let host = counting(&vm).store(store.clone()).save_after(Duration::from_secs(3600)).start().await;
        let host = host.unwrap();
        let begun = store.saved.borrow().len();
        for _ in 0..10 {
            host.invoke("counter.add", None, json!({"n": 1})).await.unwrap();
        }
        assert_eq!(store.saved.borrow().len(), begun, "they are gathered");
        host.invoke("counter.add", None, json!({"saved": 1})).await.unwrap();
        assert_eq!(store.saved.borrow().len(), begun + 1);
        assert_eq!(count(store.saved.borrow().last().unwrap()), 11);
        host.invoke("counter.add", None, json!({"saved": 0})).await.unwrap();
        assert_eq!(store.saved.borrow().len(), begun + 1, "nothing has changed");
        host.invoke("counter.add", None, json!({"n": 1})).await.unwrap();
        host.shutdown().await.unwrap();
        assert_eq!(count(store.saved.borrow().last().unwrap()), 12, "the last of it too");
    });
}

#[test]
fn what_nobody_waits_for_is_saved_soon() {
    scene(async |vm, _| {
        let store = Memory::default();
        let host = counting(&vm).store(store.clone()).start().await.unwrap();
        let mut saved = store.saved.subscribe();
        host.invoke("counter.add", None, json!({"n": 7})).await.unwrap();
        saved.wait_for(|saved| saved.last().is_some_and(|last| count(last) == 7)).await.unwrap();
    });
}

#[test]
fn a_store_that_fails_is_told_to_whoever_waits_and_asked_again() {
    scene(async |vm, _| {
        let store = Memory::default();
        let host = counting(&vm).store(store.clone()).start().await.unwrap();
        store.fails.store(true, Ordering::Relaxed);
        let error = host.invoke("counter.add", None, json!({"saved": 1})).await.unwrap_err();
        assert!(matches!(error, PluginError::Store(_)), "{error}");
        store.fails.store(false, Ordering::Relaxed);
        host.invoke("counter.add", None, json!({"saved": 0})).await.unwrap();
        assert_eq!(count(store.saved.borrow().last().unwrap()), 1);

        let nowhere = counting(&vm).store(FileStore::new("/dev/null/no/file")).start().await.unwrap_err();
        assert!(matches!(nowhere, PluginError::Store(_)), "{nowhere}");
    });
}

#[test]
fn whoever_waits_for_changes_misses_none() {
    scene(async |vm, _| {
        let host = counting(&vm).start().await.unwrap();
        let seen = host.revision();
        host.invoke("counter.add", None, json!({"n": 1})).await.unwrap();
        let next = host.changed(seen).await;
        assert!(next > seen);
        let (later, _) = tokio::join!(host.changed(next), host.invoke("counter.add", None, json!({"n": 1})));
        assert!(later > next);
    });
}
