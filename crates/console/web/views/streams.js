// Requests in flight: stalled first. Only the visible rows are in the document, so 5,000 streams scroll smoothly.
import { html, Component } from '../dom.js';
import { age, clean, clock, count, number, seconds, UNKNOWN } from '../format.js';
import { keys } from '../keys.js';
import { matches, set } from '../route.js';
import { FilterBar, Heading, Name, Segmented, StageBar, Value, VirtualList } from '../ui.js';

const ROW_HEIGHT = 34;
const NARROW_ROW_HEIGHT = 66;
/** Age for which the bar of stages fills its place; longer streams fill it, too. */
const FULL_BAR_SECONDS = 30;

/** Phases in the order in which they need attention. */
const PHASES = [
  ['stalled', 'stalled'],
  ['slow_client', 'client is slow'],
  ['queued', 'queued'],
  ['waiting', 'waiting'],
  ['streaming', 'streaming'],
  ['unstreamed', 'unstreamed'],
];
const PHASE_NAMES = Object.fromEntries(PHASES);
const PHASE_ORDER = Object.fromEntries(PHASES.map(([name], index) => [name, index]));

export function phaseOf(stream) {
  if (stream.stalled) return 'stalled';
  if (stream.phase === 'streaming' && stream.waiting_for === 'client') return 'slow_client';
  return stream.phase;
}

const SORTS = {
  phase: (stream) => -PHASE_ORDER[phaseOf(stream)],
  model: (stream) => stream.model ?? '',
  route: (stream) => stream.route ?? '',
  tenant: (stream) => stream.tenant ?? '',
  session: (stream) => stream.session ?? '',
  tokens: (stream) => stream.tokens,
  rate: (stream) => stream.rate_now ?? -1,
  idle: (stream) => stream.idle_seconds ?? -1,
  age: (stream) => stream.age_seconds,
};
/** Without a chosen order: stalled streams, then slow clients, then the others. */
const attention = (stream) => -Math.min(2, PHASE_ORDER[phaseOf(stream)] ?? 2);

/** Sorts by a column, highest first ("-column": lowest first); the oldest stream first among equals. Names go from A to Z. */
function sortStreams(streams, sort) {
  const column = sort?.replace(/^-/, '');
  const read = SORTS[column] ?? attention;
  const sign = sort?.startsWith('-') ? -1 : 1;
  const keyed = streams.map((stream) => ({ stream, key: read(stream) }));
  const order = (a, b) => (typeof a === 'string' ? (a < b ? -1 : a > b ? 1 : 0) : b - a);
  keyed.sort(
    (a, b) =>
      sign * order(a.key, b.key) ||
      a.stream.started_unix_ms - b.stream.started_unix_ms ||
      a.stream.request_number - b.stream.request_number,
  );
  return keyed.map(({ stream }) => stream);
}

export class StreamsView extends Component {
  narrow = matchMedia('(max-width: 760px)');
  follow = () => this.forceUpdate();

  componentDidMount() {
    this.narrow.addEventListener('change', this.follow);
    keys.pause = () => this.togglePause();
  }

  componentWillUnmount() {
    this.narrow.removeEventListener('change', this.follow);
    keys.pause = null;
  }

  togglePause() {
    const { store } = this.props;
    this.setState(({ paused }) => ({ paused: paused ? null : { streams: [...store.streams.values()], at: store.at } }));
  }

  render({ store, params }, { paused }) {
    const all = paused?.streams ?? [...store.streams.values()];
    const phase = params.phase;
    const counts = new Map();
    for (const stream of all) counts.set(phaseOf(stream), (counts.get(phaseOf(stream)) ?? 0) + 1);
    const fitting = all.filter((stream) => matches(stream, params) && (!phase || phaseOf(stream) === phase));
    const shown = sortStreams(fitting, params.sort);
    const select = (id) => set({ sel: id });
    keys.list = {
      get ids() {
        return shown.map(({ request_number: id }) => String(id));
      },
      selected: params.sel,
      select,
    };
    const sort = (next) => set({ sort: next });
    const selected = params.sel ? all.find(({ request_number: id }) => String(id) === params.sel) : null;
    const narrow = this.narrow.matches;
    const heading = (metric, name, label, className) =>
      html`<${Heading} metric=${metric} label=${label} sort=${name} sorted=${params.sort} onSort=${sort} className=${className} />`;
    const head = html`<div class="row head" role="row" aria-rowindex="1">
      ${heading('phase', 'phase', 'phase')}${heading(null, 'model', 'model')}${heading(null, 'route', 'route', 'label')}${heading(null, 'tenant', 'tenant', 'label tenant')}${heading(null, 'session', 'session', 'label session')}
      ${heading('tokens', 'tokens', 'tokens', 'num')}${heading('rate_now', 'rate', 'tokens/s', 'num')}${heading('idle_seconds', 'idle', 'idle', 'num')}${heading('age_seconds', 'age', 'age', 'num')}<span role="columnheader">stages so far</span>
    </div>`;
    return html`<div class="streams">
      <${FilterBar} params=${params} onChange=${set} labels=${['provider', 'model', 'route', 'tenant', 'session']} shown=${shown.length} total=${all.length + (store.streams_left_out ?? 0)} noun="requests in flight">
        <${Segmented} label="Phase" value=${phase ?? ''} onChange=${(value) => set({ phase: value || null })} options=${[['', 'all'], ...PHASES.filter(([name]) => counts.has(name) || name === phase).map(([name, text]) => [name, html`<span class="phase-dot phase-${name}" aria-hidden="true"></span>${text} ${counts.get(name) ?? 0}`])]} />
        <button type="button" aria-pressed=${Boolean(paused)} onClick=${() => this.togglePause()} title="( p )">${paused ? 'Resume' : 'Pause'}</button>
        ${paused && html`<span class="paused" role="status">paused at ${clock(paused.at)}, ${age((store.clock - paused.at) / 1000)} ago</span>`}
      <//>
      ${store.streams_left_out > 0 && html`<p class="note">${count(store.streams_left_out)} more are left out; the limit is ${count(store.settings.max_streams)}.</p>`}
      <div class="grid-table stream-table">
        ${shown.length === 0 && html`<p class="no-rows">${all.length ? 'No request in flight fits the filter.' : 'No request is in flight.'}</p>`}
        <${VirtualList} items=${shown} id=${(stream) => stream.request_number} selected=${params.sel} rowHeight=${narrow ? NARROW_ROW_HEIGHT : ROW_HEIGHT} label="Requests in flight" head=${head}
          row=${(stream, index, style, id) => html`<${StreamRow} key=${id} stream=${stream} index=${index} style=${style} selected=${params.sel === String(id)} />`} />
      </div>
      ${selected ? html`<${StreamDetail} stream=${selected} onClose=${() => select(null)} />` : params.sel && html`<p class="note" role="status">Request ${clean(params.sel, 20)} has ended. <a href=${`#requests?sel=${encodeURIComponent(params.sel)}`}>Look for it under Requests</a></p>`}
    </div>`;
  }
}

