// The last 15 minutes, by one label. All charts share cursor, zoom and colours.
import { html, Component } from '../dom.js';
import { clean, clock, number, percent, seconds, count } from '../format.js';
import { tileOfRunbook } from '../definitions.js';
import { keys } from '../keys.js';
import { COLOURS, DASHES, Plot } from '../plot.js';
import { matches, set } from '../route.js';
import { bins, binTimes, groupBy, highestGauge, intervalsPerPoint, SOURCES, STAGES, wholeBins } from '../series.js';
import { Empty, FilterBar, Info, Name, Segmented, STAGE_NAMES } from '../ui.js';
import { EndedAt } from './requests.js';

const DIMENSIONS = [
  ['model', 'model'],
  ['route', 'route'],
  ['provider', 'provider'],
  ['tenant', 'tenant'],
];
const SHARES = [
  ['50', 'p50'],
  ['95', 'p95'],
  ['99', 'p99'],
];
/** Names with a line of their own; the others are one line. */
const LINES = COLOURS - 1;
/** Requests that ended this close to a chosen instant are listed. */
const AROUND_SECONDS = 5;

export class ChartsView extends Component {
  render({ store, live, params }) {
    keys.list = null;
    const dimension = DIMENSIONS.some(([name]) => name === params.by) ? params.by : 'model';
    const share = SHARES.some(([value]) => value === params.p) ? params.p : '95';
    const zoom = params.from && params.to ? [Number(params.from), Number(params.to)] : null;
    const groups = [...store.groups.values()].filter((group) => matches(group, params));
    const all = groupBy(groups, dimension);
    const controls = html`<${FilterBar} params=${params} onChange=${set} labels=${['provider', 'model', 'route', 'tenant']} shown=${all.length} total=${all.length} noun=${dimension === 'route' ? 'routes' : `${dimension}s`}>
      <${Segmented} label="Lines by" value=${dimension} options=${DIMENSIONS} onChange=${(value) => set({ by: value })} />
      <${Segmented} label="Percentile of latencies" value=${share} options=${SHARES} onChange=${(value) => set({ p: value })} />
      ${zoom ? html`<button type="button" class="chip" onClick=${() => set({ from: null, to: null })}>${clock(zoom[0] * 1000)} – ${clock(zoom[1] * 1000)} ×</button>` : html`<span class="note">drag to zoom, click an instant for its requests</span>`}
    <//>`;
    if (groups.length === 0)
      return html`${controls}<${Empty} title="No traffic in the last 15 minutes">${[...store.groups.values()].length ? 'Nothing fits the filter.' : null}<//>`;
    const failing = new Set(
      store.conditions
        .filter((condition) => matches(condition.filter ?? {}, params))
        .map(({ runbook }) => tileOfRunbook(runbook))
        .filter(Boolean),
    );
    const data = this.compute(store, groups, all, share, zoom, dimension, params);
    return html`${controls}
      ${gaps(store).map(([from, to]) => html`<p class="note gap">No data from ${clock(from)} to ${clock(to)}: the charts have a gap.</p>`)}
      <ul class="legend" aria-label="Lines">${data.lines.map(
        ({ name, label, colour: hue, dash }) => html`<li>
        <svg width="26" height="8" aria-hidden="true">
        <line x1="0" y1="4" x2="26" y2="4" class="legend-line" stroke=${`var(--${hue})`} stroke-width="3" stroke-dasharray=${dash.join(' ')} /></svg>${name === null ? html`<span>${label}</span>` : html`<${Name} of=${name} limit=${80} />`}</li>`,
      )}</ul>
      <div class="chart-grid">${data.charts.map(
        (
          chart,
        ) => html`<${Chart} key=${chart.id} ...${chart} failing=${failing.has(chart.metric)} times=${data.times} range=${data.range} zoom=${zoom}
        onZoom=${(from, to) => set({ from: from === null ? null : from.toFixed(1), to: to === null ? null : to.toFixed(1) })} onInstant=${(instant) => set({ at: Math.round(instant * 1000) })} />`,
      )}</div>
      ${params.at && html`<${EndedAt} key=${JSON.stringify([params.at, params.model, params.route, params.provider, params.tenant])} store=${store} live=${live} params=${params} around=${AROUND_SECONDS} />`}`;
  }

