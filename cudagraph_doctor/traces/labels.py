"""Where a step begins and how large it is, read from range labels: built-in patterns, or the user's own.

Each family is one engine's way to name its steps. A label that fits no pattern is counted, never dropped silently.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from cudagraph_doctor.errors import UsageError


class Stage(StrEnum):
    """What a step does, as far as its label tells."""

    DECODE = "decode"
    PREFILL = "prefill"
    MIXED = "mixed"
    """Decode rows and prefill tokens in one step."""
    IDLE = "idle"
    """Nothing: a dummy step, no requests."""
    UNKNOWN = "unknown"
    """The label does not say, or there is none."""


@dataclass(frozen=True, slots=True)
class Label:
    """A step's label, read."""

    text: str
    family: str
    """Name of the pattern, "" for steps that were found without labels."""
    stage: Stage
    number: int | None = None
    """The step's own number, if the label has one."""
    batch: int | None = None
    """Requests decoded."""
    tokens: int | None = None
    """Tokens of the requests that are decoded (in a mixed step: of all); None if the label does not say."""
    bucket: int | None = None
    """The bucket that the engine chose, where the label names it."""
    in_tokens: bool = False
    """Whether this engine's buckets count tokens, not requests."""
    form: str = ""
    """The label without its numbers: steps of one form are alike."""

    @property
    def size(self) -> int | None:
        """What a bucket has to hold: tokens or requests, as this engine counts."""
        return self.tokens if self.in_tokens and self.tokens is not None else self.batch


@dataclass(frozen=True, slots=True)
class Family:
    """One engine's step labels."""

    name: str
    pattern: re.Pattern[str]
    rank: int
    """0 the user's own, 1 with sizes, 2 without, 3 only a loop around anything. Lower ranks are preferred."""
    in_tokens: bool = False


def _family(name: str, pattern: str, rank: int = 1, in_tokens: bool = False) -> Family:
    return Family(name, re.compile(pattern), rank, in_tokens)


FAMILIES = (
    _family(
        "vLLM",
        r"^execute_context_(?P<ctx_reqs>\d+)\((?P<ctx_tok>\d+)(?:_\d+)?\)"
        r"_generation_(?P<gen_reqs>\d+)\((?P<gen_tok>\d+)(?:_\d+)?\)",
        in_tokens=True,
    ),
    _family(
        "vLLM (detailed)",
        r"^execute_\d+_context_(?P<ctx_reqs>\d+)\(sq(?P<ctx_tok>\d+)sk\d+[^)]*\)"
        r"_generation_(?P<gen_reqs>\d+)\(sq(?P<gen_tok>\d+)sk\d+[^)]*\)",
        in_tokens=True,
    ),
    _family(
        "SGLang",
        r"^step\[(?P<stage>[A-Z_]+)(?: [^\]]*?)??\bbs=(?P<batch>\d+)(?:[^\]]*?\btoks=(?P<tokens>\d+))?[^\]]*\]",
    ),
    _family(
        "ATOM",
        r"^(?P<stage>prefill|decode)\[bs=(?P<batch>\d+)(?:/(?P<bucket>\d+))?(?:[^\]]*?\btok=(?P<tokens>\d+))?[^\]]*\]",
    ),
    _family(
        "TensorRT-LLM",
        r"^\[Executor\] _forward_step(?: (?P<number>\d+))?: (?P<ctx_reqs>\d+) ctx reqs,"
        r"(?: (?P<ctx_tok>\d+) ctx tokens,)? (?P<gen_reqs>\d+) gen reqs",
    ),
    _family(
        "cudagraph-doctor",
        r"^(?P<stage>decode|prefill|mixed) step=(?P<number>\d+) bs=(?P<batch>\d+)"
        r"(?: toks=(?P<tokens>\d+))?(?: prefill=(?P<ctx_tok>\d+))?(?: bucket=(?P<bucket>\d+))?\b",
        in_tokens=True,
    ),
    _family(
        "decode range with a batch size",
        r"(?i)^(?P<stage>decode|prefill)\b.*?\b(?:bs|batch(?:_size)?)\s*[=:]?\s*(?P<batch>\d+)"
        r"(?:.*?\bbucket\s*[=:]?\s*(?P<bucket>\d+))?",
    ),
    _family("Megatron", r"^(?P<stage>Prefill|Decode)$", rank=2),
    _family("vLLM forward scope", r"^(?:v2_)?gpu_model_runner: forward$", rank=2),
    _family("SGLang scheduler", r"^scheduler\.run_batch$", rank=2),
    _family("torch.profiler step", r"^ProfilerStep#(?P<number>\d+)$", rank=3),
)
"""All built-in families; a label belongs to the first that fits."""

