//! Those who are killed before they do anything by which notification could know them.

use agentvm_sdk::{EventCategory, ObserverConfig, ObserverEventKind as Kind, SpawnOptions, TraceScope};

use crate::serve::Server;
use crate::support::within;

const KILLED_AT_ONCE: &str = "
import os, signal
children = []
for _ in range(50):
    child = os.fork()
    if child == 0:
        signal.pause()
    children.append(child)
for child in children:
    os.kill(child, signal.SIGKILL)
for child in children:
    assert os.waitpid(child, 0)[1] == 9
";

#[tokio::test]
async fn children_that_are_killed_at_once_are_seen_by_notification_too() {
    let server = Server::start_with("observe-early", ("AGENTVM_OBSERVER_BACKEND", "notification")).await;
    let vm = server.vm().await;
    let tree = within(vm.observer_capabilities(TraceScope::LaunchedProcessTree)).await.unwrap();
    let gaps = &tree.category(EventCategory::Process).unwrap().gaps;
    if gaps.contains(&"killed_early".to_owned()) {
        return eprintln!("skipped: {}", tree.render_summary());
    }
    assert!(gaps.contains(&"killed_early_codes".to_owned()), "{gaps:?}");
    let config = ObserverConfig::with_categories([EventCategory::Lifecycle, EventCategory::Process]);
    let options = SpawnOptions::new().observe(config);
    let process = vm.spawn("python3", ["-c", KILLED_AT_ONCE], options).unwrap();
    let (events, mut started, mut ends) = (process.observer().unwrap(), 0, Vec::new());
    while let Some(event) = within(events.recv()).await {
        match event.kind {
            Kind::DescendantStarted { adopted: false } => started += 1,
            Kind::DescendantExited { exit_code, signal } => ends.push((exit_code, signal)),
            Kind::Loss { .. } => panic!("{event:?}"),
            _ => {}
        }
    }
    assert_eq!(within(process.wait()).await.unwrap().code, 0);
    assert_eq!((started, ends.len()), (50, 50));
    // How one ended that was reaped before anybody could look is not known.
    ends.retain(|end| *end != (None, None));
    println!("{} of 50 signals are known", ends.len());
    assert!(ends.iter().all(|end| *end == (None, Some(9))), "{ends:?}");
}
