// Conversations of agents, and the calls of one on a single axis of time.
import { html } from '../dom.js';
import { age, clean, clock, count, money, percent, seconds } from '../format.js';
import { keys } from '../keys.js';
import { link, matches, set } from '../route.js';
import { Empty, FilterBar, Name, Value } from '../ui.js';
import { AxisLabels } from './requests.js';

const cachedShare = (session) => (session.input_tokens && session.cached_input_tokens != null ? session.cached_input_tokens / session.input_tokens : null);
const length = (session) => (session.last_unix_ms - session.first_unix_ms) / 1000;

const SORTS = {
  calls: (session) => session.calls,
  input: (session) => session.input_tokens ?? -1,
  cached: (session) => cachedShare(session) ?? -1,
  output: (session) => session.output_tokens ?? -1,
  cost: (session) => session.cost?.amount ?? -1,
  duration: length,
  last: (session) => session.last_unix_ms,
};

export function SessionsView({ store, params }) {
  const all = store.sessions ?? [];
  if (all.length === 0) {
    keys.list = null;
    return html`<${Empty} title="No sessions">${reasonForNone(store.settings)}<//>`;
  }
  const ascending = params.sort?.startsWith('-');
  const read = SORTS[params.sort?.replace(/^-/, '')] ?? SORTS.last;
  const shown = all
    .filter((session) => matches({ ...session, session: session.id }, params))
    .sort((a, b) => (ascending ? read(a) - read(b) : read(b) - read(a)));
  const select = (id) => set({ sel: id });
  keys.list = { ids: shown.map(({ id }) => id), selected: params.sel, select };
  const selected = all.find(({ id }) => id === params.sel);
  const column = (name, label) =>
    html`<th scope="col" class="num" aria-sort=${params.sort === name ? 'descending' : params.sort === `-${name}` ? 'ascending' : 'none'}>
      <button type="button" class="sort" onClick=${() => set({ sort: params.sort === name ? `-${name}` : name })}>${label}${params.sort === name ? ' ▾' : params.sort === `-${name}` ? ' ▴' : ''}</button></th>`;
  return html`<${FilterBar} params=${params} onChange=${set} labels=${['tenant', 'session']} shown=${shown.length} total=${all.length} noun="sessions" />
    <div class="table-scroll" tabindex="0" role="group" aria-label="Sessions"><table>
      <thead><tr><th scope="col">session</th><th scope="col">agent</th>
        <th scope="col">tenant</th>${column('calls', 'calls')}${column('input', 'input tokens')}${column('cached', 'cached')}${column('output', 'output tokens')}${column('cost', 'cost')}${column('duration', 'duration')}${column('last', 'last call')}</tr></thead>
      <tbody>${shown.map(
        (
          session,
        ) => html`<tr key=${session.id} class="selectable" data-id=${clean(session.id, 80)} aria-selected=${selected === session} onClick=${() => select(selected === session ? null : session.id)}>
        <th scope="row"><button type="button" class="row-button" title=${session.source && `found by: ${clean(session.source, 40)}`}><${Name} of=${session.id} limit=${60} /></button></th><td>
          <${Name} of=${session.agent} limit=${60} /></td><td><${Name} of=${session.tenant} limit=${60} /></td>
        <td class="num">${count(session.calls)}</td><td class="num">
          <${Value} metric="tokens_by_kind" text=${count(session.input_tokens)} /></td><td class="num">
          <${Value} metric="cached_share" text=${percent(cachedShare(session))} /></td><td class="num">
          <${Value} metric="tokens_by_kind" text=${count(session.output_tokens)} /></td>
        <td class="num"><${Value} metric="cost_per_hour" text=${money(session.cost)} /></td>
          <td class="num">${age(length(session))}</td>
          <td class="num" title=${clock(session.last_unix_ms)}>${age((store.clock - session.last_unix_ms) / 1000)} ago</td></tr>`,
      )}</tbody></table></div>
    ${below(selected, params.sel)}`;
}

function reasonForNone(settings) {
  if (settings.names_hidden) return 'The configuration hides the names of sessions from the console.';
  if (settings.sessions_known) return 'No request of the last 15 minutes belongs to a session.';
  return 'No request names a session: the client sends no id of a conversation that the process recognizes.';
}

/** What stands below the table. */
function below(selected, name) {
  if (selected) return html`<${Calls} session=${selected} />`;
  if (!name) return html`<p class="note">Choose a session to see its calls on one axis of time.</p>`;
  return html`<p class="note" role="status">Session ${clean(name, 60)} is not among those of the last 15 minutes.</p>`;
}

/** One row per call, from its start to its end. */
function Calls({ session }) {
  const calls = [...session.requests].sort((a, b) => a.started_unix_ms - b.started_unix_ms);
  if (calls.length === 0) return html`<p class="note">The process keeps no calls of this session.</p>`;
  const start = calls[0].started_unix_ms;
  const end = Math.max(...calls.map((call) => call.started_unix_ms + (call.end_seconds ?? 0) * 1000));
  const span = Math.max(1, end - start) / 1000;
  const share = (unixMs) => `${((unixMs - start) / 1000 / span) * 100}%`;
  return html`<section class="panel" aria-label="Calls of the session">
    <h2>Calls of <${Name} of=${session.id} limit=${60} /> <span class="unit">${calls.length < session.calls ? `the last ${calls.length} of ${session.calls}` : `${calls.length}`}, from ${clock(start)} to ${clock(end)}</span></h2>
    <div class="call-axis">${calls.map((call) => html`<${Call} key=${call.id} call=${call} start=${share(call.started_unix_ms)} span=${span} />`)}</div>
    <${AxisLabels} total=${span} format=${age} /></section>`;
}

function Call({ call, start, span }) {
  const text = `${clean(call.model, 80)}, ${clean(call.outcome, 20)}, ${clock(call.started_unix_ms)}, ${seconds(call.end_seconds)}`;
  const failed = call.outcome !== 'ok';
  const width = `max(3px, ${((call.end_seconds ?? 0) / span) * 100}cqw)`;
  return html`<a class="call" href=${link('requests', { sel: call.id })} style=${{ paddingLeft: start }} title=${text}>
    <span class="sr-only">call ${call.id}, ${text}</span>
    <span class="call-bar ${failed ? 'failed' : ''}" style=${{ width }}></span>
    ${failed && html`<span class="bad">✕ ${clean(call.outcome, 20)}</span>`}</a>`;
}
