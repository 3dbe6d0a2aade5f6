"""Percentiles and intervals of exponential histograms, computed apart from the console's own code."""

import math


def merge(histograms):
    """Adds up histograms of scale 3 as {bucket: count}."""
    total = {}
    for histogram in histograms:
        for index, count in (histogram or {}).get("buckets", []):
            total[index] = total.get(index, 0) + count
    return total


def bucket_of_rank(buckets, rank):
    seen = 0
    for index in sorted(buckets):
        seen += buckets[index]
        if seen >= rank:
            return index
    raise AssertionError(f"rank {rank} of {seen}")


def quantile(buckets, share):
    """The geometric middle of the bucket of a percentile, or None without values."""
    count = sum(buckets.values())
    if not count:
        return None
    index = bucket_of_rank(buckets, max(1, math.ceil(share * count)))
    return 2 ** ((index + 0.5) / 8)


def median_interval(buckets):
    """The 95 % confidence interval of the median by order statistics, from the exact binomial distribution."""
    count = sum(buckets.values())
    if count < 6:
        return None
    cumulative, rank = 0, 0
    while True:
        probability = math.comb(count, rank) / 2**count
        if cumulative + probability > 0.025:
            break
        cumulative += probability
        rank += 1
    low = 2 ** (bucket_of_rank(buckets, rank) / 8)
    high = 2 ** ((bucket_of_rank(buckets, count + 1 - rank) + 1) / 8)
    return low, high
