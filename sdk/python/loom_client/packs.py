"""A pack in two parts: what stays the same between questions, and what does not."""


class PackParts:
    """What `PackContextResponse` has beside its fields.

    Shapes: `stable_prefix + volatile_suffix == rendered`.
    """

    __slots__ = ()

    rendered: str
    stable_prefix_chars: int

    @property
    def stable_prefix(self) -> str:
        """The beginning of `rendered` that does not depend on the question; a prompt cache may break behind it."""
        return self.rendered[: self.stable_prefix_chars]

    @property
    def volatile_suffix(self) -> str:
        """The rest of `rendered`, which each question changes."""
        return self.rendered[self.stable_prefix_chars :]
