//! `exec` and `exec_argv`: command lines, arguments, environment, results.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use agentvm_sdk::{AgentOs, AgentOsConfig, ClientError, ExecOptions, wire::error::Code};

use crate::support::{
    DEADLINE, HEAD_AND_TAIL, no_process_has_argument, out, sh, until, vm, within, within_limit,
};

#[tokio::test]
async fn a_command_gives_its_output_its_errors_and_its_code() {
    let vm = vm().await;
    let result = sh(&vm, "echo out; echo err >&2; exit 3").await;
    assert_eq!((result.stdout.as_str(), result.stderr.as_str(), result.exit_code), ("out\n", "err\n", 3));
    assert_eq!(result.signal, None);
}

#[tokio::test]
async fn a_command_killed_by_a_signal_reports_128_plus_n_and_the_name() {
    let vm = vm().await;
    let result = sh(&vm, "kill -9 $$").await;
    assert_eq!((result.exit_code, result.signal.as_deref()), (137, Some("SIGKILL")));
    let result = sh(&vm, "exit 255").await;
    assert_eq!((result.exit_code, result.signal), (255, None));
}

#[tokio::test]
async fn c13_a_shell_says_126_and_127_and_argv_gets_typed_errors() {
    let vm = vm().await;
    out(&vm, "echo echo > /workspace/plain; chmod 644 /workspace/plain").await;
    for _ in 0..20 {
        assert_eq!(sh(&vm, "/etc").await.exit_code, 126);
        assert_eq!(sh(&vm, "no-such-cmd-zz").await.exit_code, 127);
        assert_eq!(sh(&vm, "/workspace/plain").await.exit_code, 126);
        for (command, expected) in
            [("/etc", "EACCES"), ("no-such-cmd-zz", "ENOENT"), ("/workspace/plain", "EACCES")]
        {
            let error = within(vm.exec_argv(command, [""; 0], ExecOptions::new())).await.unwrap_err();
            let ClientError::SpawnFailed { code, step, message } = &error else { panic!("{error:?}") };
            assert_eq!((code.as_str(), step.as_str()), (expected, "exec"), "{message}");
            assert!(message.contains(command), "{message}");
        }
    }
    assert!(vm.list_processes().is_empty());
}

#[tokio::test]
async fn c22_without_input_standard_input_is_at_its_end() {
    let vm = vm().await;
    let limit = Duration::from_secs(5);
    for (command, expected) in [("cat", ""), ("sort", ""), ("read x || echo eof", "eof\n")] {
        let result = within_limit(limit, vm.exec(command, ExecOptions::new())).await.unwrap();
        assert_eq!((result.exit_code, result.stdout.as_str()), (0, expected), "{command}");
    }
}

#[tokio::test]
async fn c20_large_input_and_output_flow_side_by_side() {
    let vm = vm().await;
    let input: Vec<u8> = (0..8 << 20).map(|i: u32| u8::try_from(i % 251).unwrap()).collect();
    let result = within(vm.exec_bytes("cat", ExecOptions::new().stdin(input.clone()))).await.unwrap();
    assert!(result.stdout == input, "{} bytes", result.stdout.len());

    let result = sh(&vm, "head -c 1048576 /dev/zero >&2; echo ok").await;
    assert_eq!((result.stdout.as_str(), result.stderr.len()), ("ok\n", 1 << 20));

    let options = ExecOptions::new().stdin(vec![7; 4 << 20]);
    let result = within(vm.exec_bytes("tee /dev/stderr", options)).await.unwrap();
    assert_eq!((result.stdout.len(), result.stderr.len()), (4 << 20, 4 << 20));
}

#[tokio::test]
async fn a_counting_callback_sees_every_byte_of_a_quarter_gigabyte() {
    let vm = vm().await;
    let seen = Arc::new(AtomicU64::new(0));
    let counter = seen.clone();
    let options = ExecOptions::new()
        .capture_stdio(false)
        .on_stdout(move |bytes| _ = counter.fetch_add(bytes.len() as u64, Ordering::Relaxed));
    let result = within(vm.exec("head -c 268435456 /dev/zero", options)).await.unwrap();
    assert_eq!((result.exit_code, result.stdout.len()), (0, 0));
    assert_eq!(seen.load(Ordering::Relaxed), 268_435_456);
}

