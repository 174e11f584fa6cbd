"""With operating points: the wall holds, more tokens come, and phases have their own clock."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.fakes.thermal import Rig, preset

from stoker.config.schema import ThermalConfig
from stoker.core import calibration
from stoker.core.token_mix import Mix, Work, step
from stoker.drivers.token_model import MODELS, speed
from stoker.events.operating import Point, PointTable, Setting
from stoker.services.thermal import ThermalService
from stoker.units import Seconds, Watts

THREADS = 4


class Agent:
    """An agent that computes on the simulated board as the loop tells it to."""

    def __init__(self, directory: Path, plant: str = "pi5-bare") -> None:
        self.rig = Rig(directory, plant)
        self.phase = "decode"
        self.read = self.written = 0.0
        self.tokens = 0.0
        self.rig.service = ThermalService(
            ThermalConfig(), preset(self.rig.plant.spec.board), self.rig.ports, work=self.work
        )
        self.rig.run(1.0, load=0.0)

    def work(self) -> Work:
        seen = self.rig.service.snapshot()
        threads = seen.threads if self.phase == "decode" else seen.threads_batch
        busy = (threads or THREADS) / THREADS if self.phase else 0.0
        return Work(self.phase, busy, int(self.read), int(self.written))

    def serve(self, seconds: float) -> None:
        """Watts and tokens of what the loop chose."""
        end_s = self.rig.clock.now_s + seconds
        while self.rig.clock.now_s < end_s - 1e-9:
            self.rig.service.tick()
            seen = self.rig.service.snapshot()
            threads = (seen.threads if self.phase == "decode" else seen.threads_batch) or THREADS
            plant = self.rig.plant
            rate, activity = 0.0, 0.0
            if self.phase:
                name = "decode" if self.phase == "decode" else "prefill"
                model = MODELS[plant.spec.board]
                rate, activity = speed(model, plant.spec, name, threads, plant.mhz)  # type: ignore[arg-type]
            self.rig.board.advance(seen.period_s, activity * threads / THREADS * seen.duty)
            made = rate * seen.duty * seen.period_s
            self.tokens += made
            self.read += made if self.phase == "prefill" else 0.0
            self.written += made if self.phase == "decode" else 0.0
            self.rig.peak_c = max(self.rig.peak_c, plant.junction_c)
            self.rig.clock.now_s += seen.period_s

    def table(self) -> PointTable:
        """As a calibration on this board finds it."""
        plan, plant = self.rig.service.plan, self.rig.plant
        grid = calibration.grid(plan.board_ladder, plan.tables, THREADS, clocks=99)
        sizes = {name: len(policy.cpus) for name, policy in plan.policies.items()}
        points = []
        for setting in grid:
            mhz = {name: khz / 1000 for name, khz in setting.caps}
            phase = setting.phase
            model = MODELS[plant.spec.board]
            rate, _ = speed(model, plant.spec, phase, setting.threads, mhz)  # type: ignore[arg-type]
            watts = calibration.estimate_w(
                plan.tables, sizes, setting, setting.threads, (plan.full_w, THREADS)
            )
            points.append(Point(setting, watts, rate))
        return PointTable(plan.board, "tiny", "abc", THREADS, len(points), points=tuple(points))


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path)


def test_a_cool_board_keeps_its_whole_clock_and_the_fastest_threads(agent: Agent) -> None:
    agent.rig.service.use_points(agent.table(), THREADS)
    agent.serve(5.0)
    seen = agent.rig.service.snapshot()
    assert (seen.points, seen.threads, seen.duty) == ("in use", THREADS, 1.0)
    assert seen.cap_khz == {}


@pytest.mark.parametrize("plant", ["pi4-bare", "pi5-bare"])
def test_at_the_wall_decoding_makes_more_tokens_and_the_wall_holds(
    tmp_path: Path, plant: str
) -> None:
    made = {}
    for points in (False, True):
        agent = Agent(tmp_path / str(points), plant)
        if points:
            agent.rig.service.use_points(agent.table(), THREADS)
        agent.rig.plant.ambient_c = 45.0
        agent.rig.warm_to(74.0)
        agent.serve(20.0)
        agent.rig.peak_c, agent.tokens = 0.0, 0.0
        agent.serve(400.0)
        made[points] = agent.tokens
        wall_c = agent.rig.service.snapshot().wall_c
        assert agent.rig.peak_c <= wall_c + 0.5
    assert made[True] >= made[False] * 0.99


def test_each_phase_has_its_own_clock_and_gets_it_at_once(agent: Agent) -> None:
    agent.rig.service.use_points(agent.table(), THREADS)
    agent.rig.plant.ambient_c = 40.0
    agent.rig.warm_to(78.0)
    for _ in range(20):
        agent.phase = "prefill"
        agent.serve(4.0)
        agent.phase = "decode"
        agent.serve(12.0)
    decode = agent.rig.service.snapshot()
    agent.phase = "prefill"
    agent.rig.service.tick()  # before its first token
    prefill = agent.rig.service.snapshot()
    assert prefill.phase == "prefill"
    assert prefill.point is not None
    assert decode.point is not None
    assert prefill.point.point != decode.point.point
    caps = dict(prefill.point.point.setting.caps)
    assert agent.rig.limit_khz() == caps["policy0"]
    agent.phase = ""
    agent.rig.service.tick()
    assert agent.rig.service.snapshot().phase == ""


def test_without_a_clock_threads_and_pacing_hold_the_wall(tmp_path: Path) -> None:
    agent = Agent(tmp_path, "pi4-bare")
    shutil.rmtree(agent.rig.board.policy_dir("policy0"))
    agent.rig.clock.now_s += 60.0
    agent.rig.service.tick()
    full_w = agent.rig.service.plan.full_w
    points = tuple(
        Point(Setting(phase, n), Watts(full_w * n / THREADS), 10.0 * n**0.5)
        for phase in ("prefill", "decode")
        for n in (1, 2, 3, 4)
    )
    table = PointTable("raspberrypi-4", "tiny", "abc", THREADS, len(points), points=points)
    agent.rig.service.use_points(table, THREADS)
    agent.rig.plant.ambient_c = 45.0
    agent.rig.warm_to(72.0)
    agent.serve(150.0)  # its watts are assumed: it has to find them
    agent.rig.peak_c = 0.0
    agent.serve(200.0)
    seen = agent.rig.service.snapshot()
    assert "threads" in seen.actuator
    assert 0 < seen.threads < THREADS
    assert agent.rig.peak_c <= seen.wall_c + 0.5


def test_a_table_of_another_board_is_not_used_and_says_why(agent: Agent) -> None:
    agent.rig.service.use_points(agent.table(), 2)
    agent.serve(1.0)
    assert "4 threads, not 2" in agent.rig.service.snapshot().points
    assert agent.rig.service.snapshot().threads == 0


def test_a_lost_sensor_leaves_the_points_and_takes_the_middle_step(agent: Agent) -> None:
    agent.rig.service.use_points(agent.table(), THREADS)
    agent.serve(2.0)
    agent.rig.files.faults["temp"] = 5
    agent.serve(5.0)
    seen = agent.rig.service.snapshot()
    assert seen.state == "safe"
    assert (seen.threads, seen.duty) == (0, seen.headroom)
    assert agent.rig.limit_khz() < 2_400_000


def test_points_are_not_made_anew_while_nothing_changed(agent: Agent) -> None:
    agent.rig.service.use_points(agent.table(), THREADS)
    agent.serve(1.0)
    first = agent.rig.service.plan.fronts
    agent.serve(90.0)
    assert first is not None
    assert agent.rig.service.plan.fronts is first


def test_the_mix_follows_what_was_done_of_late() -> None:
    mix, read, written, share = Mix(), 0, 0, 0.0
    for second in range(600):
        read, written = (read + 90, written + 10) if second < 300 else (read, written + 10)
        mix = step(mix, Work("", 1.0, read, written), Seconds(second))
        if second == 299:
            share = mix.prefill_share
    assert share == pytest.approx(0.9)
    assert mix.prefill_share < 0.5
    assert step(mix, Work("", 1.0, 0, 0), Seconds(600)).read <= mix.read  # another runner counts


def test_what_happens_between_two_looks_takes_no_reading_and_has_no_slope(agent: Agent) -> None:
    agent.rig.service.use_points(agent.table(), THREADS)
    agent.serve(3.0)
    zone = agent.rig.board.zone_dir("cpu-thermal") / "temp"
    warmer = int(zone.read_text()) + 4000
    zone.write_text(f"{warmer}\n")
    agent.rig.clock.now_s += 1.0
    agent.rig.service.tick()
    zone.write_text(f"{warmer + 4000}\n")
    for _ in range(5):
        agent.rig.clock.now_s += 0.001
        agent.rig.service.tick(look=False)
    assert agent.rig.service.snapshot().state == "ok"
    assert agent.rig.service.snapshot().temperature_c != (warmer + 4000) / 1000
