//! `escapes`: makes every attempt as `agentos` and as root of a VM, and prints attempt, expected, got and control.
//!
//! Exits with 0 only if none succeeded and every control did. The attacker and the sidecar lie beside this program.

use std::process::ExitCode;

use agentvm_escapes::{Guest, Verdict, expected, run};
use agentvm_sdk::{AgentOsConfig, SidecarConfig};
use anyhow::{Context as _, Result};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let own = std::env::current_exe()?;
    let folder = own.parent().context("this program lies in no folder")?;
    let mut judged = Vec::new();
    for guest in [Guest::Agentos, Guest::Root] {
        let config = AgentOsConfig::new().sidecar(SidecarConfig::Binary(folder.join("agentvm-sidecar")));
        judged.extend(run(guest, config, &folder.join("attacker")).await?);
    }
    for row in &judged {
        println!("{row}");
    }
    for (rows, reason) in expected::NOT_APPLICABLE {
        println!("{rows}: not applicable: {reason}");
    }
    let count = |verdict| judged.iter().filter(|row| row.verdict == verdict).count();
    let (escaped, unproven) = (count(Verdict::Escaped), count(Verdict::Unproven));
    if unproven > 0 {
        println!("{unproven} prove nothing: their controls failed");
    }
    println!(
        "{} attempts, {escaped} escaped, {} not applicable",
        judged.len(),
        count(Verdict::NotApplicable) + expected::NOT_APPLICABLE.len()
    );
    Ok(if escaped + unproven == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
