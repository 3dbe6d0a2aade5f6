#!/usr/bin/env python3
"""Checks the dependency graph against deny.toml (licences, banned crates and sources) and the records in supply-chain/.

Covers the parts of `cargo deny check` and `cargo vet` that need no network and no installed tool. Exit status 0 if there
are no findings. With --exempt, first updates the exemptions in supply-chain/config.toml.
Needs Python 3.11 (tomllib). Run from the repository's root.
"""
import json
import re
import subprocess
import sys
import tomllib

CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"


def allowed(expression, licences):
    """Returns whether an SPDX expression can be satisfied with `licences`. `/` is an old form of OR."""
    words = re.findall(r"[()]|[^\s()]+", expression.replace("/", " OR "))

    def alternatives():
        holds = conjunction()
        while words and words[0] == "OR":
            words.pop(0)
            holds = conjunction() or holds
        return holds

    def conjunction():
        holds = term()
        while words and words[0] == "AND":
            words.pop(0)
            holds = term() and holds
        return holds

    def term():
        word = words.pop(0)
        if word == "(":
            holds = alternatives()
            words.pop(0)
            return holds
        if words and words[0] == "WITH":
            words.pop(0)
            word = f"{word} WITH {words.pop(0)}"
        return word in licences

    return alternatives()


def complaints(packages, rules):
    licences = set(rules["licenses"]["allow"])
    banned = {entry["crate"]: entry["reason"] for entry in rules["bans"]["deny"]}
    for package in packages:
        name = f"{package['name']} {package['version']}"
        if package["name"] in banned:
            yield f"{name} is banned: {banned[package['name']]} (find its dependents with: cargo tree --target all -i {package['name']})"
        if package["source"] not in (CRATES_IO, None):
            yield f"{name} comes from {package['source']}: only crates.io is allowed"
        if not package["license"]:
            yield f"{name} declares no licence"
        elif not allowed(package["license"], licences):
            yield f"{name}: the licences that deny.toml allows do not satisfy {package['license']!r}"


def unrecorded(packages, config, audits):
    """Yields versions of crates without a record, and exemptions that no crate needs, as `cargo vet` does."""
    recorded = {
        (name, entry["version"]) for name, entries in config["exemptions"].items() for entry in entries
    }
    audited = {
        (name, entry.get("version") or entry["delta"].split(" -> ")[-1])
        for name, entries in audits.get("audits", {}).items()
        for entry in entries
        if "version" in entry or "delta" in entry
    }
    used = {(package["name"], package["version"]) for package in packages if package["source"]}
    for name, version in sorted(used - recorded - audited):
        yield f"{name} {version} has no record: read the changes, then add an audit to supply-chain/audits.toml"
    for name, version in sorted(recorded - used):
        yield f"{name} {version} is not used: remove its exemption from supply-chain/config.toml"


def exempt(packages, config, audits):
    """Returns supply-chain/config.toml with exactly the exemptions that are needed, in the format of cargo-vet."""
    criteria = {
        (name, entry["version"]): entry["criteria"] for name, entries in config["exemptions"].items() for entry in entries
    }
    missing = [line.split()[:2] for line in unrecorded(packages, {"exemptions": {}}, audits)]
    missing.sort(key=lambda crate: (crate[0], [int(number) for number in re.findall(r"\d+", crate[1])]))
    lines = ["", "# cargo-vet config file", "", "[cargo-vet]", f'version = "{config["cargo-vet"]["version"]}"']
    for name, version in missing:
        known = criteria.get((name, version), "safe-to-deploy")
        lines += ["", f"[[exemptions.{name}]]", f'version = "{version}"', f'criteria = "{known}"']
    return "\n".join(lines) + "\n"


def test_itself():
    """Proves that this check can fail."""
    mit = {"MIT", "Apache-2.0 WITH LLVM-exception"}
    assert allowed("MIT", mit) and allowed("GPL-3.0/MIT", mit) and allowed("(GPL-3.0 OR MIT) AND MIT", mit)
    assert allowed("Apache-2.0 WITH LLVM-exception OR GPL-3.0", mit)
    assert not allowed("Apache-2.0", mit) and not allowed("MIT AND GPL-3.0", mit) and not allowed("GPL-3.0 OR (MIT AND ISC)", mit)
    rules = {"licenses": {"allow": ["MIT"]}, "bans": {"deny": [{"crate": "openssl-sys", "reason": "r"}]}}
    crate = {"name": "openssl-sys", "version": "1", "source": "git+https://example.com", "license": "GPL-3.0"}
    assert len(list(complaints([crate], rules))) == 3
    config = {"exemptions": {"a": [{"version": "1"}], "b": [{"version": "1"}]}}
    audits = {"audits": {"b": [{"delta": "1 -> 2"}], "c": [{"version": "1"}]}}
    used = [{"name": name, "version": version, "source": CRATES_IO} for name, version in ["a1", "b2", "c1", "c2"]]
    assert len(list(unrecorded(used, config, audits))) == 2, "c 2 has no record, and the exemption of b 1 is not used"


def read(path):
    with open(path, "rb") as file:
        return tomllib.load(file)


def main():
    test_itself()
    rules = read("deny.toml")
    metadata = json.loads(subprocess.check_output(["cargo", "metadata", "--format-version", "1", "--locked", "--all-features"]))
    if sys.argv[1:] == ["--exempt"]:
        text = exempt(metadata["packages"], read("supply-chain/config.toml"), read("supply-chain/audits.toml"))
        with open("supply-chain/config.toml", "w", encoding="utf-8") as file:
            file.write(text)
    found = list(complaints(metadata["packages"], rules))
    found += unrecorded(metadata["packages"], read("supply-chain/config.toml"), read("supply-chain/audits.toml"))
    for line in found:
        print(line)
    print(f"{len(metadata['packages'])} packages read, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
