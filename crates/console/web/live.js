// The connection to api/v1/live: server-sent events through `fetch`, because EventSource cannot send the header
// `Authorization`. A hidden tab has no connection.

/** Without an event for this long, the connection is dead: the process sends one each second. */
const SILENCE_MS = 6000;
const FIRST_RETRY_MS = 500;
const LONGEST_RETRY_MS = 8000;
const FULL_RETRY_MS = 15_000;
/** Status 503 has this reason, or the process drains or is busy. */
const VIEWER_LIMIT = /viewers/;

/**
 * Splits server-sent events out of text pieces and calls `onEvent(name, data)`. A line can have megabytes and come in many
 * pieces, so each piece is searched once only.
 */
export function eventParser(onEvent) {
  let parts = [];
  let name = '';
  let data = [];
  const takeLine = (raw) => {
    const line = raw.endsWith('\r') ? raw.slice(0, -1) : raw;
    if (line === '') {
      if (data.length) onEvent(name || 'message', data.join('\n'));
      name = '';
      data = [];
    } else if (line.startsWith('data:')) {
      data.push(line.slice(line[5] === ' ' ? 6 : 5));
    } else if (line.startsWith('event:')) {
      name = line.slice(6).trim();
    }
  };
  return (piece) => {
    let start = 0;
    for (let end = piece.indexOf('\n'); end >= 0; end = piece.indexOf('\n', start)) {
      parts.push(piece.slice(start, end));
      takeLine(parts.join(''));
      parts = [];
      start = end + 1;
    }
    if (start < piece.length) parts.push(piece.slice(start));
  };
}

/**
 * Keeps the connection. `status` is one of connecting, live, waiting (will retry), login, refused, full, missing, hidden.
 */
export class Live {
  #token = null;
  #abort = null;
  #retryMs = FIRST_RETRY_MS;
  #timer = null;
  #watchdog = null;

  constructor({ onEvent, onStatus }) {
    this.onEvent = onEvent;
    this.onStatus = onStatus;
    this.status = 'connecting';
    this.message = '';
    this.retryAt = null;
    document.addEventListener('visibilitychange', () => this.#followVisibility());
  }

  start() {
    if (document.hidden) this.#setStatus('hidden');
    else this.connect();
  }

  /** Uses a token, which stays in this object only. */
  logIn(token) {
    this.#token = token;
    this.connect();
  }

  get hasToken() {
    return this.#token !== null;
  }

  /** Fetches a JSON document of the API with the same token. */
  async fetchJson(path) {
    const response = await fetch(path, { headers: this.#headers('application/json'), cache: 'no-store' });
    if (!response.ok) throw new Error(`${path.split('?')[0]} responded ${response.status}`);
    return response.json();
  }

  async connect() {
    this.#stop();
    const abort = new AbortController();
    this.#abort = abort;
    this.#setStatus('connecting');
    try {
      const response = await fetch('api/v1/live', {
        headers: this.#headers('text/event-stream'),
        signal: abort.signal,
        cache: 'no-store',
      });
      if (!response.ok) return await this.#reject(response, abort);
      await this.#read(response, abort);
    } catch (error) {
      if (abort.signal.aborted && abort.signal.reason !== 'silent') return;
      this.message = abort.signal.aborted ? 'the process sent nothing' : String(error.message ?? error);
    }
    if (this.#abort === abort) this.#retryLater('waiting', this.#nextRetry());
  }

  /** Drops a connection that has lost an event; the next one starts with a snapshot. */
  resynchronize() {
    this.connect();
  }

  async #read(response, abort) {
    const decoder = new TextDecoder();
    const parse = eventParser((name, data) => {
      if (this.#abort !== abort) return;
      this.#watch(abort);
      if (this.status !== 'live') {
        this.#retryMs = FIRST_RETRY_MS;
        this.#setStatus('live');
      }
      this.onEvent(name, JSON.parse(data));
    });
    const reader = response.body.getReader();
    this.#watch(abort);
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      parse(decoder.decode(value, { stream: true }));
    }
    this.message = 'the process closed the connection';
  }

  #watch(abort) {
    clearTimeout(this.#watchdog);
    this.#watchdog = setTimeout(() => abort.abort('silent'), SILENCE_MS);
  }

  async #reject(response, abort) {
    const text = (await response.text()).slice(0, 500);
    if (this.#abort !== abort) return;
    this.message = errorText(text) || `status ${response.status}`;
    if (response.status === 401) {
      this.rejectedToken = this.#token !== null;
      this.#token = null;
      this.#setStatus('login');
    } else if (response.status === 403) {
      this.#setStatus('refused');
    } else if (response.status === 503 && VIEWER_LIMIT.test(this.message)) {
      this.#retryLater('full', FULL_RETRY_MS);
    } else if (response.status === 404) {
      this.#retryLater('missing', LONGEST_RETRY_MS);
    } else {
      this.#retryLater('waiting', this.#nextRetry());
    }
  }

  #nextRetry() {
    const delay = this.#retryMs * (0.75 + Math.random() / 2);
    this.#retryMs = Math.min(LONGEST_RETRY_MS, this.#retryMs * 2);
    return delay;
  }

  #retryLater(status, delay) {
    clearTimeout(this.#watchdog);
    this.retryAt = Date.now() + delay;
    this.#timer = setTimeout(() => this.connect(), delay);
    this.#setStatus(status);
  }

  #followVisibility() {
    if (document.hidden) {
      // A page without access has no connection to close.
      if (this.status === 'login' || this.status === 'refused') return;
      this.#stop();
      this.#setStatus('hidden');
    } else if (this.status === 'hidden') {
      this.#retryMs = FIRST_RETRY_MS;
      this.connect();
    }
  }

  #stop() {
    clearTimeout(this.#timer);
    clearTimeout(this.#watchdog);
    const abort = this.#abort;
    this.#abort = null;
    abort?.abort('replaced');
  }

  #headers(accept) {
    return this.#token === null ? { accept } : { accept, authorization: `Bearer ${this.#token}` };
  }

  #setStatus(status) {
    this.status = status;
    this.onStatus(status);
  }
}

function errorText(text) {
  try {
    return String(JSON.parse(text).error ?? text);
  } catch {
    return text.trim();
  }
}
