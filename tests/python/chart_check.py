#!/usr/bin/env python3
"""What the Helm chart renders: as it was, as it should be, and not at all where values are wrong.

    chart_check.py --helm HELM [--promtool PROMTOOL] [--write]

With each file of deploy/helm/tokengauge/ci the chart passes `helm lint --strict`, and renders what tests/fixtures/chart keeps
(NAME.yaml, and NAME.txt for what `helm install` says); --write makes those anew. What is held otherwise is left out of them:
rules are the files in alerts/, byte for byte, and promtool takes them; dashboards are those in dashboards/. Values that
are wrong are refused for the right reason. The last line is `N passed, N failed`; exit 0 when nothing failed.
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
    """Values of a gateway with an upstream, and others beside them."""
    return {"gateway": {**GATEWAY, **others}}


def configured(**keys):
    return gateway(config={**GATEWAY["config"], **keys})


# Values that nobody should install with, and what has to be said of them.
REFUSED = [
    ("a gateway without upstreams", {"gateway": {"enabled": True}}, "gateway.config.upstreams: the gateway has nowhere"),
    ("a listener that nobody reaches", configured(listeners=[{"address": "127.0.0.1:4000"}]), "gateway.config.listeners: "),
    ("a listener elsewhere", configured(listeners=[{"address": "0.0.0.0:8080"}]), "gateway.config.listeners: "),
    ("an admin port that nobody reaches", configured(admin={"address": "127.0.0.1:4001"}), "gateway.config.admin.address: "),
    ("a certificate from nowhere", {"injector": {"certificates": {"mode": "secret"}}}, "injector.certificates.secret.name: "),
    (
        "a certificate that nobody trusts",
        {"injector": {"certificates": {"mode": "secret", "secret": {"name": "a"}}}},
        "injector.certificates.secret.caBundle: ",
    ),
    ("a misspelt part", {"gatway": {}}, "'gatway' not allowed"),
    ("a misspelt value", gateway(replica=3), "at '/gateway': additional properties 'replica' not allowed"),
    ("a misspelt key of the configuration", configured(objectivs=[]), "'objectivs' not allowed"),
    ("a misspelt key deep in it", configured(upstreams={"a": {"uri": "http://a"}}), "'uri' not allowed"),
    ("a time without a unit", configured(drain=20), "at '/gateway/config/drain'"),
    ("a word for a number", gateway(replicas="two"), "at '/gateway/replicas'"),
    ("a grace period without room for a drain", gateway(terminationGracePeriodSeconds=30), "minimum: got 30, want 60"),
    ("an unknown mode", {"injector": {"certificates": {"mode": "magic"}}}, "at '/injector/certificates/mode'"),
    ("a webhook that waits too long", {"injector": {"webhook": {"timeoutSeconds": 60}}}, "maximum: got 60, want 30"),
    ("a label that selectors need", {"commonLabels": {"app.kubernetes.io/name": "mine"}}, "invalid propertyName 'app.kubernetes.io/name'"),
    ("a digest that is none", {"image": {"digest": "latest"}}, "at '/image/digest'"),
    ("an unknown protocol", {"otlp": {"protocol": "http/json"}}, "at '/otlp/protocol'"),
    ("an unknown flag of sidecars", {"injector": {"sidecar": {"flags": {"mdoe": "outbound"}}}}, "invalid propertyName 'mdoe'"),
    ("an unknown mode of sidecars", {"injector": {"sidecar": {"flags": {"mode": "outbond"}}}}, "at '/injector/sidecar/flags/mode'"),
    ("a part that null took away", gateway(service=None), "at '/gateway': missing property 'service'"),
    ("a name that no Service can have", {"fullnameOverride": "1a"}, "fullnameOverride: "),
    ("fewer pods than the fewest", gateway(autoscaling={"enabled": True, "maxReplicas": 1}), "gateway.autoscaling.maxReplicas: "),
    ("traffic from outside to a ClusterIP", gateway(service={"externalTrafficPolicy": "Local"}), "gateway.service.externalTrafficPolicy: "),
    ("networks of no LoadBalancer", gateway(service={"loadBalancerSourceRanges": ["10.0.0.0/8"]}), "gateway.service.loadBalancerSourceRanges: "),
    ("more than all pods at once", gateway(podDisruptionBudget={"maxUnavailable": "150%"}), "at '/gateway/podDisruptionBudget/maxUnavailable'"),
    ("a label that none can be", {"commonLabels": {"team": "a b"}}, "at '/commonLabels/team'"),
    ("a variable without a name", gateway(extraEnv=[{"value": "1"}]), "at '/gateway/extraEnv/0': missing property 'name'"),
    ("rules that are none", {"monitoring": {"prometheusRule": {"files": {"mine": "a: 1"}}}}, "monitoring.prometheusRule.files.mine: "),
    (
        "an issuer without a name",
        {"injector": {"certificates": {"mode": "certManager", "certManager": {"issuerRef": {"kind": "ClusterIssuer"}}}}},
        "injector.certificates.certManager.issuerRef.name: ",
    ),
    ("a name that no object can have", {"monitoring": {"prometheusRule": {"files": {"My rules": ""}}}}, "'My rules'"),
]


class Helm:
    def __init__(self, program):
        self.program = program

    def run(self, *arguments, values=None):
        """What it wrote, and what it complained of: one of them is None."""
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
    """The documents by file, kind and name, without blank lines at their ends: Helm 3 and 4 differ in both."""
    parts = re.split(r"^---$", rendered, flags=re.MULTILINE)
    return sorted((part.strip("\n") for part in parts if part.strip()), key=identity)


def word(document, before):
    """The rest of the document's first line that begins so, or an empty text."""
    found = re.search(rf"^{before}(\S+)$", document, flags=re.MULTILINE)
    return found.group(1) if found else ""


