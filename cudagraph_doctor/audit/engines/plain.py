"""A plain file, or a list on the command line: buckets, the largest batch, and what else a runner of one's own has.

buckets: [1, 2, 4, 8]
max_batch: 20
# all of these are optional
unit: requests            # or tokens: then a key of uniform requests is a multiple of tokens_per_request
tokens_per_request: 1     # 1 + draft tokens
padding: true
without_key: eager        # or raises
piecewise: []             # sizes of piecewise graphs
adapters: [0, 4]          # numbers of active adapters that are captured
max_adapters: 4
mixed_steps: false        # whether prefill tokens ride along in decode steps, and have no graph
sets: {verify: {...}, draft: {...}}   # instead of one list: several, each with the members above
"""

from __future__ import annotations

from cudagraph_doctor.audit.engines.rule import Asked
from cudagraph_doctor.audit.fields import MOST, Fields, tidy
from cudagraph_doctor.audit.keys import Configuration, KeySet, Unit
from cudagraph_doctor.errors import UsageError

NAME = "plain"


def read(fields: Fields, asked: Asked) -> Configuration:
    """The keys. Raises UsageError for a value or an option that is none, and without a list or a largest batch."""
    most = fields.integer("max_batch") or asked.max_batch
    mixed = fields.flag("mixed_steps")
    sections = fields.section("sets")
    if sections is None:
        sets, said = _set("decode", fields, most)
        made, untidy = [sets], said
    else:
        made, untidy = [], []
        for name in sections.names():
            section = sections.section(name)
            if section is None:
                raise sections.error(name, None, "a section with buckets")
            found, said = _set(name, section, section.integer("max_batch") or most)
            section.rest(strict=True)
            made.append(found)
            untidy += [f"{name}: {sentence}" for sentence in said]
        if not made:
            raise fields.error("sets", {}, "at least one set, such as verify: {buckets: [4, 8]}")
    fields.rest(strict=True)
    return Configuration(
        source=fields.where,
        engine=NAME,
        sets=tuple(made),
        origin="as given",
        mixed_uncovered="prefill tokens ride along in decode steps, which no graph serves" if mixed else "",
        untidy=tuple(untidy),
    )


def _set(name: str, fields: Fields, most: int | None) -> tuple[KeySet, list[str]]:
    given = fields.sizes("buckets")
    piecewise = fields.sizes("piecewise") or ()
    if given is None and not piecewise:
        raise UsageError(f"{fields.where} has no list of buckets.", fix="Add buckets: [1, 2, 4, 8], or give --buckets.")
    width = fields.integer("tokens_per_request") or 1
    unit = fields.word("unit") or Unit.REQUESTS.value
    without = fields.word("without_key") or "eager"
    padded = fields.flag("padding") is not False
    adapters = fields.sizes("adapters", least=0) or ()
    most_adapters = fields.integer("max_adapters", least=0)
    if unit not in set(Unit):
        raise fields.error("unit", unit, "requests or tokens")
    if without not in ("eager", "raises"):
        raise fields.error("without_key", without, "eager or raises")
    if most is None:
        raise UsageError(
            f"{fields.where} does not say the largest batch.",
            fix="Give --max-batch N, the most requests that run at once (in a file: max_batch: N).",
        )
    sizes, said = tidy(given or ())
    return KeySet(
        name,
        tuple(size for size in sizes if unit == Unit.REQUESTS.value or size % width == 0),
        most,
        Unit(unit),
        width,
        True,
        tidy(piecewise)[0],
        False,
        padded,
        tidy(adapters)[0],
        most_adapters if most_adapters is not None else max(adapters, default=0),
        MOST if without == "raises" else 0,
    ), [*said, *_no_multiples(sizes, width if unit == Unit.TOKENS.value else 1)]


def _no_multiples(sizes: tuple[int, ...], width: int) -> list[str]:
    odd = [size for size in sizes if size % width]
    return (
        [f"{', '.join(map(str, odd))}: no multiple of {width} tokens a request, so no whole requests fit"]
        if odd
        else []
    )
