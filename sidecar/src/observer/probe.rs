//! Whether a keeper sees what it shall, tried on a real process in a real VM.

use std::{io, os::fd::OwnedFd, time::Duration};

use agentvm_wire::{
    id::{ProcessId, VmId},
    vm::{Isolation, VmConfig},
};
use tokio::time::timeout;

use crate::{
    errno,
    init::{Event, StartSpec},
    keeper::{Backend, Keeper, Orders, Sighting, Wanted, What},
    zygote::{Booted, Zygote},
};

/// How long one attempt may take; some milliseconds on a quiet host.
const LIMIT: Duration = Duration::from_secs(10);
/// Levels to try it in, the strongest first.
const LEVELS: [Isolation; 3] = [Isolation::Sandbox, Isolation::Confined, Isolation::None];
/// Makes a child that ends with 7, another that is killed before it makes any call, and opens a file.
const SCRIPT: &str = "(exit 7); (while :; do :; done) & kill -9 $!; wait $!; : < /dev/null";
const CHILDREN: usize = 2;
/// Makes a child that lasts for ten looks.
const LASTING: &str = "(sleep 0.2; exit 7)";
const TREE: ProcessId = ProcessId(1);

/// What was found; each with why it cannot be had.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) process: Vec<(Backend, Result<(), String>)>,
    /// Forks are recorded beside notification.
    pub(super) records: bool,
    /// Files and the network: by notification alone.
    pub(super) calls: Result<(), String>,
}

/// Tries everything.
pub(super) async fn probe(zygote: &Zygote, ladder: &[Backend]) -> Found {
    let (mut process, mut records): (Vec<(Backend, Result<(), String>)>, _) = (Vec::new(), false);
    for backend in ladder {
        let wanted = Wanted { process: true, ..Wanted::default() };
        // It takes a while, and is used only where nothing else works.
        if *backend == Backend::Polling && process.iter().any(|(_, tried)| tried.is_ok()) {
            continue;
        }
        let seen = attempt(zygote, wanted, Some(*backend)).await;
        if *backend == Backend::Notification {
            records = seen.as_ref().is_ok_and(|seen| forks(seen) == CHILDREN);
        }
        process.push((*backend, seen.map(drop)));
    }
    let wanted = Wanted { file: true, network: true, ..Wanted::default() };
    Found { process, records, calls: attempt(zygote, wanted, None).await.map(drop) }
}

async fn attempt(zygote: &Zygote, wanted: Wanted, backend: Option<Backend>) -> Result<Vec<Sighting>, String> {
    let mut booted = boot(zygote).await?;
    let ladder = backend.into_iter().collect();
    let orders = Orders { wanted, ladder, require_exact: false, records: true };
    let seen = timeout(LIMIT, see(&mut booted, &orders)).await;
    booted.commands.end();
    while booted.events.next().await != Event::Ended {}
    seen.unwrap_or_else(|_| Err(format!("nothing was seen within {LIMIT:?}")))
}

async fn boot(zygote: &Zygote) -> Result<Booted, String> {
    let mut cause = String::new();
    for isolation in LEVELS {
        match zygote.create_vm(VmId::random(), &VmConfig { isolation, ..VmConfig::default() }).await {
            Ok(booted) => return Ok(booted),
            Err(error) => cause = error.to_string(),
        }
    }
    Err(cause)
}

async fn see(booted: &mut Booted, orders: &Orders) -> Result<Vec<Sighting>, String> {
    let failed = |error: io::Error| format!("no keeper: {error}");
    let (keeper, mut sightings) = Keeper::start(orders).map_err(failed)?;
    let watcher = keeper.expect(TREE).map_err(failed)?;
    let script = if orders.ladder == [Backend::Polling] { LASTING } else { SCRIPT };
    booted.commands.start(TREE, shell(booted, script, watcher));
    let mut seen = Vec::new();
    while let Some(sighted) = sightings.next().await {
        seen.extend(sighted);
        let refused = seen.iter().find_map(|sighting| match sighting {
            Sighting::Unwatched { errno, .. } => Some(*errno),
            _ => None,
        });
        if let Some(errno) = refused {
            return Err(errno::text(errno));
        }
        if matches!(seen.last(), Some(Sighting::Done { .. })) {
            let all = is_all_there(&seen, orders.wanted);
            return all.then_some(seen).ok_or_else(|| "not all of what a process did was seen".to_owned());
        }
    }
    Err("the keeper has ended".to_owned())
}

fn shell(booted: &Booted, script: &str, watcher: OwnedFd) -> StartSpec {
    let bytes = |(key, value): (&String, &String)| (key.clone().into_bytes(), value.clone().into_bytes());
    let environment = booted.environment.iter().map(bytes).collect();
    StartSpec {
        args: vec![b"-c".to_vec(), script.into()],
        watcher: Some(watcher),
        ..StartSpec::new("/bin/sh", environment, &booted.cwd)
    }
}

fn forks(seen: &[Sighting]) -> usize {
    let forked = |sighting: &&Sighting| matches!(sighting, Sighting::Saw { what: What::Forked { .. }, .. });
    seen.iter().filter(forked).count()
}

fn is_all_there(seen: &[Sighting], wanted: Wanted) -> bool {
    let saw = |is: fn(&What) -> bool| {
        seen.iter().any(|sighting| matches!(sighting, Sighting::Saw { what, .. } if is(what)))
    };
    let process = saw(|what| matches!(what, What::Executed(_)))
        && saw(|what| matches!(what, What::Exited { code: Some(7), .. }));
    let file = saw(|what| matches!(what, What::File(file) if file.path == b"/dev/null"));
    (!wanted.process || process) && (!wanted.file || file)
}
