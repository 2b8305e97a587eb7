//! Runs the attacker: in a VM, and its controls.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use agentvm_sdk::{AgentOs, AgentOsConfig, ExecOptions, SpawnOptions};
use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::facts::Bait;
use crate::judge::{Judged, judge};

const LIMIT: Duration = Duration::from_secs(5 * 60);
/// A program of the host that everybody's VM shares; no attempt may change it.
const SHARED: &str = "/usr/bin/env";

/// Who attacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guest {
    /// The VM's ordinary user.
    Agentos,
    /// Its root.
    Root,
}

impl Guest {
    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Agentos => "agentos",
            Self::Root => "root",
        }
    }
}

/// Outcomes by the attempt's id.
pub(crate) type Outcomes = BTreeMap<String, String>;

#[derive(Deserialize)]
struct Line {
    id: String,
    outcome: String,
}

/// Makes every attempt in a fresh VM of that configuration, and every control.
///
/// # Errors
/// The VM or the attacker does not start or does not get to its end; the VM does not survive the attack; the host's
/// files are no longer what they were.
pub async fn run(guest: Guest, config: AgentOsConfig, attacker: &Path) -> Result<Vec<Judged>> {
    let before = std::fs::read(SHARED).with_context(|| format!("this host has no {SHARED}"))?;
    let bait = Bait::lay(attacker)?;
    let facts = bait.facts();
    let vm = AgentOs::create(config.root(guest == Guest::Root)).await.context("no VM")?;
    let attempts = tokio::time::timeout(LIMIT, in_vm(&vm, attacker, &facts)).await.context("it hangs")??;
    let alive = vm.exec("echo alive", ExecOptions::new()).await.context("the VM did not survive")?;
    ensure!(alive.stdout == "alive\n", "the VM did not survive: {alive:?}");
    vm.dispose().await?;
    ensure!(std::fs::read(SHARED)? == before, "{SHARED} of the host was changed");

    let control = Command::new(attacker).args(["control", &facts]).output().context("no control")?;
    ensure!(control.status.success(), "control: {}", String::from_utf8_lossy(&control.stderr));
    judge(guest, &attempts, &outcomes(&control.stdout)?)
}

async fn in_vm(vm: &AgentOs, attacker: &Path, facts: &str) -> Result<Outcomes> {
    let program = std::fs::read(attacker)?;
    let receive = ["-c", "cat > /workspace/attacker && chmod +x /workspace/attacker"];
    let receiving = vm.spawn("/bin/sh", receive, SpawnOptions::new()).context("no shell")?;
    receiving.write_stdin_all(program).await?;
    receiving.close_stdin();
    ensure!(receiving.wait().await?.success(), "the attacker did not get in");

    let result = vm.exec_argv_bytes("/workspace/attacker", ["guest", facts], ExecOptions::new()).await?;
    ensure!(result.exit_code == 0, "in the VM: {}", String::from_utf8_lossy(&result.stderr));
    outcomes(&result.stdout)
}

fn outcomes(lines: &[u8]) -> Result<Outcomes> {
    let mut outcomes = Outcomes::new();
    for line in serde_json::Deserializer::from_slice(lines).into_iter::<Line>() {
        let Line { id, outcome } = line.context("the attacker writes one object a line")?;
        ensure!(outcomes.insert(id.clone(), outcome).is_none(), "{id} is tried twice");
    }
    Ok(outcomes)
}
