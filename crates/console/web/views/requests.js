// Finished requests that deserve a look, with a waterfall of each.
import { html, Component } from '../dom.js';
import { clean, clock, count, instant, money, number, seconds, UNKNOWN } from '../format.js';
import { keys } from '../keys.js';
import { link, matches, set } from '../route.js';
import { Copy, Empty, FilterBar, Name, Segmented, STAGE_NAMES, Value } from '../ui.js';

const LISTS = [
  ['slowest', 'slowest'],
  ['failed', 'failed'],
  ['stalled', 'stalled'],
  ['most_expensive', 'most expensive'],
];
const STAGE_ORDER = [
  'admission',
  'connect',
  'upload',
  'headers',
  'first_byte',
  'first_event',
  'first_token',
  'reasoning',
  'decode',
  'tail',
];
/** At most as many labels of the time axis. */
const GRID_STEPS = 6;
/** The process keeps at most as many instants of chunks per request, evenly chosen. */
const CHUNKS_KEPT = 62;

export function RequestsView({ store, params }) {
  const list = LISTS.some(([name]) => name === params.list) ? params.list : (listWith(store.requests, params.sel) ?? 'slowest');
  const all = (store.requests?.[list] ?? []).map((id) => store.requests.items[id]).filter(Boolean);
  const shown = all.filter((request) => matches(request, params));
  const select = (id) => set({ sel: id });
  keys.list = { ids: shown.map(({ id }) => String(id)), selected: params.sel, select };
  const selected = params.sel ? store.requests?.items?.[params.sel] : shown[0];
  return html`<${FilterBar} params=${params} onChange=${set} labels=${['provider', 'model', 'route', 'tenant', 'session']} shown=${shown.length} total=${all.length} noun="requests">
      <${Segmented} label="List" value=${list} options=${LISTS.map(([name, text]) => [name, `${text} ${store.requests?.[name]?.length ?? 0}`])} onChange=${(value) => set({ list: value, sel: null })} />
      <span class="note">at most ${store.settings.requests_per_list} per list, of the last 15 minutes</span>
    <//>
    ${
      all.length === 0
        ? html`<${Empty} title=${EMPTY[list]} />`
        : html`<div class="list-and-detail">
      <${RequestTable} requests=${shown} selected=${selected?.id} onSelect=${(id) => select(String(id))} column=${COLUMNS[list]} />
      ${selected ? html`<${RequestDetail} request=${selected} store=${store} />` : html`<${Empty} title=${params.sel ? `Request ${clean(params.sel, 20)} is in none of the lists any more` : 'Nothing fits the filter'} />`}
    </div>`
    }`;
}

const EMPTY = {
  slowest: 'No request ended in the last 15 minutes',
  failed: 'No request failed in the last 15 minutes',
  stalled: 'No stream stalled in the last 15 minutes',
  most_expensive: 'No request of the last 15 minutes has a cost',
};
const COLUMNS = {
  slowest: ['duration', (request) => seconds(request.duration_seconds)],
  failed: ['error', (request) => clean(request.error_type ?? request.outcome, 40)],
  stalled: ['longest stall', (request) => seconds(Math.max(...request.stalls.map((stall) => stall.seconds)))],
  most_expensive: ['cost', (request) => money(request.cost)],
};

function listWith(requests, id) {
  if (!id || !requests) return null;
  return LISTS.find(([name]) => requests[name].some((other) => String(other) === id))?.[0] ?? null;
}

function RequestTable({ requests, selected, onSelect, column }) {
  const [label, read] = column;
  return html`<div class="list-scroll" tabindex="0" role="group" aria-label="Requests"><table>
    <thead><tr><th scope="col">ended</th><th scope="col">model</th><th scope="col">outcome</th>
      <th scope="col" class="num wide-only">TTFT</th><th scope="col" class="num">${label}</th></tr></thead>
    <tbody>${requests.map(
      (
        request,
      ) => html`<tr key=${request.id} class="selectable" data-id=${request.id} aria-selected=${selected === request.id} onClick=${() => onSelect(request.id)}>
      <td>
        <button type="button" class="row-button" title=${`request ${request.id}`}>${clock(request.ended_unix_ms)}</button></td>
        <td><${Name} of=${request.model} /></td><td><${Outcome} request=${request} /></td>
      <td class="num wide-only">
        <${Value} metric="time_to_first_token_seconds" text=${seconds(request.time_to_first_token_seconds)} reason="no first token" /></td>
        <td class="num">${read(request)}</td></tr>`,
    )}</tbody></table></div>`;
}

function Outcome({ request }) {
  const failed = request.outcome !== 'ok';
  return html`<span class="outcome ${failed && request.error_source !== 'client' ? 'failed' : ''}">${failed ? '✕ ' : '✓ '}${clean(request.outcome, 30)}</span>`;
}

