// Engines, rate limits and cost. The navigation hides a view that has nothing to show.
import { html } from '../dom.js';
import { age, clean, count, money, percent, UNKNOWN } from '../format.js';
import { keys } from '../keys.js';
import { link, matches, set } from '../route.js';
import { groupBy, recent } from '../series.js';
import { Empty, FilterBar, Name, Segmented, Value } from '../ui.js';

/** From this share on, a rate limit is marked as near, as in the alert LLMRateLimitNear. */
const NEAR_LIMIT = 0.9;
const COST_DIMENSIONS = [
  ['model', 'model'],
  ['provider', 'provider'],
  ['route', 'route'],
  ['tenant', 'tenant'],
];

export const hasCost = (store) =>
  Boolean(store.now?.cost_per_hour) ||
  [...store.groups.values()].some((group) => [...group.intervals.values()].some((interval) => interval.cost > 0));

const scroll = (label, table) => html`<div class="table-scroll" tabindex="0" role="group" aria-label=${label}>${table}</div>`;
const stale = (value, text) =>
  html`<${Value} text=${value === null || value === undefined ? UNKNOWN : text} reason="the engine does not report it, or the last report is too old" />`;

function Meter({ share, near }) {
  if (share === null || share === undefined) return null;
  return html`<span class="meter ${share >= near ? 'low' : ''}" role="img" aria-label=${percent(share)}>
    <span style=${{ width: `${Math.min(100, share * 100)}%` }}></span></span>`;
}

export function EnginesView({ store }) {
  keys.list = null;
  const engines = store.engines ?? [];
  if (engines.length === 0)
    return html`<${Empty} title="No engine is scraped">Set engine_metrics of an upstream to see its queue and cache here.<//>`;
  return scroll(
    'Engines',
    html`<table><thead><tr><th scope="col">upstream</th><th scope="col">engine</th><th scope="col" class="num">running</th>
      <th scope="col" class="num">waiting</th><th scope="col" class="num">KV cache used</th><th scope="col"></th>
      <th scope="col" class="num">prefix cache hits</th><th scope="col">state</th>
      <th scope="col" class="num">last report</th></tr></thead>
    <tbody>${engines.map(
      (engine) => html`<tr key=${engine.upstream}><th scope="row"><${Name} of=${engine.upstream} /></th><td>
        <${Name} of=${engine.engine} /></td><td class="num">${stale(engine.running, count(engine.running))}</td>
        <td class="num ${engine.waiting > 0 ? 'bad' : ''}">${stale(engine.waiting, count(engine.waiting))}</td>
      <td class="num">${stale(engine.kv_cache_utilization, percent(engine.kv_cache_utilization))}</td><td class="meter-cell">
        <${Meter} share=${engine.kv_cache_utilization} near=${NEAR_LIMIT} /></td>
        <td class="num">${stale(engine.prefix_cache_hit_ratio, percent(engine.prefix_cache_hit_ratio))}</td>
      <td>${engine.asleep ? 'asleep' : clean(engine.warmup_state ?? UNKNOWN, 20)}</td>
        <td class="num">${stale(engine.scrape_age_seconds, `${age(engine.scrape_age_seconds)} ago`)}</td></tr>`,
    )}</tbody></table>`,
  );
}

