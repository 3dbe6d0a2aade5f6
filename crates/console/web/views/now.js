// What is wrong, first; then the numbers of the last minute with 15 minutes behind them; then the same by model.
import { html } from '../dom.js';
import { DEFINITIONS, tileOfRunbook } from '../definitions.js';
import { age, amount, clean, clockMinutes, count, number, percent, seconds } from '../format.js';
import { keys } from '../keys.js';
import { link, set, VIEWS } from '../route.js';
import { bins, groupBy, highestGauge, intervalsPerPoint, recent, wholeBins } from '../series.js';
import { Empty, Info, Name, Sparkline, Value } from '../ui.js';
import { hasCost } from './capacity.js';

const VIEW_NAMES = Object.fromEntries(VIEWS);
/** Sparklines, computed once per change of the history. */
let cache = { version: -1, last: -1 };

function sparklines(store) {
  const window = store.window;
  if (cache.version === store.historyVersion && cache.last === window[1]) return cache.lines;
  const perPoint = intervalsPerPoint(store, (window[1] - window[0] + 1) * store.intervalSeconds);
  const range = wholeBins(window, perPoint);
  const groups = [...store.groups.values()];
  const line = (read) => bins(store, groups, range, perPoint, read);
  const lines = {
    requests_per_second: line((cell) => cell.rate('finished')),
    error_share: line((cell) => cell.errorShare()),
    output_tokens_per_second: line((cell) => cell.rate('output_tokens')),
    stream_output_tokens_per_second: line((cell) => cell.percentile('rate', 0.5)),
    time_to_first_token_seconds: line((cell) => cell.percentile('ttft', 0.95)),
    inter_token_latency_seconds: line((cell) => cell.percentile('itl', 0.95)),
    in_flight: highestGauge(store, groups, range, perPoint, 'in_flight'),
    queue_depth: highestGauge(store, groups, range, perPoint, 'queue_depth'),
    stalled: highestGauge(store, groups, range, perPoint, 'stalled'),
    cost_per_hour: line((cell) => (cell.intervals.some((interval) => interval.cost) ? cell.rate('cost') * 3600 : null)),
    worst_burn_rate: Array.from({ length: range[1] - range[0] + 1 }, (_, index) => store.burnRates.get(range[0] + index) ?? null),
  };
  const estimatedShare = recent(store, groups, 60).estimatedShare();
  cache = { version: store.historyVersion, last: window[1], lines: { ...lines, estimatedShare } };
  return cache.lines;
}

export function NowView({ store, params }) {
  return html`<${Conditions} store=${store} params=${params} /><${Tiles} store=${store} /><${Models} store=${store} />`;
}

function Conditions({ store, params }) {
  const { conditions } = store;
  keys.list = { ids: conditions.map(({ id }) => id), selected: params.sel, select: (id) => set({ sel: id }) };
  if (conditions.length === 0) {
    const traffic = store.now.in_flight > 0 || [...store.groups.values()].some((group) => group.intervals.size > 0);
    if (!traffic)
      return html`<section class="verdict-box quiet" aria-label="What is wrong"><h1>No traffic yet</h1>
        <p>No request has ended in the last 15 minutes and none is in flight. Point a client at the proxy; numbers appear within a second.</p></section>`;
    return html`<section class="verdict-box good" aria-label="What is wrong"><h1>
      <span aria-hidden="true">✓</span> Nothing is wrong</h1><p>No condition fails.</p></section>`;
  }
  const critical = conditions.filter(({ severity }) => severity === 'critical').length;
  return html`<section class="verdict-box ${critical ? 'critical' : 'warning'}" aria-label="What is wrong">
    <h1>${conditions.length === 1 ? '1 condition fails' : `${conditions.length} conditions fail`}</h1>
    <ul class="conditions">${conditions.map((condition) => html`<${Condition} key=${condition.id} condition=${condition} clock=${store.clock} selected=${params.sel === condition.id} />`)}</ul>
  </section>`;
}

