"""`loom login`: signs a person in on a Loom elsewhere, with a code that is typed into a browser."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from loom_cli.console import ERR, OUT, CommandError, print_json

if TYPE_CHECKING:
    import httpx

_FILE: Final = "login.json"
_TIMEOUT_S: Final = 15.0
# A token that is used has at least this long to live.
_MIN_LEFT_S: Final = 60.0
_DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"

File = Annotated[
    Path | None, typer.Option("--file", help="File that the login is kept in. Default: login.json in your config.")
]


@dataclass(frozen=True, slots=True)
class Login:
    """A login as it is kept, readable by its owner alone.

    Attributes:
        base_url: Address of the gateway.
        subject: Who is signed in.
        org: Organisation that the session acts in.
        session: Identifier of the session.
        refresh_token: What a new token is got with.
        access_token: The token of the moment.
        expires_at_s: Units: seconds since 1970, UTC, when that ends.
    """

    base_url: str
    subject: str
    org: str
    session: str
    refresh_token: str = field(repr=False)
    access_token: str = field(repr=False)
    expires_at_s: float


def login(
    url: Annotated[str, typer.Option(help="Address of the gateway. Default: LOOM_BASE_URL.", show_default=False)] = "",
    file: File = None,
) -> None:
    """Signs you in on a Loom: prints a code to type into its sign-in page, and waits until you did.

    Commands such as `loom memory` then use it where LOOM_API_KEY is not set and no Loom runs on this machine.
    """
    from loom_cli.settings import ClientSettings

    base_url = (url or ClientSettings.load().base_url).rstrip("/")
    if not base_url:
        raise CommandError("name the gateway with --url or in LOOM_BASE_URL, such as https://loom.example.org")
    with _http(base_url) as http:
        codes = _posted(http, "code", {})
        ERR.print(f"Open {codes['verification_uri']} in a browser and type the code", markup=False)
        ERR.print(f"\n    {codes['user_code']}\n", markup=False, style="bold")
        given = _awaited(http, codes)
    made = _login(base_url, given)
    save(made, path_of(file))
    OUT.print(f"signed in as {made.subject} in {made.org}", markup=False)


def logout(file: File = None) -> None:
    """Ends the session of `loom login` and every token that was made in it."""
    path = path_of(file)
    held = load(path)
    if held is None:
        raise CommandError("you are not signed in; `loom login` signs you in")
    from loom_client import Loom, LoomError

    try:
        held = fresh(held, path)
        with Loom(held.base_url, held.access_token) as loom:
            loom.call("token.revoke", {"session": held.session})
    except (CommandError, LoomError) as error:
        ERR.print(f"the session may go on until it ends by itself: {error}", markup=False, style="yellow")
    path.unlink(missing_ok=True)
    OUT.print("signed out", markup=False)


def token(
    file: File = None, as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False
) -> None:
    """Prints a token of `loom login`, good for an hour at most: export LOOM_API_KEY=$(loom login-token)."""
    path = path_of(file)
    held = load(path)
    if held is None:
        raise CommandError("you are not signed in; `loom login` signs you in")
    held = fresh(held, path)
    if as_json:
        print_json({"token": held.access_token, "base_url": held.base_url, "subject": held.subject, "org": held.org})
        return
    OUT.print(held.access_token, markup=False)


def path_of(file: Path | None) -> Path:
    """Returns where the login is kept."""
    return file or Path(typer.get_app_dir("loom")) / _FILE


def load(path: Path) -> Login | None:
    """Returns the login of a file, or None where there is none.

    Raises:
        CommandError: The file cannot be read.
    """
    try:
        return Login(**json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise CommandError(f"{path} cannot be read; remove it and sign in again with `loom login`") from error


def save(held: Login, path: Path) -> None:
    """Writes a login, readable by its owner alone."""
    from loom_common.files import write_whole

    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_whole(path, json.dumps(asdict(held)))


def fresh(held: Login, path: Path, now_s: Callable[[], float] = time.time) -> Login:
    """Returns a login whose token has a minute to live at least, got anew where it has not.

    Raises:
        CommandError: The session has ended.
    """
    if held.expires_at_s - now_s() > _MIN_LEFT_S:
        return held
    with _http(held.base_url) as http:
        given = _posted(http, "token", {"grant_type": "refresh_token", "refresh_token": held.refresh_token})
    if "access_token" not in given:
        raise CommandError("your session has ended; sign in again with `loom login`")
    made = replace(_login(held.base_url, given), base_url=held.base_url)
    save(made, path)
    return made


def _awaited(http: "httpx.Client", codes: dict[str, object]) -> dict[str, object]:
    """Returns what a code was exchanged for, once a person approved it."""
    interval_s, until = float(str(codes["interval"])), time.monotonic() + float(str(codes["expires_in"]))
    while time.monotonic() < until:
        given = _posted(http, "token", {"grant_type": _DEVICE_GRANT, "device_code": str(codes["device_code"])})
        if "access_token" in given:
            return given
        if given.get("error") != "authorization_pending":
            break
        time.sleep(interval_s)
    raise CommandError("the code was not approved in time; run `loom login` again")


def _posted(http: "httpx.Client", path: str, body: dict[str, str]) -> dict[str, object]:
    import httpx

    try:
        answer = http.post(path, json=body)
        found = answer.json()
    except (httpx.HTTPError, ValueError) as error:
        raise CommandError(f"{http.base_url} does not answer as Loom does: {type(error).__name__}") from error
    if not isinstance(found, dict):
        raise CommandError(f"{http.base_url} does not answer as Loom does")
    refusal = found.get("error")
    if isinstance(refusal, dict):
        raise CommandError(str(refusal.get("message")))
    return found


def _login(base_url: str, given: dict[str, object]) -> Login:
    return Login(
        base_url=base_url,
        subject=str(given["subject"]),
        org=str(given["org"]),
        session=str(given["session"]),
        refresh_token=str(given["refresh_token"]),
        access_token=str(given["access_token"]),
        expires_at_s=time.time() + float(str(given["expires_in"])),
    )


def _http(base_url: str) -> "httpx.Client":
    import httpx  # here: `loom --help` need not wait for it

    return httpx.Client(base_url=f"{base_url}/sign-in/device/", timeout=_TIMEOUT_S)
