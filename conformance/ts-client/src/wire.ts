// Connections that a scenario writes to and reads from message by message, right or wrong.

import type { WebSocket } from "ws";
import { FIN, FRAME_VERSION, type Frame, decodeFrame, encodeFrame, greeting } from "./protocol.ts";
import { type Handshake, type Listener, open } from "./socket.ts";

type Json = { [field: string]: unknown };

/** What the sidecar said: a text message, or a `frame`, or the `close`, each with its kind. */
type Said = Json & { kind?: unknown };

/** What a message to wait for is known by. */
type Which = { kind?: string; id?: number; type?: string; stream?: number };

export class Wire {
  #listener: Listener;
  #socket!: WebSocket;
  #said: Said[] = [];
  #closed: Said | undefined;
  #wake: () => void = () => {};
  /** The last VM that was created here. */
  #vm: string | undefined;

  private constructor(listener: Listener) {
    this.#listener = listener;
  }

  /** Connects, and opens a session unless told not to. */
  static async connect(listener: Listener, { hello = true, ...handshake }: Handshake & { hello?: boolean }): Promise<Wire> {
    const wire = new Wire(listener);
    wire.#socket = await open(
      listener.path,
      {
        text: (text) => wire.#hear(JSON.parse(text)),
        binary: (bytes) => wire.#hear(shown(decodeFrame(bytes))),
        closed: (code, reason) => {
          wire.#closed = { kind: "close", code, reason };
          wire.#wake();
        },
      },
      handshake,
    );
    if (hello) {
      wire.message({ kind: "request", id: 1, type: "hello", body: greeting(listener.token) });
      await wire.receive({ id: 1 });
    }
    return wire;
  }

  /** Sends JSON; the strings that are names of `values`, `$token` and `$vm` stand for those, the last VM created here. */
  message(message: Json, values: Record<string, string | undefined> = {}): void {
    const all = new Map(Object.entries({ ...values, $token: this.#listener.token, $vm: this.#vm }));
    this.#socket.send(JSON.stringify(message, (_, value) => all.get(value) ?? value));
  }

  /** Sends text as it stands; bytes need not be UTF-8. */
  text(bytes: Buffer): void {
    this.#socket.send(bytes, { binary: false });
  }

  binary(bytes: Buffer): void {
    this.#socket.send(bytes, { binary: true });
  }

  frame(frame: Partial<Frame> & Pick<Frame, "stream">): void {
    this.binary(encodeFrame({ version: FRAME_VERSION, flags: 0, reserved: 0, offset: 0, data: Buffer.alloc(0), ...frame }));
  }

  /** The first message, of those not taken yet, that is known by all of this; the close once none can come. */
  async receive(which: Which): Promise<Said> {
    const fits = (said: Said) => Object.entries(which).every(([field, value]) => said[field] === value);
    for (;;) {
      const at = this.#said.findIndex(fits);
      if (at >= 0) return this.#said.splice(at, 1)[0]!;
      if (this.#closed) return this.#closed;
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }

  /** The bytes of a stream, so many of them or all up to its end. */
  async collect(stream: number, length = Infinity): Promise<Buffer> {
    const pieces: Buffer[] = [];
    let collected = 0;
    while (collected < length) {
      const said = await this.receive({ kind: "frame", stream });
      if (said.kind === "close") throw new Error(`closed after ${collected} bytes: ${said.code} ${said.reason}`);
      const data = Buffer.from(said.data as string, "base64");
      pieces.push(data);
      collected += data.length;
      if ((said.flags as number) & FIN) break;
    }
    return Buffer.concat(pieces);
  }

  close(): void {
    this.#socket.close(1000);
  }

  #hear(said: Said): void {
    if (said.type === "vm_created") this.#vm = (said.body as { vm: string }).vm;
    this.#said.push(JSON.parse(JSON.stringify(said, (_, value) => (value === this.#vm ? "$vm" : value))));
    this.#wake();
  }
}

function shown({ data, ...frame }: Frame): Said {
  return { kind: "frame", ...frame, length: data.length, data: data.toString("base64") };
}
