"""`trueup.__all__`, the imports that type checkers see and the table of homes say the same."""

import ast
import subprocess
import sys
from pathlib import Path

import trueup


def test_every_public_name_can_be_imported_and_is_what_its_home_has() -> None:
    assert sorted(trueup.__all__) == trueup.__all__
    assert set(trueup._HOME) == set(trueup.__all__)
    for name, home in trueup._HOME.items():
        assert getattr(trueup, name) is getattr(sys.modules[home], name)


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(trueup.__file__).read_text())
    imports = [
        node
        for branch in tree.body
        if isinstance(branch, ast.If)
        for node in branch.body
        if isinstance(node, ast.ImportFrom)
    ]
    assert {alias.name: node.module for node in imports for alias in node.names} == trueup._HOME


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(trueup, "Nothing")


def test_the_keeper_of_the_embedded_server_does_not_import_the_app() -> None:
    code = "import sys, trueup.embedded.keeper; sys.exit('trueup.app' in sys.modules or 'pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
