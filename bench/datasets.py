"""Reads LoCoMo: ten long conversations between two people, and questions with the turns that answer them.

The data set is for measuring only and is not part of this repository.
Source: https://github.com/snap-research/LoCoMo, CC BY-NC 4.0.
"""

import json
import re
import sys
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

DEFAULT_DATA: Final = Path(__file__).parent.parent.parent / "shared" / "data" / "locomo"

_CATEGORIES: Final = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
_SESSION: Final = re.compile(r"session_(\d+)")
_DAY: Final = re.compile(r"\d{1,2} \w+, \d{4}")
# Evidence is written in many ways: `D8:6; D9:17`, `D:11:26`, `D30:05`, `D12:3-D12:5`.
_EVIDENCE: Final = re.compile(r"D:?(\d+):(\d+)(?:\s*-\s*D?:?(\d+):(\d+))?")
_LONGEST_RANGE: Final = 20


@dataclass(frozen=True)
class Turn:
    """One utterance."""

    id: str
    speaker: str
    text: str
    day: date | None
    session: str


@dataclass(frozen=True)
class Question:
    """One question, the turns that answer it, as positions in the conversation, and the answer; empty for none."""

    text: str
    category: str
    evidence: tuple[int, ...]
    answer: str = ""


@dataclass(frozen=True)
class Conversation:
    """One conversation and its questions."""

    id: str
    turns: tuple[Turn, ...]
    questions: tuple[Question, ...]


def locomo(folder: Path) -> list[Conversation]:
    """Returns the ten conversations; a question without a turn that can be found is left out."""
    path = folder / "locomo10.json"
    if not path.exists():
        sys.exit(f"bench: {path} is missing; name the folder of the LoCoMo data set with --data")
    return [_conversation(sample) for sample in json.loads(path.read_text("utf-8"))]


def _conversation(sample: dict[str, Any]) -> Conversation:
    talk = sample["conversation"]
    sessions = sorted((int(m.group(1)), key) for key in talk if (m := _SESSION.fullmatch(key)))
    turns = [
        Turn(turn["dia_id"], turn["speaker"], turn.get("text", ""), _day(talk[f"{key}_date_time"]), key)
        for _, key in sessions
        for turn in talk[key]
    ]
    places = {turn.id: place for place, turn in enumerate(turns)}
    questions = []
    for raw in sample["qa"]:
        found = sorted({places[turn] for text in raw.get("evidence") or [] for turn in _ids(text) if turn in places})
        if found:
            answer = str(raw.get("answer", ""))
            questions.append(Question(raw["question"], _CATEGORIES[raw["category"]], tuple(found), answer))
    return Conversation(sample["sample_id"], tuple(turns), tuple(questions))


def _day(text: str) -> date | None:
    match = _DAY.search(text or "")
    return datetime.strptime(match.group(), "%d %B, %Y").date() if match else None  # noqa: DTZ007 - a day has no zone


def _ids(text: str) -> list[str]:
    found = []
    for match in _EVIDENCE.finditer(str(text)):
        session, first, last_session, last = match.groups()
        if last_session == session and int(first) <= int(last) <= int(first) + _LONGEST_RANGE:
            found += [f"D{int(session)}:{turn}" for turn in range(int(first), int(last) + 1)]
            continue
        found.append(f"D{int(session)}:{int(first)}")
        if last_session:
            found.append(f"D{int(last_session)}:{int(last)}")
    return found


# Questions about things that no LoCoMo conversation mentions; a search for them should return nothing, or rows marked
# low. Source: written for this benchmark.
NEVER_STORED: Final = (
    "What is the boiling point of tungsten?",
    "Which compiler flags does the kernel build use?",
    "How many moons does Neptune have?",
    "What is the torque of the wind turbine's gearbox?",
    "Who signed the treaty of Westphalia?",
    "What is the capital of Burkina Faso?",
    "How do I reset the BIOS password of a ThinkPad?",
    "Which enzyme breaks down lactose?",
    "What is the SWIFT code of the Zurich branch?",
    "How thick is the insulation of the cryostat?",
    "When does the quarterly tax filing for Delaware close?",
    "What does error ORA-01555 mean?",
    "Which gear ratio does the rear differential have?",
    "How is uranium enriched in a centrifuge?",
    "What is the postal code of Reykjavik's harbour?",
    "Who composed the opera Rusalka?",
    "How many teeth does a hippopotamus have?",
    "What is the molar mass of potassium permanganate?",
    "Which port does the LDAP replica listen on?",
    "What is the tensile strength of titanium grade five?",
    "How do I configure BGP route reflectors?",
    "When was the Suez canal nationalised?",
    "What is the half-life of caesium-137?",
    "Which chess opening begins with the Nimzo-Indian?",
    "What is the checksum of release 4.19.2?",
    "How do glaciers carve fjords?",
    "What is the refractive index of sapphire?",
    "Who discovered the Higgs mechanism?",
    "How do I prune a Kubernetes etcd snapshot?",
    "What is the maximum payload of an Airbus Beluga?",
    "Which amendment abolished the poll tax?",
    "What is the wavelength of a helium-neon laser?",
    "How deep is the Mariana trench?",
    "What does the SIGPIPE handler do?",
    "Which alloy are turbine blades cast from?",
    "What is the melting point of gallium arsenide?",
    "How many electoral votes does Wyoming have?",
    "What is the default MTU of a WireGuard tunnel?",
    "Who painted the ceiling of the Residenz in Wuerzburg?",
    "How is Parmesan rennet standardised?",
)
