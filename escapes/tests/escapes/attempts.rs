//! No attempt succeeds, and every positive control does.

use agentvm_escapes::{Guest, Verdict, run};
use agentvm_sdk::{AgentOsConfig, SidecarConfig};

use crate::program;

async fn nothing_escapes(guest: Guest) {
    let config = AgentOsConfig::new().sidecar(SidecarConfig::Binary(program("agentvm-sidecar")));
    let judged = run(guest, config, &program("attacker")).await.unwrap_or_else(|error| panic!("{error:#}"));
    let bad: Vec<_> = judged
        .iter()
        .filter(|row| matches!(row.verdict, Verdict::Escaped | Verdict::Unproven))
        .map(ToString::to_string)
        .collect();
    assert!(bad.is_empty(), "\n{}", bad.join("\n"));
    for row in judged.iter().filter(|row| row.verdict == Verdict::NotApplicable) {
        println!("skipped: {row}");
    }
}

#[tokio::test]
async fn nothing_that_agentos_tries_succeeds() {
    nothing_escapes(Guest::Agentos).await;
}

#[tokio::test]
async fn nothing_that_root_of_the_vm_tries_succeeds() {
    nothing_escapes(Guest::Root).await;
}