#[tokio::test]
async fn c58_every_argument_arrives_verbatim() {
    let vm = vm().await;
    let script = "for a in \"$@\"; do printf '[%s]' \"$a\"; done";
    let items = ["two words", "", "*", "$PATH", "it's", "a\"b", "l1\nl2", "ünï", "-n"];
    let args = ["-c", script, "_"].into_iter().chain(items);
    let result = within(vm.exec_argv("sh", args, ExecOptions::new())).await.unwrap();
    let expected: String = items.iter().map(|item| format!("[{item}]")).collect();
    assert_eq!(result.stdout, expected);
}

#[tokio::test]
async fn c59_a_command_line_reaches_one_shell_unaltered() {
    let vm = vm().await;
    let script = "v=\"$(cat <<'E'\nit's $HOME `x`\nE\n)\"; printf '%s' \"$v\"";
    assert_eq!(out(&vm, script).await, "it's $HOME `x`");
    assert_eq!(out(&vm, "X=7; echo \"n$X\" | tr n m").await, "m7\n");
    assert_eq!(
        out(&vm, "cat /proc/$$/cmdline | tr '\\0' ' '").await,
        "sh -c cat /proc/$$/cmdline | tr '\\0' ' ' "
    );
}

#[tokio::test]
async fn c61_text_is_utf_8_unless_the_caller_says_otherwise() {
    let vm = vm().await;
    let count = |options: ExecOptions| vm.exec("wc -m", options.stdin("é"));
    assert_eq!(within(count(ExecOptions::new())).await.unwrap().stdout, "1\n");
    assert_eq!(within(count(ExecOptions::new().env("LC_ALL", "C"))).await.unwrap().stdout, "2\n");
    assert_eq!(out(&vm, "locale charmap").await, "UTF-8\n");
}

#[tokio::test]
async fn the_environment_is_the_vms_own_overlaid_by_the_calls_and_nothing_of_the_hosts() {
    let vm = vm().await;
    let own = within(vm.exec("env", ExecOptions::new().env("MINE", "1").env("HOME", "/tmp"))).await.unwrap();
    let mut names: Vec<&str> = own.stdout.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.sort_unstable();
    assert_eq!(names, ["HOME", "LANG", "LOGNAME", "MINE", "PATH", "PWD", "SHELL", "TERM", "USER"]);
    assert!(own.stdout.contains("HOME=/tmp\n"));
    assert!(!out(&vm, "env").await.contains("MINE"), "an earlier call's variable leaked");
}

#[tokio::test]
async fn arguments_that_could_never_start_are_refused_by_name() {
    let vm = vm().await;
    let refused = |result: Result<_, ClientError>| -> (Code, Option<String>) {
        match result.map(|_: agentvm_sdk::ExecResult| ()).unwrap_err() {
            ClientError::Rejected(rejection) => (rejection.code, rejection.details.field),
            other => panic!("{other:?}"),
        }
    };
    let (code, field) = refused(vm.exec("", ExecOptions::new()).await);
    assert_eq!((code, field.as_deref()), (Code::INVALID_ARGUMENT, Some("command")));
    let (code, field) = refused(vm.exec("echo a\0b", ExecOptions::new()).await);
    assert_eq!((code, field.as_deref()), (Code::INVALID_ARGUMENT, Some("command")));
    let (code, field) = refused(vm.exec(&"x".repeat(131_072), ExecOptions::new()).await);
    assert_eq!((code, field.as_deref()), (Code::E2BIG, Some("command")));
    for (key, value) in [("", "x"), ("A=B", "x"), ("A\0", "x"), ("A", "x\0")] {
        let (code, field) = refused(vm.exec("true", ExecOptions::new().env(key, value)).await);
        assert_eq!(code, Code::INVALID_ARGUMENT, "{key:?}");
        assert!(field.is_some_and(|field| field.starts_with("env")), "{key:?}");
    }
    let (code, _) = refused(vm.exec_argv("echo", ["a\0b"], ExecOptions::new()).await);
    assert_eq!(code, Code::INVALID_ARGUMENT);
    let (code, field) = refused(vm.exec("true", ExecOptions::new().cwd("relative")).await);
    assert_eq!((code, field.as_deref()), (Code::INVALID_ARGUMENT, Some("cwd")));
    assert_eq!(out(&vm, "echo still here").await, "still here\n");
}

