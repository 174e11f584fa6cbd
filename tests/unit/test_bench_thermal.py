"""The thermal benchmark's own parts: plants, rivals' arithmetic, loads, sweep, leave-one-out."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from bench import thermal
from bench.thermal_cases import CASES, Rival, make_load, ours, peers
from bench.thermal_fit import Sample, chain, fit
from bench.thermal_ipa import IpaParameters, Pid, PowerAllocator, divide
from bench.thermal_law import Order, Seen
from bench.thermal_laws import StepWise
from bench.thermal_loads import IDLE_MS, Chat
from bench.thermal_loo import SHIPPED, candidates, leave_one_out
from bench.thermal_ours import Ours, Tuning
from bench.thermal_plant import FastPlant
from bench.thermal_points import fronts_of
from bench.thermal_run import Accident, Case, Run
from bench.thermal_service import WholeService
from bench.thermal_sweep import best
from bench.thermal_tokens import VARIANTS, bound

from stoker.drivers.plants import PLANTS, Plant
from stoker.drivers.token_model import MODELS, speed

BY_NAME = {case.spec.name: case for case in CASES}
PI4, RK = BY_NAME["pi4-bare"], BY_NAME["rk3588-small-heatsink"]
PI5 = PLANTS["pi5-bare"]


def test_a_constant_power_gives_the_closed_form_of_the_foster_chain() -> None:
    spec = replace(PLANTS["pi4-bare"], leak_w_per_k=0.0)
    plant = FastPlant(spec)
    for dt_ms in (20, 80, 900, 30, 58_970):  # any steps: the solution is exact
        plant.step(dt_ms, (1.0,))
    watts = spec.base_w + spec.full_w
    nodes = zip(spec.resistances, spec.taus, strict=True)
    expected = spec.ambient_c + sum(r * watts * -math.expm1(-60.0 / tau) for r, tau in nodes)
    assert plant.hottest_c == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", ["pi4-bare", "rk3588-small-heatsink"])
def test_the_fast_plant_is_the_plant_of_the_daemon(name: str) -> None:
    spec = PLANTS[name]
    fast, slow = FastPlant(spec), Plant(spec)
    low = {c.policy: c.opps[1][0] * 1000 for c in spec.clusters}
    fast.steps[:] = [1] * len(spec.clusters)
    for _ in range(1500):
        fast.step(20, (0.8,) * len(spec.clusters))
        slow.advance(0.02, low, 0.8)
    assert fast.hottest_c == pytest.approx(slow.junction_c, abs=0.02)


def test_the_sensor_tells_what_was_thirty_milliseconds_ago() -> None:
    spec = replace(PLANTS["die-only"], lsb_c=1e-6)
    plant = FastPlant(spec)
    plant.settle((0.1,))
    before_c = plant.hottest_c
    plant.step(20, (1.0,))
    assert plant.hottest_c > before_c + 5
    assert plant.sensed_c()[0] == pytest.approx(before_c, abs=0.01)
    plant.step(200, (1.0,))
    plant.step(100, (1.0,))
    assert plant.sensed_c()[0] > before_c + 20


def test_ipa_estimates_its_gains_from_the_sustainable_power_as_the_kernel_documents() -> None:
    pid = Pid(IpaParameters(switch_on_below_mc=10_000), sustainable_mw=2500)
    assert (pid.k_po, pid.k_pu, pid.k_i) == (256, 512, 51)  # S·1024 / 10000, twice that, a tenth


def test_ipa_adds_proportion_integral_and_the_sustainable_power() -> None:
    pid = Pid(IpaParameters(), sustainable_mw=2500)
    # 1 K below: 512·1000 / 1024 = 500 mW. The integral takes no error above its cut-off of 0.
    assert pid.budget_mw(80_000, 79_000, 9000) == 3000
    assert pid.err_integral == 0
    # 2 K above: 256·2000 / 1024 = 500 mW less, and the integral 51·2000 / 1024 = 99.6 less.
    assert pid.budget_mw(80_000, 82_000, 9000) == 2500 - 500 - 100
    assert pid.budget_mw(80_000, 82_000, 9000) == 2500 - 500 - 200
    assert pid.budget_mw(80_000, 200_000, 9000) == 0
    assert pid.budget_mw(80_000, 20_000, 9000) == 9000


def test_ipa_gives_by_request_and_hands_on_what_an_actor_cannot_use() -> None:
    assert divide([1000, 3000], [4000, 4000], 2000) == [500, 1500]
    # The first asked for most of it but can only burn 1000: the rest goes where there is room.
    assert divide([3000, 1000, 0], [1000, 2000, 500], 3200) == [1000, 1788, 411]
    assert divide([0, 0], [1000, 1000], 500) == [0, 0]


def _seen(temperature_c: float, *, ms: int = 0) -> Seen:
    spec = PLANTS["pi4-bare"]
    return Seen(ms, [temperature_c], (4.0,), "other", (len(spec.clusters[0].opps) - 1,))


def test_ipa_lets_everything_go_below_its_switch_on_and_takes_a_step_it_can_pay() -> None:
    spec = PLANTS["pi4-bare"]
    law = PowerAllocator(spec, 80.0, IpaParameters(sustainable_mw=1500))
    assert law.tick(_seen(60.0)).steps == (9,)
    (step,) = law.tick(_seen(80.0)).steps
    cluster = spec.clusters[0]
    assert cluster.watts(step) <= 1.5 < cluster.watts(step + 1)


def test_step_wise_goes_deeper_only_while_it_rises_and_back_only_while_it_falls() -> None:
    law = StepWise(PLANTS["pi4-bare"], 80.0)
    steps = [law.tick(_seen(t)).steps[0] for t in (79.0, 80.0, 81.0, 81.0, 80.5, 79.0, 79.0, 78.0)]
    assert steps == [9, 8, 7, 7, 7, 8, 8, 9]


@pytest.mark.parametrize("case", [PI4, RK], ids=lambda case: case.spec.name)
def test_our_law_of_the_bench_is_the_whole_service_tick_by_tick(case: Case) -> None:
    class Both:
        def __init__(self) -> None:
            self.light = Ours(case.spec, case.wall_c, Tuning())
            self.whole = WholeService(case.spec, case.wall_c)
            self.capped = 0

        def tick(self, seen: Seen) -> Order:
            one, other = self.light.tick(seen), self.whole.tick(seen)
            assert one == other, f"at {seen.now_ms} ms"
            self.capped += other.steps != tuple(seen.granted)
            return other

        def overwrite(self) -> bool:
            return False

    law = Both()
    Run(case, law, make_load(case, "constant")).go(220.0)
    assert law.capped > 100, "it was never limited"


def test_tokens_are_the_rate_of_the_phase_times_its_time() -> None:
    spec, model = PI5, MODELS["raspberrypi-5"]
    chat = Chat(spec, model, (105, 26))
    top = (len(spec.clusters[0].opps) - 1,)
    demand = chat.demand(IDLE_MS, top, 0)
    assert demand.phase == "prefill"
    assert demand.until_ms == IDLE_MS + 1000  # 105 tokens at 105 tokens/s
    chat.passed(1000)
    assert chat.tokens == pytest.approx(105)
    demand = chat.demand(demand.until_ms, top, 0)
    assert demand.phase == "decode"
    chat.passed(100)
    assert chat.tokens == pytest.approx(105 + 2.54, abs=0.05)


def test_decode_gains_little_from_the_last_clock_and_prefill_all_of_it() -> None:
    spec, model = PI5, MODELS["raspberrypi-5"]
    ratio = {
        phase: speed(model, spec, phase, 4, {"policy0": 2400.0})[0]
        / speed(model, spec, phase, 4, {"policy0": 1600.0})[0]
        for phase in ("prefill", "decode")
    }
    assert ratio["prefill"] == pytest.approx(1.5)
    assert 1.05 < ratio["decode"] < 1.25


def test_points_cannot_bring_anything_that_arithmetic_forbids() -> None:
    for variant in VARIANTS:
        model = variant.model(MODELS["raspberrypi-5"])
        assert 1.0 <= bound(PI5, model, variant.request, 1.5) < 1.15
    assert fronts_of(PI5, MODELS["raspberrypi-5"]).decode[0].watts < 0.35


def test_the_sweep_finds_the_highest_set_point_without_a_breach() -> None:
    law = "stoker"
    found = best(PI4, law, ours(PI4), "constant", seconds=200.0)
    assert found is not None
    assert found.outcome.above_s == 0
    assert -3.0 < found.at_k < 0
    open_loop = peers(PI4, Rival(IpaParameters(), {}))["open-loop"]
    assert best(PI4, "open-loop", open_loop, "constant", seconds=400.0) is None


def test_accidents_reach_the_law_and_another_writer_is_answered() -> None:
    law = WholeService(PI4.spec, PI4.wall_c)
    accident = Accident(200_000, lifted_ms=3_000)
    run = Run(PI4, law, make_load(PI4, "constant"), accident, trace_ms=100)
    rows = run.go(230.0).trace
    assert max(mhz for at, _, mhz, _ in rows if 195 < at < 200) < 1500
    assert max(mhz for at, _, mhz, _ in rows if 200 < at < 204) == 1500
    assert max(mhz for at, _, mhz, _ in rows if at > 215) < 1500


def test_leave_one_out_never_looks_at_the_plant_that_it_scores() -> None:
    first, second = candidates()[0], candidates()[1]
    table = {
        name: {**dict.fromkeys(candidates(), 0.5), first: 0.9, second: 0.8, SHIPPED: 0.85}
        for name in ("a", "b", "c")
    }
    table["c"] = {**table["c"], first: 0.1, second: 0.99}
    rows = {row.plant: row for row in leave_one_out(table)}
    assert rows["c"].chosen == first, "what is best on c itself must not be chosen for c"
    assert rows["c"].ratio == 0.1
    assert rows["a"].chosen == second


def test_a_trace_made_by_the_plant_is_fitted_without_an_error() -> None:
    spec = PLANTS["pi5-passive"]
    watts = [3.0] * 5 + [5.5] * 20
    blank = [Sample(20.0 * i, w, 0.0) for i, w in enumerate(watts)]
    warm = chain(spec.resistances, spec.taus, blank)
    left = [6.0 * math.exp(-s.at_s / 300.0) for s in blank]  # it was warmer before
    made = [
        replace(s, measured_c=21.0 + k + rest) for s, k, rest in zip(blank, warm, left, strict=True)
    ]
    found = fit("made", spec, made, rested=False)
    assert found.rms_k < 1e-9
    assert found.air_c == pytest.approx(21.0)
    assert fit("made", spec, made, rested=True).rms_k > 1.0


def test_the_quick_bench_holds_the_wall(capsys: pytest.CaptureFixture[str]) -> None:
    assert thermal.main(["--quick"]) == 0
    lines = {line.split()[2]: line.split() for line in capsys.readouterr().out.splitlines()[1:]}
    assert float(lines["stoker"][4]) <= 0 < float(lines["open-loop"][4])
    assert float(lines["stoker"][7]) < float(lines["open-loop"][7]) == 100.0
