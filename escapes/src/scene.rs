//! Two VMs of one sidecar: in one a storm is raised, the other is its neighbour.

use std::path::Path;

use agentvm_sdk::{AgentOs, AgentOsConfig, ClientError, Output, Process, SidecarConfig, SpawnOptions};
use anyhow::{Context as _, Result, bail};

use crate::run::{ATTACKER, let_in};

/// The two.
#[derive(Debug)]
pub struct Scene {
    /// Where the attacker is.
    pub raging: AgentOs,
    /// Its neighbour, of no special configuration.
    pub calm: AgentOs,
}

impl Scene {
    /// Makes both, with a sidecar of their own, from the programs in that folder.
    ///
    /// # Errors
    /// The sidecar or a VM does not start; the attacker is not there.
    pub async fn set(programs: &Path, config: AgentOsConfig) -> Result<Self> {
        let own = SidecarConfig::Binary(programs.join("agentvm-sidecar"));
        let sidecar = AgentOs::create_sidecar(&own).await?;
        let create = async |config: AgentOsConfig| AgentOs::create(config.connection(sidecar.clone())).await;
        let scene = Self { calm: create(AgentOsConfig::new()).await?, raging: create(config).await? };
        let_in(&scene.raging, &programs.join("attacker")).await?;
        Ok(scene)
    }

    /// Raises a storm and waits until it has what it wants.
    ///
    /// # Errors
    /// It ends before.
    pub async fn raise(&self, storm: &str) -> Result<Process> {
        let process = self.raging.spawn(ATTACKER, ["storm", storm], SpawnOptions::new())?;
        let (mut said, mut output) = (Vec::new(), process.stdout());
        while !said.starts_with(b"raging\n") {
            match output.next().await {
                Some(Ok(Output::Data(bytes))) => said.extend_from_slice(&bytes),
                other => bail!("{storm}: {other:?} after {:?}", String::from_utf8_lossy(&said)),
            }
        }
        Ok(process)
    }

    /// Kills a storm with all that belongs to it, and waits until init is alone.
    ///
    /// # Errors
    /// The VM has not outlived it.
    pub async fn end(&self, storm: &Process) -> Result<()> {
        storm.kill();
        storm.wait().await.context("it does not end")?;
        while self.live().await? > 1 {}
        Ok(())
    }

    /// How many processes the storm's VM has, init among them.
    async fn live(&self) -> Result<usize, ClientError> {
        let rows = self.raging.all_processes().await?;
        Ok(rows.iter().filter(|row| row.exit_code.is_none()).count())
    }
}