/** The stages, with the time since the last token of a stalled stream apart. */
function stagesWithIdle(stream) {
  if (!stream.stalled || !stream.idle_seconds || !stream.stages?.decode) return stream.stages;
  const idle = Math.min(stream.idle_seconds, stream.stages.decode);
  return { ...stream.stages, decode: stream.stages.decode - idle, stalled: idle };
}

class StreamRow extends Component {
  /** A row that only stays while others scroll is not rendered again. */
  shouldComponentUpdate(next) {
    const { stream, index, selected } = this.props;
    return (
      stream !== next.stream ||
      index !== next.index ||
      selected !== next.selected ||
      this.props.style.height !== next.style.height
    );
  }

  render({ stream, index, style, selected }) {
    const phase = phaseOf(stream);
    return html`<div class="row stream phase-row-${phase}" role="row" aria-rowindex=${index + 2} aria-selected=${selected} style=${style} data-id=${stream.request_number} onClick=${() => set({ sel: selected ? null : stream.request_number })}>
      <span role="cell" class="phase">
        <span class="phase-dot phase-${phase}" aria-hidden="true"></span>${PHASE_NAMES[phase] ?? clean(phase, 20)}</span>
      <span role="cell" class="model"><${Name} of=${stream.model} /></span><span role="cell" class="label">
        <${Name} of=${stream.route} /></span><span role="cell" class="label tenant"><${Name} of=${stream.tenant} /></span>
        <span role="cell" class="label session"><${Name} of=${stream.session} /></span>
      <span role="cell" class="num">
        <${Value} metric="tokens" text=${stream.tokens ? count(stream.tokens) : UNKNOWN} raw=${stream.tokens} />
        <span class="narrow-unit"> tokens</span></span>
      <span role="cell" class="num">
        <${Value} metric="rate_now" text=${number(stream.rate_now)} reason=${stream.tokens ? null : 'no token yet'} />
        <span class="narrow-unit"> /s</span></span>
      <span role="cell" class="num ${phase === 'stalled' ? 'bad' : ''}">
        <${Value} metric="idle_seconds" text=${seconds(stream.idle_seconds)} /><span class="narrow-unit"> idle</span></span>
      <span role="cell" class="num age">${age(stream.age_seconds)}</span>
      <span role="cell" class="bar">
        <${StageBar} stages=${stagesWithIdle(stream)} format=${seconds} share=${Math.min(1, stream.age_seconds / FULL_BAR_SECONDS)} /></span>
    </div>`;
  }
}

function StreamDetail({ stream, onClose }) {
  const rows = [
    ['request', stream.request_number],
    ['phase', PHASE_NAMES[phaseOf(stream)] ?? stream.phase],
    ['waits for', stream.waiting_for],
    ['provider', stream.provider],
    ['model', stream.model],
    ['route', stream.route],
    ['path', stream.path],
    ['tenant', stream.tenant],
    ['session', stream.session],
    ['started', clock(stream.started_unix_ms)],
    ['age', age(stream.age_seconds)],
    ['time to first token', seconds(stream.time_to_first_token_seconds)],
    ['tokens', stream.tokens ? count(stream.tokens) : null],
    [
      'tokens/s since the first token',
      stream.output_tokens_per_second === null ? null : number(stream.output_tokens_per_second),
    ],
    ['idle', seconds(stream.idle_seconds)],
  ];
  return html`<aside class="detail" aria-label="Selected request">
    <button type="button" class="close" aria-label="Close" onClick=${onClose}>×</button>
    <h2>Request ${stream.request_number}</h2>
    <dl>${rows.map(([label, value]) => html`<div><dt>${label}</dt><dd><${Name} of=${value} limit=${300} /></dd></div>`)}</dl>
    <h3>Stages so far</h3><${StageBar} stages=${stagesWithIdle(stream)} format=${seconds} />
    <dl>${Object.entries(stream.stages ?? {}).map(
      ([name, value]) => html`<div><dt>
      <span class="stage-dot stage-${name}" aria-hidden="true"></span>${name}</dt>
      <dd>${seconds(value)}</dd></div>`,
    )}</dl></aside>`;
}
