//! What small calls cost while a flood and a long command are under way in the same VM.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use agentvm_sdk::{AgentOs, ClientError, ExecOptions, OutputFrom, OutputStream, Overflow, SpawnOptions};

use super::{
    TRUE, floor,
    stats::{self, Samples},
};

const ROUNDS: usize = 300;

/// `list`, `write`, `kill` and `exec`: in a VM where nothing else happens, then while a gigabyte at a time is written and
/// another exec sleeps. The floor is a plain process started in the same moments: the machine is busy for it too.
pub(super) async fn beside_a_flood(vm: AgentOs) -> Result<(), ClientError> {
    println!("in a quiet VM:");
    small_calls(&vm).await?;

    let done = Arc::new(AtomicBool::new(false));
    let (sleeper, flooder, over) = (vm.clone(), vm.clone(), done.clone());
    let mut busy = tokio::task::JoinSet::new();
    busy.spawn(async move { sleeper.exec("sleep 600", ExecOptions::new()).await.map(drop) });
    busy.spawn(async move {
        while !over.load(Ordering::Relaxed) {
            let options = ExecOptions::new().capture_stdio(false);
            flooder.exec("head -c 1073741824 /dev/zero", options).await?;
        }
        Ok(())
    });
    println!("beside a flood:");
    small_calls(&vm).await?;
    done.store(true, Ordering::Relaxed);
    busy.abort_all();
    vm.dispose().await
}

async fn small_calls(vm: &AgentOs) -> Result<(), ClientError> {
    let mut floor = Samples::new("posix_spawn true");
    let (mut list, mut table) = (Samples::new("list_processes"), Samples::new("all_processes"));
    let (mut write, mut kill) = (Samples::new("write and read back"), Samples::new("kill until exit"));
    let mut exec = Samples::new("exec true");
    let cat = vm.spawn("cat", [""; 0], SpawnOptions::new())?;
    let mut echo = cat.output_from(OutputStream::Stdout, OutputFrom::Start, Overflow::Wait);
    for _ in 0..ROUNDS {
        floor.time(|| floor::spawn_and_wait(TRUE, &[TRUE]));
        list.time(|| vm.list_processes());
        table.time_async(vm.all_processes()).await?;
        write
            .time_async(async {
                cat.write_stdin("x")?;
                echo.next().await;
                Ok::<(), ClientError>(())
            })
            .await?;
        let victim = vm.spawn("sleep", ["600"], SpawnOptions::new())?;
        kill.time_async(async {
            victim.kill();
            victim.wait().await
        })
        .await?;
        exec.time_async(vm.exec("true", ExecOptions::new())).await?;
    }
    for ours in [&list, &table, &write, &kill, &exec] {
        stats::compare(&floor, ours);
    }
    cat.close_stdin();
    Ok(())
}
