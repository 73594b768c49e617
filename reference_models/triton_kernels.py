"""The one kernel that is written in Triton. Imported on a GPU only."""

# No annotations on the kernel: Triton reads them.
import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def scale_rows(out, x, scale, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """out = x * scale; `count` numbers, contiguous. `scale` is a float, by value."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(out + at, tl.load(x + at, mask=inside) * scale, mask=inside)
