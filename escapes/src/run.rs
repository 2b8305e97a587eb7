//! Runs the attacker: in a VM, and its controls.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use agentvm_sdk::{AgentOs, AgentOsConfig, ExecOptions, SpawnOptions};
use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use tokio::process::Command;
use tokio::time::timeout;

use crate::facts::Bait;
use crate::judge::{Judged, judge};

/// How long all attempts, and all controls, may take.
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
    let vm = limited_vm(config.root(guest == Guest::Root)).await?;
    let facts = bait.facts(enforces(&vm, "memory_bytes"));
    let attempts = timeout(LIMIT, in_vm(&vm, attacker, &facts)).await.context("the attacker hangs")??;
    let alive = vm.exec("echo alive", ExecOptions::new()).await.context("the VM did not survive")?;
    ensure!(alive.stdout == "alive\n", "the VM did not survive: {alive:?}");
    vm.dispose().await?;
    ensure!(std::fs::read(SHARED)? == before, "{SHARED} of the host was changed");

    let control = Command::new(attacker).args(["control", &facts]).kill_on_drop(true).output();
    let control = timeout(LIMIT, control).await.context("a control hangs")?.context("no control")?;
    ensure!(control.status.success(), "control: {}", String::from_utf8_lossy(&control.stderr));
    judge(guest, &attempts, &outcomes(&control.stdout)?)
}

/// A VM with little of everything that this host can limit.
async fn limited_vm(config: AgentOsConfig) -> Result<AgentOs> {
    let config = config.pids(300).disk_bytes(64 << 20).disk_inodes(10_000);
    let probe = AgentOs::create(config.clone()).await.context("no VM")?;
    if probe.isolation_report().limits.iter().any(|l| l.name == "memory_bytes" && l.missing.is_some()) {
        return Ok(probe);
    }
    probe.dispose().await?;
    AgentOs::create(config.memory_bytes(256 << 20)).await.context("no VM with limited memory")
}

/// Whether the VM's report says that a limit holds.
pub fn enforces(vm: &AgentOs, limit: &str) -> bool {
    vm.isolation_report().limits.iter().any(|found| found.name == limit && found.effective.is_some())
}

/// Where the attacker lies in a VM once it is let in.
pub(crate) const ATTACKER: &str = "/workspace/attacker";

/// Copies the attacker into a VM.
pub(crate) async fn let_in(vm: &AgentOs, attacker: &Path) -> Result<()> {
    let program = std::fs::read(attacker)?;
    let receive = format!("cat > {ATTACKER} && chmod +x {ATTACKER}");
    let receiving = vm.spawn("/bin/sh", ["-c", &receive], SpawnOptions::new()).context("no shell")?;
    receiving.write_stdin_all(program).await?;
    receiving.close_stdin();
    ensure!(receiving.wait().await?.success(), "the attacker did not get in");
    Ok(())
}

async fn in_vm(vm: &AgentOs, attacker: &Path, facts: &str) -> Result<Outcomes> {
    let_in(vm, attacker).await?;
    let result = vm.exec_argv_bytes(ATTACKER, ["guest", facts], ExecOptions::new()).await?;
    let said = String::from_utf8_lossy(&result.stderr);
    let last = String::from_utf8_lossy(&result.stdout).lines().last().unwrap_or_default().to_owned();
    ensure!(
        result.exit_code == 0,
        "the attacker: {:?} {} after {last}: {said}",
        result.cause,
        result.exit_code
    );
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
