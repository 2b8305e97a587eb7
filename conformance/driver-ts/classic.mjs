// The driver over `@rivet-dev/agent-os-core`, the flat API.

import { drive, installed } from "./driver.mjs";

const { AgentOs } = await import(installed("ts-classic", "@rivet-dev/agent-os-core/dist/index.js"));
const { default: software } = await import(installed("ts-classic", "@rivet-dev/agent-os-common/dist/index.js"));

let vm;

drive({
  async create({ env }) {
    if (env) throw new Error("this SDK has no environment of the VM");
    vm = await AgentOs.create({ software: [software] });
  },
  exec: async (command, options) => vm.exec(command, options),
  async execArgv() {
    throw new Error("this SDK has no execArgv");
  },
  spawn: async (command, args, options) => vm.spawn(command, args, { streamStdin: true, ...options }).pid,
  writeStdin: async (pid, data) => vm.writeProcessStdin(pid, data),
  closeStdin: async (pid) => vm.closeProcessStdin(pid),
  wait: async (pid) => ({ exit_code: await vm.waitProcess(pid) }),
  onExit: async (pid, handler) => vm.onProcessExit(pid, (exit_code) => handler({ exit_code })),
  stop: async (pid) => vm.stopProcess(pid),
  kill: async (pid) => vm.killProcess(pid),
  async signal() {
    throw new Error("this SDK has no other signal");
  },
  get: async (pid) => vm.getProcess(pid),
  list: async () => vm.listProcesses(),
  allProcesses: async () => vm.allProcesses(),
  tree: async () => vm.processTree(),
  dispose: async () => vm.dispose(),
});
