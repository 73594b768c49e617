"""Which exception of a chain counts, and what it tells."""

from __future__ import annotations

import pytest

from cudagraph_doctor.graph.capture_errors import chain, code_of, first, kind_of
from cudagraph_doctor.graph.emulation import faults
from cudagraph_doctor.graph.illegal import Kind


def after(later: BaseException, earlier: BaseException) -> BaseException:
    later.__context__ = earlier
    return later


def test_codes_from_the_error_and_from_its_words() -> None:
    assert [code_of(faults.cuda_error(code)) for code in (900, 901, 904, 905)] == [900, 901, 904, 905]
    assert code_of(RuntimeError("CUDA error: operation not permitted when stream is capturing")) == 900
    assert code_of(RuntimeError("CUDA error: operation would make the legacy stream depend on a capturing one")) == 906
    assert code_of(faults.cuda_error(710)) is None and code_of(RuntimeError("bad shape")) is None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError(faults.PAGEABLE_COPY), Kind.PAGEABLE_COPY),
        (RuntimeError(faults.UNREGISTERED_GENERATOR), Kind.GENERATOR),
        (faults.reseeded("set_state"), Kind.GENERATOR),
        (faults.other_seed(), Kind.GENERATOR),
        (RuntimeError(faults.DEFAULT_STREAM), Kind.UNCAPTURED_WORK),
        (
            RuntimeError("Cannot prepare for replay during capturing stage. during CUDA graph capture."),
            Kind.NESTED_CAPTURE,
        ),
        (RuntimeError("cuDNN: No warmup iterations occurred before capture"), Kind.FIRST_USE),
        (faults.cuda_error(904), Kind.UNJOINED_FORK),
        (faults.cuda_error(905), Kind.UNCAPTURED_WORK),
        (faults.cuda_error(900), Kind.UNKNOWN),
        (ValueError("bad shape"), None),
    ],
)
def test_what_an_error_is_about(error: BaseException, kind: Kind | None) -> None:
    assert kind_of(error) is kind


def test_the_first_error_counts_and_not_the_one_from_the_end_of_the_capture() -> None:
    culprit, end = faults.cuda_error(900, "item"), faults.cuda_error(901)
    assert first(after(end, culprit)) is culprit
    wrapped = RuntimeError("capture failed")
    wrapped.__cause__ = after(faults.cuda_error(901), culprit)
    assert first(after(KeyError("clean-up"), wrapped)) is culprit
    library = RuntimeError("cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR")
    assert first(after(faults.cuda_error(901), library)) is library
    assert first(after(ValueError("b"), KeyError("a"))) is None


def test_a_chain_that_bites_its_tail_ends() -> None:
    a, b = RuntimeError("a"), RuntimeError("b")
    a.__cause__, b.__cause__ = b, a
    assert list(chain(a)) == [a, b]