function Condition({ condition, clock, selected }) {
  const view = condition.view in VIEW_NAMES ? condition.view : 'charts';
  return html`<li class="condition ${condition.severity}" aria-current=${selected ? 'true' : null}>
    <span class="severity ${condition.severity}">${condition.severity === 'critical' ? '▲ critical' : '◆ warning'}</span>
    <span class="condition-text">
      <a href=${link(view, condition.filter ?? {})} title=${clean(condition.text)}>${clean(condition.text, 240)}</a></span>
    <span class="since" title="since this time">since ${clockMinutes(condition.since_unix_ms)} <span class="since-age">(${age((clock - condition.since_unix_ms) / 1000)})</span></span>
    <span class="actions"><a class="action first" href=${link(view, condition.filter ?? {})}>Show ${VIEW_NAMES[view]}</a>
    ${condition.runbook && html`<a class="action" href=${`runbooks/${encodeURIComponent(condition.runbook)}`} target="_blank" rel="noopener">Runbook</a>`}</span>
  </li>`;
}

function Tile({ metric, view, lines, failing, children, format, note }) {
  const worst = failing[metric];
  return html`<article class="tile ${worst ?? ''}" data-tile=${metric}>
    <h2>
      <a href=${link(view)}>${DEFINITIONS[metric].label}</a> ${worst && html`<span class="tile-severity">${worst === 'critical' ? '▲' : '◆'} ${worst}</span>`}<${Info} metric=${metric} /></h2>
    <div class="tile-value">${children}</div>
    <${Sparkline} values=${lines[metric]} label=${DEFINITIONS[metric].label} format=${format} />
    <div class="tile-note">${note}</div>
  </article>`;
}

function Tiles({ store }) {
  const { now } = store;
  const lines = sparklines(store);
  const failing = {};
  for (const { runbook, severity } of store.conditions) {
    const tile = tileOfRunbook(runbook);
    if (tile && failing[tile] !== 'critical') failing[tile] = severity;
  }
  const tile = (metric, view, format, { value, text = format(value), unit, estimated, note }) =>
    html`<${Tile} metric=${metric} view=${view} lines=${lines} failing=${failing} format=${format} note=${note}>
      <${Value} className="big" metric=${metric} raw=${value} text=${text} estimated=${estimated} />${' '}
      <span class="unit">${unit}</span>
    <//>`;
  const percentile = (metric, name, value, format) =>
    html`${name} <${Value} metric=${metric} raw=${value} text=${format(value)} />`;
  const errors = now.error_share;
  const rate = now.stream_output_tokens_per_second;
  const ttft = now.time_to_first_token_seconds;
  const itl = now.inter_token_latency_seconds;
  const estimated = lines.estimatedShare > 0;
  return html`<section class="tiles" aria-label="Last minute">
    ${tile('time_to_first_token_seconds', 'charts', seconds, {
      value: ttft?.p95,
      unit: 'p95',
      note: percentile('time_to_first_token_seconds', 'p50', ttft?.p50, seconds),
    })}
    ${tile('error_share', 'requests', percent, {
      value: errors && errors.client + errors.upstream + errors.proxy,
      note: `upstream ${percent(errors?.upstream)}, proxy ${percent(errors?.proxy)}, client ${percent(errors?.client)}`,
    })}
    ${tile('stalled', 'streams', count, { value: now.stalled, unit: 'streams', note: 'now' })}
    ${tile('queue_depth', 'charts', count, { value: now.queue_depth, unit: 'requests', note: 'now' })}
    ${tile('worst_burn_rate', 'slos', number, burnRate(now.worst_burn_rate))}
    ${tile('stream_output_tokens_per_second', 'charts', number, {
      value: rate?.p50,
      unit: 'p50',
      note: percentile('stream_output_tokens_per_second', 'p10', rate?.p10, number),
    })}
    ${tile('inter_token_latency_seconds', 'charts', seconds, {
      value: itl?.p95,
      unit: 'p95',
      note: percentile('inter_token_latency_seconds', 'p50', itl?.p50, seconds),
    })}
    ${tile('requests_per_second', 'charts', number, { value: now.requests_per_second, unit: '/s' })}
    ${tile('output_tokens_per_second', 'charts', number, {
      value: now.output_tokens_per_second,
      unit: 'tokens/s',
      estimated,
      note: estimated ? `${percent(lines.estimatedShare)} estimated` : null,
    })}
    ${tile('in_flight', 'streams', count, { value: now.in_flight, unit: 'requests', note: 'now' })}
    ${hasCost(store) && tile('cost_per_hour', 'cost', number, costPerHour(now.cost_per_hour))}
  </section>`;
}

function burnRate(worst) {
  if (!worst) return { value: null, note: 'no window is covered yet' };
  const { slo, window, burn_rate: value } = worst;
  const name = html`<bdi class="name" title=${clean(slo)}>${clean(slo, 40)}</bdi>`;
  return { value, unit: '×', note: html`${name}, ${window} window; ${covered(worst)}` };
}

