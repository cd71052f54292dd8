"""Views: other names for vectors that the served model makes, told by their labels."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_PREFIX: Final = re.compile(r"prefix:(?P<dim>[0-9]{1,5}):(?P<model>.+)")
_CTX: Final = re.compile(r"ctx\[(?P<variant>[^\[\]]*)\]:(?P<model>.+)")
_VARIANT: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
# What begins like a label and is none is still no model's name.
_LABEL: Final = re.compile(r"prefix:\d|ctx\[")


class UnusableView(ValueError):
    """A label that names no view over the served model; the text says why."""


@dataclass(frozen=True, slots=True)
class View:
    """One view. Its label is stored beside each vector as a model's name is."""

    label: str
    model: str
    """Model that makes the vectors."""
    dim: int | None = None
    """Width that the vectors are cut to; None where the texts are rewritten instead and the width stays."""
    variant: str = ""
    """How the texts are rewritten before they are embedded, by whoever asks."""


def is_label(name: str) -> bool:
    """Returns whether a name is a view's label and no model's."""
    return _LABEL.match(name) is not None


def parse_view(label: str) -> View:
    """Returns the view that a label names.

    Raises:
        UnusableView: It names none.
    """
    if match := _PREFIX.fullmatch(label):
        return View(label, match["model"], dim=int(match["dim"]))
    if (match := _CTX.fullmatch(label)) and _VARIANT.fullmatch(match["variant"]):
        return View(label, match["model"], variant=match["variant"])
    raise UnusableView(f"{label} is no view. Views are prefix:<dim>:<model> and ctx[<variant>]:<model>.")


def views_over(labels: Sequence[str], model: str, dim: int) -> list[View]:
    """Returns the views over the served model, in order and each once.

    Args:
        labels: Their labels.
        model: Name of the served model.
        dim: Its width.

    Raises:
        UnusableView: A label names no view, one over another model, or a width that is no part of the model's.
    """
    views = [parse_view(label) for label in dict.fromkeys(labels)]
    for view in views:
        if view.model != model:
            raise UnusableView(f"{view.label} is a view over {view.model}, and this process serves {model}.")
        if view.dim is not None and not 0 < view.dim < dim:
            raise UnusableView(f"{view.label} must be narrower than {model}, which is {dim} wide.")
    return views
