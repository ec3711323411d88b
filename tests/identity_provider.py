"""A small OpenID Connect provider in this process: discovery, authorisation, tokens (PKCE, RS256), keys, user info."""

import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
STRANGE_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
CLIENT, SECRET = "motley", "the secret of the client"


@dataclass
class IdentityProvider:
    """Who it says logs in, and what it does wrong."""

    port: int = 0
    claims: dict[str, Any] = field(default_factory=dict)
    of_token: dict[str, Any] = field(default_factory=dict)
    """Claims of the ID token in place of the right ones."""
    userinfo_sub: str = ""
    issuer_said: str = ""
    key: rsa.RSAPrivateKey = KEY
    challenges: dict[str, str] = field(default_factory=dict)
    """Code → PKCE challenge."""
    nonce: str = ""
    """Of the last request."""
    subjectless: bool = False
    algorithm: str = "RS256"
    header: dict[str, str] = field(default_factory=lambda: {"kid": "one"})

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def authorise(self, address: str) -> str:
        """What a browser that follows the address is sent back to, when the person has agreed."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert (asked["client_id"], asked["response_type"]) == (CLIENT, "code")
        assert (asked["code_challenge_method"], "openid" in asked["scope"]) == ("S256", True)
        code = f"code-{len(self.challenges)}"
        self.challenges[code] = asked["code_challenge"]
        self.nonce = asked["nonce"]
        return f"{asked['redirect_uri']}?code={code}&state={asked['state']}"

    def answer(self, path: str, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        match path:
            case "/.well-known/openid-configuration":
                return 200, self._discovery()
            case "/token":
                return self._token(form)
            case "/userinfo":
                return 200, self.claims | ({"sub": self.userinfo_sub} if self.userinfo_sub else {})
            case "/jwks":
                public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key()))
                return 200, {"keys": [public | {"kid": "one", "alg": "RS256", "use": "sig"}]}
        return 404, {}

    def _discovery(self) -> dict[str, Any]:
        places = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "jwks"}
        found = {name: f"{self.issuer}/{path}" for name, path in (places | {"userinfo_endpoint": "userinfo"}).items()}
        return {"issuer": self.issuer_said or self.issuer, **found}

    def _token(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if form.get("client_secret") != SECRET or self.challenges.pop(form["code"], None) != challenge:
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        usual = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": self.nonce}
        claims = usual | self.claims | self.of_token
        if self.subjectless:
            del claims["sub"]
        key = self.key if self.algorithm == "RS256" else SECRET
        token = jwt.encode(claims, key, self.algorithm, headers=dict(self.header))
        return 200, {"access_token": "access", "token_type": "Bearer", "id_token": token, "expires_in": 300}


@contextmanager
def identity_provider() -> Iterator[IdentityProvider]:
    provider = IdentityProvider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._say(*provider.answer(urlsplit(self.path).path, {}))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            self._say(*provider.answer(urlsplit(self.path).path, form))

        def _say(self, status: int, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
