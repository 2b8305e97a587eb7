// The loop that the TypeScript drivers share: reads orders, has an SDK perform them, reports each, judges nothing.

import { createInterface } from "node:readline";

/** Where a target's package is installed. */
export function installed(target, path) {
  return new URL(`../targets/${target}/node_modules/${path}`, import.meta.url).href;
}

/**
 * Performs every order with `sdk`, an object with one method per action, which goes by the name of the action itself where
 * only one SDK has it; the end of input is the order to end. The order to create a VM begins a scenario: what there was
 * before is disposed of.
 */
export function drive(sdk) {
  let machine = new Machine(sdk);
  let last = Promise.resolve();
  const lines = createInterface({ input: process.stdin });
  lines.on("line", (line) => {
    const { step, ...order } = JSON.parse(line);
    last = last.then(async () => {
      if (order.op === "create") {
        await machine.end();
        machine = new Machine(sdk);
      }
      const report = await machine.perform(order).catch(failed);
      process.stdout.write(`${JSON.stringify({ step, ...report })}\n`);
    });
  });
  lines.on("close", () => process.exit(0));
}

function failed(error) {
  return { error: { message: String(error?.message ?? error), code: error?.code === undefined ? null : String(error.code) } };
}

/** What the steps refer to. */
class Machine {
  #sdk;
  #created = false;
  #spawned = new Map();
  #execs = new Map();

  constructor(sdk) {
    this.#sdk = sdk;
  }

  /** Ends what a scenario left; how that goes is no scenario's matter. */
  async end() {
    if (this.#created) await this.#sdk.dispose().catch(() => {});
  }

  async perform({ op, ...order }) {
    const sdk = this.#sdk;
    switch (op) {
      case "create":
        await sdk.create(order);
        this.#created = true;
        return {};
      case "exec":
        return this.#run(order.as, () => sdk.exec(order.command, options(order)));
      case "exec_argv":
        return this.#run(order.as, () => sdk.execArgv(order.command, order.args, options(order)));
      case "join":
        return executed(await this.#execs.get(order.exec));
      case "spawn":
        return this.#spawn(order);
      case "write_stdin":
        await sdk.writeStdin(this.#pid(order), data(order.data));
        return {};
      case "close_stdin":
        await sdk.closeStdin(this.#pid(order));
        return {};
      case "output": {
        const { stream = "stdout", until } = order;
        return { [stream]: base64(await this.#spawned.get(order.process)[stream].collected(until)) };
      }
      case "wait": {
        const exit = await sdk.wait(this.#pid(order));
        const outputs = this.#spawned.get(order.process);
        return { ...exit, stdout: base64(outputs.stdout.bytes), stderr: base64(outputs.stderr.bytes) };
      }
      case "on_exit":
        return new Promise((resolve, reject) => {
          sdk.onExit(this.#pid(order), resolve).catch(reject);
        });
      case "stop":
        await sdk.stop(this.#pid(order));
        return {};
      case "kill":
        await sdk.kill(this.#pid(order));
        return {};
      case "signal":
        await sdk.signal(this.#pid(order), order.signal);
        return {};
      case "get":
        return { process: await sdk.get(this.#pid(order)) };
      case "list":
        return { processes: await sdk.list() };
      case "all_processes":
        return { processes: await sdk.allProcesses() };
      case "tree":
        return { processes: await sdk.tree() };
      case "dispose":
        await sdk.dispose();
        return {};
      default:
        if (sdk[op] === undefined) throw new Error(`the driver knows no ${op}`);
        return sdk[op](order);
    }
  }

  async #run(name, exec) {
    const result = exec();
    if (name === undefined) return executed(await result);
    // Whoever joins it hears of its failure.
    result.catch(() => {});
    this.#execs.set(name, result);
    return {};
  }

  async #spawn(order) {
    const [stdout, stderr] = [new Collected(), new Collected()];
    const onStdout = (chunk) => stdout.add(chunk);
    const onStderr = (chunk) => stderr.add(chunk);
    const pid = await this.#sdk.spawn(order.command, order.args, { ...options(order), onStdout, onStderr });
    this.#spawned.set(order.as, { pid, stdout, stderr });
    const end = () => [stdout, stderr].forEach((output) => output.end());
    // The published SDKs tell the end of the process, not that of its outputs.
    (this.#sdk.onOutputsEnd ?? this.#sdk.onExit)(pid, end).catch(end);
    return { pid };
  }

  #pid({ process }) {
    return typeof process === "number" ? process : this.#spawned.get(process).pid;
  }
}

/** An output as far as it has come. */
class Collected {
  bytes = Buffer.alloc(0);
  #ended = false;
  #waiting = [];

  add(chunk) {
    this.bytes = Buffer.concat([this.bytes, Buffer.from(chunk)]);
    this.#wake();
  }

  end() {
    this.#ended = true;
    this.#wake();
  }

  /** Everything up to a text, once it has come; without one, everything up to the end. */
  async collected(until) {
    for (;;) {
      const at = until === undefined ? -1 : this.bytes.indexOf(until);
      if (at >= 0) return this.bytes.subarray(0, at + Buffer.byteLength(until));
      if (this.#ended) return this.bytes;
      await new Promise((resolve) => this.#waiting.push(resolve));
    }
  }

  #wake() {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}

function options({ env, cwd, stdin, timeout_ms, capture }) {
  return {
    ...(env && { env }),
    ...(cwd !== undefined && { cwd }),
    ...(stdin !== undefined && { stdin: data(stdin) }),
    ...(timeout_ms !== undefined && { timeout: timeout_ms }),
    ...(capture !== undefined && { captureStdio: capture }),
  };
}

/** Text stays text: these SDKs take both. */
export function data(given) {
  if (typeof given === "string") return given;
  if (Array.isArray(given)) return Buffer.concat(given.map((part) => Buffer.from(data(part))));
  if ("base64" in given) return new Uint8Array(Buffer.from(given.base64, "base64"));
  return given.repeat.repeat(given.times);
}

function executed({ exitCode, signal, stdout, stderr }) {
  return { exit_code: exitCode, signal, stdout: base64(stdout ?? ""), stderr: base64(stderr ?? "") };
}

function base64(bytes) {
  return Buffer.from(bytes).toString("base64");
}
