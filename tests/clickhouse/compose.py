"""Checks that the parts of deploy/clickhouse/compose.yaml fit together, as far as this is possible without containers."""

import os
import re
import urllib.parse

import yaml

import engine


def check(wrong):
    compose, collector = (load(name) for name in ("compose.yaml", "collector.yaml"))
    expect = lambda held, text: None if held else wrong.append(f"compose: {text}")
    services, volumes = compose["services"], compose["volumes"]
    for name, service in services.items():
        expect(re.search(r":\d+\.\d+(\.\d+)?$", service["image"]), f"{name} has no version of its image")
        expect(all(other in services for other in service.get("depends_on", [])), f"{name} depends on an unknown service")
        expect(all(port.startswith("127.0.0.1:") for port in service["ports"]), f"{name} listens beyond loopback")
        for mount in service["volumes"]:
            source = mount.split(":")[0]
            exists = os.path.exists(os.path.join(engine.FOLDER, source)) if source.startswith(".") else source in volumes
            expect(exists, f"{name} mounts {source}, which does not exist")
    used = set(re.findall(r"\$\{env:(\w+)\}", read("collector.yaml")))
    expect(used <= services["collector"]["environment"].keys(), f"the Collector lacks one of {used}")
    expect(services["collector"]["environment"] == services["clickhouse"]["environment"], "the services have different users")
    mounts = dict(mount.split(":")[:2][::-1] for mount in services["collector"]["volumes"])
    expect(mounts.get(services["collector"]["command"][1]) == "./collector.yaml", "the Collector does not read collector.yaml")
    queue = collector["extensions"]["file_storage/queue"]["directory"]
    expect(any(queue.startswith(f"{target}/") for target, source in mounts.items() if source in volumes), "the queue is in no volume")
    mapped = {port.split(":")[2] for port in services["collector"]["ports"]}
    receivers = {receiver["endpoint"].split(":")[1] for receiver in collector["receivers"]["otlp"]["protocols"].values()}
    expect(mapped == receivers, f"ports {mapped} of the Collector, and receivers {receivers}")
    target = urllib.parse.urlsplit(collector["exporters"]["clickhouse"]["endpoint"])
    reachable = target.hostname in services and any(port.endswith(f":{target.port}") for port in services[target.hostname]["ports"])
    expect(reachable, f"no service for {target.geturl()}")
    started = [mount for mount in services["clickhouse"]["volumes"] if mount == ".:/docker-entrypoint-initdb.d:ro"]
    expect(started and all(os.path.dirname(path) == engine.FOLDER for path in engine.files()), "the SQL files are not mounted")
    print(f"compose: {len(services)} services fit together")


def read(name):
    with open(os.path.join(engine.FOLDER, name)) as file:
        return file.read()


def load(name):
    return yaml.safe_load(read(name))
