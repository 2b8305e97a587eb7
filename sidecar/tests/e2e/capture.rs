//! What an exec keeps of the output: limits, policies, text.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use agentvm_sdk::{AgentOs, ClientError, ExecOptions, ExecResult, OutputLimit};

use crate::support::{vm, within};

/// 3 000 000 `w`, then a line.
const FLOOD: &str = "head -c 3000000 /dev/zero | tr '\\0' w; echo; echo tail-line";
const FLOOD_BYTES: u64 = 3_000_011;

async fn limited(vm: &AgentOs, command: &str, limit: u64, policy: OutputLimit) -> ExecResult {
    let options = ExecOptions::new().max_output_bytes(limit).output_limit(policy);
    within(vm.exec(command, options)).await.unwrap()
}

#[tokio::test]
async fn c28_a_cap_says_what_it_dropped_and_keeps_the_part_that_was_asked_for() {
    let vm = vm().await;
    for (policy, begins, ends) in [
        (OutputLimit::KeepHead, true, false),
        (OutputLimit::KeepTail, true, true),
        (OutputLimit::KeepHeadAndTail, true, true),
    ] {
        let seen = Arc::new(AtomicU64::new(0));
        let counter = seen.clone();
        let options = ExecOptions::new()
            .max_output_bytes(100_000)
            .output_limit(policy)
            .on_stdout(move |bytes| _ = counter.fetch_add(bytes.len() as u64, Ordering::Relaxed));
        let result = within(vm.exec(FLOOD, options)).await.unwrap();
        assert_eq!((result.exit_code, result.stdout.len()), (0, 100_000), "{policy:?}");
        assert_eq!(result.truncated.unwrap().dropped_bytes, FLOOD_BYTES - 100_000, "{policy:?}");
        assert_eq!(result.stdout.starts_with("www"), begins, "{policy:?}");
        assert_eq!(result.stdout.ends_with("w\ntail-line\n"), ends, "{policy:?}");
        assert_eq!(seen.load(Ordering::Relaxed), FLOOD_BYTES, "callbacks see everything");
    }
    let whole = limited(&vm, FLOOD, FLOOD_BYTES, OutputLimit::Kill).await;
    assert_eq!((whole.stdout.len() as u64, whole.truncated), (FLOOD_BYTES, None));
    let result = limited(&vm, "exit 3", 0, OutputLimit::Kill).await;
    assert_eq!((result.exit_code, result.truncated), (3, None), "what writes nothing exceeds nothing");
}

#[tokio::test]
async fn c29_a_limit_counts_bytes_and_cuts_no_character() {
    let vm = vm().await;
    let thousand = "printf '\\344\\270\\255%.0s' $(seq 1 1000)";
    for policy in [OutputLimit::KeepHead, OutputLimit::KeepTail] {
        let result = limited(&vm, thousand, 2000, policy).await;
        assert_eq!(result.stdout, "中".repeat(666), "{policy:?}");
        assert_eq!(result.truncated.unwrap().dropped_bytes, 1002, "{policy:?}");
    }
    let result = limited(&vm, thousand, 2000, OutputLimit::KeepHeadAndTail).await;
    assert_eq!((result.stdout, result.truncated.unwrap().dropped_bytes), ("中".repeat(666), 1002));
    let options = ExecOptions::new().max_output_bytes(2000).output_limit(OutputLimit::KeepHead);
    let bytes = within(vm.exec_bytes(thousand, options)).await.unwrap();
    assert_eq!((bytes.stdout.len(), bytes.truncated.unwrap().dropped_bytes), (2000, 1000));
}

#[tokio::test]
async fn the_limit_is_one_for_both_streams() {
    let vm = vm().await;
    let both = "printf 1234567890; sleep 0.1; printf abcdefghij >&2";
    let result = limited(&vm, both, 15, OutputLimit::KeepHead).await;
    assert_eq!((result.stdout.as_str(), result.stderr.as_str()), ("1234567890", "abcde"));
    let result = limited(&vm, both, 15, OutputLimit::KeepTail).await;
    assert_eq!((result.stdout.as_str(), result.stderr.as_str()), ("67890", "abcdefghij"));
    let options = ExecOptions::new().max_output_bytes(15);
    let error = within(vm.exec(both, options)).await.unwrap_err();
    let ClientError::CaptureLimit { stream, observed, limit, stdout, stderr } = error else {
        panic!("{error}")
    };
    assert_eq!((stream, observed, limit), ("stderr", 20, 15));
    assert_eq!((&*stdout, &*stderr), (&b"1234567890"[..], &b"abcde"[..]));
}

#[tokio::test]
async fn a_limit_beyond_what_it_may_be_raised_to_is_refused_by_name() {
    let vm = vm().await;
    let options = ExecOptions::new().max_output_bytes(ExecOptions::MAX_OUTPUT_BYTES + 1);
    let ClientError::Rejected(rejection) = within(vm.exec("true", options)).await.unwrap_err() else {
        panic!("not rejected")
    };
    assert_eq!(rejection.code.as_str(), "invalid_argument");
    assert_eq!(rejection.details.field.as_deref(), Some("max_output_bytes"));
    let options = ExecOptions::new().max_output_bytes(ExecOptions::MAX_OUTPUT_BYTES);
    assert_eq!(within(vm.exec("echo fine", options)).await.unwrap().stdout, "fine\n");
}

#[tokio::test]
async fn c70_large_input_and_output_are_split_and_what_is_too_large_fails_alone() {
    let vm = vm().await;
    let stream = vm.exec("for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.1; done", ExecOptions::new());
    let large = async {
        let input = vec![7; 24 << 20];
        let sum = vm.exec("sha256sum", ExecOptions::new().stdin(input.clone())).await.unwrap();
        let local =
            vm.exec("head -c 25165824 /dev/zero | tr '\\0' '\\007' | sha256sum", ExecOptions::new()).await;
        assert_eq!(sum.stdout, local.unwrap().stdout);
        let options = ExecOptions::new().max_output_bytes(32 << 20);
        let output = vm.exec_bytes("head -c 25165824 /dev/zero", options).await.unwrap();
        assert_eq!(output.stdout.len(), 24 << 20);
        let too_large = vm.exec_argv("true", vec!["x".repeat(100_000); 200], ExecOptions::new()).await;
        assert_eq!(too_large.unwrap_err().code().as_str(), "E2BIG");
    };
    let (stream, ()) = within(async { tokio::join!(stream, large) }).await;
    assert_eq!(stream.unwrap().stdout, "1\n2\n3\n4\n5\n6\n7\n8\n");
}
