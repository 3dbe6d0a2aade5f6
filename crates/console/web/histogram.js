// Exponential histograms of the API: bucket i holds values in (2^(i/2^scale), 2^((i+1)/2^scale)].
// Percentiles of several groups come from merged buckets, never from averages of percentiles.

/** Adds up histograms. Returns null without any value. A histogram with a finer scale is merged into the coarsest. */
export function merge(histograms) {
  const present = histograms.filter((histogram) => histogram && histogram.count > 0);
  if (present.length === 0) return null;
  const scale = Math.min(...present.map((histogram) => histogram.scale));
  const buckets = new Map();
  let count = 0;
  let sum = 0;
  let zero = 0;
  for (const histogram of present) {
    const shift = histogram.scale - scale;
    count += histogram.count;
    sum += histogram.sum;
    zero += histogram.zero;
    for (const [index, amount] of histogram.buckets) {
      const merged = index >> shift;
      buckets.set(merged, (buckets.get(merged) ?? 0) + amount);
    }
  }
  return { scale, count, sum, zero, buckets: [...buckets].sort((a, b) => a[0] - b[0]) };
}

const edge = (index, scale) => 2 ** (index / 2 ** scale);

/** The bucket of the value with a rank from 1 to count, as its lower and upper bound. */
function bucketOfRank(histogram, rank) {
  if (rank <= histogram.zero) return [0, 0];
  let seen = histogram.zero;
  for (const [index, amount] of histogram.buckets) {
    seen += amount;
    if (rank <= seen) return [edge(index, histogram.scale), edge(index + 1, histogram.scale)];
  }
  const last = histogram.buckets.at(-1);
  return last ? [edge(last[0], histogram.scale), edge(last[0] + 1, histogram.scale)] : [0, 0];
}

/** A percentile, 0 ≤ share ≤ 1: the geometric middle of its bucket, so at most 4.4 % away at scale 3. */
export function quantile(histogram, share) {
  if (!histogram || histogram.count === 0) return null;
  const rank = Math.min(histogram.count, Math.max(1, Math.ceil(share * histogram.count)));
  const [low, high] = bucketOfRank(histogram, rank);
  return Math.sqrt(low * high);
}

/** Values of which at least one is needed on each side of the median: P(no value above) = 2⁻ⁿ; 6 is the least n for 95 %. */
const LEAST_FOR_INTERVAL = 6;

/**
 * The median and its 95 % confidence interval by order statistics: the largest rank l with P(X < l) ≤ 2.5 % for
 * X ~ Binomial(n, ½), and the mirrored rank. The bounds are the outer edges of the buckets, so the interval is never too
 * narrow. Without an interval if there are fewer than 6 values.
 */
export function medianInterval(histogram) {
  if (!histogram || histogram.count === 0) return null;
  const n = histogram.count;
  const median = quantile(histogram, 0.5);
  if (n < LEAST_FOR_INTERVAL) return { median, low: null, high: null, count: n };
  const rank = lowerRank(n);
  return { median, low: bucketOfRank(histogram, rank)[0], high: bucketOfRank(histogram, n + 1 - rank)[1], count: n };
}

function lowerRank(n) {
  // The normal approximation is within one rank from here on.
  if (n > 500) return Math.max(1, Math.floor((n - 1.96 * Math.sqrt(n)) / 2));
  let probability = 0.5 ** n;
  let cumulative = 0;
  let rank = 0;
  while (cumulative + probability <= 0.025) {
    cumulative += probability;
    rank += 1;
    probability *= (n - rank + 1) / rank;
  }
  return Math.max(1, rank);
}

/** Share of values per bucket, for a distribution: [lower bound, upper bound, share]. */
export function distribution(histogram) {
  if (!histogram || histogram.count === 0) return [];
  return histogram.buckets.map(([index, amount]) => [
    edge(index, histogram.scale),
    edge(index + 1, histogram.scale),
    amount / histogram.count,
  ]);
}

/** Wilson's 95 % confidence interval of a share. */
export function shareInterval(hits, total) {
  if (!total) return null;
  const z = 1.96;
  const share = hits / total;
  const middle = (share + (z * z) / (2 * total)) / (1 + (z * z) / total);
  const half = (z * Math.sqrt((share * (1 - share)) / total + (z * z) / (4 * total * total))) / (1 + (z * z) / total);
  return { share, low: Math.max(0, middle - half), high: Math.min(1, middle + half) };
}
