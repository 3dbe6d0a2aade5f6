"""Reads dashboards like Grafana: substitutes variables, and lists every query of every panel."""
import dataclasses
import json
import pathlib
import re

ALL, ONE = "All", "one value"
MACRO = re.compile(r"\$\{([A-Za-z_]\w*)(?::\w+)?\}|\[\[(\w+)\]\]|\$([A-Za-z_]\w*)")


@dataclasses.dataclass(frozen=True)
class Query:
    """One target of a panel."""

    dashboard: str
    panel: str
    ref: str
    text: str
    instant: bool
    legend: str = ""

    def __str__(self):
        return f"{self.dashboard} · {self.panel} · {self.ref}"


def dashboards(folder):
    """Returns the dashboards by uid, in the order of their files."""
    read = (json.loads(path.read_text()) for path in sorted(pathlib.Path(folder).glob("*.json")))
    return {one["uid"]: one for one in read}


def panels(dashboard):
    """Returns every panel, including those of collapsed rows."""
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels", ())


def queries(dashboard):
    """Returns every Prometheus query, including those of annotations."""
    for annotation in dashboard.get("annotations", {}).get("list", ()):
        if annotation.get("expr"):
            yield Query(dashboard["uid"], f"annotation {annotation['name']}", "A", annotation["expr"], False)
    for panel in panels(dashboard):
        for target in panel.get("targets", ()):
            if target.get("expr"):
                # NaN marks a gap in a sparkline. Without it, the query is absent there, as in every other panel.
                text = target["expr"].removesuffix(" or vector(NaN)")
                yield Query(dashboard["uid"], panel["title"], target.get("refId", "A"), text,
                            bool(target.get("instant")), target.get("legendFormat", ""))


class Variables:
    """The values of a dashboard's variables, in one store at one time."""

    def __init__(self, dashboard, store, at, span, choice, interval):
        self.store, self.at = store, at
        self.values = {
            "__rate_interval": f"{4 * interval}s", "__interval": f"{interval}s", "__interval_ms": str(interval * 1000),
            "__range": f"{int(span)}s", "__range_s": str(int(span)), "__range_ms": str(int(span * 1000)),
            "__from": str(int((at - span) * 1000)), "__to": str(int(at * 1000)), "__all": ".*"}
        # Query variables without a result.
        self.without = []
        for variable in dashboard.get("templating", {}).get("list", ()):
            value = self.choose(variable, choice)
            if value is not None:
                self.values[variable["name"]] = value

    def fill(self, text):
        """Replaces the variables in the text, including those inside other values."""
        return MACRO.sub(lambda found: self.values.get(found[1] or found[2] or found[3], found[0]), text)

    def unknown(self, text):
        """Returns variables that the text uses but the dashboard does not define."""
        return [found[0] for found in MACRO.finditer(text) if (found[1] or found[2] or found[3]) not in self.values]

    def choose(self, variable, choice):
        kind, current = variable["type"], variable.get("current", {}).get("value")
        if kind in ("datasource", "adhoc"):
            return "prometheus" if kind == "datasource" else None
        options = self.options(variable) if kind == "query" else [one["value"] for one in variable.get("options", ())]
        if kind in ("textbox", "constant"):
            return str(current if current is not None else variable.get("query", ""))
        options = [one for one in options if one not in ("$__all", "")]
        if kind == "custom" and not options:
            options = [part.strip().rpartition(" : ")[2] for part in variable.get("query", "").split(",")]
        if variable.get("includeAll") and choice == ALL:
            return variable.get("allValue") or "(" + "|".join(map(re.escape, options)) + ")"
        if not options:
            self.without.append(variable["name"])
            return ""
        # The comparison needs a second model of the same provider.
        second = re.fullmatch(r"(model|variant)_b", variable["name"])
        if kind == "query" or current in (None, "", "$__all") or isinstance(current, list):
            return options[-1] if second else options[0]
        return str(current)

    def options(self, variable):
        query = variable.get("query", "")
        text = query.get("query", "") if isinstance(query, dict) else query
        text = self.fill(text or variable.get("definition", ""))
        if found := re.fullmatch(r"label_values\((?:(.*),)?\s*(\w+)\)", text, re.S):
            selector, label = found[1], found[2]
            found = self.store.ask("series", **{"match[]": selector or '{__name__=~".+"}', "start": self.at - 300, "end": self.at})
            values = {one[label] for one in found if label in one}
        elif found := re.fullmatch(r"query_result\((.*)\)", text, re.S):
            # Grafana renders each series as text. The variable's regular expression extracts the value.
            values = {shown(labels, value) for labels, value in self.store.now(found[1], self.at)}
        else:
            raise ValueError(f"the variable {variable['name']} has an unsupported query {text!r}")
        expression = variable.get("regex", "")
        if expression:
            values = {picked for value in values if (picked := taken(expression, value)) is not None}
        return sorted(values)


def shown(labels, value):
    name = labels.get("__name__", "")
    rest = ",".join(f'{key}="{value}"' for key, value in labels.items() if key != "__name__")
    return f"{name}{{{rest}}} {value:g} 0"


def taken(expression, value):
    """Applies a variable's regular expression to a value. Returns None if there is no match."""
    body = re.sub(r"\(\?<(\w)", r"(?P<\1", expression.strip("/"))
    found = re.search(body, value)
    if not found:
        return None
    return next((one for one in found.groups() if one is not None), found[0]) if found.groups() else found[0]
