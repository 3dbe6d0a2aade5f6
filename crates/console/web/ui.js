// Parts that several views use.
import { html, Component, useState } from './dom.js';
import { DEFINITIONS } from './definitions.js';
import { clean, UNKNOWN } from './format.js';

/** A name from outside. CSS cuts long ones; the title has up to 300 characters. */
export function Name({ of: name, limit = 160 }) {
  if (name === null || name === undefined || name === '') return html`<span class="unknown" title="not set">${UNKNOWN}</span>`;
  return html`<bdi class="name" title=${clean(name)}>${clean(name, limit)}</bdi>`;
}

/** A number as text, with its definition as title. `reason` explains an unknown value. */
export function Value({ metric, text, raw, reason, estimated, className = '' }) {
  const definition = DEFINITIONS[metric];
  if (text === UNKNOWN || text === null || text === undefined) {
    const why = reason ?? definition?.reason ?? 'not reported';
    return html`<span class="unknown ${className}" data-metric=${metric} title=${`Unknown: ${why}`}>${UNKNOWN}<span class="sr-only"> unknown: ${why}</span></span>`;
  }
  const title = `${definition ? `${definition.text} Unit: ${definition.unit}.` : ''}${estimated ? ' Contains estimated tokens.' : ''}`;
  return html`<span class=${className} data-metric=${metric} data-value=${raw} title=${title || null}>${estimated ? html`<span class="estimated" title="contains estimated tokens">≈ </span>` : null}${text}</span>`;
}

/** A button that shows the definition of a number, for pointer, keyboard and touch. */
export function Info({ metric }) {
  const [open, setOpen] = useState(false);
  const definition = DEFINITIONS[metric];
  if (!definition) return null;
  const close = (event) => {
    if (event.key === 'Escape') setOpen(false);
  };
  return html`<span class="info" onKeyDown=${close} onFocusOut=${(event) => event.currentTarget.contains(event.relatedTarget) || setOpen(false)}>
    <button type="button" class="info-button" aria-expanded=${open} aria-label=${`Definition of ${definition.label}`} title=${definition.text} onClick=${() => setOpen(!open)}>i</button>
    ${
      open &&
      html`<span class="popover" role="note">${definition.text}${definition.unit && html`<br/>Unit: ${definition.unit}.`}${
        definition.page &&
        html`<br/>
      <a href=${definition.page} target="_blank" rel="noopener">/${definition.page}</a>`
      }</span>`
    }
  </span>`;
}

/** A heading of a table column with a definition. `sort` makes the heading a button. */
export function Heading({ metric, label, sort, sorted, onSort, className = '' }) {
  const definition = DEFINITIONS[metric];
  const text = label ?? definition?.label;
  const title = definition ? `${definition.text}${definition.unit ? ` Unit: ${definition.unit}.` : ''}` : null;
  if (!sort) return html`<span role="columnheader" class=${className} title=${title}>${text}</span>`;
  const state = sorted === sort ? 'descending' : sorted === `-${sort}` ? 'ascending' : 'none';
  const next = state === 'descending' ? `-${sort}` : state === 'ascending' ? null : sort;
  return html`<span role="columnheader" class=${className} aria-sort=${state}>
    <button type="button" class="sort" title=${title} onClick=${() => onSort(next)}>${text}${state === 'descending' ? ' ▾' : state === 'ascending' ? ' ▴' : ''}</button></span>`;
}

export function Empty({ title, children }) {
  return html`<div class="empty"><p class="empty-title">${title}</p>${children && html`<p>${children}</p>`}</div>`;
}

/** Values over the window of the history. Each run of known values is a line of its own, so that gaps stay gaps. */
export function Sparkline({ values, label, format }) {
  const known = values.filter((value) => value !== null);
  if (known.length < 2) return html`<svg class="spark" viewBox="0 0 120 28" aria-hidden="true"></svg>`;
  const highest = Math.max(...known);
  const scale = highest > 0 ? 24 / highest : 0;
  const x = (index) => (values.length > 1 ? (index * 120) / (values.length - 1) : 0);
  let line = '';
  let area = '';
  let start = null;
  values.forEach((value, index) => {
    if (value === null) return;
    const y = (26 - value * scale).toFixed(1);
    const first = index === 0 || values[index - 1] === null;
    line += `${first ? 'M' : 'L'}${x(index).toFixed(1)} ${y}`;
    if (first) {
      start = x(index).toFixed(1);
      area += `M${start} 26`;
    }
    area += `L${x(index).toFixed(1)} ${y}`;
    if (index === values.length - 1 || values[index + 1] === null) area += `L${x(index).toFixed(1)} 26Z`;
  });
  const text = `${label}: up to ${format(highest)}, now ${format(known.at(-1))}, last 15 minutes at most`;
  return html`<svg class="spark" viewBox="0 0 120 28" preserveAspectRatio="none" role="img" aria-label=${text}>
    <title>${text}</title><path class="spark-area" d=${area}/><path class="spark-line" d=${line}/></svg>`;
}

