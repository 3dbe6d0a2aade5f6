// Two models, routes, providers or variants side by side. The console asks for both; A and B always differ.
import { html } from '../dom.js';
import { clean, count, number, percent, seconds, UNKNOWN } from '../format.js';
import { distribution, medianInterval, shareInterval } from '../histogram.js';
import { keys } from '../keys.js';
import { set } from '../route.js';
import { groupBy, recent } from '../series.js';
import { Empty, Name, Segmented, Value } from '../ui.js';

const DIMENSIONS = [
  ['model', 'models'],
  ['route', 'routes'],
  ['provider', 'providers'],
  ['variant', 'variants'],
];
const MEASURES = [
  {
    key: 'ttft',
    title: 'TTFT',
    noun: 'TTFT',
    metric: 'time_to_first_token_seconds',
    format: seconds,
    short: seconds,
    better: 'lower',
  },
  {
    key: 'rate',
    title: 'Output rate of a stream',
    noun: 'output rate',
    metric: 'stream_output_tokens_per_second',
    format: (value) => (value === null ? UNKNOWN : `${number(value)} tokens/s`),
    short: number,
    better: 'higher',
  },
];
const WIDTH = 640;
const HEIGHT = 150;

export function CompareView({ store, params }) {
  keys.list = null;
  const dimension = DIMENSIONS.some(([name]) => name === params.by) ? params.by : 'model';
  const options = groupBy([...store.groups.values()], dimension);
  const find = (name) => options.find(({ key }) => key === name) ?? null;
  const a = find(params.a);
  const b = params.b === params.a ? null : find(params.b);
  const choose = (
    side,
    other,
  ) => html`<label><span><span class="swatch ${side}" aria-hidden="true"></span>${side.toUpperCase()}</span>
    <select value=${params[side] ?? ''} onChange=${(event) => set({ [side]: event.target.value || null })} data-side=${side}>
      <option value="">choose …</option>
      ${options.map(({ key }) => html`<option value=${key} selected=${params[side] === key} disabled=${key === params[other]}>${clean(key, 80)}</option>`)}
    </select></label>`;
  return html`<div class="compare-choice">
      <${Segmented} label="Compare" value=${dimension} options=${DIMENSIONS} onChange=${(value) => set({ by: value, a: null, b: null })} />
      ${choose('a', 'b')}${choose('b', 'a')}
      ${a && b && html`<button type="button" onClick=${() => set({ a: params.b, b: params.a })}>Swap</button>`}
    </div>
    ${
      options.length < 2
        ? html`<${Empty} title=${`Fewer than two ${DIMENSIONS.find(([name]) => name === dimension)[1]} had traffic in the last 15 minutes`} />`
        : !a || !b
          ? html`<${Empty} title="Choose A and B">The comparison covers the last 15 minutes.<//>`
          : html`<${Comparison} store=${store} a=${a} b=${b} />`
    }`;
}

function Comparison({ store, a, b }) {
  const cells = [a, b].map(({ groups }) => recent(store, groups, store.settings.window_seconds));
  return html`<div class="compare-grid">
    ${MEASURES.map((measure) => html`<${Measure} key=${measure.key} measure=${measure} names=${[a.key, b.key]} histograms=${cells.map((cell) => cell.histogram(measure.key))} />`)}
    <section><h2>Errors and cost</h2>
      <${Totals} cells=${cells} names=${[a.key, b.key]} currency=${store.now.cost_per_hour?.currency} /></section>
  </div>`;
}

function Measure({ measure, names, histograms }) {
  const medians = histograms.map(medianInterval);
  return html`<section data-measure=${measure.key}><h2>${measure.title}</h2>
    <p class="compare-verdict">${verdict(measure, names, medians)}</p>
    <${Distribution} histograms=${histograms} medians=${medians} short=${measure.short} />
    <div class="table-scroll" tabindex="0" role="group" aria-label=${`Medians of ${measure.title}`}><table class="plain-table">
      <thead><tr><th scope="col"><span class="sr-only">side</span></th><th scope="col" class="num">median</th>
      <th scope="col" class="num" title="By order statistics, widened to the edges of the buckets.">95 % confidence interval</th>
      <th scope="col" class="num">streams</th></tr></thead><tbody>
      ${medians.map(
        (
          median,
          index,
        ) => html`<tr data-side=${'ab'[index]}><th scope="row"><span class="swatch ${'ab'[index]}" aria-hidden="true"></span>
          <${Name} of=${names[index]} limit=${60} /></th>
        <td class="num">
          <${Value} metric=${measure.metric} text=${median ? measure.format(median.median) : UNKNOWN} raw=${median?.median} reason="no stream in the last 15 minutes" /></td>
        <td class="num">${median?.low != null ? `${measure.short(median.low)} to ${measure.format(median.high)}` : html`<${Value} text=${UNKNOWN} reason="fewer than 6 streams" />`}</td>
          <td class="num">${count(median?.count ?? 0)}</td></tr>`,
      )}
    </tbody></table></div></section>`;
}

/** Says which median is better only if the confidence intervals do not overlap. */
function verdict(measure, names, [left, right]) {
  if (!left?.low || !right?.low) return 'Too few streams to compare the medians.';
  if (left.low <= right.high && right.low <= left.high) return 'No difference shown: the intervals of the medians overlap.';
  const lower = left.median < right.median ? 0 : 1;
  const better = measure.better === 'lower' ? lower : 1 - lower;
  const [low, high] = [Math.min(left.median, right.median), Math.max(left.median, right.median)];
  return html`<span class="swatch ${'ab'[better]}" aria-hidden="true"></span>${'AB'[better]}, <${Name} of=${names[better]} limit=${40} />: the median ${measure.noun} is ${number(high / low)} times ${measure.better}.`;
}

/** Share of streams per bucket, on a logarithmic axis, so that all buckets have the same width. */
function Distribution({ histograms, medians, short }) {
  const parts = histograms.map(distribution);
  const present = parts.flat().filter(([low]) => low > 0);
  if (present.length === 0) return html`<${Empty} title="No stream in the last 15 minutes" />`;
  const low = Math.log2(Math.min(...present.map(([from]) => from)));
  const high = Math.log2(Math.max(...present.map(([, to]) => to)));
  const highest = Math.max(...present.map(([, , share]) => share));
  const x = (value) => ((Math.log2(value) - low) / Math.max(0.125, high - low)) * WIDTH;
  const y = (share) => HEIGHT - (share / highest) * (HEIGHT - 14);
  const outline = (buckets) => {
    let path = '';
    let former = null;
    for (const [from, to, share] of buckets.filter(([start]) => start > 0)) {
      if (former === null) path += `M${x(from)} ${HEIGHT}`;
      else if (from > former * 1.001) path += `L${x(former)} ${HEIGHT}L${x(from)} ${HEIGHT}`;
      path += `L${x(from)} ${y(share)}L${x(to)} ${y(share)}`;
      former = to;
    }
    return former === null ? '' : `${path}L${x(former)} ${HEIGHT}Z`;
  };
  const ticks = [];
  for (let power = Math.ceil(low); power <= Math.floor(high); power += Math.max(1, Math.ceil((high - low) / 6)))
    ticks.push(2 ** power);
  const left = (value) => ({ left: `${(x(value) / WIDTH) * 100}%` });
  return html`<div class="dist-box" role="img" aria-label="Distribution of A and B: share of streams per value, logarithmic axis">
    <svg class="dist" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
      ${parts.map((buckets, index) => html`<path class=${'ab'[index]} d=${outline(buckets)} />`)}
      ${medians.map((median, index) => median && html`<line class="median-${'ab'[index]}" x1=${x(median.median)} x2=${x(median.median)} y1="0" y2=${HEIGHT} />`)}
    </svg>
    <div class="axis-labels">${ticks.filter((tick) => x(tick) > WIDTH * 0.03 && x(tick) < WIDTH * 0.95).map((tick) => html`<span style=${left(tick)}>${short(tick)}</span>`)}</div></div>`;
}

function Totals({ cells, names, currency }) {
  const rows = cells.map((cell) => {
    const finished = cell.total('finished');
    const errors = cell.errors('upstream') + cell.errors('proxy');
    const cost = cell.intervals.some((interval) => interval.cost) ? cell.total('cost') : null;
    const output = cell.total('output_tokens');
    return {
      finished,
      share: shareInterval(errors, finished),
      errors,
      cost,
      perRequest: cost === null || !finished ? null : cost / finished,
      perMillion: cost === null || !output ? null : (cost / output) * 1e6,
      estimated: cell.total('estimated_cost') > 0,
    };
  });
  const price = (value) => (value === null ? UNKNOWN : `${number(value)} ${clean(currency ?? '', 8)}`.trim());
  const row = (label, read, title) =>
    html`<tr>
      <th scope="row" title=${title}>${label}</th>${rows.map((values) => html`<td class="num">${read(values)}</td>`)}</tr>`;
  return html`<div class="table-scroll" tabindex="0" role="group" aria-label="Errors and cost"><table class="plain-table">
    <thead><tr><th scope="col">
    <span class="sr-only">quantity</span></th>${names.map(
      (name, index) => html`<th scope="col" class="num">
    <span class="swatch ${'ab'[index]}" aria-hidden="true"></span><${Name} of=${name} limit=${40} /></th>`,
    )}</tr></thead><tbody>
    ${row('finished requests', ({ finished }) => count(finished))}
    ${row('errors of upstream and proxy', ({ share }) => html`<${Value} metric="error_share" text=${percent(share?.share)} raw=${share?.share} />`, 'Share of finished requests')}
    ${row('95 % confidence interval', ({ share }) => (share ? `${percent(share.low)} to ${percent(share.high)}` : UNKNOWN), 'Wilson interval')}
    ${row('cost per request', ({ perRequest, estimated }) => html`<${Value} metric="cost_per_hour" text=${price(perRequest)} estimated=${estimated} />`)}
    ${row('cost per million output tokens', ({ perMillion, estimated }) => html`<${Value} metric="cost_per_hour" text=${price(perMillion)} estimated=${estimated} />`, 'Whole cost, divided by the output tokens')}
  </tbody></table></div>`;
}
