#!/usr/bin/env python3
"""Renders the Helm chart: expected output is unchanged, and wrong values are rejected.

    chart_check.py --helm HELM [--promtool PROMTOOL] [--write]

For each file of deploy/helm/tokengauge/ci the chart passes `helm lint --strict`. The rendered objects must equal tests/fixtures/chart/NAME.yaml,
and the notes of `helm install` NAME.txt; --write regenerates both. Rules and dashboards are not in these fixtures: they must equal the files in
alerts/ and dashboards/, and promtool must accept the rules. Wrong values must be rejected for the right reason. The last line is
`N passed, N failed`; exit status 0 if nothing failed.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/tokengauge"
ALERTS = ROOT / "alerts"
DASHBOARDS = ROOT / "dashboards"
GOLDENS = ROOT / "tests/fixtures/chart"
RELEASE = ["tokengauge", str(CHART), "--namespace", "tokengauge"]
GATEWAY = {"enabled": True, "config": {"upstreams": {"openai": {"url": "https://api.openai.com"}}}}


def gateway(**others):
    """Returns values of a gateway with an upstream, and other values."""
    return {"gateway": {**GATEWAY, **others}}


def configured(**keys):
    return gateway(config={**GATEWAY["config"], **keys})


# Values that must be rejected, and a part of the error message.
TWO = {"a": {"url": "http://a"}, "b": {"url": "http://b"}}

REFUSED = [
    ("a gateway without upstreams", {"gateway": {"enabled": True}}, "gateway.config.upstreams: the gateway has nowhere"),
    ("an unreachable listener", configured(listeners=[{"address": "127.0.0.1:4000"}]), "gateway.config.listeners: "),
    ("a listener on another port", configured(listeners=[{"address": "0.0.0.0:8080"}]), "gateway.config.listeners: "),
    ("an unreachable admin port", configured(admin={"address": "127.0.0.1:4001"}), "gateway.config.admin.address: "),
    ("a certificate without a source", {"injector": {"certificates": {"mode": "secret"}}}, "injector.certificates.secret.name: "),
    (
        "a certificate that no client trusts",
        {"injector": {"certificates": {"mode": "secret", "secret": {"name": "a"}}}},
        "injector.certificates.secret.caBundle: ",
    ),
    ("two upstreams without routes", configured(upstreams=TWO), "gateway.config.routes: missing; there are 2 upstreams, a, b. "),
    ("an empty list of routes", configured(routes=[]), "gateway.config.routes: the list is empty. "),
    ("a route to an unknown upstream", configured(upstreams=TWO, routes=[{"upstream": "c"}]), "routes[0].upstream: no upstream named `c`"),
    (
        "two routes of one name",
        configured(upstreams=TWO, routes=[{"upstream": "a"}, {"upstream": "a", "match": {"prefix": "/x"}}]),
        "routes[1].name: another route is also named `a`",
    ),
    (
        "two routes for the same requests",
        configured(upstreams=TWO, routes=[{"upstream": "a"}, {"upstream": "b", "match": {"prefix": "/"}}]),
        "routes[1].match: another route matches",
    ),
    (
        "no prefix to strip",
        configured(upstreams=TWO, routes=[{"upstream": "a", "strip_prefix": True}]),
        "routes[0].strip_prefix: no prefix to strip",
    ),
    ("an SLO of an unknown route", configured(slos=[{"name": "s", "scope": {"route": "c"}}]), "slos[0].scope.route: no route named `c`"),
    ("a budget of an unknown route", configured(cost={"budgets": [{"name": "s", "route": "c"}]}), "budgets[0].route: no route named `c`"),
    ("two listeners on one address", configured(listeners=[{"address": "[::]:4000"}] * 2), "gateway.config.listeners: two listeners"),
    ("a misspelt component", {"gatway": {}}, "'gatway' not allowed"),
    ("a misspelt value", gateway(replica=3), "at '/gateway': additional properties 'replica' not allowed"),
    ("a misspelt key of the configuration", configured(slo=[]), "'slo' not allowed"),
    ("a misspelt nested key of the configuration", configured(upstreams={"a": {"uri": "http://a"}}), "'uri' not allowed"),
    ("a time without a unit", configured(shutdown_grace_period=20), "at '/gateway/config/shutdown_grace_period'"),
    ("a string instead of a number", gateway(replicas="two"), "at '/gateway/replicas'"),
    ("a pod grace period too short for the shutdown", gateway(terminationGracePeriodSeconds=30), "minimum: got 30, want 60"),
    ("an unknown mode", {"injector": {"certificates": {"mode": "magic"}}}, "at '/injector/certificates/mode'"),
    ("a webhook that waits too long", {"injector": {"webhook": {"timeoutSeconds": 60}}}, "maximum: got 60, want 30"),
    ("a label that selectors need", {"commonLabels": {"app.kubernetes.io/name": "mine"}}, "invalid propertyName 'app.kubernetes.io/name'"),
    ("an invalid digest", {"image": {"digest": "latest"}}, "at '/image/digest'"),
    ("an unknown protocol", {"otlp": {"protocol": "http/json"}}, "at '/otlp/protocol'"),
    ("an unknown flag of sidecars", {"injector": {"sidecar": {"flags": {"mdoe": "outbound"}}}}, "invalid propertyName 'mdoe'"),
    ("an unknown mode of sidecars", {"injector": {"sidecar": {"flags": {"mode": "outbond"}}}}, "at '/injector/sidecar/flags/mode'"),
    ("a required value removed by null", gateway(service=None), "at '/gateway': missing property 'service'"),
    ("an invalid Service name", {"fullnameOverride": "1a"}, "fullnameOverride: "),
    ("a maximum of pods below the minimum", gateway(autoscaling={"enabled": True, "maxReplicas": 1}), "gateway.autoscaling.maxReplicas: "),
    (
        "one name for two ServiceAccounts",
        {"gateway": {"enabled": True, "serviceAccount": {"name": "a"}}, "injector": {"enabled": True, "serviceAccount": {"name": "a"}}},
        "injector.serviceAccount.name: ",
    ),
    ("an external traffic policy for a ClusterIP", gateway(service={"externalTrafficPolicy": "Local"}), "gateway.service.externalTrafficPolicy: "),
    ("source ranges without a LoadBalancer", gateway(service={"loadBalancerSourceRanges": ["10.0.0.0/8"]}), "gateway.service.loadBalancerSourceRanges: "),
    ("more than 100 % of the pods", gateway(podDisruptionBudget={"maxUnavailable": "150%"}), "at '/gateway/podDisruptionBudget/maxUnavailable'"),
    ("an invalid label", {"commonLabels": {"team": "a b"}}, "at '/commonLabels/team'"),
    ("a variable without a name", gateway(extraEnv=[{"value": "1"}]), "at '/gateway/extraEnv/0': missing property 'name'"),
    ("rules without rule groups", {"monitoring": {"prometheusRule": {"files": {"mine": "a: 1"}}}}, "monitoring.prometheusRule.files.mine: "),
    (
        "an issuer without a name",
        {"injector": {"certificates": {"mode": "certManager", "certManager": {"issuerRef": {"kind": "ClusterIssuer"}}}}},
        "injector.certificates.certManager.issuerRef.name: ",
    ),
    ("an invalid object name", {"monitoring": {"prometheusRule": {"files": {"My rules": ""}}}}, "'My rules'"),
]


class Helm:
    def __init__(self, program):
        self.program = program

    def run(self, *arguments, values=None):
        """Returns the output and the error of Helm. One of them is None."""
        given = ["--values", "-"] if values is not None else []
        done = subprocess.run(
            [self.program, *arguments, *given],
            input=None if values is None else json.dumps(values),
            capture_output=True,
            text=True,
        )
        return (done.stdout, None) if done.returncode == 0 else (None, done.stderr + done.stdout)

    def must(self, *arguments, **others):
        out, wrong = self.run(*arguments, **others)
        if wrong is not None:
            raise SystemExit(f"{' '.join(arguments)}: {wrong}")
        return out


def documents(rendered):
    """Returns the documents by file, kind and name, without trailing blank lines, in which Helm 3 and 4 differ."""
    parts = re.split(r"^---$", rendered, flags=re.MULTILINE)
    return sorted((part.strip("\n") for part in parts if part.strip()), key=identity)


def word(document, before):
    """Returns the rest of the document's first line with this prefix, or an empty string."""
    found = re.search(rf"^{before}(\S+)$", document, flags=re.MULTILINE)
    return found.group(1) if found else ""