export const STAGE_NAMES = {
  admission: 'queued in this process',
  connect: 'connect',
  upload: 'upload',
  headers: 'wait for headers',
  first_byte: 'first byte',
  first_event: 'first event',
  first_token: 'first token',
  reasoning: 'reasoning',
  decode: 'decode',
  tail: 'tail',
};

/** Stages as one bar. The width of the bar is `share` of the place. */
export function StageBar({ stages, format, share = 1 }) {
  const present = Object.entries(stages ?? {}).filter(([, value]) => value > 0);
  const total = present.reduce((sum, [, value]) => sum + value, 0);
  if (!total) return html`<span class="unknown" title="no stage has ended yet">${UNKNOWN}</span>`;
  const text = present.map(([name, value]) => `${STAGE_NAMES[name] ?? name} ${format(value)}`).join(', ');
  return html`<span class="stage-bar" role="img" aria-label=${text} title=${text} style=${{ width: `${Math.max(4, share * 100)}%` }}>
    ${present.map(([name, value]) => html`<span class="stage stage-${name}" style=${{ flexGrow: value / total }}></span>`)}
  </span>`;
}

/** Removable labels of the filter, and the text filter. */
export function FilterBar({ params, onChange, labels, shown, total, noun, children }) {
  const chips = labels.filter((label) => params[label]);
  return html`<div class="filters">
    <input id="filter" type="search" placeholder="Filter: words of any label  ( / )" aria-label="Filter by words of any label" value=${params.q ?? ''} onInput=${(event) => onChange({ q: event.target.value })} />
    ${chips.map(
      (
        label,
      ) => html`<button type="button" class="chip" title=${`Remove the filter ${label} = ${clean(params[label])}`} onClick=${() => onChange({ [label]: null })}>
      <span class="chip-label">${label}</span> <bdi class="name">${clean(params[label], 60)}</bdi> ×</button>`,
    )}
    ${children}
    ${noun && html`<span class="filter-count" role="status">${shown === total ? `${total} ${noun}` : `${shown} of ${total} ${noun}`}</span>`}
  </div>`;
}

export function Segmented({ label, options, value, onChange }) {
  return html`<span class="segmented" role="group" aria-label=${label}>
    ${options.map(([key, text]) => html`<button type="button" aria-pressed=${key === value} onClick=${() => onChange(key)}>${text}</button>`)}
  </span>`;
}

export class Copy extends Component {
  copy() {
    navigator.clipboard?.writeText(this.props.text).then(
      () => {
        this.setState({ copied: true });
        setTimeout(() => this.setState({ copied: false }), 1500);
      },
      () => this.setState({ copied: false }),
    );
  }

  render({ label }, { copied }) {
    return html`<button type="button" class="small" onClick=${() => this.copy()}>${copied ? 'copied' : label}</button>`;
  }
}

/** Rows of a fixed height, of which only the visible ones are in the document. The view scrolls with its own bar. */
export class VirtualList extends Component {
  state = { top: 0, height: 600 };
  keep = (element) => {
    this.element = element;
  };

  componentDidMount() {
    this.observer = new ResizeObserver(() => this.element && this.setState({ height: this.element.clientHeight }));
    this.observer.observe(this.element);
    this.element.addEventListener(
      'scroll',
      () => {
        this.frame ??= requestAnimationFrame(() => {
          this.frame = null;
          if (this.element) this.setState({ top: this.element.scrollTop });
        });
      },
      { passive: true },
    );
    this.showSelected();
  }

  componentDidUpdate(former) {
    if (former.selected !== this.props.selected) this.showSelected();
  }

  componentWillUnmount() {
    this.observer.disconnect();
    cancelAnimationFrame(this.frame);
  }

  showSelected() {
    const { items, id, selected, rowHeight } = this.props;
    const index = selected ? items.findIndex((item) => String(id(item)) === selected) : -1;
    if (index < 0) return;
    const top = index * rowHeight;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop || top + rowHeight > scrollTop + clientHeight)
      this.element.scrollTop = Math.max(0, top - clientHeight / 2);
  }

  render({ items, id, row, rowHeight, label, head }, { top, height }) {
    const first = Math.max(0, Math.floor(top / rowHeight) - 6);
    const last = Math.min(items.length, Math.ceil((top + height) / rowHeight) + 6);
    const rows = [];
    for (let index = first; index < last; index += 1)
      rows.push(row(items[index], index, { top: `${index * rowHeight}px`, height: `${rowHeight}px` }, id(items[index])));
    return html`<div ref=${this.keep} class="virtual" role="table" tabindex="0" aria-label=${label} aria-rowcount=${items.length + 1}>
      <div class="virtual-head" role="rowgroup">${head}</div>
      <div class="virtual-space" role="rowgroup" style=${{ height: `${items.length * rowHeight}px` }}>${rows}</div></div>`;
  }
}