export function RequestDetail({ request, store }) {
  const url = traceUrl(store.settings.trace_url, request.trace_id);
  const facts = [
    ['model', html`<${Name} of=${request.model} />`],
    ['provider', html`<${Name} of=${request.provider} />`],
    ['route', html`<${Name} of=${request.route} />`],
    ['path', html`<${Name} of=${request.path} />`],
    ['tenant', html`<${Name} of=${request.tenant} />`],
    [
      'session',
      request.session
        ? html`<a href=${link('sessions', { sel: request.session })}><${Name} of=${request.session} /></a>`
        : html`<${Name} of=${null} />`,
    ],
    ['variant', html`<${Name} of=${request.variant} />`],
    ['status', request.status ?? UNKNOWN],
    ['outcome', html`<${Outcome} request=${request} />`],
    ['error source', request.error_source === 'none' ? 'none' : clean(request.error_source, 30)],
    ['error type', html`<${Name} of=${request.error_type} />`],
    ['finish reason', html`<${Name} of=${(request.finish_reasons ?? []).join(', ')} />`],
    [
      'duration',
      html`<${Value} metric="duration_seconds" text=${seconds(request.duration_seconds)} raw=${request.duration_seconds} />`,
    ],
    [
      'TTFT',
      html`<${Value} metric="time_to_first_token_seconds" text=${seconds(request.time_to_first_token_seconds)} reason="no first token" />`,
    ],
    [
      'tokens/s',
      html`<${Value} metric="stream_output_tokens_per_second" text=${number(request.output_tokens_per_second)} reason="too few tokens, or no stream" />`,
    ],
    [
      'cost',
      request.cost
        ? `${money(request.cost)} (${clean(request.cost.source, 20)})`
        : html`<${Value} metric="cost_per_hour" text=${UNKNOWN} />`,
    ],
    ['client did not read', seconds(request.client_blocked_seconds ?? null)],
  ];
  return html`<article class="detail" aria-label=${`Request ${request.id}`} data-request=${request.id}>
    <h2>Request ${request.id} <span class="unit">${clock(request.started_unix_ms)} – ${clock(request.ended_unix_ms)}, ${instant(request.started_unix_ms)}</span></h2>
    <${Waterfall} request=${request} />
    <dl class="facts">${facts.map(([label, value]) => html`<div><dt>${label}</dt><dd>${value}</dd></div>`)}</dl>
    <h3>Tokens</h3><${Tokens} tokens=${request.tokens} />
    <h3>Trace</h3><p class="trace">${
      request.trace_id
        ? html`<code>${clean(request.trace_id, 64)}</code>
      <${Copy} text=${request.trace_id} label="Copy" />${url ? html`<a href=${url} target="_blank" rel="noopener noreferrer">Open the trace</a>` : html`<span class="note">console.trace_url is not set</span>`}`
        : html`<span class="unknown" title="the request has no trace">${UNKNOWN}</span>`
    }</p>
  </article>`;
}

