// The driver over `@rivet-dev/agentos-core`, the API on a sidecar. `exec` and `execArgv` are its flat forms: they take the
// options that ours take.

import { drive, installed } from "./driver.mjs";

const { AgentOs } = await import(installed("ts-current", "@rivet-dev/agentos-core/dist/index.js"));

let vm;

/** Its descriptors by the field names of the flat API; what they do not tell stays untold. */
function process({ pid, ppid, command, state, startedAtMs, children }) {
  return {
    pid,
    ppid,
    command,
    running: state === "running",
    status: state,
    startedAt: startedAtMs,
    startTime: startedAtMs,
    ...(children && { children: children.map(process) }),
  };
}

const exit = ({ exitCode, signal }) => ({ exit_code: exitCode, signal });

drive({
  async create({ env }) {
    if (env) throw new Error("this SDK has no environment of the VM");
    vm = await AgentOs.create();
  },
  exec: async (command, options) => vm.exec(command, options),
  execArgv: async (command, args, options) => vm.execArgv(command, args, options),
  spawn: async (command, args, options) => (await vm.process.spawn(command, args, options)).pid,
  writeStdin: async (pid, data) => vm.process.writeStdin(pid, data),
  closeStdin: async (pid) => vm.process.closeStdin(pid),
  wait: async (pid) => exit(await vm.process.wait(pid)),
  onExit: async (pid, handler) => vm.onProcessExit(pid, (event) => handler(exit(event))),
  stop: async (pid) => vm.process.signal(pid, "SIGTERM"),
  kill: async (pid) => vm.process.kill(pid),
  signal: async (pid, signal) => vm.process.signal(pid, signal),
  get: async (pid) => process(await vm.process.get(pid)),
  list: async () => (await vm.process.list()).map(process),
  async allProcesses() {
    const all = (nodes) => nodes.flatMap((node) => [node, ...all(node.children)]);
    return all(await vm.process.tree()).map(process);
  },
  tree: async () => (await vm.process.tree()).map(process),
  dispose: async () => vm.dispose(),
});
