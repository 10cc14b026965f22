// Starts a server, waits for its port, talks to it and stops it.
//
//     node dev_server.ts PORT CMD...         node dev_server.ts 8000 python3 -m http.server 8000
//
// Nothing but what Node has: JSON-RPC on a Unix socket, as proto/PROTOCOL.md has it. Node 22.18 and newer run this file as it
// is; for older ones: npx tsc dev_server.ts.

import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { type Socket, connect } from 'node:net';

type Json = { [name: string]: any };

/** The supervisor said no: what, why, and what next. */
class Refused extends Error {
  readonly kind: string;
  readonly hint?: string;

  constructor(error: Json) {
    super(error.message);
    this.kind = error.data.kind;
    this.hint = error.data.hint;
  }
}

/** The connection ended before the answer; what was asked may have been done. */
class Broken extends Error {}

/** One connection: many requests at once, answers in any order. */
class Connection {
  private readonly socket: Socket;
  private readonly waiting = new Map<number, (message: Json | Broken) => void>();
  private bytes = Buffer.alloc(0);
  private lastId = 0;
  private broken = false;

  constructor(path: string) {
    this.socket = connect(path);
    this.socket.on('data', (more) => this.take(more));
    this.socket.on('error', () => this.end());
    this.socket.on('close', () => this.end());
  }

  async ask(method: string, params: Json): Promise<any> {
    const id = ++this.lastId;
    const answer = await new Promise<Json | Broken>((done) => {
      if (this.broken) return done(new Broken());
      this.waiting.set(id, done);
      const body = Buffer.from(JSON.stringify({ jsonrpc: '2.0', id, method, params }));
      this.socket.write(`Content-Length: ${body.length}\r\n\r\n`);
      this.socket.write(body);
    });
    if (answer instanceof Broken) throw answer;
    if (answer.error) throw new Refused(answer.error);
    return answer.result;
  }

  close(): void {
    this.socket.end();
  }

  private take(more: Buffer): void {
    this.bytes = Buffer.concat([this.bytes, more]);
    for (;;) {
      const header = this.bytes.indexOf('\r\n\r\n');
      if (header < 0) return;
      const length = Number(/content-length: *(\d+)/i.exec(this.bytes.toString('latin1', 0, header))![1]);
      const begin = header + 4;
      if (this.bytes.length < begin + length) return;
      const message = JSON.parse(this.bytes.toString('utf8', begin, begin + length));
      this.bytes = this.bytes.subarray(begin + length);
      this.waiting.get(message.id)?.(message);
      this.waiting.delete(message.id);
    }
  }

  private end(): void {
    this.broken = true;
    for (const done of this.waiting.values()) done(new Broken('the supervisor closed the connection'));
    this.waiting.clear();
  }
}

/** A session of our own. It comes back to it when the supervisor is replaced under it. */
class Ostler {
  private connection?: Connection;
  // Half a minute after this program is gone, however it went, what it started is stopped.
  private session: Json = { leaseMs: 30_000 };

  private async connect(): Promise<Connection> {
    // Starts the supervisor if none runs; where it listens depends on no variable but OSTLER_DIR.
    execFileSync('ostler', ['daemon', 'start', '--quiet']);
    const status = JSON.parse(execFileSync('ostler', ['daemon', 'status', '--json'], { encoding: 'utf8' }));
    const connection = new Connection(status.socket);
    const opened = await connection.ask('session/open', this.session);
    // From now on this session and no new one in its place: its jobs are what we come back for.
    this.session = { id: opened.session.id, token: opened.token ?? this.session.token, attachOnly: true };
    return connection;
  }

  /** Asks until there is an answer, also when the supervisor is replaced meanwhile: for what may be asked twice, as a start
   *  with a key. */
  async ask(method: string, params: Json): Promise<any> {
    for (let attempt = 0; attempt < 20; attempt++) {
      try {
        this.connection ??= await this.connect();
        return await this.connection.ask(method, params);
      } catch (error) {
        if (!(error instanceof Broken)) throw error;
        // Asked again on a new connection, with the same session and the same key.
        this.connection = undefined;
      }
    }
    throw new Broken('the supervisor closes every connection');
  }

  /** The time counts from now, and not from each try. */
  async waitForPort(job: string, port: number, seconds: number): Promise<Json> {
    const until = performance.now() + seconds * 1000;
    for (;;) {
      const left = Math.max(0, Math.round(until - performance.now()));
      // A second at a time, so that a try that broke costs no more than that.
      const wait = { ids: [job], for: { port }, timeoutMs: Math.min(left, 1000) };
      const told = (await this.ask('job/wait', wait)).jobs[0];
      if (told.reason === 'ended_before') throw new Error(`it ended first: ${(told.lastLines ?? []).join('\n')}`);
      if (told.reason === 'port') return told.listener;
      if (left === 0) throw new Error(`nobody listens on ${port} after ${seconds} s`);
    }
  }

  close(): void {
    this.connection?.close();
  }
}

async function main(port: number, command: string[]): Promise<void> {
  const ostler = new Ostler();
  try {
    // The environment is the request's: nothing of it comes from whoever started the supervisor.
    const start = { key: randomUUID(), args: command, cwd: process.cwd(), env: process.env, envReplace: true };
    const row = await ostler.ask('job/start', start);
    if (row.outcome === 'spawn_failed') throw new Error(`${command[0]} did not start: ${row.spawnError.message}`);
    console.log(`${row.id} runs, pid ${row.pid}`);
    try {
      const listener = await ostler.waitForPort(row.processId, port, 30);
      console.log(`port ${port}: ${listener.program}, pid ${listener.pid}`);
      console.log(`it says ${(await fetch(`http://127.0.0.1:${port}/`)).status}`);
    } finally {
      // Answered when the whole tree is gone, to the last grandchild.
      const receipt = (await ostler.ask('job/stop', { ids: [row.processId] })).jobs[0];
      console.log(`stopped: ${receipt.ended} processes`);
    }
  } finally {
    ostler.close();
  }
}

const [port, ...command] = process.argv.slice(2);
if (command.length === 0) {
  console.error('usage: dev_server.ts PORT CMD...');
  process.exit(2);
}
main(Number(port), command).catch((error: Refused) => {
  console.error(`error: ${error.message}${error.hint ? `\nhint: ${error.hint}` : ''}`);
  process.exit(1);
});
