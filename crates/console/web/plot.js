// uPlot as a component: colours of the scheme, a cursor and a zoom that all charts share, and a click on an instant.
import { Component, html } from './dom.js';
import uPlot from './vendor/uplot.js';

const CURSOR = uPlot.sync('console');
const HEIGHT = 190;
/** A pointer that moves less than this between press and release is a click, not a zoom. */
const CLICK_PIXELS = 4;
export const COLOURS = 8;
export const DASHES = [[], [], [], [], [8, 4], [2, 3], [10, 3, 2, 3], [5, 2]];

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const scheme = matchMedia('(prefers-color-scheme: dark)');

/**
 * Props: `times` (Unix seconds), `series` [{label, values, colour, dash, fill}], `format`, `zoom` [from, to] or null,
 * `range` [from, to], `onZoom(from, to)`, `onInstant(seconds)`, `stacked`, `lines` [{value, label}], `integers`.
 */
export class Plot extends Component {
  keep = (element) => {
    this.element = element;
  };

  componentDidMount() {
    this.resize = new ResizeObserver(
      () => this.plot && this.element && this.plot.setSize({ width: this.element.clientWidth, height: HEIGHT }),
    );
    this.resize.observe(this.element);
    this.rebuild = () => this.build();
    scheme.addEventListener('change', this.rebuild);
    this.build();
  }

  componentWillUnmount() {
    scheme.removeEventListener('change', this.rebuild);
    this.resize.disconnect();
    this.destroy();
  }

  componentDidUpdate(former) {
    const { series, stacked } = this.props;
    const shape = ({ series: all, lines }) =>
      all.map(({ label, colour: name }) => `${label}\n${name}`).join('\n') + JSON.stringify(lines ?? []);
    if (shape(former) !== shape(this.props) || former.stacked !== stacked || !this.plot) this.build();
    else if (
      series !== former.series ||
      former.zoom?.join() !== this.props.zoom?.join() ||
      former.range.join() !== this.props.range.join()
    ) {
      this.plot.setData(this.data(), false);
      this.plot.setLegend(null, false);
      this.scale();
    }
  }

  /** Text of the legend for a series of uPlot, of which the first is the time. */
  legendText(place, index) {
    const { format, series, stacked } = this.props;
    const { values } = stacked ? series.at(-place) : series[place - 1];
    if (index === null || index === undefined) return format(values.findLast((known) => known !== null) ?? null);
    return format(values[index]);
  }

  data() {
    const { times, series, stacked } = this.props;
    if (!stacked) return [times, ...series.map(({ values }) => values)];
    const sums = times.map(() => 0);
    // The highest series comes first, so that each area ends at the one below it.
    const layers = series.map(({ values }) => values.map((value, index) => (value === null ? null : (sums[index] += value))));
    return [times, ...layers.toReversed()];
  }

  scale() {
    const [from, to] = this.props.zoom ?? this.props.range;
    this.plot.batch(() => this.plot.setScale('x', { min: from, max: to }));
  }

  destroy() {
    if (!this.plot) return;
    CURSOR.unsub(this.plot);
    this.plot.destroy();
    this.plot = null;
  }

  build() {
    if (!this.element) return;
    this.destroy();
    const text = colour('muted');
    const axis = {
      stroke: text,
      grid: { stroke: colour('line'), width: 1 },
      ticks: { stroke: colour('line'), width: 1 },
      font: '11px system-ui, sans-serif',
    };
    const { format, series, stacked } = this.props;
    const ordered = stacked ? series.toReversed() : series;
    const bands = stacked ? ordered.slice(1).map((_, index) => ({ series: [index + 1, index + 2] })) : undefined;
    const line = ({ label, colour: name, dash }) => ({
      label,
      stroke: colour(name),
      width: stacked ? 1 : 1.75,
      dash,
      fill: stacked ? `${colour(name)}${stacked === 'solid' ? 'd9' : '80'}` : undefined,
      points: { show: false },
      spanGaps: false,
      // A stacked layer ends at the sum of the layers; the legend shows its own value.
      // Away from the cursor, it shows the latest value.
      value: (_, __, place, index) => this.legendText(place, index),
    });
    this.plot = new uPlot(
      {
        width: this.element.clientWidth || 400,
        height: HEIGHT,
        bands,
        padding: [8, 22, 0, 0],
        cursor: {
          sync: { key: CURSOR.key, setSeries: false },
          drag: { x: true, y: false, setScale: false, dist: CLICK_PIXELS },
          points: { size: 6 },
          bind: { dblclick: () => () => this.props.onZoom(null, null) },
        },
        select: { show: true },
        scales: { x: { time: true, auto: false }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.08 : 1] } },
        axes: [
          {
            ...axis,
            space: 60,
            size: 30,
            incrs: [1, 5, 10, 15, 30, 60, 120, 180, 300],
            values: (_, ticks) => ticks.map((tick) => timeOfDay(tick, ticks)),
          },
          {
            ...axis,
            size: 58,
            ...(this.props.integers ? { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000] } : {}),
            values: (_, ticks) => ticks.map(format),
          },
        ],
        series: [{ label: 'time' }, ...ordered.map(line)],
        hooks: {
          setSelect: [(plot) => this.select(plot)],
          ready: [(plot) => this.listen(plot)],
          draw: [(plot) => this.drawLines(plot)],
        },
      },
      this.data(),
      this.element,
    );
    this.scale();
  }

  select(plot) {
    const { left, width } = plot.select;
    if (width < CLICK_PIXELS) return;
    const [from, to] = [plot.posToVal(left, 'x'), plot.posToVal(left + width, 'x')];
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.props.onZoom(from, to);
  }

  listen(plot) {
    let pressed = null;
    plot.over.addEventListener('mousedown', (event) => {
      pressed = event.clientX;
    });
    plot.over.addEventListener('click', (event) => {
      if (pressed === null || Math.abs(event.clientX - pressed) >= CLICK_PIXELS) return;
      this.props.onInstant(plot.posToVal(event.clientX - plot.over.getBoundingClientRect().left, 'x'));
    });
  }

  /** Objectives of SLOs as dashed lines. */
  drawLines(plot) {
    const { ctx, bbox } = plot;
    for (const { value, label } of this.props.lines ?? []) {
      const y = plot.valToPos(value, 'y', true);
      if (y < bbox.top || y > bbox.top + bbox.height) continue;
      ctx.save();
      ctx.strokeStyle = colour('critical');
      ctx.fillStyle = colour('critical');
      ctx.setLineDash([6, 4]);
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
      ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
      ctx.textAlign = 'left';
      ctx.textBaseline = 'bottom';
      ctx.fillText(label, bbox.left + 4, y - 2);
      ctx.restore();
    }
  }

  render() {
    return html`<div class="chart-place" ref=${this.keep}></div>`;
  }
}

function timeOfDay(tick, ticks) {
  const date = new Date(tick * 1000);
  const part = (value) => String(value).padStart(2, '0');
  const minutes = `${part(date.getHours())}:${part(date.getMinutes())}`;
  return ticks.some((other) => other % 60 !== 0) ? `${minutes}:${part(date.getSeconds())}` : minutes;
}
