"""Kernel names for people: the function's own name out of an Itanium-mangled one, without a demangler.

`readable("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEE...")` is
"vectorized_elementwise_kernel<CUDAFunctor_add>". Names that are not mangled (Triton, cuBLAS) stay as they are.
"""

from __future__ import annotations

import re

_SUBSTITUTION = re.compile(r"S[0-9A-Z]*_|S[absiodt]")
_NUMBERED = re.compile(r"L[a-z]n?[0-9]+E|[ST][0-9A-Z]*_")
"""Literals, substitutions and template parameters: numbers in them are no lengths."""
_LENGTH = re.compile(r"[1-9][0-9]*")
_TELLING = re.compile(r"Functor|_kernel_cuda$|_kernel_impl$|_cuda_kernel$|^cutlass_|Op$|Ops$")
"""Template arguments that say what a generic kernel does."""


def readable(name: str) -> str:
    """The kernel's name without namespaces and parameters, with the one template argument that tells most."""
    if not name.startswith("_Z"):
        return name
    own, rest = _function(name[2:])
    if not own:
        return name
    telling = next((word for word in _identifiers(rest) if _TELLING.search(word)), "")
    return f"{own}<{telling}>" if telling else own


def _function(mangled: str) -> tuple[str, str]:
    """(the function's own name, what follows it) of an <encoding>; "" if it is no plain or nested name."""
    rest = mangled.lstrip("L")  # internal linkage
    nested = rest.startswith("N")
    rest = rest.removeprefix("N").lstrip("rVKL")
    own = ""
    while rest:
        if substitution := _SUBSTITUTION.match(rest):
            rest = rest[substitution.end() :]
        elif length := _LENGTH.match(rest):
            own, rest = _take(rest, length)
            rest = rest.lstrip("L") if nested else rest
        else:
            break
        if not nested and own:
            break
    return own, rest


def _take(text: str, length: re.Match[str]) -> tuple[str, str]:
    """(identifier, rest) of `text`, which starts with the identifier's length."""
    end = length.end() + int(length.group())
    return text[length.end() : end], text[end:]


def _identifiers(mangled: str) -> list[str]:
    """All length-prefixed identifiers in a piece of a mangled name, in order."""
    found = []
    while mangled:
        length = _LENGTH.match(mangled)
        if numbered := _NUMBERED.match(mangled):
            mangled = mangled[numbered.end() :]
        elif length and length.end() + int(length.group()) <= len(mangled):
            identifier, mangled = _take(mangled, length)
            found.append(identifier)
        else:
            mangled = mangled[1:]
    return found
