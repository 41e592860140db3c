"""Whether every link of a built site leads somewhere, and nothing is loaded from elsewhere.

Usage: python scripts/site_check.py DIRECTORY
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
"""Elements whose target a browser loads by itself, and the attribute with the target."""
POINTERS = {"canonical", "prev", "next", "alternate"}
"""Relations of `link` that only name another page."""


@dataclass
class Page(HTMLParser):
    """What a page links to, loads, and can be linked to."""

    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element names."""
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag in LOADED and LOADED[tag] in found and found.get("rel") not in POINTERS:
            self.loads.append(found[LOADED[tag]])


def problems(site: Path) -> Iterator[str]:
    """Yield what is wrong with a site, each text with the page."""
    pages = {path: _read(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site)
        yield from (f"{name}: loads {each}" for each in page.loads if _is_elsewhere(each))
        local = [each for each in (*page.links, *page.loads) if not _is_elsewhere(each)]
        for link in dict.fromkeys(local):
            if problem := _problem(link, path, pages, site):
                yield f"{name}: {link}: {problem}"


def _read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text())
    return page


def _is_elsewhere(link: str) -> bool:
    parts = urlsplit(link)
    return bool(parts.scheme or parts.netloc)


def _problem(link: str, path: Path, pages: Mapping[Path, Page], site: Path) -> str:
    parts = urlsplit(link)
    place = unquote(parts.path)
    root = site if place.startswith("/") else path.parent
    target = (root / place.lstrip("/")).resolve() if place else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_file() or site.resolve() not in target.parents:
        return "leads nowhere"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
        return "has no such section"
    return ""


def main() -> int:
    """Print what is wrong, and return the exit status."""
    site = Path(sys.argv[1]).resolve()
    found = list(problems(site))
    print("\n".join(found) or f"{site}: every link leads somewhere")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
