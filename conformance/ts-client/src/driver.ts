// The driver over this client: the actions of every SDK, and those of the protocol alone.

import { data, drive } from "../../driver-ts/driver.mjs";
import { Connection } from "./connection.ts";
import type { Exit } from "./process.ts";
import { type Handshake, listenerOfTheRunner } from "./socket.ts";
import { shown, tree } from "./table.ts";
import { type Options, Vm } from "./vm.ts";
import { Wire } from "./wire.ts";

type Data = Parameters<typeof data>[0];
type On = { on: string };
type Timeout = { timeout?: number };
type ExecOptions = Options & Timeout & { stdin?: string | Uint8Array; captureStdio?: boolean };
type Outputs = { onStdout(bytes: Buffer): void; onStderr(bytes: Buffer): void };

const listener = listenerOfTheRunner();
const wires = new Map<string, Wire>();
let connection: Connection | undefined;
let vm: Vm;

const bytes = (given: Data) => Buffer.from(data(given) as string);
const input = (stdin: string | Uint8Array | undefined) => (stdin === undefined ? undefined : Buffer.from(stdin as string));
const exit = ({ exitCode, signal }: Exit) => ({ exit_code: exitCode, signal });

const within = (timeout: number | undefined) => (timeout === undefined ? {} : { timeout_ms: timeout });

async function execute(program: { command: string; args: string[] }, { stdin, timeout, captureStdio, ...options }: ExecOptions) {
  const result = await vm.execute({ ...program, ...within(timeout), ...options }, input(stdin));
  const nothing = Buffer.alloc(0);
  return captureStdio === false ? { ...result, stdout: nothing, stderr: nothing } : result;
}

function wire({ on }: On): Wire {
  const wire = wires.get(on);
  if (!wire) throw new Error(`no connection is named ${on}`);
  return wire;
}

drive({
  async create({ env }: { env?: Record<string, string> }) {
    // Whatever the scenario before has left ends with its sessions.
    connection?.close();
    for (const wire of wires.values()) wire.close();
    wires.clear();
    connection = await Connection.open(listener);
    vm = await Vm.create(connection, env ? { env } : {});
  },
  exec: (command: string, given: ExecOptions) => execute({ command: "sh", args: ["-c", command] }, given),
  execArgv: (command: string, args: string[], given: ExecOptions) => execute({ command, args }, given),
  spawn: async (command: string, args: string[], { onStdout, onStderr, timeout, ...options }: Timeout & Options & Outputs) =>
    vm.spawn({ command, args, ...within(timeout), ...options }, onStdout, onStderr),
  writeStdin: async (pid: number, given: string | Uint8Array) => vm.process(pid).stdin.write(input(given)!),
  closeStdin: async (pid: number) => vm.process(pid).stdin.end(),
  wait: async (pid: number) => exit(await vm.process(pid).exit),
  async onExit(pid: number, handler: (exit: object) => void) {
    handler(exit(await vm.process(pid).exit));
  },
  onOutputsEnd: (pid: number, handler: () => void) => vm.process(pid).outputsEnded.then(handler),
  stop: (pid: number) => vm.signal(pid, "SIGTERM", "group"),
  kill: (pid: number) => vm.signal(pid, "SIGKILL", "tree"),
  signal: (pid: number, signal: string) => vm.signal(pid, signal, "process"),
  allProcesses: async () => shown(await vm.table()),
  tree: async () => tree(await vm.table()),
  dispose: () => vm.dispose(),

  async connect({ as, ...handshake }: { as: string; hello?: boolean } & Handshake) {
    wires.set(as, await Wire.connect(listener, handshake));
    return {};
  },
  async send_message({ message, times, ...order }: On & { message: { id?: number }; times: number }) {
    for (let more = 0; more < times; more++) {
      const id = message.id === undefined ? {} : { id: message.id + more };
      wire(order).message({ ...message, ...id }, { $other_vm: vm.id });
    }
    return {};
  },
  async send_text({ text, ...order }: On & { text: Data }) {
    wire(order).text(bytes(text));
    return {};
  },
  async send_bytes({ bytes: given, ...order }: On & { bytes: Data }) {
    wire(order).binary(bytes(given));
    return {};
  },
  async send_frame({ on, data: given = "", ...header }: On & { stream: number; data?: Data }) {
    wire({ on }).frame({ ...header, data: bytes(given) });
    return {};
  },
  receive: async ({ on, ...which }: On & Parameters<Wire["receive"]>[0]) => ({ message: await wire({ on }).receive(which) }),
  async collect({ stream, length, ...order }: On & { stream: number; length?: number }) {
    const collected = await wire(order).collect(stream, length);
    return { stdout: collected.toString("base64") };
  },
  async disconnect(order: On) {
    wire(order).close();
    return {};
  },
});
