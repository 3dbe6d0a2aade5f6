// The whole state of the page in the URL's hash: view, filter, sort order, selection, zoom. Never the token.
// "#streams?model=gpt-4o&sort=idle&sel=812"

export const VIEWS = [
  ['now', 'Now'],
  ['charts', 'Charts'],
  ['streams', 'Streams'],
  ['requests', 'Requests'],
  ['sessions', 'Sessions'],
  ['slos', 'SLOs'],
  ['compare', 'Compare'],
  ['engines', 'Engines'],
  ['limits', 'Rate limits'],
  ['cost', 'Cost'],
];
export const LABELS = ['provider', 'model', 'route', 'tenant', 'session'];

/** Parameters of a filter, which stay when the view changes. */
const KEPT = [...LABELS, 'q'];

export function parse(hash) {
  const [name, query = ''] = hash.replace(/^#/, '').split(/\?(.*)/s);
  const view = VIEWS.some(([known]) => known === name) ? name : 'now';
  return { view, params: Object.fromEntries(new URLSearchParams(query)) };
}

export function link(view, params = {}) {
  const present = Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== '');
  const query = new URLSearchParams(present.map(([key, value]) => [key, String(value)])).toString();
  return `#${view}${query ? `?${query}` : ''}`;
}

export const current = () => parse(location.hash);

/** Opens a view with its filter, as a new entry of the browser's history. */
export function go(view, params) {
  location.hash = link(view, params ?? kept());
}

export function kept(params = current().params) {
  return Object.fromEntries(Object.entries(params).filter(([key]) => KEPT.includes(key)));
}

/** Changes parameters of the present view without a new entry of the history; null removes one. */
export function set(changes) {
  const { view, params } = current();
  history.replaceState(null, '', link(view, { ...params, ...changes }));
  dispatchEvent(new HashChangeEvent('hashchange'));
}

/** Whether an object with labels fits the filter: labels are equal, and the words of `q` occur in some label. */
export function matches(item, params) {
  for (const label of LABELS) {
    if (params[label] && label in item && String(item[label] ?? '') !== params[label]) return false;
  }
  if (!params.q) return true;
  const phase = item.stalled ? 'stalled' : item.phase;
  const slow = item.waiting_for === 'client' ? 'client is slow' : null;
  const { provider, model, route, tenant, session, agent, outcome, id = item.request_number } = item;
  const words = [provider, model, route, tenant, session, agent, phase, slow, outcome, id];
  const text = words
    .filter((word) => word !== null && word !== undefined)
    .join(' ')
    .toLowerCase();
  return params.q
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}
