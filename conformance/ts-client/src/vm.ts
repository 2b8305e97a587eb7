// A VM of the session: what runs in it, and its end.

import { Connection, type VmListener } from "./connection.ts";
import { type Exit, Process, type Program } from "./process.ts";
import type { Ends, ProcessExited, Row, SignalTarget, VmConfig, VmCreated } from "./protocol.ts";
import type { Consumer } from "./stream.ts";

/** Ids of processes that a program spawns; real pids in a VM are smaller. */
const FIRST_SPAWNED = 1_000_000;
/** Ids of those it only awaits. */
const FIRST_EXECUTED = 2 ** 31;
/** For how long the outputs of background children are waited for after the exit. */
const DRAIN = { quiet_ms: 50, max_ms: 1000 };

export type Options = Pick<Program, "env" | "cwd">;

export class Vm implements VmListener {
  readonly id: string;
  #connection: Connection;
  #processes = new Map<number, Process>();
  #nextSpawned = FIRST_SPAWNED;
  #nextExecuted = FIRST_EXECUTED;
  #ended: Error | undefined;
  #disposal: Promise<unknown> | undefined;

  static create(connection: Connection, config: VmConfig): Promise<Vm> {
    return new Promise((resolve, reject) => {
      connection.send("create_vm", config, {}, (created) => resolve(new Vm(connection, created)), reject);
    });
  }

  private constructor(connection: Connection, { vm }: VmCreated) {
    this.id = vm;
    this.#connection = connection;
    connection.follow(vm, this);
  }

  /** Starts a program and follows it; its id is known at once. */
  spawn(program: Omit<Program, "process">, onStdout: Consumer, onStderr: Consumer): number {
    const pid = this.#nextSpawned++;
    this.#start(pid, program, onStdout, onStderr);
    return pid;
  }

  /** Runs a program to its end. */
  async execute(program: Omit<Program, "process">, stdin?: Buffer): Promise<Exit & { stdout: Buffer; stderr: Buffer }> {
    const [stdout, stderr]: [Buffer[], Buffer[]] = [[], []];
    const id = this.#nextExecuted++;
    const process = this.#start(
      id,
      { drain: DRAIN, ...program },
      (bytes) => stdout.push(bytes),
      (bytes) => stderr.push(bytes),
    );
    if (stdin) process.stdin.write(stdin);
    process.stdin.end();
    try {
      const exit = await process.exit;
      process.stopOutputs();
      return { ...exit, stdout: Buffer.concat(stdout), stderr: Buffer.concat(stderr) };
    } finally {
      this.#processes.delete(id);
    }
  }

  process(pid: number): Process {
    const process = this.#processes.get(pid);
    if (!process) throw new Error(`Process not found: ${pid}`);
    return process;
  }

  async signal(process: number, signal: string, target: SignalTarget): Promise<void> {
    this.process(process);
    await this.#connection.request("signal_process", { process, signal, target }, { vm: this.id });
  }

  /** The whole table, page by page. */
  async table(): Promise<Row[]> {
    const all: Row[] = [];
    let after: number | undefined;
    do {
      const body = after === undefined ? {} : { after };
      const { rows = [], next } = await this.#connection.request("process_snapshot", body, { vm: this.id });
      all.push(...rows);
      after = next;
    } while (after !== undefined);
    return all;
  }

  /** Ends the VM; a second time does nothing. */
  async dispose(): Promise<void> {
    this.#disposal ??= this.#connection.request("dispose_vm", {}, { vm: this.id });
    await this.#disposal;
    this.lost(new Error("the VM is disposed of"));
  }

  event(type: string, body: unknown): void {
    switch (type) {
      case "process_exited":
        return this.#processes.get((body as ProcessExited).process)?.exited(body as ProcessExited);
      case "output_drained": {
        const { process, end } = body as { process: number; end: Ends };
        return this.#processes.get(process)?.drained(end);
      }
      case "vm_state": {
        const { state, reason } = body as { state: string; reason?: string };
        if (state === "disposed" || state === "failed") this.lost(new Error(`the VM is ${state}: ${reason ?? "by request"}`));
        return;
      }
      // Events of later versions.
      default:
    }
  }

  /** Nothing of this VM will be heard any more; the first reason is kept. */
  lost(error: Error): void {
    this.#ended ??= error;
    for (const process of this.#processes.values()) process.fail(this.#ended);
  }

  #start(process: number, program: Omit<Program, "process">, onStdout: Consumer, onStderr: Consumer): Process {
    if (this.#ended) throw this.#ended;
    const started = new Process(this.#connection, this.id, { ...program, process }, onStdout, onStderr);
    this.#processes.set(process, started);
    return started;
  }
}
