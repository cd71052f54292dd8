"""What a namespace lets be written: words, patterns, what is sensitive. Deterministic, before anything is stored."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import cachetools

from loom_common.auth.directory import Directory, NamespaceInfo
from loom_common.call import Scope
from loom_common.clock import Clock
from loom_common.errors import LoomError
from loom_common.write_policy import Treatment, WritePolicy
from loom_memory.app.classifier import ClassifierPort
from loom_memory.app.drafts import BLACKLISTED, SENSITIVE, Draft, Found, Written
from loom_memory.domain.blacklist import blacklist_of
from loom_memory.domain.memory import Content, Identity, Sensitivity, content_key
from loom_memory.domain.sensitivity import RECOGNISER, Finding, findings, is_prepared, prepare, redacted

logger = logging.getLogger(__name__)

# Source: chosen. While identity is away a policy that was read before holds this long; without one nothing is written.
_POLICY_KEPT_S: Final = 300.0
_MAX_KEPT: Final = 4_096
# Looking through more than this at once would hold the event loop for more than about 5 ms.
_INLINE_CHARS: Final = 20_000
_MAX_TAGS: Final = 32
_CLASSIFIED_AT_ONCE: Final = 8
# Source: chosen. A call of 500 items waits no longer than this for labels.
_LABELS_TIMEOUT_S: Final = 5.0

_BLACKLISTED: Final = "The namespace does not let these words be written; nothing was stored."
_SENSITIVE: Final = "It holds {names}, which the namespace does not let be written; nothing was stored."
_SENSITIVE_KEY: Final = (
    "Its key holds {names}, which cannot be replaced there; nothing was stored. Give it another key."
)


@dataclass(frozen=True, slots=True)
class Admitted:
    """The policy that a call goes by, and what of it may be stored.

    Attributes:
        policy: The namespace's policy.
        drafts: Each draft as it may be stored, or why it may not.
    """

    policy: WritePolicy
    drafts: list[Draft | Written]


class TextGates:
    """Looks through texts before they are written. Reads the policy from identity, which keeps it for seconds."""

    def __init__(self, directory: Directory, classifier: ClassifierPort | None, clock: Clock) -> None:
        self._directory = directory
        self._classifier = classifier
        self._clock = clock
        self._kept: cachetools.TTLCache[Scope, NamespaceInfo] = cachetools.TTLCache(
            _MAX_KEPT, _POLICY_KEPT_S, clock.monotonic_s
        )

    async def admit(self, scope: Scope, drafts: Sequence[Draft]) -> Admitted:
        """Returns what of the drafts may be stored, redacted and labelled.

        Raises:
            BackendUnavailable: The policy cannot be read; nothing may be written without it.
        """
        space = await self._space(scope)
        policy = space.write_policy
        if not is_prepared():
            await asyncio.to_thread(prepare)
        if sum(len(draft.content.value) for draft in drafts) > _INLINE_CHARS:
            found = await asyncio.to_thread(lambda: [admitted(draft, policy) for draft in drafts])
        else:
            found = [admitted(draft, policy) for draft in drafts]
        if space.classifier_endpoint and self._classifier is not None:
            found = await self._labelled(self._classifier, space.classifier_endpoint, found)
        return Admitted(policy, found)

    async def _space(self, scope: Scope) -> NamespaceInfo:
        try:
            found = await self._directory.namespace_info(scope.org, scope.namespace)
        except LoomError:
            kept = self._kept.get(scope)
            if kept is None:
                raise
            return kept
        space = found or NamespaceInfo(scope.org, scope.namespace)
        self._kept[scope] = space
        return space

    async def _labelled(
        self, classifier: ClassifierPort, endpoint: str, drafts: Sequence[Draft | Written]
    ) -> list[Draft | Written]:
        """Adds the classifier's labels to the tags of what may be stored; a text that it fails on has none."""
        turns = asyncio.Semaphore(_CLASSIFIED_AT_ONCE)
        found: dict[int, Draft] = {}

        async def label(place: int, draft: Draft) -> None:
            async with turns:
                try:
                    found[place] = _with_labels(draft, await classifier.labels(endpoint, draft.content.value))
                except LoomError as error:
                    logger.warning("text_not_classified", extra={"endpoint": endpoint, "reason": error.reason.value})

        work = [label(place, draft) for place, draft in enumerate(drafts) if isinstance(draft, Draft)]
        try:
            async with asyncio.timeout(_LABELS_TIMEOUT_S):
                await asyncio.gather(*work)
        except TimeoutError:
            logger.warning("texts_not_classified", extra={"endpoint": endpoint, "texts": len(work) - len(found)})
        return [found.get(place, draft) for place, draft in enumerate(drafts)]


