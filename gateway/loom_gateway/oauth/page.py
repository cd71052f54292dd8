"""The page that asks a person whether a client may have what it asks for."""

import base64
import hashlib
from html import escape
from typing import Final

from starlette.responses import HTMLResponse

from loom_common.auth.claims import Role
from loom_gateway.oauth.clients import origin_of, shown_target

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:30rem;margin:12vh auto;padding:0 1rem;color:#1c1c1a;"
    "background:#fafaf7}h1{font-size:1.3rem}ul{padding-left:1.2rem}form{display:flex;gap:.75rem;margin-top:1.5rem}"
    "button{font:inherit;padding:.5rem 1.2rem;border:1px solid #888;border-radius:.4rem;background:#fff;cursor:pointer}"
    "button.yes{background:#1c1c1a;color:#fff;border-color:#1c1c1a}.quiet{color:#666}"
    "@media(prefers-color-scheme:dark){body{background:#1c1c1a;color:#f0f0ea}button{background:#2a2a27;color:#f0f0ea}"
    "button.yes{background:#f0f0ea;color:#1c1c1a}.quiet{color:#aaa}}"
)
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

_MAY: Final = {
    Role.VIEWER: ("read everything in your namespaces",),
    Role.WRITER: ("read everything in your namespaces", "store, change and delete memories in them"),
    Role.ADMIN: (
        "read everything in your namespaces",
        "store, change and delete memories in them",
        "administer those that you administer",
    ),
}


def consent_page(*, client: str, redirect_uri: str, subject: str, role: Role, consent: str) -> HTMLResponse:
    """Returns the page.

    Args:
        client: Name of the client, as it registered itself.
        redirect_uri: Where the answer goes.
        subject: Who is asked.
        role: Most that the client may do.
        consent: What the answer is known by.
    """
    may = "".join(f"<li>{escape(line)}</li>" for line in _MAY[role])
    body = f"""<h1>{escape(client)} wants to use Loom as you</h1>
<p>You are signed in as <strong>{escape(subject)}</strong>. If you allow it, it may, until you end it:</p>
<ul>{may}</ul>
<p class="quiet">The name is what the program calls itself. The answer goes to {escape(shown_target(redirect_uri))}.
Allow it only if you have just asked that program to connect.</p>
<form method="post"><input type="hidden" name="consent" value="{escape(consent)}">
<button class="yes" name="answer" value="allow">Allow</button>
<button name="answer" value="deny">Deny</button></form>"""
    return _page("Allow access to Loom?", body, form_to=origin_of(redirect_uri))


def problem_page(message: str) -> HTMLResponse:
    """Returns the page of a request whose client nobody can be sent back to."""
    body = f"<h1>This did not work</h1><p>{escape(message)}</p><p>Close this page and connect again.</p>"
    return _page("Loom", body, status=400)


def _page(title: str, body: str, *, status: int = 200, form_to: str = "") -> HTMLResponse:
    html = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style><body>{body}</body></html>"
    )
    policy = (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; frame-ancestors 'none'; "
        # Browsers hold the redirect that answers a form to this too.
        f"form-action 'self' {form_to}".rstrip()
    )
    headers = {
        "Content-Security-Policy": policy,
        "Cache-Control": "no-store",
        # With none at all, browsers send forms without saying which page they come from.
        "Referrer-Policy": "same-origin",
    }
    return HTMLResponse(html, status_code=status, headers=headers)
