"""The registry of names: the semantic conventions and tokengauge's own names, and the rules of Weaver's live check."""
import dataclasses
import pathlib

import yaml

ROOT = pathlib.Path(__file__).parents[3]
INSTRUMENTS = {"counter": ("sum", True), "updowncounter": ("sum", False), "gauge": ("gauge", None), "histogram": ("histogram", None)}
TYPES = {"string_value": "string", "bool_value": "boolean", "int_value": "int", "double_value": "double"}
# The names of the objectives in the configuration follow this prefix, so the registry cannot list them.
VERDICT = "tokengauge.slo."


@dataclasses.dataclass
class Metric:
    instrument: str
    unit: str
    required: list
    # None if the conventions list them: others are allowed.
    attributes: set | None


class Registry:
    def __init__(self, folder=ROOT / "telemetry/registry", published=ROOT / "tests/fixtures/semantic_conventions.yaml"):
        standard = yaml.safe_load(published.read_text())
        own = {path.stem: yaml.safe_load(path.read_text()) for path in folder.glob("*.yaml")}
        self.attributes = dict(standard["attributes"])
        self.own_keys = {one["key"] for one in own["attributes"]["attributes"]}
        for one in own["attributes"]["attributes"]:
            kind = one["type"]
            self.attributes[one["key"]] = kind if isinstance(kind, str) else [member["value"] for member in kind["members"]]
        self.metrics = {name: Metric(*row, None) for name, row in standard["metrics"].items()}
        self.imported = set(own["metrics"]["imports"]["metrics"]), set(own["events"]["imports"]["events"])
        for one in own["metrics"]["metrics"]:
            attributes = {ref["ref"] for ref in one.get("attributes", [])}
            self.metrics[one["name"]] = Metric(one["instrument"], one["unit"], [], attributes)
        self.spans = {one["kind"]: {ref["ref"] for ref in one["attributes"]} for one in own["spans"]["spans"]}
        self.events = {*standard["events"], *(one["name"] for one in own["events"]["events"])}
        self.standard = standard
        self.references = {ref for refs in self.spans.values() for ref in refs} | {
            ref for metric in self.metrics.values() for ref in metric.attributes or ()}

    def own_problems(self):
        """Yields what is wrong within the registry itself."""
        for ref in sorted(self.references - self.attributes.keys()):
            yield f"missing_attribute: the registry refers to {ref}, which neither the conventions nor the registry define"
        metrics, events = self.imported
        for name in sorted((metrics - self.standard["metrics"].keys()) | (events - set(self.standard["events"]))):
            yield f"missing_import: {name} is not in the conventions"
        # Stores that keep attributes as nested objects, such as Elasticsearch, reject a record with both names.
        for signal, keys in [*self.spans.items(), *((name, metric.attributes or set()) for name, metric in self.metrics.items())]:
            for key in sorted(keys):
                for other in sorted(other for other in keys if other.startswith(f"{key}.")):
                    yield f"illegal_namespace: {key} is the first part of {other}, both on {signal}"

    def attribute_problems(self, key, value):
        """Yields what is wrong with an exported attribute: an unknown name, the wrong type, or a value that an own list lacks."""
        if key.startswith(VERDICT):
            key = "tokengauge.slo"
        wanted = self.attributes.get(key)
        if wanted is None:
            yield f"missing_attribute: {key}"
            return
        kind, plain = plain_value(value)
        expected = "string" if isinstance(wanted, list) else wanted
        if expected not in (kind, "any"):
            yield f"type_mismatch: {key} is {kind}, and {expected} in the registry"
        if isinstance(wanted, list) and key in self.own_keys and plain not in wanted:
            yield f"undefined_enum_variant: {key} is {plain!r}"

    def metric_problems(self, metric):
        known = self.metrics.get(metric.name)
        if known is None:
            yield f"missing_metric: {metric.name}"
            return
        data = metric.WhichOneof("data")
        wanted, monotonic = INSTRUMENTS[known.instrument]
        if data != wanted or (monotonic is not None and metric.sum.is_monotonic != monotonic):
            yield f"unexpected_instrument: {metric.name} is {data}, and {known.instrument} in the registry"
        if metric.unit != known.unit:
            yield f"unit_mismatch: {metric.name} has {metric.unit!r}, and {known.unit!r} in the registry"
        for point in getattr(metric, data).data_points:
            keys = {one.key for one in point.attributes}
            for key in sorted(set(known.required) - keys):
                yield f"required_attribute_not_present: {key} on {metric.name}"
            for key in sorted(keys - known.attributes if known.attributes is not None else ()):
                yield f"undeclared_attribute: {key} on {metric.name}"
            for one in point.attributes:
                yield from self.attribute_problems(one.key, one.value)

    def span_problems(self, span):
        kind = {2: "server", 3: "client"}.get(span.kind)
        if kind is None:
            yield f"unexpected_span_kind: {span.name}"
            return
        attributes = {one.key: one.value for one in span.attributes}
        for key, value in attributes.items():
            yield from self.attribute_problems(key, value)
            if key not in self.spans[kind] and not key.startswith(VERDICT):
                yield f"undeclared_attribute: {key} on the {kind} span"
        if kind == "client" and any(key.startswith("gen_ai.usage.") for key in attributes):
            for key in ("gen_ai.operation.name", "gen_ai.provider.name"):
                if key not in attributes:
                    yield f"required_attribute_not_present: {key} on the span {span.name}"
        operation, model = (attributes.get(f"gen_ai.{name}") for name in ("operation.name", "request.model"))
        if kind == "client" and operation is not None:
            expected = " ".join(one.string_value for one in (operation, model) if one is not None)
            if span.name != expected:
                yield f"unexpected_span_name: {span.name!r} instead of {expected!r}"

    def log_problems(self, log):
        if log.event_name and log.event_name not in self.events:
            yield f"missing_event: {log.event_name}"
        if log.event_name:
            for one in log.attributes:
                yield from self.attribute_problems(one.key, one.value)


def plain_value(value):
    """Returns the type of an OTLP value in Weaver's words, and the value."""
    field = value.WhichOneof("value")
    if field == "array_value":
        kinds = {plain_value(one)[0] for one in value.array_value.values}
        return f"{kinds.pop()}[]" if len(kinds) == 1 else "any", [plain_value(one)[1] for one in value.array_value.values]
    return TYPES.get(field, "any"), getattr(value, field)
