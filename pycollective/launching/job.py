"""Describes a function call, so that another process can find the function and call it."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import io
import os
import pickle
import sys
import time
import types
import zipfile
import zipimport
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.abc import InspectLoader
from importlib.machinery import SourceFileLoader
from typing import Any

from pycollective.errors import InvalidArgument

MAIN = "__pycollective_main__"  # name of the parent's main module in a rank
SPAWNED = "__mp_main__"  # name of the main module in a process that multiprocessing has spawned
OF_MAIN = ("__main__", SPAWNED, MAIN)
COPIES = "install cloudpickle, with which lambdas, local functions and what was typed in travel as copies"
# Whether this process is a rank that is importing the user's modules to find its function.
_finding = False


@dataclass(frozen=True)
class Name:
    """The import path of a function."""

    module: str
    qualified: str
    decorators: int  # number of `__wrapped__` steps from the object of that name to the function


@dataclass(frozen=True)
class Script:
    """The main script of the parent, which the ranks execute under a name other than `__main__`."""

    path: str  # ends in app.zip/__main__.py for a zip file
    package: str | None  # the package of a program that was started by `python -m`

    def load(self) -> None:
        """Execute the definitions of the script, as multiprocessing does.

        Code under `if __name__ == "__main__"` does not run.
        """
        module, code = self.of_zip_file() or self.of_file()
        if self.package:
            module.__package__, module.__spec__ = self.package, None
        for name in OF_MAIN:  # a pickle may contain any of these names
            sys.modules[name] = module
        exec(code, module.__dict__)

    def of_file(self) -> tuple[types.ModuleType, types.CodeType]:
        spec = importlib.util.spec_from_file_location(MAIN, self.path)
        if spec is None:  # a script's name need not end in .py
            spec = importlib.util.spec_from_loader(MAIN, SourceFileLoader(MAIN, self.path))
        assert spec is not None
        assert isinstance(spec.loader, InspectLoader)
        code = spec.loader.get_code(MAIN)
        assert code is not None
        return importlib.util.module_from_spec(spec), code

    def of_zip_file(self) -> tuple[types.ModuleType, types.CodeType] | None:
        folder = os.path.dirname(self.path)
        if not zipfile.is_zipfile(folder):
            return None
        module = types.ModuleType(MAIN)
        module.__file__ = self.path
        return module, zipimport.zipimporter(folder).get_code("__main__")

    def lacks(self, error: AttributeError) -> InvalidArgument:
        return InvalidArgument(
            f'{error}: a rank executes {self.path} without what is under `if __name__ == "__main__":`. Define '
            f"above it what the ranks need, at the top level"
        )


@dataclass(frozen=True)
class Job:
    name: Name | None  # None if `pickled` has the function itself
    script: Script | None  # None if the rank does not need the main script
    pickled: bytes  # function, args and kwargs; unpickled after their modules are importable
    argv: list[str]
    deadline: float | None  # on the monotonic clock, which is the same for all processes of a host
    init: bool
    by_value: bool  # whether cloudpickle is used for results that plain pickle refuses

    def find(self) -> Callable[[], Any]:
        """Return the call as a function without arguments."""
        global _finding
        _finding = True
        try:
            if self.script is not None:
                self.script.load()
            try:
                function = self.name and found(self.name)
                pickled, args, kwargs = pickle.loads(self.pickled)
            except AttributeError as error:
                if self.script is None:
                    raise
                raise self.script.lacks(error) from error
            return functools.partial(function or pickled, *args, **kwargs)
        finally:
            _finding = False

    def pickle_result(self, result: object) -> bytes:
        return dumps(result, by_value=self.by_value, has_main=self.script is not None)[0]


def describe(
    function: Callable[..., Any],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    *,
    timeout_s: float | None,
    init: bool,
    by_value: bool,
) -> Job:
    """Return a description of a call of the function.

    If `by_value`, objects that cannot be found by name, or that plain pickle refuses, are copied
    with their code.
    """
    if _finding:
        raise InvalidArgument(
            "ranks were to be started by a rank that is only importing the program: put that call under "
            '`if __name__ == "__main__":`, so that it is made once'
        )
    copies = by_value and importlib.util.find_spec("cloudpickle") is not None
    advice = f". Or {COPIES}" if by_value and not copies else ""
    script, name = main_script(), None
    try:
        name = name_of(function, script)
    except InvalidArgument as error:
        if not copies:
            raise InvalidArgument(f"{error}{advice}") from None
    of_main = name is not None and name.module in OF_MAIN
    pickled, plain = dumps_call(
        None if name else function,
        args,
        kwargs,
        by_value=copies,
        script=script,
        of_main=of_main,
        advice=advice,
    )
    if of_main or (plain and names_main(pickled)):
        # results may be instances of classes that the main script defines
        sys.modules[MAIN] = sys.modules["__main__"]
    else:
        script = None
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    return Job(name, script, pickled, sys.argv, deadline, init, copies)


def dumps_call(
    function: Callable[..., Any] | None,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    *,
    by_value: bool,
    script: Script | None,
    of_main: bool,
    advice: str,
) -> tuple[bytes, bool]:
    def pickled(what: object) -> tuple[bytes, bool]:
        return dumps(what, by_value=by_value, has_main=script is not None, of_main=of_main)

    try:
        return pickled((function, args, kwargs))
    except Exception:  # pickling an object may raise any exception
        parts: dict[str, object] = {f"{function!r}": function}
        parts |= {f"argument {number} ({type(each).__name__})": each for number, each in enumerate(args)}
        parts |= {f"argument {name}= ({type(each).__name__})": each for name, each in kwargs.items()}
        for words, part in parts.items():
            try:
                pickled(part)
            except Exception as error:
                raise InvalidArgument(
                    f"{words} cannot be pickled, so it cannot be handed to another process: {error}. Hand over what "
                    f"it is made from, and make it in the function{advice}"
                ) from error
        raise


def main_script() -> Script | None:
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    if not path or not (os.path.isfile(path) or zipfile.is_zipfile(os.path.dirname(path))):
        return None  # the program is interactive, or was piped into Python, which names it "<stdin>"
    return Script(os.path.abspath(path), getattr(main, "__package__", None))


def name_of(function: Callable[..., Any], script: Script | None) -> Name:
    qualified, module = getattr(function, "__qualname__", ""), getattr(function, "__module__", None)
    if module in OF_MAIN and script is None:
        raise InvalidArgument(
            f"{qualified} was typed in by hand or piped into Python; another process cannot import it. Put it into a "
            f"file"
        )
    there: object = None
    if qualified and module in sys.modules:
        try:
            there = resolve(sys.modules[module], qualified)
        except AttributeError:
            pass
    # As in pickle, the name must lead to this very function: otherwise the rank could silently run
    # another one.
    name, each = Name(str(module), qualified, 0), there
    while each is not None and each is not function:
        name, each = Name(name.module, qualified, name.decorators + 1), getattr(each, "__wrapped__", None)
    main = sys.modules["__main__"]
    if each is None and module in OF_MAIN and getattr(function, "__globals__", vars(main)) is not vars(main):
        raise InvalidArgument(
            f"{qualified} is not in the main module: that is {getattr(main, '__file__', None)}, which runs the "
            f"program, as `python -m cProfile` and `python -m pdb` do, and another process would import that. Put the "
            f"function into a module of its own, or use the profiler or debugger inside it"
        )
    if each is None:
        raise InvalidArgument(
            f"{function!r} cannot be imported by another process: {why_not(str(module), qualified, there)}. "
            f"Define a function under a name of its own at the top level of a module"
        )
    return name


def why_not(module: str, qualified: str, there: object) -> str:
    if qualified.endswith("<lambda>"):
        return "a lambda has no name"
    if "<locals>" in qualified:
        return "it is defined inside a function"
    return (
        f"there {module}.{qualified} is {there!r}"
        if there is not None
        else f"there is no {module}.{qualified}"
    )


def found(name: Name) -> Callable[..., Any]:
    module = sys.modules[MAIN] if name.module in OF_MAIN else importlib.import_module(name.module)
    there: Any = resolve(module, name.qualified)
    for _ in range(name.decorators):
        there = there.__wrapped__
    return there  # type: ignore[no-any-return]


def resolve(module: object, qualified_name: str) -> object:
    return functools.reduce(getattr, qualified_name.split("."), module)


def dumps(what: object, *, by_value: bool, has_main: bool, of_main: bool = False) -> tuple[bytes, bool]:
    """Return a pickle, and whether plain pickle made it.

    `has_main`: the reading process has the main module of this process, or can load it. `of_main`:
    the reading process loads that module in any case. Objects of the module are then pickled by
    name even if cloudpickle is used, so that they keep their identity.
    """
    try:
        pickled = pickle.dumps(what)
        if has_main or not by_value or not names_main(pickled):
            return pickled, True
    except Exception:  # pickling an object may raise any exception
        if not by_value:
            raise
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, obj: object) -> object:
            return NotImplemented if of_main and is_of_main(obj) else super().reducer_override(obj)

    file = io.BytesIO()
    Pickler(file).dump(what)
    return file.getvalue(), False


def names_main(pickled: bytes) -> bool:
    return any(name.encode() in pickled for name in OF_MAIN)


def is_of_main(what: object) -> bool:
    if not isinstance(what, (type, types.FunctionType)) or what.__module__ not in OF_MAIN:
        return False
    try:
        return resolve(sys.modules["__main__"], what.__qualname__) is what
    except AttributeError:
        return False
