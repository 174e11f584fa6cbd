"""Which set serves, and where its files are. Part of the wiring; decides nothing.

See ``services.model_health.Settings``. The package's own set serves whenever an installed one
cannot be used any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.config.schema import AdapterConfig, Config
from stoker.core.installed_set import InstalledSet, served
from stoker.errors import ConfigInvalid, StokerError, Unavailable

if TYPE_CHECKING:
    from stoker.drivers.device_facts import KnownFiles
    from stoker_ota.values.deployment import Member

_log = logging.getLogger(__name__)
LOOK_S = 0.1
Apply = Callable[[Config], Future[tuple[str, ...]]]


class Installed:
    """Any thread. ``read_config``: the files with a policy among them, or none."""

    def __init__(self, config: Config, read_config: Callable[[Path | None], Config]) -> None:
        self.config = config  # as the files have it, with the policy in use
        self._read_config = read_config
        self.root = Path(config.daemon.state_dir) / "ota"
        self.present = config.updates.enabled and (self.root / "state.json").exists()
        self.apply: Apply = lambda _fresh: _nobody()
        self.reconfigure: Callable[[Config], None] = lambda _config: None
        self.cancelled: Callable[[], bool] = lambda: False
        self._files: KnownFiles | None = None
        self.now = self._committed() if self.present else InstalledSet()
        if self.now.policy:
            self._take_policy()

    def served(self) -> Config:
        return served(self.config, self.now)

    def read(self, installed: InstalledSet) -> Config:
        """With this set's policy. The files are read again only where that is another one, or
        the set in use: then somebody wants them read.
        """
        if installed is not self.now and installed.policy == self.now.policy:
            return self.config
        return self._read_config(Path(installed.policy) if installed.policy else None)

    def serve(self, installed: InstalledSet, config: Config) -> None:
        """From now on. The main loop carries a new policy out; nothing has changed if it fails."""
        before = self.now
        self.now = installed
        if config is self.config:
            self.reconfigure(self.served())
            return
        try:
            self._wait(self.apply(config))
        except BaseException:
            self.now = before
            raise

    def locate(self, generation: int, members: tuple[Member, ...]) -> InstalledSet:
        """The set's files. ConfigInvalid when an adapter's model is not here any more."""
        if not generation:
            return InstalledSet()
        folder = self.root / "generations" / str(generation)
        found = InstalledSet(generation)
        models = {item.name: self._path(item) for item in members if item.kind == "model"}
        adapters, libraries, policy = [], "", ""
        for item in members:
            if item.kind == "adapter":
                model = self._model_of(item, members)
                adapters.append(AdapterConfig(item.name, self._path(item), model))
            elif item.kind == "runtime":
                libraries = str(folder / f"{item.name}{_tree()}")
            elif item.kind == "policy":
                policy = self._path(item)
        return InstalledSet(found.generation, models, tuple(adapters), libraries, policy)

    @property
    def files(self) -> KnownFiles:
        """Hashes of the configured models."""
        if self._files is None:
            from stoker.drivers.device_facts import KnownFiles
            from stoker.drivers.state_file import JsonStateFile

            notes = JsonStateFile(self.root / "files.json")
            self._files = KnownFiles(lambda: [m.path for m in self.config.models], notes)
        return self._files

    def _path(self, member: Member) -> str:
        """The same content has the same path in every generation: a set that leaves the model
        as it is does not load it again.
        """
        if member.where:
            return member.where
        return str(self.root / f"objects/sha256/{member.sha256[:2]}/{member.sha256}")

    def _model_of(self, adapter: Member, members: tuple[Member, ...]) -> str:
        models = [item for item in members if item.kind == "model"]
        for item in models:
            if item.sha256 == adapter.base:
                return item.name
        path = "" if models else self.files.by_hash().get(adapter.base, "")
        for model in self.config.models:
            if path and model.path == path:
                return model.name
        raise ConfigInvalid(
            f"cannot use adapter {adapter.name}: the model that it was made for is not here"
        )

    def _wait(self, future: Future[tuple[str, ...]]) -> None:
        while True:
            try:
                future.result(LOOK_S)
                return
            except NotYet:
                self.cancelled()  # the main loop may be ending, and waiting for us

    def _committed(self) -> InstalledSet:
        """The set to serve after a start; the package's own when what is there is damaged."""
        from stoker_ota.core.machine import serving
        from stoker_ota.drivers.disk import RealDisk
        from stoker_ota.errors import OtaError
        from stoker_ota.services.store import Store

        try:
            store = Store(RealDisk(self.root))
            generation = serving(store.journal(), store.current())
            if not generation:
                return InstalledSet()
            found = self.locate(generation, store.members(generation))
        except (OtaError, StokerError) as error:
            _log.error("cannot use the installed set: %s; the package's own serves", error)
            return InstalledSet()
        missing = [path for path in _paths(found) if not _whole(Path(path))]
        if missing:
            _log.error(
                "cannot use the installed set: %s is gone; the package's own serves", missing[0]
            )
            return InstalledSet()
        return found

    def _take_policy(self) -> None:
        """It was right when it was installed; a file in /etc may contradict it since."""
        try:
            self.config = self._read_config(Path(self.now.policy))
        except ConfigInvalid as error:
            _log.error("the policy of the installed set is not in use: %s", error.message)


def _tree() -> str:
    from stoker_ota.services.store import TREE

    return TREE


def _paths(found: InstalledSet) -> Iterator[str]:
    yield from found.models.values()
    yield from (item.path for item in found.adapters)
    yield from (path for path in (found.policy,) if path)
    if found.libraries:
        yield f"{found.libraries}/libllama.so"


def _whole(path: Path) -> bool:
    """As far as a stat can say: the object was hashed from the disk before it got its name."""
    try:
        return path.is_file() and path.stat().st_size > 0
    except OSError:
        return False


def _nobody() -> Future[tuple[str, ...]]:
    future: Future[tuple[str, ...]] = Future()
    future.set_exception(Unavailable("cannot take a policy: the service has not started"))
    return future
