// The simulated state behind the mock: groups, streams, requests, sessions, SLOs. Same random numbers in each run.
const INTERVAL_SECONDS = 5;
const WINDOW_SECONDS = 900;
const INTERVALS = WINDOW_SECONDS / INTERVAL_SECONDS;
const KEPT_REQUESTS = 2000;
const PER_LIST = 50;
const INCIDENT_SECONDS = 372;

const HOSTILE = [
  '<img src=x onerror=alert(1)><script>alert(2)</script>',
  'line\nfeed\u0000nul\u001b[31mred\u202eesrever\u200b',
  `long-${'x'.repeat(10_240)}`,
  '"><svg/onload=alert(3)>&amp;${alert(4)}`{{7*7}}`',
];

/** Random numbers in [0, 1) from a seed (mulberry32). */
function random(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const MODELS = [
  {
    provider: 'openai',
    model: 'gpt-4o',
    route: 'openai',
    tenants: ['web', 'mobile'],
    perSecond: 3.1,
    ttft: 0.38,
    rate: 82,
    price: 1.1e-5,
    limit: 0.41,
  },
  {
    provider: 'openai',
    model: 'gpt-4o-mini',
    route: 'openai',
    tenants: ['web'],
    perSecond: 2.4,
    ttft: 0.27,
    rate: 121,
    price: 6e-7,
    limit: 0.18,
  },
  {
    provider: 'anthropic',
    model: 'claude-sonnet-4-5',
    route: 'anthropic',
    tenants: ['agents'],
    perSecond: 1.6,
    ttft: 0.71,
    rate: 74,
    price: 1.5e-5,
    limit: 0.93,
    cached: 0.82,
  },
  {
    provider: 'vllm',
    model: 'llama-3.3-70b-instruct',
    route: 'gpu',
    tenants: ['web', 'batch'],
    perSecond: 1.9,
    ttft: 0.34,
    rate: 46,
    price: 0,
    degraded: true,
  },
  {
    provider: 'mistral',
    model: 'mistral-large',
    route: 'mistral',
    tenants: ['search'],
    perSecond: 0.5,
    ttft: 0.44,
    rate: 58,
    price: 6e-6,
    stalling: true,
    estimated: true,
  },
];

class Histogram {
  buckets = new Map();
  count = 0;
  sum = 0;

  add(value) {
    const index = Math.ceil(Math.log2(value) * 8) - 1;
    this.buckets.set(index, (this.buckets.get(index) ?? 0) + 1);
    this.count += 1;
    this.sum += value;
  }

  toJSON() {
    if (this.count === 0) return null;
    return { scale: 3, count: this.count, sum: this.sum, zero: 0, buckets: [...this.buckets].sort((a, b) => a[0] - b[0]) };
  }
}

/** Percentiles of exact values, so that the mock shares no code with the console. */
function percentiles(values, ...shares) {
  if (values.length === 0) return null;
  const sorted = values.toSorted((a, b) => a - b);
  const result = { count: sorted.length };
  for (const share of shares)
    result[`p${share}`] = sorted[Math.min(sorted.length - 1, Math.floor((share / 100) * sorted.length))];
  return result;
}

export class World {
  constructor({ scenario, streams, hostile }) {
    this.random = random(7);
    this.scenario = scenario;
    this.now = Date.now();
    this.startedAt = this.now - (scenario === 'incident' ? 5 * 3600_000 : 1800_000);
    this.sequence = 4711;
    this.nextId = 1;
    this.samples = [];
    this.requests = [];
    this.streams = new Map();
    this.crowd = streams;
    this.models = this.#models(hostile);
    this.groups = this.models.flatMap((model) => model.tenants.map((tenant) => ({ ...model, tenant })));
    this.groups.forEach((group, index) => {
      group.id = index + 1;
      group.intervals = new Map();
    });
    this.gapBefore = null;
    this.lastInterval = Math.floor(this.now / 1000 / INTERVAL_SECONDS) - 1;
    this.firstInterval = this.lastInterval - INTERVALS + 1;
    if (scenario !== 'idle') this.#play();
  }

  /** A process that has just started knows nothing of the time before. */
  forgetHistory() {
    this.startedAt = this.now;
    this.gapBefore = this.now;
    for (const group of this.groups) group.intervals.clear();
    this.requests = [];
    this.samples = [];
  }

  #models(hostile) {
    if (this.scenario === 'idle') return [];
    if (!hostile) return MODELS;
    return MODELS.map((model, index) => ({
      ...model,
      model: HOSTILE[index % HOSTILE.length],
      tenants: [HOSTILE[(index + 1) % HOSTILE.length]],
      route: index === 2 ? HOSTILE[0] : model.route,
    }));
  }

  #normal() {
    return Math.sqrt(-2 * Math.log(1 - this.random())) * Math.cos(2 * Math.PI * this.random());
  }

  #around(median, spread) {
    return median * Math.exp(spread * this.#normal());
  }

  /** How far the incident has come at an instant: 0 before, 1 from a minute after its start. */
  #severity(at) {
    if (this.scenario !== 'incident') return 0;
    return Math.min(1, Math.max(0, (at - (this.now - INCIDENT_SECONDS * 1000)) / 60_000));
  }

  #play() {
    this.incidentAt = this.now - INCIDENT_SECONDS * 1000;
    for (let number = this.firstInterval; number <= this.lastInterval; number += 1) this.#playInterval(number);
    for (let count = 0; count < (this.crowd || 13); count += 1) this.#openStream(this.now - this.random() * 9000);
    const stalling = this.groups.find((group) => group.stalling);
    if (this.scenario === 'incident')
      for (const idle of [48_000, 31_000, 9_000]) this.#openStream(this.now - idle - 4000, stalling, idle);
  }

  #playInterval(number) {
    const start = number * INTERVAL_SECONDS * 1000;
    for (const group of this.groups) {
      const expected = (group.perSecond * INTERVAL_SECONDS) / group.tenants.length;
      const count = Math.max(0, Math.round(expected + Math.sqrt(expected) * this.#normal() * 0.6));
      const finished = Array.from({ length: count }, () =>
        this.#finish(group, start + this.random() * INTERVAL_SECONDS * 1000),
      );
      group.intervals.set(number, this.#summarize(group, finished, start));
    }
    this.requests.sort((a, b) => a.ended_unix_ms - b.ended_unix_ms);
    this.requests.splice(0, Math.max(0, this.requests.length - KEPT_REQUESTS));
  }

  #summarize(group, finished, start) {
    const severity = this.#severity(start);
    const interval = { finished: finished.length };
    const histograms = { ttft: new Histogram(), itl: new Histogram(), rate: new Histogram(), duration: new Histogram() };
    const add = (key, amount) => (interval[key] = (interval[key] ?? 0) + amount);
    for (const request of finished) {
      if (request.error_source !== 'none') {
        interval.errors ??= {};
        interval.errors[request.error_source] = (interval.errors[request.error_source] ?? 0) + 1;
      }
      if (request.outcome === 'cancelled') add('cancelled', 1);
      histograms.duration.add(request.duration_seconds);
      if (request.time_to_first_token_seconds) histograms.ttft.add(request.time_to_first_token_seconds);
      if (request.output_tokens_per_second) {
        histograms.rate.add(request.output_tokens_per_second);
        for (let token = 0; token < 12; token += 1)
          histograms.itl.add(this.#around(1 / request.output_tokens_per_second, 0.35));
      }
      if (request.tokens.output) {
        add('output_tokens', request.tokens.output.count);
        if (request.tokens.output.source === 'estimated') add('estimated_output_tokens', request.tokens.output.count);
        add('input_tokens', request.tokens.input.count);
        add('cached_input_tokens', request.tokens.cached_input?.count ?? 0);
      }
      add('cost', request.cost?.amount ?? 0);
      if (request.cost && group.estimated) add('estimated_cost', request.cost.amount);
      interval.stages ??= {};
      for (const [name, seconds] of Object.entries(request.stages)) {
        const stage = name === 'first_byte' || name === 'first_event' ? 'first_token' : name;
        interval.stages[stage] = (interval.stages[stage] ?? 0) + seconds;
      }
    }
    for (const [name, histogram] of Object.entries(histograms)) interval[name] = histogram;
    const load = finished.length / INTERVAL_SECONDS;
    interval.in_flight = Math.round(load * (group.degraded ? 3 + 9 * severity : 3));
    interval.queued = group.degraded ? Math.round((0.4 + 11 * severity) * this.random() + 8 * severity) : 0;
    interval.stalled = group.stalling && severity > 0.5 ? Math.min(3, Math.floor((start - this.incidentAt) / 40_000)) : 0;
    return JSON.parse(JSON.stringify(interval));
  }

  /** Makes a finished request that ended at `ended`. */
  #finish(group, ended) {
    const severity = group.degraded ? this.#severity(ended) : 0;
    const failure = this.#failure(group, ended);
    const queue = group.degraded ? this.#around(0.02 + 1.4 * severity, 0.5) : 0;
    const ttft = this.#around(group.ttft * (1 + 4.5 * severity), 0.42) + queue;
    const rate = this.#around(group.rate * (1 - 0.35 * severity), 0.18);
    const output = Math.round(this.#around(150, 0.7));
    const rejected = failure?.status;
    const decode = rejected ? 0 : output / rate;
    const stall = group.stalling && this.#severity(ended) > 0.5 && this.random() < 0.5 ? 6 + 20 * this.random() : 0;
    const stages = rejected
      ? { admission: queue, connect: 0.004, upload: 0.001, headers: 0.06 }
      : {
          admission: queue,
          connect: 0.004,
          upload: 0.002,
          headers: (ttft - queue) * 0.7,
          first_byte: 0.001,
          first_event: 0.002,
          first_token: (ttft - queue) * 0.3,
          reasoning: group.cached ? decode * 0.2 : 0,
          decode: decode + stall,
          tail: 0.004,
        };
    const duration = Object.values(stages).reduce((sum, seconds) => sum + seconds, 0);
    const chunks = Math.min(62, output);
    const input = Math.round(this.#around(1400, 0.8));
    const request = {
      id: this.nextId++,
      started_unix_ms: Math.round(ended - duration * 1000),
      ended_unix_ms: Math.round(ended),
      provider: group.provider,
      model: group.model,
      route: group.route,
      tenant: group.tenant,
      variant: null,
      session: group.cached ? `session-${1 + Math.floor(this.random() * 9)}` : null,
      session_source: group.cached ? 'x-claude-code-session-id' : null,
      agent: group.cached ? 'claude-cli/2.1.86' : null,
      path: group.provider === 'anthropic' ? '/v1/messages' : '/v1/chat/completions',
      status: rejected ?? 200,
      stream: true,
      outcome: failure?.outcome ?? 'ok',
      error_source: failure?.source ?? 'none',
      error_type: failure?.type ?? null,
      finish_reasons: failure ? [] : ['stop'],
      trace_id: Array.from({ length: 32 }, () => Math.floor(this.random() * 16).toString(16)).join(''),
      duration_seconds: duration,
      time_to_first_token_seconds: rejected ? null : ttft,
      output_tokens_per_second: rejected ? null : rate,
      tokens: rejected
        ? { input: null, cached_input: null, reasoning: null, output: null }
        : {
            input: { count: input, source: group.estimated ? 'estimated' : 'reported' },
            cached_input: group.cached ? { count: Math.round(input * group.cached), source: 'reported' } : null,
            reasoning: null,
            output: { count: output, source: group.estimated ? 'estimated' : 'reported' },
          },
      cost:
        group.price && !rejected
          ? { amount: output * group.price + input * group.price * 0.2, currency: 'USD', source: 'computed' }
          : null,
      stages,
      stalls: stall ? [{ after_seconds: ttft + decode / 2, seconds: stall }] : [],
      chunks_seconds: rejected
        ? []
        : Array.from(
            { length: chunks },
            (_, index) => ttft + (decode * index) / chunks + (stall && index > chunks / 2 ? stall : 0),
          ),
      client_blocked_seconds: 0,
    };
    this.requests.push(request);
    return request;
  }

  #failure(group, ended) {
    const draw = this.random();
    const severity = this.#severity(ended);
    if (group.limit > 0.9 && draw < 0.03 * (1 + severity))
      return { outcome: 'error', source: 'upstream', type: 'rate_limited', status: 429 };
    if (group.stalling && draw < 0.08 * severity) return { outcome: 'truncated', source: 'upstream', type: 'truncated' };
    if (group.degraded && draw < 0.02 * severity)
      return { outcome: 'rejected', source: 'proxy', type: 'overload', status: 503 };
    if (draw < 0.004) return { outcome: 'error', source: 'client', type: 'invalid_request', status: 400 };
    if (draw < 0.01) return { outcome: 'cancelled', source: 'client', type: 'cancelled' };
    return null;
  }

  #openStream(started, group = this.#pickGroup(), idle = 0) {
    const severity = group.degraded ? this.#severity(started) : 0;
    const slow = this.random() < 0.03;
    this.streams.set(this.nextId, {
      id: this.nextId,
      group,
      started,
      idle,
      slow,
      queue: group.degraded ? 200 + 2500 * severity * this.random() : 0,
      ttft: this.#around(group.ttft * (1 + 5 * severity), 0.4) * 1000,
      rate: this.#around(group.rate, 0.2),
      length: this.#around(this.crowd ? 40_000 : 420, 0.6),
      session: group.cached ? `session-${1 + Math.floor(this.random() * 9)}` : null,
      stuckAt: idle ? started + 4000 : null,
    });
    this.nextId += 1;
  }

  #pickGroup() {
    return this.groups[Math.floor(this.random() * this.groups.length)];
  }

  #view(stream) {
    const age = this.now - stream.started;
    const sinceToken = age - stream.queue - stream.ttft;
    const stuck = stream.stuckAt !== null;
    const running = stuck ? Math.max(0, stream.stuckAt - stream.started - 900) : Math.max(0, sinceToken);
    const tokens = sinceToken > 0 ? Math.round((running / 1000) * stream.rate) : 0;
    const phase = age < stream.queue ? 'queued' : sinceToken > 0 ? 'streaming' : 'waiting';
    const seconds = (ms) => Math.max(0, Math.round(ms) / 1000);
    return {
      request_number: stream.id,
      route: stream.group.route,
      path: '/v1/chat/completions',
      model: stream.group.model,
      provider: stream.group.provider,
      tenant: stream.group.tenant,
      session: stream.session,
      agent: stream.session ? 'claude-cli/2.1.86' : null,
      started_unix_ms: Math.round(stream.started),
      phase,
      age_seconds: seconds(age),
      time_to_first_token_seconds: sinceToken > 0 ? seconds(stream.queue + stream.ttft) : null,
      tokens,
      output_tokens_per_second: sinceToken > 0 && tokens > 10 ? stream.rate : null,
      idle_seconds: sinceToken > 0 ? (stuck ? seconds(this.now - stream.stuckAt) : 0.02) : null,
      stalled: stuck && this.now - stream.stuckAt > 2000,
      waiting_for: stream.slow && phase === 'streaming' ? 'client' : 'upstream',
      stages: {
        admission: seconds(Math.min(age, stream.queue)),
        connect: 0.004,
        upload: 0.002,
        headers: seconds(Math.min(Math.max(0, age - stream.queue), stream.ttft) * 0.7),
        first_token: seconds(Math.min(Math.max(0, age - stream.queue), stream.ttft) * 0.3),
        decode: seconds(sinceToken),
      },
    };
  }

  /** Advances by a second and returns the delta. */
  step() {
    this.now = Date.now();
    this.sequence += 1;
    const ended = [];
    for (const stream of this.streams.values()) {
      const tokens = ((this.now - stream.started - stream.queue - stream.ttft) / 1000) * stream.rate;
      if (stream.stuckAt === null && tokens > stream.length) {
        this.streams.delete(stream.id);
        ended.push(stream.id);
      }
    }
    const wanted = this.crowd || 14 + Math.round(3 * this.random());
    if (this.groups.length) while (this.streams.size < wanted) this.#openStream(this.now);
    const number = Math.floor(this.now / 1000 / INTERVAL_SECONDS) - 1;
    const intervals = [];
    const known = this.lastInterval;
    const newGroups = this.groups
      .filter((group) => group.intervals.size === 0 && this.lastInterval < number)
      .map(({ id, provider, model, route, tenant }) => ({ id, provider, model, route, tenant, variant: null }));
    while (this.lastInterval < number) {
      this.lastInterval += 1;
      this.firstInterval = Math.max(this.firstInterval, this.lastInterval - INTERVALS + 1);
      this.#playInterval(this.lastInterval);
      for (const group of this.groups) {
        group.intervals.delete(this.firstInterval - 1);
        intervals.push([group.id, this.lastInterval, group.intervals.get(this.lastInterval)]);
      }
    }
    const finished = intervals.length > 0;
    return {
      sequence: this.sequence,
      at_unix_ms: this.now,
      now: this.#now(),
      conditions: this.#conditions(),
      slos: this.#slos(),
      engines: this.#engines(),
      rate_limits: this.#rateLimits(),
      streams_left_out: 0,
      process: this.#process(),
      ...(finished ? { requests: this.#lists(), sessions: this.#sessions() } : {}),
      history: {
        first_interval: this.firstInterval,
        last_interval: this.lastInterval,
        groups_left_out: this.scenario === 'calm' ? 2 : 0,
        gap_before_unix_ms: this.gapBefore,
        new_groups: newGroups,
        new_burn_rates: this.#burnRates(known + 1),
        intervals,
      },
      streams: { changed: [...this.streams.values()].map((stream) => this.#view(stream)), ended },
    };
  }

  /** The burn rates of the intervals from `first` on; unknown without traffic. */
  #burnRates(first) {
    if (this.scenario === 'idle') return [];
    const numbers = Array.from({ length: this.lastInterval - first + 1 }, (_, index) => first + index);
    return numbers.map((number) => [number, this.scenario === 'incident' ? 2 + (number % 7) : 0.3]);
  }

  snapshot() {
    return {
      schema: 1,
      sequence: this.sequence,
      at_unix_ms: this.now,
      process: this.#process(),
      settings: {
        window_seconds: WINDOW_SECONDS,
        interval_seconds: INTERVAL_SECONDS,
        max_groups: 64,
        max_streams: 5000,
        requests_per_list: PER_LIST,
        trace_url: 'https://jaeger.example/trace/{trace_id}',
        names_hidden: false,
        sessions_known: this.scenario !== 'idle',
      },
      now: this.#now(),
      conditions: this.#conditions(),
      history: {
        first_interval: this.firstInterval,
        last_interval: this.lastInterval,
        groups_left_out: this.scenario === 'calm' ? 2 : 0,
        gap_before_unix_ms: this.gapBefore,
        burn_rates: this.#burnRates(this.firstInterval),
        groups: this.groups
          .filter(({ intervals }) => intervals.size > 0)
          .map(({ id, provider, model, route, tenant, intervals }) => ({
            id,
            provider,
            model,
            route,
            tenant,
            variant: null,
            intervals: [...intervals],
          })),
      },
      streams: [...this.streams.values()]
        .map((stream) => this.#view(stream))
        .sort((a, b) => b.stalled - a.stalled || a.started_unix_ms - b.started_unix_ms),
      streams_left_out: 0,
      requests: this.#lists(),
      sessions: this.#sessions(),
      slos: this.#slos(),
      engines: this.#engines(),
      rate_limits: this.#rateLimits(),
    };
  }

  #process() {
    return {
      name: 'gateway-7d9f-x2x',
      version: '0.1.0',
      started_unix_ms: this.startedAt,
      uptime_seconds: (this.now - this.startedAt) / 1000,
    };
  }

  #recent(seconds = 60) {
    return this.requests.filter((request) => request.ended_unix_ms > this.now - seconds * 1000 - INTERVAL_SECONDS * 1000);
  }

  #now() {
    const recent = this.#recent();
    const present = (key) => recent.map((request) => request[key]).filter((value) => value !== null);
    const share = (source) => recent.filter((request) => request.error_source === source).length / recent.length;
    const tokens = recent.reduce((sum, request) => sum + (request.tokens.output?.count ?? 0), 0);
    const views = [...this.streams.values()].map((stream) => this.#view(stream));
    const cost = recent.reduce((sum, request) => sum + (request.cost?.amount ?? 0), 0);
    const gaps = present('output_tokens_per_second').map((rate) => 1 / rate);
    return {
      requests_per_second: recent.length / 60,
      error_share: recent.length ? { client: share('client'), upstream: share('upstream'), proxy: share('proxy') } : null,
      output_tokens_per_second: tokens / 60,
      stream_output_tokens_per_second: percentiles(present('output_tokens_per_second'), 10, 50),
      time_to_first_token_seconds: percentiles(present('time_to_first_token_seconds'), 50, 95),
      inter_token_latency_seconds: percentiles(gaps, 50, 95),
      in_flight: views.length,
      queue_depth: views.filter((view) => view.phase !== 'streaming').length,
      stalled: views.filter((view) => view.stalled).length,
      worst_burn_rate:
        this.scenario === 'idle'
          ? null
          : {
              slo: 'ttft',
              window: '5m',
              burn_rate: this.scenario === 'incident' ? 8.4 : 0.3,
              window_seconds: 2592000,
              covered_seconds: Math.round((this.now - this.startedAt) / 1000),
            },
      cost_per_hour: this.scenario === 'idle' ? null : { amount: cost * 60, currency: 'USD', estimated_share: 0.06 },
    };
  }

  #conditions() {
    if (this.scenario !== 'incident') return [];
    const [, , claude, llama, mistral] = this.models;
    const slow = this.#recent().filter((request) => request.model === llama.model);
    const ttft = percentiles(slow.map((request) => request.time_to_first_token_seconds).filter(Boolean), 95);
    const stalled = [...this.streams.values()].map((stream) => this.#view(stream)).filter((view) => view.stalled);
    const idle = Math.max(0, ...stalled.map((view) => view.idle_seconds));
    return [
      ...(ttft
        ? [
            {
              id: `ttft:vllm:${llama.model}`,
              severity: 'critical',
              text: `vllm · ${llama.model}: TTFT p95 ${ttft.p95.toFixed(1)} s, objective 2 s`,
              since_unix_ms: this.incidentAt + 40_000,
              runbook: 'LLMTTFTDegraded',
              view: 'charts',
              filter: { model: llama.model },
            },
          ]
        : []),
      ...(stalled.length
        ? [
            {
              id: `stalled:mistral:${mistral.model}`,
              severity: 'critical',
              text: `mistral · ${mistral.model}: ${stalled.length} streams are stalled, the longest for ${idle.toFixed(0)} s`,
              since_unix_ms: this.incidentAt + 320_000,
              runbook: 'LLMStreamsStalled',
              view: 'streams',
              filter: { model: mistral.model },
            },
          ]
        : []),
      {
        id: 'burn:ttft',
        severity: 'critical',
        text: 'SLO ttft burns its error budget 8.4 times too fast',
        since_unix_ms: this.incidentAt + 95_000,
        runbook: 'LLMErrorBudgetBurnFast',
        view: 'slos',
        filter: { slo: 'ttft' },
      },
      {
        id: `rate_limit:anthropic:${claude.model}`,
        severity: 'warning',
        text: `anthropic · ${claude.model}: 93 % of the limit of input tokens is used`,
        since_unix_ms: this.now - 52_000,
        runbook: 'LLMRateLimitNear',
        view: 'limits',
        filter: { provider: 'anthropic' },
      },
    ];
  }

  #lists() {
    const since = this.requests.filter((request) => request.ended_unix_ms > this.now - WINDOW_SECONDS * 1000);
    const top = (kept, order) => since.filter(kept).sort(order).slice(0, PER_LIST);
    const lists = {
      slowest: top(
        () => true,
        (a, b) => b.duration_seconds - a.duration_seconds,
      ),
      failed: top(
        (request) => request.outcome !== 'ok',
        (a, b) => b.ended_unix_ms - a.ended_unix_ms,
      ),
      stalled: top(
        (request) => request.stalls.length,
        (a, b) => b.stalls[0].seconds - a.stalls[0].seconds,
      ),
      most_expensive: top(
        (request) => request.cost,
        (a, b) => b.cost.amount - a.cost.amount,
      ),
    };
    const items = Object.fromEntries(
      Object.values(lists)
        .flat()
        .map((request) => [request.id, request]),
    );
    return {
      ...Object.fromEntries(Object.entries(lists).map(([name, list]) => [name, list.map((request) => request.id)])),
      items,
    };
  }

  #sessions() {
    const sessions = new Map();
    for (const request of this.requests.filter((request) => request.session)) {
      sessions.set(request.session, [...(sessions.get(request.session) ?? []), request]);
    }
    const sum = (calls, read) => calls.reduce((total, call) => total + (read(call) ?? 0), 0);
    return [...sessions].map(([id, calls]) => ({
      id,
      agent: Number(id.at(-1)) % 3 ? 'claude-cli/2.1.86' : 'codex_cli_rs/0.149.1',
      source: Number(id.at(-1)) % 3 ? 'x-claude-code-session-id' : 'session-id',
      tenant: calls[0].tenant,
      calls: calls.length,
      input_tokens: sum(calls, (call) => call.tokens.input?.count),
      cached_input_tokens: sum(calls, (call) => call.tokens.cached_input?.count),
      output_tokens: sum(calls, (call) => call.tokens.output?.count),
      cost: { amount: sum(calls, (call) => call.cost?.amount), currency: 'USD' },
      first_unix_ms: calls[0].started_unix_ms,
      last_unix_ms: calls.at(-1).ended_unix_ms,
      requests: calls
        .slice(-50)
        .map((call) => ({
          id: call.id,
          started_unix_ms: call.started_unix_ms,
          end_seconds: call.duration_seconds,
          outcome: call.outcome,
          model: call.model,
        })),
    }));
  }

  #slos() {
    if (this.scenario === 'idle') return [];
    const covered = Math.round((this.now - this.startedAt) / 1000);
    const bad = this.scenario === 'incident';
    const llama = this.models[3].model;
    const slo = (name, sli, threshold, target, budget, burn, consumed, excluded) => ({
      name,
      sli,
      threshold,
      scope: name === 'ttft' ? { stream: true } : {},
      counting: {},
      target,
      window_seconds: 2592000,
      good: 38_112,
      bad: consumed.reduce((sum, row) => sum + row.bad, 0),
      excluded: excluded.reduce((sum, row) => sum + row.count, 0),
      error_budget_remaining: budget,
      burn_rate: { '5m': burn[0], '30m': burn[1], '1h': burn[2], '2h': burn[3], '6h': null, '1d': null, '3d': null },
      window_covered_seconds: covered,
      time_to_exhaustion_seconds: burn[2] > 1 ? 61_200 : null,
      consumed_by: consumed,
      excluded_by: excluded,
    });
    return [
      slo(
        'ttft',
        'ttft',
        { value: 2, unit: 's', good: 'up to' },
        0.95,
        bad ? 0.31 : 0.97,
        bad ? [8.4, 3.6, 1.9, 0.9] : [0.3, 0.2, 0.2, 0.1],
        bad
          ? [
              { model: llama, error_type: null, bad: 412 },
              { model: this.models[2].model, error_type: 'rate_limited', bad: 7 },
            ]
          : [],
        [
          { reason: 'warmup', count: 3 },
          { reason: 'undefined', count: 11 },
        ],
      ),
      slo(
        'availability',
        'availability',
        null,
        0.995,
        bad ? 0.62 : 0.99,
        bad ? [2.3, 1.1, 0.6, 0.4] : [0, 0, 0, 0],
        bad
          ? [
              { model: this.models[2].model, error_type: 'rate_limited', bad: 31 },
              { model: llama, error_type: 'overload', bad: 9 },
              { model: this.models[4].model, error_type: 'truncated', bad: 4 },
            ]
          : [],
        [{ reason: 'client', count: 19 }],
      ),
      slo(
        'stall-free',
        'stall_free',
        null,
        0.99,
        bad ? -0.08 : 1,
        bad ? [6.1, 2.9, 1.4, 0.7] : [0, 0, 0, 0],
        bad ? [{ model: this.models[4].model, error_type: 'stalled', bad: 58 }] : [],
        [],
      ),
    ];
  }

  #engines() {
    if (this.scenario === 'idle') return [];
    const bad = this.scenario === 'incident';
    return [
      {
        upstream: 'gpu',
        engine: 'vllm',
        scrape_age_seconds: 2.1,
        waiting: bad ? 19 : 0,
        running: bad ? 64 : 12,
        kv_cache_utilization: bad ? 0.98 : 0.41,
        prefix_cache_hit_ratio: bad ? 0.07 : 0.44,
        asleep: false,
        warmup_state: 'warm',
      },
    ];
  }

  #rateLimits() {
    return this.models
      .filter((model) => model.limit)
      .map((model) => {
        const used = this.scenario === 'incident' ? model.limit : model.limit / 3;
        return {
          provider: model.provider,
          model: model.model,
          limit_type: model.cached ? 'input_tokens' : 'requests',
          limit: 4000,
          remaining: Math.round(4000 * (1 - used)),
          used_share: used,
          resets_unix_ms: this.now + 21_000,
        };
      });
  }

  findRequests(query) {
    const from = Number(query.get('ended_from_unix_ms') ?? 0);
    const to = Number(query.get('ended_to_unix_ms') ?? Infinity);
    const limit = Number(query.get('limit') ?? 100);
    const fits = (request) =>
      request.ended_unix_ms >= from &&
      request.ended_unix_ms < to &&
      ['model', 'route', 'provider', 'tenant'].every((key) => !query.has(key) || request[key] === query.get(key));
    const found = this.requests.filter(fits);
    return { items: found.slice(0, limit), left_out: Math.max(0, found.length - limit) };
  }
}
