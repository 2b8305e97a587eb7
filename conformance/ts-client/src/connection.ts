// One session: requests and their answers, streams by their ids, events by their VMs, and one end for all of them.

import type { WebSocket } from "ws";
import {
  ANSWERS,
  CANCELLED,
  type Code,
  DEFAULT_LIMITS,
  FIN,
  FRAME_VERSION,
  type Frame,
  type Incoming,
  type Outgoing,
  type Requests,
  type Scope,
  decodeFrame,
  encodeFrame,
  greeting,
} from "./protocol.ts";
import { type Listener, open } from "./socket.ts";
import { type Consumer, Receiver, Sender } from "./stream.ts";

/** The sidecar's answer to a request that it did not carry out. */
export class Rejected extends Error {
  code: Code;
  details: Record<string, unknown>;

  constructor({ code, message, details = {} }: { code: Code; message: string; details?: Record<string, unknown> }) {
    super(message);
    this.code = code;
    this.details = details;
  }
}

/** Who hears of a VM's events. */
export interface VmListener {
  event(type: string, body: unknown): void;
  lost(error: Error): void;
}

type Answer<R extends keyof Requests> = Requests[R][1];

/** What becomes of a request. Called while its answer is being read, before anything that came behind it. */
interface Waiting {
  type: keyof Requests;
  answered(body: never): void;
  failed(error: Error): void;
}

export class Connection {
  limits = DEFAULT_LIMITS;
  #socket!: WebSocket;
  #lost: Error | undefined;
  #lastId = 0;
  #lastSeq = 0;
  #lastStream = 0;
  #waiting = new Map<number, Waiting>();
  #senders = new Map<number, Sender>();
  #receivers = new Map<number, Receiver>();
  #vms = new Map<string, VmListener>();