def kind(document):
    return word(document, "kind: ")


def identity(document):
    return word(document, "# Source: "), kind(document), word(document, "  name: ")


def rules(document):
    """The file and the text of a PrometheusRule's rules, or nothing."""
    if kind(document) != "PrometheusRule":
        return None
    name = word(document, "  name: tokengauge-")
    spec = document.split("\nspec:\n")[1]
    return f"{name}.rules.yaml", "\n".join(line.removeprefix("  ") for line in spec.splitlines()) + "\n"


def dashboard(document):
    """The name and the text of a ConfigMap's dashboard, or nothing."""
    found = re.search(r"^  (\S+\.json): (\".*\")$", document, flags=re.MULTILINE)
    return (found.group(1), json.loads(found.group(2))) if found else None


def kept(document):
    """What is kept of a document, without what is held by comparing it with its source."""
    rule = rules(document)
    if rule and (ALERTS / rule[0]).exists():
        return None
    if dashboard(document):
        return re.sub(r"^(  \S+\.json): \".*\"$", r'\1: "{}"', document, flags=re.MULTILINE)
    return document


def keep_or_compare(file, text, write):
    """What is wrong, or nothing."""
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
    return f"not what {file.relative_to(ROOT)} keeps (--write)\n{difference.stdout}{difference.stderr}"


def rendered(helm, values, write):
    """Checks of one file of values: (what, what is wrong or None)."""
    name = values.name.removesuffix("-values.yaml")
    given = ["--values", str(values)]
    _, wrong = helm.run("lint", "--strict", str(CHART), *given)
    yield f"{name}: helm lint --strict", wrong
    made, wrong = helm.run("template", *RELEASE, *given)
    if wrong is not None:
        yield f"{name}: helm template", wrong
        return
    text = "".join(f"---\n{document}\n" for document in filter(None, map(kept, documents(made))))
    yield f"{name}: what is rendered", keep_or_compare(GOLDENS / f"{name}.yaml", text, write)
    said, wrong = helm.run("install", *RELEASE, *given, "--dry-run=client")
    if wrong is None:
        notes = said.split("\nNOTES:\n")[1].strip("\n") + "\n"
        wrong = keep_or_compare(GOLDENS / f"{name}.txt", notes, write)
    yield f"{name}: what is said", wrong


