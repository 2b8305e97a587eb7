//! What holds whatever happens in whatever order, and whatever a peer sends.

use bytes::Bytes;
use proptest::{collection::vec, prelude::*, sample::Index};

use super::{End, Message, Pair, pair::frame};
use crate::{
    connection::{Connection, Received},
    error::Code,
    golden::{self, Sample},
    id::StreamId,
    message,
    session::Limits,
};

const WINDOW: u64 = 64;

/// One thing that a program, a driver or the network does next.
#[derive(Debug, Clone)]
enum Step {
    Write { stream: Index, len: u64 },
    Finish { stream: Index },
    Turn { end: End },
    Control { end: End },
    Deliver { end: End },
    Consume { stream: Index, part: u64 },
    Reset { stream: Index },
    Stop { stream: Index },
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![Just(End::Client), Just(End::Server)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (any::<Index>(), 0..200_u64).prop_map(|(stream, len)| Step::Write { stream, len }),
        1 => any::<Index>().prop_map(|stream| Step::Finish { stream }),
        8 => end().prop_map(|end| Step::Turn { end }),
        6 => end().prop_map(|end| Step::Control { end }),
        10 => end().prop_map(|end| Step::Deliver { end }),
        6 => (any::<Index>(), 0..100_u64).prop_map(|(stream, part)| Step::Consume { stream, part }),
        1 => any::<Index>().prop_map(|stream| Step::Reset { stream }),
        1 => any::<Index>().prop_map(|stream| Step::Stop { stream }),
    ]
}

/// What a stream's two users know of it.
#[derive(Debug)]
struct Flow {
    id: StreamId,
    sender: End,
    written: u64,
    finished: bool,
    received: u64,
    consumed: u64,
    fin: bool,
    /// Reset or stopped: what arrived is only a beginning.
    cut: bool,
}

/// The byte a stream carries at an offset: a wrong stream or place shows.
fn byte(stream: StreamId, offset: u64) -> u8 {
    offset.wrapping_mul(7).wrapping_add(u64::from(stream.0).wrapping_mul(101)).to_le_bytes()[0]
}

struct World {
    pair: Pair,
    flows: Vec<Flow>,
}

impl World {
    fn new(senders: &[End]) -> Self {
        let mut pair = Pair::with_window(WINDOW);
        let flows = senders
            .iter()
            .enumerate()
            .map(|(n, &sender)| Flow {
                id: pair.open_in(sender, super::pair::lane(n as u128 % 2)),
                sender,
                written: 0,
                finished: false,
                received: 0,
                consumed: 0,
                fin: false,
                cut: false,
            })
            .collect();
        Self { pair, flows }
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Write { stream, len } => {
                let flow = stream.get_mut(&mut self.flows);
                flow.written += if flow.finished { 0 } else { *len };
                self.pair.end(flow.sender).ready(flow.id);
            }
            Step::Finish { stream } => {
                let flow = stream.get_mut(&mut self.flows);
                flow.finished = true;
                self.pair.end(flow.sender).ready(flow.id);
            }
            Step::Turn { end } => {
                self.turn(*end);
            }
            Step::Control { end } => self.pair.send_control(*end),
            Step::Deliver { end } => {
                self.deliver(*end);
            }
            Step::Consume { stream, part } => {
                let index = stream.index(self.flows.len());
                self.consume(index, *part);
            }
            Step::Reset { stream } => {
                let flow = stream.get_mut(&mut self.flows);
                flow.cut |= self.pair.end(flow.sender).is_sending(flow.id);
                self.pair.end(flow.sender).reset(flow.id, &Code::EIO, "");
            }
            Step::Stop { stream } => {
                let flow = stream.get_mut(&mut self.flows);
                flow.cut |= !flow.fin;
                self.pair.end(flow.sender.peer()).stop(flow.id, &Code::CANCELLED);
            }
        }
    }

    /// A driver sends one message, as drivers do.
    fn turn(&mut self, end: End) -> bool {
        let Some(turn) = self.pair.end(end).next_turn() else { return false };
        let flow = self.flows.iter().find(|flow| flow.id == turn.stream).unwrap();
        let offset = self.pair.end(end).sent(flow.id).unwrap();
        let waiting = flow.written - offset;
        let len = waiting.min(turn.max_bytes as u64);
        let fin = flow.finished && len == waiting;
        if len == 0 && !fin {
            self.pair.end(end).idle(flow.id);
            return true;
        }
        assert!(offset + len <= flow.consumed + WINDOW, "the sender is further ahead than the window");
        let header =
            self.pair.end(end).frame(flow.id, usize::try_from(len).unwrap(), fin, len < waiting).unwrap();
        let payload: Vec<u8> = (offset..offset + len).map(|at| byte(flow.id, at)).collect();
        self.pair.wire_to(end.peer()).push_back(frame(header, &payload));
        true
    }

    fn deliver(&mut self, end: End) -> bool {
        let Some(received) = self.pair.deliver(end) else { return false };
        match received.expect("two ends that keep the rules never see them broken") {
            Received::Data { stream, offset, payload, fin } => {
                let flow = self.flows.iter_mut().find(|flow| flow.id == stream).unwrap();
                assert!(!flow.fin, "nothing follows the end");
                assert_eq!(offset, flow.received, "in order, without hole or repetition");
                for (at, &got) in (offset..).zip(&payload) {
                    assert_eq!(got, byte(stream, at));
                }
                flow.received += payload.len() as u64;
                flow.fin = fin;
            }
            Received::Reset { stream, .. } | Received::Stopped { stream, .. } => {
                assert!(self.flows.iter().any(|flow| flow.id == stream && flow.cut));
            }
            Received::Nothing => {}
            other => panic!("nobody sent {other:?}"),
        }
        true
    }

    fn consume(&mut self, index: usize, part: u64) {
        let flow = &mut self.flows[index];
        flow.consumed = flow.received.min(flow.consumed + part);
        self.pair.end(flow.sender.peer()).consumed(flow.id, flow.consumed);
    }

    /// Everybody goes on with what they have to do until nothing moves any more.
    fn settle(&mut self) {
        loop {
            let mut moved = false;
            for end in [End::Client, End::Server] {
                for index in 0..self.flows.len() {
                    self.consume(index, u64::MAX / 2);
                }
                self.pair.send_control(end);
                moved |= self.turn(end);
                moved |= self.deliver(end.peer());
            }
            if !moved {
                return;
            }
        }
    }
}

