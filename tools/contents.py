"""What packages have inside, with licences: Debian's copyright file, and the list in SPDX 2.3."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from email.parser import HeaderParser
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from email.message import Message
    from pathlib import Path

LICENCES = {"async-timeout": "Apache-2.0", "jinja2": "BSD-3-Clause", "waitress": "ZPL-2.1"}
"""Of packages whose own description has no SPDX expression."""
COMMON_LICENCES = {"Apache-2.0": "Apache-2.0", "LGPL-3.0-only": "LGPL-3"}
"""Those whose text every Debian has, by its name in /usr/share/common-licenses."""


def descriptions(target: Path) -> Iterator[tuple[Message, str, Path]]:
    """Yield what each package says of itself, its licence, and the directory that has its texts."""
    for path in sorted(target.glob("*.dist-info")):
        text = (path / "METADATA").read_text(encoding="utf-8")
        description = HeaderParser().parsestr(text)
        licence = description["License-Expression"] or LICENCES[normal(description["Name"])]
        yield description, licence, path


def normal(name: str) -> str:
    """Return the name of a package in its normal form (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def copyright_file(target: Path, package: str = "oncecron") -> str:
    """Return who holds the rights, in Debian's form (DEP-5)."""
    parts = [
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: oncecron\n"
    ]
    texts: dict[str, str] = {}
    for description, licence, path in descriptions(target):
        name, files = description["Name"], f"{path.name.partition('-')[0]}*"
        authors = (
            description["Author"] or description["Author-email"] or description["Maintainer-email"]
        )
        texts[licence] = texts.get(licence) or licence_text(licence, path)
        where = "*" if name == package else f"usr/lib/{package}/package/{files}"
        parts.append(
            f"Files: {where}\nCopyright: {authors}\nLicense: {licence.replace(' AND ', ' and ')}\n"
        )
    parts.sort(key=lambda part: not part.startswith(("Format", "Files: *\n")))
    for licence, text in sorted(texts.items()):
        lines = "".join(f" {line.rstrip() or '.'}\n" for line in text.strip().splitlines())
        parts.append(f"License: {licence.replace(' AND ', ' and ')}\n{lines}")
    return "\n".join(parts)


def licence_text(licence: str, path: Path) -> str:
    """Return the texts of a licence, or where every Debian has it."""
    files = [file for file in path.rglob("*") if re.match(r"LICEN|NOTICE|COPYING", file.name)]
    common = [name for each, name in COMMON_LICENCES.items() if each in licence]
    if common:
        files = [file for file in files if file.name == "NOTICE"]
    said = [
        f"On Debian systems, the text is in /usr/share/common-licenses/{name}." for name in common
    ]
    return "\n".join([*said, *(file.read_text(encoding="utf-8") for file in sorted(files))])


def spdx(
    inside: Mapping[str, Path], version: str, date: int, more: Sequence[tuple[str, str, str]] = ()
) -> str:
    """Return the list of what is inside packages, with licences, as SPDX 2.3 (https://spdx.github.io/spdx-spec/).

    `inside`: where each has its modules. `more`: name, version and licence of what is no package of Python's.
    """
    created = datetime.fromtimestamp(date, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    found = {
        package: [
            (normal(description["Name"]), description["Version"], licence)
            for description, licence, _ in descriptions(target)
        ]
        for package, target in inside.items()
    }
    of_python = sorted({each for of_one in found.values() for each in of_one})
    packages: list[dict[str, object]] = [
        {
            "SPDXID": f"SPDXRef-{name}",
            "name": name,
            "versionInfo": of,
            "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False,
            "licenseConcluded": licence,
            "licenseDeclared": licence,
            "copyrightText": "NOASSERTION",
            "externalRefs": [{
                "referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                "referenceLocator": f"pkg:{kind}/{name}@{of}",
            }],
        }
        for kind, listed in (("pypi", of_python), ("generic", more))
        for name, of, licence in listed
    ]  # fmt: skip
    relations = [("DOCUMENT", "DESCRIBES", package) for package in inside]
    relations += [
        (package, "CONTAINS", name)
        for package, of_one in found.items()
        for name, *_ in [*of_one, *more]
        if name != package
    ]
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"oncecron-{version}",
        "documentNamespace": f"https://spdx.org/spdxdocs/oncecron-{version}-{date}",
        "creationInfo": {"created": created, "creators": ["Tool: tools/packages"]},
        "packages": packages,
        "relationships": [
            {"spdxElementId": f"SPDXRef-{one}", "relationshipType": how, "relatedSpdxElement": f"SPDXRef-{other}"}
            for one, how, other in relations
        ],
    }  # fmt: skip
    return json.dumps(document, indent=2) + "\n"
