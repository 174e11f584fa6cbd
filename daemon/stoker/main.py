"""stokerd: command line, configuration, signals and the main loop.

GLib's main loop runs the bus; services have threads of their own. SIGTERM and SIGINT
stop in order, SIGHUP reads the configuration again, a lost bus ends the process.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from stoker import __version__
from stoker.api.errormap import exit_status
from stoker.config.parse import parse
from stoker.config.schema import Config, ModelConfig
from stoker.drivers import config_files, journal
from stoker.errors import (
    ConfigInvalid,
    FileUnreadable,
    InternalError,
    ModelUnavailable,
    StokerError,
)

_T = TypeVar("_T")
_log = logging.getLogger("stoker")
FORMAT = "%(levelname)s %(name)s: %(message)s"

EXAMPLES = """\
examples:
  stokerd --check-config
  stokerd --fit ~/models/tiny.gguf
  stokerd --model ~/models/tiny.gguf --score texts.txt > tiny.jsonl
  stokerd --board sim:pi5-bare,speed=8 --check-config
  stokerd --bus session --model ~/models/tiny.gguf --state-dir /tmp/s --runtime-dir /tmp/r
"""


def parser() -> argparse.ArgumentParser:
    """The command line; settings given here win over the configuration files."""
    out = argparse.ArgumentParser(
        prog="stokerd",
        description="Serve a language model to local programs over D-Bus.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = out.add_argument
    add("--config", type=Path, metavar="FILE", help="instead of /etc/stoker/stoker.toml")
    add("--bus", metavar="BUS", help="system, session or a D-Bus address")
    add("--session", action="store_const", const="session", dest="bus", help="as --bus session")
    add("--model", type=Path, metavar="FILE", help="serve this GGUF file")
    add("--engine", choices=("llama", "echo"), help="echo: a test engine without a model")
    add("--state-dir", type=Path, metavar="DIR", help="instead of /var/lib/stoker")
    add("--runtime-dir", type=Path, metavar="DIR", help="instead of /run/stoker")
    add("--sysfs-root", type=Path, metavar="DIR", help="instead of /sys (simulated boards)")
    add("--board", metavar="NAME", help="a board preset, auto, or sim:PLANT for a simulated board")
    add("--log-level", choices=("debug", "info", "warning", "error"), help="the least that is told")
    add("--fit", metavar="MODEL", help="say what of a configured model or a file fits here, exit")
    add("--json", action="store_true", help="with --fit: for programs")
    add(
        "--score",
        type=Path,
        metavar="FILE",
        help="nats a token of each line of FILE by --model or "
        "the default model, as JSON lines for 'stoker-ota probe make', exit",
    )
    add("--check-config", action="store_true", help="read the configuration, report, exit")
    add("--restore-caps", action="store_true", help="undo frequency caps left behind, exit")
    add("--version", action="version", version=f"stokerd {__version__}")
    return out


def configuration(
    args: argparse.Namespace, policy: Path | None = None, *, strict: bool = False
) -> Config:
    """Files, then what the fleet has set, then the command line. ``policy``: that of an installed
    set. Raises ConfigInvalid; where the fleet's part is wrong only if ``strict``, since a device
    must start.
    """
    sources = config_files.read(args.config, policy)
    config = _on_top(parse(sources), args)
    if not config.fleet.broker:
        return config
    from stoker.fleet_parts import policy_tables

    before, after = policy_tables(config)
    mark = "the fleet's policy"
    try:
        return _on_top(parse([(mark, before), *sources, (mark, after)]), args)
    except StokerError as error:
        if strict:
            raise
        _log.warning("%s; the fleet's policy is left out", error.message)
        return config


def _on_top(config: Config, args: argparse.Namespace) -> Config:
    """What the command line says wins."""
    daemon = _with(
        config.daemon,
        bus=args.bus,
        state_dir=_text(args.state_dir),
        runtime_dir=_text(args.runtime_dir),
        log_level=args.log_level,
    )
    config = replace(
        config,
        daemon=daemon,
        runner=_with(config.runner, engine=args.engine),
        thermal=_with(config.thermal, sysfs_root=_text(args.sysfs_root), board=args.board),
        folder=str((args.config or config_files.DEFAULT_PATH).absolute().parent),
    )
    return config if args.model is None else _serving(config, args.model)


def _serving(config: Config, path: Path) -> Config:
    """The file's own [models] entry if there is one, else a new one named by its stem."""
    wanted = str(path.absolute())
    for model in config.models:
        if model.path == wanted:
            return replace(config, default_model=model.name)
    model = ModelConfig(_name(path), wanted)
    others = tuple(other for other in config.models if other.name != model.name)
    return replace(config, models=(*others, model), default_model=model.name)


