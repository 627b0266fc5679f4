"""The signatures and docstrings of the public names, as Markdown for `docs/reference/signatures.md`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import trueup

WIDTH = 84  # of a signature before each parameter takes a line of its own
Described = property | staticmethod | classmethod


def signatures() -> str:
    named = {name: getattr(trueup, name) for name in trueup.__all__}
    classes = {
        name: value for name, value in named.items() if inspect.isclass(value) and not issubclass(value, BaseException)
    }
    raised = {
        name: value for name, value in named.items() if inspect.isclass(value) and issubclass(value, BaseException)
    }
    return "\n\n".join(
        (
            *(part for name in sorted(classes) for part in _class(name, classes[name])),
            "## Exceptions",
            *(part for name in sorted(raised) for part in _exception(name, raised[name])),
        )
    )


def _class(name: str, cls: type) -> Iterator[str]:
    yield f"## {name}"
    if made := _signature(name, cls, "class"):
        yield made
    if text := _own_docstring(cls):
        yield text
    for part in (*cls.__mro__[1:], cls):
        if part is cls or part.__module__.startswith("trueup.app."):  # App is put together from parts
            for member, value in vars(part).items():
                if not member.startswith("_") and isinstance(value, Described) | inspect.isfunction(value):
                    yield from _member(name, member, value)


def _member(cls: str, name: str, value: Any) -> Iterator[str]:
    function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    text = inspect.getdoc(function)
    if not text:
        return  # a method without a docstring is for the package's own parts
    yield f"### {cls}.{name}"
    if isinstance(value, property):
        returned = inspect.signature(function).return_annotation
        yield _fenced(f"{name}: {_plain(str(returned))}  # property")
    else:
        kind = "async def" if inspect.iscoroutinefunction(function) else "def"
        yield _signature(name, function, kind)
    yield text


def _exception(name: str, cls: type) -> Iterator[str]:
    yield f"### {name}"
    bases = ", ".join(base.__name__ for base in cls.__bases__)
    yield _fenced(f"class {name}({bases})")
    yield _own_docstring(cls)


def _signature(name: str, value: Any, kind: str) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parameters = [each for each in signature.parameters.values() if each.name != "self"]
    if kind == "class":
        signature = signature.replace(return_annotation=signature.empty)
    shown = _plain(str(signature.replace(parameters=parameters)))
    if len(shown) + len(name) + len(kind) > WIDTH:
        shown = _broken(parameters, signature)
    return _fenced(f"{kind} {name}{shown}")


def _broken(parameters: list[inspect.Parameter], signature: inspect.Signature) -> str:
    lines: list[str] = []
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and not any(line.startswith("    *") for line in lines):
            lines.append("    *")
        lines.append(f"    {_plain(str(each))}")
        if each.kind is each.POSITIONAL_ONLY:
            lines.append("    /")
    returned = signature.return_annotation
    arrow = "" if returned is signature.empty else f" -> {_plain(str(returned))}"
    return "(\n" + ",\n".join(lines) + f",\n){arrow}"


def _plain(text: str) -> str:
    """Annotations as they are written in the source: no quotes around them, no modules before them."""
    text = re.sub(r"(?<=: )'([^']*)'|(?<=-> )'([^']*)'", lambda found: found[1] or found[2] or "", text)
    text = re.sub(r"<class '(?:[\w.]+\.)?(\w+)'>", r"\1", text)
    text = re.sub(r"<object object at 0x[0-9a-f]+>|<[\w.]+ object at 0x[0-9a-f]+>", "...", text)
    return re.sub(r"\b(?:trueup|typing|collections\.abc|datetime)\.(?:\w+\.)*(?=[A-Z])", "", text)


def _own_docstring(cls: type) -> str:
    """Its docstring, unless that is the one dataclasses make up."""
    text = inspect.cleandoc(cls.__doc__ or "")
    return "" if text.startswith(f"{cls.__name__}(") else text


def _fenced(code: str) -> str:
    return f"```py\n{code}\n```"  # blocks fenced as `python` are run by the tests
