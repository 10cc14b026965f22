// What VS Code's extensions speak with: `node vscode.mjs MODULES socket PATH` or `node vscode.mjs MODULES stdio PROGRAM ARG...`.
// Attaches, runs a job with progress, cancels another one, starts and stops a third, and leaves; prints a line each.
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { connect } from 'node:net';
import { pathToFileURL } from 'node:url';

const [modules, way, ...words] = process.argv.slice(2);
const require = createRequire(modules + '/x.js');
const rpc = require('vscode-jsonrpc/node');
const lsp = require('vscode-languageserver-protocol');
const say = (...all) => console.log(all.join(' '));

let reader, writer, ended;
if (way === 'socket') {
  const socket = connect(words[0]);
  reader = new rpc.SocketMessageReader(socket);
  writer = new rpc.SocketMessageWriter(socket);
  ended = new Promise((done) => socket.once('close', () => done('closed')));
} else {
  const child = spawn(words[0], words.slice(1), { stdio: ['pipe', 'pipe', 'inherit'] });
  reader = new rpc.StreamMessageReader(child.stdout);
  writer = new rpc.StreamMessageWriter(child.stdin);
  ended = new Promise((done) => child.once('exit', (code) => done('exited ' + code)));
}
const client = rpc.createMessageConnection(reader, writer);
client.onError(([error]) => { say('error', error); process.exit(1); });
let begun = () => {};
client.onRequest(lsp.WorkDoneProgressCreateRequest.type, ({ token }) => {
  client.onProgress(lsp.WorkDoneProgress.type, token, (value) => {
    say('created', value.kind, value.message ?? value.title);
    if (value.kind === 'begin') begun();
  });
});
client.listen();

const hello = await client.sendRequest(lsp.InitializeRequest.type, {
  processId: process.pid,
  clientInfo: { name: 'Visual Studio Code', version: '1' },
  rootUri: pathToFileURL(process.cwd()).href,
  workspaceFolders: [{ uri: pathToFileURL(process.cwd()).href, name: 'x' }],
  capabilities: { window: { workDoneProgress: true } },
});
await client.sendNotification(lsp.InitializedNotification.type, {});
say('server', hello.serverInfo.name, hello.capabilities.experimental.ostler.session.name);

const execute = (command, args, more = {}, token = undefined) =>
  client.sendRequest(lsp.ExecuteCommandRequest.type, { command, arguments: args, ...more }, token);

// With a token of ours.
const seen = [];
client.onProgress(lsp.WorkDoneProgress.type, 'mine', (value) => seen.push(value.kind));
const result = await execute('ostler.run', ['echo begun; sleep 0.3; echo middle; sleep 0.5; exit 3'], { workDoneToken: 'mine' });
say('run', result.exitCode, JSON.stringify(result.stdout), seen[0], seen.at(-1), seen.length > 2);

// With one of the supervisor's; the job goes on when its begin was told.
begun = () => writeFileSync('go', '');
await execute('ostler.run', ['until [ -e go ]; do sleep 0.05; done']);

// Cancelled, as by the cross of a notification.
const source = new rpc.CancellationTokenSource();
begun = () => source.cancel();
const running = execute('ostler.run', ['sleep 100'], {}, source.token);
await running.then(() => say('not cancelled'), (error) => say('cancelled', error.code));

const row = await execute('ostler.start', ['exec sleep 100']);
say('start', row.id, row.state);
const summary = await execute('ostler.stop', [row.id]);
say('stop', summary.jobs[0].row.outcome, summary.jobs[0].ended);
await execute('ostler.tail', ['t9']).catch((error) => say('refused', error.code, error.message));
await client.sendRequest('$/x', {}).catch((error) => say('unknown', error.code));

await client.sendRequest(lsp.ShutdownRequest.type);
await client.sendNotification(lsp.ExitNotification.type);
say('left', await ended);
process.exit(0);
