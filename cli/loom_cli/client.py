"""How people's commands reach a running Loom: over HTTP, as any client does."""

from pathlib import Path

from loom_cli import run_file
from loom_cli.settings import ClientSettings
from loom_client import Loom


def client(data_dir: Path) -> Loom:
    """Returns a client for `LOOM_BASE_URL` and `LOOM_API_KEY`; what is not set is that of the Loom on `data_dir`.

    Raises:
        CommandError: Something is not set and no Loom runs there.
    """
    settings = ClientSettings.load()
    url, token = settings.base_url, settings.api_key.get_secret_value()
    if not (url and token):
        run = run_file.running(data_dir)
        url, token = url or run.http_url, token or run.token
    return Loom(url, token)
