"""What addresses of HTTP servers in settings must look like."""

from typing import Final

from pydantic.config import JsonDict

from loom_common.settings.allowed import ALLOWED_KEY

PORT_PATTERN: Final = r"(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
"""A port, from 1 to 65535."""

# A name, an IPv4 address, or an IPv6 address in brackets.
_HOST: Final = r"(?:[^\s/?#@:\[\]]+|\[[0-9A-Fa-f:.]+\])"
URL_PATTERN: Final = rf"^https?://([^\s/?#@]*@)?{_HOST}(:{PORT_PATTERN})?([/?#]\S*)?$"
URL_RULE: Final[JsonDict] = {
    ALLOWED_KEY: "http://host or https://host, with a port up to 65535 and a path where the API has them"
}