  /** Series of all charts. They change with the history, the filter and the zoom only. */
  compute(store, groups, all, share, zoom, dimension, params) {
    const window = store.window;
    const key = JSON.stringify([
      store.historyVersion,
      window,
      share,
      zoom,
      dimension,
      params.q,
      params.model,
      params.route,
      params.provider,
      params.tenant,
    ]);
    if (this.key === key) return this.data;
    this.key = key;
    const length = zoom ? zoom[1] - zoom[0] : (window[1] - window[0] + 1) * store.intervalSeconds;
    const perBin = intervalsPerPoint(store, length);
    const range = wholeBins(window, perBin);
    const named = all
      .slice(0, LINES)
      .map(({ key: name, groups: members }) => ({ name, label: clean(name, 60), groups: members }));
    const rest = all.slice(LINES).flatMap(({ groups: members }) => members);
    if (rest.length) named.push({ name: null, label: `${all.length - LINES} others`, groups: rest });
    const lines = named.map((line, index) => ({ ...line, colour: `c${index + 1}`, dash: DASHES[index] }));
    const part = Number(share) / 100;
    const by = (read) =>
      lines.map(({ label, groups: members, colour, dash }) => ({
        label,
        colour,
        dash,
        values: bins(store, members, range, perBin, read),
      }));
    const objective = (sli) =>
      (store.slos ?? [])
        .filter((slo) => slo.sli === sli && slo.threshold)
        .map((slo) => ({ value: slo.threshold.value, label: `objective ${clean(slo.name, 30)}` }));
    const charts = [
      {
        id: 'ttft',
        title: `TTFT p${share}`,
        metric: 'time_to_first_token_seconds',
        format: seconds,
        series: by((cell) => cell.percentile('ttft', part)),
        lines: objective('ttft'),
      },
      {
        id: 'errors',
        title: 'Errors by source',
        metric: 'error_share',
        format: percent,
        stacked: 'solid',
        series: SOURCES.map((source, index) => ({
          label: source,
          colour: ['c2', 'c4', 'c8'][index],
          values: bins(store, groups, range, perBin, (cell) => cell.errorShare(source)),
        })),
      },
      {
        id: 'rate',
        title: `Tokens/s per stream, ${slowRate(share)}`,
        metric: 'stream_output_tokens_per_second',
        format: number,
        series: by((cell) => cell.percentile('rate', 1 - part)),
        lines: objective('output_rate'),
      },
      {
        id: 'queue',
        title: 'Queue depth',
        metric: 'queue_depth',
        format: count,
        integers: true,
        series: lines.map(({ label, groups: members, colour, dash }) => ({
          label,
          colour,
          dash,
          values: highestGauge(store, members, range, perBin, 'queue_depth'),
        })),
      },
      {
        id: 'tokens',
        title: 'Output tokens/s',
        metric: 'output_tokens_per_second',
        format: number,
        series: by((cell) => cell.rate('output_tokens')),
      },
      {
        id: 'itl',
        title: `ITL p${share}`,
        metric: 'inter_token_latency_seconds',
        format: seconds,
        series: by((cell) => cell.percentile('itl', part)),
        lines: objective('inter_token'),
      },
      {
        id: 'stages',
        title: 'Stages, mean per finished request',
        metric: null,
        format: seconds,
        stacked: 'solid',
        series: STAGES.map((stage) => ({
          label: STAGE_NAMES[stage],
          colour: stage,
          values: bins(store, groups, range, perBin, (cell) => cell.stage(stage)),
        })).filter(({ values }) => values.some((value) => value > 0)),
      },
    ];
    const width = store.intervalSeconds;
    this.data = { lines, charts, times: binTimes(store, range, perBin), range: [window[0] * width, (window[1] + 1) * width] };
    return this.data;
  }
}

/** Times between the reported ranges of the window, as Unix milliseconds. */
function gaps(store) {
  const unixMs = (interval) => interval * store.intervalSeconds * 1000;
  return store.covered.slice(1).map(([first], index) => [unixMs(store.covered[index][1] + 1), unixMs(first)]);
}

/** The slow end of a rate is its low end: p95 of latencies goes with p5 of rates. */
const slowRate = (share) => `p${100 - Number(share)}`;

function Chart({ id, title, metric, failing, ...plot }) {
  const known = plot.series.some(({ values }) => values.some((value) => value !== null));
  return html`<section class="chart ${failing ? 'failing' : ''}" data-chart=${id} aria-label=${title}>
    <h2>${title}${failing && html` <span class="tile-severity">▲ failing</span>`}${metric && html`<${Info} metric=${metric} />`}</h2>
    ${known ? html`<${Plot} ...${plot} />` : html`<p class="chart-empty">– no values in this time</p>`}</section>`;
}
