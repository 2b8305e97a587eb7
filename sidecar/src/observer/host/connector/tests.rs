//! Messages as the kernel writes them, and as it never would.

use proptest::prelude::*;

use super::*;

/// A message of `what` at 7 ns.
fn message(what: u32, body: &[u32]) -> Vec<u8> {
    let event: Vec<u32> = [what, 0, 7, 0].iter().chain(body).copied().collect();
    let length = u32::try_from(4 * event.len()).unwrap();
    let header = [length + 36, u32::from(DONE), 0, 0, PROCESSES, PROCESSES, 1, 13, length];
    header.iter().chain(&event).flat_map(|word| word.to_ne_bytes()).collect()
}

fn with(mut bytes: Vec<u8>, at: usize, word: u32) -> Vec<u8> {
    bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    bytes
}

#[test]
fn what_happens_to_processes_is_understood() {
    let bytes = [
        message(NONE, &[13]),
        message(FORK, &[70, 70, 71, 71, 0, 0]),
        message(FORK, &[71, 71, 72, 71, 0, 0]),
        message(EXEC, &[72, 71, 0, 0, 0, 0]),
        message(EXIT, &[72, 71, 9, 17, 70, 70]),
    ];
    let at_ns = 7;
    assert_eq!(
        messages(&bytes.concat()),
        [
            Message::Answer { to: 12, errno: 13 },
            Message::Forked { pid: 71, parent: 70, at_ns },
            Message::Threaded { pid: 71, thread: 72 },
            Message::Executed { pid: 71, at_ns },
            Message::Ended { pid: 71, thread: 72, status: 9, at_ns },
        ]
    );
}

#[test]
fn what_else_there_is_is_left_out() {
    // A change of user, a session, a core dump.
    for what in [4, 0x80, 0x4000_0000] {
        assert_eq!(messages(&message(what, &[70; 4])), []);
    }
    let fork = message(FORK, &[70, 70, 71, 71]);
    // Another kind of message, another connector.
    assert_eq!(messages(&with(fork.clone(), 4, 2)), []);
    assert_eq!(messages(&with(fork.clone(), 16, 2)), []);
    assert_eq!(messages(&with(fork, 20, 2)), []);
}

#[test]
fn bad_lengths_tell_nothing_and_spoil_nothing() {
    let fork = message(FORK, &[70, 70, 71, 71]);
    for length in 0..fork.len() {
        assert_eq!(messages(&fork[..length]), [], "cut at {length}");
    }
    for length in [0, 15, 69, 1 << 20, u32::MAX] {
        assert_eq!(messages(&with(fork.clone(), 0, length)), [], "{length}");
    }
    // The event is said to be shorter than it is, or longer.
    for length in [0, 8, 31, 33, 0xffff] {
        assert_eq!(messages(&with(fork.clone(), 32, length)), [], "{length}");
    }
    let behind = [with(fork.clone(), 32, 8), fork].concat();
    assert_eq!(messages(&behind), [Message::Forked { pid: 71, parent: 70, at_ns: 7 }]);
}

#[test]
fn what_has_no_room_in_the_kernel_is_told_to_be_lost() {
    let connector = match Connector::listen() {
        Ok(connector) => connector,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    // The kernel's least, for three messages or so.
    sockopt::set_socket_recv_buffer_size(&connector.0, 1).unwrap();
    for _ in 0..20 {
        assert!(std::process::Command::new("/bin/true").status().unwrap().success());
    }
    let mut buffer = [0; MESSAGE_BYTES];
    let lost = std::iter::repeat_with(|| connector.receive(&mut buffer)).find_map(Result::err);
    assert_eq!(lost, Some(Errno::NOBUFS));
}

proptest! {
    #[test]
    fn any_bytes_are_read_to_their_end(bytes: Vec<u8>) {
        prop_assert!(messages(&bytes).len() <= bytes.len() / HEADER);
    }

    #[test]
    fn a_message_that_was_changed_is_read_to_its_end(
        what in prop::sample::select(vec![NONE, FORK, EXEC, EXIT]),
        body: [u32; 6],
        changes: Vec<(prop::sample::Index, u8)>,
    ) {
        let mut bytes = [message(what, &body), message(what, &body)].concat();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        prop_assert!(messages(&bytes).len() <= bytes.len() / HEADER);
    }
}
