"""The links of a site of HTML files: where they lead, and what pages load."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a page loads by itself, by the element and the attribute that say so.
LOADING = {
    *(("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src")),
    *(("link", "href"), ("img", "srcset"), ("source", "srcset")),
}


class Page(HTMLParser):
    """A page: its anchors, its links, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif (tag, name) in LOADING and value:
                self.loads.append(value)
                self.links.append(value)
            elif name == "href" and value:
                self.links.append(value)


def pages(site: Path) -> dict[Path, Page]:
    return {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}


def broken(site: Path) -> Iterator[str]:
    """The links within the site that lead nowhere."""
    found = pages(site)
    for path, page in found.items():
        for link in dict.fromkeys(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            target = (
                (path.parent / unquote(parts.path)).resolve() if parts.path else path
            )
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                yield f"{path.relative_to(site.resolve())}: {link} leads nowhere"
            elif not has_anchor(found.get(target), unquote(parts.fragment)):
                yield f"{path.relative_to(site.resolve())}: {link} has no such anchor"


def has_anchor(page: Page | None, anchor: str) -> bool:
    return page is None or not anchor or anchor in page.anchors


def loaded(site: Path) -> Iterator[str]:
    """What pages and style sheets load from a network."""
    for path, page in pages(site).items():
        for link in page.loads:
            if urlsplit(link).netloc:
                yield f"{path.relative_to(site.resolve())} loads {link}"
    for path in sorted(site.rglob("*.css")):
        for link in re.findall(
            r"url\(['\"]?(?:https?:)?(//[^)'\"]+)", path.read_text("utf-8")
        ):
            yield f"{path.relative_to(site)} loads {link}"
