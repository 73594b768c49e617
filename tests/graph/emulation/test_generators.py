"""Device draws apart from host draws; generators that know where they belong."""

from __future__ import annotations

import torch

from cudagraph_doctor.graph.emulation.generators import (
    Generator,
    default_generator,
    drawing_from,
    is_hosts,
    same,
)


def test_where_a_generator_belongs() -> None:
    assert Generator("cpu:0").device == Generator("cuda").device == torch.device("cpu:0")
    assert Generator().device == Generator("cpu").device == torch.device("cpu")


def test_only_one_made_for_the_host_is_the_hosts() -> None:
    assert is_hosts(Generator()) and not is_hosts(Generator("cpu:0")) and not is_hosts(torch.Generator())


def test_instances_of_both_kinds_are_generators() -> None:
    assert isinstance(torch.Generator(), Generator) and isinstance(Generator(), torch.Generator)
    assert not isinstance(3, Generator)


def test_it_draws_as_torchs_own() -> None:
    a, b = Generator("cpu:0"), torch.Generator()
    a.manual_seed(4)
    b.manual_seed(4)
    assert torch.equal(torch.rand(3, generator=a), torch.rand(3, generator=b))


def test_identity_is_torchs_own_object() -> None:
    a, b = Generator(), Generator()
    assert same(a, a) and not same(a, b)


def test_default_generators_start_alike() -> None:
    a, b = default_generator(), default_generator()
    assert torch.equal(torch.rand(3, generator=a), torch.rand(3, generator=b))


def test_drawing_from_a_generator_advances_it_and_not_the_host() -> None:
    generator = default_generator()
    expected = torch.rand(2, 3, generator=default_generator())
    before = torch.get_rng_state()
    drawn = []
    for _ in range(2):
        with drawing_from(generator):
            drawn.append(torch.rand(3))
    assert torch.equal(torch.stack(drawn), expected) and torch.equal(torch.get_rng_state(), before)


def test_the_host_is_put_back_when_the_operator_fails() -> None:
    before = torch.get_rng_state()
    try:
        with drawing_from(default_generator()):
            torch.rand(3)
            raise KeyError
    except KeyError:
        pass
    assert torch.equal(torch.get_rng_state(), before)
