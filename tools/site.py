"""Hook of mkdocs: adds pages from other folders, the interactive page and the help of all commands to the site.

The pages in docs/ link to files of the repository, such as ../benchmarks/RESULTS.md, so that they can be read there.
On the site these files have other places, which `PAGES` and `FILES` list. A link to any other file outside of docs/ is
left as it is, and the strict build refuses it.
"""

import contextlib
import io
import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from truedrift.cli.main import COMMANDS, HELP, parse
from truedrift.page.explore import render_explore

ROOT = Path(__file__).parents[1]
MODELS = ("digits", "fashion-mnist", "cifar10")

PAGES = {
    "benchmarks/RESULTS.md": "benchmarks.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "examples/README.md": "examples.md",
    **{f"src/truedrift/pretrained/{name}/README.md": f"pretrained/{name}.md" for name in MODELS},
}
"""Page in the repository → page of the site."""

_LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)\s]*)?\))")


def extra_files() -> dict[str, str]:
    """Return the other files that pages link to: path in the repository → path on the site."""
    scripts = sorted(path for path in (ROOT / "examples").iterdir() if path.suffix in {".py", ".ipynb"})
    examples = {f"examples/{path.name}": f"examples/{path.name}" for path in scripts}
    pictures = (ROOT / "src/truedrift/pretrained").glob("*/*.png")
    return examples | {
        str(path.relative_to(ROOT)): f"pretrained/{path.parent.name}-{path.name}" for path in sorted(pictures)
    }


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages and files of other folders."""
    for source, place in (PAGES | extra_files()).items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / source)))
    files.append(File.generated(config, "reference/commands.md", content=describe_commands()))
    files.append(File.generated(config, "assets/explore.html", content=render_explore()))
    return files


def describe_commands() -> str:
    """Return a page with the help of every command."""
    os.environ.update(NO_COLOR="1", COLUMNS="100")
    parts = ["# Command line", "", "```text", HELP, "```"]
    for name in COMMANDS:
        parts += ["", f"## truedrift {name}", "", "```text", print_help(name), "```"]
    return "\n".join(parts)


def print_help(name: str) -> str:
    """Return what `truedrift NAME --help` prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        parse([name, "--help"])
    return printed.getvalue().strip()


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Redirect the links of a page to the places that files have on the site; give the first page its whole width."""
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["toc"]  # the interactive page needs the width
    places = PAGES | extra_files()
    here = next((source for source, place in PAGES.items() if place == page.file.src_uri), f"docs/{page.file.src_uri}")

    def redirect(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(here), match[2]))
        on_site = places.get(target, target.removeprefix("docs/") if target.startswith("docs/") else None)
        if on_site is None:
            return match[0]
        return f"{match[1]}{posixpath.relpath(on_site, posixpath.dirname(page.file.src_uri) or '.')}{match[3]}"

    return _LINK.sub(redirect, markdown)
