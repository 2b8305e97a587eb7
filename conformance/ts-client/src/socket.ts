// The WebSocket under the protocol: a Unix socket, the subprotocol, whole messages.

import { readFileSync } from "node:fs";
import { WebSocket } from "ws";

export const SUBPROTOCOL = "agentvm.v1";

/** Where the sidecar listens, and what it wants to hear. */
export interface Listener {
  path: string;
  token: string;
}

/** The listener that the runner names. */
export function listenerOfTheRunner(): Listener {
  const { AGENTVM_SOCKET: path, AGENTVM_TOKEN_FILE: file } = process.env;
  if (!path || !file) throw new Error("AGENTVM_SOCKET and AGENTVM_TOKEN_FILE name the sidecar to connect to");
  return { path, token: readFileSync(file, "utf8").trim() };
}

export interface Handshake {
  /** None is asked for if it is empty. */
  subprotocol?: string;
  /** What only a browser sends. */
  origin?: string;
}

/** What a socket is listened to for. Set at once, so that nothing is missed. */
export interface Listening {
  text(text: string): void;
  binary(bytes: Buffer): void;
  closed(code: number, reason: string): void;
}

/** Opens a socket; rejected with the HTTP status if the sidecar refuses the handshake. */
export function open(path: string, listening: Listening, { subprotocol = SUBPROTOCOL, origin }: Handshake = {}): Promise<WebSocket> {
  const options = { perMessageDeflate: false, ...(origin !== undefined && { origin }) };
  const socket = new WebSocket(`ws+unix:${path}:/`, subprotocol === "" ? [] : [subprotocol], options);
  socket.on("message", (data: Buffer, isBinary) => (isBinary ? listening.binary(data) : listening.text(data.toString())));
  socket.on("close", (code, reason) => listening.closed(code, reason.toString()));
  return new Promise((resolve, reject) => {
    socket.on("open", () => resolve(socket));
    // An error is followed by a close; before the socket is open it is the handshake's.
    socket.on("error", reject);
    socket.on("unexpected-response", (_, response) => {
      reject(Object.assign(new Error(`handshake refused: ${response.statusCode}`), { code: response.statusCode }));
      socket.terminate();
    });
  });
}
