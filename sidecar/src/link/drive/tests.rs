use agentvm_wire::{
    message::{Response, encode_request},
    session::{Hello, Limits, PROTOCOL, Peer, Welcome},
    vm::{ListVms, Vms},
};
use tokio::io::AsyncReadExt as _;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::*;

/// Answers at once.
struct Answers<'a>(&'a Link);

impl Handler for Answers<'_> {
    async fn prepare(&mut self, _: &Request) {}

    fn request(&mut self, id: RequestId, _: Scope, request: Request) -> Result<(), Violation> {
        let answer = match request {
            Request::Hello(_) => Response::Welcome(Welcome {
                protocol: PROTOCOL,
                sidecar: peer(),
                os: String::new(),
                arch: String::new(),
                session: String::new(),
                grace_ms: 0,
                limits: Limits::default(),
                features: Vec::new(),
            }),
            _ => Response::Vms(Vms { vms: Vec::new() }),
        };
        self.0.respond(id, &answer);
        Ok(())
    }

    fn cancel(&mut self, _: RequestId) {}
}

fn peer() -> Peer {
    Peer { name: "test".to_owned(), version: "0".to_owned(), build: None }
}

#[tokio::test]
async fn a_client_that_reads_no_answers_and_is_gone_ends_the_connection() {
    let (client, server) = tokio::io::duplex(4096);
    let server = WebSocketStream::from_raw_socket(server, Role::Server, None).await;
    let mut client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
    let link = Link::new(Limits::default());
    let mut handler = Answers(&link);
    let asks = async {
        let hello = Hello { protocol_min: PROTOCOL, protocol_max: PROTOCOL, client: peer(), token: None };
        let mut request = Request::Hello(hello);
        for id in 1.. {
            let text = encode_request(RequestId(id), Scope::SESSION, &request);
            client.send(Message::text(text)).await.unwrap();
            if link.lock().connection.control_backlog() > MAX_BACKLOG {
                break;
            }
            request = Request::ListVms(ListVms {});
        }
        drop(client);
    };
    let leave = CancellationToken::new();
    let both = async { tokio::join!(drive(&link, server, &mut handler, &leave), asks) };
    let (ended, ()) = timeout(Duration::from_secs(20), both).await.expect("it ends with its client");
    assert!(matches!(ended, Ended::Closed), "{ended:?}");
}

#[tokio::test]
async fn the_farewell_reaches_a_client_that_is_still_writing() {
    let (mut client, server) = tokio::net::UnixStream::pair().unwrap();
    let config = WebSocketConfig::default().max_frame_size(Some(1024)).max_message_size(Some(1024));
    let server = WebSocketStream::from_raw_socket(server, Role::Server, Some(config)).await;
    let link = Link::new(Limits::default());
    let mut handler = Answers(&link);
    let says = async move {
        // A masked binary frame of 1 MiB, all zeros: more than the sockets hold.
        client.write_all(&[0x82, 0xff, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0]).await.unwrap();
        client.write_all(&vec![0; 1 << 20]).await.expect("the sidecar still reads");
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).await.map(|_| heard)
    };
    let leave = CancellationToken::new();
    let both = async { tokio::join!(drive(&link, server, &mut handler, &leave), says) };
    let (ended, heard) = timeout(Duration::from_secs(20), both).await.expect("both hang up");
    assert!(matches!(ended, Ended::Violation(_)), "{ended:?}");
    let heard = heard.expect("the close frame is not lost");
    assert_eq!((heard[0], &heard[2..4]), (0x88, 1009_u16.to_be_bytes().as_slice()));
}
