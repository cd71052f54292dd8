"""The table of metrics against the code that records them."""

from pathlib import Path

from loom_common.telemetry import METRICS

ROOT = Path(__file__).parents[3]
TABLE = ROOT / "services" / "common" / "loom_common" / "telemetry" / "metrics.py"


def test_every_metric_of_the_table_is_recorded_somewhere() -> None:
    code = [path for folder in ("services", "gateway") for path in ROOT.glob(f"{folder}/**/*.py") if path != TABLE]
    text = "\n".join(path.read_text("utf-8") for path in code)
    assert {name for name in METRICS if f'"{name}"' not in text} == set()
