"""What is brought into staging and from where: the order of sources, holes, brokers' addresses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.disk import FakeDisk
from tests.fakes.updates import sha
from tests.unit.ota.manifest_rig import manifest_payload

from stoker_ota.core import broker_address, chunks, manifest, routes
from stoker_ota.core.have import Have
from stoker_ota.drivers.bundle_source import BundleSource
from stoker_ota.drivers.mixed_source import MixedSource
from stoker_ota.errors import (
    BadDocument,
    ChunkHash,
    InvalidRequest,
    NoSpace,
    OtaError,
    Unavailable,
)
from stoker_ota.ports.files import Progress, no_progress
from stoker_ota.services import arrivals, gather
from stoker_ota.values.chunks import ChunkIndex, Chunks
from stoker_ota.values.fetching import Tls, Wanted

DATA = bytes(range(256)) * 20
PIECES = [DATA[at : at + 1024] for at in range(0, len(DATA), 1024)]
INDEX = chunks.index_of(PIECES, len(DATA), 1024)
WANTED = Wanted(len(DATA), sha(DATA), ("x:",), chunks.of_index(INDEX))


@dataclass
class Source:
    """``has`` numbers; ``lies`` about some of them; breaks off after ``breaks`` chunks."""

    name: str
    has: frozenset[int] = frozenset(range(5))
    lies: frozenset[int] = frozenset()
    breaks: int = 99
    knows: bool = True
    error: OtaError | None = None
    asked: list[list[int]] = field(default_factory=list)

    def index(self, wanted: Chunks, total: int) -> ChunkIndex:
        if not self.knows:
            raise Unavailable("no digests")
        return INDEX

    def pull(self, index: ChunkIndex, numbers: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        self.asked.append(list(numbers))
        if self.error is not None:
            raise self.error
        for count, number in enumerate(n for n in numbers if n in self.has):
            if count == self.breaks:
                raise Unavailable("it broke off")
            yield number, b"x" * 1024 if number in self.lies else PIECES[number]

    def whole(self, offset: int, size: int, mark: str, /) -> tuple[int, str, Iterator[bytes]]:
        raise Unavailable("in chunks only")


@dataclass
class Part:
    have: Have = field(default_factory=lambda: Have("ab" * 32, INDEX.count))
    data: dict[int, bytes] = field(default_factory=dict)
    finished: bool = False

    def put(self, number: int, data: bytes) -> None:
        assert number not in self.data
        self.have.add(number)
        self.data[number] = data

    def finish(self) -> None:
        self.finished = True


def run(part: Part, *sources: Source) -> gather.Faults | None:
    return gather.by_chunks(WANTED, sources, lambda _index: part, no_progress)


def test_sources_are_mixed_chunk_by_chunk_in_their_order() -> None:
    first, second = Source("a", frozenset({0, 1}), breaks=2), Source("b", frozenset({1, 2, 3}))
    third, part = Source("c"), Part()
    assert run(part, first, second, third) is None
    assert (first.asked, second.asked, third.asked) == ([[0, 1, 2, 3, 4]], [[2, 3, 4]], [[4]])
    assert part.finished
    assert b"".join(part.data[n] for n in range(5)) == DATA


def test_one_wrong_chunk_and_the_source_is_left() -> None:
    liar, good, part = Source("a", lies=frozenset({1})), Source("b"), Part()
    assert run(part, liar, good) is None
    assert good.asked == [[1, 2, 3, 4]]
    assert part.data[1] == PIECES[1]


def test_a_disk_that_is_full_ends_it_and_is_no_fault_of_a_source() -> None:
    other = Source("b")
    with pytest.raises(NoSpace):
        run(Part(), Source("a", error=NoSpace("full")), other)
    assert other.asked == []


def test_what_is_missing_at_the_end_is_told_with_every_source_s_reason() -> None:
    part = Part()
    with pytest.raises(Unavailable, match=r"a: it broke off; b: 3 chunks are not there"):
        run(part, Source("a", breaks=1), Source("b", frozenset({1})))
    assert part.have.held == 2
    assert not part.finished


@given(
    st.lists(
        st.tuples(st.frozensets(st.integers(0, 4)), st.frozensets(st.integers(0, 4)),
                  st.integers(0, 6)),
        max_size=4,
    )
)  # fmt: skip
def test_whatever_sources_do_only_right_chunks_are_put(
    plans: list[tuple[frozenset[int], frozenset[int], int]],
) -> None:
    part = Part()
    sources = [Source(str(n), *plan[:2], breaks=plan[2]) for n, plan in enumerate(plans)]
    try:
        done = run(part, *sources)
    except Unavailable:
        assert not part.finished
    else:
        assert (done is None) == part.finished
    assert all(part.data[number] == PIECES[number] for number in part.data)


def test_without_digests_anywhere_the_caller_hears_why() -> None:
    faults = run(Part(), Source("a", knows=False))
    assert faults is not None
    assert "a: no digests" in faults.error().message


# staging


@dataclass
class Port:
    disk: FakeDisk
    data: bytes = DATA
    calls: int = 0

    def fetch(self, wanted: Wanted, part: str, progress: Progress) -> None:
        self.calls += 1
        self.disk.write(part, self.data)


def test_a_part_with_holes_is_not_taken_for_a_whole_one_nor_dropped() -> None:
    disk = FakeDisk()
    port = Port(disk)
    disk.write("x.part", DATA)
    arrivals.bring(disk, port, WANTED, "x.part", no_progress)
    assert port.calls == 0  # it is there
    disk.write("x.part", bytes(len(DATA)))
    disk.write("x.part.have", b"bits")

    class Going(Port):
        def fetch(self, wanted: Wanted, part: str, progress: Progress) -> None:
            assert disk.read(part, 1 << 20) == bytes(len(DATA))
            super().fetch(wanted, part, progress)

    arrivals.bring(disk, Going(disk), WANTED, "x.part", no_progress)


def test_other_bytes_are_dropped_with_their_journal() -> None:
    disk = FakeDisk()
    disk.write("x.part.have", b"bits")
    with pytest.raises(ChunkHash):
        arrivals.bring(disk, Port(disk, DATA[:-1] + b"x"), WANTED, "x.part", no_progress)
    assert disk.size("x.part") is None
    assert disk.size("x.part.have") is None


# a bundle and the network


@dataclass
class Network:
    calls: int = 0

    def fetch(self, wanted: Wanted, part: str, progress: Progress) -> None:
        self.calls += 1


def test_a_bundle_goes_before_the_network_and_a_metered_network_after_the_manifest(
    tmp_path: Path,
) -> None:
    network, costly = Network(), [False]
    bundle = BundleSource(tmp_path / "usb", tmp_path)
    (tmp_path / "usb/blobs").mkdir(parents=True)
    mixed = MixedSource(bundle, network, lambda: costly[0])  # type: ignore[arg-type]
    near, far = f"file:blobs/{sha(DATA)}", "https://a.example/x"

    def fetch(*uris: str, allow: bool = False) -> None:
        wanted = Wanted(len(DATA), sha(DATA), uris, allow_metered=allow)
        mixed.fetch(wanted, "x.part", no_progress)

    fetch(near, far)
    assert network.calls == 1  # the bundle has it not
    costly[0] = True
    with pytest.raises(Unavailable, match="metered"):
        fetch(near, far)
    fetch(near, far, allow=True)
    assert network.calls == 2
    (tmp_path / f"usb/blobs/{sha(DATA)}").write_bytes(DATA)
    (tmp_path / "x.part").write_bytes(bytes(len(DATA)))
    (tmp_path / "x.part.have").write_bytes(b"holes")  # of chunks that came by the network
    fetch(far, near)
    assert network.calls == 2
    assert (tmp_path / "x.part").read_bytes() == DATA
    with pytest.raises(Unavailable, match="bundle"):
        fetch("file:blobs/other")


# manifests and addresses


def test_a_manifest_names_chunks_or_does_not() -> None:
    def artifact(**more: object) -> dict[str, object]:
        return {
            "kind": "model", "name": "m", "version": "1", "release_counter": 1, "size": 5000,
            "sha256": "ab" * 32, "full": ["mqtt:", "https://a/{sha256}"], **more,
        }  # fmt: skip

    def parsed(**more: object) -> manifest.Manifest:
        network = {"max_rate": 7, "allow_metered": True}
        data = manifest_payload(artifacts=[artifact(**more)], network=network)
        return manifest.parse_manifest(data)

    assert parsed().artifacts[0].chunks is None
    named = parsed(chunks={"size": 2048, "root": "cd" * 32})
    wanted = routes.Route(named.artifacts[0], fetch=True).wanted(named)
    assert wanted.chunks == Chunks(2048, "cd" * 32)
    assert (wanted.max_rate, wanted.allow_metered, wanted.uris[0]) == (7, True, "mqtt:")
    for bad in (
        {"size": 1000, "root": "cd" * 32}, {"size": 1 << 20, "root": "cd" * 32},
        {"size": 2048, "root": "x"}, {"size": 2048}, {"size": 2048, "root": "cd" * 32, "x": 1},
    ):  # fmt: skip
        with pytest.raises(BadDocument):
            parsed(chunks=bad)
    with pytest.raises(BadDocument, match="more than"):
        parsed(size=1 << 40, chunks={"size": 2048, "root": "cd" * 32})


def test_a_broker_s_address_is_read() -> None:
    tls = Tls("ca")
    secure = broker_address.broker("mqtts://broker.example", tls=tls)
    assert (secure.host, secure.port, secure.tls) == ("broker.example", 8883, tls)
    plain = broker_address.broker("mqtt://localhost:1884/", root="a/b", tls=tls)
    assert (plain.port, plain.tls, plain.root) == (1884, None, "a/b")
    assert broker_address.broker("unix:/run/m.sock").path == "/run/m.sock"
    assert broker_address.broker("mqtt://[::1]:5").host == "::1"
    for bad in ("", "broker", "http://x", "mqtt://", "mqtt://a/b", "mqtt://10.0.0.1", "mqtt://host",
                "mqtt://u:p@h", "mqtt://h:x", "unix:run", "mqtts://h h"):  # fmt: skip
        with pytest.raises(InvalidRequest):
            broker_address.broker(bad)
    with pytest.raises(InvalidRequest, match="topics below"):
        broker_address.broker("mqtts://h", root="a.b/c")
