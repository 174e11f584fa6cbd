"""``python -m stoker.tour``: what ``make run`` shows. Exit status 0 only if every step worked."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from stoker.errors import StokerError
from stoker.tour import foreground, heat, screen, stage, walk
from stoker.tour.fleet import Fleet, Mosquitto
from stoker.tour.operator import Operator
from stoker.tour.steps import Guide
from stoker.tour.update import Update
from stoker_client import Stoker, StokerClientError

QUESTION: Final = "What is photosynthesis? Answer in one sentence."
ECHO_STORY: Final = "!slow 20 " + "once upon a time " * 100


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    view = screen.Screen()
    try:
        return _tour(args, view)
    except KeyboardInterrupt:
        view.say("\nStopped. Nothing was left behind.")
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m stoker.tour", description=__doc__)
    add = parser.add_argument
    add("--ask", metavar="TEXT", help="the question to ask")
    add("--model", metavar="FILE", type=Path, help="a GGUF file instead of the embedded one")
    add("--engine", choices=("llama", "echo"), default="llama", help="echo: for tests")
    add("--heat-seconds", metavar="S", type=float, default=12.0, help="how long to watch the heat")
    add("--non-interactive", action="store_true", help="do not end in a chat")
    return parser


def _tour(args: argparse.Namespace, view: screen.Screen) -> int:
    model = args.model or stage.default_model()
    if args.engine == "llama" and not model.is_file():
        view.say(f"cannot start: there is no model {model} (make run fetches it)", "red")
        return 66
    view.say("Stoker, from nothing to an answer. Everything here is real and runs on a", "bold")
    view.say("private D-Bus and in temporary folders; Ctrl-C ends it at any moment.", "bold")
    with stage.Stage() as scene:
        options = ["--model", str(model), "--engine", args.engine]
        model = model.absolute()
        real = args.engine == "llama"  # the test engine has no model to update
        broker = Mosquitto(scene.folder) if real else None
        settings = Update.config(scene.folder, model) + (broker.config() if broker else "")
        daemon = stage.Daemon("stokerd", scene.folder, scene.bus, options, settings)
        try:
            with Stoker(scene.bus) as stoker:
                if broker is not None:
                    scene.enter(broker)
                scene.enter(daemon)
                daemon.wait_for_name(stoker)
                story = [ECHO_STORY] if args.engine == "echo" else []
                guide = Guide(view, stoker, args.ask or QUESTION, *story)
                loop = heat.Heat(view, stoker, scene, args.heat_seconds)
                steps = _steps(guide, loop)
                if broker is not None:
                    operator = Operator(view, scene.folder, model)
                    steps += _updates(
                        Update(view, stoker, operator, model), Fleet(view, stoker, operator, broker)
                    )
                walk.walk([*steps, walk.Step("What next", 5, guide.next)], view)
        except (walk.StepFailed, StokerError, StokerClientError) as error:
            return _failed(view, error, scene)
        if screen.interactive() and not args.non_interactive:
            return _chat(view)
    return 0


def _steps(guide: Guide, loop: heat.Heat) -> list[walk.Step]:
    return [
        walk.Step("The board and its sensors", 15, guide.board),
        walk.Step("The model is loaded", 180, guide.loading),
        walk.Step("A question with stokerctl", 300, guide.ask),
        walk.Step("The same over plain D-Bus", 600, guide.buses),
        walk.Step("The runner is killed, and answers again", 120, guide.killed),
        walk.Step("Temperature and cap", 60, loop.show),
    ]


def _updates(update: Update, fleet: Fleet) -> list[walk.Step]:
    title = "Signed updates: one kept, one refused, one taken back"
    return [
        walk.Step(title, 120, update.show),
        walk.Step("A fleet: a command and a delta over MQTT", 90, fleet.show),
    ]


def _failed(view: screen.Screen, error: Exception, scene: stage.Stage) -> int:
    """Say which step and why; keep the logs, since the folder goes."""
    view.say(f"\n{error}", "bold red")
    hint = getattr(error.__cause__ or error, "hint", "")
    if hint:
        view.say(f"hint: {hint}")
    for log in sorted(scene.folder.glob("*.log")):
        kept = Path.cwd() / "build" / f"tour-{log.name}"
        kept.parent.mkdir(exist_ok=True)
        kept.write_bytes(log.read_bytes())
        view.say(f"--- the end of {kept}")
        for line in stage.tail(log):
            view.say(line, "dim")
    return 1


def _chat(view: screen.Screen) -> int:
    """Hand the terminal over; Ctrl-C now belongs to the chat. Its exit status."""
    view.say("\nNow you. Ctrl-D leaves and stops everything.", "bold")
    view.command(["stokerctl", "chat"])
    return foreground.run(["stokerctl", "chat"])


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # nothing of GLib's threads is worth waiting for
