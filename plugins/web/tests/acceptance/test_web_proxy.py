"""The recipe for nginx in front of `oncecron web`, as it is written."""

import base64
import re
import ssl
import subprocess
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from nginx import nginx
from servers import Certificates, eventually
from servers.oncecron import Oncecron
from servers.process import free_port
from test_web import serving

RECIPE = Path(__file__).parents[4] / "docs" / "recipes" / "nginx.md"
(SERVER,) = re.findall(
    r"^```nginx\n(.*?)^```$", RECIPE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
PLACES = {
    "443": "{port}",
    "/etc/ssl/certs/cron.example.com.pem": "{certificates}/server.crt",
    "/etc/ssl/private/cron.example.com.key": "{certificates}/server.key",
    "/etc/nginx/oncecron.users": "{directory}/oncecron.users",
    "127.0.0.1:8642": "127.0.0.1:{web}",
}
"""What a test has elsewhere."""


def get(url: str, login: str | None = "ann:secret", **more: str) -> tuple[int, str]:
    """Return the status and the text of a page; the certificate is not for this name."""
    headers = (
        {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"} if login else {}
    )
    context = ssl._create_unverified_context()  # noqa: S323 - as above
    request = Request(url, headers=headers, **more)  # type: ignore[arg-type]  # noqa: S310 - https, of this test
    try:
        with urlopen(request, timeout=30, context=context) as got:  # noqa: S310 - as above
            return got.status, got.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def test_nginx_asks_for_a_login(public_path: Path, certificates: Certificates) -> None:
    """Without one nothing is read; with it all pages are there, at the root and below a path."""
    (public_path / "store").mkdir(mode=0o700)
    host = Oncecron(f"sqlite://{public_path}/store/x.db", public_path, "web1")
    host.run("bad/key", "--tick", "1", "--", "false")
    digest = subprocess.check_output(["openssl", "passwd", "-apr1", "secret"], text=True)
    (public_path / "oncecron.users").write_text(f"ann:{digest}")
    below = "location /cron/ { proxy_pass http://127.0.0.1:8642/; }"
    assert below in RECIPE.read_text(encoding="utf-8")
    server, port = SERVER.replace("location / {", f"{below}\n    location / {{"), free_port()
    with serving(host) as web:
        for place, here in PLACES.items():
            assert place in server
            server = server.replace(
                place,
                here.format(
                    port=port,
                    web=web.port,
                    directory=public_path,
                    certificates=certificates.directory,
                ),
            )
        with nginx(public_path, server):
            root = f"https://127.0.0.1:{port}"
            eventually(lambda: get(root, None)[0] == 401, retry_on=OSError)
            assert get(root, "ann:wrong")[0] == 401
            for prefix in ("/", "/cron/"):
                status, text = get(root + prefix)
                assert status == 200, text
                links = {*re.findall(r'(?:href|src)="([^"#:]+)"', text)}
                assert {"key?name=bad/key", "host?name=web1", "refresh.js"} <= links
                for link in links:
                    assert get(f"{root}{prefix}{link.removeprefix('./')}")[0] == 200, link
            assert get(root, method="POST")[0] in (403, 405)
        assert web.end() == []
