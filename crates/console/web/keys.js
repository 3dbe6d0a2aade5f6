// Keyboard: `/` filter, `j` and `k` move, Enter opens, `p` pauses, digits choose a view, `?` shows help, Escape closes.
import { go } from './route.js';

/** The list that `j` and `k` move in: set by the view, `{ids, selected, select(id)}`. */
export const keys = { list: null, pause: null };

export const KEY_HELP = [
  ['/', 'filter'],
  ['j', 'next row'],
  ['k', 'previous row'],
  ['p', 'pause or resume the streams'],
  ['1 … 9, 0', 'choose a view'],
  ['?', 'this help'],
  ['Esc', 'close, clear the selection'],
];

export function handleKey(event, { toggleHelp, closeHelp, views }) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const inField = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (event.key === 'Escape') {
    if (inField) event.target.blur();
    else if (document.querySelector('[role="dialog"]')) closeHelp();
    else keys.list?.select(null);
    return;
  }
  if (inField) return;
  if (event.key === '/') {
    const field = document.getElementById('filter');
    if (field) {
      event.preventDefault();
      field.focus();
    }
  } else if (event.key === '?') toggleHelp();
  else if (event.key === 'j') move(1);
  else if (event.key === 'k') move(-1);
  else if (event.key === 'p') keys.pause?.();
  else if (/^\d$/.test(event.key)) {
    const view = views[(Number(event.key) + 9) % 10];
    if (view) go(view[0]);
  }
}

function move(step) {
  const { list } = keys;
  if (!list || list.ids.length === 0) return;
  const index = list.ids.indexOf(list.selected);
  const next = index < 0 ? (step > 0 ? 0 : list.ids.length - 1) : Math.min(list.ids.length - 1, Math.max(0, index + step));
  list.select(list.ids[next]);
}
