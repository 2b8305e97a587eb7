// The messages of wire/PROTOCOL.md that this client sends and reads, and its binary header.

/** Every request: the body it is sent with and the body of its answer. */
export interface Requests {
  hello: [Hello, Welcome];
  create_vm: [VmConfig, VmCreated];
  list_vms: [Nothing, { vms: string[] }];
  dispose_vm: [Nothing, Nothing];
  execute: [Execute, { pid: number; started_at_ms: number }];
  signal_process: [{ process: number; signal: string; target: SignalTarget }, { delivered: number }];
  process_snapshot: [{ after?: number; max_bytes?: number }, ProcessTable];
}

/** The type of each request's answer, if it is not rejected. */
export const ANSWERS: Record<keyof Requests, string> = {
  hello: "welcome",
  create_vm: "vm_created",
  list_vms: "vms",
  dispose_vm: "vm_disposed",
  execute: "process_started",
  signal_process: "process_signaled",
  process_snapshot: "process_table",
};

export type Nothing = Record<string, never>;
export type Scope = { vm?: string };
export type Code = string;

/** Why a stream is stopped that nobody wants any more. */
export const CANCELLED: Code = "cancelled";

export interface Hello {
  protocol_min: number;
  protocol_max: number;
  client: { name: string; version: string };
  token?: string;
}

/** The greeting of a client that speaks this version alone. */
export function greeting(token: string): Hello {
  return { protocol_min: 1, protocol_max: 1, client: { name: "agentvm-ts-client", version: "0.1.0" }, token };
}

export interface Welcome {
  protocol: number;
  session: string;
  limits: Partial<Limits>;
}

export interface Limits {
  max_text_bytes: number;
  max_binary_bytes: number;
  window_bytes: number;
  min_window_bytes: number;
  max_in_flight_bytes: number;
  max_requests: number;
  max_vms: number;
  max_processes: number;
}

export const DEFAULT_LIMITS: Limits = {
  max_text_bytes: 16_777_216,
  max_binary_bytes: 262_144,
  window_bytes: 262_144,
  min_window_bytes: 16_384,
  max_in_flight_bytes: 67_108_864,
  max_requests: 4096,
  max_vms: 4096,
  max_processes: 4096,
};

export interface VmConfig {
  env?: Record<string, string>;
}

export interface VmCreated {
  vm: string;
  boot_us: number;
}

export interface Execute {
  process: number;
  command: string;
  args?: string[];
  env?: Record<string, string>;
  cwd?: string;
  stdin?: "null" | "pipe";
  stdout?: "null" | "pipe";
  stderr?: "null" | "pipe" | "to_stdout";
  streams?: { stdin?: number; stdout?: number; stderr?: number };
  window_bytes?: number;
  drain?: { quiet_ms: number; max_ms: number };
  timeout_ms?: number;
}

export type SignalTarget = "process" | "group" | "tree";

export interface ProcessTable {
  rows?: Row[];
  next?: number;
}

/** A row of the table; the bytes behind names that are no text (`args_b64`) are nothing this client shows. */
export interface Row {
  process?: number;
  pid: number;
  ppid: number;
  pgid: number;
  sid: number;
  driver: string;
  command: string;
  args: string[];
  cwd?: string;
  status: "running" | "stopped" | "zombie" | "exited";
  exit_code?: number;
  started_at_ms: number;
  exited_at_ms?: number;
}

/** How far the outputs of a process reach; one that is absent is not waited for. */
export type Ends = { stdout?: number; stderr?: number };

export interface ProcessExited {
  process: number;
  exit_code: number;
  signal?: string;
  cause: string;
  end?: Ends;
  output_open?: boolean;
}

/** What a sidecar says as text. */
export type Incoming =
  | { kind: "response"; seq: number; id: number; type: string; body?: unknown }
  | { kind: "event"; seq: number; scope?: Scope; type: string; body?: unknown }
  | { kind: "credit"; stream: number; received: number; limit: number }
  | { kind: "reset"; stream: number; code: Code; message?: string }
  | { kind: "stop"; stream: number; code: Code };

/** What a client says as text. */
export type Outgoing =
  | { kind: "request"; id: number; scope: Scope; type: string; body: unknown }
  | { kind: "credit"; stream: number; received: number; limit: number }
  | { kind: "stop"; stream: number; code: Code };

/** A binary message: a piece of a stream. */
export interface Frame {
  version: number;
  flags: number;
  reserved: number;
  stream: number;
  offset: number;
  data: Buffer;
}

export const FRAME_VERSION = 1;
export const FIN = 1;
export const HEADER_BYTES = 16;

export function encodeFrame({ version, flags, reserved, stream, offset, data }: Frame): Buffer {
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt8(version, 0);
  header.writeUInt8(flags, 1);
  header.writeUInt16LE(reserved, 2);
  header.writeUInt32LE(stream, 4);
  header.writeBigUInt64LE(BigInt(offset), 8);
  return Buffer.concat([header, data]);
}

export function decodeFrame(bytes: Buffer): Frame {
  if (bytes.length < HEADER_BYTES) throw new Error(`a frame of ${bytes.length} bytes has no header`);
  return {
    version: bytes.readUInt8(0),
    flags: bytes.readUInt8(1),
    reserved: bytes.readUInt16LE(2),
    stream: bytes.readUInt32LE(4),
    offset: Number(bytes.readBigUInt64LE(8)),
    data: bytes.subarray(HEADER_BYTES),
  };
}
