"""tools/setup.sh, with a uv that only says what it was told."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "tools" / "setup.sh"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, {"UV_SYSTEM_CERTS": "true"}),
        ({"SSL_CERT_FILE": "/etc/company.pem"}, {"UV_SYSTEM_CERTS": "true", "SSL_CERT_FILE": "/etc/company.pem"}),
        ({"UV_SYSTEM_CERTS": "false"}, {"UV_SYSTEM_CERTS": "false"}),
    ],
    ids=["by default", "with a bundle", "as the user says"],
)
def test_uv_trusts_the_certificates_that_the_system_trusts(
    tmp_path: Path, given: dict[str, str], told: dict[str, str]
) -> None:
    (tmp_path / "tools").mkdir()
    shutil.copy(SCRIPT, tmp_path / "tools")
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").symlink_to(sys.executable)
    (programs / "uv").write_text('#!/bin/sh\nenv | grep -E "^(UV_SYSTEM_CERTS|SSL_CERT_FILE)=" >> told\n')
    (programs / "uv").chmod(0o755)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "SSL_"))}
    subprocess.run(
        [tmp_path / "tools" / "setup.sh"], env={**inherited, **given, "PYTHON": sys.executable}, check=True, timeout=60
    )
    said = (tmp_path / "told").read_text().splitlines()
    assert len(said) == 2 * len(told)  # it is called twice
    assert {tuple(line.split("=", 1)) for line in said} == set(told.items())
