//! Managed tasks and the file that keeps a session, each alone.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use tokio::sync::oneshot;

use super::{
    FileStore, HostSnapshot, PluginError, SnapshotStore as _,
    task::{TaskHost, TaskId, TaskState},
};

/// Waits until a task stands so.
async fn until(host: &TaskHost, id: TaskId, state: TaskState) {
    let begun = std::time::Instant::now();
    loop {
        let now = host.list_tasks().into_iter().find(|task| task.id == id).unwrap();
        if now.state == state {
            return;
        }
        assert!(begun.elapsed().as_secs() < 20 && !now.state.is_terminal(), "{now:?}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_task_runs_and_its_end_is_kept() {
    let host = TaskHost::new(8);
    let (go, gone) = oneshot::channel();
    let id = host.spawn_managed_task("one", async move { gone.await.map_err(|_| PluginError::ShutDown) });
    let id = id.unwrap();
    until(&host, id, TaskState::Running).await;
    go.send(()).unwrap();
    until(&host, id, TaskState::Completed).await;
    host.cancel_managed_task(id).unwrap();
    let [task] = &host.list_tasks()[..] else { panic!() };
    assert_eq!(
        (task.state, task.name.as_str()),
        (TaskState::Completed, "one"),
        "a terminal state never changes"
    );
    assert!(task.ended_at_ms >= Some(task.made_at_ms));
}

#[tokio::test]
async fn an_error_and_a_panic_are_failures() {
    let host = TaskHost::new(8);
    let error = host.spawn_managed_task("error", async { Err(PluginError::ShutDown) }).unwrap();
    let panic = host.spawn_managed_task("panic", async { panic!("as this test wants it") }).unwrap();
    until(&host, error, TaskState::Failed).await;
    until(&host, panic, TaskState::Failed).await;
    let errors: Vec<_> = host.list_tasks().into_iter().map(|task| task.error.unwrap()).collect();
    assert_eq!(errors, ["plugin host is shut down", "the task panicked"]);
}

#[tokio::test]
async fn a_cancelled_task_is_dropped_and_then_told_so() {
    let host = TaskHost::new(8);
    let (held, dropped) = oneshot::channel::<()>();
    let task = async move {
        std::future::pending::<()>().await;
        drop(held);
        Ok(())
    };
    let id = host.spawn_managed_task("pending", task).unwrap();
    host.cancel_managed_task(id).unwrap();
    until(&host, id, TaskState::Cancelled).await;
    dropped.await.unwrap_err();
    assert!(matches!(host.cancel_managed_task(TaskId(99)), Err(PluginError::NotFound { .. })));
}

#[tokio::test]
async fn rows_are_bounded_and_live_tasks_never_make_room() {
    let host = TaskHost::new(8);
    let first = host.spawn_managed_task("first", async { Ok(()) }).unwrap();
    until(&host, first, TaskState::Completed).await;
    for _ in 1..=8 {
        host.spawn_managed_task("pending", std::future::pending()).unwrap();
    }
    let tasks = host.list_tasks();
    assert_eq!((tasks.len(), tasks[0].id), (8, TaskId(2)), "the ended one has made room");
    let error = host.spawn_managed_task("more", std::future::pending()).unwrap_err();
    assert!(matches!(error, PluginError::ResourceLimit { limit: 8, observed: 8, .. }), "{error}");
    host.close().await;
    assert!(host.list_tasks().iter().all(|task| task.state == TaskState::Cancelled));
    assert!(matches!(host.spawn_managed_task("late", async { Ok(()) }), Err(PluginError::ShutDown)));
}

/// A folder of this test's own, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("agentvm-plugin-{}", uuid::Uuid::new_v4()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

#[tokio::test]
async fn a_file_is_replaced_whole_and_read_by_its_owner_only() {
    let folder = Folder::new();
    let path = folder.0.join("state.json");
    let store = FileStore::new(&path);
    assert_eq!(store.load().await.unwrap(), None);
    // What a program that was killed has left, and what somebody has put there.
    std::os::unix::fs::symlink("/dev/null", folder.0.join(".state.json.new")).unwrap();
    for session in ["one", "two"] {
        let snapshot = HostSnapshot { session: session.to_owned(), plugins: Vec::new() };
        store.save(&snapshot).await.unwrap();
        assert_eq!(store.load().await.unwrap(), Some(snapshot));
    }
    let mode = fs::symlink_metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "nothing is left beside it");
    fs::write(&path, "{").unwrap();
    let error = store.load().await.unwrap_err();
    assert!(error.to_string().contains("state.json"), "{error}");
    let nowhere = FileStore::new(folder.0.join("no/such/folder")).save(&HostSnapshot::default()).await;
    assert_eq!(nowhere.unwrap_err().kind(), std::io::ErrorKind::NotFound);
}