_STAGES = {"EXTEND": Stage.PREFILL, "PREFILL": Stage.PREFILL, "MIXED": Stage.MIXED, "IDLE": Stage.IDLE}
_DECODING = re.compile(r"DECODE|VERIFY|DRAFT")
_EMIT_NVTX_TAIL = re.compile(r",\s*(seq|op_id|sizes|input_op_ids)\s*=.*$", re.DOTALL)
_CAPTURES = (
    re.compile(r"^capture bucket=(?P<bucket>\d+)"),
    re.compile(r"^capture_(?P<bucket>\d+)_(?P<kind>[A-Z_]+)$"),
)
_LOOKS_LIKE_A_STEP = re.compile(r"(?i)\b(decode|execute_|step|generation|prefill|forward_step)")
_GROUPS = {"batch", "tokens", "bucket", "stage", "number", "prefill"}


def user_family(pattern: str) -> Family:
    """The family of `--step-pattern`: named groups batch, tokens, bucket (also number, stage, prefill), all optional.

    Raises UsageError if it is no regular expression or names other groups.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise UsageError(
            f'--step-pattern "{pattern}" is no regular expression.',
            seen=str(error),
            fix=r"Write one like '^decode (?P<batch>\d+)/(?P<bucket>\d+)$'.",
        ) from None
    unknown = set(compiled.groupindex) - _GROUPS
    if unknown:
        raise UsageError(
            f'--step-pattern names a group "{sorted(unknown)[0]}" that means nothing here.',
            fix=f"Use the groups {', '.join(sorted(_GROUPS))}.",
        )
    return Family("--step-pattern", compiled, 0, in_tokens="tokens" in compiled.groupindex)


def strip(text: str) -> str:
    """The label without what `emit_nvtx` appends."""
    return _EMIT_NVTX_TAIL.sub("", text)


def read(text: str, own: Family | None = None) -> Label | None:
    """The step that a label names, None if it names none. A bucket, batch or token count of 10^9 and more is none."""
    text = strip(text)
    for family in (own, *FAMILIES) if own else FAMILIES:
        match = family.pattern.search(text)
        if match:
            return _label(text, family, match)
    return None


def capture_bucket(text: str) -> tuple[int, str] | None:
    """(bucket, kind) if the label is of a range around a capture; kind is "" where the label has none."""
    for pattern in _CAPTURES:
        match = pattern.match(text)
        if match:
            return int(match["bucket"]), match.groupdict().get("kind") or ""
    return None


def looks_like_a_step(text: str) -> bool:
    """Whether a label that fits no pattern might still be a step's: worth a word to the user."""
    return bool(_LOOKS_LIKE_A_STEP.search(text)) and not text.startswith("aten::")


def _label(text: str, family: Family, match: re.Match[str]) -> Label:
    found = {name: value for name, value in match.groupdict().items() if value is not None}

    def number(*names: str) -> int | None:
        value = next((found[name] for name in names if name in found), "")
        return int(value) if value.isdigit() and len(value) < 10 else None

    prefill = number("ctx_reqs") or number("ctx_tok", "prefill") or 0
    batch, tokens = number("batch", "gen_reqs"), number("tokens", "gen_tok")
    if family.in_tokens and prefill and tokens is not None:
        tokens += number("ctx_tok") or 0
    if "gen_reqs" in found:
        stage = {
            (False, False): Stage.IDLE,
            (True, False): Stage.PREFILL,
            (False, True): Stage.DECODE,
            (True, True): Stage.MIXED,
        }[bool(prefill), bool(batch)]
    else:
        stage = _stage(found.get("stage", ""), family.rank)
        if stage is Stage.DECODE and prefill:
            stage = Stage.MIXED
    name = found.get("stage", "").upper() if family.name == "SGLang" else stage.value
    return Label(
        text,
        family.name,
        stage,
        number("number"),
        batch,
        tokens,
        number("bucket"),
        family.in_tokens and tokens is not None,
        form=f"{family.name}: {name}",
    )


def _stage(word: str, rank: int) -> Stage:
    word = word.upper()
    if word in _STAGES:
        return _STAGES[word]
    if _DECODING.search(word):
        return Stage.DECODE
    # A pattern that the user wrote for decode steps need not say so; other labels without a stage may be anything.
    return Stage.DECODE if rank == 0 and not word else Stage.UNKNOWN
