"""Asks `tokengauge report --clickhouse` and compares its answers with those from the file."""

import datetime
import json
import math
import os
import ssl
import subprocess

import engine
import figures

LIMITS = "version: 1\nmin_requests: 10\nduration: {p95: {max: 60s}}\nerror_rate: {max: 50%}\n"


def check(base, binary, path, folder, wrong):
    server = base.serve()
    url = f"http://{server.address}"
    secrets = {**os.environ, "CLICKHOUSE_USER": engine.USER, "CLICKHOUSE_PASSWORD": engine.PASSWORD}
    limits = os.path.join(folder, "limits.yaml")
    with open(limits, "w") as file:
        file.write(LIMITS)
    day = (datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=1)).strftime("%Y-%m-%d")
    questions = [
        ["--by", "tenant,model"],
        ["--by", "day,month,stream,server,outcome,error,input_length_bucket,output_length_bucket,operation,provider,conversation"],
        ["--by", "session"],
        ["--since", f"{day}T11:00:00Z", "--until", f"{day}T11:30:00Z", "--where", "tenant=tenant-1", "--where", "stream=true"],
        ["--where", 'model=llama "3"', "--where", "input_length_bucket=<128"],
        ["--compare", "variant=a,variant=b", "--resamples", "100"],
        ["--baseline", path, "--resamples", "100"],
        ["--accept", limits],
    ]
    for question in questions:
        compare(wrong, question, figures.report(binary, path, *question), figures.report(binary, "--clickhouse", url, *question, env=secrets))
    hours(base, binary, path, url, secrets, limits, wrong)
    failures(binary, url, secrets, wrong)
    https(base, binary, url, folder, secrets, wrong)
    server.shutdown()
    print(f"remote: {len(questions)} questions answered as from the file")


def compare(wrong, question, expected, found, exact=True):
    for document in (expected, found):
        for name in ("inputs", "lines", "notes", "tokengauge"):
            document.pop(name, None)
        document["groups"] = {json.dumps(group["key"], sort_keys=True): group["statistics"] for group in document["groups"]}
        for subject in document["subjects"]:
            if subject["name"] in ("A", "B"):
                subject.pop("is", None)
        if document.get("comparison"):
            document["comparison"].pop("a"), document["comparison"].pop("b")
    ignored = set() if exact else {"p5", "p50", "p95", "p99", "percentiles", "timeline", "saturation", "period"}
    differences = list(differing(expected, found, ignored))
    if differences:
        wrong.append(f"remote: {question}: {differences[:3]}")