  /** Connects and opens the session. */
  static async open({ path, token }: Listener): Promise<Connection> {
    const connection = new Connection();
    connection.#socket = await open(path, {
      text: (text) => connection.#obey(() => connection.#read(JSON.parse(text))),
      binary: (bytes) => connection.#obey(() => connection.#frame(decodeFrame(bytes))),
      closed: (code, reason) => connection.#end(new Error(`the sidecar closed the connection: ${code} ${reason}`)),
    });
    const welcome = await connection.request("hello", greeting(token));
    connection.limits = { ...DEFAULT_LIMITS, ...welcome.limits };
    return connection;
  }

  /** Sends a request; `answered` and `failed` are called before anything that the sidecar said later is read. */
  send<R extends keyof Requests>(
    type: R,
    body: Requests[R][0],
    scope: Scope,
    answered: (body: Answer<R>) => void,
    failed: (error: Error) => void,
  ): void {
    if (this.#lost) return failed(this.#lost);
    const id = ++this.#lastId;
    this.#waiting.set(id, { type, answered, failed });
    this.#say({ kind: "request", id, scope, type, body });
  }

  request<R extends keyof Requests>(type: R, body: Requests[R][0], scope: Scope = {}): Promise<Answer<R>> {
    return new Promise((resolve, reject) => this.send(type, body, scope, resolve, reject));
  }

  /** Events of a VM go to `listener` from now on. */
  follow(vm: string, listener: VmListener): void {
    this.#vms.set(vm, listener);
  }

  /** The window for the streams of the next request: the least, once all windows together would be too much. */
  window(streams: number): number {
    const { window_bytes, min_window_bytes, max_in_flight_bytes } = this.limits;
    const open = [...this.#senders.values(), ...this.#receivers.values()].filter(({ isOpen }) => isOpen);
    const inFlight = open.reduce((sum, { window }) => sum + window, streams * window_bytes);
    return inFlight <= max_in_flight_bytes ? window_bytes : min_window_bytes;
  }

  /** A stream to the sidecar, for the next request. */
  sender(window: number): [id: number, Sender] {
    const id = ++this.#lastStream;
    const sender = new Sender(id, this.limits, window, (frame) => this.#socket.send(encodeFrame(frame)));
    this.#senders.set(id, sender);
    return [id, sender];
  }

  /** A stream from the sidecar, for the next request. */
  receiver(window: number, consume: Consumer, changed: () => void): [id: number, Receiver] {
    const id = ++this.#lastStream;
    const grant = (received: number, limit: number) => this.#say({ kind: "credit", stream: id, received, limit });
    const receiver = new Receiver(window, consume, grant, changed);
    this.#receivers.set(id, receiver);
    return [id, receiver];
  }

  /** Forgets streams; `stop` tells the sidecar that it need send no more on those it still sends on. */
  closeStreams(ids: number[], stop: boolean): void {
    for (const id of ids) {
      this.#senders.get(id)?.close();
      const receiver = this.#receivers.get(id);
      if (stop && receiver?.isOpen) this.#say({ kind: "stop", stream: id, code: CANCELLED });
      receiver?.close();
      this.#senders.delete(id);
      this.#receivers.delete(id);
    }
  }

  /** Ends the session, and with it all its VMs. */
  close(): void {
    this.#socket.close(1000);
  }

  #say(message: Outgoing): void {
    if (!this.#lost) this.#socket.send(JSON.stringify(message));
  }

  /** Whatever breaks the protocol's rules ends the connection, and says why. */
  #obey(read: () => void): void {
    try {
      if (!this.#lost) read();
    } catch (error) {
      const reason = (error as Error).message;
      this.#socket.close(1002, reason.slice(0, 100));
      this.#end(new Error(`the sidecar broke the protocol: ${reason}`));
    }
  }

  #read(message: Incoming): void {
    switch (message.kind) {
      case "response":
        this.#count(message.seq);
        return this.#response(message.id, message.type, message.body ?? {});
      case "event":
        this.#count(message.seq);
        // An event about nothing of ours is none of our business.
        return this.#vms.get(message.scope?.vm ?? "")?.event(message.type, message.body ?? {});
      case "credit":
        return this.#senders.get(message.stream)?.credit(message.limit);
      case "stop":
        return this.#senders.get(message.stream)?.close();
      case "reset":
        this.#senders.get(message.stream)?.close();
        return this.#receivers.get(message.stream)?.close();
      default:
        throw new Error(`a message of kind ${(message as { kind: unknown }).kind}`);
    }
  }

  #count(seq: number): void {
    if (!(seq > this.#lastSeq)) throw new Error(`seq ${seq} does not rise above ${this.#lastSeq}`);
    this.#lastSeq = seq;
  }

  #response(id: number, type: string, body: object): void {
    const waiting = this.#waiting.get(id);
    if (!waiting) throw new Error(`an answer to ${id}, which does not wait`);
    this.#waiting.delete(id);
    if (type === ANSWERS[waiting.type]) waiting.answered(body as never);
    else if (type === "rejected") waiting.failed(new Rejected(body as ConstructorParameters<typeof Rejected>[0]));
    else waiting.failed(new Error(`${waiting.type} is answered by ${type}`));
  }

  #frame(frame: Frame): void {
    if (frame.version !== FRAME_VERSION || (frame.flags & ~FIN) !== 0 || frame.reserved !== 0) {
      throw new Error(`a frame of version ${frame.version}, flags ${frame.flags}, reserved ${frame.reserved}`);
    }
    if (frame.stream === 0 || frame.stream > this.#lastStream) throw new Error(`stream ${frame.stream} was never opened`);
    this.#receivers.get(frame.stream)?.frame(frame);
  }

  #end(error: Error): void {
    if (this.#lost) return;
    this.#lost = error;
    for (const { failed } of this.#waiting.values()) failed(error);
    this.closeStreams([...this.#senders.keys(), ...this.#receivers.keys()], false);
    for (const vm of this.#vms.values()) vm.lost(error);
  }
}
