"""The entry point: `run` without click, every other command with it."""

from __future__ import annotations

import gc
import os
import sys

from oncecron import light_imports

TYPE_CHECKING = False  # nothing else of ours is imported before `light_imports.install`
if TYPE_CHECKING:
    from collections.abc import Callable

    from oncecron.config.run_parser import ParsedRun
    from oncecron.run.seams import Observer
    from oncecron.run.spec import RunSpec


def main() -> None:
    """Run the command line and exit at once: shutting the interpreter down costs a firing 25 ms."""
    exit_after(_oncecron)


def exit_after(program: Callable[[list[str]], int]) -> None:
    """Run a program, which returns its exit status, and exit with it."""
    gc.disable()
    light_imports.install()
    status = _status(program, sys.argv[1:])
    try:  # noqa: SIM105 - contextlib is not loaded yet
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError):
        pass  # the command has reported it; a broken pipe is silent
    os._exit(status)


def _oncecron(arguments: list[str]) -> int:
    if arguments[:1] == ["run"]:
        from oncecron.config.run_parser import parse_run  # noqa: PLC0415

        parsed = parse_run(arguments[1:])
        if parsed is not None and "dry-run" not in parsed.given:
            return run_parsed(parsed)
    from oncecron.cli.main import invoke  # noqa: PLC0415

    return invoke(arguments)


def run_parsed(parsed: ParsedRun) -> int:
    """Carry out a firing; return the exit status."""
    from oncecron.run.firing import run  # noqa: PLC0415

    return run(parsed, _observer)


def _observer(spec: RunSpec) -> Observer | None:
    from oncecron.watch.pinger import start  # noqa: PLC0415 - only a key with a [[ping]] pays

    return start(spec)


def _status(program: Callable[[list[str]], int], arguments: list[str]) -> int:
    from oncecron.core.errors import EX_SOFTWARE, OncecronError, shortage_of  # noqa: PLC0415

    try:
        from oncecron.host.stderr import fill_standard_descriptors  # noqa: PLC0415

        fill_standard_descriptors()
        return program(arguments)
    except OncecronError as error:
        return _failed(str(error), error.exit_status)
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 - the last resort: the user gets one line
        from oncecron.config.options import JOB_COMMANDS  # noqa: PLC0415

        runs_job = arguments[:1] and arguments[0] in JOB_COMMANDS  # the others have no -v
        hint = "; add -vv to see a traceback" if runs_job else "; please report it"
        if runs_job and _verbose(*arguments) > 1:
            from oncecron.host.stderr import show_trace  # noqa: PLC0415

            show_trace()
        cause: OncecronError | None = shortage_of(error)
        if cause is None and isinstance(error, ImportError):
            from oncecron.host.installation import broken  # noqa: PLC0415

            cause = broken(error)
        elif cause is None and runs_job:
            from oncecron.run.process_tree import cause_of  # noqa: PLC0415

            cause = cause_of(error)
        if cause is None:
            from oncecron.host.installation import mixed  # noqa: PLC0415

            cause = mixed()
        if cause:
            return _failed(str(cause), cause.exit_status)
        return _failed(f"internal error: {type(error).__name__}: {error}{hint}", EX_SOFTWARE)


def _verbose(name: str, *arguments: str) -> int:
    """Return the number of -v among the options of a command; those of the job do not count.

    No plugin is asked, which may be what has failed: the options of its command end at --.
    """
    from oncecron.config.run_parser import parse_run  # noqa: PLC0415

    if name == "run":
        parsed = parse_run([*arguments])
        return int(parsed.given.get("verbose", "0")) if parsed else 0
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return sum(word.count("v") for word in options if word[:1] == "-" != word[1:2])


def _failed(text: str, status: int) -> int:
    try:
        from oncecron.host.stderr import complain  # noqa: PLC0415
    except (ImportError, OSError, MemoryError):  # nothing can be loaded any more
        os.write(2, f"oncecron: {text}\n".encode())
    else:
        complain(text)
    return status


if __name__ == "__main__":
    main()