def kind(document):
    return word(document, "kind: ")


def identity(document):
    return word(document, "# Source: "), kind(document), word(document, "  name: ")


def rules(document):
    """Returns file and text of the rules in a PrometheusRule, or nothing."""
    if kind(document) != "PrometheusRule":
        return None
    name = word(document, "  name: tokengauge-")
    spec = document.split("\nspec:\n")[1]
    return f"{name}.rules.yaml", "\n".join(line.removeprefix("  ") for line in spec.splitlines()) + "\n"


def dashboard(document):
    """Returns name and text of the dashboard in a ConfigMap, or nothing."""
    found = re.search(r"^  (\S+\.json): (\".*\")$", document, flags=re.MULTILINE)
    return (found.group(1), json.loads(found.group(2))) if found else None


def kept(document):
    """Returns the document without the parts that are compared with their source file."""
    rule = rules(document)
    if rule and (ALERTS / rule[0]).exists():
        return None
    if dashboard(document):
        return re.sub(r"^(  \S+\.json): \".*\"$", r'\1: "{}"', document, flags=re.MULTILINE)
    return document


def keep_or_compare(file, text, write):
    """Compares a fixture, or writes it. Returns the difference, or None."""
    if write:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    kept = file.read_text() if file.exists() else ""
    if kept == text:
        return None
    with tempfile.NamedTemporaryFile("w", suffix=file.suffix) as made:
        made.write(text)
        made.flush()
        difference = subprocess.run(["diff", "-u", str(file), made.name], capture_output=True, text=True)
    return f"differs from {file.relative_to(ROOT)} (--write regenerates it)\n{difference.stdout}{difference.stderr}"


