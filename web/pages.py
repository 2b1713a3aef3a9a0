"""What the site has beside docs/: pages of the root, references of the languages, and links that leave docs/.

A hook of MkDocs. The pages stay as a code-hosting site shows them: a link to a file that is no page of the site leads
to the repository there.
"""

from __future__ import annotations

import posixpath
import re
import subprocess
import sys
import textwrap
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))  # MkDocs loads a hook by its path
import links

ROOT = Path(__file__).resolve().parents[1]

#: Pages of the root, by their place on the site.
OF_THE_ROOT = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}

#: What Python programs use, by heading.
PYTHON = {
    "Contexts, tensors, streams": [
        "nncuda.device.context",
        "nncuda.device.tensor",
        "nncuda.device.streams",
        "nncuda.device.graphs",
        "nncuda.device.profiles",
    ],
    "Errors": ["nncuda.errors"],
    "Kernels": ["nncuda.kernels"],
    "Models": ["nncuda.models"],
    "Training": ["nncuda.train"],
    "Inference": ["nncuda.infer"],
    "Files": ["nncuda.formats"],
}

GO = ["cuda", "tensor", "layer", "model", "train", "infer", "report", "safetensors", "formats", "tokenizer", "plan"]

INDEX = """# Reference

| language | reference |
|---|---|
| C | [every function of `bindings.h`](../abi.md), made from the header |
| Python | [the package `nncuda`](python.md), made from its docstrings and type stubs |
| Go | the module's packages, as `go doc` shows them: GO_PACKAGES |
| Rust | the crates, as `cargo doc` shows them: <a href="../rust/nn_core/index.html">nn-core</a>, \
<a href="../rust/nn_ffi/index.html">nn-ffi</a>, <a href="../rust/nn_cuda/index.html">nn-cuda</a> |
"""


def python() -> str:
    """The page that mkdocstrings fills."""
    parts = ["# Python reference\n"]
    for heading, modules in PYTHON.items():
        parts.append(f"## {heading}\n")
        parts += [f"::: {module}\n" for module in modules]
    return "\n".join(parts)


def go(package: str) -> str:
    """What `go doc -all` says of a package."""
    line = ["go", "doc", "-all", f"./{package}"]
    text = subprocess.run(line, cwd=ROOT / "go", capture_output=True, text=True, check=True).stdout
    return f"# Go: package {package}\n\n````go\n{text.rstrip()}\n````\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are not in docs/."""
    packages = ", ".join(f"[{package}](go/{package}.md)" for package in GO)
    made = {"reference/index.md": INDEX.replace("GO_PACKAGES", packages), "reference/python.md": python()}
    made |= {f"reference/go/{package}.md": go(package) for package in GO}
    made |= {page: (ROOT / name).read_text(encoding="utf-8") for page, name in OF_THE_ROOT.items()}
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links to files into links to the site's pages, or else to the repository where it is hosted."""
    here = page.file.src_uri
    source = OF_THE_ROOT.get(here, f"docs/{here}")
    pages = {f"docs/{file.src_uri}": file.src_uri for file in files} | {name: uri for uri, name in OF_THE_ROOT.items()}

    def change(target: str) -> str:
        path, mark, anchor = target.partition("#")
        if not path or not links.is_relative(target):
            return target
        meant = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if meant in pages:
            return posixpath.relpath(pages[meant], posixpath.dirname(here) or ".") + mark + anchor
        if not (ROOT / meant).exists():
            return target  # which is an error of the build
        kind = "tree" if (ROOT / meant).is_dir() else "blob"
        return f"{config.repo_url}/{kind}/main/{meant}{mark}{anchor}"

    if here == "index.md":
        markdown = tabs(markdown)
    return links.rewritten(markdown, change)


def tabs(text: str) -> str:
    """The landing page's sections of the third level, one a language, as tabs beside each other."""

    def tab(section: re.Match[str]) -> str:
        return f'=== "{section[1]}"\n\n{textwrap.indent(section[2].strip(), " " * 4)}\n\n'

    return re.sub(r"^### ([^\n]*)\n(.*?)(?=^##|\Z)", tab, text, flags=re.MULTILINE | re.DOTALL)