def _name(path: Path) -> str:
    """The file's stem, made a name as configuration has them."""
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("-._")
    return words[:64] or "model"


def _with(part: _T, **values: object) -> _T:
    given = {key: value for key, value in values.items() if value is not None}
    return replace(part, **given)  # type: ignore[type-var]


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())


def entry(argv: Sequence[str] | None = None) -> int:
    """The program. Returns the exit status (docs: man stokerd)."""
    hangups = _hear_hangups()
    args = parser().parse_args(argv)
    _log_to_journal_or_stderr()
    try:
        config = _despite_faults(args) if args.restore_caps else configuration(args)
        logging.getLogger().setLevel(config.daemon.log_level.upper())
        if args.check_config:
            return _check(config)
        if args.restore_caps:
            return _restore(config)
        if args.fit:
            return _fit(config, args.fit, as_json=args.json)
        if args.score:
            return _score(config, args.score)
        return _run(config, lambda policy: configuration(args, policy, strict=True), hangups)
    except StokerError as error:
        _log.error("%s", error.message)
        if error.hint:
            _log.error("hint: %s", error.hint)
        if isinstance(error, ConfigInvalid) and _serves(args):
            from stoker.drivers import config_retry

            config_retry.wait(args.runtime_dir or Path(Config().daemon.runtime_dir), args.config)
        return exit_status(error)


def _serves(args: argparse.Namespace) -> bool:
    """As a service that systemd starts again, not by hand and not to report something."""
    reports = args.check_config or args.restore_caps or args.fit or args.score
    return bool(os.environ.get("NOTIFY_SOCKET")) and not reports


def _hear_hangups() -> list[int]:
    """SIGHUP before the main loop hears it would end us: it is noted, and obeyed later.
    A handler, not SIG_IGN, which children would inherit.
    """
    heard: list[int] = []
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGHUP, lambda signum, _frame: heard.append(signum))
    return heard


def _despite_faults(args: argparse.Namespace) -> Config:
    """A wrong file must not leave a device capped: then the paths are the usual ones."""
    try:
        return configuration(args)
    except StokerError as error:
        _log.warning("%s; caps are looked for in the usual places", error.message)
        plain = Config()
        daemon = _with(plain.daemon, runtime_dir=_text(args.runtime_dir))
        thermal = _with(plain.thermal, sysfs_root=_text(args.sysfs_root), board=args.board)
        return replace(plain, daemon=daemon, thermal=thermal)


def _log_to_journal_or_stderr() -> None:
    """The journal keeps level and logger as fields; on a terminal they are in the line."""
    handler = journal.handler()
    if handler is None:
        logging.basicConfig(format=FORMAT, stream=sys.stderr, level=logging.INFO)
    else:
        logging.basicConfig(format="%(message)s", handlers=[handler], level=logging.INFO)


def _check(config: Config) -> int:
    """What stokerd would run with; the board's preset is read too."""
    from stoker.heat_parts import check_board

    preset = check_board(config)
    names = ", ".join(model.name for model in config.models) or "none"
    sys.stdout.write(f"configuration is good: models {names}; board {preset.name}\n")
    return 0


