#!/usr/bin/env python3
"""Adds a built book to a site that has one folder for each version.

    .ci/site.py BOOK SITE VERSION

BOOK is the output of `.ci/run book`. VERSION is a version number or the name of a branch. The index lists all versions, the newest
release first.
"""
import html
import pathlib
import re
import shutil
import sys

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>tokengauge</title>
<h1>tokengauge: documentation</h1>
<ul>
{links}
</ul>
</html>
"""


def order(name):
    """Sorts releases by their numbers, before branches. A version with a suffix is older than the version without."""
    match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)(-.*)?", name)
    return (0, [-int(part) for part in match.groups()[:3]], match[4] is not None, name) if match else (1, [], False, name)


def main(book, site, version):
    if not re.fullmatch(r"[0-9A-Za-z.-]+", version) or version.startswith("."):
        sys.exit(f"'{version}' is not a valid folder name; letters, digits, '.' and '-' are allowed")
    shutil.rmtree(site / version, ignore_errors=True)
    shutil.copytree(book, site / version)
    names = sorted((path.parent.name for path in site.glob("*/index.html")), key=order)
    links = (f'<li><a href="{html.escape(name)}/">{html.escape(name)}</a></li>' for name in names)
    (site / "index.html").write_text(PAGE.format(links="\n".join(links)))
    # GitHub Pages would otherwise leave out files whose names start with `_`.
    (site / ".nojekyll").touch()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3])