function costPerHour(cost) {
  const estimated = cost?.estimated_share > 0;
  return {
    value: cost?.amount,
    text: amount(cost),
    unit: cost ? `${clean(cost.currency, 8)}/h` : '',
    estimated,
    note: estimated ? `${percent(cost.estimated_share)} from estimates` : null,
  };
}

/** "5 h of 30 d covered", as the window of the SLO is longer than the process has run. */
function covered({ covered_seconds: part, window_seconds: whole }) {
  return part >= whole ? `${age(whole)} covered` : `${age(part)} of ${age(whole)} covered`;
}

let modelCache = { version: -1 };

function modelRows(store) {
  if (modelCache.version === store.historyVersion) return modelCache.rows;
  const rows = groupBy([...store.groups.values()], 'model').map(({ key, groups }) => {
    const cell = recent(store, groups, 60);
    return {
      model: key,
      provider: groups[0].provider,
      cell,
      ttft: cell.histogram('ttft'),
      p95: cell.percentile('ttft', 0.95),
      p50: cell.percentile('ttft', 0.5),
      rate: cell.percentile('rate', 0.5),
      finished: cell.total('finished'),
    };
  });
  modelCache = { version: store.historyVersion, rows };
  return rows;
}

function Models({ store }) {
  const rows = modelRows(store);
  if (rows.length === 0) return html`<${Empty} title="No model has had traffic in the last 15 minutes" />`;
  const live = new Map();
  for (const stream of store.streams.values()) {
    const entry = live.get(stream.model) ?? { open: 0, stalled: 0, queued: 0 };
    entry.open += 1;
    if (stream.stalled) entry.stalled += 1;
    if (stream.phase === 'queued') entry.queued += 1;
    live.set(stream.model, entry);
  }
  const worst = (model) =>
    store.conditions
      .filter(({ filter }) => filter?.model === model)
      .map(({ severity }) => severity)
      .sort()[0] ?? null;
  return html`<section class="by-model" aria-label="By model"><h2>By model <span class="unit">last 60 s</span></h2>
    <div class="table-scroll" tabindex="0" role="group" aria-label="Table by model"><table>
    <thead><tr><th scope="col">model</th><th scope="col">provider</th><th scope="col" class="num">TTFT p95</th>
      <th scope="col" class="num">p50</th><th scope="col" class="num">errors</th>
      <th scope="col" class="num" title=${DEFINITIONS.stream_output_tokens_per_second.text}>tokens/s per stream</th>
      <th scope="col" class="num">tokens/s</th><th scope="col" class="num">requests/s</th>
      <th scope="col" class="num">in flight</th><th scope="col" class="num">queued</th>
      <th scope="col" class="num">stalled</th></tr></thead>
    <tbody>${rows.map(({ model, provider, cell, p95, p50, rate }) => {
      const open = live.get(model) ?? { open: 0, stalled: 0, queued: 0 };
      const severity = worst(model);
      const estimated = cell.estimatedShare() > 0;
      return html`<tr key=${model} class=${severity ?? ''} data-model=${clean(model, 80)}>
        <th scope="row"><a href=${link('charts', { model })}>
          <${Name} of=${model} limit=${80} /></a>${severity && html` <span class="severity ${severity}">${severity === 'critical' ? '▲' : '◆'} ${severity}</span>`}</th>
        <td><${Name} of=${provider} limit=${40} /></td>
        <td class="num"><${Value} metric="time_to_first_token_seconds" raw=${p95} text=${seconds(p95)} /></td><td class="num">
          <${Value} metric="time_to_first_token_seconds" raw=${p50} text=${seconds(p50)} /></td>
        <td class="num"><${Value} metric="error_share" text=${percent(cell.errorShare())} /></td>
        <td class="num"><${Value} metric="stream_output_tokens_per_second" text=${number(rate)} /></td>
        <td class="num">
          <${Value} metric="output_tokens_per_second" text=${number(cell.rate('output_tokens'))} estimated=${estimated} /></td>
        <td class="num">${number(cell.rate('finished'))}</td><td class="num">${open.open}</td>
          <td class="num">${open.queued}</td><td class="num ${open.stalled ? 'bad' : ''}">${open.stalled}</td></tr>`;
    })}</tbody></table></div></section>`;
}