def _fit(config: Config, wanted: str, *, as_json: bool) -> int:
    """The plan for a model on this device; 1 if it would be refused."""
    import json

    from stoker.services import fit_report
    from stoker.wiring import inspect_fit

    known = {model.name: model for model in config.models}
    path = Path(wanted)
    model = known.get(wanted) or ModelConfig(_name(path), str(path.absolute()))
    found = inspect_fit(config, model)
    text = json.dumps(found) if as_json else "\n".join(fit_report.lines(found))
    sys.stdout.write(text + "\n")
    return 0 if found["fits"] else 1


def _score(config: Config, texts: Path) -> int:
    from stoker.core.installed_set import InstalledSet, model_of
    from stoker.update_parts import score_texts

    model = model_of(config, InstalledSet())
    if model is None:
        raise ModelUnavailable("cannot score: no model is configured", hint="name one with --model")
    try:
        lines = [line for line in texts.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise FileUnreadable(f"cannot read {texts}: {error}") from error
    for line in score_texts(config, model, lines):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    return 0


def _restore(config: Config) -> int:
    """After a crash, for ExecStopPost: what the journals call ours gets its old value."""
    from stoker.drivers.clock import MonotonicClock
    from stoker.drivers.heat_ports import held_files, thermal_ports
    from stoker.services.caps import restore_caps

    def caps() -> bool:
        results = restore_caps(thermal_ports(config, MonotonicClock()))
        return all(result.outcome != "failed" for result in results)

    def others() -> bool:
        files = held_files(config)
        files.restore()
        for name in files.left():
            _log.warning("%s could not be given back: left to the next start", name)
        return True

    status = 0
    for what, give_back in (("caps", caps), ("governors and devfreq limits", others)):
        try:
            status |= 0 if give_back() else 1
        except Exception:  # whatever it is: what is left must be given back all the same
            _log.exception("cannot give %s back", what)
            status = 1
    return status


def _run(config: Config, read_config: Callable[[Path | None], Config], hangups: list[int]) -> int:
    from gi.repository import GLib

    from stoker.wiring import build

    agent = build(config, read_config)
    loop = GLib.MainLoop()
    status = 0

    def lost(error: StokerError) -> None:
        nonlocal status
        _log.error("%s", error.message)
        status = exit_status(error)
        loop.quit()

    def quit_loop() -> bool:
        loop.quit()
        return True

    def reload() -> bool:
        agent.service.reload()
        return True

    agent.bus.on_lost(lost)
    end_with_any_thread(lost)
    for signum in (signal.SIGTERM, signal.SIGINT):
        GLib.unix_signal_add(GLib.PRIORITY_HIGH, signum, quit_loop)
    GLib.unix_signal_add(GLib.PRIORITY_HIGH, signal.SIGHUP, reload)
    interval_s = agent.notifier.watchdog_interval_s()
    if interval_s:
        GLib.timeout_add(int(interval_s * 1000), _feed, agent.service.feed_watchdog)
    try:
        agent.start()
        gc.collect()
        gc.freeze()  # the bulk of all objects: looking through them holds up heat for 0.3 s
        if hangups:
            reload()
        loop.run()
    finally:
        agent.stop()
    return status


def end_with_any_thread(lost: Callable[[StokerError], None]) -> None:
    """A service whose thread died of a fault answers nobody: say so in the main loop and
    let systemd start us again.
    """
    from gi.repository import GLib

    def died(what: threading.ExceptHookArgs) -> None:
        name = what.thread.name if what.thread else "a"
        _log.critical("fault in thread %s", name, exc_info=what.exc_value)
        GLib.idle_add(lost, InternalError(f"cannot go on: thread {name} has died"))

    threading.excepthook = died


def _feed(feed: Callable[[], None]) -> bool:
    feed()
    return True


if __name__ == "__main__":
    sys.exit(entry())
