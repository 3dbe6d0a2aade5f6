"""Dashboards as Grafana reads them: variables filled in, and every query of every panel."""
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
    """By uid, in the order of their files."""
    read = (json.loads(path.read_text()) for path in sorted(pathlib.Path(folder).glob("*.json")))
    return {one["uid"]: one for one in read}


def panels(dashboard):
    """Every panel, those of collapsed rows too."""
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels", ())


def queries(dashboard):
    """Every query in it that goes to Prometheus, those of its annotations too."""
    for annotation in dashboard.get("annotations", {}).get("list", ()):
        if annotation.get("expr"):
            yield Query(dashboard["uid"], f"annotation {annotation['name']}", "A", annotation["expr"], False)
    for panel in panels(dashboard):
        for target in panel.get("targets", ()):
            if target.get("expr"):
                yield Query(dashboard["uid"], panel["title"], target.get("refId", "A"), target["expr"],
                            bool(target.get("instant")), target.get("legendFormat", ""))


class Variables:
    """What the variables of a dashboard stand for, in one store at one time."""

    def __init__(self, dashboard, store, at, span, choice, interval):
        self.store, self.at = store, at
        self.values = {
            "__rate_interval": f"{4 * interval}s", "__interval": f"{interval}s", "__interval_ms": str(interval * 1000),
            "__range": f"{int(span)}s", "__range_s": str(int(span)), "__range_ms": str(int(span * 1000)),
            "__from": str(int((at - span) * 1000)), "__to": str(int(at * 1000)), "__all": ".*"}
        # Variables that ask the store and got nothing.
        self.without = []
        for variable in dashboard.get("templating", {}).get("list", ()):
            value = self.choose(variable, choice)
            if value is not None:
                self.values[variable["name"]] = value

    def fill(self, text):
        """The text with variables in place; those inside the values of others too."""
        return MACRO.sub(lambda found: self.values.get(found[1] or found[2] or found[3], found[0]), text)

    def unknown(self, text):
        """Variables that are named in the text and not there."""
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
        # What is to be compared with the first is another one of the same provider.
        second = re.fullmatch(r"(model|variant)_b", variable["name"])
        if kind == "query" or current in (None, "", "$__all") or isinstance(current, list):
            return options[-1] if second else options[0]
        return str(current)

    def options(self, variable):
        query = variable.get("query", "")
        text = query.get("query", "") if isinstance(query, dict) else query
        text = self.fill(text or variable.get("definition", ""))
        if found := re.fullmatch(r"label_values\((?:(.*),)?\s*(\w+)\)", text, re.S):
            asked, label = found[1], found[2]
            found = self.store.ask("series", **{"match[]": asked or '{__name__=~".+"}', "start": self.at - 300, "end": self.at})
            values = {one[label] for one in found if label in one}
        elif found := re.fullmatch(r"query_result\((.*)\)", text, re.S):
            # Grafana shows each series as text, which the variable's expression takes apart.
            values = {shown(labels, value) for labels, value in self.store.now(found[1], self.at)}
        else:
            raise ValueError(f"the variable {variable['name']} asks {text!r}")
        expression = variable.get("regex", "")
        if expression:
            values = {picked for value in values if (picked := taken(expression, value)) is not None}
        return sorted(values)


def shown(labels, value):
    name = labels.get("__name__", "")
    rest = ",".join(f'{key}="{said}"' for key, said in labels.items() if key != "__name__")
    return f"{name}{{{rest}}} {value:g} 0"


def taken(expression, value):
    """What a variable's expression leaves of a value; None where it does not fit."""
    body = re.sub(r"\(\?<(\w)", r"(?P<\1", expression.strip("/"))
    found = re.search(body, value)
    if not found:
        return None
    return next((one for one in found.groups() if one is not None), found[0]) if found.groups() else found[0]
