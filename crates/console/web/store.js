// The state of the process as the page knows it: one snapshot, and the deltas after it.

/** Fields of a delta that replace the former value as a whole. */
const REPLACED = [
  'process',
  'settings',
  'now',
  'conditions',
  'requests',
  'sessions',
  'slos',
  'engines',
  'rate_limits',
  'streams_left_out',
];
/** Charts show at least this much time. */
const LEAST_WINDOW_SECONDS = 120;

const labelsKey = (group) => JSON.stringify([group.provider, group.model, group.route, group.tenant, group.variant]);

export class Store {
  constructor() {
    this.ready = false;
    /** Increases when an interval of the history changes, so that charts are computed only then. */
    this.historyVersion = 0;
    this.groups = new Map();
    this.streams = new Map();
    /** Ranges of intervals [first, last] that some process has reported, oldest first. */
    this.covered = [];
    /** The highest burn rate at the end of an interval, by its number. */
    this.burnRates = new Map();
    this.lastEventAt = null;
    this.restart = null;
  }

  /** Applies an event of the live stream. Returns false if an event is missing before it. */
  apply(name, data) {
    if (name === 'snapshot') this.#applySnapshot(data);
    else if (name === 'delta') {
      if (data.sequence !== this.sequence + 1) return false;
      this.#applyDelta(data);
    } else return true;
    this.sequence = data.sequence;
    this.at = data.at_unix_ms;
    this.clockOffset = data.at_unix_ms - Date.now();
    this.lastEventAt = performance.now();
    return true;
  }

  /** Seconds without an event. */
  silence() {
    return this.lastEventAt === null ? null : (performance.now() - this.lastEventAt) / 1000;
  }

  /** The clock of the process, also while there is no connection. */
  get clock() {
    return Date.now() + (this.clockOffset ?? 0);
  }

  get intervalSeconds() {
    return this.settings?.interval_seconds ?? 5;
  }

  /** First and last interval of the charts. The window also moves on while no report arrives. */
  get window() {
    const length = Math.round(this.settings.window_seconds / this.intervalSeconds);
    const last = Math.max(this.lastInterval, Math.floor(this.clock / 1000 / this.intervalSeconds) - 2);
    // A young process fills the charts from the left: no more than 2 minutes of empty time before its start.
    const start = this.covered.length
      ? Math.min(this.covered[0][0], last - Math.round(LEAST_WINDOW_SECONDS / this.intervalSeconds) + 1)
      : last - length + 1;
    return [Math.max(last - length + 1, start), last];
  }

  isCovered(interval) {
    return this.covered.some(([first, last]) => interval >= first && interval <= last);
  }

  #applySnapshot(data) {
    const restarted = this.ready && this.process.started_unix_ms !== data.process.started_unix_ms;
    if (restarted) this.restart = { at: data.process.started_unix_ms, silence: this.silence() };
    for (const field of REPLACED) if (field in data) this[field] = data[field];
    this.streams = new Map(data.streams.map((stream) => [stream.request_number, this.#withRate(stream)]));
    this.#applyHistory(data.history, restarted);
    this.ready = true;
  }

  #applyHistory(history, restarted) {
    this.#applyHistoryFields(history);
    // After a restart, the values of the former process stay on the left of the gap.
    const earlier = restarted ? [...this.groups.values()] : [];
    this.groups = new Map(history.groups.map((group) => [group.id, { ...group, intervals: new Map(group.intervals) }]));
    this.burnRates = new Map([...(restarted ? this.burnRates : []), ...history.burn_rates]);
    if (!restarted) this.covered = [];
    const byLabels = new Map([...this.groups.values()].map((group) => [labelsKey(group), group]));
    for (const old of earlier) {
      const present = byLabels.get(labelsKey(old));
      if (!present) {
        const id = `former ${labelsKey(old)}`;
        this.groups.set(id, { ...old, id });
        continue;
      }
      for (const [interval, values] of old.intervals)
        if (!present.intervals.has(interval)) present.intervals.set(interval, values);
    }
    // Intervals before the start of the process have no values.
    const start = this.gapBefore ? Math.floor(this.gapBefore / 1000 / this.intervalSeconds) : 0;
    this.#cover(Math.max(history.first_interval, start), history.last_interval);
    this.#forget();
  }

  #applyHistoryFields(history) {
    this.firstInterval = history.first_interval;
    this.lastInterval = history.last_interval;
    this.groupsLeftOut = history.groups_left_out ?? 0;
    if ('gap_before_unix_ms' in history) this.gapBefore = history.gap_before_unix_ms;
    this.historyVersion += 1;
  }

  #applyDelta(data) {
    for (const field of REPLACED) if (field in data) this[field] = data[field];
    const history = data.history;
    if (history) {
      const known = this.lastInterval;
      for (const [interval, rate] of history.new_burn_rates ?? []) this.burnRates.set(interval, rate);
      if (history.intervals?.length || history.new_groups?.length || history.last_interval !== known)
        this.#applyHistoryFields(history);
      for (const group of history.new_groups ?? [])
        this.groups.set(group.id, { ...group, intervals: new Map(group.intervals ?? []) });
      for (const [id, interval, values] of history.intervals ?? []) this.groups.get(id)?.intervals.set(interval, values);
      if (history.last_interval > known) {
        this.#cover(Math.min(known + 1, history.last_interval), history.last_interval);
        this.#forget();
      }
    }
    for (const id of data.streams?.ended ?? []) this.streams.delete(id);
    for (const stream of data.streams?.changed ?? [])
      this.streams.set(stream.request_number, this.#withRate(stream, this.streams.get(stream.request_number)));
    this.streamsAt = data.at_unix_ms;
  }

  /** Adds the tokens per second since the former report of a stream. */
  #withRate(stream, former) {
    stream.seen_at = performance.now();
    if (former && stream.tokens > 0 && stream.tokens >= former.tokens && stream.age_seconds > former.age_seconds) {
      stream.rate_now = (stream.tokens - former.tokens) / (stream.age_seconds - former.age_seconds);
    }
    return stream;
  }

  #cover(first, last) {
    if (last < first) return;
    const previous = this.covered.at(-1);
    if (previous && first <= previous[1] + 1) previous[1] = Math.max(previous[1], last);
    else this.covered.push([first, last]);
  }

  /** Drops what is older than the window. A group that has traffic again comes with the delta as a new one. */
  #forget() {
    const oldest = this.lastInterval - Math.round(this.settings.window_seconds / this.intervalSeconds) + 1;
    this.covered = this.covered.filter(([, last]) => last >= oldest);
    for (const interval of this.burnRates.keys()) if (interval < oldest) this.burnRates.delete(interval);
    for (const [id, group] of this.groups) {
      for (const interval of group.intervals.keys()) if (interval < oldest) group.intervals.delete(interval);
      if (group.intervals.size === 0) this.groups.delete(id);
    }
  }
}