def admitted(draft: Draft, policy: WritePolicy) -> Draft | Written:
    """Returns a draft as a policy lets it be stored, or why nothing of it is."""
    content, identity = draft.content, draft.identity
    own_key = identity.key if draft.has_own_key else ""
    texts = [content.value, own_key, *content.tags, content.source, content.speaker, content.agent]
    if blacklist_of(policy.blocked_words, policy.blocked_patterns).holds(texts):
        return _refused(draft, BLACKLISTED, _BLACKLISTED, Found())
    if Treatment.OFF is policy.personal is policy.secrets:
        return draft
    in_value = _findings(content.value, policy)
    in_tags = [_findings(tag, policy) for tag in content.tags]
    in_source, in_key = _findings(content.source, policy), _findings(own_key, policy)
    every = [*in_value, *in_source, *in_key, *(finding for found in in_tags for finding in found)]
    found = Found(
        names=tuple(sorted({finding.name for finding in every})),
        sensitivity=max(
            (finding.sensitivity for finding in every), key=lambda each: each.weight, default=Sensitivity.NONE
        ),
        recogniser=RECOGNISER,
        redacted=any(policy_of(policy, finding) is Treatment.REDACT for finding in every),
    )
    blocked = [finding for finding in every if policy_of(policy, finding) is Treatment.BLOCK]
    if blocked:
        return _refused(draft, SENSITIVE, _SENSITIVE.format(names=_named(blocked)), replace(found, redacted=False))
    unredactable = [finding for finding in in_key if policy_of(policy, finding) is Treatment.REDACT]
    if unredactable:
        return _refused(
            draft, SENSITIVE, _SENSITIVE_KEY.format(names=_named(unredactable)), replace(found, redacted=False)
        )
    if not found.redacted:
        return replace(draft, found=found)
    return _redacted(draft, found, policy, in_value, in_tags, in_source)


def policy_of(policy: WritePolicy, finding: Finding) -> Treatment:
    """Returns what a policy does about a finding."""
    return policy.secrets if finding.sensitivity is Sensitivity.SECRET else policy.personal


def _findings(text: str, policy: WritePolicy) -> list[Finding]:
    if not text:
        return []
    return findings(text, personal=policy.personal is not Treatment.OFF, secrets=policy.secrets is not Treatment.OFF)


def _redacted(
    draft: Draft,
    found: Found,
    policy: WritePolicy,
    in_value: Sequence[Finding],
    in_tags: Sequence[Sequence[Finding]],
    in_source: Sequence[Finding],
) -> Draft:
    def without(text: str, some: Sequence[Finding]) -> str:
        return redacted(text, [each for each in some if policy_of(policy, each) is Treatment.REDACT])

    content = draft.content
    content = replace(
        content,
        value=without(content.value, in_value),
        tags=tuple(without(tag, some) for tag, some in zip(content.tags, in_tags, strict=True)),
        source=without(content.source, in_source),
    )
    identity = draft.identity
    if not draft.has_own_key:
        # A digest of what was taken out could be guessed back.
        identity = identity._replace(key=content_key(content, draft.stated))
    return replace(draft, identity=identity, content=content, found=found)


def _with_labels(draft: Draft, labels: Sequence[str]) -> Draft:
    content: Content = draft.content
    room = max(_MAX_TAGS - len(content.tags), 0)
    new = tuple(dict.fromkeys(label for label in labels if label not in content.tags))[:room]
    if not new:
        return draft
    return replace(
        draft,
        content=replace(content, tags=(*content.tags, *new)),
        found=replace(draft.found, labels=new),
    )


def _refused(draft: Draft, reason: str, message: str, found: Found) -> Written:
    # Not even a key that was made of the text: it is a digest of what may not be kept.
    identity = draft.identity if draft.has_own_key and reason != SENSITIVE else Identity("")
    return Written(identity, 0, False, reason, None, message=message, found=found)


def _named(some: Sequence[Finding]) -> str:
    return ", ".join(sorted({finding.name.replace("_", " ") for finding in some}))
