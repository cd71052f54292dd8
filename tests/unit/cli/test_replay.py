import json

import pytest
from typer.testing import CliRunner

from loom.memory.v1 import replay_pb2 as pb
from loom_cli.__main__ import app
from loom_cli.replay import Report


def report(*searches: pb.ReplayedSearch, **sums: float) -> Report:
    made = Report(10)
    made.note(pb.ReplayResponse(total_count=len(searches)))
    for search in searches:
        made.note(pb.ReplayResponse(search=search))
    if sums:
        made.note(pb.ReplayResponse(summary=pb.ReplaySummary(**sums)))  # type: ignore[arg-type]  # fields by name
    return made


def hit(key: str, before: int, after: int, change: str) -> pb.ReplayedHit:
    return pb.ReplayedHit(key=key, rank_before=before, rank_after=after, change=change)


def test_what_changed_most_is_told_first_and_what_did_not_is_left_out() -> None:
    same = pb.ReplayedSearch(org="o", namespace="n", query="same", overlap=1, hits=[hit("a", 1, 1, "same")])
    some = pb.ReplayedSearch(org="o", namespace="n", query="some", overlap=0.5, hits=[hit("b", 0, 1, "entered")])
    most = pb.ReplayedSearch(org="o", namespace="n", query="most\x1b[2J", overlap=0, hits=[hit("c\n", 2, 0, "left")])
    lines = report(same, some, most, compared_count=3, same_count=1, mean_overlap=0.5).lines()
    assert [line.split()[-1] for line in lines if "o/n" in line] == ["most\\u001b[2J", "some"]
    assert not any("\x1b" in line or "\n" in line for line in lines)
    assert "3 searches compared, 1 the same, 0 failed" in lines


def test_a_report_ends_well_only_where_all_were_asked() -> None:
    assert report(compared_count=1).exit_code == 0
    assert report(compared_count=1, failed_count=1).exit_code == 1
    assert report().exit_code == 1
    stopped = report(compared_count=1)
    stopped.interrupted = True
    assert stopped.exit_code == 130


def test_json_holds_every_search_with_its_places() -> None:
    search = pb.ReplayedSearch(org="o", namespace="n", query="q", hits=[hit("b", 0, 1, "entered")])
    told = json.loads(json.dumps(report(search, compared_count=1).to_json()))
    assert told["searches"][0]["hits"] == [
        {"key": "b", "user_id": "", "session_id": "", "before": None, "after": 1, "change": "entered"}
    ]
    assert told["summary"]["compared"] == 1


def test_nothing_to_replay_says_which_setting_keeps_searches() -> None:
    assert "LOOM_MEMORY_SEARCH_TRACE_DAYS" in report(compared_count=0, mean_overlap=1).lines()[-1]


@pytest.mark.parametrize("weight", ["recency", "recency=x", "nothing=1"])
def test_a_weight_that_is_none_is_refused_by_its_name(weight: str) -> None:
    result = CliRunner().invoke(app, ["replay", "--weight", weight, "--data-dir", "none"])
    assert result.exit_code != 0
    assert weight in str(result.exception)