/// A text of the peer's, hurt in one place.
fn hurt(samples: &[Sample]) -> impl Strategy<Value = String> + use<> {
    let texts: Vec<String> = samples.iter().map(Sample::text).collect();
    let piece = prop_oneof![
        Just(String::new()),
        Just("\"".into()),
        Just("null".into()),
        Just("{}".into()),
        Just("-1".into()),
        Just("9007199254740993".into()),
        Just("1e99".into()),
        any::<String>(),
    ];
    (any::<Index>(), any::<Index>(), 0..20_usize, piece).prop_map(move |(text, at, cut, piece)| {
        let text: Vec<char> = text.get(&texts).chars().collect();
        let from = at.index(text.len());
        let to = text.len().min(from + cut);
        text[..from].iter().copied().chain(piece.chars()).chain(text[to..].iter().copied()).collect()
    })
}

/// Binary messages with a header that is nearly right, and any at all.
fn binary() -> impl Strategy<Value = Vec<u8>> {
    let near = (0..3_u8, 0..3_u8, 0..2_u8, 0..6_u8, 0..300_u16, vec(any::<u8>(), 0..100)).prop_map(
        |(version, flags, reserved, stream, offset, payload)| {
            let [low, high] = offset.to_le_bytes();
            let header = [version, flags, reserved, 0, stream, 0, 0, 0, low, high, 0, 0, 0, 0, 0, 0];
            [&header[..], &payload].concat()
        },
    );
    prop_oneof![near, vec(any::<u8>(), 0..64)]
}

fn input() -> impl Strategy<Value = Message> {
    prop_oneof![
        hurt(&golden::client()).prop_map(Message::Text),
        hurt(&golden::sidecar()).prop_map(Message::Text),
        any::<String>().prop_map(Message::Text),
        binary().prop_map(|bytes| Message::Binary(bytes.into())),
    ]
}

fn feed(end: &mut Connection, input: &Message) {
    let _ = match input {
        Message::Text(text) => end.receive_text(text),
        Message::Binary(bytes) => end.receive_binary(Bytes::clone(bytes)),
    };
    while let Some(text) = end.next_control() {
        assert!(message::decode(&text).is_ok(), "{text}");
    }
    if let Some(turn) = end.next_turn() {
        end.frame(turn.stream, turn.max_bytes, false, true);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_arrives_once_in_order_and_no_sender_exceeds_its_credit(
        senders in vec(end(), 1..5),
        steps in vec(step(), 0..400),
    ) {
        let mut world = World::new(&senders);
        for step in &steps {
            world.apply(step);
        }
        world.settle();
        for flow in &world.flows {
            prop_assert!(flow.received <= flow.written);
            if !flow.cut {
                prop_assert_eq!((flow.received, flow.fin), (flow.written, flow.finished));
            }
        }
    }

    #[test]
    fn no_input_makes_an_end_panic_or_answer_what_cannot_be_read(inputs in vec(input(), 1..20)) {
        let mut pair = Pair::with(Limits { max_text_bytes: 2000, max_binary_bytes: 50, ..Limits::default() });
        pair.open(End::Client);
        pair.open(End::Server);
        let mut silent = Connection::server(Limits::default());
        for input in &inputs {
            feed(&mut pair.client, input);
            feed(&mut pair.server, input);
            feed(&mut silent, input);
        }
    }
}