#[tokio::test]
async fn a_vm_that_could_run_nothing_is_refused_by_name() {
    let sidecar = crate::support::sidecar().await;
    let refused = async |config: AgentOsConfig| {
        let created = within(AgentOs::create(config.connection(sidecar.clone()))).await;
        let ClientError::Rejected(rejection) = created.map(drop).unwrap_err() else { panic!("not rejected") };
        (rejection.code, rejection.details.field.unwrap_or_default())
    };
    for (key, value) in [("", "x"), ("A=B", "x"), ("A\0", "x"), ("A", "x\0")] {
        let (code, field) = refused(AgentOsConfig::new().env(key, value)).await;
        assert_eq!(code, Code::INVALID_ARGUMENT, "{key:?}");
        assert!(field.starts_with("env"), "{key:?}: {field}");
    }
    let (code, field) = refused(AgentOsConfig::new().env("A", "v".repeat(131_071))).await;
    assert_eq!((code, field.as_str()), (Code::E2BIG, "env"));
    for cwd in ["relative", "", "/a\0b", &"/a".repeat(10_000)] {
        let (code, field) = refused(AgentOsConfig::new().cwd(cwd)).await;
        assert_eq!((code, field.as_str()), (Code::INVALID_ARGUMENT, "cwd"), "{cwd:?}");
    }
    for config in [AgentOsConfig::new().hostname("a b"), AgentOsConfig::new().pids(0)] {
        assert_eq!(refused(config).await.0, Code::INVALID_ARGUMENT);
    }
}

#[tokio::test]
async fn c56_long_strings_work_up_to_the_kernels_limit_and_are_e2big_beyond_it() {
    let vm = vm().await;
    let run = |args: Vec<String>, env: Option<String>| {
        let options = env.into_iter().fold(ExecOptions::new(), |options, value| options.env("K", value));
        within(vm.exec_argv("/bin/true", args, options))
    };
    let too_big = |result: Result<_, ClientError>| {
        let error = result.map(|_: agentvm_sdk::ExecResult| ()).unwrap_err();
        assert_eq!(error.code(), Code::E2BIG, "{error}");
        assert!(error.to_string().contains("limit is"), "{error}");
    };
    assert_eq!(run(vec!["x".repeat(131_071)], None).await.unwrap().exit_code, 0);
    too_big(run(vec!["x".repeat(131_072)], None).await);
    assert_eq!(run(vec![], Some("v".repeat(131_069))).await.unwrap().exit_code, 0);
    too_big(run(vec![], Some("v".repeat(131_070))).await);
    too_big(run(vec!["x".repeat(100_000); 30], None).await);
    assert_eq!(run(vec![], None).await.unwrap().exit_code, 0);
}

#[tokio::test]
async fn c55_an_unusable_working_directory_is_named_and_never_called_a_missing_program() {
    let vm = vm().await;
    out(&vm, "mkdir -p /workspace/locked && chmod 000 /workspace/locked").await;
    let cases = [("/nope", "ENOENT"), ("/etc/passwd", "ENOTDIR"), ("/workspace/locked", "EACCES")];
    for (cwd, expected) in cases {
        let error = within(vm.exec_argv("/bin/ls", [""; 0], ExecOptions::new().cwd(cwd))).await.unwrap_err();
        let ClientError::SpawnFailed { code, step, message } = &error else { panic!("{error:?}") };
        assert_eq!((code.as_str(), step.as_str()), (expected, "cwd"), "{message}");
        assert!(message.contains(cwd), "{message}");
    }
    assert_eq!(within(vm.exec("pwd", ExecOptions::new().cwd("/tmp"))).await.unwrap().stdout, "/tmp\n");
    assert_eq!(out(&vm, "pwd").await, "/workspace\n");
}