export function RateLimitsView({ store, params }) {
  keys.list = null;
  const limits = (store.rate_limits ?? [])
    .filter((limit) => matches(limit, params))
    .sort((a, b) => (b.used_share ?? -1) - (a.used_share ?? -1));
  return html`<${FilterBar} params=${params} onChange=${set} labels=${['provider', 'model']} shown=${limits.length} total=${(store.rate_limits ?? []).length} noun="limits" />
    ${
      limits.length === 0
        ? html`<${Empty} title="No rate limit to show">Rate limits come from the response headers of providers.<//>`
        : scroll(
            'Rate limits',
            html`<table><thead><tr><th scope="col">provider</th><th scope="col">model</th><th scope="col">limit of</th>
              <th scope="col" class="num">used</th><th scope="col"></th><th scope="col" class="num">remaining</th>
              <th scope="col" class="num">limit</th><th scope="col" class="num">resets in</th></tr></thead>
    <tbody>${limits.map(
      (
        limit,
      ) => html`<tr key=${`${limit.provider} ${limit.model} ${limit.limit_type}`} class=${limit.used_share >= NEAR_LIMIT ? 'warning' : ''}>
        <td><${Name} of=${limit.provider} /></td><td><${Name} of=${limit.model} /></td>
        <td>${clean(String(limit.limit_type).replaceAll('_', ' '), 40)}</td>
      <td class="num">
        <${Value} metric="rate_limit_used" text=${percent(limit.used_share)} raw=${limit.used_share} />${limit.used_share >= NEAR_LIMIT && html` <span class="severity warning">◆ near</span>`}</td>
        <td class="meter-cell"><${Meter} share=${limit.used_share} near=${NEAR_LIMIT} /></td>
        <td class="num">${stale(limit.remaining, count(limit.remaining))}</td>
        <td class="num">${stale(limit.limit, count(limit.limit))}</td>
      <td class="num">${stale(limit.resets_unix_ms, age((limit.resets_unix_ms - store.clock) / 1000))}</td></tr>`,
    )}</tbody></table>`,
          )
    }`;
}

export function CostView({ store, params }) {
  keys.list = null;
  const dimension = COST_DIMENSIONS.some(([name]) => name === params.by) ? params.by : 'model';
  const groups = [...store.groups.values()].filter((group) => matches(group, params));
  const currency = store.now.cost_per_hour?.currency ?? '';
  const rows = groupBy(groups, dimension)
    .map(({ key, groups: members }) => {
      const window = recent(store, members, store.settings.window_seconds);
      const minute = recent(store, members, 60);
      const output = window.total('output_tokens');
      const priced = window.intervals.some((interval) => interval.cost > 0);
      const input = window.total('input_tokens');
      return {
        key,
        priced,
        cost: priced ? window.total('cost') : null,
        perHour: priced ? minute.rate('cost') * 3600 : null,
        perMillion: priced && output ? (window.total('cost') / output) * 1e6 : null,
        output,
        input,
        cached: input ? window.total('cached_input_tokens') / input : null,
        estimated: window.estimatedShare() > 0,
        estimatedCost: window.total('estimated_cost') > 0,
      };
    })
    .sort((a, b) => (b.cost ?? -1) - (a.cost ?? -1));
  const price = (value) => (value === null ? UNKNOWN : money({ amount: value, currency }));
  return html`<${FilterBar} params=${params} onChange=${set} labels=${['provider', 'model', 'route', 'tenant']} shown=${rows.length} total=${rows.length} noun="rows">
    <${Segmented} label="Rows by" value=${dimension} options=${COST_DIMENSIONS} onChange=${(value) => set({ by: value })} /><//>
    ${
      rows.length === 0
        ? html`<${Empty} title="No cost in the last 15 minutes">The key cost of the configuration sets prices.<//>`
        : scroll(
            'Cost',
            html`<table><thead><tr><th scope="col">${dimension}</th><th scope="col" class="num">last 15 min</th>
              <th scope="col" class="num">per hour, last 60 s</th><th scope="col" class="num">per million output tokens</th>
              <th scope="col" class="num">input tokens</th><th scope="col" class="num">cached</th>
              <th scope="col" class="num">output tokens</th></tr></thead>
    <tbody>${rows.map(
      (row) => html`<tr key=${row.key}><th scope="row"><a href=${link('charts', { [dimension]: row.key })}>
        <${Name} of=${row.key} /></a></th><td class="num">
        <${Value} metric="cost_per_hour" text=${price(row.cost)} estimated=${row.estimatedCost} /></td><td class="num">
        <${Value} metric="cost_per_hour" text=${price(row.perHour)} estimated=${row.estimatedCost} /></td><td class="num">
        <${Value} metric="cost_per_hour" text=${price(row.perMillion)} estimated=${row.estimatedCost} /></td>
      <td class="num">${count(row.input)}</td><td class="num">
        <${Value} metric="cached_share" text=${percent(row.cached)} /></td>
        <td class="num">${row.estimated && html`<span class="estimated" title="contains estimated tokens">≈ </span>`}${count(row.output)}</td></tr>`,
    )}</tbody></table>`,
          )
    }`;
}
