#!/usr/bin/env python3
"""Checks the dependency graph against deny.toml: licences, banned crates and sources.

Covers the part of `cargo deny check` that needs no network and no installed tool. Exit status 0 if there are no findings.
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


def test_itself():
    """Proves that this check can fail."""
    mit = {"MIT", "Apache-2.0 WITH LLVM-exception"}
    assert allowed("MIT", mit) and allowed("GPL-3.0/MIT", mit) and allowed("(GPL-3.0 OR MIT) AND MIT", mit)
    assert allowed("Apache-2.0 WITH LLVM-exception OR GPL-3.0", mit)
    assert not allowed("Apache-2.0", mit) and not allowed("MIT AND GPL-3.0", mit) and not allowed("GPL-3.0 OR (MIT AND ISC)", mit)
    rules = {"licenses": {"allow": ["MIT"]}, "bans": {"deny": [{"crate": "openssl-sys", "reason": "r"}]}}
    crate = {"name": "openssl-sys", "version": "1", "source": "git+https://example.com", "license": "GPL-3.0"}
    assert len(list(complaints([crate], rules))) == 3


def main():
    test_itself()
    with open("deny.toml", "rb") as file:
        rules = tomllib.load(file)
    metadata = json.loads(subprocess.check_output(["cargo", "metadata", "--format-version", "1", "--locked", "--all-features"]))
    found = list(complaints(metadata["packages"], rules))
    for line in found:
        print(line)
    print(f"{len(metadata['packages'])} packages read, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
