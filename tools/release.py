"""Makes a release: folds `changes/` into the changelog, builds the distributions, and tries the wheel as a stranger would.

python -m tools.release fold            # CHANGELOG.md gets a section for the version of pyproject.toml; changes/ is emptied
python -m tools.release package [DIR]   # sdist and wheel, checked, and the wheel installed into a fresh environment
python -m tools.release version
python -m tools.release check TAG       # the tag, the version and the changelog say the same
"""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
NEVER = re.compile(r"(^|/)(\.env|id_rsa|__pycache__|\.trueup|[^/]+\.(pem|pyc|key))(/|$)")  # in a distribution
EMPTY = "There is no release yet."
TWINE = "twine==7.0.0"


class NotReady(Exception):
    """The release cannot be made; the text says what to do."""


def version(root: Path) -> str:
    return str(tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["version"])


def fold(root: Path, today: date) -> str:
    """Move the notes in `changes/` into a section of the changelog. Returns the section."""
    changelog, notes = root / "CHANGELOG.md", sorted((root / "changes").glob("*.md"))
    number, text = version(root), changelog.read_text("utf-8")
    if f"## {number} " in text:
        raise NotReady(f"CHANGELOG.md has a section for {number} already; raise the version in pyproject.toml")
    if not notes:
        raise NotReady("changes/ is empty: there is nothing to release")
    items = [_item(note.read_text("utf-8")) for note in notes]
    section = f"## {number} ({today.isoformat()})\n\n" + "\n".join(items) + "\n"
    head, rest = _split(text)
    changelog.write_text(f"{head}\n\n{section}" + (f"\n{rest}" if rest else ""), "utf-8")
    for note in notes:
        note.unlink()
    return section


def _item(note: str) -> str:
    """One entry of a list; further paragraphs belong to it."""
    first, *others = [" ".join(part.split("\n")) for part in note.strip().split("\n\n")]
    return "\n\n".join((f"- {first.removeprefix('- ')}", *(f"  {other}" for other in others)))


def _split(changelog: str) -> tuple[str, str]:
    """What stands above the newest release, and the releases."""
    head, mark, rest = changelog.replace(EMPTY, "").partition("\n## ")
    return head.strip(), f"## {rest}" if mark else ""


def check(root: Path, tag: str) -> None:
    """Refuse unless the tag, the version and the changelog agree and no note was left behind."""
    number = version(root)
    if tag != f"v{number}":
        raise NotReady(f"the tag is {tag}, the version in pyproject.toml {number}: tag v{number}")
    if f"## {number} " not in (root / "CHANGELOG.md").read_text("utf-8"):
        raise NotReady(f"CHANGELOG.md has no section for {number}: run `make release` and commit")
    if left := [note.name for note in (root / "changes").glob("*.md")]:
        raise NotReady(f"changes/ is not folded: {', '.join(sorted(left)[:5])}")


def build(root: Path, directory: Path) -> tuple[Path, Path]:
    """The sdist and the wheel, by the build backend that is installed here."""
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(directory)]
    subprocess.run(command, cwd=root, check=True, stdout=subprocess.DEVNULL)
    (sdist,), (wheel,) = directory.glob("*.tar.gz"), directory.glob("*.whl")
    return sdist, wheel


def inspect(root: Path, sdist: Path, wheel: Path) -> None:
    """What an index would refuse, and what must never be published."""
    with tarfile.open(sdist) as archive:
        _no_secrets(archive.getnames())
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        _no_secrets(names)
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        said = email.message_from_bytes(archive.read(metadata))
    if said["Version"] != version(root) or said["Name"] != "trueup":
        raise NotReady(f"the wheel calls itself {said['Name']} {said['Version']}")
    if said["Description-Content-Type"] != "text/markdown" or not str(said.get_payload()).strip():
        raise NotReady("the wheel has no description in Markdown: see readme in pyproject.toml")
    for needed in ("trueup/py.typed", "trueup/store/migrations/schema.sql", "trueup/store/sql/jobs/claim.sql"):
        if needed not in names:
            raise NotReady(f"the wheel lacks {needed}")


def _no_secrets(names: Sequence[str]) -> None:
    if found := [name for name in names if NEVER.search(name)]:
        raise NotReady(f"these files must not be in a distribution: {', '.join(found[:5])}")


def check_as_the_index_does(sdist: Path, wheel: Path) -> None:
    """Metadata and description, as the package index reads them. twine comes into an environment of its own."""
    uv = Path(sys.executable).with_name("uv")
    command = [uv, "tool", "run", "--quiet", "--from", TWINE, "twine", "check", "--strict", sdist, wheel]
    said = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if said.returncode:
        raise NotReady(f"twine refuses what was built:\n{said.stdout}{said.stderr}")


def try_out(root: Path, wheel: Path, directory: Path) -> None:
    """Install the wheel with the embedded PostgreSQL into a fresh environment, and run the README's first example there."""
    venv.create(directory / "venv", with_pip=False)
    python = directory / "venv/bin/python"
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, f"{wheel}[embedded]"], check=True)
    work = directory / "work"
    work.mkdir()
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TRUEUP_", "DATABASE_URL"))}
    ran = subprocess.run(
        [python, root / "tools/quickstart.py"], cwd=work, env=clean, capture_output=True, text=True, timeout=300
    )
    # The server ends by itself when the program has; this waits for it, so that the directory can be removed.
    subprocess.run(
        [python.with_name("trueup"), "postgres", "stop"], cwd=work, env=clean, capture_output=True, timeout=60
    )
    if ran.returncode or "Hello, Ada" not in ran.stdout:
        raise NotReady(f"the README's example does not run from the wheel:\n{ran.stdout}{ran.stderr}")


def package(root: Path, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for old in [*directory.glob("*.tar.gz"), *directory.glob("*.whl")]:
        old.unlink()
    sdist, wheel = build(root, directory)
    inspect(root, sdist, wheel)
    check_as_the_index_does(sdist, wheel)
    with tempfile.TemporaryDirectory() as fresh:
        try_out(root, wheel, Path(fresh))
    print(f"{sdist.name} and {wheel.name} are good: built, checked, installed, and the quick start ran")


def main(arguments: Sequence[str]) -> int:
    try:
        match arguments:
            case ["fold"]:
                print(fold(ROOT, datetime.now(UTC).date()))
            case ["package", *where] if len(where) < 2:
                package(ROOT, Path(*where).resolve() if where else ROOT / "dist")
            case ["version"]:
                print(version(ROOT))
            case ["check", tag]:
                check(ROOT, tag)
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except NotReady as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
