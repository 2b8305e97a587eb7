//! The end of a process: published once, kept, after its own output, never invented.

use agentvm_sdk::SpawnOptions;

use crate::{NONE, scene::scene};

#[test]
fn d1_an_exit_that_nobody_awaits_is_kept_for_whoever_waits_later() {
    scene(async |vm, peer| {
        let process = vm.spawn("true", NONE, SpawnOptions::new()).unwrap();
        let pid = process.pid();
        drop(process);
        let guest = peer.starts().await;
        peer.exits(&guest, 3).await;
        assert_eq!(vm.wait_process(pid).await.unwrap(), 3);
    });
}
