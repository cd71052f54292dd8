"""The documentation is inside the built package, so that an installed Loom answers help as a checkout does."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[3]
ASK = """
from loom_insights.app.help_index import HelpIndex
from loom_insights.store.shipped_docs import docs_folder, shipped_pages
print(docs_folder())
pages = shipped_pages()
print(len(pages), HelpIndex(pages).search("memory.set", 1, None)[0].page.path)
"""


def test_a_built_wheel_carries_every_page_and_answers_from_them(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(
        build, cwd=ROOT / "services" / "insights", capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as packed:
        names = {name.removeprefix("loom_insights/docs/") for name in packed.namelist() if "/docs/" in name}
        packed.extractall(installed)
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert names == pages
    # Before the checkout's own package on the path, as an installed one is where there is no checkout.
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    asked = subprocess.run(
        [sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert asked.returncode == 0, asked.stderr
    folder, answer = asked.stdout.splitlines()
    assert Path(folder) == installed / "loom_insights" / "docs"
    assert answer.split()[0] == str(len(pages))