def copied(helm, promtool):
    """Rules and dashboards arrive as they are in alerts/ and dashboards/."""
    everything = {"prometheusRule": {"enabled": True}, "dashboards": {"enabled": True}}
    made = documents(helm.must("template", *RELEASE, values={"monitoring": everything}))
    found = dict(filter(None, map(rules, made)))
    sources = {file.name: file.read_text() for file in ALERTS.glob("*.rules.yaml")}
    yield "every file of rules is there", None if set(found) == set(sources) else f"{set(found)} for {set(sources)}"
    for name, text in sources.items():
        yield f"{name} arrives byte for byte", None if found.get(name) == text else "it does not"
    # Else nothing that Helm could have taken for its own was tried.
    yield "rules have templates in them", None if any("{{ $labels" in text for text in found.values()) else "none has"
    with tempfile.TemporaryDirectory() as folder:
        for name, text in found.items():
            (pathlib.Path(folder) / name).write_text(text)
        files = sorted(str(file) for file in pathlib.Path(folder).iterdir())
        done = subprocess.run([promtool, "check", "rules", *files], capture_output=True, text=True)
    yield "promtool takes the rules", None if done.returncode == 0 and files else done.stdout + done.stderr
    shown = dict(filter(None, map(dashboard, made)))
    for file in sorted(DASHBOARDS.glob("*.json")):
        text = shown.pop(file.name, None)
        same = text is not None and json.loads(text) == json.loads(file.read_text())
        yield f"{file.name} arrives as it is", None if same else "it does not"
    yield "there are no other dashboards", None if not shown else f"{sorted(shown)}"
    # `kubectl apply` keeps each object, written as JSON, in an annotation, of which there may be 256 KiB.
    largest = max(len(json.dumps(document)) for document in made)
    yield "every object fits into an annotation", None if largest < 256 * 1024 else f"{largest} bytes"


def refused(helm):
    for what, values, reason in REFUSED:
        out, wrong = helm.run("template", *RELEASE, values=values)
        if wrong is None:
            yield f"{what} is refused", "it was rendered"
        else:
            yield f"{what} is refused", None if reason in wrong else f"for another reason than {reason!r}: {wrong}"
    _, wrong = helm.run("template", *RELEASE, "--kube-version", "1.27.16")
    yield "Kubernetes 1.27 is refused", None if wrong and "1.28" in wrong else f"{wrong}"


def own_certificates(helm):
    """Whoever makes the certificate, the chart says nothing of what others write."""
    for mode in ("selfSigned", "certManager"):
        made = helm.must("template", *RELEASE, values={"injector": {"certificates": {"mode": mode}}})
        kinds = [kind(document) for document in documents(made)]
        said = [line for line in made.splitlines() if "caBundle:" in line]
        yield f"{mode}: no caBundle and no Secret", None if "Secret" not in kinds and not said else f"{kinds} {said}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--helm", required=True)
    parser.add_argument("--promtool", default="promtool")
    parser.add_argument("--write", action="store_true", help="make the kept files anew")
    asked = parser.parse_args()
    helm = Helm(asked.helm)
    print(helm.must("version", "--short").strip())
    files = sorted((CHART / "ci").glob("*-values.yaml"))
    checks = [check for values in files for check in rendered(helm, values, asked.write)]
    checks += [*copied(helm, asked.promtool), *refused(helm), *own_certificates(helm)]
    stems = {file.stem for file in GOLDENS.iterdir()}
    wanted = {file.name.removesuffix("-values.yaml") for file in files}
    checks.append(("every kept file has its values", None if stems == wanted else f"{stems ^ wanted}"))
    failed = [(what, wrong) for what, wrong in checks if wrong is not None]
    for what, wrong in failed:
        print(f"FAILED {what}: {wrong}")
    print(f"{len(checks) - len(failed)} passed, {len(failed)} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
