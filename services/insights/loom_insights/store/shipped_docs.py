"""The documentation that the build ships: files beside the package, or in the repository that it runs from."""

import logging
from pathlib import Path
from typing import Final

from loom_insights.domain.documentation import Page, page_of

_PACKAGE: Final = Path(__file__).parents[1]
logger = logging.getLogger(__name__)


def docs_folder(package: Path = _PACKAGE) -> Path | None:
    """Returns where the pages are: inside the installed package, else in the checkout around it; None for nowhere."""
    candidates = [package / "docs"]
    # In the repository the package lies in services/insights/.
    if len(package.parents) > 2 and (package.parents[2] / "protos" / "buf.yaml").is_file():
        candidates.append(package.parents[2] / "docs")
    return next((folder for folder in candidates if folder.is_dir()), None)


def shipped_pages(folder: Path | None = None) -> list[Page]:
    """Returns every page, by path; one that cannot be read is left out with a warning."""
    folder = folder or docs_folder()
    if folder is None:
        logger.warning("help_without_docs")
        return []
    pages = []
    for path in sorted(folder.rglob("*.md")):
        name = path.relative_to(folder).as_posix()
        try:
            pages.append(page_of(name, path.read_text("utf-8")))
        except (OSError, UnicodeDecodeError) as error:
            logger.warning("help_page_unread", extra={"page": name, "error": type(error).__name__})
    return pages
