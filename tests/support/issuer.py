"""An OIDC issuer on loopback: it signs what a test says and serves its keys over HTTP."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
ISSUER = "https://issuer.example"


def public_jwk(key: PrivateKey, kid: str, **more: str) -> dict[str, Any]:
    """Returns the public half of a key as its issuer publishes it."""
    public = key.public_key()
    algorithm: Any = RSAAlgorithm if isinstance(public, rsa.RSAPublicKey) else OKPAlgorithm
    if isinstance(public, ec.EllipticCurvePublicKey):
        algorithm = ECAlgorithm
    return {**algorithm.to_jwk(public, as_dict=True), "kid": kid, "use": "sig", **more}


def rsa_key(bits: int = 2048) -> rsa.RSAPrivateKey:
    """Returns a fresh RSA key."""
    return rsa.generate_private_key(65537, bits)


def claims(**changed: Any) -> dict[str, Any]:
    """Returns what a good token says; None takes a claim away."""
    now = time.time()
    facts = {
        "iss": ISSUER,
        "aud": "loom",
        "sub": "build-1",
        "iat": now,
        "exp": now + 300,
        "repository": "acme/app",
        **changed,
    }
    return {name: value for name, value in facts.items() if value is not None}


@dataclass
class Issuer:
    """What the issuer serves and how often it was asked."""

    url: str
    documents: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    """Status, headers and body by path."""
    asked: list[str] = field(default_factory=list)
    forms: list[tuple[dict[str, str], str]] = field(default_factory=list)
    """Forms that were posted, and the authorization that came along."""
    answer: Callable[[dict[str, str]], tuple[int, dict[str, Any]]] = lambda _form: (404, {})
    """Answers a posted form."""

    def describe(self) -> None:
        """Serves the discovery document of an identity provider."""
        document = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/jwks",
        }
        self.documents["/.well-known/openid-configuration"] = (200, {}, json.dumps(document).encode())

    def publish(self, *jwks: dict[str, Any]) -> None:
        """Serves these keys at `/jwks` and no others."""
        self.documents["/jwks"] = (200, {}, json.dumps({"keys": list(jwks)}).encode())

    def sign(self, key: Any, kid: str | None = "k1", algorithm: str = "RS256", **payload: Any) -> str:
        """Returns a token; the payload is a good one but for what is stated."""
        headers = {} if kid is None else {"kid": kid}
        return jwt.encode(claims(**payload), key, algorithm=algorithm, headers=headers)


@contextmanager
def running_issuer() -> Iterator[Issuer]:
    """Runs an issuer for the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.asked.append(self.path)
            status, headers, body = issuer.documents.get(self.path, (404, {}, b""))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            posted = self.rfile.read(int(self.headers["content-length"])).decode()
            form = dict(parse_qsl(posted))
            issuer.forms.append((form, self.headers.get("authorization", "")))
            status, answer = issuer.answer(form)
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer = Issuer(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
