"""Formats numbers like Grafana, in the units of our dashboards."""
import math

SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K"), (1, ""))
TIMES = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs"))
RATES = {"reqps": "req/s", "cps": "c/s", "cpm": "c/m", "ops": "ops/s"}


def written(value, unit, decimals=None):
    """Formats one value with its unit."""
    if value is None or math.isnan(value):
        return ""
    if unit in ("s", "dtdurations", "clocks"):
        size, word = next(((size, word) for size, word in TIMES if abs(value) >= size), TIMES[-1] if value else (1, "s"))
        return f"{rounded(value / size, decimals)} {word}"
    if unit == "ms":
        return written(value / 1000, "s", decimals)
    if unit == "percentunit":
        return f"{rounded(value * 100, decimals)}%"
    if unit == "percent":
        return f"{rounded(value, decimals)}%"
    if unit in ("bytes", "decbytes", "binBps", "Bps"):
        power = min(int(math.log(abs(value), 1024)), 4) if abs(value) >= 1 else 0
        rate = "/s" if unit.endswith("Bps") else ""
        return f"{rounded(value / 1024 ** power, decimals)} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}{rate}"
    if unit.startswith("suffix:"):
        return rounded(value, decimals) + unit[len("suffix:"):]
    if unit in ("none", "", "string"):
        return rounded(value, decimals)
    size, letter = next(((size, letter) for size, letter in SCALES if abs(value) >= size), (1, ""))
    word = unit[len("count:"):] if unit.startswith("count:") else RATES.get(unit, "")
    sign = "$" if unit == "currencyUSD" else ""
    return f"{sign}{rounded(value / size, decimals)}{' ' if letter else ''}{letter} {word}".rstrip()


def rounded(value, decimals=None):
    """Rounds to three significant digits without trailing zeros, or to `decimals` places."""
    if decimals is not None:
        return f"{value:.{int(decimals)}f}"
    if value == 0:
        return "0"
    places = min(max(2 - math.floor(math.log10(abs(value))), 0), 6)
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def ticks(low, high, wanted=4):
    """Returns round numbers between `low` and `high`."""
    if high <= low:
        return [low]
    rough = (high - low) / wanted
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, int(high / step + 1e-9) + 1)]
