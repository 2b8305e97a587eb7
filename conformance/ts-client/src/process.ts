// A process that `execute` started: its streams, and its exit, told once everything it wrote has come.

import type { Connection } from "./connection.ts";
import type { Ends, Execute, ProcessExited } from "./protocol.ts";
import type { Consumer, Receiver, Sender } from "./stream.ts";

export interface Exit {
  exitCode: number;
  signal?: string | undefined;
}

/** What to run; the streams are this file's. */
export type Program = Pick<Execute, "process" | "command" | "args" | "env" | "cwd" | "drain" | "timeout_ms">;

export class Process {
  /** Resolves with the exit; rejected if it was not started, or if its end will never be known. */
  readonly exit: Promise<Exit>;
  /** Resolves when no output can come any more. */
  readonly outputsEnded: Promise<void>;
  readonly stdin: Sender;
  #connection: Connection;
  #streams: number[];
  #stdout: Receiver;
  #stderr: Receiver;
  #drains: boolean;
  #exited: ProcessExited | undefined;
  #ends: Ends[] = [];
  #resolve!: (exit: Exit) => void;
  #reject!: (error: Error) => void;
  #ended!: () => void;

  constructor(connection: Connection, vm: string, program: Program, onStdout: Consumer, onStderr: Consumer) {
    this.exit = new Promise((resolve, reject) => ([this.#resolve, this.#reject] = [resolve, reject]));
    // Whoever waits hears of a failure; nobody has to.
    this.exit.catch(() => {});
    this.outputsEnded = new Promise((resolve) => (this.#ended = resolve));
    this.#connection = connection;
    this.#drains = program.drain !== undefined;
    const changed = () => this.#look();
    const window = connection.window(3);
    const [stdin, sender] = connection.sender(window);
    const [stdout, stdoutReceiver] = connection.receiver(window, onStdout, changed);
    const [stderr, stderrReceiver] = connection.receiver(window, onStderr, changed);
    [this.stdin, this.#stdout, this.#stderr] = [sender, stdoutReceiver, stderrReceiver];
    this.#streams = [stdin, stdout, stderr];
    const body: Execute = { ...program, stdin: "pipe", stdout: "pipe", stderr: "pipe", streams: { stdin, stdout, stderr }, window_bytes: window };
    connection.send("execute", body, { vm }, () => {}, (error) => this.fail(error));
  }

  exited(event: ProcessExited): void {
    this.#exited = event;
    this.#ends.push(event.end ?? {});
    // Nobody reads what would still be written.
    this.stdin.close();
    if (!event.output_open) this.#drains = false;
    this.#look();
  }

  drained(end: Ends): void {
    this.#drains = false;
    this.#ends.push(end);
    this.#look();
  }

  /** There is no exit to come. */
  fail(error: Error): void {
    this.#reject(error);
    this.#connection.closeStreams(this.#streams, false);
  }

  /** Takes no more of its outputs. */
  stopOutputs(): void {
    this.#connection.closeStreams(this.#streams, true);
  }

  #look(): void {
    if (!this.#stdout.isOpen && !this.#stderr.isOpen) this.#ended();
    if (!this.#exited || this.#drains) return;
    const { exit_code, signal } = this.#exited;
    const has = ({ stdout, stderr }: Ends) => this.#stdout.reaches(stdout) && this.#stderr.reaches(stderr);
    if (this.#ends.every(has)) this.#resolve({ exitCode: exit_code, signal });
  }
}
