// Error budgets: how much is left, how fast it goes, and what uses it.
import { html } from '../dom.js';
import { age, clean, count, number, percent, UNKNOWN } from '../format.js';
import { keys } from '../keys.js';
import { link, set } from '../route.js';
import { Empty, Info, Name, Value } from '../ui.js';

/** Below this part of the budget, the bar is marked. */
const LOW_BUDGET = 0.25;

export function SlosView({ store, params }) {
  const all = store.slos ?? [];
  const slos = all.filter(({ name }) => !params.slo || name === params.slo);
  keys.list = { ids: slos.map(({ name }) => name), selected: params.sel, select: (id) => set({ sel: id }) };
  if (all.length === 0)
    return html`<${Empty} title="No SLO is defined">The key slos of the configuration defines objectives.<//>`;
  return html`<h1 class="sr-only">SLOs</h1>
    <p class="note">This process only. The dashboard tokengauge-slo has the budgets of all replicas.</p>${
    params.slo &&
    html`<div class="filters">
    <button type="button" class="chip" onClick=${() => set({ slo: null })}>
    <span class="chip-label">SLO</span> <bdi class="name">${clean(params.slo, 60)}</bdi> ×</button></div>`
  }${slos.map((slo) => html`<${Slo} key=${slo.name} slo=${slo} selected=${params.sel === slo.name} />`)}`;
}

function threshold({ threshold: limit, sli }) {
  if (!limit) return sli === 'stall_free' ? 'no stall' : 'the request succeeds';
  const unit = limit.unit === '{token}/s' ? 'tokens/s' : limit.unit;
  return `${limit.good === 'from' ? 'at least' : 'at most'} ${number(limit.value)} ${clean(unit, 20)}`;
}

function scopeText(scope) {
  const parts = Object.entries(scope ?? {}).map(([key, value]) =>
    key === 'stream' ? (value ? 'streams only' : 'no streams') : `${key} ${clean(value, 60)}`,
  );
  return parts.length ? ` (${parts.join(', ')})` : '';
}

/** Seconds of a window such as "30m" or "3d". */
function windowSeconds(text) {
  return Number.parseFloat(text) * ({ s: 1, m: 60, h: 3600, d: 86_400 }[text.at(-1)] ?? 1);
}

/** Reasons in words; others are shown as they are. */
const REASONS = {
  client: 'the client caused the error or left',
  undefined: 'no value of the indicator, such as too few tokens',
  warmup: 'started during the warm-up of the process',
  warming: 'the backend was not warm',
  rate_limited: 'the upstream responded 429',
  overload: 'a limit of this proxy',
  shutdown: 'this proxy stopped',
};

function Slo({ slo, selected }) {
  const rates = Object.entries(slo.burn_rate ?? {}).sort(([a], [b]) => windowSeconds(a) - windowSeconds(b));
  const burning = rates.some(([, rate]) => rate > 1);
  const spent = slo.error_budget_remaining !== null && slo.error_budget_remaining <= 0;
  const part = slo.window_covered_seconds / slo.window_seconds;
  const since = slo.window_covered_seconds < 3600 ? 'since the start' : 'of the last hour';
  return html`<article class="slo ${spent ? 'critical' : ''}" data-slo=${clean(slo.name, 80)} aria-current=${selected ? 'true' : null}>
    <section><h2><${Name} of=${slo.name} limit=${80} /></h2>
      <p>${clean(slo.sli, 40)}: ${threshold(slo)}, for ${percent(slo.target)} of the requests${scopeText(slo.scope)}</p>
      <p>
        <strong>Budget left: <${Value} metric="error_budget_remaining" text=${percent(slo.error_budget_remaining)} raw=${slo.error_budget_remaining} /></strong> <${Info} metric="error_budget_remaining" />${spent && html` <span class="severity critical">▲ spent</span>`}</p>
      <${Budget} remaining=${slo.error_budget_remaining} />
      <p>Window: ${age(slo.window_seconds)}, of which <strong>${age(Math.min(slo.window_covered_seconds, slo.window_seconds))}</strong> (${percent(Math.min(1, part))}) are covered.</p>
      <span class="meter thin" role="img" aria-label=${`${percent(Math.min(1, part))} of the window covered`}>
        <span style=${{ width: `${Math.min(100, part * 100)}%` }}></span></span>
      <p>${spent ? html`<span class="burning">The budget is spent.</span>` : slo.time_to_exhaustion_seconds === null || slo.time_to_exhaustion_seconds === undefined ? `The budget does not run out at the rate ${since}.` : html`<span class="burning">The budget runs out in ${age(slo.time_to_exhaustion_seconds)} at the rate ${since}.</span>`}</p>
      <p class="note">${count(slo.good)} good, ${count(slo.bad)} bad, ${count(slo.excluded)} excluded since the start of the process</p></section>
    <section><h3>Burn rate${burning ? ' – above 1 uses the budget too fast' : ''} <${Info} metric="burn_rate" /></h3>
      <table><thead><tr><th scope="col">window</th><th scope="col" class="num">burn rate</th></tr></thead>
        <tbody>${rates.map(
          ([window, rate]) => html`<tr><th scope="row">${clean(window, 10)}</th>
        <td class="num ${rate > 1 ? 'burning' : ''}">
        <${Value} metric="burn_rate" text=${rate === null ? UNKNOWN : `${number(rate)} ×`} raw=${rate} />${rate > 1 ? ' ▲' : ''}</td></tr>`,
        )}</tbody></table></section>
    <section><h3>What used it</h3>
      ${
        (slo.consumed_by ?? []).length
          ? html`<table><thead><tr><th scope="col">model</th><th scope="col">error</th>
        <th scope="col" class="num">bad</th></tr></thead><tbody>${slo.consumed_by.map(
          (row) => html`<tr><td>
        <a href=${link('charts', { model: row.model })}><${Name} of=${row.model} limit=${60} /></a></td>
        <td>${row.error_type ? html`<${Name} of=${row.error_type} limit=${40} />` : html`<span title="The request succeeded, but missed the threshold.">missed the threshold</span>`}</td>
        <td class="num">${count(row.bad)}</td></tr>`,
        )}</tbody></table>`
          : html`<p class="note">No bad event.</p>`
      }
      <h3>Excluded</h3>
      ${
        (slo.excluded_by ?? []).length
          ? html`<table><thead><tr><th scope="col">reason</th>
        <th scope="col" class="num">events</th></tr></thead><tbody>${slo.excluded_by.map(
          (row) => html`<tr>
        <td title=${clean(row.reason, 60)}>${REASONS[row.reason] ?? clean(String(row.reason).replaceAll('_', ' '), 60)}</td>
        <td class="num">${count(row.count)}</td></tr>`,
        )}</tbody></table>`
          : html`<p class="note">No event.</p>`
      }</section>
  </article>`;
}

function Budget({ remaining }) {
  if (remaining === null || remaining === undefined) return null;
  if (remaining <= 0) return html`<span class="meter spent" role="img" aria-label="budget spent"></span>`;
  return html`<span class="meter ${remaining < LOW_BUDGET ? 'low' : ''}" role="img" aria-label=${`${percent(remaining)} left`}>
    <span style=${{ width: `${Math.min(100, remaining * 100)}%` }}></span></span>`;
}
