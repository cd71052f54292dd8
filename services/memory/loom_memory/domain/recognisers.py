"""The recognisers of what is sensitive. Loading what they are made of takes a third of a second.

The patterns of secrets are those of detect-secrets, run by RE2, so that no text takes long; its own engine would take
quadratic time for some. What is a number of a person or an account is a candidate by its form and counts by its
checksum, which python-stdnum knows for each country; telephone numbers are those that phonenumbers takes for valid.

presidio-analyzer, which has recognisers of the same kind, was looked at and left: it cannot be imported without spaCy
(100 MB), and its scores have to be cut off somewhere.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import phonenumbers
from detect_secrets.plugins import (
    artifactory,
    aws,
    azure_storage_key,
    basic_auth,
    cloudant,
    discord,
    github_token,
    gitlab_token,
    jwt,
    mailchimp,
    npm,
    openai,
    private_key,
    pypi_token,
    sendgrid,
    slack,
    softlayer,
    square_oauth,
    stripe,
    telegram_token,
    twilio,
)
from detect_secrets.plugins.base import RegexBasedDetector
from stdnum import iban, luhn
from stdnum.be import nn
from stdnum.br import cpf
from stdnum.ch import ssn as ahv
from stdnum.de import idnr
from stdnum.es import dni, nie
from stdnum.fi import hetu
from stdnum.fr import nir
from stdnum.gb import nhs
from stdnum.in_ import aadhaar
from stdnum.it import codicefiscale
from stdnum.pl import pesel
from stdnum.se import personnummer
from stdnum.us import ssn

from loom_common.safe_patterns import PatternRefused, SafePattern
from loom_memory.domain.memory import Sensitivity

_DETECTORS: Final[tuple[type[RegexBasedDetector], ...]] = (
    artifactory.ArtifactoryDetector,
    aws.AWSKeyDetector,
    azure_storage_key.AzureStorageKeyDetector,
    basic_auth.BasicAuthDetector,
    cloudant.CloudantDetector,
    discord.DiscordBotTokenDetector,
    github_token.GitHubTokenDetector,
    gitlab_token.GitLabTokenDetector,
    jwt.JwtTokenDetector,
    mailchimp.MailchimpDetector,
    npm.NpmDetector,
    openai.OpenAIDetector,
    private_key.PrivateKeyDetector,
    pypi_token.PypiTokenDetector,
    sendgrid.SendGridDetector,
    slack.SlackDetector,
    softlayer.SoftlayerDetector,
    square_oauth.SquareOAuthDetector,
    stripe.StripeDetector,
    telegram_token.TelegramBotTokenDetector,
    twilio.TwilioKeyDetector,
)

# Forms that detect-secrets 1.5 does not know yet, each a prefix that its issuer chose to be found by.
_NEWER_SECRETS: Final = (
    r"github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}",
    r"sk-ant-[a-z0-9]{2,10}-[A-Za-z0-9_-]{40,}",
    r"sk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{40,}",
    r"\bAIza[0-9A-Za-z_-]{35}\b",
    r"\bGOCSPX-[0-9A-Za-z_-]{28}\b",
    r"\bxapp-\d-[A-Z0-9]+-\d+-[a-z0-9]+",
    r"\bhf_[A-Za-z0-9]{34}\b",
    r"AGE-SECRET-KEY-1[0-9A-Z]{58}",
    r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----(?:[^-]+-----END (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----)?",
)
_IBAN: Final = "iban"
# Beginnings and lengths of the issuers that exist: of digits at random every tenth has a right check digit.
_CARD: Final = re.compile(
    r"4\d{12}(?:\d{3}){0,2}|(?:5[1-5]|2[2-7])\d{14}|3[47]\d{13}|3[068]\d{12}|35\d{14}|6(?:011|5\d\d|4[4-9]\d)\d{12}|62\d{14}"
)
_SEPARATORS: Final = str.maketrans("", "", " .-")
# What a look-around at the end asks for is only how far a token reaches.
_TAIL: Final = r"(?!\w)"


@dataclass(frozen=True, slots=True)
class Recogniser:
    """Finds one thing: candidates by a pattern, which count where `holds` says so."""

    name: str
    sensitivity: Sensitivity
    pattern: SafePattern
    holds: Callable[[str], bool]

    def length(self, candidate: str) -> int:
        """Returns how much of a candidate is what it looks for; an IBAN may have words behind it that look alike."""
        while candidate and not self.holds(candidate):
            candidate = candidate.rpartition(" ")[0] if self.name == _IBAN else ""
        return len(candidate)


def recognisers() -> tuple[Recogniser, ...]:
    """Returns all of them."""
    return (*_secrets(), *_personal())


def _secrets() -> Iterator[Recogniser]:
    for detector in _DETECTORS:
        # Abstract there, constants of every detector here.
        name = str(detector.secret_type).lower().replace(" ", "_")
        patterns: Iterable[re.Pattern[str]] = detector.denylist  # type: ignore[assignment]
        for pattern in patterns:
            try:
                # A lazy end finds that there is a token; where one is replaced it has to be found whole.
                source = pattern.pattern.removesuffix(_TAIL)
                source = source[:-1] if source.endswith("*?") else source
                safe = SafePattern(source, ignore_case=bool(pattern.flags & re.IGNORECASE))
            except PatternRefused:
                # With a look-behind, which RE2 has none of; `test_sensitivity` names those.
                continue
            is_jwt = detector is jwt.JwtTokenDetector
            yield Recogniser(name, Sensitivity.SECRET, safe, _is_jwt if is_jwt else _any)
    for newer in _NEWER_SECRETS:
        name = "private_key" if "PRIVATE KEY" in newer else "access_token"
        yield Recogniser(name, Sensitivity.SECRET, SafePattern(newer), _any)


def _personal() -> Iterator[Recogniser]:
    forms: tuple[tuple[str, str, Callable[[str], bool]], ...] = (
        ("email_address", r"[\pL\pN._%+\-]+@(?:[\pL\pN\-]+\.)+\pL{2,24}", _is_email),
        ("payment_card", r"\b[2-6]\d{3}(?:[ .\-]?\d){9,15}\b", _is_card),
        (_IBAN, r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}\b", iban.is_valid),
        ("phone_number", r"\+\d[\d ().\-/]{6,22}\d", _is_phone),
        ("national_id", r"\b\d{3}-\d{2}-\d{4}\b", ssn.is_valid),
        ("national_id", r"\b\d{8}[A-Z]\b", dni.is_valid),
        ("national_id", r"\b[XYZ]\d{7}[A-Z]\b", nie.is_valid),
        ("national_id", r"\b[12] ?\d{2} ?\d{2} ?\d[\dAB] ?\d{3} ?\d{3} ?\d{2}\b", nir.is_valid),
        ("national_id", r"\b[A-Z]{6}\d{2}[A-EHLMPRST]\d{2}[A-Z]\d{3}[A-Z]\b", codicefiscale.is_valid),
        ("national_id", r"\b\d{3}\.\d{3}\.\d{3}-\d{2}\b", cpf.is_valid),
        ("national_id", r"\b756\.\d{4}\.\d{4}\.\d{2}\b", ahv.is_valid),
        ("national_id", r"\b\d{6}[-+A-FU-Y]\d{3}[0-9A-Y]\b", hetu.is_valid),
        ("national_id", r"\b\d{2}\.\d{2}\.\d{2}-\d{3}\.\d{2}\b", nn.is_valid),
        ("national_id", r"\b\d{6}[-+]\d{4}\b", personnummer.is_valid),
        ("national_id", r"\b\d{3} \d{3} \d{4}\b", nhs.is_valid),
        ("national_id", r"\b[2-9]\d{3} \d{4} \d{4}\b", aadhaar.is_valid),
        ("national_id", r"\b\d{2} \d{3} \d{3} \d{3}\b", idnr.is_valid),
        # Eleven digits are anything; these hold a date of birth as well as a check digit.
        ("national_id", r"\b\d{11}\b", pesel.is_valid),
    )
    for name, pattern, holds in forms:
        yield Recogniser(name, Sensitivity.PERSONAL, SafePattern(pattern, ignore_case=name == _IBAN), holds)


def _any(found: str) -> bool:
    return True


def _is_jwt(found: str) -> bool:
    return bool(jwt.JwtTokenDetector.is_formally_valid(found))


def _is_email(found: str) -> bool:
    local, _, domain = found.partition("@")
    # Addresses that stand for none, of RFC 2606.
    reserved = domain.lower().removeprefix("www.") in {"example.com", "example.org", "example.net"}
    return not reserved and ".." not in local and not local.startswith(".") and not domain.startswith("-")


def _is_card(found: str) -> bool:
    digits = found.translate(_SEPARATORS)
    return _CARD.fullmatch(digits) is not None and bool(luhn.is_valid(digits))


def _is_phone(found: str) -> bool:
    try:
        return phonenumbers.is_valid_number(phonenumbers.parse(found, None))
    except phonenumbers.NumberParseException:
        return False
