//! Whatever the other end sends, it is a message or BADMSG: nothing panics, and no length in it is believed.

use proptest::collection::vec;
use proptest::prelude::*;
use rustix::net::RecvFlags;
use serde::Serialize;

use super::*;
use crate::init::{Boot, Exit, Reply, Request};
use agentvm_wire::id::ProcessId;

/// One message of each direction, to be cut and changed.
fn seeds() -> Vec<Vec<u8>> {
    let process = ProcessId(7);
    let exit = Exit {
        exit_code: Some(255),
        signal: None,
        core_dumped: false,
        user_us: u64::MAX,
        sys_us: 0,
        max_rss_bytes: u64::MAX,
        exited_at_ms: 1,
    };
    vec![
        encode(&Reply::Exited { process, exit }),
        encode(&Reply::Started {
            process,
            pid: u32::MAX,
            started_at_ms: u64::MAX,
            start_ticks: Some(u64::MAX),
        }),
        encode(&Reply::Signaled { token: u64::MAX, delivered: u32::MAX }),
        encode(&Request::Expire { process }),
        encode(&Request::Terminate),
        // A string that claims to be longer than any memory.
        vec![1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
    ]
}

/// What comes of bytes at the receiving end. What decodes must mean the same once encoded again.
fn arrives<M: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    let (ours, theirs) = pair().unwrap();
    send(&theirs, bytes, &[]).unwrap();
    match receive::<M>(&ours, &mut [0; MAX_BYTES], RecvFlags::DONTWAIT) {
        Ok(Some(Packet { message, .. })) => {
            let again: M = postcard::from_bytes(&encode(&message)).unwrap();
            assert_eq!(again, message);
        }
        Ok(None) => assert!(bytes.is_empty(), "only an empty packet looks like the end"),
        Err(errno) => assert_eq!(errno, Errno::BADMSG),
    }
}

fn arrives_everywhere(bytes: &[u8]) {
    arrives::<Boot>(bytes);
    arrives::<Reply>(bytes);
    arrives::<Request>(bytes);
}

#[test]
fn messages_cut_anywhere_and_with_any_byte_changed_are_taken_or_refused() {
    for seed in seeds() {
        for at in 0..seed.len() {
            arrives_everywhere(&seed[..at]);
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = seed.clone();
                changed[at] = byte;
                arrives_everywhere(&changed);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_taken_or_refused(bytes in vec(any::<u8>(), 0..512)) {
        arrives_everywhere(&bytes);
    }
}
