// Unit, definition and page of each number on the console. `page` is a page of the admin port with the same number.

const entry = (label, unit, text, page, reason = 'no traffic in this time') => ({ label, unit, text, page, reason });

export const DEFINITIONS = {
  requests_per_second: entry(
    'Requests',
    'requests per second',
    'Requests that ended in the last 60 s, divided by 60.',
    'stats',
    'the process has not run for long enough',
  ),
  error_share: entry(
    'Errors',
    '% of finished requests',
    'Requests of the last 60 s with an error, by source: upstream (provider or network), proxy (this process) or client.',
    'stats',
    'no request ended in the last 60 s',
  ),
  output_tokens_per_second: entry(
    'Output tokens',
    'tokens per second',
    'Output tokens of all streams in the last 60 s, divided by 60. “≈” marks numbers with estimated tokens.',
    'stats',
  ),
  stream_output_tokens_per_second: entry(
    'Tokens/s per stream',
    'tokens per second of one stream',
    'Output tokens per second of a finished stream without prefill: (N − n₁) ÷ (last − token − blocked). p50: half of the streams are slower. p10: one of ten is slower. Last 60 s.',
    'stats',
    'no stream with enough tokens ended in the last 60 s',
  ),
  time_to_first_token_seconds: entry(
    'TTFT',
    'time',
    'Time to first token: from the request headers to the first generated token of a stream. p95: one of twenty streams is slower. Last 60 s.',
    'stats',
    'no stream had a first token in the last 60 s',
  ),
  inter_token_latency_seconds: entry(
    'ITL',
    'time per token',
    'Inter-token latency: the gap between chunks, divided by the tokens of the later chunk. Last 60 s.',
    'stats',
    'no stream had two chunks in the last 60 s',
  ),
  in_flight: entry('In flight', 'requests', 'Requests that have started and not ended, now.', 'streams'),
  queue_depth: entry(
    'Queue depth',
    'requests',
    'Requests queued in this process, and streams that wait for the first token, now.',
    'stats',
  ),
  stalled: entry(
    'Stalled',
    'streams',
    'Streams without a token for longer than the limit of their route, now. Slow clients do not count.',
    'streams',
  ),
  worst_burn_rate: entry(
    'Burn rate, worst',
    'times the allowed rate',
    'Share of bad events in a window, divided by the share that the SLO allows. At 1, the budget lasts exactly for the window of the SLO.',
    'slo',
    'no SLO has events in a covered window',
  ),
  cost_per_hour: entry(
    'Cost',
    'per hour',
    'Cost of the requests of the last 60 s, times 60.',
    'metrics',
    'no price is configured for these models',
  ),
  error_budget_remaining: entry(
    'Budget left',
    '% of the error budget',
    'Share of the bad events that the SLO allows in its window which has not been used. Negative: overspent.',
    'slo',
    'no event counted yet',
  ),
  burn_rate: entry(
    'Burn rate',
    'times the allowed rate',
    'Share of bad events in this window, divided by the share that the SLO allows.',
    'slo',
    'the window is not covered yet, or has no events',
  ),
  phase: entry(
    'Phase',
    '',
    'queued: waits in this process. waiting: sent, no token yet. streaming: tokens arrive. stalled: a token is overdue. client is slow: the client does not read. unstreamed: a response without a stream.',
    'streams',
  ),
  tokens: entry('Tokens', 'output tokens', 'Output tokens that the process has counted so far.', 'streams', 'no token yet'),
  rate_now: entry(
    'Tokens/s',
    'tokens per second',
    'Output tokens per second between the last two reports of the stream.',
    'streams',
    'the stream was reported once only',
  ),
  idle_seconds: entry('Idle', 'time', 'Time since the last token.', 'streams', 'no token yet'),
  age_seconds: entry('Age', 'time', 'Time since the start of the request.', 'streams'),
  duration_seconds: entry('Duration', 'time', 'From the request headers to the end of the response.', null),
  tokens_by_kind: entry(
    'Tokens',
    'tokens',
    'Reported by the provider, counted by this process with the encoding of the model, or estimated with another encoding.',
    null,
    'the provider reported no usage',
  ),
  cached_share: entry(
    'Cached',
    '% of input tokens',
    'Input tokens that the provider read from its prompt cache, divided by all input tokens.',
    null,
    'no input tokens were reported',
  ),
  rate_limit_used: entry(
    'Used',
    '% of the limit',
    'Part of the rate limit that is used, from the headers of the latest response.',
    'metrics',
    'the provider sent no limit',
  ),
};

/** Tile of the view Now that a runbook belongs to. */
const TILE_OF_RUNBOOK = [
  [/TTFT/, 'time_to_first_token_seconds'],
  [/Stall|Truncated/, 'stalled'],
  [/OutputTPS|Throughput/, 'stream_output_tokens_per_second'],
  [/BudgetForecast|Cost/, 'cost_per_hour'],
  [/Budget|SLO/, 'worst_burn_rate'],
  [/Queue/, 'queue_depth'],
  [/Error|Failing|Down|RateLimited|Credentials|Cancelled/, 'error_share'],
];

export function tileOfRunbook(runbook) {
  return TILE_OF_RUNBOOK.find(([pattern]) => pattern.test(runbook ?? ''))?.[1] ?? null;
}
