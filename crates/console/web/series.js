// Series of the charts and sparklines from the intervals of the history.
import { merge, quantile } from './histogram.js';

export const STAGES = ['admission', 'connect', 'upload', 'headers', 'first_token', 'reasoning', 'decode', 'tail'];
/** Below this length of time, charts show each interval. */
const FINE_SECONDS = 300;
const COARSE_POINT_SECONDS = 15;

export const SOURCES = ['upstream', 'proxy', 'client'];

const add = (values) => (values.length ? values.reduce((sum, value) => sum + (value ?? 0), 0) : 0);

/** What happened in some intervals of some groups. */
export class Cell {
  constructor(intervals, seconds) {
    this.intervals = intervals;
    this.seconds = seconds;
  }

  total(key) {
    return add(this.intervals.map((interval) => interval[key]));
  }

  /** Counts per second. */
  rate(key) {
    return this.total(key) / this.seconds;
  }

  errors(source) {
    return add(this.intervals.map((interval) => interval.errors?.[source]));
  }

  /** Share of finished requests with an error of a source; null if nothing finished. */
  errorShare(source) {
    const finished = this.total('finished');
    if (!finished) return null;
    return (source ? this.errors(source) : add(SOURCES.map((name) => this.errors(name)))) / finished;
  }

  histogram(key) {
    return merge(this.intervals.map((interval) => interval[key]));
  }

  percentile(key, share) {
    return quantile(this.histogram(key), share);
  }

  /** Mean seconds of a stage per finished request; null if nothing finished. */
  stage(name) {
    const finished = this.total('finished');
    return finished ? add(this.intervals.map((interval) => interval.stages?.[name])) / finished : null;
  }

  /** Share of output tokens that are estimated. */
  estimatedShare() {
    const output = this.total('output_tokens');
    return output ? this.total('estimated_output_tokens') / output : 0;
  }
}

/** Sum of a gauge over the groups of one interval; null for an interval without a report. */
function gauge(groups, interval, key) {
  return add(groups.map((group) => group.intervals.get(interval)?.[key]));
}

/**
 * Bins of the window: `intervalsPerBin` intervals each. `read(cell)` gives the value. A bin of which an interval has no
 * report is null, which is a gap of the chart.
 */
export function bins(store, groups, range, intervalsPerBin, read) {
  const [first, last] = range;
  const values = [];
  for (let start = first; start <= last; start += intervalsPerBin) {
    const end = Math.min(start + intervalsPerBin - 1, last);
    const intervals = [];
    let complete = true;
    for (let number = start; number <= end && complete; number += 1) {
      complete = store.isCovered(number);
      for (const group of groups) {
        const interval = group.intervals.get(number);
        if (interval) intervals.push(interval);
      }
    }
    values.push(complete ? read(new Cell(intervals, (end - start + 1) * store.intervalSeconds), start) : null);
  }
  return values;
}

/** Highest sum of a gauge over the intervals of a bin. */
export function highestGauge(store, groups, range, intervalsPerBin, key) {
  return bins(store, groups, range, intervalsPerBin, (_, start) => {
    let highest = 0;
    for (let number = start; number < start + intervalsPerBin && number <= range[1]; number += 1) {
      highest = Math.max(highest, gauge(groups, number, key));
    }
    return highest;
  });
}

/** Intervals per point: 15 s for a long time, one interval for a time below 5 minutes. */
export function intervalsPerPoint(store, seconds) {
  return seconds < FINE_SECONDS ? 1 : Math.max(1, Math.round(COARSE_POINT_SECONDS / store.intervalSeconds));
}

/** The part of a range that consists of whole bins: a part of a bin would be noisier than the others. */
export function wholeBins([first, last], perBin) {
  return [Math.ceil(first / perBin) * perBin, Math.floor((last + 1) / perBin) * perBin - 1];
}

/** Instants (Unix seconds) of the ends of bins. */
export function binTimes(store, range, intervalsPerBin) {
  const times = [];
  for (let start = range[0]; start <= range[1]; start += intervalsPerBin) {
    times.push(Math.min(start + intervalsPerBin, range[1] + 1) * store.intervalSeconds);
  }
  return times;
}

/** Everything that some groups did in the last `seconds` that the process has reported. */
export function recent(store, groups, seconds) {
  const length = Math.max(1, Math.round(seconds / store.intervalSeconds));
  const intervals = [];
  let covered = 0;
  for (let number = store.lastInterval - length + 1; number <= store.lastInterval; number += 1) {
    if (!store.isCovered(number)) continue;
    covered += 1;
    for (const group of groups) {
      const interval = group.intervals.get(number);
      if (interval) intervals.push(interval);
    }
  }
  return new Cell(intervals, Math.max(1, covered) * store.intervalSeconds);
}

/** Groups by one label. Keys are sorted by finished requests, most first. */
export function groupBy(groups, label) {
  const found = new Map();
  for (const group of groups) {
    const key = group[label];
    if (key === null || key === undefined) continue;
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(group);
  }
  const size = (members) => add(members.flatMap((group) => [...group.intervals.values()].map((interval) => interval.finished)));
  return [...found]
    .map(([key, members]) => ({ key, groups: members, finished: size(members) }))
    .sort((a, b) => b.finished - a.finished || String(a.key).localeCompare(String(b.key)));
}