def differing(expected, found, ignored, path=""):
    """The paths at which two documents differ, apart from the rounding of sums of floating-point numbers."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for name in sorted(expected.keys() | found.keys()):
            if name not in ignored:
                yield from differing(expected.get(name), found.get(name), ignored, f"{path}.{name}")
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for place, (a, b) in enumerate(zip(expected, found)):
            yield from differing(a, b, ignored, f"{path}[{place}]")
    elif isinstance(expected, (int, float)) and isinstance(found, (int, float)):
        if not math.isclose(expected, found, rel_tol=1e-9, abs_tol=1e-9):
            yield f"{path}: {found} instead of {expected}"
    elif expected != found:
        yield f"{path}: {found} instead of {expected}"


def hours(base, binary, path, url, secrets, limits, wrong):
    """A request of last month is no longer in the table of requests. A report of both months therefore comes from the hourly table."""
    old = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=40)
    line = {"time": old.strftime("%Y-%m-%dT%H:%M:%SZ"), "outcome": "ok", "times": {"end": 1.5}, "identity": {"tenant": "old"},
            "call": {"labels": {"model": "m", "stream": False}, "rates": {}}}
    base.insert_events([json.dumps(line) + "\n"])
    base.query("OPTIMIZE TABLE tokengauge.requests FINAL")
    question = ["--by", "month,tenant,model,route,variant,provider"]
    with open(path, "a") as file:
        file.write(json.dumps(line) + "\n")
    expected = figures.report(binary, path, *question)
    found = figures.report(binary, "--clickhouse", url, *question, env=secrets)
    if not any("hourly figures" in note for note in found.get("notes", [])) or "t-digest" not in found["percentiles"]:
        wrong.append(f"remote: the report does not say that it comes from hourly figures: {found.get('notes')}")
    for document in (expected, found):
        for subject in document["subjects"]:
            subject.pop("timeline", None)
    compare(wrong, question, expected, found, exact=False)
    days(base, binary, url, secrets, found, wrong)
    limited = figures.report(binary, "--clickhouse", url, "--accept", limits, "--warmup", "none", "--ramp-down", "none", env=secrets)
    if limited["acceptance"]["accepted"] is not True or "notes" not in limited:
        wrong.append(f"remote: limits on hourly figures: {limited['acceptance']}")
    warned = figures.report(binary, "--clickhouse", url, "--by", "session", env=secrets)
    if not any("needs single requests" in note for note in warned.get("notes", [])):
        wrong.append(f"remote: no warning that single requests are missing: {warned.get('notes')}")
    page = subprocess.run([binary, "report", "--clickhouse", url, "--html", path + ".html"], env=secrets, capture_output=True, text=True, check=False)
    with open(path + ".html") as file:
        if page.returncode or "hourly figures" not in file.read() or "hourly figures" not in page.stdout:
            wrong.append(f"remote: HTML and text: {page.returncode} {page.stderr}")


def days(base, binary, url, secrets, expected, wrong):
    """The daily table answers for whole days. A day whose calls or cost differ from those of its hours is answered from hours."""
    question = ["--by", "month,tenant,model,route,variant,provider"]
    tokens = lambda document: document["subjects"][0]["statistics"]["tokens"]["output"]
    ask = lambda *more: figures.report(binary, "--clickhouse", url, *question, *more, env=secrets)
    row = "INSERT INTO tokengauge.requests_daily (day, requests, tokens_output) SELECT max(day), {calls}, 1000 FROM tokengauge.requests_daily"
    # Tokens of the day without a call are not noticed, and show that the day is read.
    base.query(row.format(calls=0))
    if (found := tokens(ask())) != tokens(expected) + 1000:
        wrong.append(f"days: {found} output tokens, and not 1,000 more than {tokens(expected)}")
    # The period ends within the day.
    until = (datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=1)).strftime("%Y-%m-%dT23:00:00Z")
    if (found := tokens(ask("--until", until))) > tokens(expected):
        wrong.append(f"days: {found} output tokens in a part of the day, and {tokens(expected)} in the day")
    base.query(row.format(calls=1))
    if (found := tokens(ask())) != tokens(expected):
        wrong.append(f"days: {found} output tokens beside an incomplete day, and not {tokens(expected)}")
    base.query("TRUNCATE TABLE tokengauge.requests_daily")
    if (found := tokens(ask())) != tokens(expected):
        wrong.append(f"days: {found} output tokens without daily figures, and not {tokens(expected)}")


def https(base, binary, url, folder, secrets, wrong):
    """Asks over TLS. The report trusts the own authority of the server only if it is named."""
    authority, key, request, certificate = (os.path.join(folder, name) for name in ("ca.pem", "key.pem", "server.csr", "server.pem"))
    new = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-batch"]
    signer = os.path.join(folder, "ca-key.pem")
    for command in [
        [*new, "-x509", "-days", "2", "-subj", "/CN=authority of the test", "-keyout", signer, "-out", authority],
        [*new, "-subj", "/CN=clickhouse", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", request],
        ["openssl", "x509", "-req", "-in", request, "-CA", authority, "-CAkey", signer, "-CAcreateserial", "-days", "2",
         "-copy_extensions", "copy", "-out", certificate],
    ]:
        subprocess.run(command, capture_output=True, check=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = base.serve(tls=context)
    address, question = f"https://{server.address}", ["--by", "tenant"]
    expected = figures.report(binary, "--clickhouse", url, *question, env=secrets)
    found = figures.report(binary, "--clickhouse", address, *question, env={**secrets, "SSL_CERT_FILE": authority})
    compare(wrong, ["https"], expected, found)
    refused = subprocess.run([binary, "report", "--clickhouse", address], env=secrets, capture_output=True, text=True, check=False)
    if refused.returncode != 2 or "UnknownIssuer" not in refused.stderr:
        wrong.append(f"https: exited with {refused.returncode}: {refused.stderr[:500]}")
    server.shutdown()


def failures(binary, url, secrets, wrong):
    """A failed question exits with 2 and names the cause. No output has the password."""
    nobody = {**secrets, "CLICKHOUSE_PASSWORD": "wrong-s3cret"}
    for question, environment, expected in [
        (["--clickhouse", url], nobody, "returned 403"),
        (["--clickhouse", "http://127.0.0.1:1"], secrets, "cannot connect to http://127.0.0.1:1"),
        (["--clickhouse", url.replace("//", f"//{engine.USER}:{engine.PASSWORD}@")], secrets, "leave user and password out"),
        (["--clickhouse", url, "--where", "tenant=nobody"], secrets, "values of tenant: tenant-"),
        (["--clickhouse", url, "--where", "session=nobody's"], secrets, "no call in the period that matches session=nobody's"),
        (["--clickhouse", url, "--since", "2019-01", "--until", "2019-02"], secrets, "no call in the period"),
    ]:
        done = subprocess.run([binary, "report", *question], env=environment, capture_output=True, text=True, check=False)
        output = done.stdout + done.stderr
        if done.returncode != 2 or expected not in output:
            wrong.append(f"remote: {question[2:]} exited with {done.returncode}: {output[:500]}")
        if "s3cret" in output:
            wrong.append(f"remote: {question[2:]} prints the password")
