"""Who is taken into the queue and who is refused: quotas, the queue's end, deadlines.

Pure. Refusing early costs a caller nothing; a job that would only expire in the queue
costs everybody. Tokens a minute are a bucket that may go into debt: the debt is for jobs
taken before, and is paid back before the next one is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stoker.core import waiting_line
from stoker.core.scheduler_state import Bucket, Job, Place, Refuse, Spent, State, Submit
from stoker.events.inference import Quota
from stoker.units import Seconds


def admit(state: State, ask: Submit, now_s: Seconds) -> State | Refuse:
    """The state with the new job waiting, or why it is refused and for how long."""
    refusal = _over_quota(state, ask, now_s)
    if refusal is not None:
        return refusal
    if len(state.at(Place.WAITING)) >= state.rules.queue_limit:
        return Refuse(ask.job, "queue", waiting_line.next_place_s(state))
    held = sum(job.size_bytes for job in state.jobs.values()) + ask.size_bytes
    # alone it may be larger: it is bounded at the door, and would be told to wait for ever
    if state.jobs and state.rules.queue_bytes and held > state.rules.queue_bytes:
        return Refuse(ask.job, "queue_bytes", waiting_line.next_place_s(state))
    job = Job(
        id=ask.job,
        uid=ask.uid,
        job_class=ask.job_class,
        quota=ask.quota,
        order=state.arrivals,
        prompt_tokens=ask.prompt_tokens,
        max_tokens=ask.max_tokens,
        size_bytes=ask.size_bytes,
        since_s=now_s,
        model=ask.model,
    )
    taken = replace(
        state,
        jobs={**state.jobs, job.id: job},
        buckets=_with_bucket(state.buckets, ask, now_s),
        arrivals=state.arrivals + 1,
    )
    late_s = _late_s(taken, ask, now_s)
    return Refuse(ask.job, "deadline", late_s) if late_s > 0.0 else taken


def pay(buckets: Mapping[int, Bucket], job: Job, tokens: int, now_s: Seconds) -> dict[int, Bucket]:
    """The user's bucket after so many tokens; no bucket = no limit."""
    found = buckets.get(job.uid)
    if found is None:
        return dict(buckets)
    level = min(_level(found, now_s) - tokens, float(found.per_minute))
    return {**buckets, job.uid: replace(found, level=level, at_s=now_s)}


def _over_quota(state: State, ask: Submit, now_s: Seconds) -> Refuse | None:
    quota = ask.quota
    own = [job for job in state.at(Place.WAITING) if job.uid == ask.uid]
    size = sum(job.size_bytes for job in own) + ask.size_bytes
    reason = ""
    if quota.queued_jobs and len(own) >= quota.queued_jobs:
        reason = "queued_jobs"
    elif quota.queued_bytes and size > quota.queued_bytes:
        reason = "queued_bytes"
    if reason:
        return Refuse(ask.job, reason, waiting_line.next_of_user_s(state, ask.uid, now_s))
    wait_s = rate_wait_s(state.buckets, ask.uid, quota, now_s)
    return Refuse(ask.job, "tokens_per_minute", wait_s) if wait_s > 0.0 else None


def rate_wait_s(buckets: Mapping[int, Bucket], uid: int, quota: Quota, now_s: Seconds) -> Seconds:
    """Until this user has paid what was taken; 0 = now."""
    bucket = buckets.get(uid)
    if bucket is None or not quota.tokens_per_minute:
        return Seconds(0.0)
    missing = 1.0 - _level(replace(bucket, per_minute=quota.tokens_per_minute), now_s)
    return Seconds(max(60.0 * missing / quota.tokens_per_minute, 0.0))


def spend(buckets: Mapping[int, Bucket], event: Spent, now_s: Seconds) -> dict[int, Bucket]:
    """What was read for a user without a job, off its tokens a minute."""
    kept = dict(_with_bucket(buckets, event, now_s))
    found = kept.get(event.uid)
    if found is not None:
        kept[event.uid] = replace(found, level=found.level - event.tokens - event.written)
    return kept


def _with_bucket(
    buckets: Mapping[int, Bucket], ask: Submit | Spent, now_s: Seconds
) -> Mapping[int, Bucket]:
    """Full buckets are forgotten; the caller's is there while it has a limit."""
    kept = {uid: b for uid, b in buckets.items() if uid != ask.uid and not _full(b, now_s)}
    per_minute = ask.quota.tokens_per_minute
    if per_minute:
        old = buckets.get(ask.uid) or Bucket(float(per_minute), now_s, per_minute)
        kept[ask.uid] = Bucket(min(_level(old, now_s), float(per_minute)), now_s, per_minute)
    return kept


def _level(bucket: Bucket, now_s: Seconds) -> float:
    filled = bucket.level + (now_s - bucket.at_s) * bucket.per_minute / 60.0
    return min(filled, float(bucket.per_minute))


def _full(bucket: Bucket, now_s: Seconds) -> bool:
    return _level(bucket, now_s) >= bucket.per_minute


def _late_s(taken: State, ask: Submit, now_s: Seconds) -> Seconds:
    """By how much it would begin too late; 0 when it would not, or nothing was learnt yet."""
    if not ask.deadline_s or taken.pace.cost_per_s <= 0.0:
        return Seconds(0.0)
    late = waiting_line.wait_s(taken, ask.job, now_s) - (ask.deadline_s - now_s)
    return Seconds(max(late, waiting_line.LEAST_WAIT_S) if late >= 0.0 else 0.0)
