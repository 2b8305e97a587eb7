//! The seeds of the fuzz targets, replayed: whatever arrives, an end answers or closes, and never panics.

use agentvm_wire::{
    connection::Connection,
    golden,
    id::VmId,
    message::{Envelope, Response, decode},
    session::Limits,
    stdio::Header,
};

use crate::files;

/// A client and a sidecar in mid-session, with a stream each way.
fn ends() -> [Connection; 3] {
    let mut client = Connection::client(Limits::default());
    let mut sidecar = Connection::server(Limits::default());
    sidecar.receive_text(&golden::client()[0].text()).unwrap();
    let Envelope::Response { id, response: Some(welcome), .. } = golden::sidecar().remove(0).envelope else {
        panic!("the first example of a sidecar is its welcome");
    };
    sidecar.respond(id, &welcome);
    let stdin = client.next_stream();
    let stdout = client.next_stream();
    client.open_send(stdin, VmId::random(), None);
    client.open_receive(stdout, None);
    sidecar.open_stream(stdin).unwrap();
    sidecar.open_stream(stdout).unwrap();
    sidecar.open_receive(stdin, None);
    sidecar.open_send(stdout, VmId::random(), None);
    [client, sidecar, Connection::server(Limits::default())]
}

/// Whatever an end says in return can be read.
fn hear(end: &mut Connection) {
    while let Some(text) = end.next_control() {
        let said = decode(&text).unwrap();
        if let Envelope::Response { response: Some(Response::Rejected(rejection)), .. } = said {
            assert!(!rejection.code.as_str().is_empty());
        }
    }
}

#[test]
fn text_seeds_make_no_end_panic() {
    let seeds = files("fuzz-seeds/text");
    assert!(!seeds.is_empty());
    for seed in seeds.values() {
        let text = String::from_utf8_lossy(seed);
        let _ = decode(&text);
        for mut end in ends() {
            let _ = end.receive_text(&text);
            hear(&mut end);
        }
    }
}

#[test]
fn binary_seeds_make_no_end_panic() {
    let seeds = files("fuzz-seeds/binary");
    assert!(!seeds.is_empty());
    for seed in seeds.values() {
        let _ = Header::decode(seed);
        for mut end in ends() {
            let _ = end.receive_binary(seed.clone().into());
            hear(&mut end);
        }
    }
}