/** The address of a trace, if the template is an http address. */
export function traceUrl(template, traceId) {
  if (!template || !traceId || !/^https?:\/\//i.test(template)) return null;
  return template.replace('{trace_id}', encodeURIComponent(traceId));
}

function Tokens({ tokens }) {
  const kinds = Object.entries(tokens ?? {}).filter(([, value]) => value);
  if (kinds.length === 0)
    return html`<p class="unknown" title="Unknown: the provider reported no usage, and no text was seen">${UNKNOWN} no usage reported</p>`;
  return html`<table class="stage-table"><thead><tr><th scope="col">kind</th><th scope="col" class="num">tokens</th>
    <th scope="col">source</th></tr></thead><tbody>${kinds.map(
      ([kind, value]) => html`<tr>
    <th scope="row">${kind.replace('_', ' ')}</th><td class="num">
    <${Value} metric="tokens_by_kind" text=${count(value.count)} raw=${value.count} estimated=${value.source === 'estimated'} /></td>
    <td>${clean(value.source, 20)}</td></tr>`,
    )}</tbody></table>`;
}

/** Stages in their order, a tick per chunk, and stalls, on one axis of time. */
export function Waterfall({ request }) {
  const total = Math.max(request.duration_seconds, 1e-6);
  const share = (offset) => (Math.min(total, Math.max(0, offset)) / total) * 100;
  const span = (from, length) => ({ left: `${share(from)}%`, width: `max(2px, ${share(from + length) - share(from)}%)` });
  let start = 0;
  const stages = STAGE_ORDER.filter((name) => request.stages?.[name] > 0).map((name) => {
    const stage = { name, start, seconds: request.stages[name] };
    start += stage.seconds;
    return stage;
  });
  const chunks = request.chunks_seconds ?? [];
  const stalls = request.stalls ?? [];
  const described = `${stages.map(({ name, seconds: length }) => `${STAGE_NAMES[name]} ${seconds(length)}`).join(', ')}; ${chunks.length} ticks of chunks; ${stalls.length} stalls`;
  return html`<div class="waterfall" role="img" aria-label=${`Waterfall: ${described}`}>
    ${stages.map(
      ({ name, start: from, seconds: length }) => html`<span class="waterfall-label">${STAGE_NAMES[name]}</span>
        <span class="waterfall-track" title=${`${STAGE_NAMES[name]}: ${seconds(length)}, from ${seconds(from)}`}>
        <span class="waterfall-bar stage-${name}" style=${span(from, length)}></span>
      <${Length} from=${share(from)} to=${share(from + length)} text=${seconds(length)} /></span>`,
    )}
    <span class="waterfall-label">chunks</span>
      <span class="waterfall-track" title=${`${chunks.length} ticks; at most ${CHUNKS_KEPT}, evenly chosen from the chunks`}>
      <svg viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true">
      <path class="chunk" d=${chunks.map((offset) => `M${(share(offset) * 10).toFixed(1)} 0V10`).join('')} /></svg></span>
    ${stalls.length > 0 && html`<${Stalls} stalls=${stalls} share=${share} span=${span} />`}
    <span></span><${AxisLabels} total=${total} format=${seconds} />
  </div>`;
}

function Stalls({ stalls, share, span }) {
  const [first, last] = [stalls[0], stalls.at(-1)];
  const bar = ({ after_seconds: after, seconds: length }) =>
    html`<span class="waterfall-bar stage-stalled" style=${span(after, length)} title=${`${seconds(length)}, after ${seconds(after)}`}></span>`;
  return html`<span class="waterfall-label bad">stalls</span>
    <span class="waterfall-track">${stalls.map(bar)}
      <${Length} from=${share(first.after_seconds)} to=${share(last.after_seconds + last.seconds)} text=${stalls.map((stall) => seconds(stall.seconds)).join(', ')} />
    </span>`;
}

/** The length of a bar: after it, before it, or on it if neither side has room. */
function Length({ from, to, text }) {
  if (to <= 80) return html`<span class="waterfall-length" style=${{ left: `${to}%` }}>${text}</span>`;
  if (from >= 20) return html`<span class="waterfall-length" style=${{ right: `${100 - from}%` }}>${text}</span>`;
  return html`<span class="waterfall-length inside">${text}</span>`;
}

/** Offsets from the start under an axis of time. */
export function AxisLabels({ total, format }) {
  const step = niceStep(total / GRID_STEPS);
  // A label at the end of the axis would leave its place.
  const offsets = Array.from({ length: Math.floor((total * 0.94) / step) + 1 }, (_, index) => index * step);
  return html`<span class="axis-labels" aria-hidden="true">${offsets.map((offset) => html`<span style=${{ left: `${(offset / total) * 100}%` }}>${format(offset)}</span>`)}</span>`;
}

/** 1, 2 or 5 times a power of ten, at least `least`. */
export function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= least);
}

/** Requests that ended close to an instant of the charts. */
export class EndedAt extends Component {
  state = { status: 'loading' };

  componentDidMount() {
    this.load();
  }

  async load() {
    const { live, params, around } = this.props;
    const at = Number(params.at);
    const query = new URLSearchParams({
      ended_from_unix_ms: Math.round(at - around * 1000),
      ended_to_unix_ms: Math.round(at + around * 1000),
      limit: 100,
    });
    for (const label of ['model', 'route', 'provider', 'tenant']) if (params[label]) query.set(label, params[label]);
    try {
      const { items, left_out: leftOut } = await live.fetchJson(`api/v1/requests?${query}`);
      this.setState({ status: 'loaded', items, leftOut });
    } catch (error) {
      this.setState({ status: 'failed', message: String(error.message) });
    }
  }

  render({ store, params, around }, { status, items, leftOut, message }) {
    const at = Number(params.at);
    const heading = html`<h2>Requests that ended at ${clock(at)} <span class="unit">± ${around} s</span> <button type="button" class="small" onClick=${() => set({ at: null, sel: null })}>Close</button></h2>`;
    if (status === 'loading') return html`<section class="ended-at">${heading}<p role="status">Loading …</p></section>`;
    if (status === 'failed')
      return html`<section class="ended-at">${heading}<${Empty} title="The list could not be loaded">${clean(message)}<//></section>`;
    const shown = items.filter((request) => matches(request, params)).sort((a, b) => b.duration_seconds - a.duration_seconds);
    const select = (id) => set({ sel: id });
    keys.list = { ids: shown.map(({ id }) => String(id)), selected: params.sel, select };
    const selected = shown.find(({ id }) => String(id) === params.sel) ?? shown[0];
    return html`<section class="ended-at" aria-label="Requests that ended at the chosen instant">${heading}
      ${leftOut > 0 && html`<p class="note">${leftOut} more are left out.</p>`}
      ${
        shown.length === 0
          ? html`<${Empty} title="No request ended then">The process keeps the last 2,000 finished requests.<//>`
          : html`<div class="list-and-detail">
        <${RequestTable} requests=${shown} selected=${selected.id} onSelect=${(id) => select(String(id))} column=${COLUMNS.slowest} />
        <${RequestDetail} request=${selected} store=${store} /></div>`
      }</section>`;
  }
}
