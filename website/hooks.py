"""What MkDocs is told beyond mkdocs.yml: links that leave docs/, pages made from the code, mathematics."""

import os
import posixpath
import re
from pathlib import Path
from typing import Any

import generated
import mathematics
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PROJECT = "project"  # the folder of the site for files of the project that pages link to
ALONE = ("index.md", "gallery.md")  # there is nothing to navigate to beside them
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)]*)?\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """A folder in the navigation stands for its pages."""
    assert config.nav is not None
    config.nav = [{title: _pages(inside) for title, inside in entry.items()} for entry in config.nav]
    return config


def _pages(inside: Any) -> Any:
    if not (isinstance(inside, str) and inside.endswith("/")):
        return inside
    return [page.relative_to(DOCS).as_posix() for page in sorted((DOCS / inside).glob("*.md"), key=_first_the_index)]


def _first_the_index(page: Path) -> tuple[bool, str]:
    return page.name != "README.md", page.name


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the examples, and whatever else of the project a page links to."""
    linked = set(generated.examples())
    waiting = [Path(file.abs_src_path or "") for file in files.documentation_pages()]
    while waiting:
        page = waiting.pop()
        found = {target for target in _outside(page) if target not in linked}
        linked |= found
        waiting += [target for target in found if target.suffix == ".md"]
    for path in sorted(linked):
        inclusion = InclusionLevel.NOT_IN_NAV
        of_path: Any = {"abs_src_path": str(path)}
        if path in generated.examples():
            of_path = {"content": generated.alone(path)}
        files.append(File.generated(config, _uri(path), **of_path, inclusion=inclusion))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    source = Path(page.file.abs_src_path or "")

    def moved(link: re.Match) -> str:
        target = _target(source, link[2])
        if target is None:
            return link[0]
        return f"{link[1]}{posixpath.relpath(_uri(target), posixpath.dirname(page.file.src_uri))}{link[3]}"

    if page.file.src_uri in ALONE:
        page.meta["hide"] = ["navigation"]
    return generated.filled(LINK.sub(moved, markdown), page.file.src_uri)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return mathematics.rendered(html)


def _outside(page: Path) -> set[Path]:
    """Return the files outside of docs/ that a page links to."""
    targets = (_target(page, link[2]) for link in LINK.finditer(page.read_text("utf-8")))
    return {target for target in targets if target is not None and not target.is_relative_to(DOCS)}


def _target(page: Path, link: str) -> Path | None:
    """Return the file of the project that a link of a page names, if its place on the site is another one."""
    if "://" in link or link.startswith("mailto:"):
        return None
    target = Path(os.path.normpath(page.parent / link))
    if not target.is_file() or (page.is_relative_to(DOCS) and target.is_relative_to(DOCS)):
        return None
    return target if target.is_relative_to(ROOT) else None


def _uri(path: Path) -> str:
    """Return where a file of the project is on the site."""
    return (
        path.relative_to(DOCS).as_posix()
        if path.is_relative_to(DOCS)
        else f"{PROJECT}/{path.relative_to(ROOT).as_posix()}"
    )
