//! Where a user has so many pipes that the kernel makes new ones small, pipe(7): two pages instead of sixteen.

use std::{
    io::{PipeReader, PipeWriter},
    time::Duration,
};

use agentvm_sdk::{ExecOptions, Output, OutputFrom, OutputStream, Overflow, SpawnOptions};
use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};

use crate::support::{HEAD_AND_TAIL, out, sh, vm, within};

/// Pipes that use up the user's share; `None` for a user without a bound.
fn use_up_the_share() -> Option<Vec<(PipeReader, PipeWriter)>> {
    const SMALL: usize = 8 << 10;
    const BOUND: usize = 4096;
    let mut held = Vec::new();
    let mut may_grow = true;
    while held.len() < BOUND {
        let pipe = std::io::pipe().unwrap();
        if fcntl_getpipe_size(&pipe.0).unwrap() <= SMALL {
            return Some(held);
        }
        may_grow = may_grow && fcntl_setpipe_size(&pipe.0, 1 << 20).is_ok();
        held.push(pipe);
        if may_grow && held.len() > 128 {
            return None;
        }
    }
    None
}

#[tokio::test]
async fn everything_flows_through_pipes_of_eight_kibibytes() {
    let Some(_held) = use_up_the_share() else {
        eprintln!("skipped: this user's pipes are not bounded");
        return;
    };
    let vm = vm().await;
    let input: Vec<u8> = (0..4 << 20).map(|i: u32| u8::try_from(i % 251).unwrap()).collect();
    let options = ExecOptions::new().stdin(input.clone());
    let both = within(vm.exec_bytes("tee /dev/stderr", options)).await.unwrap();
    assert!(both.stdout == input && both.stderr == input);

    assert_eq!(sh(&vm, "head -c 1000000 /dev/zero | tr '\\0' x").await.stdout.len(), 1_000_000);
    assert_eq!(out(&vm, HEAD_AND_TAIL).await, "head\ntail\n");
    let flood = ExecOptions::new().capture_stdio(false).timeout(Duration::from_millis(200));
    assert!(within(vm.exec("yes", flood)).await.unwrap().timed_out);

    let process = vm.spawn("sh", ["-c", "cat; exit 4"], SpawnOptions::new()).unwrap();
    process.write_stdin(input.clone()).unwrap();
    process.close_stdin();
    let mut echoed = 0;
    let mut stream = process.output_from(OutputStream::Stdout, OutputFrom::Start, Overflow::Wait);
    while let Some(output) = within(stream.next()).await {
        let Output::Data(bytes) = output.unwrap() else { panic!("a gap") };
        assert!(bytes == input[echoed..echoed + bytes.len()]);
        echoed += bytes.len();
    }
    assert_eq!((echoed, within(process.wait()).await.unwrap().code), (input.len(), 4));
}
