// One direction of bytes each: what this client sends, held to the credit it has, and what it receives.

import { FIN, FRAME_VERSION, type Frame, HEADER_BYTES, type Limits } from "./protocol.ts";

/** Sent in one piece; what is larger delays everything behind it. */
const PIECE_BYTES = 65_536;

/** Bytes to the sidecar: kept here until there is credit. */
export class Sender {
  readonly window: number;
  #id: number;
  #send: (frame: Frame) => void;
  #piece: number;
  #limit: number;
  #offset = 0;
  #waiting: Buffer[] = [];
  #state: "open" | "ending" | "closed" = "open";

  constructor(id: number, limits: Limits, window: number, send: (frame: Frame) => void) {
    this.#id = id;
    this.#send = send;
    this.#piece = Math.min(PIECE_BYTES, limits.max_binary_bytes - HEADER_BYTES);
    this.window = this.#limit = window;
  }

  /** Whether more may go out. */
  get isOpen(): boolean {
    return this.#state !== "closed";
  }

  write(bytes: Buffer): void {
    if (this.#state !== "open") throw new Error("stdin is closed");
    this.#waiting.push(bytes);
    this.#pump();
  }

  /** The end follows what was written; twice is harmless. */
  end(): void {
    if (this.#state !== "open") return;
    this.#state = "ending";
    this.#pump();
  }

  credit(limit: number): void {
    this.#limit = Math.max(this.#limit, limit);
    this.#pump();
  }

  /** Nothing more is sent, neither bytes nor an end. */
  close(): void {
    this.#state = "closed";
    this.#waiting = [];
  }

  #pump(): void {
    while (this.#waiting.length > 0 && this.#offset < this.#limit) {
      const bytes = this.#waiting.shift()!;
      const piece = bytes.subarray(0, Math.min(this.#piece, this.#limit - this.#offset));
      if (piece.length < bytes.length) this.#waiting.unshift(bytes.subarray(piece.length));
      this.#frame(piece, 0);
    }
    if (this.#state === "ending" && this.#waiting.length === 0) {
      this.#frame(Buffer.alloc(0), FIN);
      this.close();
    }
  }

  #frame(data: Buffer, flags: number): void {
    this.#send({ version: FRAME_VERSION, flags, reserved: 0, stream: this.#id, offset: this.#offset, data });
    this.#offset += data.length;
  }
}

/** Who takes the bytes of a stream, at once. */
export type Consumer = (bytes: Buffer) => void;

/** Bytes from the sidecar. */
export class Receiver {
  /** Everything before this has come. */
  received = 0;
  /** Whether more may come. */
  isOpen = true;
  readonly window: number;
  #limit: number;
  #consume: Consumer;
  #grant: (received: number, limit: number) => void;
  #changed: () => void;

  /** `grant` sends credit; `changed` is called whenever more has come, or the end. */
  constructor(window: number, consume: Consumer, grant: (received: number, limit: number) => void, changed: () => void) {
    this.window = this.#limit = window;
    this.#consume = consume;
    this.#grant = grant;
    this.#changed = changed;
  }

  /** Whether everything up to an offset has come, or never will. */
  reaches(end: number | undefined): boolean {
    return end === undefined || !this.isOpen || this.received >= end;
  }

  frame({ flags, offset, data }: Frame): void {
    if (!this.isOpen) return;
    if (offset > this.received) throw new Error(`offset ${offset} leaves a hole after ${this.received}`);
    if (offset + data.length > this.#limit) throw new Error(`offset ${offset} and ${data.length} bytes are beyond ${this.#limit}`);
    const fresh = data.subarray(this.received - offset);
    this.received += fresh.length;
    if (fresh.length > 0) this.#consume(fresh);
    if (flags & FIN) return this.close();
    // All that came is consumed: a quarter of the window at a time is granted anew.
    const limit = this.received + this.window;
    if (limit - this.#limit >= this.window / 4) {
      this.#limit = limit;
      this.#grant(this.received, limit);
    }
    this.#changed();
  }

  close(): void {
    this.isOpen = false;
    this.#changed();
  }
}
