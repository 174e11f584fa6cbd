"""Metrics and tables of the thermal comparison: {value, unit, peer, ratio, target, met}."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from bench.thermal_fit import Fit
from bench.thermal_loo import LeftOut, candidates
from bench.thermal_ours import Tuning
from bench.thermal_run import Case, Outcome
from bench.thermal_sweep import Best

RIVAL: Final = "ipa-tuned"
WORK_RATIO, TOKEN_RATIO, CHANGES = 0.98, 1.05, 26.0
RMS_K: Final = 1.6
HAND_SET: Final = ("rk3588",)  # plants that are not fitted to their traces
Metric = dict[str, object]
Metrics = dict[str, Metric]


def metric(
    value: float,
    unit: str,
    *,
    peer: str = "",
    other: float | None = None,
    target: str = "",
    met: bool | None = None,
) -> Metric:
    """``met`` None = it only tells."""
    return {
        "value": round(value, 4),
        "unit": unit,
        "peer": peer,
        "ratio": round(value / other, 4) if other else None,
        "target": target,
        "met": met,
    }


def shipped_metrics(case: Case, load: str, ours: Outcome, rival: Best | None) -> Metrics:
    """Our law as it is shipped: no set-point was searched for."""
    name = f"thermal.{case.spec.name}.{load}.shipped"
    judged = load == "constant"
    changes = rival.outcome.changes_per_min if rival else None
    peer = f"{RIVAL} {changes:.1f}" if changes is not None else ""
    return {
        f"{name}.above_wall_s": metric(
            ours.above_s, "s", target="0" if judged else "", met=ours.above_s == 0 or None
            if not judged else ours.above_s == 0,
        ),
        f"{name}.peak_k": metric(ours.peak_c - case.wall_c, "K above the wall"),
        f"{name}.overshoot_ks": metric(ours.overshoot_ks, "K·s"),
        f"{name}.changes_per_min": metric(
            ours.changes_per_min, "1/min", peer=peer, other=changes,
            target=f"≤ {CHANGES:g}" if judged else "",
            met=ours.changes_per_min <= CHANGES if judged else None,
        ),
        f"{name}.work_pct": metric(ours.work_pct, "%"),
    }  # fmt: skip


def fair_metrics(case: Case, load: str, found: Mapping[str, Best | None]) -> Metrics:
    """Every law at its best set-point without a breach."""
    name = f"thermal.{case.spec.name}.{load}"
    rival, own = found[RIVAL], found["stoker"]
    made: Metrics = {}
    if rival is None or own is None:
        return made
    unit = "tokens/s" if load == "chat" else "% of unlimited work"
    key = "tokens_per_s" if load == "chat" else "work_pct"
    peer = f"{RIVAL} {rival.score:.3f} at {rival.at_k:+.2f} K"
    ratio = own.score / rival.score
    made[f"{name}.fair_{key}"] = metric(
        own.score, unit, peer=peer, other=rival.score, target=f"ratio ≥ {WORK_RATIO}",
        met=ratio >= WORK_RATIO,
    )  # fmt: skip
    pointed = found.get("stoker-points")
    if pointed is not None:
        met = pointed.score / rival.score >= TOKEN_RATIO
        made[f"{name}.fair_tokens_per_s_with_points"] = metric(
            pointed.score, unit, peer=peer, other=rival.score,
            target=f"ratio ≥ {TOKEN_RATIO}", met=met,
        )  # fmt: skip
    for law, other in found.items():
        if other is not None and law not in ("stoker", "stoker-points"):
            made[f"{name}.peer.{law}"] = metric(
                other.score, unit, peer=f"at {other.at_k:+.2f} K", other=rival.score
            )
    return made


def fit_metrics(fits: Sequence[Fit]) -> Metrics:
    made: Metrics = {}
    for fit in fits:
        fitted = not fit.plant.startswith(HAND_SET) and fit.name not in UNFITTED
        made[f"thermal.fit.{fit.name}.rms_k"] = metric(
            fit.rms_k, "K", peer=f"{fit.plant}, air {fit.air_c:.1f} °C",
            target=f"≤ {RMS_K}" if fitted else "", met=fit.rms_k <= RMS_K if fitted else None,
        )  # fmt: skip
    return made


UNFITTED: Final = ("sbcbench_4I1w",)  # overclocked, without watts: the plant was not fitted to it


def candidate_metrics(plant: str, ratios: Mapping[Tuning, float]) -> Metrics:
    """Each candidate's ratio, from which leaving one out is worked out."""
    return {
        f"thermal.{plant}.candidate.{candidate_key(t)}": metric(
            ratio, f"of {RIVAL}", peer="gain · reset · settled part"
        )
        for t, ratio in ratios.items()
    }


def candidate_table(metrics: Mapping[str, Metric]) -> dict[str, dict[Tuning, float]]:
    """The other way round."""
    found: dict[str, dict[Tuning, float]] = {}
    by_name = {candidate_key(t): t for t in candidates()}
    for key, row in metrics.items():
        plant, middle, name = key.removeprefix("thermal.").partition(".candidate.")
        if middle and name in by_name:
            found.setdefault(plant, {})[by_name[name]] = float(str(row["value"]))
    return found


def candidate_key(tuning: Tuning) -> str:
    return f"{tuning.gain:g}.{tuning.reset_s:g}.{tuning.settled_part:g}"


def left_out_metrics(rows: Sequence[LeftOut]) -> Metrics:
    made: Metrics = {}
    for row in rows:
        t = row.chosen
        peer = f"gain {t.gain:g}/ΣR, Ti {t.reset_s:g} s, settled {t.settled_part:g}"
        made[f"thermal.{row.plant}.left_out.work_ratio"] = metric(
            row.ratio, f"of {RIVAL}", peer=f"chosen on the others: {peer}",
            target=f"≥ {WORK_RATIO}", met=row.ratio >= WORK_RATIO,
        )  # fmt: skip
        made[f"thermal.{row.plant}.left_out.shipped_ratio"] = metric(
            row.shipped, f"of {RIVAL}", peer=f"best for this plant alone {row.best:.4f}"
        )
    return made


HEAD: Final = (
    f"{'plant':22}{'load':15}{'law':15}{'at K':>7}{'peak K':>8}{'s>wall':>8}{'K·s':>7}"
    f"{'work %':>8}{'tok/s':>8}{'chg/min':>9}"
)


def line(case: Case, load: str, law: str, at_k: float | None, o: Outcome) -> str:
    tokens = f"{o.tokens / o.seconds:8.2f}" if o.tokens else f"{'':8}"
    told = f"{at_k:+7.2f}" if at_k is not None else f"{'shipped':>7}"
    return (
        f"{case.spec.name:22}{load:15}{law:15}{told}{o.peak_c - case.wall_c:+8.2f}"
        f"{o.above_s:8.1f}{o.overshoot_ks:7.1f}{o.work_pct:8.2f}{tokens}{o.changes_per_min:9.1f}"
    )