#[tokio::test]
async fn the_capture_limit_kills_the_tree_and_carries_what_was_captured() {
    let vm = vm().await;
    let options = ExecOptions::new().max_output_bytes(100_000);
    let error = within(vm.exec("setsid sleep 4711 & yes", options)).await.unwrap_err();
    let ClientError::CaptureLimit { stream, limit, observed, stdout, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!((*stream, *limit), ("stdout", 100_000));
    assert!(*observed > 100_000 && stdout.len() <= 100_000);
    assert_eq!(error.to_string(), format!("exec stdout capture is {observed} bytes, limit is 100000"));
    no_process_has_argument(&vm, "4711").await;
}

#[tokio::test]
async fn d14_dropping_an_exec_kills_its_tree() {
    let vm = vm().await;
    let (started, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let options = ExecOptions::new().on_stdout(move |bytes| drop(started.send(bytes.to_vec())));
    let command = "(setsid sleep 4712 &) ; (sh -c 'sleep 4712 & wait' &) ; echo up; sleep 4712";
    {
        let run = vm.exec(command, options);
        tokio::select! {
            result = run => panic!("{result:?}"),
            up = within(begun.recv()) => assert_eq!(up.unwrap(), b"up\n"),
        }
    }
    no_process_has_argument(&vm, "4712").await;
}

/// A descendant that does nothing before the shell itself has ended, and then writes without end. Where the machine does
/// not let it write within 50 ms, it is too late for the result: then it has to be tried again.
fn floods_once_alone(marker: &str) -> String {
    format!("(while kill -0 $$ 2>/dev/null; do :; done; exec yes {marker}) & exit 0")
}

#[tokio::test]
async fn the_capture_limit_kills_descendants_that_exceed_it_after_the_commands_own_end() {
    until("the descendant writes in time", DEADLINE, || async {
        let vm = vm().await;
        let options = ExecOptions::new().max_output_bytes(100_000);
        match within(vm.exec(&floods_once_alone("4714"), options)).await {
            Ok(result) => assert_eq!(result.exit_code, 0),
            Err(ClientError::CaptureLimit { .. }) => {
                no_process_has_argument(&vm, "4714").await;
                return true;
            }
            Err(error) => panic!("{error:?}"),
        }
        false
    })
    .await;
}

#[tokio::test]
async fn d14_dropping_an_exec_whose_command_has_ended_kills_what_it_left() {
    until("the descendant writes in time", DEADLINE, || async {
        let vm = vm().await;
        let (started, mut begun) = tokio::sync::mpsc::unbounded_channel();
        let options = ExecOptions::new().on_stdout(move |bytes| drop(started.send(bytes.to_vec())));
        {
            let command = floods_once_alone("4715");
            let run = vm.exec(&command, options.capture_stdio(false));
            tokio::select! {
                biased;
                some = within(begun.recv()) => assert!(some.unwrap().starts_with(b"4715\n")),
                result = run => {
                    assert_eq!(result.unwrap().exit_code, 0);
                    return false;
                }
            }
        }
        no_process_has_argument(&vm, "4715").await;
        true
    })
    .await;
}

#[tokio::test]
async fn c10_a_background_child_outlives_its_exec_and_keeps_writing() {
    let vm = vm().await;
    let limit = Duration::from_secs(5);
    let command =
        "(i=0; while :; do echo beat; i=$((i+1)); echo $i > /workspace/beats; sleep 0.02; done) & echo $!";
    let result = within_limit(limit, vm.exec(command, ExecOptions::new())).await.unwrap();
    let pid = result.stdout.lines().find(|line| *line != "beat").unwrap().to_owned();
    let beats =
        || async { out(&vm, "cat /workspace/beats || true").await.trim().parse::<u32>().unwrap_or(0) };
    let before = beats().await;
    until("twenty more beats", Duration::from_secs(10), || async { beats().await > before + 20 }).await;
    out(&vm, &format!("kill -0 {pid}")).await;
}

#[tokio::test]
async fn the_tail_of_a_short_lived_descendant_is_still_captured() {
    let vm = vm().await;
    assert_eq!(out(&vm, HEAD_AND_TAIL).await, "head\ntail\n");
}

#[tokio::test]
async fn callbacks_see_each_stream_in_order_and_a_panicking_one_disturbs_nothing() {
    let vm = vm().await;
    let lines = Arc::new(Mutex::new(Vec::new()));
    let seen = lines.clone();
    let options = ExecOptions::new()
        .on_stdout(move |bytes| seen.lock().unwrap().extend_from_slice(bytes))
        .on_stderr(|_| panic!("a callback that misbehaves"));
    let result = within(vm.exec("seq 1 20000; echo oops >&2", options)).await.unwrap();
    let expected: String = (1..=20_000).map(|n| format!("{n}\n")).collect();
    assert_eq!(*lines.lock().unwrap(), expected.as_bytes());
    assert_eq!((result.stdout, result.stderr.as_str()), (expected, "oops\n"));
}

#[tokio::test]
async fn standard_streams_can_be_opened_by_their_names() {
    let vm = vm().await;
    let result = sh(&vm, "echo one > /dev/stdout; echo two > /dev/stderr; cat /dev/stdin < /dev/null").await;
    assert_eq!((result.stdout.as_str(), result.stderr.as_str(), result.exit_code), ("one\n", "two\n", 0));
}