def rendered(helm, values, write):
    """Yields the checks of one file of values: (what, error or None)."""
    name = values.name.removesuffix("-values.yaml")
    given = ["--values", str(values)]
    _, wrong = helm.run("lint", "--strict", str(CHART), *given)
    yield f"{name}: helm lint --strict", wrong
    made, wrong = helm.run("template", *RELEASE, *given)
    if wrong is not None:
        yield f"{name}: helm template", wrong
        return
    text = "".join(f"---\n{document}\n" for document in filter(None, map(kept, documents(made))))
    yield f"{name}: rendered objects", keep_or_compare(GOLDENS / f"{name}.yaml", text, write)
    output, wrong = helm.run("install", *RELEASE, *given, "--dry-run=client")
    if wrong is None:
        notes = output.split("\nNOTES:\n")[1].strip("\n") + "\n"
        wrong = keep_or_compare(GOLDENS / f"{name}.txt", notes, write)
    yield f"{name}: notes", wrong


def linked(helm):
    """Checks the links of alerts if the values name the addresses of runbooks and Grafana."""
    for runbooks, grafana, suffix in [("https://r.example.com/x/", "https://g.example.com/", ""), ("https://r.example.com/x/{alert}.md?$1", "https://g.example.com", ".md?$1")]:
        values = {"monitoring": {"prometheusRule": {"enabled": True, "runbookUrl": runbooks, "grafanaUrl": grafana}}}
        out = helm.must("template", *RELEASE, values=values)
        names = re.findall(r"alert: (\w+)", out)
        expected = [f'runbook_url: "https://r.example.com/x/{name}{suffix}"' for name in names]
        found = re.findall(r"runbook_url: .*", out)
        yield f"runbooks are at {runbooks}", None if len(names) > 30 and found == expected else f"{found[:3]}"
        boards = re.findall(r'dashboard_url: "https://g\.example\.com/d/tokengauge-[a-z]+"', out)
        yield f"dashboards are at {grafana}", None if len(boards) == len(names) and "localhost" not in out else f"{boards[:3]}"


def copied(helm, promtool):
    """Checks that rules and dashboards are rendered unchanged from alerts/ and dashboards/."""
    everything = {"prometheusRule": {"enabled": True}, "dashboards": {"enabled": True}}
    made = documents(helm.must("template", *RELEASE, values={"monitoring": everything}))
    found = dict(filter(None, map(rules, made)))
    sources = {file.name: file.read_text() for file in ALERTS.glob("*.rules.yaml")}
    yield "every rule file is rendered", None if set(found) == set(sources) else f"{set(found)} for {set(sources)}"
    for name, text in sources.items():
        yield f"{name} is rendered unchanged", None if found.get(name) == text else "it differs"
    # Without such templates the test would not show that Helm leaves them alone.
    yield "rules contain alert templates", None if any("{{ $labels" in text for text in found.values()) else "none does"
    with tempfile.TemporaryDirectory() as folder:
        for name, text in found.items():
            (pathlib.Path(folder) / name).write_text(text)
        files = sorted(str(file) for file in pathlib.Path(folder).iterdir())
        done = subprocess.run([promtool, "check", "rules", *files], capture_output=True, text=True)
    yield "promtool accepts the rules", None if done.returncode == 0 and files else done.stdout + done.stderr
    shown = dict(filter(None, map(dashboard, made)))
    for file in sorted(DASHBOARDS.glob("*.json")):
        text = shown.pop(file.name, None)
        same = text is not None and json.loads(text) == json.loads(file.read_text())
        yield f"{file.name} is rendered unchanged", None if same else "it differs"
    yield "there are no other dashboards", None if not shown else f"{sorted(shown)}"
    # `kubectl apply` stores each object as JSON in an annotation, which is limited to 256 KiB.
    texts = dict(filter(None, map(dashboard, made)))
    others = [document for document in made if dashboard(document) is None]
    # Names and labels of an object take less than 2 KB. Characters beyond ASCII are stored as they are.
    largest = 2_000 + max(len(json.dumps(text, ensure_ascii=False).encode()) for text in [*texts.values(), *others])
    yield "every object fits into an annotation", None if largest < 256 * 1024 else f"{largest} bytes"


