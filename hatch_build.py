"""What an index of packages shows: README, whose links and pictures lead into the repository.

The address of the repository stands in pyproject.toml, under [tool.hatch.metadata.hooks.custom].
Without one, links become their words and pictures are left out: a relative link leads nowhere on an
index.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?:)([^)]*)\)\n*", re.MULTILINE)
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:)([^)]*)\)")


class Metadata(MetadataHookInterface):  # type: ignore[misc]
    """The description, and the addresses of the project."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fills in what pyproject.toml leaves to this hook."""
        address = str(self.config.get("repository", "")).rstrip("/")
        text = (Path(self.root) / "README.md").read_text("utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": described(text, address),
        }
        metadata["urls"] = urls(address)


def urls(address: str) -> dict[str, str]:
    """Where a reader finds the source, the changes and the issues."""
    if not address:
        return {}
    return {
        "Repository": address,
        "Documentation": f"{address}/blob/main/docs/index.md",
        "Changelog": f"{address}/blob/main/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }


def described(text: str, address: str) -> str:
    """README with links that lead somewhere from anywhere."""
    if not address:
        return LINK.sub(r"\1", PICTURE.sub("", text))
    pictured = PICTURE.sub(
        lambda found: found[0].replace(
            f"({found[1]})", f"({address}/raw/main/{found[1]})"
        ),
        text,
    )
    return LINK.sub(
        lambda found: f"[{found[1]}]({_place(found[2], address)})", pictured
    )


def _place(link: str, address: str) -> str:
    return (
        f"{address}/{link}" if link.startswith("#") else f"{address}/blob/main/{link}"
    )
