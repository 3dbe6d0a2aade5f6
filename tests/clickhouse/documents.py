"""Runs the SQL of the dashboard and of docs/how-to/history.md."""

import datetime
import json
import os
import re

import duckdb

ROOT = os.path.join(os.path.dirname(__file__), "../..")
DASHBOARD = os.path.join(ROOT, "deploy/clickhouse/dashboard.json")
PAGE = os.path.join(ROOT, "docs/how-to/history.md")


def check(base, path, folder, wrong):
    queries = panels(base, wrong)
    blocks = page(base, path, folder, wrong)
    print(f"documents: {queries} queries of the dashboard and {blocks} of the page")


def interpolate(sql, tenants, models):
    """Replaces the variables and macros of Grafana's data source with values."""
    now = datetime.datetime.now(datetime.timezone.utc)
    since, until = (f"toDateTime('{time:%Y-%m-%d %H:%M:%S}', 'UTC')" for time in (now - datetime.timedelta(days=30), now))
    sql = re.sub(r"\$__timeFilter\((\w+)\)", rf"(\1 >= {since} AND \1 <= {until})", sql)
    for name, value in [("$__fromTime", since), ("$__toTime", until), ("$__interval_s", "3600"),
                        ("${tenant:singlequote}", tenants), ("${model:singlequote}", models)]:
        sql = sql.replace(name, value)
    return sql


def panels(base, wrong):
    """Each panel has rows. Time series have the columns time, series and value."""
    with open(DASHBOARD) as file:
        dashboard = json.load(file)
    quoted = {}
    for variable in dashboard["templating"]["list"][1:]:
        values = [row[0] for row in base.rows(variable["query"])]
        quoted[variable["name"]] = ", ".join("'" + value.replace("'", "\\'") + "'" for value in values)
    for panel in dashboard["panels"]:
        (target,) = panel["targets"]
        sql = interpolate(target["rawSql"], quoted["tenant"], quoted["model"])
        if "$" in sql:
            wrong.append(f"documents: {panel['title']}: unknown variable in {sql}")
            continue
        try:
            answer = json.loads(base.query(sql, "JSON"))
        except Exception as error:
            wrong.append(f"documents: {panel['title']}: {error}")
            continue
        columns = [column["name"] for column in answer["meta"]]
        if panel["type"] == "timeseries" and columns != ["time", "series", "value"]:
            wrong.append(f"documents: {panel['title']}: columns {columns}")
        if not answer["data"]:
            wrong.append(f"documents: {panel['title']} has no rows")
    return len(dashboard["panels"])


def page(base, path, folder, wrong):
    """The first SQL blocks of the page are for DuckDB, and read requests.jsonl; those that name a table of ClickHouse are for it."""
    with open(PAGE) as file:
        blocks = re.findall(r"```sql\n(.*?)```", file.read(), re.DOTALL)
    valid = os.path.join(folder, "requests.jsonl")
    with open(path) as log, open(valid, "w") as out:
        out.writelines(line for line in log if line.startswith("{") and line.endswith("}\n"))
    for sql in blocks:
        sql = sql.strip().rstrip(";")
        try:
            if "tokengauge." in sql:
                rows = base.rows(sql)
            else:
                rows = duckdb.sql(sql.replace("'requests.jsonl*'", f"'{valid}'")).fetchall()
        except Exception as error:
            wrong.append(f"documents: {sql}: {error}")
            continue
        if not rows:
            wrong.append(f"documents: no rows: {sql}")
    return len(blocks)
