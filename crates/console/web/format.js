// Numbers, durations and names as text. An unknown value is "–", never 0.

export const UNKNOWN = '–';

const isNumber = (value) => typeof value === 'number' && Number.isFinite(value);

/** Three significant digits, with a thousands separator and a narrow unit prefix above 100,000. */
export function number(value) {
  if (!isNumber(value)) return UNKNOWN;
  const size = Math.abs(value);
  if (size >= 1e9) return `${trim(value / 1e9)} G`;
  if (size >= 1e6) return `${trim(value / 1e6)} M`;
  if (size >= 1e5) return `${trim(value / 1e3)} k`;
  if (size >= 100) return Math.round(value).toLocaleString('en-US');
  return trim(value);
}

function trim(value) {
  if (value === 0) return '0';
  const digits = Math.min(3, Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value)))));
  return String(Number(value.toFixed(digits)));
}

export const count = (value) => (isNumber(value) ? Math.round(value).toLocaleString('en-US') : UNKNOWN);

/** A share as percent with at most two digits after the point. */
export function percent(share) {
  if (!isNumber(share)) return UNKNOWN;
  const value = share * 100;
  if (value > 0 && value < 0.005) return '< 0.01 %';
  return `${value !== 0 && Math.abs(value) < 1 ? Number(value.toFixed(2)) : Number(value.toFixed(1))} %`;
}

/** Seconds with the unit that reads best: "320 ms", "4.2 s", "3 min 05 s", "30 d". */
export function seconds(value) {
  if (!isNumber(value)) return UNKNOWN;
  const size = Math.abs(value);
  if (size === 0) return '0 s';
  if (size < 0.001) return `${trim(value * 1e6)} µs`;
  if (size < 0.9995) return `${trim(value * 1e3)} ms`;
  if (size < 100) return `${Number(value.toFixed(size < 10 ? 2 : 1))} s`;
  return age(value);
}

/** A rounded duration for ages and windows: "12 s", "6 min", "2 h 05 min", "30 d". */
export function age(value) {
  if (!isNumber(value)) return UNKNOWN;
  const total = Math.max(0, Math.round(value));
  if (total < 100) return `${total} s`;
  if (total < 3600) return `${Math.floor(total / 60)} min${total % 60 ? ` ${String(total % 60).padStart(2, '0')} s` : ''}`;
  if (total < 86_400)
    return `${Math.floor(total / 3600)} h${Math.floor((total % 3600) / 60) ? ` ${String(Math.floor((total % 3600) / 60)).padStart(2, '0')} min` : ''}`;
  const hours = Math.floor((total % 86_400) / 3600);
  return `${Math.floor(total / 86_400)} d${hours ? ` ${hours} h` : ''}`;
}

/** An amount without its currency: cents, or two significant digits below 1. */
export function amount(cost) {
  if (!cost || !isNumber(cost.amount)) return UNKNOWN;
  const size = Math.abs(cost.amount);
  const digits = size === 0 || size >= 1 ? 2 : Math.min(8, 1 - Math.floor(Math.log10(size)));
  return cost.amount.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

export function money(cost) {
  const text = amount(cost);
  return text === UNKNOWN ? text : `${text} ${clean(cost.currency ?? '', 12)}`.trim();
}

const clockFormat = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });

/** Local time of day. */
export const clock = (unixMs) => (isNumber(unixMs) ? clockFormat.format(new Date(unixMs)) : UNKNOWN);
export const clockMinutes = (unixMs) => clock(unixMs).slice(0, 5);
export const instant = (unixMs) => (isNumber(unixMs) ? new Date(unixMs).toISOString() : UNKNOWN);

// C0 controls have visible pictures; other controls, zero-width and bidirectional characters could hide or reorder text.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** Makes a name from outside safe to read, at most `limit` characters long. Markup needs no escape: names are text nodes. */
export function clean(name, limit = 300) {
  const text = String(name ?? '');
  const cut = text.length > limit ? `${text.slice(0, limit - 1)}…` : text;
  return cut.replace(HIDDEN, (character) => {
    const code = character.charCodeAt(0);
    return code < 0x20 ? String.fromCharCode(0x2400 + code) : '\ufffd';
  });
}
