// Mock of the admin port for the tests of the web console: the pages of crates/console/web, and the API of the console
// with an incident that the process cannot reproduce on demand.
//
//   node tests/console/mock.mjs [--port 0] [--prefix /] [--scenario incident|idle|calm] [--streams N] [--hostile]
//                               [--token TOKEN] [--viewers 32]
//
// The first line of output is the address. `POST PREFIXmock/ACTION` changes the state while the mock runs:
// `restart?seconds=N` (gone for N seconds), `cut?seconds=N` (refuses connections for N seconds), `token?value=TOKEN`, `viewers?limit=N`. `GET PREFIXmock/state`
// returns what the mock sent last and the number of connected viewers.
import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { World } from './world.mjs';

const { values: options } = parseArgs({
  options: {
    port: { type: 'string', default: '0' },
    prefix: { type: 'string', default: '/' },
    scenario: { type: 'string', default: 'incident' },
    streams: { type: 'string', default: '0' },
    hostile: { type: 'boolean', default: false },
    token: { type: 'string', default: '' },
    viewers: { type: 'string', default: '32' },
  },
});
const PREFIX = options.prefix.endsWith('/') ? options.prefix : `${options.prefix}/`;
const WEB = join(fileURLToPath(import.meta.url), '../../../crates/console/web');
const CSP = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:";
const TYPES = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
  '.txt': 'text/plain',
};

const makeWorld = () => new World({ scenario: options.scenario, streams: Number(options.streams), hostile: options.hostile });
const control = { token: options.token, viewers: Number(options.viewers), refuseUntil: 0 };
let world = makeWorld();
let viewers = new Set();

function send(response, status, type, body) {
  response.writeHead(status, {
    'content-type': type,
    'content-security-policy': CSP,
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
  });
  response.end(body);
}
const sendJson = (response, status, value) => send(response, status, 'application/json', JSON.stringify(value));
const writeEvent = (response, name, value) => response.write(`event: ${name}\ndata: ${JSON.stringify(value)}\n\n`);

function closeViewers() {
  for (const viewer of viewers) viewer.destroy();
  viewers = new Set();
}

function act(action, query) {
  if (action === 'restart') {
    // The new process starts after the old one has been gone for some seconds.
    const milliseconds = 1000 * Number(query.get('seconds') ?? 0);
    control.refuseUntil = Date.now() + milliseconds;
    closeViewers();
    setTimeout(() => {
      world = makeWorld();
      world.forgetHistory();
    }, milliseconds);
  } else if (action === 'cut') {
    control.refuseUntil = Date.now() + 1000 * Number(query.get('seconds'));
    closeViewers();
  } else if (action === 'token') {
    control.token = query.get('value') ?? '';
    closeViewers();
  } else if (action === 'viewers') {
    control.viewers = Number(query.get('limit'));
    closeViewers();
  } else {
    return false;
  }
  return true;
}

function openLive(request, response) {
  if (viewers.size >= control.viewers) {
    const limit = `${control.viewers} viewers are connected, the limit; close one or use /api/v1/snapshot`;
    return sendJson(response, 503, { error: limit });
  }
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
  writeEvent(response, 'snapshot', world.snapshot());
  viewers.add(response);
  request.on('close', () => viewers.delete(response));
}

function answerApi(path, query, request, response) {
  if (control.token && request.headers.authorization !== `Bearer ${control.token}`) {
    return send(response, 401, 'text/plain; charset=utf-8', 'this page needs the admin token\n');
  }
  if (path === 'api/v1/live') return openLive(request, response);
  if (path === 'api/v1/snapshot') return sendJson(response, 200, world.snapshot());
  if (path === 'api/v1/requests') return sendJson(response, 200, world.findRequests(query));
  return send(response, 404, 'text/plain', 'no such page\n');
}

async function answerFile(path, response) {
  const name = path === '' ? 'index.html' : path.replace(/^console\//, '');
  const file = join(WEB, normalize(`/${name}`));
  try {
    send(response, 200, TYPES[extname(file)] ?? 'application/octet-stream', await readFile(file));
  } catch {
    send(response, 404, 'text/plain', 'no such page\n');
  }
}

const server = createServer((request, response) => {
  const url = new URL(request.url, 'http://mock');
  if (!url.pathname.startsWith(PREFIX)) return send(response, 404, 'text/plain', 'outside the prefix\n');
  const path = url.pathname.slice(PREFIX.length);
  if (path === 'mock/state')
    return sendJson(response, 200, { viewers: viewers.size, requested: world.sequence, snapshot: world.snapshot() });
  if (path.startsWith('mock/')) {
    const known = request.method === 'POST' && act(path.slice('mock/'.length), url.searchParams);
    return sendJson(response, known ? 200 : 404, {});
  }
  if (Date.now() < control.refuseUntil) return request.socket.destroy();
  if (path.startsWith('api/')) return answerApi(path, url.searchParams, request, response);
  if (path.startsWith('runbooks/')) return send(response, 200, 'text/markdown; charset=utf-8', `# ${path}\n`);
  return answerFile(path, response);
});

setInterval(() => {
  const delta = world.step();
  for (const viewer of viewers) writeEvent(viewer, 'delta', delta);
}, 1000);

server.listen(Number(options.port), '127.0.0.1', () => {
  console.log(`http://127.0.0.1:${server.address().port}${PREFIX}`);
});
