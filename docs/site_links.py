"""A hook of mkdocs: links to files beside docs/, such as configs, lead to the source on the site."""

import re
from typing import Any

BESIDE = re.compile(r"\]\((?:\.\./)+((?:config|benchmarks|deploy)/[^)]+|[A-Z][A-Za-z]+(?:\.md)?)\)")


def on_page_markdown(markdown: str, config: Any, **_: Any) -> str:
    """Point them at the repository."""
    return BESIDE.sub(rf"]({config.repo_url}/blob/main/\1)", markdown)
