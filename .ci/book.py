#!/usr/bin/env python3
"""Builds the documentation as a site with mdBook, and checks every link of the site.

    .ci/book.py MDBOOK FOLDER

The pages keep their paths from the repository's root, so that links out of docs/ work. The table of contents follows
docs/README.md: a page that no index links to is a failure. The site is FOLDER/book. Exit status 0 if every link works.
Run from the repository's root.
"""
import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

INDEX = "docs/README.md"
LINK = re.compile(r"(\]\()([^)#\s]*)(#[^)\s]*)?\)")


def prose(text):
    """Yields the parts of a page, each with whether it is prose. Code blocks can contain brackets."""
    for number, part in enumerate(text.split("```")):
        yield part, number % 2 == 0


def links(page):
    """Returns the files of this repository to which a page links, in order, without repetitions."""
    found = []
    for part, is_prose in prose(pathlib.Path(page).read_text()):
        for _, file, _ in LINK.findall(part) if is_prose else []:
            if file and "://" not in file:
                target = (pathlib.Path(page).parent / file).resolve().relative_to(pathlib.Path.cwd())
                found.append(target / "README.md" if target.is_dir() else target)
    # The check of the built site reports links to files that do not exist.
    return list(dict.fromkeys(str(file) for file in found if file.is_file()))


def title(page):
    return re.search(r"^# (.*)$", pathlib.Path(page).read_text(), re.MULTILINE)[1].replace("`", "")


def is_page(file):
    return file.endswith(".md")


def staged_name(file):
    """Returns the path in the book. mdBook shows a folder's index.md as its index."""
    return file.removesuffix("README.md") + "index.md" if file.endswith("README.md") else file


def summary():
    """Returns the table of contents, and the pages in it."""
    lines, listed = ["# Summary", "", f"[tokengauge]({staged_name('README.md')})", ""], ["README.md"]

    def add(page, depth):
        if page in listed:
            return
        listed.append(page)
        lines.append(f"{'  ' * depth}- [{title(page)}]({staged_name(page)})")
        # Runbooks and decisions have their own index.
        if page.endswith("/README.md") and page != INDEX:
            for child in filter(is_page, links(page)):
                if pathlib.Path(child).parent == pathlib.Path(page).parent:
                    add(child, depth + 1)

    add(INDEX, 0)
    for section in pathlib.Path(INDEX).read_text().split("\n## ")[1:]:
        heading, _, body = section.partition("\n")
        # This section links to single headings of pages that the other sections list.
        if "| heading |" in body:
            continue
        lines += ["", f"# {heading}", ""]
        linked = {target for _, target, _ in LINK.findall(body)}
        for file in links(INDEX):
            if os.path.relpath(file, "docs") in linked:
                add(file, 0)
    return "\n".join(lines) + "\n", listed


def stage(folder):
    """Copies the pages and the files to which they link, and writes the table of contents."""
    source = folder / "src"
    shutil.rmtree(folder, ignore_errors=True)
    source.mkdir(parents=True)
    shutil.copy("book.toml", folder)
    contents, pages = summary()
    # Pages outside docs/ that only another page links to, such as the README of an example.
    extra = []
    for page in pages:
        for file in links(page):
            if is_page(file) and file not in pages:
                pages.append(file)
                extra.append(f"- [{title(file)}]({staged_name(file)})")
    (source / "SUMMARY.md").write_text(contents + "\n# More\n\n" + "\n".join(extra) + "\n")
    for page in pages:
        here = pathlib.Path(page).parent
        copied = source / staged_name(page)
        copied.parent.mkdir(parents=True, exist_ok=True)

        def rewritten(match):
            file = match[2]
            if file and "://" not in file and (here / file / "README.md").is_file():
                file = file.rstrip("/") + "/README.md"
            return f"{match[1]}{staged_name(file)}{match[3] or ''})"

        text = pathlib.Path(page).read_text()
        copied.write_text("```".join(LINK.sub(rewritten, part) if is_prose else part for part, is_prose in prose(text)))
        for file in links(page):
            if not is_page(file):
                (source / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, source / file)
    forgotten = sorted({str(page) for page in pathlib.Path("docs").rglob("*.md")} - set(pages))
    return [f"{page}: no page links to it" for page in forgotten]


class Page(html.parser.HTMLParser):
    """The link targets and the anchors of a built page."""

    def __init__(self, path):
        super().__init__()
        self.targets, self.anchors = [], set()
        self.feed(path.read_text())

    def handle_starttag(self, _tag, attributes):
        attributes = dict(attributes)
        self.anchors.add(attributes.get("id"))
        self.targets += [attributes[name] for name in ("href", "src") if attributes.get(name)]


def dead_links(site):
    # print.html repeats every page, and toc.html is a frame.
    built = {path.resolve(): Page(path) for path in site.rglob("*.html") if path.name not in ("print.html", "404.html")}
    for path, page in sorted(built.items()):
        for target in page.targets:
            url = urllib.parse.urlsplit(target)
            if url.scheme or url.netloc:
                continue
            file = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
            file = file / "index.html" if file.is_dir() else file
            if not file.exists():
                yield f"{path.relative_to(site.resolve())}: {target} does not exist"
            elif url.fragment and file in built and urllib.parse.unquote(url.fragment) not in built[file].anchors:
                yield f"{path.relative_to(site.resolve())}: {target} is not a heading"


def main(mdbook, folder):
    faults = stage(folder)
    subprocess.run([mdbook, "build", folder], check=True)
    faults += dead_links(folder / "book")
    print("\n".join(faults) or f"every link of {len(list((folder / 'book').rglob('*.html')))} pages works")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], pathlib.Path(sys.argv[2])))
