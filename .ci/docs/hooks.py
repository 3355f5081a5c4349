"""Makes the README the first page of the site, and rewrites links between files as links between pages."""

import os
import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File
from nbclient import NotebookClient

# The kernel of the notebook would warn that its sockets are not encrypted; no option of the plugin prevents that.
NotebookClient.extra_arguments.default_args = (["--IPKernelApp.log_level=ERROR"],)

os.environ["MATPLOTLIBRC"] = str(Path(__file__).with_name("matplotlibrc"))

ROOT = Path(__file__).parents[2]
# Pages of the site whose files are not in docs/.
OUTSIDE = {
    "README.md": "index.md",
    ".github/CONTRIBUTING.md": "contributing.md",
    ".github/SECURITY.md": "security.md",
    ".ci/docs/site.css": "site.css",
}


def on_files(files, config):
    """Adds the files of OUTSIDE."""
    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown, page, config, files):
    """Rewrites links to pages of the site, and removes links to other files of the repository."""
    here = page.file.src_uri
    folder = posixpath.dirname(next((path for path, name in OUTSIDE.items() if name == here), f"docs/{here}"))

    def link(match):
        text, target, anchor = match.groups()
        path = posixpath.normpath(posixpath.join(folder, target))
        if "://" in target:
            return match[0]
        if path not in OUTSIDE and not path.startswith("docs/"):
            return text  # a file of the repository that is not in the site
        there = OUTSIDE.get(path, path.removeprefix("docs/"))
        return f"[{text}]({posixpath.relpath(there, posixpath.dirname(here) or '.')}{anchor or ''})"

    return re.sub(r"\[([^\[\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)", link, markdown)


def on_page_content(html, page, config, files):
    """Describes the notebook's pictures."""
    return html.replace("No description has been provided for this image", "What the code above draws")
