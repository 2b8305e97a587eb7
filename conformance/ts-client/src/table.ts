// The process table under the field names of the TypeScript SDKs, and as a tree.

import type { Row } from "./protocol.ts";

interface Shown {
  pid: number;
  ppid: number;
  [field: string]: unknown;
}

/** Processes that `execute` started go by the ids it gave them. */
export function shown(rows: Row[]): Shown[] {
  // A real pid may have been used before by one that has ended.
  const alive = (row: Row) => row.status !== "exited";
  const names = new Map([...rows.filter((row) => !alive(row)), ...rows.filter(alive)].map((row) => [row.pid, row.process ?? row.pid]));
  return rows.map(({ process, pid, ppid, exit_code, started_at_ms, exited_at_ms, ...row }) => ({
    ...row,
    pid: process ?? pid,
    ppid: names.get(ppid) ?? ppid,
    exitCode: exit_code ?? null,
    startTime: started_at_ms,
    exitTime: exited_at_ms ?? null,
  }));
}

/** Each under its parent; those whose parent is not there at the top. */
export function tree(rows: Row[]): Shown[] {
  const nodes = shown(rows).map((row) => ({ ...row, children: [] as Shown[] }));
  const byPid = new Map(nodes.map((node) => [node.pid, node]));
  const roots: Shown[] = [];
  for (const node of nodes) (byPid.get(node.ppid)?.children ?? roots).push(node);
  return roots;
}