def quiet(helm):
    done = subprocess.run([helm.program, "template", *RELEASE], capture_output=True, text=True)
    yield "Helm prints no warning", None if not done.stderr else done.stderr


def refused(helm):
    for what, values, reason in REFUSED:
        out, wrong = helm.run("template", *RELEASE, values=values)
        if wrong is None:
            yield f"{what}: rejected", "it was rendered"
        else:
            yield f"{what}: rejected", None if reason in wrong else f"rejected without {reason!r}: {wrong}"
    _, wrong = helm.run("template", *RELEASE, "--kube-version", "1.27.16")
    yield "Kubernetes 1.27 is rejected", None if wrong and "1.28" in wrong else f"{wrong}"


def own_certificates(helm):
    """Checks that the chart renders no caBundle and no Secret if another component manages the certificate."""
    for mode in ("selfSigned", "certManager"):
        made = helm.must("template", *RELEASE, values={"injector": {"certificates": {"mode": mode}}})
        kinds = [kind(document) for document in documents(made)]
        output = [line for line in made.splitlines() if "caBundle:" in line]
        yield f"{mode}: no caBundle and no Secret", None if "Secret" not in kinds and not output else f"{kinds} {output}"


def on_openshift(helm):
    """Checks that no pod and no sidecar has the chart's user on OpenShift, and that a user of the operator's choice stays."""
    values = {"gateway": GATEWAY, "injector": {"enabled": True}}
    api = ["--api-versions", "security.openshift.io/v1"]
    made = helm.must("template", *RELEASE, *api, values=values)
    found = re.findall(r"(?:runAsUser|runAsGroup|fsGroup): .*", made)
    yield "OpenShift: no user of the chart", None if not found else f"{found}"
    yield "OpenShift: sidecars without a user", None if "--run-as-user=none" in made else "the flag is missing"
    chosen = {**values, "podSecurityContext": {"runAsUser": 1000650000}, "injector": {"enabled": True, "sidecar": {"flags": {"run-as-user": 2000}}}}
    made = helm.must("template", *RELEASE, *api, values=chosen)
    kept = "runAsUser: 1000650000" in made and "--run-as-user=2000" in made
    yield "OpenShift: a chosen user stays", None if kept else "it was removed"
    elsewhere = helm.must("template", *RELEASE, values=values)
    yield "elsewhere: the chart's user", None if "runAsUser: 65532" in elsewhere and "run-as-user" not in elsewhere else "it is missing"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--helm", required=True)
    parser.add_argument("--promtool", default="promtool")
    parser.add_argument("--write", action="store_true", help="regenerate the fixtures")
    args = parser.parse_args()
    helm = Helm(args.helm)
    print(helm.must("version", "--short").strip())
    files = sorted((CHART / "ci").glob("*-values.yaml"))
    checks = [check for values in files for check in rendered(helm, values, args.write)]
    checks += [*copied(helm, args.promtool), *linked(helm), *refused(helm), *quiet(helm), *own_certificates(helm), *on_openshift(helm)]
    stems = {file.stem for file in GOLDENS.iterdir()}
    wanted = {file.name.removesuffix("-values.yaml") for file in files}
    checks.append(("every fixture has its values file", None if stems == wanted else f"{stems ^ wanted}"))
    failed = [(what, wrong) for what, wrong in checks if wrong is not None]
    for what, wrong in failed:
        print(f"FAILED {what}: {wrong}")
    print(f"{len(checks) - len(failed)} passed, {len(failed)} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
