"""How people's commands reach a running Loom: over HTTP, as any client does."""

from pathlib import Path

from loom_cli import login, run_file
from loom_cli.settings import ClientSettings
from loom_client import Loom


def client(data_dir: Path) -> Loom:
    """Returns a client for `LOOM_BASE_URL` and `LOOM_API_KEY`.

    What is not set is that of the Loom on `data_dir`, or, where none runs there or another one is named, of the login.

    Raises:
        CommandError: Something is not set, no Loom runs there and nobody signed in.
    """
    settings = ClientSettings.load()
    url, token = settings.base_url, settings.api_key.get_secret_value()
    if not token and (held := _login(data_dir, url)) is not None:
        return Loom(held.base_url, held.access_token)
    if not (url and token):
        run = run_file.running(data_dir)
        url, token = url or run.http_url, token or run.token
    return Loom(url, token)


def _login(data_dir: Path, url: str) -> login.Login | None:
    """Returns the login where it is meant: the named gateway is its own, or none is named and no Loom runs here."""
    path = login.path_of(None)
    held = login.load(path)
    if held is None or (url.rstrip("/") != held.base_url if url else run_file.read(data_dir) is not None):
        return None
    return login.fresh(held, path)
