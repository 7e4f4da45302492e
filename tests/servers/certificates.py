"""Certificates for TLS on loopback: an authority, a server, a client, and strangers."""

import os
import subprocess
from pathlib import Path

from servers.process import remove_directory, server_directory, server_user
from servers.require import program

KEY_PASSWORD = "key-password"
_NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


class Certificates:
    """A directory with NAME.crt and NAME.key, readable for the servers.

    `server` is 127.0.0.1, localhost and redis.example; `client` logs in; `locked.key` is the client's under
    KEY_PASSWORD; `stranger` is signed by `other`, another authority than `ca`.
    """

    def __init__(self) -> None:
        self.directory = server_directory("certificates")
        self._authority("ca")
        self._authority("other")
        self._signed("server", "ca", "IP:127.0.0.1,DNS:localhost,DNS:redis.example")
        self._signed("client", "ca", "DNS:client")
        self._signed("stranger", "other", "DNS:client")
        self._openssl("pkey", "-in", self["client.key"], "-out", self["locked.key"],
                      "-aes256", "-passout", f"pass:{KEY_PASSWORD}")  # fmt: skip
        user = server_user()
        if user is not None:
            for path in self.directory.iterdir():
                os.chown(path, user.pw_uid, user.pw_gid)

    def __getitem__(self, name: str) -> Path:
        return self.directory / name

    def remove(self) -> None:
        remove_directory(self.directory)

    def _authority(self, name: str) -> None:
        self._openssl("req", "-x509", *_NEW_KEY, "-days", "2", "-subj", f"/CN={name}",
                      "-addext", "keyUsage=critical,keyCertSign,cRLSign",  # which Python asks for from 3.13 on
                      "-keyout", self[f"{name}.key"], "-out", self[f"{name}.crt"])  # fmt: skip

    def _signed(self, name: str, authority: str, names: str) -> None:
        request, extensions = self[f"{name}.csr"], self[f"{name}.ext"]
        extensions.write_text(f"subjectAltName={names}\nauthorityKeyIdentifier=keyid\n")
        self._openssl("req", *_NEW_KEY, "-subj", f"/CN={name}",
                      "-keyout", self[f"{name}.key"], "-out", request)  # fmt: skip
        self._openssl("x509", "-req", "-in", request, "-days", "2", "-extfile", extensions,
                      "-CA", self[f"{authority}.crt"], "-CAkey", self[f"{authority}.key"],
                      "-CAcreateserial", "-out", self[f"{name}.crt"])  # fmt: skip

    @staticmethod
    def _openssl(*arguments: object) -> None:
        command = [program("openssl"), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode:
            raise RuntimeError(f"openssl failed:\n{done.stderr.decode(errors='replace')}")
