//! Whether the kernel tells what it shall, tried on a real child.

use std::process::Stdio;
use std::time::Duration;

use agentvm_wire::observer::ObserverEventKind as Kind;
use tokio::process::Command;
use tokio::time::timeout;

use super::{HostEvents, Told};

/// Some milliseconds on a quiet host.
const LIMIT: Duration = Duration::from_secs(5);
/// With what the child ends.
const CODE: u8 = 7;

/// The start of exactly this child is told, and its end with exactly this code.
pub(super) async fn probe() -> Result<(), String> {
    let mut events = HostEvents::observe().map_err(|error| error.to_string())?;
    // Who is there is told first: the child must not be among those.
    let _ = events.next().await;
    let child = Command::new("/bin/sh")
        .args(["-c", &format!("exit {CODE}")])
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    let mut child = child.map_err(|error| format!("no child to try it on: {error}"))?;
    let pid = child.id();
    let seen = async {
        let mut started = None;
        while let Some(told) = events.next().await {
            let Told::Event(event) = told else { continue };
            match event.kind {
                Kind::DescendantStarted { adopted: false } if event.pid == pid => started = event.key,
                Kind::DescendantExited { exit_code, .. } if started.is_some() && event.key == started => {
                    return exit_code == Some(CODE);
                }
                _ => {}
            }
        }
        false
    };
    let seen = timeout(LIMIT, seen).await;
    let _ = child.wait().await;
    match seen {
        Ok(true) => Ok(()),
        Ok(false) => Err("the kernel's process connector told a child's end wrong".to_owned()),
        Err(_) => Err(format!("the kernel's process connector told nothing of a child within {LIMIT:?}")),
    }
}
